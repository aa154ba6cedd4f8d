//! Scrub and resilver of data written in random order, on rotating disks: which share of their time
//! they transfer data, and how much they seek.
//!
//! The tests do not wait for real time: they add up the time that each disk would be busy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Clock, Device, Effort, Spinning};
use dmu::NewObject;
use dsl::Need;
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{DmuType, ObjNum, VdevKind};
use parking_lot::Mutex;
use spa::Spa;
use spa::create::{NewLeaf, VdevShape, claim_file};
use spa::engine::{AttachTerms, PoolWriter, ScanCommand};
use testpools::{images, new_pool_on, noise, own};

/// Transfer rate in bytes a second, and the time of a seek, of a current disk.
const RATE: u64 = 200_000_000;
const SEEK_NS: u64 = 8_000_000;
/// Number of txgs that write the records, each some from all over the file.
const GROUPS: u64 = 96;

/// A clock that stands still.
struct NoTime;

impl Clock for NoTime {
    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: u64) {}
}

/// The number and size of records, and the memory in bytes for queued blocks (0 for the default of
/// the machine).
#[derive(Debug, Clone, Copy)]
struct Data {
    record: u32,
    records: u64,
    memory: u64,
}

impl Data {
    fn bytes(&self) -> u64 {
        u64::from(self.record) * self.records
    }
}

struct Disks {
    disks: Mutex<Vec<Arc<Spinning>>>,
    spa: Spa,
    dir: tempfile::TempDir,
}

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// Opens an image as such a disk.
fn spinning(path: &Path) -> (Arc<Spinning>, VdevKind) {
    let (inner, kind) = claim_file(path).unwrap();
    (Arc::new(Spinning::new(inner, Arc::new(NoTime), RATE, SEEK_NS)), kind)
}

/// A mirror of two disks with a file whose records were written in a scrambled order.
fn scattered(data: Data) -> Disks {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), 2, 1 << 30);
    let disks = Mutex::new(Vec::new());
    let claimer = |path: &Path| {
        let (disk, kind) = spinning(path);
        disks.lock().push(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let spa = new_pool_on(VdevShape::Mirror, &paths, &claimer);
    let live = live(&spa);
    let owned = own(live, "tank");
    let spec = NewObject { block_size: data.record, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let need = |bytes| Need { bytes, netfree: false };
    let dn = owned.objset().create_object(&live.tx_for(&owned, need(1 << 14)).unwrap(), &spec).unwrap();
    let dn: ObjNum = dn.object();
    // Each number comes once, since the factor and the number of records have no common divisor.
    let factor = 7919;
    let each = data.records.div_ceil(GROUPS);
    for group in 0..GROUPS {
        let tx = live.tx_for(&owned, need(each * u64::from(data.record))).unwrap();
        let dnode = owned.objset().dnode(dn).unwrap();
        for n in (group * each..(group + 1) * each).take_while(|n| *n < data.records) {
            let at = n * factor % data.records;
            dnode.write_at(&tx, at * u64::from(data.record), &noise(at, data.record as usize)).unwrap();
        }
        drop(tx);
        live.sync_all().unwrap();
    }
    // No thread waits for a txg, so slices may take their maximum time.
    live.scans().set_slices(600_000, 600_000);
    live.scans().limit_queue(data.memory);
    Disks { disks, spa, dir }
}

impl Disks {
    /// The effort of each disk for reads and for writes.
    fn efforts(&self) -> Vec<[Effort; 2]> {
        self.disks.lock().iter().map(|d| d.take_efforts()).collect()
    }

    fn finish(&self, func: ScanFunc) {
        live(&self.spa).scans().hold(false);
        live(&self.spa).scans().wait().unwrap();
        let stat = live(&self.spa).scans().stat().unwrap();
        assert_eq!((stat.phys.func, stat.phys.state, stat.phys.errors), (func, ScanState::Finished, 0));
        // Every block that the walk found was examined, except blocks of the pool's own that were
        // freed meanwhile.
        assert_eq!(stat.issued + stat.phys.skipped, stat.phys.examined, "{stat:?}");
    }
}

/// The percentage of a disk's time that went into the bytes that had to be read or written.
fn busy_with(bytes: u64, effort: Effort) -> u64 {
    assert!(effort.bytes >= bytes, "{effort:?}: {bytes} are there");
    let wanted = u128::from(bytes) * 1_000_000_000 / u128::from(RATE);
    (wanted * 100 / u128::from(effort.busy_ns)) as u64
}

/// Runs a scrub of such data. Returns the lower percentage of the two disks.
fn scrubbed(data: Data) -> u64 {
    let pool = scattered(data);
    live(&pool.spa).scans().hold(true);
    live(&pool.spa).scan(ScanCommand::Scrub).unwrap();
    pool.efforts();
    pool.finish(ScanFunc::Scrub);
    let percents = pool.efforts().into_iter().map(|[reads, _]| busy_with(data.bytes(), reads));
    let percent = percents.min().unwrap();
    println!("{data:?}: scrubbed at {percent} %");
    percent
}

/// Runs a resilver of a third child. Returns the lowest percentage of a read disk, and that of the
/// new disk.
///
/// The latter includes the txgs with which a resilver begins and ends.
fn resilvered(data: Data) -> (u64, u64) {
    let pool = scattered(data);
    let dir = pool.dir.path().join("new");
    std::fs::create_dir(&dir).unwrap();
    let path = images(&dir, 1, 1 << 30).remove(0);
    let claimer = |path: &Path| {
        let (disk, kind) = spinning(path);
        pool.disks.lock().push(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let live = live(&pool.spa);
    live.scans().hold(true);
    let leaf = pool.spa.tree().describe().children[0].children[1].guid;
    let terms =
        AttachTerms { replace: false, sequential: false, force: false, unattended: false, claimer: &claimer };
    live.vdevs().attach(leaf, &NewLeaf { path }, &terms).unwrap();
    live.sync_all().unwrap();
    pool.efforts();
    pool.finish(ScanFunc::Resilver);
    assert!(pool.spa.tree().behind().is_empty());
    let mut efforts = pool.efforts();
    let written = busy_with(data.bytes(), efforts.pop().unwrap()[1]);
    // One child alone is read for what both have.
    let all = efforts.iter().filter(|[reads, _]| reads.bytes >= data.bytes() / 2);
    let read = all.map(|[reads, _]| busy_with(reads.bytes.min(data.bytes()), *reads)).min().unwrap();
    println!("{data:?}: resilvered, read at {read} %, written at {written} %");
    (read, written)
}

const LARGE: Data = Data { record: 128 << 10, records: 3840, memory: 0 };
const SMALL: Data = Data { record: 16 << 10, records: 15360, memory: 0 };
/// Memory of a queued block.
const WAITING: u64 = 256;

/// Goal: if all blocks can be queued, a scrub reads its devices sequentially, in whatever order the
/// data was written. At least 70 % of its read time transfers data.
#[test]
fn a_scrub_of_scattered_records() {
    assert!(scrubbed(LARGE) >= 70);
    assert!(scrubbed(SMALL) >= 60);
}

/// Goal: if a quarter of the blocks can be queued, a scrub is slower and still finishes.
#[test]
fn with_a_quarter_of_the_memory() {
    assert!(scrubbed(Data { memory: LARGE.records / 4 * WAITING, ..LARGE }) >= 10);
    assert!(scrubbed(Data { memory: SMALL.records / 4 * WAITING, ..SMALL }) >= 10);
}

/// Goal: a resilver reads and writes sequentially too.
#[test]
fn a_resilver_of_scattered_records() {
    let (read, written) = resilvered(LARGE);
    assert!(read >= 70 && written >= 55, "{read}, {written}");
}
