//! Estimates of everything, against pools that hold a copy.

use crate::{options, pools, run, tree};
use estimate::Options;
use poolhouse::dsl::Prop;
use std::fmt::Write;

/// Goal: with everything read, the estimate is what the file system uses, for each record size,
/// compressor and sector size. It may differ by 1 %: in the pool, object numbers, times and
/// checksums are others, so its dnodes and indirect blocks compress to other sizes.
#[test]
fn exact() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    std::fs::create_dir(&from).unwrap();
    tree::make(&from);
    for (ashift, records, compressors) in [
        (12, &[16 << 10, 128 << 10, 1 << 20][..], &["off", "lz4", "zstd", "gzip-1"][..]),
        (9, &[4 << 10, 128 << 10][..], &["off", "lz4", "zle"][..]),
    ] {
        let report = run(&from, &options(records, compressors, ashift));
        assert!(report.exact && report.failures.count == 0, "{report:?}");
        let image = dir.path().join("image");
        let pool = pools::new_pool(&image, ashift);
        let mut sizes = String::new();
        for row in &report.rows {
            let name = format!("tank/{}-{}", row.compressor, row.record);
            let record = row.record.to_string();
            pools::file_system(&pool, &name, &[("recordsize", &record), ("compression", &row.compressor)]);
            let dataset = pools::copy(&pool, &name, &from);
            for (prop, got) in
                [(Prop::Used, row.size), (Prop::Logicalused, row.logical), (Prop::Compressratio, row.ratio)]
            {
                let want = pools::number(&dataset, prop);
                let off = got as f64 / want as f64 * 100.0 - 100.0;
                let mark = if off.abs() > 1.0 { "***" } else { "" };
                writeln!(sizes, "{ashift} {name} {prop:?}: {got}, in the pool {want}: {off:+.2} % {mark}")
                    .unwrap();
            }
        }
        pool.export().unwrap();
        assert!(!sizes.contains("***"), "\n{sizes}");
    }
}

/// Goal: a directory with one empty file takes what a new file system with one takes, to a block.
#[test]
fn nearly_empty() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("one"), []).unwrap();
    for ashift in [9, 12] {
        let report = run(&from, &options(&[128 << 10], &["lz4"], ashift));
        let pool = pools::new_pool(&dir.path().join("image"), ashift);
        pools::file_system(&pool, "tank/lz4", &[("compression", "lz4")]);
        let dataset = pools::copy(&pool, "tank/lz4", &from);
        let used = pools::number(&dataset, Prop::Used);
        assert!(used.abs_diff(report.rows[0].size) <= 2 << ashift, "{used} in the pool, {:?}", report.rows);
        pool.export().unwrap();
    }
}

/// Goal: what equal records save is what the dedup table of a pool says.
#[test]
fn dedup() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    std::fs::create_dir(&from).unwrap();
    tree::make(&from);
    for compressor in ["off", "lz4"] {
        let all = Options { dedup: true, ..options(&[16 << 10], &[compressor], 12) };
        let report = run(&from, &all);
        let pool = pools::new_pool(&dir.path().join("image"), 12);
        let props = [("recordsize", "16K"), ("compression", compressor), ("dedup", "on")];
        pools::file_system(&pool, "tank/same", &props);
        pools::copy(&pool, "tank/same", &from);
        let tops = pool.spa().top_vdevs().unwrap();
        let tables = pool.spa().ddts(&tops).unwrap();
        let total = tables
            .iter()
            .map(|t| t.total())
            .fold((0, 0, 0), |sum, t| (sum.0 + t.dsize, sum.1 + t.ref_dsize, sum.2 + t.blocks));
        let row = &report.rows[0];
        let got = row.dedup.unwrap();
        let near = |a: u64, b: u64| a.abs_diff(b) <= b / 500;
        assert!(got.error == 0 && near(got.size - row.metadata, total.0), "{got:?} {row:?} {total:?}");
        assert!(got.ratio.abs_diff(total.1 * 100 / total.0) <= 1, "{got:?}, {total:?}");
        assert!(got.records.abs_diff(total.2) <= 2, "{got:?}, {total:?}");
        pool.export().unwrap();

        // Part of the hashes, while a sample gives the sizes.
        let part = run(&from, &Options { sample: Some(4 << 20), ..all });
        let some = part.rows[0].dedup.unwrap();
        assert!(!part.exact && some.error > 0, "{part:?}");
        assert!(some.size.abs_diff(got.size) <= some.error, "{some:?}, {got:?}");
    }
}
