//! Scrub and resilver on disks with heads: how much of their time they read and write, and how much they seek.
//!
//! Nothing waits here: what each disk would have been busy is added up.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "figures are shown with --nocapture")]

mod rig;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Clock, Device, Effort, Spinning};
use ondisk::config::DraidShape;
use ondisk::scan::{ScanFunc, ScanState};
use parking_lot::Mutex;
use rig::{images, new_pool_on, noise, own, write_file};
use spa::Spa;
use spa::create::{NewLeaf, VdevShape, claim_file};
use spa::engine::{AttachTerms, Live, ScanCommand};

/// Bytes a second, and what a seek takes: a disk of today.
const RATE: u64 = 200_000_000;
const SEEK_NS: u64 = 8_000_000;
/// Files, each of so many bytes.
const FILES: u64 = 24;
const LEN: usize = 20 << 20;

/// Time that stands still.
struct NoTime;

impl Clock for NoTime {
    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: u64) {}
}

struct Disks {
    disks: Vec<Arc<Spinning>>,
    spa: Spa,
    dir: tempfile::TempDir,
}

fn live(spa: &Spa) -> &Live {
    spa.writer().unwrap()
}

fn spinning(inner: Arc<dyn Device>) -> Arc<Spinning> {
    Arc::new(Spinning::new(inner, Arc::new(NoTime), RATE, SEEK_NS))
}

fn disks(shape: VdevShape, count: usize) -> Disks {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = images(dir.path(), count, 1 << 30);
    let disks = Mutex::new(Vec::new());
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let disk = spinning(inner);
        disks.lock().push(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let spa = new_pool_on(shape, &paths, &claimer);
    let disks = disks.into_inner();
    Disks { disks, spa, dir }
}

impl Disks {
    fn fill(&self, seeds: std::ops::Range<u64>) {
        let live = live(&self.spa);
        for seed in seeds {
            write_file(live, &own(live, "tank"), &noise(seed, LEN)).unwrap();
        }
        live.sync_all().unwrap();
    }

    /// What each disk did to read, and to write.
    fn efforts(&self) -> Vec<[Effort; 2]> {
        self.disks.iter().map(|d| d.take_efforts()).collect()
    }

    fn finish(&self, func: ScanFunc) {
        live(&self.spa).wait_for_scans().unwrap();
        let stat = live(&self.spa).scan_stat().unwrap();
        assert_eq!((stat.phys.func, stat.phys.state, stat.phys.errors), (func, ScanState::Finished, 0));
    }
}

/// At least so many percent of a disk's time went into bytes that had to be read or written.
fn busy_with(disk: &Spinning, bytes: u64, effort: Effort) -> u64 {
    assert!(effort.bytes >= bytes, "{effort:?}: {bytes} are there");
    disk.transfer_ns(bytes) * 100 / effort.busy_ns
}

/// Goal: a scrub reads its devices from one end to the other: at least 70 % of the time in which they read goes into what is there to be read. (Groups, which come every
/// few seconds, are not counted.)
#[test]
fn a_scrub_is_sequential() {
    for (shape, count, data) in [
        (VdevShape::Single, 1, 1),
        (VdevShape::Mirror, 2, 1),
        (VdevShape::Raidz(1), 3, 2),
        (VdevShape::Raidz(2), 5, 3),
    ] {
        let pool = disks(shape, count);
        pool.fill(0..FILES);
        // Nobody waits for a group, so that slices are as long as they may be.
        live(&pool.spa).set_scan_slices(600_000, 600_000);
        pool.efforts();
        live(&pool.spa).hold_scans(true);
        live(&pool.spa).scan(ScanCommand::Scrub).unwrap();
        pool.efforts();
        live(&pool.spa).hold_scans(false);
        pool.finish(ScanFunc::Scrub);
        let each = FILES * LEN as u64 / data;
        for (disk, [reads, _]) in pool.disks.iter().zip(pool.efforts()) {
            let percent = busy_with(disk, each, reads);
            println!("{shape:?}: scrubbed at {percent} %");
            assert!(percent >= 70, "{shape:?}: {percent} % of {reads:?}");
        }
    }
}

/// Puts a new disk beside one of a pool's, or in its place, and fills it by a resilver or by a sequential one: the others read at 70 % of what they could do at most, and the new one writes at
/// 60 %, which counts what the groups write with which a resilver begins and ends: some forty seeks, where all of it takes one to four seconds. A share of `data` of the bytes is on each.
fn resilver(shape: VdevShape, count: usize, data: f64, sequential: bool) {
    let mut pool = disks(shape, count);
    pool.fill(0..FILES);
    let dir = pool.dir.path().join("new");
    std::fs::create_dir(&dir).unwrap();
    let path = images(&dir, 1, 1 << 30).remove(0);
    let new = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let disk = spinning(inner);
        *new.lock() = Some(disk.clone());
        Ok((disk as Arc<dyn Device>, kind))
    };
    let live = live(&pool.spa);
    live.set_scan_slices(600_000, 600_000);
    live.hold_scans(true);
    let leaf = pool.spa.tree().describe().children[0].children[1].guid;
    let replace = shape != VdevShape::Mirror;
    let terms = AttachTerms { replace, sequential, force: false, unattended: false, claimer: &claimer };
    live.attach(leaf, &NewLeaf { path }, &terms).unwrap();
    live.sync_all().unwrap();
    pool.disks.push(new.into_inner().unwrap());
    pool.efforts();
    live.hold_scans(false);
    if sequential {
        live.wait_for_scans().unwrap();
    } else {
        pool.finish(ScanFunc::Resilver);
    }
    let each = ((FILES * LEN as u64) as f64 * data) as u64;
    let mut efforts = pool.efforts();
    assert!(pool.spa.tree().behind().is_empty());
    let written = efforts.pop().unwrap()[1];
    let written = busy_with(&pool.disks[count], each, written);
    // Whom it takes the place of is not asked where others have it.
    let all = pool.disks.iter().zip(&efforts).filter(|(_, [reads, _])| reads.bytes >= each / 2);
    let read: Vec<u64> = all.map(|(disk, [reads, _])| busy_with(disk, reads.bytes, *reads)).collect();
    println!("{shape:?}, sequential {sequential}: read at {read:?} %, written at {written} %");
    assert!(
        !read.is_empty() && read.iter().all(|percent| *percent >= 70) && written >= 60,
        "{read:?}, {written}"
    );
}

/// Goal: a resilver of a device that joins a mirror reads the others from one end to the other, and writes the new one so.
#[test]
fn a_mirror_gets_a_side() {
    resilver(VdevShape::Mirror, 2, 1.0, false);
}

/// Goal: so it is where a device of a raidz is replaced.
#[test]
fn a_raidz_gets_a_device() {
    resilver(VdevShape::Raidz(1), 3, 0.5, false);
    resilver(VdevShape::Raidz(2), 5, 1.0 / 3.0, false);
}

const DRAID: VdevShape = VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 });
/// Three columns for two of data, over the four devices of five that are not spare in the first slices; the second is none of these.
const OF_DRAID: f64 = 1.5 / 4.0;

/// Goal: so it is where a device of a draid is replaced.
#[test]
fn a_draid_gets_a_device() {
    resilver(DRAID, 5, OF_DRAID, false);
}

/// Goal: so it is when no pointers are followed.
#[test]
fn sequential_resilvers() {
    resilver(VdevShape::Mirror, 2, 1.0, true);
    resilver(DRAID, 5, OF_DRAID, true);
}
