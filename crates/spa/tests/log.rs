//! The intent log, as its blocks and its promises are seen from outside: by `zdb`, on what a crash left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use ondisk::ObjNum;
use ondisk::zil::{Create, FileId, RecordBody, TxKind};
use rig::{ask, images, judge, new_pool, noise, own, write_file};
use spa::create::VdevShape;
use spa::engine::{Live, LogHandle};
use std::path::Path;
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

/// What a crash now would leave.
fn crash(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
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
fn chain(shape: VdevShape, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(shape, &images(dir.path(), count, 96 << 20));
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
        let left = crash(dir.path());
        if let Some(said) = ask(left.path(), "tank", &["-iiii"]) {
            assert!(said.contains("TX_CREATE"), "{said}");
            let last = format!("file{}", round * 100 + 18);
            assert!(said.contains(&last), "{last}: {said}");
            assert!(!said.contains(&format!("file{}\n", round * 100 + 19)), "{said}");
        }
        judge(left.path(), "tank");
        if round % 2 == 1 {
            live.sync_all().unwrap();
            judge(crash(dir.path()).path(), "tank");
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
    chain(VdevShape::Single, 1);
}

#[test]
fn chain_on_raidz() {
    chain(VdevShape::Raidz(1), 3);
}
