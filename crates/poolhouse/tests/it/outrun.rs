//! Writers that are faster than their device.

use poolhouse::Pool;
use poolhouse::device::{Device, Fault, Faulty};
use poolhouse::dsl::ops::create::Create;
use poolhouse::ondisk::ObjNum;
use poolhouse::ondisk::feature::{FEATURES, Feature};
use poolhouse::spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use poolhouse::zpl::{FileSystem, Kind, NewFile, NewFileSystem, Policies};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const MB: u64 = 1 << 20;
/// A tenth of the memory that the pool's environment reports.
const DIRTY_MAX: u64 = 64 * MB;
/// What a transaction may make dirty beyond its declared size.
const SLACK: u64 = MB;
const WRITERS: u64 = 4;
/// Megabytes that each writer writes, one at a time.
const EACH: u64 = 192;

/// A line of this process's `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = all.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A unique megabyte that can be compressed.
fn piece(writer: u64, n: u64) -> Vec<u8> {
    (0..MB / 8).flat_map(|i| ((i / 64) ^ (writer << 40) ^ (n << 20)).to_le_bytes()).collect()
}

fn file(fs: &FileSystem, writer: u64) -> ObjNum {
    let name = format!("f{writer}");
    fs.create(fs.root(), name.as_bytes(), &NewFile::new(Kind::Regular, 0o600)).unwrap().object
}

/// Reads all that a writer wrote.
fn check(fs: &FileSystem, writer: u64, object: ObjNum) {
    for n in 0..EACH {
        let mut bytes = vec![0; MB as usize];
        fs.read(object, n * MB, &mut bytes).unwrap();
        assert!(bytes == piece(writer, n), "megabyte {n} of writer {writer}");
    }
}

/// Goal: writers on a stalled device stop when the dirty data reaches its limit, and not before.
/// Readers go on.
///
/// When the device continues, all writers finish. Dirty data and cache never exceed their limits,
/// and the process grows by a fraction of the written data.
#[test]
fn writers_wait_for_their_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = testpools::images(dir.path(), 1, 8 << 30).remove(0);
    let device = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let faulty = Arc::new(Faulty::new(inner, 1));
        *device.lock().unwrap() = Some(faulty.clone());
        Ok((faulty as Arc<dyn Device>, kind))
    };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let vdev = NewVdev { shape: VdevShape::Single, bias: None, leaves: vec![NewLeaf { path }] };
    let world = Arc::new(testpools::Memory(10 * DIRTY_MAX));
    let spa = testpools::pool_in(vec![vdev], &features, &claimer, 2, world);
    let device = device.into_inner().unwrap().unwrap();
    let pool = Pool::with_spa(spa, None).unwrap();
    let live = pool.spa().writer().unwrap();
    let (contents, props) = (Arc::new(NewFileSystem::new((1_000_000, 0))), Vec::new());
    let create = Create { name: "tank/fs".into(), contents, props, crypt: None, enforce_limits: false };
    live.run(Box::new(create)).unwrap();
    let fs = pool.open_for_writing(pool.dataset("tank/fs").unwrap().dsl(), Policies::default()).unwrap();
    let files: Vec<ObjNum> = (0..WRITERS).map(|writer| file(&fs, writer)).collect();
    live.sync_all().unwrap();
    let cache = fs.objset().cache().clone();
    let (written, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = status("VmRSS");
    device.inject(Fault::Stalled);
    std::thread::scope(|scope| {
        for (writer, object) in files.iter().enumerate() {
            let (fs, written, most, cache) = (&fs, &written, &most, &cache);
            scope.spawn(move || {
                for n in 0..EACH {
                    fs.write(*object, n * MB, &piece(writer as u64, n), false).unwrap();
                    written.fetch_add(MB, Relaxed);
                    most.fetch_max(live.txgs().dirty(), Relaxed);
                    let stats = cache.stats();
                    assert!(stats.size <= stats.c_max, "{stats:?}");
                }
            });
        }
        // Each writer waits with its next megabyte.
        while live.txgs().dirty() + MB + 4096 <= DIRTY_MAX || device.waiting() == 0 {
            std::thread::yield_now();
        }
        let accepted = written.load(Relaxed);
        assert!(accepted <= DIRTY_MAX + WRITERS * MB, "{accepted} bytes were taken");
        // Some writers have written their first megabyte by now, since together they reached the
        // limit.
        let mut byte = [0; 8];
        for (writer, object) in files.iter().enumerate() {
            if fs.attr(*object).unwrap().size >= MB {
                fs.read(*object, 512 * 8, &mut byte).unwrap();
                assert_eq!(u64::from_le_bytes(byte), 8 ^ (writer as u64) << 40);
            }
        }
        device.heal();
    });
    live.sync_all().unwrap();
    let most = most.load(Relaxed);
    assert!((DIRTY_MAX * 3 / 4..=DIRTY_MAX + SLACK).contains(&most), "{most} bytes were dirty");
    assert_eq!(written.load(Relaxed), WRITERS * EACH * MB);
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < WRITERS * EACH * MB / 2, "the process grew by {grown} bytes");
    files.iter().enumerate().for_each(|(writer, object)| check(&fs, writer as u64, *object));
}
