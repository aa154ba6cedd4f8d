use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use ondisk::VdevKind;

use crate::discovery::*;

/// Goal: in every fixture the search finds exactly the one pool, by its name, with each leaf of its
/// tree among the members.
#[test]
fn finds_every_fixture() {
    let names = testkit::names();
    assert!(!names.is_empty());
    for fixture in names.iter().map(|n| testkit::load(n)) {
        if fixture.images().is_empty() {
            continue;
        }
        let found = discover(fixture.images());
        assert_eq!(found.pools.len(), 1, "{}", fixture.name());
        let pool = &found.pools[0];
        assert_eq!(pool.name, fixture.pool());
        let tree = pool.config.vdev_tree.as_ref().unwrap();
        for leaf in tree.leaves().filter(|l| matches!(l.kind, VdevKind::File | VdevKind::Disk)) {
            assert!(pool.members.iter().any(|m| m.guid() == leaf.guid), "{}: {}", fixture.name(), leaf.guid);
        }
        let counted = fixture.images().len();
        assert_eq!(
            pool.members.len() + found.auxiliary.len(),
            counted - gone(fixture.name()),
            "{}",
            fixture.name()
        );
    }
}

/// Images of a fixture that no longer hold a label: those of removed devices.
fn gone(fixture: &str) -> usize {
    if fixture == "removed-vdev" { 2 } else { 0 }
}

/// Goal: a folder stands for the files in it, each device once under whatever names; what is not a
/// device is left alone.
#[test]
fn folders_and_links() {
    let copy = testkit::fixture_copy("mirror2");
    let dir = copy.images()[0].parent().unwrap();
    std::os::unix::fs::symlink(&copy.images()[0], dir.join("again")).unwrap();
    fs::write(dir.join("notes.txt"), "not a device").unwrap();
    fs::create_dir(dir.join("deeper")).unwrap();
    let found = discover(&[dir, dir]);
    assert_eq!(found.pools.len(), 1);
    assert_eq!(found.pools[0].members.len(), 2);
}

/// Goal: a device with one label left is still found, and one whose labels are gone is not.
#[test]
fn damaged_labels() {
    let copy = testkit::fixture_copy("mirror2");
    let file = OpenOptions::new().write(true).open(&copy.images()[1]).unwrap();
    let size = file.metadata().unwrap().len();
    let wipe = |l| {
        let at = ondisk::label::label_offset(size, l).unwrap();
        file.write_all_at(&vec![0xa5; 256 << 10], at).unwrap();
    };
    [0, 1, 3].into_iter().for_each(wipe);
    let found = discover(copy.images());
    let labels: Vec<_> = found.pools[0].members.iter().map(|m| m.labels).collect();
    assert_eq!(labels, [4, 1]);
    wipe(2);
    assert_eq!(discover(copy.images()).pools[0].members.len(), 1);
}

/// Goal: without any device of a top-level vdev, its place in the tree is marked as missing.
#[test]
fn missing_top_level_vdev() {
    let images = testkit::fixture("stripe-classes");
    let found = discover(&images[1..]);
    let tree = found.pools[0].config.vdev_tree.clone().unwrap();
    let kinds: Vec<_> = tree.children.iter().map(|c| c.kind).collect();
    assert_eq!(kinds[0], VdevKind::Missing);
    assert_eq!(tree.children.len(), 4);
    assert!(tree.children.iter().zip(0..).all(|(c, n)| c.id == n));
}

/// Goal: when two copies of one device are found, the one with the newer label is preferred.
#[test]
fn newer_copy_wins() {
    let copy = testkit::fixture_copy("mirror2");
    let images = copy.images().to_vec();
    let twin = images[0].with_file_name("a-twin.img");
    fs::copy(&images[0], &twin).unwrap();
    let found = discover(&[twin.clone(), images[0].clone()]);
    let guid = found.pools[0].members[0].guid();
    assert!(found.pools[0].members.iter().all(|m| m.guid() == guid));
    assert_eq!(found.pools[0].members[0].place.path, twin, "equal labels: the earlier path");
}

/// Goal: a pool in a partition of a master boot record, primary or logical, is found in that
/// partition and opens. zpool makes none there, but other systems' installers do.
#[test]
fn boot_record_partitions() {
    let copy = testkit::fixture_copy("v1");
    let image = &copy.images()[0];
    let size = fs::metadata(image).unwrap().len();
    let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap().to_le_bytes();
    let record = |entries: &[(u8, u64, u64)]| {
        let mut sector = [0; 512];
        for (slot, (kind, first, len)) in sector[446..510].chunks_mut(16).zip(entries) {
            slot[4] = *kind;
            slot[8..12].copy_from_slice(&sectors(*first));
            slot[12..16].copy_from_slice(&sectors(*len));
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    };
    const MIB: u64 = 1 << 20;
    for (number, start) in [(2, 3 * MIB), (5, 8 * MIB)] {
        let disk = image.with_file_name(format!("disk{number}"));
        let to = fs::File::create(&disk).unwrap();
        to.set_len(start + size).unwrap();
        let bytes = fs::read(image).unwrap();
        for (n, chunk) in bytes.chunks(1 << 20).enumerate().filter(|(_, c)| c.iter().any(|b| *b != 0)) {
            to.write_all_at(chunk, start + ((n as u64) << 20)).unwrap();
        }
        if number == 2 {
            to.write_all_at(&record(&[(0x0c, MIB, MIB), (0xbf, start, size)]), 0).unwrap();
        } else {
            to.write_all_at(&record(&[(0x0c, MIB, MIB), (5, 7 * MIB, MIB + size)]), 0).unwrap();
            to.write_all_at(&record(&[(0xbf, MIB, size)]), 7 * MIB).unwrap();
        }
        let found = discover(&[&disk]);
        assert_eq!(found.pools.len(), 1, "partition {number}");
        let member = &found.pools[0].members[0];
        let part = member.place.partition.unwrap();
        assert_eq!((part.number, part.offset, part.size), (number, start, size));
        assert_eq!((found.pools[0].name.as_str(), member.labels), (testkit::load("v1").pool(), 4));
    }
}
