//! What operations leave in the intent log, as `zdb` reads it after a crash.

use crate::rig::{Rig, ask};
use ondisk::{ObjNum, Txg};
use spa::engine::PoolWriter;
use std::collections::BTreeSet;
use std::path::Path;
use zpl::{
    CloneRange, FileSystem, Kind, LogPolicy, NewFile, NewFileSystem, Policy, Rename, SetAttr, SetXattr,
    SyncMode, Time,
};

/// The state that a crash would leave now. No txg is written meanwhile.
fn crash(live: &PoolWriter, from: &Path) -> tempfile::TempDir {
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    testkit::copy_of(from)
}

/// The kinds of records that `zdb` finds, and its whole output. It must report no leak. `None`
/// without `zdb`.
fn records(left: &tempfile::TempDir) -> Option<(BTreeSet<String>, String)> {
    let said = ask(left.path(), &["-iiii", "tank"])?;
    let kinds = said.split_whitespace().filter(|w| w.starts_with("TX_")).map(str::to_owned).collect();
    let blocks = ask(left.path(), &["-bcc", "tank"])?;
    assert!(blocks.contains("No leaks"), "{blocks}");
    Some((kinds, said))
}

fn file(fs: &FileSystem, dir: ObjNum, name: &str) -> ObjNum {
    fs.create(dir, name.as_bytes(), &NewFile::new(Kind::Regular, 0o640)).unwrap().object
}

/// Begins the log, so that later changes go into it.
fn begin(fs: &FileSystem) {
    let first = file(fs, fs.root(), "first");
    fs.write(first, 0, &[3; 400_000], false).unwrap();
    fs.fsync(first).unwrap();
    fs.sync().unwrap();
}

/// Makes every kind of change that has a record.
fn work(fs: &FileSystem) -> ObjNum {
    let root = fs.root();
    let dir = fs.create(root, b"dir", &NewFile::new(Kind::Directory, 0o755)).unwrap().object;
    fs.create(dir, b"link", &NewFile::new(Kind::Symlink(b"target".to_vec()), 0o777)).unwrap();
    fs.create(dir, b"fifo", &NewFile::new(Kind::Fifo, 0o600)).unwrap();
    let a = file(fs, dir, "a");
    fs.write(a, 0, &[7; 300_000], false).unwrap();
    fs.write(a, 300_000, b"small", false).unwrap();
    fs.truncate(a, 200_000, false).unwrap();
    fs.punch(a, 4096, 8192).unwrap();
    let times = SetAttr { permissions: Some(0o604), uid: Some(5), ..SetAttr::default() };
    fs.set_attr(a, &SetAttr { mtime: Some(Time { secs: 9, nanos: 8 }), ..times }).unwrap();
    fs.set_xattr(a, b"user.x", b"value", SetXattr::Either).unwrap();
    fs.set_xattr(a, b"user.y", b"other", SetXattr::Either).unwrap();
    fs.remove_xattr(a, b"user.y").unwrap();
    fs.link(a, root, b"a too").unwrap();
    let b = file(fs, root, "b");
    fs.write(b, 0, b"bbb", false).unwrap();
    fs.rename((root, b"b"), (dir, b"c"), Rename::Replace).unwrap();
    fs.rename((dir, b"c"), (dir, b"a"), Rename::Exchange).unwrap();
    fs.unlink(root, b"a too").unwrap();
    let gone = fs.create(dir, b"gone", &NewFile::new(Kind::Directory, 0o755)).unwrap().object;
    fs.set_attr(gone, &SetAttr { permissions: Some(0o700), ..SetAttr::default() }).unwrap();
    fs.rmdir(dir, b"gone").unwrap();
    fs.reap(gone).unwrap();
    // Too large for the system attribute.
    for n in [40_000, 50_000] {
        fs.set_xattr(a, b"user.hidden", &vec![5; n], SetXattr::Either).unwrap();
    }
    fs.set_xattr(a, b"user.small", &[5; 40_000], SetXattr::Either).unwrap();
    fs.set_xattr(a, b"user.small", b"now", SetXattr::Either).unwrap();
    fs.set_flags(a, 0x40, 7).unwrap();
    let clone = file(fs, dir, "clone");
    let source = fs.lookup(root, b"first").unwrap();
    let range = CloneRange { source, from: 0, target: clone, to: 0, len: 400_000 };
    assert_eq!(fs.clone_range(&range, false).unwrap(), 400_000);
    fs.fsync(clone).unwrap();
    let how = Rename::Whiteout { replace: false, uid: 3, gid: 4 };
    fs.rename((dir, b"clone"), (root, b"cloned"), how).unwrap();
    a
}

const KINDS: [&str; 15] = [
    "TX_MKXATTR",
    "TX_CLONE_RANGE",
    "TX_RENAME_WHITEOUT",
    "TX_CREATE",
    "TX_MKDIR",
    "TX_SYMLINK",
    "TX_WRITE",
    "TX_TRUNCATE",
    "TX_SETATTR",
    "TX_SETSAXATTR",
    "TX_LINK",
    "TX_RENAME",
    "TX_RENAME_EXCHANGE",
    "TX_REMOVE",
    "TX_RMDIR",
];

/// Runs the work on a new pool and then `commit`, until no txg syncs meanwhile. Returns the pool,
/// and the state that a crash leaves.
fn in_one_group(policy: Policy, commit: impl Fn(&FileSystem, ObjNum)) -> (Rig, tempfile::TempDir) {
    loop {
        let rig = Rig::with(&NewFileSystem::new((1_000_000, 0)), policy);
        begin(&rig.fs);
        let before = rig.pool.live().txgs().synced();
        let a = work(&rig.fs);
        commit(&rig.fs, a);
        let left = crash(rig.pool.live(), rig.path());
        if rig.pool.live().txgs().synced() == before {
            return (rig, left);
        }
    }
}

/// Goal: one fsync logs every kind of change without waiting for a txg, but no data of another
/// file. That data is logged when its own file is committed.
#[test]
fn fsync_logs_what_is_its_own() {
    const OTHER: &[u8] = b"nobody asks for it";
    let (rig, left) = in_one_group(Policy::default(), |fs, a| {
        let other = file(fs, fs.root(), "other");
        fs.write(other, 0, OTHER, false).unwrap();
        fs.fsync(a).unwrap();
    });
    let length = format!("length {:x}", OTHER.len());
    if let Some((kinds, said)) = records(&left) {
        assert!(KINDS.iter().all(|k| kinds.contains(*k)), "{kinds:?}");
        assert!(said.contains("other") && !said.contains(&length), "{said}");
    }
    let other = rig.fs.lookup(rig.fs.root(), b"other").unwrap();
    rig.fs.fsync(other).unwrap();
    drop(records(&crash(rig.pool.live(), rig.path())));
    rig.again(Policy::default());
}

/// Goal: with `sync=always` everything is logged without an fsync. With `sync=disabled` nothing is,
/// and fsync does nothing.
#[test]
fn sync_is_obeyed() {
    let policy = |sync| Policy { log: LogPolicy { sync, throughput: false }, ..Policy::default() };
    let (_, left) = in_one_group(policy(SyncMode::Always), |_, _| {});
    if let Some((kinds, _)) = records(&left) {
        assert!(KINDS.iter().all(|k| kinds.contains(*k)), "{kinds:?}");
    }
    let (_, left) = in_one_group(policy(SyncMode::Disabled), |fs, a| fs.fsync(a).unwrap());
    if let Some((kinds, _)) = records(&left) {
        assert!(kinds.is_empty(), "{kinds:?}");
    }
}

/// Number of commits that waited for a txg.
fn waits(rig: &Rig) -> u64 {
    rig.pool.log().unwrap().stats().commit_group_waits
}

/// Goal: a change without a record makes commits wait for its txg, once. Such a change is the first
/// name of a file that was created without one.
#[test]
fn what_has_no_record_is_waited_for() {
    let rig = Rig::with(&NewFileSystem::new((1_000_000, 0)), Policy::default());
    begin(&rig.fs);
    let root = rig.fs.root();
    let new = rig.fs.create_unnamed(root, &NewFile::new(Kind::Regular, 0o600)).unwrap().object;
    rig.fs.link(new, root, b"new").unwrap();
    let open = rig.pool.live().txgs().open();
    rig.fs.fsync(new).unwrap();
    assert!(rig.pool.live().txgs().synced() >= open);
    rig.fs.write(new, 0, b"more", false).unwrap();
    let before = waits(&rig);
    rig.fs.fsync(new).unwrap();
    assert_eq!(waits(&rig), before);
}

/// Goal: large data isn't copied into the log, which names its blocks. Later changes of these
/// blocks go elsewhere, and nothing leaks.
#[test]
fn much_data_goes_to_its_place() {
    const BLOCK: usize = 128 << 10;
    let rig = Rig::new();
    begin(&rig.fs);
    let fs = &rig.fs;
    let big = file(fs, fs.root(), "big");
    let noise = |n: u64| -> Vec<u8> {
        let mut x = n;
        let mut byte = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        };
        (0..8 * BLOCK).map(|_| byte()).collect()
    };
    let indirect = || rig.pool.log().unwrap().stats().itx_indirect_bytes;
    // If a txg closes meanwhile, the data is copied. The test can't prevent that, so it retries.
    let mut contents = loop {
        let (contents, open) = (noise(1), rig.pool.live().txgs().open());
        fs.write(big, 0, &contents, false).unwrap();
        let before = indirect();
        fs.fsync(big).unwrap();
        if rig.pool.live().txgs().open() == open {
            assert_eq!(indirect() - before, contents.len() as u64);
            break contents;
        }
    };
    if let Some((_, said)) = records(&crash(rig.pool.live(), rig.path())) {
        assert!(said.contains("has blkptr"), "{said}");
    }
    // One block is changed, one is freed, one is overwritten.
    contents[BLOCK..BLOCK + 9].fill(1);
    fs.write(big, BLOCK as u64, &[1; 9], false).unwrap();
    contents[2 * BLOCK..3 * BLOCK].fill(0);
    fs.punch(big, 2 * BLOCK as u64, BLOCK as u64).unwrap();
    contents[3 * BLOCK..4 * BLOCK].fill(2);
    fs.write(big, 3 * BLOCK as u64, &[2; BLOCK], false).unwrap();
    fs.fsync(big).unwrap();
    drop(records(&crash(rig.pool.live(), rig.path())));
    let gone = file(fs, fs.root(), "gone");
    fs.write(gone, 0, &noise(2), false).unwrap();
    fs.fsync(gone).unwrap();
    let gone = fs.unlink(fs.root(), b"gone").unwrap().unwrap();
    fs.reap(gone).unwrap();
    let rig = rig.again(Policy::default());
    let big = rig.fs.lookup(rig.fs.root(), b"big").unwrap();
    let mut found = vec![0; contents.len()];
    rig.fs.read(big, 0, &mut found).unwrap();
    assert!(found == contents, "the file is another");
}

/// Goal: a commit of large new data does not wait for its txg: blocks are written to their final
/// location, and the log names them.
#[test]
fn a_large_commit_names_its_blocks() {
    const MB: u64 = 1 << 20;
    // A pool this large throttles no writer.
    let root = NewFileSystem::new((1_000_000, 0));
    let rig = Rig::sized(&root, Policy::default(), &spa::create::claim_file, 4 << 30);
    begin(&rig.fs);
    let fs = &rig.fs;
    let big = file(fs, fs.root(), "big");
    // The test can't prevent that a txg closes meanwhile, so it retries.
    loop {
        rig.sync();
        let open = rig.pool.live().txgs().open();
        for n in 0..48 {
            fs.write(big, n * MB, &vec![n as u8 | 1; MB as usize], false).unwrap();
        }
        let (stats, before) = (rig.pool.log().unwrap().stats(), waits(&rig));
        fs.fsync(big).unwrap();
        if rig.pool.live().txgs().open() == open {
            assert_eq!(waits(&rig), before);
            let named = rig.pool.log().unwrap().stats().itx_indirect_bytes - stats.itx_indirect_bytes;
            assert_eq!(named, 48 * MB);
            break;
        }
    }
    drop(records(&crash(rig.pool.live(), rig.path())));
}

/// Goal: the feature for records of attributes is in use while there is a log, and no longer.
#[test]
fn the_feature_goes_with_the_log() {
    let rig = Rig::new();
    begin(&rig.fs);
    rig.sync();
    assert_eq!(rig.users("zilsaxattr"), 1);
    let rig = rig.again(Policy::default());
    assert_eq!(rig.users("zilsaxattr"), 0);
    let first = rig.fs.lookup(rig.fs.root(), b"first").unwrap();
    rig.fs.set_xattr(first, b"user.x", b"value", SetXattr::Either).unwrap();
    rig.fs.fsync(first).unwrap();
    assert_eq!(rig.users("zilsaxattr"), 1);
    drop(records(&crash(rig.pool.live(), rig.path())));
}
