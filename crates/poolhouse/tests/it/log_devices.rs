//! Logs on several devices, striped and mirrored: a crash, and a replay with all devices and
//! without some.

use poolhouse::device::{Device, Fault, Faulty};
use poolhouse::dsl::ops::create::Create;
use poolhouse::ondisk::config::AllocBias;
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::ondisk::label::{LABEL_SIZE, LABEL_START_SIZE};
use poolhouse::ondisk::{ObjNum, VdevId};
use poolhouse::spa::SpaError;
use poolhouse::spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use poolhouse::vdev::VdevState;
use poolhouse::zpl::{FileSystem, Kind, NewFile, NewFileSystem, Policies};
use poolhouse::{Error, OpenOptions, Pool, zil};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Size of each device in bytes.
const SIZE: u64 = 256 << 20;
/// Number of files, committed one after another.
const FILES: u64 = 24;

/// The bytes of file `n`. Some files fill several log blocks.
fn contents(n: u64) -> Vec<u8> {
    testpools::noise(n, [3000, 40_000, 300_000][n as usize % 3])
}

fn image(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("d{n}.img"))
}

/// The images after a crash of a pool on one disk, `d0.img`, with log vdevs of these shapes and
/// numbers of devices.
///
/// The committed files are in the logs only.
fn crashed(logs: &[(VdevShape, usize)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1 + logs.iter().map(|log| log.1).sum::<usize>(), SIZE);
    let mut left = images.iter().map(|path| NewLeaf { path: path.clone() });
    let mut vdevs =
        vec![NewVdev { shape: VdevShape::Single, bias: None, leaves: left.by_ref().take(1).collect() }];
    for &(shape, count) in logs {
        let leaves = left.by_ref().take(count).collect();
        vdevs.push(NewVdev { shape, bias: Some(AllocBias::Log), leaves });
    }
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
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
    let spa = testpools::pool_in(vdevs, &features, &claimer, 2, Arc::new(testpools::Memory(16 << 30)));
    let disk = disk.into_inner().unwrap().unwrap();
    let pool = Pool::with_spa(spa, None).unwrap();
    let (inside, props) = (Arc::new(NewFileSystem::new((1_000_000, 0))), Vec::new());
    let create =
        Create { name: "tank/fs".into(), contents: inside, props, crypt: None, enforce_limits: false };
    pool.spa().writer().unwrap().run(Box::new(create)).unwrap();
    let fs = pool.open_for_writing(pool.dataset("tank/fs").unwrap().dsl(), Policies::default()).unwrap();
    let first = file(&fs, "first");
    fs.fsync(first).unwrap();
    pool.spa().writer().unwrap().sync_all().unwrap();
    disk.inject(Fault::Stalled);
    for n in 0..FILES {
        let object = file(&fs, &format!("f{n}"));
        fs.write(object, 0, &contents(n), false).unwrap();
        fs.fsync(object).unwrap();
    }
    let left = testkit::copy_of(dir.path());
    disk.heal();
    left
}

fn file(fs: &FileSystem, name: &str) -> ObjNum {
    fs.create(fs.root(), name.as_bytes(), &NewFile::new(Kind::Regular, 0o640)).unwrap().object
}

fn import(dir: &Path, missing_log: bool) -> poolhouse::Result<Pool> {
    let options = OpenOptions { write: true, force: true, missing_log, ..OpenOptions::default() };
    Pool::open(&[dir], &options)
}

/// The number of readable log blocks on each vdev.
fn blocks(pool: &Pool) -> BTreeMap<VdevId, u64> {
    let os = pool.dataset("tank/fs").unwrap().objset().unwrap();
    let log = zil::Log::open(&os, pool.spa().last_synced_txg().0, 0).unwrap().unwrap();
    let mut by = BTreeMap::new();
    for block in log.blocks().map(Result::unwrap).filter(|block| block.records.is_some()) {
        for dva in block.bp.stored().unwrap().copies() {
            *by.entry(dva.vdev).or_default() += 1;
        }
    }
    by
}

/// Replays the log and checks everything that was committed. Then exports the pool and runs `zdb`
/// on it.
fn all_is_there(pool: Pool, dir: &Path) {
    let done = pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().unwrap();
    assert!(done.ended.is_none() && done.records > FILES, "{done:?}");
    let fs = pool.open_for_writing(pool.dataset("tank/fs").unwrap().dsl(), Policies::default()).unwrap();
    for n in 0..FILES {
        let object = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap();
        let mut bytes = vec![0; contents(n).len()];
        assert_eq!(fs.read(object, 0, &mut bytes).unwrap(), bytes.len(), "file {n}");
        assert!(bytes == contents(n), "file {n}");
    }
    // Logging works as before.
    let more = file(&fs, "more");
    fs.fsync(more).unwrap();
    drop(fs);
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir, "tank");
}

/// The missing log vdevs for which the import is refused.
fn refused(dir: &Path) -> Vec<u64> {
    match import(dir, false) {
        Err(Error::Import(failure)) => match failure.error {
            SpaError::MissingLogs { logs } => logs.iter().map(|log| log.id).collect(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Imports the pool without its logs: it can be used, and data that was not synced is lost.
fn without_logs(dir: &Path) {
    let pool = import(dir, true).unwrap();
    assert!(pool.replay(pool.dataset("tank/fs").unwrap().dsl()).unwrap().is_none());
    let fs = pool.open_for_writing(pool.dataset("tank/fs").unwrap().dsl(), Policies::default()).unwrap();
    fs.lookup(fs.root(), b"first").unwrap();
    fs.lookup(fs.root(), b"f0").unwrap_err();
    drop(fs);
    pool.export().unwrap();
}

/// Goal: two log vdevs get blocks in turns, and a replay reads both. Without one of them, the pool
/// imports only if the import drops its logs.
#[test]
fn striped() {
    let left = crashed(&[(VdevShape::Single, 1), (VdevShape::Single, 1)]);
    for lost in [1, 2] {
        let dir = testkit::copy_of(left.path());
        std::fs::remove_file(image(dir.path(), lost)).unwrap();
        assert_eq!(refused(dir.path()), [lost as u64]);
        without_logs(dir.path());
    }
    let pool = import(left.path(), false).unwrap();
    let by = blocks(&pool);
    assert_eq!(by.keys().copied().collect::<Vec<_>>(), [VdevId(1), VdevId(2)]);
    let (most, least) = (by.values().max().unwrap(), by.values().min().unwrap());
    assert!(*least > 4 && most - least < 3, "{by:?}");
    all_is_there(pool, left.path());
}

/// Overwrites everything between the labels.
fn wipe(path: &Path) {
    let image = File::options().write(true).open(path).unwrap();
    let noise = testpools::noise(99, 1 << 20);
    let mut at = LABEL_START_SIZE;
    while at + noise.len() as u64 <= SIZE - 2 * LABEL_SIZE {
        image.write_all_at(&noise, at).unwrap();
        at += noise.len() as u64;
    }
}

/// Goal: a mirrored log is replayed in full without either device, and also after either lost its
/// contents undetected. Only without both is the import refused.
#[test]
fn mirrored() {
    let left = crashed(&[(VdevShape::Mirror, 2)]);
    for lost in [1, 2] {
        let dir = testkit::copy_of(left.path());
        std::fs::remove_file(image(dir.path(), lost)).unwrap();
        let pool = import(dir.path(), false).unwrap();
        assert_eq!(pool.spa().tree().state().0, VdevState::Degraded);
        assert_eq!(blocks(&pool).keys().copied().collect::<Vec<_>>(), [VdevId(1)]);
        all_is_there(pool, dir.path());

        let dir = testkit::copy_of(left.path());
        wipe(&image(dir.path(), lost));
        all_is_there(import(dir.path(), false).unwrap(), dir.path());
    }
    for lost in [1, 2] {
        std::fs::remove_file(image(left.path(), lost)).unwrap();
    }
    assert_eq!(refused(left.path()), [1]);
    without_logs(left.path());
}

/// Goal: two mirrors as log vdevs are replayed in full without one device of each, in any
/// combination.
#[test]
fn striped_mirrors() {
    let left = crashed(&[(VdevShape::Mirror, 2), (VdevShape::Mirror, 2)]);
    for lost in [[1, 3], [2, 4], [1, 4]] {
        let dir = testkit::copy_of(left.path());
        std::fs::remove_file(image(dir.path(), lost[0])).unwrap();
        wipe(&image(dir.path(), lost[1]));
        let pool = import(dir.path(), false).unwrap();
        assert_eq!(blocks(&pool).len(), 2);
        all_is_there(pool, dir.path());
    }
    [1, 2].iter().for_each(|lost| std::fs::remove_file(image(left.path(), *lost)).unwrap());
    assert_eq!(refused(left.path()), [1]);
}
