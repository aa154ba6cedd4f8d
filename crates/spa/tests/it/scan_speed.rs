//! The duration of scrub and resilver on rotating disks, compared with the sequential transfer of
//! as many bytes.
//!
//! The tests do not wait for real time: [`ModelClock`] counts it, including the time that devices
//! wait for each other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Clock, Device, Effort, Spinning};
use dmu::NewObject;
use dsl::Need;
use ondisk::config::DraidShape;
use ondisk::scan::{ScanFunc, ScanState};
use ondisk::{DmuType, ObjNum};
use parking_lot::Mutex;
use spa::Spa;
use spa::create::{NewLeaf, VdevShape, claim_file};
use spa::engine::{AttachTerms, PoolWriter, REBUILD_SCRUB_ENABLED, ScanCommand};
use testpools::clock::{Alone, ModelClock, alone};
use testpools::{images, new_pool_with, noise, own, write_file};

/// Transfer rate in bytes a second, and the time of a seek, of a current disk.
const RATE: u64 = 200_000_000;
const SEEK_NS: u64 = 8_000_000;
/// Bytes of a file.
const LEN: usize = 20 << 20;
/// Numbers of files, so large that the txgs at the beginning and end of a scan weigh little.
///
/// These txgs weigh more if each disk has less of the data, and if a disk is written.
const SOME: u64 = 12;
const FILES: u64 = 24;
const MORE: u64 = 36;
const MOST: u64 = 64;
/// Bytes of a disk with space for these files.
const SIZE: u64 = 1 << 30;

struct Disks {
    disks: Vec<Arc<Spinning>>,
    clock: Arc<ModelClock>,
    spa: Spa,
    dir: tempfile::TempDir,
    alone: Alone,
}

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn spinning(inner: Arc<dyn Device>, clock: &Arc<ModelClock>) -> Arc<Spinning> {
    Arc::new(Spinning::new(inner, clock.clone(), RATE, SEEK_NS))
}

fn disks(shape: VdevShape, count: usize, size: u64) -> Disks {
    let alone = alone();
    let clock = Arc::new(ModelClock::default());
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), count, size);
    let disks = Mutex::new(Vec::new());
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let disk = spinning(inner, &clock);
        disks.lock().push(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let spa = new_pool_with(shape, &paths, &claimer, 2);
    let disks = disks.into_inner();
    Disks { disks, clock, spa, dir, alone }
}

impl Disks {
    fn fill(&self, seeds: std::ops::Range<u64>) {
        let live = live(&self.spa);
        for seed in seeds {
            write_file(live, &own(live, "tank"), &noise(seed, LEN)).unwrap();
        }
        live.sync_all().unwrap();
    }

    /// Releases held scans. Returns how long they take until none is active.
    fn time(&self) -> u64 {
        self.efforts();
        self.clock.run(&self.alone);
        let begun = self.clock.now_ns();
        live(&self.spa).scans().hold(false);
        live(&self.spa).scans().wait().unwrap();
        let took = self.clock.now_ns() - begun;
        self.clock.stop();
        took
    }

    /// The effort of each disk for reads and for writes.
    fn efforts(&self) -> Vec<[Effort; 2]> {
        self.disks.iter().map(|d| d.take_efforts()).collect()
    }

    fn finished(&self, func: ScanFunc) {
        let stat = live(&self.spa).scans().stat().unwrap();
        assert_eq!((stat.phys.func, stat.phys.state, stat.phys.errors), (func, ScanState::Finished, 0));
    }

    /// The sequential transfer time of `bytes` as a percentage of `of_ns`.
    fn share(&self, bytes: u64, of_ns: u64) -> u64 {
        self.disks[0].transfer_ns(bytes) * 100 / of_ns
    }
}

/// Goal: a scrub reads its devices sequentially and all at once. It takes no longer than a transfer
/// of the data at 70 % of their rate, including the scrub's txgs.
#[test]
fn a_scrub_is_sequential() {
    for (shape, count, data, files) in [
        (VdevShape::Single, 1, 1, SOME),
        (VdevShape::Mirror, 2, 1, SOME),
        (VdevShape::Raidz(1), 3, 2, SOME),
        (VdevShape::Raidz(2), 5, 3, FILES),
    ] {
        let pool = disks(shape, count, SIZE);
        pool.fill(0..files);
        // No thread waits for a txg, so slices may take their maximum time.
        live(&pool.spa).scans().set_slices(600_000, 600_000);
        live(&pool.spa).scans().hold(true);
        live(&pool.spa).scan(ScanCommand::Scrub).unwrap();
        let took = pool.time();
        pool.finished(ScanFunc::Scrub);
        let each = files * LEN as u64 / data;
        let efforts = pool.efforts();
        assert!(efforts.iter().all(|[reads, _]| reads.bytes >= each), "{efforts:?}: {each} are there");
        let percent = pool.share(each, took);
        println!("{shape:?}: scrubbed at {percent} % in {} ms", took / 1_000_000);
        assert!(percent >= 70, "{shape:?}: {percent} %, {efforts:?}");
    }
}

/// The number of small files with one record each, its size, and the number of txgs that rewrite
/// them, each some from all over.
const SMALL: u64 = 8192;
const RECORD: usize = 16 << 10;
const GROUPS: u64 = 512;

/// Goal: a scrub of small files that were written in scrambled order takes no longer than their
/// transfer at 30 % of the disk's rate.
///
/// Their dnode blocks are scattered, and metadata too is read in the order of its offsets.
#[test]
fn small_files_in_no_order() {
    let pool = disks(VdevShape::Single, 1, SIZE);
    let live = live(&pool.spa);
    let owned = own(live, "tank");
    let tx = || live.tx_for(&owned, Need { bytes: RECORD as u64, netfree: false }).unwrap();
    let spec = NewObject { block_size: RECORD as u32, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let create = |_| owned.objset().create_object(&tx(), &spec).unwrap().object();
    let files: Vec<ObjNum> = (0..SMALL).map(create).collect();
    for n in 0..SMALL {
        // Each number comes once, since the factor and the number of files have no common divisor.
        let file = files[(n * 7919 % SMALL) as usize];
        owned.objset().dnode(file).unwrap().write_at(&tx(), 0, &noise(n, RECORD)).unwrap();
        if n % (SMALL / GROUPS) == 0 {
            live.sync_all().unwrap();
        }
    }
    live.sync_all().unwrap();
    live.scans().set_slices(600_000, 600_000);
    live.scans().hold(true);
    live.scan(ScanCommand::Scrub).unwrap();
    let took = pool.time();
    pool.finished(ScanFunc::Scrub);
    let [[reads, _]] = pool.efforts()[..] else { panic!("there is one disk") };
    let percent = pool.share(SMALL * RECORD as u64, took);
    println!("small files: scrubbed at {percent} % in {} ms: {reads:?}", took / 1_000_000);
    assert!(percent >= 30, "{percent} %, {reads:?}");
}

/// Goal: the same holds for a dRAID, although each redundancy group lies on some of its devices
/// only. The device with the most data sets the pace.
#[test]
fn a_draid_is_scrubbed() {
    for (count, ngroups) in [(5, 4), (7, 2)] {
        let shape = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups });
        let pool = disks(shape, count, SIZE);
        pool.fill(0..FILES);
        live(&pool.spa).scans().set_slices(600_000, 600_000);
        live(&pool.spa).scans().hold(true);
        live(&pool.spa).scan(ScanCommand::Scrub).unwrap();
        let took = pool.time();
        pool.finished(ScanFunc::Scrub);
        let efforts = pool.efforts();
        let read: Vec<u64> = efforts.iter().map(|[reads, _]| reads.bytes).collect();
        let all = FILES * LEN as u64 * 3 / 2;
        // Few gaps are read along.
        assert!((all..all * 21 / 20).contains(&read.iter().sum()), "{efforts:?}: {all} are there");
        let percent = pool.share(read.iter().copied().max().unwrap(), took);
        println!("{shape:?} of {count}: scrubbed at {percent} % in {} ms", took / 1_000_000);
        assert!(percent >= 70, "{shape:?} of {count}: {percent} %, {efforts:?}");
    }
}

/// How a new disk is attached to a pool or replaces one, and is filled.
struct Filled {
    shape: VdevShape,
    count: usize,
    /// The share of the bytes on each disk.
    data: f64,
    /// True for a sequential resilver.
    sequential: bool,
    files: u64,
    /// The lowest percentage of its rate at which the new disk must be written.
    least: u64,
}

/// Checks that a resilver, sequential or not, takes no longer than writing the new disk at that
/// rate.
fn resilver(filled: &Filled) {
    let Filled { shape, count, data, sequential, files, least } = *filled;
    let size = if files > FILES { 2 * SIZE } else { SIZE };
    let mut pool = disks(shape, count, size);
    pool.fill(0..files);
    let dir = pool.dir.path().join("new");
    std::fs::create_dir(&dir).unwrap();
    let path = images(&dir, 1, size).remove(0);
    let new = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let disk = spinning(inner, &pool.clock);
        *new.lock() = Some(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let live = live(&pool.spa);
    live.scans().set_slices(600_000, 600_000);
    live.scans().hold(true);
    let leaf = pool.spa.tree().describe().children[0].children[1].guid;
    let replace = shape != VdevShape::Mirror;
    let terms = AttachTerms { replace, sequential, force: false, unattended: false, claimer: &claimer };
    live.vdevs().attach(leaf, &NewLeaf { path }, &terms).unwrap();
    live.sync_all().unwrap();
    pool.disks.push(new.into_inner().unwrap());
    // The scrub after a sequential resilver is another scan.
    REBUILD_SCRUB_ENABLED.set(0);
    let took = pool.time();
    if !sequential {
        pool.finished(ScanFunc::Resilver);
    }
    let each = ((files * LEN as u64) as f64 * data) as u64;
    let efforts = pool.efforts();
    assert!(pool.spa.tree().behind().is_empty());
    let written = efforts[count][1].bytes;
    assert!(written >= each, "{written} of {each}");
    let percent = pool.share(each, took);
    println!(
        "{shape:?}, sequential {sequential}: resilvered at {percent} % in {} ms: {efforts:?}",
        took / 1_000_000
    );
    assert!(percent >= least, "{shape:?}: {percent} %, {efforts:?}");
}

/// Goal: a resilver of a disk attached to a mirror reads the others and writes the new one
/// sequentially.
#[test]
fn a_mirror_gets_a_side() {
    let shape = VdevShape::Mirror;
    resilver(&Filled { shape, count: 2, data: 1.0, sequential: false, files: MORE, least: 70 });
}

/// Goal: the same holds for a replaced device of a raidz.
#[test]
fn a_raidz_gets_a_device() {
    for (parity, count, data, files) in [(1, 3, 0.5, MORE), (2, 5, 1.0 / 3.0, MOST)] {
        let shape = VdevShape::Raidz(parity);
        resilver(&Filled { shape, count, data, sequential: false, files, least: 70 });
    }
}

const DRAID: VdevShape = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
/// Three columns for two of data, on the four of five devices that are not the spare in the first
/// slices. The second device is not that spare.
const OF_DRAID: f64 = 1.5 / 4.0;

/// Goal: the same holds for a replaced device of a dRAID, because redundancy groups without that
/// device are not read.
#[test]
fn a_draid_gets_a_device() {
    resilver(&Filled { shape: DRAID, count: 5, data: OF_DRAID, sequential: false, files: FILES, least: 70 });
}

/// Goal: the same holds for sequential resilvers, also on a dRAID.
#[test]
fn sequential_resilvers() {
    let (shape, count) = (VdevShape::Mirror, 2);
    resilver(&Filled { shape, count, data: 1.0, sequential: true, files: SOME, least: 70 });
    resilver(&Filled { shape: DRAID, count: 5, data: OF_DRAID, sequential: true, files: FILES, least: 70 });
}
