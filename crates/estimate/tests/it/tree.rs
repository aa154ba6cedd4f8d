//! A tree with everything that an estimate must know.

use std::fs::{File, create_dir, hard_link, write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use testpools::noise;

/// Lines of a log, which compress to about a quarter.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 200);
    for (i, n) in (0..).zip(noise(seed, len / 12 + 16).chunks_exact(8).map(<[u8]>::to_vec).cycle()) {
        if out.len() >= len {
            break;
        }
        let word = |i: usize| ["open", "fetch", "store", "release", "callback", "lock", "volume"][i % 7];
        let line = format!(
            "2026-11-{:02} {:02}:{:02}:{:02} server{} {} {} id={}{:02x}{:02x}\n",
            n[0] % 30,
            i / 3600 % 24,
            i / 60 % 60,
            i % 60,
            n[1] % 12,
            word(n[2].into()),
            word(n[3].into()),
            u32::from(n[4]) * 131,
            n[5],
            n[6]
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(len);
    out
}

/// Makes the tree, of about ten megabytes.
pub fn make(dir: &Path) {
    for name in ["text", "random", "tiny", "same", "many", "many/deep", "sparse"] {
        create_dir(dir.join(name)).unwrap();
    }
    for i in 0..24u64 {
        write(dir.join(format!("text/log.{i}")), text(i, 3000 + 9137 * i as usize)).unwrap();
    }
    write(dir.join("text/long"), text(99, 2_500_001)).unwrap();
    write(dir.join("random/one"), noise(1, 1_370_000)).unwrap();
    write(dir.join("random/whole"), noise(2, 1 << 20)).unwrap();
    // Half of each block is noise.
    let mixed: Vec<u8> = (0..40).flat_map(|i| [noise(i, 9000), vec![b'x'; 9000]].concat()).collect();
    write(dir.join("random/mixed"), mixed).unwrap();
    for i in 0..300usize {
        write(dir.join(format!("tiny/message-{i}.eml")), text(i as u64, i * 7)).unwrap();
    }
    for i in 0..4 {
        write(dir.join(format!("same/copy-{i}")), noise(3, 700_000)).unwrap();
    }
    for i in 0..2300 {
        write(dir.join(format!("many/deep/an-entry-with-number-{i:05}")), []).unwrap();
    }
    write(dir.join("sparse/zeros"), vec![0; 1_200_000]).unwrap();
    let holes = File::create(dir.join("sparse/holes")).unwrap();
    holes.write_all_at(&text(7, 300_000), 0).unwrap();
    holes.write_all_at(&noise(8, 200_000), 3 << 20).unwrap();
    holes.set_len(6 << 20).unwrap();
    symlink("../text/long", dir.join("sparse/link")).unwrap();
    hard_link(dir.join("random/one"), dir.join("sparse/one")).unwrap();
}
