//! Estimates from samples, against estimates of everything.

use crate::{options, run, tree};
use estimate::{Error, Options, estimate};
use std::time::Duration;

/// Goal: for at least 18 of 20 seeds, the interval of a sample has the true size, for each record
/// size and compressor. The mean of the estimates is the true size, to a few percent.
#[test]
fn intervals() {
    const SEEDS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    tree::make(dir.path());
    let all = options(&[16 << 10, 128 << 10], &["off", "lz4", "zstd", "gzip-1"], 12);
    let truth = run(dir.path(), &all);
    let mut covered = vec![0; truth.rows.len()];
    let mut sums = vec![0.0; truth.rows.len()];
    for seed in 1..=SEEDS {
        let sample = Options { sample: Some(3 << 20), seed, ..all.clone() };
        let report = run(dir.path(), &sample);
        assert!(!report.exact && report.failures.count == 0, "{report:?}");
        assert!((20..200).contains(&report.draws), "{} draws", report.draws);
        assert!(report.read < 6 << 20, "{} bytes read", report.read);
        for (i, (row, want)) in report.rows.iter().zip(&truth.rows).enumerate() {
            covered[i] += u64::from(row.size.abs_diff(want.size) <= row.error);
            sums[i] += row.size as f64 / want.size as f64;
            // An interval that has everything says nothing.
            assert!(row.error < want.size / 2, "seed {seed}: {row:?}");
        }
        let again = run(dir.path(), &sample);
        assert_eq!(again.rows, report.rows, "the same seed chooses the same sample");
    }
    for ((covered, sum), row) in covered.iter().zip(sums).zip(&truth.rows) {
        let mean = sum / SEEDS as f64;
        assert!(*covered >= 18, "{} of {SEEDS} have the size of {row:?}", covered);
        assert!((0.95..1.05).contains(&mean), "the mean is {mean} of {row:?}");
    }
}

/// Goal: a larger sample has a smaller interval.
#[test]
fn larger() {
    let dir = tempfile::tempdir().unwrap();
    tree::make(dir.path());
    let error = |sample| {
        let all = options(&[16 << 10], &["lz4"], 12);
        run(dir.path(), &Options { sample: Some(sample), ..all }).rows[0].error
    };
    let (small, large) = (error(1 << 20), error(8 << 20));
    assert!(large * 2 < small, "{small} and {large}");
}

/// Goal: when the time ends, there is an error, and no figure.
#[test]
fn time() {
    let dir = tempfile::tempdir().unwrap();
    tree::make(dir.path());
    let now = Options { time: Some(Duration::ZERO), ..options(&[16 << 10], &["lz4"], 12) };
    for sample in [None, Some(1 << 20), Some(1 << 40)] {
        let end = estimate(&[dir.path().to_owned()], &Options { sample, ..now.clone() });
        assert!(matches!(end, Err(Error::Time { .. })), "{sample:?}: {end:?}");
    }
}
