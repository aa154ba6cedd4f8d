//! Every file of every file system on the pools of one disk, compared with what OpenZFS showed.

#![allow(clippy::unwrap_used)]
mod common;

use common::pool::{filesystems, mos};
use std::collections::BTreeSet;
use zpl::FileSystem;

/// Compares a pool's file systems with their manifests and returns how many files that were.
fn check(name: &str, live: bool) -> usize {
    let Some(fx) = testkit::find(name) else { return 0 };
    let sets = filesystems(fx.pool(), &mos(&fx.images()[0]));
    let (mut files, mut problems) = (0, Vec::new());
    for m in fx.manifests() {
        if m.variant.is_some() || !(live || m.is_snapshot()) {
            continue;
        }
        let Some(os) = sets.get(&m.dataset) else {
            // Only encrypted ones may be missing: this opener has no keys.
            assert!(m.dataset.contains("enc"), "{name}: no {}", m.dataset);
            continue;
        };
        let fs = FileSystem::open(os).unwrap();
        // Datasets below were mounted on directories of their name.
        let prefix = format!("{}/", m.dataset);
        let below: BTreeSet<Vec<u8>> = fx
            .manifests()
            .iter()
            .filter_map(|o| o.dataset.strip_prefix(&prefix))
            .filter(|rest| !rest.contains('@'))
            .map(|rest| rest.as_bytes().to_vec())
            .collect();
        let (n, p) = common::compare(&fs, &m, &below);
        files += n;
        problems.extend(p);
    }
    let shown: Vec<_> = problems.iter().take(40).collect();
    assert!(problems.is_empty(), "{name}: {} differences: {shown:#?}", problems.len());
    files
}

/// Record sizes, compressors, checksums, xattrs both ways, ACLs, dnode sizes, case, normalization, snapshots, clones.
#[test]
fn single_lz4() {
    assert!(check("single-lz4", true) > 10_000);
}

/// ZPL 1 on pool version 1: znodes in the bonus, no types in directory entries.
#[test]
fn v1() {
    assert!(check("v1", true) > 50);
}

/// ZPL 1 to 4.
#[test]
fn v28() {
    assert!(check("v28", true) > 200);
}

/// Names of up to 1023 bytes.
#[test]
fn longname() {
    assert!(check("longname", true) > 50);
}

/// Gang blocks, embedded data.
#[test]
fn gang() {
    assert!(check("gang", true) > 50);
}

/// Pools of one disk in which other things than files are special.
#[test]
fn other_pools() {
    for name in ["v5000-nofeat", "block-clone", "dedup-fast", "dedup-legacy", "send-src"] {
        check(name, true);
    }
}

/// Snapshots on pools whose logs were not replayed.
#[test]
fn snapshots_before_logs() {
    for name in ["zil-freeze", "zil-crash"] {
        check(name, false);
    }
}
