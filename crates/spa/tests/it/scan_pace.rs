//! Scans yield to foreground I/O, and for no longer than they have to.
//!
//! Time is what rotating disks would need. The tests wait only for what they hold up themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use device::{Clock, Device, Effort, Spinning};
use ondisk::feature::{FEATURES, Feature};
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{ObjNum, Psize, Txg, VdevId};
use parking_lot::{Condvar, Mutex};
use spa::Spa;
use spa::create::{NewLeaf, NewVdev, VdevShape, claim_file};
use spa::engine::{
    AttachTerms, PoolWriter, REBUILD_SCRUB_ENABLED, ScanCommand, SystemWorld, WorkCommand, WorkKind, World,
};
use testpools::{images, judge, noise, own, pool_in, read_file, write_file};
use vdev::{Priority, Request, VdevKind};

/// Transfer rate in bytes a second, and the time of a seek, of a current disk.
const RATE: u64 = 200_000_000;
const SEEK_NS: u64 = 8_000_000;
/// The number of files and the size of each: more than the cache holds.
const FILES: u64 = 20;
const LEN: usize = 8 << 20;
/// How long a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);

/// A clock that jumps to each deadline for which a thread sleeps.
#[derive(Default)]
struct Time(AtomicU64);

impl Clock for Time {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn sleep_until(&self, deadline_ns: u64) {
        self.0.fetch_max(deadline_ns, SeqCst);
    }
}

/// The same clock for scans that yield. While it stands still, they sleep in vain.
struct Turn {
    time: Arc<Time>,
    stands: AtomicBool,
    asked: AtomicU64,
    /// True if it stood still for so long that something must be wrong.
    gave_up: AtomicBool,
    since: Instant,
}

impl Turn {
    /// Waits until a scan sleeps on this clock again.
    fn is_asked(&self) {
        let before = self.asked.load(SeqCst);
        while self.asked.load(SeqCst) < before + 10 {
            assert!(self.since.elapsed() < PATIENCE, "nobody waits for his turn");
            std::thread::yield_now();
        }
    }
}

impl Clock for Turn {
    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn sleep_until(&self, deadline_ns: u64) {
        self.asked.fetch_add(1, SeqCst);
        if self.stands.load(SeqCst) {
            if self.since.elapsed() < PATIENCE {
                return std::thread::yield_now();
            }
            self.gave_up.store(true, SeqCst);
        }
        self.time.sleep_until(deadline_ns);
    }
}

/// The system's environment with another clock.
struct Timed(Arc<dyn Clock>);

impl World for Timed {
    fn now(&self) -> u64 {
        SystemWorld.now()
    }

    fn random(&self) -> u64 {
        SystemWorld.random()
    }

    fn memory(&self) -> u64 {
        SystemWorld.memory()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clone()
    }
}

const READER: &str = "reader";
const INITIALIZER: &str = "vdev_initialize/tank";

/// A disk that blocks readers while it is closed. It records the longest read of other threads, and
/// the bytes that initialization writes.
struct Door {
    disk: Spinning,
    state: Mutex<Kept>,
    opened: Condvar,
}

#[derive(Default)]
struct Kept {
    closed: bool,
    waiting: usize,
    longest: u64,
    /// Bytes that initialization has written, and the limit at which it blocks, if any.
    filled: u64,
    quota: Option<u64>,
}

impl Door {
    fn filled(&self) -> u64 {
        self.state.lock().filled
    }

    fn set_quota(&self, quota: Option<u64>) {
        self.state.lock().quota = quota;
        self.opened.notify_all();
    }

    fn write(&self, bytes: usize, write: impl FnOnce() -> device::Result<()>) -> device::Result<()> {
        if std::thread::current().name() != Some(INITIALIZER) {
            return write();
        }
        let mut kept = self.state.lock();
        while kept.quota.is_some_and(|quota| kept.filled >= quota) {
            self.opened.wait(&mut kept);
        }
        drop(kept);
        let done = write();
        self.state.lock().filled += bytes as u64;
        done
    }

    fn close(&self) {
        self.state.lock().closed = true;
    }

    fn open(&self) {
        self.state.lock().closed = false;
        self.opened.notify_all();
    }

    /// Bytes of the longest read since the last call.
    fn longest(&self) -> u64 {
        std::mem::take(&mut self.state.lock().longest)
    }
}

impl device::wrapper::Wrapper for Door {
    fn inner(&self) -> &dyn Device {
        &self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> device::Result<()> {
        let mut kept = self.state.lock();
        if std::thread::current().name() == Some(READER) {
            kept.waiting += 1;
            while kept.closed {
                self.opened.wait(&mut kept);
            }
            kept.waiting -= 1;
        } else {
            kept.longest = kept.longest.max(buf.len() as u64);
        }
        drop(kept);
        self.inner().read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> device::Result<()> {
        self.write(buf.len(), || self.inner().write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> device::Result<()> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.write(bytes, || self.inner().write_vectored_at(bufs, offset))
    }
}

struct Pool {
    time: Arc<Time>,
    turn: Arc<Turn>,
    doors: Vec<Arc<Door>>,
    files: Vec<(u64, ObjNum)>,
    spa: Spa,
    dir: tempfile::TempDir,
}

/// Opens a disk, and adds it to the list.
fn claim(
    path: &Path,
    time: &Arc<Time>,
    doors: &Mutex<Vec<Arc<Door>>>,
) -> device::Result<(Arc<dyn Device>, VdevKind)> {
    let (inner, kind) = claim_file(path)?;
    let disk = Spinning::new(inner, time.clone(), RATE, SEEK_NS);
    let door = Arc::new(Door { disk, state: Mutex::default(), opened: Condvar::new() });
    doors.lock().push(door.clone());
    Ok((door as Arc<dyn Device>, kind))
}

/// A mirror of two disks with files.
fn pool() -> Pool {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), 2, 512 << 20);
    let (time, doors) = (Arc::new(Time::default()), Mutex::default());
    let turn = Arc::new(Turn {
        time: time.clone(),
        stands: AtomicBool::new(false),
        asked: AtomicU64::new(0),
        gave_up: AtomicBool::new(false),
        since: Instant::now(),
    });
    let leaves = paths.into_iter().map(|path| NewLeaf { path }).collect();
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let vdev = NewVdev { shape: VdevShape::Mirror, bias: None, leaves };
    let world = Arc::new(Timed(turn.clone()));
    let spa = pool_in(vec![vdev], &features, &|path| claim(path, &time, &doors), 1, world);
    let live = spa.writer().unwrap();
    let owned = own(live, "tank");
    let files = (0..FILES).map(|seed| (seed, write_file(live, &owned, &noise(seed, LEN)).unwrap())).collect();
    live.sync_all().unwrap();
    drop(owned);
    Pool { time, turn, doors: doors.into_inner(), files, spa, dir }
}

impl Pool {
    fn live(&self) -> &PoolWriter {
        self.spa.writer().unwrap()
    }

    /// Runs `work` while a reader is blocked on each disk.
    fn while_read<T>(&self, work: impl FnOnce(&dsl::Owned) -> T) -> T {
        self.doors.iter().for_each(|door| door.close());
        let owned = own(self.live(), "tank");
        std::thread::scope(|scope| {
            let _open = Opens(&self.doors);
            let readers: Vec<_> = (0..4)
                .map(|n| {
                    let owned = &owned;
                    let work = move || {
                        for (seed, object) in self.files.iter().skip(n).step_by(4) {
                            assert!(read_file(owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
                        }
                    };
                    std::thread::Builder::new().name(READER.into()).spawn_scoped(scope, work).unwrap()
                })
                .collect();
            while self.doors.iter().any(|door| door.state.lock().waiting == 0) {
                assert!(!readers.iter().all(|r| r.is_finished()), "nobody reads disks");
                std::thread::yield_now();
            }
            work(&owned)
        })
    }

    fn finish(&self, func: ScanFunc) {
        self.live().scans().wait().unwrap();
        let stat = self.live().scans().stat().unwrap();
        assert_eq!((stat.phys.func, stat.phys.state, stat.phys.errors), (func, ScanState::Finished, 0));
    }

    /// Measures the cost of `work`.
    fn work(&self, work: impl FnOnce()) -> Work {
        let efforts = || self.doors.iter().map(|door| door.disk.take_efforts()).collect();
        let _: Vec<_> = efforts();
        let (from, waited, txg) = (self.time.now_ns(), self.live().scans().waited_ns(), self.synced());
        work();
        Work {
            took_ns: self.time.now_ns() - from,
            waited_ns: self.live().scans().waited_ns() - waited,
            groups: self.synced() - txg,
            efforts: efforts(),
        }
    }

    /// Attaches another disk, which a sequential resilver fills. Returns that disk.
    fn rebuild_onto_another(&self) -> Vec<Arc<Door>> {
        let dir = self.dir.path().join("new");
        std::fs::create_dir(&dir).unwrap();
        let path = images(&dir, 1, 512 << 20).remove(0);
        let new = Mutex::default();
        let leaf = self.spa.tree().describe().children[0].children[1].guid;
        let claimer = |path: &Path| claim(path, &self.time, &new);
        let (replace, sequential, force, unattended) = (false, true, false, false);
        let terms = AttachTerms { replace, sequential, force, unattended, claimer: &claimer };
        self.live().vdevs().attach(leaf, &NewLeaf { path }, &terms).unwrap();
        new.into_inner()
    }

    /// Starts the initialization of both disks, which blocks after `quota` bytes of each.
    fn initialize(&self, quota: u64) -> Fills<'_> {
        let fills = Fills(&self.doors);
        fills.hold_after(quota);
        let leaves: Vec<_> = self.spa.tree().devices().map(|(guid, _)| guid).collect();
        let start = WorkCommand::Start { rate: 0, secure: false };
        assert_eq!(self.live().initialize_trim().work(&leaves, WorkKind::Initialize, start).unwrap(), []);
        fills
    }

    /// Waits until that many bytes of each disk are initialized.
    fn is_filled(&self, bytes: u64) {
        while self.doors.iter().any(|door| door.filled() < bytes) {
            assert!(self.turn.since.elapsed() < PATIENCE, "nothing is initialised");
            std::thread::yield_now();
        }
    }

    fn synced(&self) -> u64 {
        self.live().txgs().synced().0
    }

    /// Exports the pool and checks it.
    fn end(self) {
        self.live().export().unwrap();
        self.judge();
    }

    fn judge(self) {
        assert!(!self.turn.gave_up.load(SeqCst));
        drop((self.spa, self.doors));
        judge(self.dir.path(), "tank");
    }
}

/// The cost of an operation.
#[derive(Debug)]
struct Work {
    took_ns: u64,
    /// How long scans yielded.
    waited_ns: u64,
    groups: u64,
    /// The effort of each disk for reads and for writes.
    efforts: Vec<[Effort; 2]>,
}

impl Work {
    fn busy_ns(&self) -> u64 {
        self.efforts.iter().flatten().map(|effort| effort.busy_ns).sum()
    }
}

/// Unblocks readers at the end of a test, also after a panic.
struct Opens<'a>(&'a [Arc<Door>]);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|door| door.open());
    }
}

/// Unblocks initialization at the end of a test, also after a panic.
struct Fills<'a>(&'a [Arc<Door>]);

impl Fills<'_> {
    fn hold_after(&self, quota: u64) {
        self.0.iter().for_each(|door| door.set_quota(Some(quota)));
    }
}

impl Drop for Fills<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|door| door.set_quota(None));
    }
}

/// Damages a sector of a file on a disk.
fn damage(door: &Door, seed: u64) {
    const CHUNK: usize = 1 << 20;
    let (sector, mut chunk) = (&noise(seed, 512)[..], vec![0; CHUNK]);
    for start in (0..door.size()).step_by(CHUNK) {
        door.disk.read_at(&mut chunk, start).unwrap();
        if let Some(n) = chunk.chunks(512).position(|have| have == sector) {
            return door.disk.write_at(&[7; 512], start + n as u64 * 512).unwrap();
        }
    }
    panic!("the file is nowhere");
}

/// Goal: a scrub beside constant readers gets a seventh of each disk's time, in reads of at most a
/// megabyte. It finishes and repairs the damage.
#[test]
fn a_scrub_gets_on_beside_readers() {
    let pool = pool();
    for (door, seed) in pool.doors.iter().zip([1, 2]) {
        damage(door, seed);
        door.longest();
    }
    pool.while_read(|_| {
        let work = pool.work(|| {
            pool.live().scan(ScanCommand::Scrub).unwrap();
            pool.finish(ScanFunc::Scrub);
        });
        println!("beside readers: {work:?}");
        for (door, [reads, _]) in pool.doors.iter().zip(&work.efforts) {
            assert!(reads.bytes >= FILES * LEN as u64);
            assert!(work.took_ns >= 6 * reads.busy_ns, "{work:?}");
            assert!(door.longest() <= 1 << 20);
        }
        // Time passed only while disks were busy or scans yielded.
        assert!(work.waited_ns + work.busy_ns() >= work.took_ns, "{work:?}");
        let repaired = pool.live().scans().stat().unwrap().phys.processed;
        assert!((2 * 512..=2 * (128 << 10)).contains(&repaired), "{repaired}");
    });
    pool.live().scan(ScanCommand::Scrub).unwrap();
    pool.finish(ScanFunc::Scrub);
    assert_eq!(pool.live().scans().stat().unwrap().phys.processed, 0);
    pool.end();
}

/// Goal: a scrub of an idle pool does not yield, except for a moment after each txg.
#[test]
fn an_idle_pool_is_scrubbed_at_once() {
    let pool = pool();
    let work = pool.work(|| {
        pool.live().scan(ScanCommand::Scrub).unwrap();
        pool.finish(ScanFunc::Scrub);
    });
    println!("alone: {work:?}");
    let moments = 2 * (work.groups + 2) * pool.doors.len() as u64;
    assert!(work.waited_ns <= moments * 20_000_000, "{work:?}");
    pool.end();
}

/// Goal: a scan that yields delays no thread that waits for a txg: no sync, no stop of the scan,
/// and no export.
#[test]
fn nobody_waits_because_it_makes_way() {
    let pool = pool();
    pool.live().scans().limit_slices(1);
    // No slice is late before the test gives up.
    pool.live().scans().set_slices(600_000, 600_000);
    pool.while_read(|owned| {
        pool.live().scan(ScanCommand::Scrub).unwrap();
        pool.turn.stands.store(true, SeqCst);
        for seed in 100..103 {
            pool.turn.is_asked();
            write_file(pool.live(), owned, &noise(seed, 4096)).unwrap();
            pool.live().sync_all().unwrap();
            assert!(pool.live().scans().stat().unwrap().is_scanning());
        }
        pool.turn.is_asked();
        pool.live().scan(ScanCommand::Stop).unwrap();
        pool.live().scan(ScanCommand::Scrub).unwrap();
        pool.turn.is_asked();
        pool.live().export().unwrap();
    });
    pool.judge();
}

/// Goal: a late slice does not yield, so its txg continues although no thread waits for it.
#[test]
fn a_late_slice_makes_way_for_nobody() {
    let pool = pool();
    pool.live().scans().limit_slices(1);
    // Each slice is late five seconds after its beginning.
    pool.live().scans().set_slices(1, 1);
    pool.while_read(|_| {
        let _goes_on = GoesOn(&pool.turn);
        pool.live().scan(ScanCommand::Scrub).unwrap();
        pool.turn.stands.store(true, SeqCst);
        pool.turn.is_asked();
        let (synced, since) = (pool.synced(), Instant::now());
        while pool.synced() == synced {
            assert!(since.elapsed() < PATIENCE, "a late slice waits for its turn");
            std::thread::yield_now();
        }
        assert!(pool.live().scans().stat().unwrap().is_scanning());
        pool.live().scan(ScanCommand::Stop).unwrap();
    });
    pool.end();
}

/// Lets the clock run again at the end of a test, also after a panic.
struct GoesOn<'a>(&'a Turn);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.stands.store(false, SeqCst);
    }
}

/// Goal: a sequential resilver yields for its writes too. Beside a constant reader of the new disk
/// it gets a seventh of that disk's time, and makes progress.
#[test]
fn what_a_rebuild_writes_makes_way() {
    REBUILD_SCRUB_ENABLED.set(0);
    let mut pool = pool();
    pool.live().scans().hold(true);
    let new = pool.rebuild_onto_another();
    pool.doors.extend(new);
    let door = &pool.doors[2..];
    door[0].close();
    std::thread::scope(|scope| {
        let open = Opens(door);
        let tree = pool.spa.tree();
        // Reads from every child, including the new one.
        let asks = move || {
            let request = Request::new(Priority::SyncRead);
            let all = tree.attempts(VdevId(0), 0, Psize(4096), Txg(1), &request).unwrap();
            all.filter(|bytes| bytes.len() == 4096).count()
        };
        let asks = std::thread::Builder::new().name(READER.into()).spawn_scoped(scope, asks).unwrap();
        while door[0].state.lock().waiting == 0 {
            assert!(!asks.is_finished(), "nobody asks for the new disk");
            std::thread::yield_now();
        }
        let work = pool.work(|| {
            pool.live().scans().hold(false);
            pool.live().scans().wait().unwrap();
        });
        println!("written: {work:?}");
        assert!(pool.spa.tree().behind().is_empty());
        let all = FILES * LEN as u64;
        assert!(work.efforts[2][1].bytes >= all, "{work:?}");
        // No foreground I/O competes with the rebuild's reads.
        let takes_ns = all * 1_000_000_000 / RATE;
        assert!(work.took_ns >= 6 * takes_ns, "{work:?}");
        drop(open);
        assert_eq!(asks.join().unwrap(), 3);
    });
    pool.end();
}

/// Goal: a sequential resilver yields too, and makes progress beside readers.
#[test]
fn a_rebuild_gets_on_beside_readers() {
    // Disable the scrub that would follow.
    REBUILD_SCRUB_ENABLED.set(0);
    let mut pool = pool();
    let mut new = Vec::new();
    pool.while_read(|_| {
        let work = pool.work(|| {
            new = pool.rebuild_onto_another();
            pool.live().scans().wait().unwrap();
        });
        println!("rebuilt: {work:?}");
        assert!(pool.spa.tree().behind().is_empty());
        // Each range is read from one of the two disks.
        assert!(work.efforts.iter().map(|[reads, _]| reads.bytes).sum::<u64>() >= FILES * LEN as u64);
        assert!(work.efforts.iter().all(|[reads, _]| work.took_ns >= 6 * reads.busy_ns), "{work:?}");
    });
    pool.doors.extend(new);
    pool.end();
}

/// Goal: an initialization yields too, and makes progress beside readers.
#[test]
fn an_initialization_gets_on_beside_readers() {
    const FILLED: u64 = 64 << 20;
    let pool = pool();
    pool.while_read(|_| {
        let mut fills = None;
        let work = pool.work(|| {
            fills = Some(pool.initialize(FILLED));
            pool.is_filled(FILLED);
        });
        println!("initialised: {work:?}");
        assert!(work.took_ns >= 6 * FILLED * 1_000_000_000 / RATE, "{work:?}");
    });
    pool.end();
}

/// Goal: a scrub does not yield to an initialization, even one with a write that never completes.
#[test]
fn a_scrub_does_not_wait_for_an_initialization() {
    let pool = pool();
    let fills = pool.initialize(4 << 20);
    pool.is_filled(4 << 20);
    let work = pool.work(|| {
        pool.live().scan(ScanCommand::Scrub).unwrap();
        fills.hold_after(32 << 20);
        pool.finish(ScanFunc::Scrub);
    });
    println!("beside an initialisation: {work:?}");
    let moments = 2 * (work.groups + 2) * pool.doors.len() as u64;
    assert!(work.waited_ns <= moments * 20_000_000, "{work:?}");
    drop(fills);
    pool.end();
}
