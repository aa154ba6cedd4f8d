//! Estimates of everything, against pools that hold a copy.

use crate::{options, pools, run, tree};
use poolhouse::dsl::Prop;
use std::fmt::Write;

/// Goal: with everything read, the estimate is what the file system uses, for each record size,
/// compressor and sector size. It may differ by 2 %: in the pool, object numbers, times and
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
        let mut wrong = String::new();
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
                let mark = if off.abs() > 2.0 { "***" } else { "" };
                writeln!(wrong, "{ashift} {name} {prop:?}: {got}, in the pool {want}: {off:+.2} % {mark}")
                    .unwrap();
            }
        }
        pool.export().unwrap();
        assert!(!wrong.contains("***"), "\n{wrong}");
        println!("{wrong}");
    }
}
