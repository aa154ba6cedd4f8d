//! The intent log, as its blocks and its promises are seen from outside: by `zdb`, on what a crash left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use ondisk::config::AllocBias;
use ondisk::feature::{FEATURES, Feature};
use ondisk::zil::{Create, FileId, RecordBody, TxKind};
use ondisk::{ObjNum, Txg};
use rig::{ask, images, judge, noise, own, pool_of, write_file};
use spa::create::{NewLeaf, NewVdev, VdevShape};
use spa::engine::{Live, LogHandle};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zil::{Found, Source};

/// Whoever writes the files of these tests.
struct Files<'a>(&'a dsl::Owned);

impl Source for Files<'_> {
    fn data(&self, object: ObjNum, offset: u64, buf: &mut [u8]) -> Found {
        match self.0.objset().dnode(object).map(|dn| dn.read_at(offset, buf)) {
            Ok(Ok(())) => Found::Here,
            _ => Found::Gone,
        }
    }
}

/// Copies an image without its holes.
fn copy(from: &Path, to: &Path) {
    let (from, to) = (std::fs::File::open(from).unwrap(), std::fs::File::create(to).unwrap());
    let len = from.metadata().unwrap().len();
    to.set_len(len).unwrap();
    let mut piece = vec![0; 1 << 16];
    for at in (0..len).step_by(piece.len()) {
        from.read_exact_at(&mut piece, at).unwrap();
        if piece.iter().any(|b| *b != 0) {
            to.write_all_at(&piece, at).unwrap();
        }
    }
}

/// What a crash now would leave: no group is written meanwhile.
fn crash(live: &Live, from: &Path) -> tempfile::TempDir {
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        copy(&file.path(), &to.path().join(file.file_name()));
    }
    to
}

/// Makes a file with these bytes, and logs that.
fn log_file(live: &Live, owned: &dsl::Owned, log: &LogHandle, n: u64, bytes: &[u8]) -> ObjNum {
    let object = write_file(live, owned, bytes).unwrap();
    let tx = live.tx(0).unwrap();
    let create = Create {
        doid: 34,
        foid: FileId { object: object.0, slots: 1 },
        mode: 0o100_644,
        uid: 1,
        gid: 2,
        gen_: tx.txg().0,
        crtime: [3, 4],
        rdev: 0,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: format!("file{n}").into_bytes(),
        link: None,
    };
    log.log_names(&tx, TxKind::Create, false, &RecordBody::Create(create));
    log.log_write(&tx, object, 0, bytes, bytes.len() < 1000);
    object
}

/// Goal: what was committed, and nothing else, is in a chain that `zdb` reads, on every kind of vdev and while groups come and go;
/// space that it takes is accounted for at any moment; and an exported pool has none.
fn chain(shape: VdevShape, count: usize, log_devices: usize) {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), count + log_devices, 96 << 20);
    let vdev = |shape, bias, images: &[PathBuf]| {
        let leaves = images.iter().map(|p| NewLeaf { path: p.clone() }).collect();
        NewVdev { shape, bias, leaves }
    };
    let mut vdevs = vec![vdev(shape, None, &images[..count])];
    if log_devices > 0 {
        vdevs.push(vdev(VdevShape::Mirror, Some(AllocBias::Log), &images[count..]));
    }
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let spa = pool_of(vdevs, &features);
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let log = live.log(&owned);
    // The first commit is its group's: there is no chain yet.
    let first = log_file(live, &owned, &log, 0, b"first");
    log.commit(Some(first), &Files(&owned)).unwrap();
    assert_eq!(log.stats().block_count, 0);
    for round in 0..2u64 {
        for n in 1..20 {
            let len = [10, 500, 4000, 70_000, 300_000][n as usize % 5];
            let object = log_file(live, &owned, &log, round * 100 + n, &noise(n, len));
            if n % 2 == 0 {
                log.commit(Some(object), &Files(&owned)).unwrap();
            }
        }
        let left = crash(live, dir.path());
        if let Some(said) = ask(left.path(), "tank", &["-iiii"]) {
            assert!(said.contains("TX_CREATE"), "{said}");
            let last = format!("file{}", round * 100 + 18);
            assert!(said.contains(&last), "{last}: {said}");
            assert!(!said.contains(&format!("file{}\n", round * 100 + 19)), "{said}");
            // All blocks are where they belong.
            let place = if log_devices > 0 { "DVA[0]=<1:" } else { "DVA[0]=<0:" };
            let blocks: Vec<&str> = said.lines().filter(|l| l.contains("zilog2")).collect();
            assert!(!blocks.is_empty() && blocks.iter().all(|b| b.contains(place)), "{blocks:?}");
        }
        judge(left.path(), "tank");
        if round % 2 == 1 {
            live.sync_all().unwrap();
            judge(crash(live, dir.path()).path(), "tank");
        }
    }
    let stats = log.stats();
    assert!(stats.block_count > 0 && stats.itx_needcopy_count > 0 && stats.itx_copied_count > 0, "{stats:?}");
    drop(log);
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    if let Some(said) = ask(dir.path(), "tank", &["-iiii"]) {
        assert!(!said.contains("ZIL header"), "{said}");
    }
}

#[test]
fn chain_on_a_disk() {
    chain(VdevShape::Single, 1, 0);
}

#[test]
fn chain_on_raidz() {
    chain(VdevShape::Raidz(1), 3, 0);
}

#[test]
fn chain_on_log_devices() {
    chain(VdevShape::Single, 1, 2);
}
