//! The fixtures themselves: they can be unpacked, and their manifests and transcripts can be read.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use testkit::EntryKind;

/// Goal: every fixture unpacks to large, sparse images.
#[test]
fn every_fixture_unpacks_sparse_and_whole() {
    for name in testkit::names() {
        let fixture = testkit::load(&name);
        assert!(!fixture.images().is_empty(), "{name}: no images");
        for image in fixture.images() {
            let meta = fs::metadata(image).unwrap();
            assert!(meta.len() >= 64 << 20, "{}: {} bytes", image.display(), meta.len());
            assert!(meta.blocks() * 512 < meta.len(), "{}: not sparse", image.display());
        }
    }
}

/// Goal: the bundled selection stays below its limit, and is not empty by accident.
#[test]
fn the_bundled_choice_stays_below_its_limit() {
    let mut total = 0;
    for dir in fs::read_dir(testkit::bundled_dir()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        total += fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum::<u64>();
    }
    assert!(total <= 45_000_000, "fixtures/ holds {total} bytes");
    assert!(total > 40_000_000, "fixtures/ holds {total} bytes: was something lost?");
}

/// Goal: a bundled fixture is the same as that of the whole set, where that is available. So tests
/// of one say something about the other.
#[test]
fn the_bundled_choice_is_of_the_whole_set() {
    let Some(whole) = std::env::var_os("FIXTURES").filter(|dir| !dir.is_empty()) else { return };
    let (whole, bundled) = (testkit::workspace_root().join(whole), testkit::bundled_dir());
    let mut both = 0;
    for entry in std::fs::read_dir(&bundled).unwrap() {
        let name = entry.unwrap().file_name();
        let images = |set: &std::path::Path| std::fs::read(set.join(&name).join("images.tar.zst"));
        if let (Ok(ours), Ok(theirs)) = (images(&bundled), images(&whole)) {
            assert!(ours == theirs, "{name:?}");
            both += 1;
        }
    }
    assert!(both > 5, "{both} fixtures are in both");
}

/// Goal: the lines of a manifest parse, with the known kinds, attributes and names.
#[test]
fn manifests_are_read() {
    let fixture = testkit::load("single-lz4");
    let manifest = fixture.manifest("single-lz4/xa-sa").unwrap();
    let entries = manifest.entries();
    assert_eq!(entries[0].path, b"");
    assert_eq!((entries[0].kind, entries[0].ino), (EntryKind::Dir, 34));
    for kind in [EntryKind::File, EntryKind::Symlink, EntryKind::Fifo, EntryKind::Chr, EntryKind::Sock] {
        assert!(entries.iter().any(|e| e.kind == kind), "no {kind:?}");
    }
    assert!(entries.iter().any(|e| e.xattrs.contains_key("user.bin")));
    assert!(entries.iter().any(|e| std::str::from_utf8(&e.path).is_err()), "a name that is not UTF-8");
    assert!(fixture.manifests().iter().any(|m| m.dataset == "single-lz4/snaps@two" && m.is_snapshot()));
    let checkpoint = testkit::load("checkpoint").manifests();
    assert!(checkpoint.iter().any(|m| m.variant.as_deref() == Some("at-checkpoint")));
}

/// Goal: volumes and transcripts of a fixture are found. A damaged fixture has those of its base.
#[test]
fn volumes_and_transcripts_are_read() {
    let fixture = testkit::load("zvols");
    assert!(fixture.zvols().iter().any(|v| v.name == "zvols/pat@one" && v.size == Some(8 << 20)));
    assert_eq!(fixture.manifest("zvols").unwrap().entries().len(), 1);
    assert!(fixture.output("zpool-status.txt").unwrap().contains("state: ONLINE"));
    assert!(fixture.outputs().contains(&"zfs-get.txt".to_owned()));
    assert_eq!(fixture.output("no-such-transcript"), None);
    let damaged = testkit::load("mirror2-damaged");
    assert_eq!(damaged.pool(), "xmirror2");
    assert_eq!(damaged.manifests().len(), damaged.base().unwrap().manifests().len());
}

/// Goal: a damaged image differs from its base exactly where the damage is. Other images are
/// shared.
#[test]
fn damage_is_applied() {
    let damaged = testkit::load("mirror2-damaged");
    let base = damaged.base().unwrap();
    assert_eq!(damaged.images()[0], base.images()[0]);
    assert_ne!(damaged.images()[1], base.images()[1]);
    let read = |path, offset| {
        let mut buf = vec![0; 512];
        fs::File::open(path).unwrap().read_exact_at(&mut buf, offset).unwrap();
        buf
    };
    let (good, bad) = (&base.images()[1], &damaged.images()[1]);
    assert_ne!(read(good, 4_212_736), read(bad, 4_212_736));
    assert_eq!(read(good, 4_212_736 - 512), read(bad, 4_212_736 - 512));
    // The first label is zeroed.
    assert_ne!(read(good, 16 << 10), vec![0; 512]);
    assert_eq!(read(bad, 16 << 10), vec![0; 512]);
}

/// Goal: a private copy has the same bytes, is sparse, and is removed when dropped.
#[test]
fn a_copy_is_private() {
    let fixture = testkit::load("v1");
    let copy = fixture.copy();
    let dir = copy.dir().to_owned();
    let (from, to) = (&fixture.images()[0], &copy.images()[0]);
    assert_eq!(fs::read(from).unwrap(), fs::read(to).unwrap());
    assert!(fs::metadata(to).unwrap().blocks() * 512 < fs::metadata(to).unwrap().len());
    fs::OpenOptions::new().write(true).open(to).unwrap().write_all_at(b"changed", 0).unwrap();
    assert_ne!(fs::read(from).unwrap()[..7], *b"changed");
    drop(copy);
    assert!(!dir.exists());
}
