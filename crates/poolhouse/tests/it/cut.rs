//! Replays that a device error interrupts, and replays of large logs.

use poolhouse::device::{Device, Fault, Faulty};
use poolhouse::dsl::ops::create::Create;
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::config::AllocBias;
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::ondisk::label::{LABEL_SIZE, LABEL_START_SIZE};
use poolhouse::spa::OpenHead;
use poolhouse::spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use poolhouse::zpl::{self, FileSystem, Kind, NewFile, NewFileSystem, Policies};
use poolhouse::{Error, OpenOptions, Pool, zil};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use testpools::HookedSource;

/// Size of each device in bytes.
const SIZE: u64 = 4 << 30;
/// Number of files, committed one after another.
const FILES: u64 = 40;

/// A pool of one disk that can inject faults and one log device, with two file systems.
fn new_pool(dir: &Path) -> (Pool, Arc<Faulty>) {
    let images = testpools::images(dir, 2, SIZE);
    let biases = [None, Some(AllocBias::Log)];
    let vdevs = images.iter().zip(biases).map(|(path, bias)| {
        let leaves = vec![NewLeaf { path: path.clone() }];
        NewVdev { shape: VdevShape::Single, bias, leaves }
    });
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    // Large enough that no txg closes because it is full.
    let world = Arc::new(testpools::Memory(16 << 30));
    let disk = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        if path != images[0] {
            return Ok((inner, kind));
        }
        let faulty = Arc::new(Faulty::new(inner, 1));
        *disk.lock().unwrap() = Some(faulty.clone());
        Ok((faulty as Arc<dyn Device>, kind))
    };
    let pool =
        Pool::with_spa(testpools::pool_in(vdevs.collect(), &features, &claimer, 2, world), None).unwrap();
    for name in ["tank/fs", "tank/other"] {
        let (contents, props) = (Arc::new(NewFileSystem::new((1_000_000, 0))), Vec::new());
        let create = Create { name: name.into(), contents, props, crypt: None, enforce_limits: false };
        pool.spa().writer().unwrap().run(Box::new(create)).unwrap();
    }
    (pool, disk.into_inner().unwrap().unwrap())
}

fn files(pool: &Pool, name: &str) -> poolhouse::Result<FileSystem> {
    pool.open_for_writing(pool.dataset(name)?.dsl(), Policies::default())
}

fn import(dir: &Path) -> Pool {
    Pool::open(&[dir], &OpenOptions { write: true, force: true, ..OpenOptions::default() }).unwrap()
}

fn file(fs: &FileSystem, name: &str) -> ObjNum {
    fs.create(fs.root(), name.as_bytes(), &NewFile::new(Kind::Regular, 0o640)).unwrap().object
}

/// The images after a crash of a new pool, with the effects of `work` in the log only. Meanwhile
/// the disk is stalled, and the log device is not.
fn crashed(work: &dyn Fn(&FileSystem)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (pool, disk) = new_pool(dir.path());
    let fs = files(&pool, "tank/fs").unwrap();
    let first = file(&fs, "first");
    fs.fsync(first).unwrap();
    pool.spa().writer().unwrap().sync_all().unwrap();
    disk.inject(Fault::Stalled);
    work(&fs);
    let left = testkit::copy_of(dir.path());
    disk.heal();
    left
}

/// The bytes of file `n`.
fn contents(n: u64) -> Vec<u8> {
    testpools::noise(n, 3000 + n as usize)
}

fn some_files(fs: &FileSystem) {
    for n in 0..FILES {
        let name = format!("f{n}");
        let object = fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|_| file(fs, &name));
        fs.write(object, 0, &contents(n), false).unwrap();
        fs.fsync(object).unwrap();
    }
}

/// The number of files that exist. They must be the first ones, and complete.
fn there(fs: &FileSystem) -> u64 {
    for n in 0..FILES {
        let Ok(object) = fs.lookup(fs.root(), format!("f{n}").as_bytes()) else { return n };
        let mut bytes = contents(n);
        assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), bytes.len(), "file {n}");
        assert!(bytes == contents(n), "file {n}");
    }
    FILES
}

/// An imported pool whose log device was then truncated in the middle of the log, before the
/// replay. `behind` holds the bytes that were cut off.
struct Cut {
    pool: Pool,
    image: File,
    at: u64,
    behind: Vec<u8>,
    _dir: tempfile::TempDir,
}

fn cut(left: &tempfile::TempDir) -> Cut {
    let dir = testkit::copy_of(left.path());
    let pool = import(dir.path());
    let os = pool.dataset("tank/fs").unwrap().objset().unwrap();
    let log = zil::Log::open(&os, pool.spa().last_synced_txg().0, 0).unwrap().unwrap();
    let places: Vec<u64> = log
        .blocks()
        .flat_map(|block| {
            block.unwrap().bp.stored().unwrap().copies().map(|dva| dva.offset.0).collect::<Vec<_>>()
        })
        .collect();
    assert!(places.len() > 10 && places.is_sorted(), "{places:?}");
    let at = LABEL_START_SIZE + places[places.len() / 2];
    let image = File::options().read(true).write(true).open(dir.path().join("d1.img")).unwrap();
    let mut behind = vec![0; (4 << 20).min(SIZE - 2 * LABEL_SIZE - at) as usize];
    image.read_exact_at(&mut behind, at).unwrap();
    image.set_len(at).unwrap();
    Cut { pool, image, at, behind, _dir: dir }
}

/// Goal: a replay that a log device error interrupts reports it, and keeps the log.
///
/// * The file system has what was replayed so far.
/// * The rest of the pool can be used meanwhile.
/// * When the device works again, the replay continues where it stopped.
#[test]
fn a_replay_is_cut_short() {
    let left = crashed(&some_files);
    let all = {
        let whole = testkit::copy_of(left.path());
        let pool = import(whole.path());
        let done = pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().unwrap();
        assert!(done.ended.is_none());
        assert_eq!(there(&files(&pool, "tank/fs").unwrap()), FILES);
        done.records
    };
    let (cut, error) = loop {
        let cut = cut(&left);
        let done = cut.pool.replay(cut.pool.dataset("tank/fs").unwrap().dsl());
        // A txg that synced meanwhile has written labels, so the device no longer ends there.
        if cut.image.metadata().unwrap().len() == cut.at {
            break (cut, done.unwrap_err());
        }
    };
    assert!(matches!(error, Error::ReplayFiles(zil::ReplayError::Unreadable(_))), "{error:?}");
    let Cut { pool, image, at, behind, _dir: dir } = cut;
    // The file system can't be opened for writing before its log is replayed, but others can be
    // used.
    let other = files(&pool, "tank/other").unwrap();
    let object = file(&other, "file");
    other.write(object, 0, &contents(7), false).unwrap();
    other.sync().unwrap();
    drop(other);
    let before = {
        let shown = pool.dataset("tank/fs").unwrap().filesystem().unwrap();
        there(&shown)
    };
    assert!(before > 0 && before < FILES, "{before} files");
    drop(pool);
    image.set_len(SIZE).unwrap();
    image.write_all_at(&behind, at).unwrap();
    let pool = import(dir.path());
    let done = pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().unwrap();
    assert!(done.ended.is_none() && done.records > 0 && done.records < all, "{} of {all}", done.records);
    let fs = files(&pool, "tank/fs").unwrap();
    assert_eq!(there(&fs), FILES);
    let more = file(&fs, "more");
    fs.fsync(more).unwrap();
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir.path(), "tank");
}

/// Goal: if a claimed log block was overwritten, the replay reports that the log ended early, and
/// where. The records before it are replayed, and the file system can be used.
#[test]
fn a_log_lost_its_end() {
    let left = crashed(&some_files);
    let Cut { pool, image, at, behind, _dir: dir } = cut(&left);
    image.set_len(SIZE).unwrap();
    image.write_all_at(&vec![0; behind.len()], at).unwrap();
    let done = pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().unwrap();
    let said = done.ended.expect("something is lost").to_string();
    assert!(said.contains("the intent log ends behind record"), "{said}");
    let fs = files(&pool, "tank/fs").unwrap();
    let before = there(&fs);
    assert!(before > 0 && before < FILES, "{before} files");
    some_files(&fs);
    assert_eq!(there(&fs), FILES);
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    // Only the lost block named the next one, so the blocks after it stay allocated, as with
    // OpenZFS. `-L` skips the check for leaks.
    testpools::ask(dir.path(), "tank", &["-bccL"]);
}

/// Names and seeds of large files.
const MUCH: [(&str, u64); 4] = [("a", 1), ("b", 2), ("c", 3), ("d", 4)];
const EACH: usize = 31 << 20;

fn much(fs: &FileSystem) {
    for (name, seed) in MUCH {
        let object = fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|_| file(fs, name));
        fs.write(object, 0, &testpools::noise(seed, EACH), false).unwrap();
        fs.fsync(object).unwrap();
    }
}

/// Goal: a replay of more data than the dirty limit is throttled like any writer. The dirty data
/// stays below the limit, and everything is replayed.
#[test]
fn a_large_replay_is_held_up() {
    const DIRTY_MAX: u64 = 64 << 20;
    let left = crashed(&much);
    let pool = Pool::with_spa(testpools::import_with_memory(left.path(), 10 * DIRTY_MAX), None).unwrap();
    let head = OpenHead::open(pool.spa(), pool.dataset("tank/fs").unwrap().dsl()).unwrap();
    let os = head.objset().clone();
    let log = head.pending_log().unwrap().unwrap();
    let most = Arc::new(AtomicU64::new(0));
    let seen = most.clone();
    let watched =
        HookedSource::new(head, || UNIX_EPOCH + Duration::from_secs(1_800_000_000)).after(move |head, _| {
            seen.fetch_max(head.live().txgs().dirty(), Relaxed);
        });
    let watched = Arc::new(watched);
    let done = zpl::replay(&os, &log, watched.clone(), &Policies::default()).unwrap();
    assert!(done.ended.is_none(), "{:?}", done.ended);
    let most = most.load(Relaxed);
    // It came near the limit, so it was throttled. A quick device keeps it further away.
    assert!((DIRTY_MAX / 4..=DIRTY_MAX).contains(&most), "{most} bytes were dirty");
    let fs = FileSystem::open(&os).unwrap();
    for (name, seed) in MUCH {
        let object = fs.lookup(fs.root(), name.as_bytes()).unwrap();
        let mut bytes = vec![0; EACH];
        assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), EACH);
        assert!(bytes == testpools::noise(seed, EACH), "{name}");
    }
}
