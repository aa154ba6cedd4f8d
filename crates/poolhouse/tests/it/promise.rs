//! Data that fsync and flush made durable is there after a crash, when the pool is imported again
//! and its logs are replayed.

use codec::crypt::{CryptoSuite, WrappingKey};
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::dsl::ops::create::{Create, NewVolume};
use poolhouse::dsl::ops::key::{NewCrypt, NewKey};
use poolhouse::dsl::{Contents, Setting, Value};
use poolhouse::ondisk::{ObjNum, Txg};
use poolhouse::spa::create::VdevShape;
use poolhouse::zpl::{
    CloneRange, FileSystem, Kind, LogPolicy, NewFile, NewFileSystem, Policies, Policy, Rename, SetAttr,
    SetXattr, SyncMode, Time,
};
use poolhouse::zvol::Volume;
use poolhouse::{OpenOptions, Pool};
use std::path::Path;
use std::sync::Arc;

const KEY: [u8; 32] = [9; 32];

fn make(pool: &Pool, name: &str, contents: Arc<dyn Contents + Send + Sync>, key: bool, sync: u64) {
    let wrap = || NewKey {
        format: KeyFormat::Raw,
        location: None,
        key: Arc::new(WrappingKey::from_raw(KEY)),
        salt: 0,
        iterations: 0,
    };
    let crypt = key.then(|| NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(wrap()) });
    let props = vec![Setting { name: "sync".into(), value: Value::Number(sync) }];
    let create = Create { name: name.into(), contents, props, crypt, enforce_limits: false };
    pool.spa().writer().unwrap().run(Box::new(create)).unwrap();
}

/// The images that a crash now would leave. The held transaction keeps its txg from syncing during
/// the copy.
fn crash(pool: &Pool, from: &Path) -> tempfile::TempDir {
    let live = pool.spa().writer().unwrap();
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    testkit::copy_of(from)
}

fn file(fs: &FileSystem, dir: ObjNum, name: &str) -> ObjNum {
    fs.create(dir, name.as_bytes(), &NewFile::new(Kind::Regular, 0o640)).unwrap().object
}

fn work(fs: &FileSystem) -> ObjNum {
    let root = fs.root();
    let first = file(fs, root, "first");
    let source = file(fs, root, "source");
    fs.write(source, 0, &testpools::noise(2, 300_000), false).unwrap();
    fs.fsync(first).unwrap();
    fs.sync().unwrap();
    let dir = fs.create(root, b"dir", &NewFile::new(Kind::Directory, 0o751)).unwrap().object;
    fs.create(dir, b"link", &NewFile::new(Kind::Symlink(b"target".to_vec()), 0o777)).unwrap();
    fs.create(dir, b"null", &NewFile::new(Kind::CharDevice(1, 3), 0o666)).unwrap();
    let a = file(fs, dir, "a");
    fs.write(a, 0, &testpools::noise(1, 300_000), false).unwrap();
    fs.truncate(a, 200_000, false).unwrap();
    fs.punch(a, 4096, 80_192).unwrap();
    let mtime = Some(Time { secs: 9, nanos: 8 });
    fs.set_attr(a, &SetAttr { permissions: Some(0o604), uid: Some(5), mtime, ..SetAttr::default() }).unwrap();
    fs.set_xattr(a, b"user.x", b"value", SetXattr::Either).unwrap();
    fs.set_xattr(a, b"user.y", b"other", SetXattr::Either).unwrap();
    fs.remove_xattr(a, b"user.y").unwrap();
    fs.link(a, root, b"a too").unwrap();
    for (n, how) in [Rename::Replace, Rename::Exchange].into_iter().enumerate() {
        let name = format!("new{n}");
        let new = file(fs, root, &name);
        fs.write(new, 0, &testpools::noise(n as u64, 20_000), false).unwrap();
        fs.rename((root, name.as_bytes()), (root, b"first"), how).unwrap();
    }
    let source = fs.lookup(root, b"source").unwrap();
    for name in ["clone", "clone too"] {
        let target = file(fs, dir, name);
        let range = CloneRange { source, from: 0, target, to: 0, len: 300_000 };
        assert_eq!(fs.clone_range(&range, false).unwrap(), 300_000);
        fs.fsync(target).unwrap();
        fs.write(target, 1000, b"written", false).unwrap();
    }
    fs.write(source, 1000, b"and this", false).unwrap();
    fs.rename((dir, b"clone"), (root, b"moved"), Rename::Whiteout { replace: false, uid: 3, gid: 4 })
        .unwrap();
    for (name, len) in [(b"user.a", 40_000), (b"user./", 50_000), (b"user.a", 60_000), (b"user./", 9)] {
        fs.set_xattr(source, name, &testpools::noise(len, len as usize), SetXattr::Either).unwrap();
    }
    fs.set_flags(a, 0x60, 7).unwrap();
    // Large writes go directly to their blocks. Some of these blocks are overwritten and move.
    let big = file(fs, dir, "big");
    for (n, at) in [(5, 0), (6, 700_000), (7, 140_000)] {
        fs.write(big, at, &testpools::noise(n, 800_000), false).unwrap();
        fs.fsync(big).unwrap();
    }
    fs.write(big, 300_000, b"a little", false).unwrap();
    fs.punch(big, 393_216, 131_072).unwrap();
    fs.truncate(big, 1_300_000, false).unwrap();
    fs.fsync(big).unwrap();
    fs.write(big, 1_000_000, &testpools::noise(8, 200_000), false).unwrap();
    fs.fsync(source).unwrap();
    fs.fsync(big).unwrap();
    a
}

/// Describes a tree of files as text: names, persistent attributes, contents.
fn told(fs: &FileSystem, dir: ObjNum, path: &str, out: &mut Vec<String>) {
    for entry in fs.read_dir(dir, poolhouse::zpl::DirCookie::START).unwrap() {
        let entry = entry.unwrap();
        if entry.name.starts_with(b".") {
            continue;
        }
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let node = fs.node(entry.object).unwrap();
        let a = *node.attr();
        let mut bytes =
            vec![0; if a.kind == poolhouse::zpl::FileType::Regular { a.size as usize } else { 0 }];
        if !bytes.is_empty() {
            node.read(0, &mut bytes).unwrap();
        }
        let sum = bytes.iter().fold(7u64, |n, b| n.wrapping_mul(31).wrapping_add(u64::from(*b)));
        let mtime = (a.mtime.secs == 9).then_some(a.mtime);
        let target = node.readlink().ok();
        let xattrs = node.xattrs().unwrap();
        let flags = (a.pflags.to_fs_flags(), a.projid);
        let what = (a.mode, a.uid, a.nlink, a.size, a.rdev, mtime, sum, target, xattrs, flags);
        out.push(format!("{path}: {what:?}"));
        if a.kind == poolhouse::zpl::FileType::Directory {
            told(fs, entry.object, &path, out);
        }
    }
    out.sort();
}

/// What `told` says of a whole file system.
fn tree(fs: &FileSystem) -> Vec<String> {
    let mut said = Vec::new();
    told(fs, fs.root(), "", &mut said);
    said
}

/// Makes the first change of a volume durable.
fn begin(volume: &Volume) {
    volume.flush().unwrap();
    volume.write_at(b"begin", 0).unwrap();
    volume.flush().unwrap();
}

fn bytes_of(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; volume.size() as usize];
    volume.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Keeps a copy of the images in the directory that `KEEP` names, if it does, with the expected
/// contents. OpenZFS's kernel module can replay that copy.
fn keep(images: &Path, want: &[Vec<String>]) {
    let Some(keep) = std::env::var_os("KEEP") else { return };
    let keep = Path::new(&keep);
    std::process::Command::new("cp").arg("-r").arg(images).arg(keep).status().unwrap();
    std::fs::write(keep.join("told"), want.concat().join("\n")).unwrap();
}

/// Goal: after a crash, an import and a replay, each dataset is as it was when its last commit
/// returned.
///
/// The datasets are a file system, an encrypted one, one with `sync=always`, and volumes. OpenZFS's
/// `zdb` finds no error before and after the replay.
#[test]
fn promises_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let spa = testpools::new_pool(VdevShape::Mirror, &testpools::images(dir.path(), 2, 128 << 20));
    let pool = Pool::with_spa(spa, None).unwrap();
    let files = || Arc::new(NewFileSystem::new((1_000_000, 0)));
    for (name, key, sync) in [("tank/plain", false, 0), ("tank/secret", true, 0), ("tank/always", false, 1)] {
        make(&pool, name, files(), key, sync);
    }
    make(&pool, "tank/volume", Arc::new(NewVolume { size: 8 << 20, block: 16 << 10 }), false, 0);
    make(&pool, "tank/wide", Arc::new(NewVolume { size: 8 << 20, block: 128 << 10 }), false, 0);
    let volume = pool.open_volume(pool.dataset("tank/volume").unwrap().dsl()).unwrap();
    begin(&volume);
    let names = ["tank/plain", "tank/secret", "tank/always"];
    let mut want = Vec::new();
    let mut open = Vec::new();
    for name in names {
        let dataset = pool.dataset(name).unwrap();
        let sync = if name == "tank/always" { SyncMode::Always } else { SyncMode::Standard };
        let policy = Policy { log: LogPolicy { sync, throughput: false }, ..Policy::default() };
        let fs = pool.open_for_writing(dataset.dsl(), Policies::new(policy)).unwrap();
        let last = work(&fs);
        if sync == SyncMode::Standard {
            fs.fsync(last).unwrap();
        }
        want.push(tree(&fs));
        open.push(fs);
    }
    let wide = pool.open_volume(pool.dataset("tank/wide").unwrap().dsl()).unwrap();
    begin(&wide);
    wide.write_at(&testpools::noise(4, 1 << 20), 200_000).unwrap();
    wide.flush().unwrap();
    wide.punch(700_000, 300_000).unwrap();
    wide.write_at(&testpools::noise(5, 1 << 20), 600_000).unwrap();
    wide.flush().unwrap();
    let wide_bytes = bytes_of(&wide);
    wide.write_at(&testpools::noise(6, 1 << 20), 0).unwrap();

    volume.write_at(&testpools::noise(3, 100_000), 50_001).unwrap();
    volume.punch(60_000, 30_000).unwrap();
    volume.write_at(b"small", 70_000).unwrap();
    volume.flush().unwrap();
    let bytes = bytes_of(&volume);
    volume.write_at(b"not flushed", 0).unwrap();

    let left = crash(&pool, dir.path());
    keep(left.path(), &want);
    testpools::judge(left.path(), "tank");
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    let again = Pool::open(&[left.path()], &options).unwrap();
    again.load_key("tank/secret", &KEY).unwrap();
    for (name, want) in names.iter().zip(&want) {
        let fs = again.open_for_writing(again.dataset(name).unwrap().dsl(), Policies::default()).unwrap();
        assert_eq!(&tree(&fs), want, "{name}");
        // The log works after the replay as before.
        let more = file(&fs, fs.root(), "more");
        fs.fsync(more).unwrap();
    }
    let copy = again.open_volume(again.dataset("tank/volume").unwrap().dsl()).unwrap();
    assert!(bytes_of(&copy) == bytes, "the volume is another");
    let wide = again.open_volume(again.dataset("tank/wide").unwrap().dsl()).unwrap();
    assert!(bytes_of(&wide) == wide_bytes, "the other volume is another");
    drop((copy, wide));
    again.export().unwrap();
    testpools::judge(left.path(), "tank");
}

/// A pool of one disk with a file system, and that file system opened for writing.
fn with_files(dir: &Path) -> (Pool, FileSystem) {
    let spa = testpools::new_pool(VdevShape::Single, &testpools::images(dir, 1, 128 << 20));
    let pool = Pool::with_spa(spa, None).unwrap();
    make(&pool, "tank/fs", Arc::new(NewFileSystem::new((1_000_000, 0))), false, 0);
    let dataset = pool.dataset("tank/fs").unwrap();
    let fs = pool.open_for_writing(dataset.dsl(), Policies::default()).unwrap();
    (pool, fs)
}

fn import(dir: &Path) -> Pool {
    Pool::open(&[dir], &OpenOptions { write: true, force: true, ..OpenOptions::default() }).unwrap()
}

/// Goal: threads create, rename and remove names of one file, while others commit. The log can be
/// replayed to its end, and the file has its committed name.
#[test]
fn names_from_many_sides() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, fs) = with_files(dir.path());
    let root = fs.root();
    let shared = file(&fs, root, "shared");
    fs.fsync(shared).unwrap();
    let dirs = ["d0", "d1", "d2"]
        .map(|name| fs.create(root, name.as_bytes(), &NewFile::new(Kind::Directory, 0o700)).unwrap().object);
    // The only name moves from one directory to another. The file always has a name.
    fs.link(shared, dirs[0], b"a").unwrap();
    fs.unlink(root, b"shared").unwrap();
    let reap = |gone: Option<ObjNum>| assert!(gone.is_none(), "the file has another name");
    std::thread::scope(|scope| {
        for n in 0..3 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..60u32 {
                    let (from, name) = (dirs[n], format!("{n}.{round}"));
                    fs.link(shared, from, name.as_bytes()).unwrap();
                    if round % 3 == 0 {
                        fs.fsync(shared).unwrap();
                    }
                    let to = (dirs[(n + 1) % 3], name.as_bytes());
                    reap(fs.rename((from, name.as_bytes()), to, Rename::Replace).unwrap());
                    reap(fs.unlink(to.0, to.1).unwrap());
                }
            });
        }
        let fs = &fs;
        scope.spawn(move || {
            for n in 0..200u32 {
                let (from, to) = if n % 2 == 0 { (b"a", b"b") } else { (b"b", b"a") };
                fs.link(shared, dirs[0], to).unwrap();
                reap(fs.unlink(dirs[0], from).unwrap());
                fs.write(shared, u64::from(n), b"x", false).unwrap();
            }
        });
    });
    fs.fsync(shared).unwrap();
    let left = crash(&pool, dir.path());
    let again = import(left.path());
    let dataset = again.dataset("tank/fs").unwrap();
    if let Some(done) = again.replay(dataset.dsl()).unwrap() {
        assert!(done.ended.is_none(), "{:?}", done.ended);
    }
    drop(dataset);
    let found = again.dataset("tank/fs").unwrap().filesystem().unwrap();
    let node = found.resolve_link(b"d0/a").unwrap();
    assert_eq!((node.attr().nlink, node.attr().size), (1, 200));
}

/// Goal: the feature for records of attributes is in use while there is a log, also one that a
/// crash left, and no longer than that.
#[test]
fn the_feature_goes_with_a_replayed_log() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, fs) = with_files(dir.path());
    let users = |pool: &Pool| {
        let feature = poolhouse::ondisk::feature::Feature::by_name("zilsaxattr").unwrap();
        pool.spa().mos().feature_refcount(feature).unwrap()
    };
    for name in ["first", "second"] {
        fs.fsync(file(&fs, fs.root(), name)).unwrap();
    }
    let left = crash(&pool, dir.path());
    let again = import(left.path());
    assert_eq!(users(&again), Some(1));
    let fs = again.open_for_writing(again.dataset("tank/fs").unwrap().dsl(), Policies::default()).unwrap();
    fs.lookup(fs.root(), b"second").unwrap();
    drop(fs);
    again.spa().writer().unwrap().sync_all().unwrap();
    assert_eq!(users(&again), Some(0));
    again.export().unwrap();
    testpools::judge(left.path(), "tank");
}

/// Goal: a volume that grows and shrinks while writes wait for a flush keeps the flushed data, at
/// its size of that time.
#[test]
fn resizes_are_kept() {
    const MB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let spa = testpools::new_pool(VdevShape::Single, &testpools::images(dir.path(), 1, 128 << 20));
    let pool = Pool::with_spa(spa, None).unwrap();
    make(&pool, "tank/volume", Arc::new(NewVolume { size: 8 * MB, block: 128 << 10 }), false, 0);
    let volume = pool.open_volume(pool.dataset("tank/volume").unwrap().dsl()).unwrap();
    volume.flush().unwrap();
    volume.write_at(b"begin", 0).unwrap();
    volume.flush().unwrap();
    for (n, (before, size, after)) in [(7, 4, 3), (2, 10, 9), (9, 6, 5), (1, 12, 11)].into_iter().enumerate()
    {
        volume.write_at(&testpools::noise(n as u64, MB as usize), before * MB).unwrap();
        volume.resize(size * MB).unwrap();
        volume.write_at(&testpools::noise(n as u64 + 10, MB as usize), after * MB).unwrap();
        volume.flush().unwrap();
        let mut want = vec![0; (size * MB) as usize];
        volume.read_at(&mut want, 0).unwrap();
        let left = crash(&pool, dir.path());
        testpools::judge(left.path(), "tank");
        let again = import(left.path());
        let copy = again.open_volume(again.dataset("tank/volume").unwrap().dsl()).unwrap();
        assert_eq!(copy.size(), size * MB);
        let mut found = vec![0; want.len()];
        copy.read_at(&mut found, 0).unwrap();
        assert!(found == want, "round {n}: the volume is another");
    }
}

/// Goal: a rewind to an earlier txg drops a log with clones and with blocks that it names, and
/// nothing leaks.
#[test]
fn stepped_back() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, fs) = with_files(dir.path());
    work(&fs);
    for n in 0..3u64 {
        pool.spa().writer().unwrap().sync_all().unwrap();
        let more = file(&fs, fs.root(), &format!("more{n}"));
        fs.write(more, 0, &testpools::noise(n, 300_000), false).unwrap();
        fs.fsync(more).unwrap();
    }
    let left = crash(&pool, dir.path());
    let newest = Pool::open(&[left.path()], &OpenOptions { force: true, ..OpenOptions::default() }).unwrap();
    let newest = newest.spa().last_synced_txg();
    for back in [1, 2] {
        let copy = testkit::copy_of(left.path());
        let max_txg = Some(Txg(newest.0 - back));
        let options = OpenOptions { write: true, force: true, max_txg, ..OpenOptions::default() };
        let pool = Pool::open(&[copy.path()], &options).unwrap();
        assert!(pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().is_none());
        pool.export().unwrap();
        drop(pool);
        testpools::judge(copy.path(), "tank");
    }
}
