//! Draws, and their statistics.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;

/// Goal: the quantiles are those of the tables.
#[test]
fn quantiles() {
    for (d, t) in [(7.0, 2.365), (9.0, 2.262), (30.0, 2.042), (1000.0, 1.962)] {
        assert!((student(d) - t).abs() < 0.01 * t, "{d}: {}", student(d));
    }
}

/// Goal: draws that are all alike still have an interval, of about the size that three in n
/// give.
#[test]
fn alike() {
    let mut sums = Sums::default();
    sums.add(100.0, Shares { data: 1.0, ..Shares::default() });
    let width = sums.half_width(100.0, 1.0);
    assert!((0.01..0.04).contains(&width), "{width}");
    assert_eq!(Sums::default().half_width(100.0, 0.0), 0.0);
}

/// Goal: units are drawn in proportion to their sizes, wherever in the walk their files are.
#[test]
fn proportional() {
    let dir = tempfile::tempdir().unwrap();
    // Sparse files: they are drawn, not read.
    let sizes: Vec<u64> =
        (0..60).map(|i| [1, 700, 5000, 100_000, 300_000, 1 << 20][i % 6] * (1 + i as u64 / 6)).collect();
    for (i, size) in sizes.iter().enumerate() {
        std::fs::File::create(dir.path().join(format!("{i:02}"))).unwrap().set_len(*size).unwrap();
    }
    let lz4 = crate::Compressor {
        name: "lz4".into(),
        kind: CompressKind::Lz4,
        level: codec::compress::ZstdLevel::DEFAULT,
    };
    let options = Options {
        records: vec![4096],
        compressors: vec![lz4],
        ashift: 9,
        sample: Some(1),
        time: None,
        dedup: false,
        cross: false,
        seed: 5,
        threads: 1,
    };
    let mut survey = Survey::new(&options);
    let mut failures = crate::Failures::default();
    let roots = crate::walk::Roots::open(&[dir.path().to_owned()], false).unwrap();
    roots.walk(&mut survey, &mut failures);
    let weights: Vec<f64> = sizes.iter().map(|size| size.next_multiple_of(512) as f64).collect();
    assert_eq!(survey.weight as f64, weights.iter().sum::<f64>());
    let mut drawn = vec![0.0; sizes.len()];
    let mut offsets = 0.0;
    for (file, offset) in survey.drawn.iter().flatten() {
        let name = file.path.to_str().unwrap();
        drawn[name.parse::<usize>().unwrap()] += 1.0;
        assert!(*offset < file.size && offset % options.unit() == 0);
        let middle = offset + (file.size - offset).min(options.unit()) / 2;
        offsets += middle as f64 / file.size as f64;
    }
    // The sum of squares over what is expected has the number of files as its mean.
    let expected = |weight: &f64| weight / survey.weight as f64 * DRAWS_MAX as f64;
    let squares: f64 =
        drawn.iter().zip(&weights).map(|(n, weight)| (n - expected(weight)).powi(2) / expected(weight)).sum();
    assert!(squares < 100.0, "chi squared is {squares} for 59 degrees of freedom");
    assert!((0.48..0.52).contains(&(offsets / DRAWS_MAX as f64)), "{offsets}");
}

/// Goal: the first batch of draws is the smallest sample, and batches double up to a limit. None is
/// left out.
#[test]
fn batch_sizes() {
    let sizes = |n: usize| batches(&vec![0; n]).map(<[i32]>::len).collect::<Vec<_>>();
    assert_eq!(sizes(700), [8, 8, 16, 32, 64, 128, 256, 188]);
    assert_eq!(sizes(5), [5]);
    assert!(sizes(0).is_empty());
}
