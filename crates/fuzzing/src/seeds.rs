//! Seeds: the first inputs of the targets, cut from real pools.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Fixtures whose images give seeds: the smallest ones that together have all kinds of blocks.
const SOURCES: [&str; 5] = ["v1", "whole-disk-gpt", "dedup-legacy", "zil-freeze", "block-clone"];

fn read(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// From the first label: configuration, boot environment and uberblocks. Also the partition table.
fn of_labels(target: &str, file: &File) -> Vec<Vec<u8>> {
    const PART: u64 = 2048 * 512;
    let at = |offset, len| [0, PART].into_iter().filter_map(move |base| read(file, base + offset, len));
    match target {
        "label" => at(16 << 10, 112 << 10).chain(at(8 << 10, 8 << 10)).collect(),
        "nvlist" | "config" => at(16 << 10, 16 << 10).collect(),
        "uberblock" => (0..128).flat_map(|i| at((128 + i) << 10, 1 << 10)).collect(),
        "mbr" => read(file, 0, 512).into_iter().collect(),
        "gpt" => read(file, 512, 512 + 128 * 128).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Nonzero ranges from all parts of an image: compressed and plain blocks of all kinds.
fn of_blocks(file: &File, count: usize) -> Vec<Vec<u8>> {
    let len = file.metadata().map_or(0, |m| m.len());
    let mut found = Vec::new();
    let mut at = 4 << 20;
    while at < len && found.len() < count * 64 {
        match read(file, at, 4096) {
            Some(bytes) if bytes.iter().any(|b| *b != 0) => found.push(bytes),
            _ => {}
        }
        at += 4096;
    }
    let step = (found.len() / count).max(1);
    found.into_iter().step_by(step).take(count).collect()
}

fn of_image(target: &str, image: &Path) -> Vec<Vec<u8>> {
    let file = File::open(image).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    let mut seeds: Vec<_> =
        of_labels(target, &file).into_iter().filter(|s| s.iter().any(|b| *b != 0)).collect();
    seeds.truncate(16);
    if seeds.is_empty() {
        seeds = of_blocks(&file, 16);
    }
    seeds
}

/// The seeds of a target: bytes from the place in a real pool that the decoder reads. For input
/// from clients, requests as clients send them.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "stream" => return crate::stream::streams(),
        "afs_dump" => return crate::afs::dumps(),
        "afs_dir" => return crate::afs::directories(),
        "afs_acl" => return crate::afs::acls(),
        "afs_calls" => return crate::afs::conversations(),
        "afs_config" => return crate::afs::configs(),
        "afs_vicep" => return crate::afs::records(),
        "nbd_option" => return crate::nbd::options(),
        "nbd_requests" => return crate::nbd::conversations(),
        "rx_packet" => return crate::rx::packets(),
        "rx_ticket" => return crate::rx::tickets(),
        "rx_response" => return crate::rx::responses(),
        "rx_key_file" => return crate::rx::key_files(),
        "rx_conversation" => return crate::rx::conversations(),
        _ => {}
    }
    let mut seeds = vec![Vec::new(), vec![0; 512]];
    for name in SOURCES {
        for image in testkit::fixture(name) {
            seeds.extend(of_image(target, &image));
        }
    }
    seeds
}
