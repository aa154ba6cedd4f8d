//! Blocks that a scan has found but not yet issued: they are freed, their space is reused, the
//! process ends, or the pool is exported.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dmu::NewObject;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::snapshot::Snapshot;
use dsl::{Need, Setting, Value};
use ondisk::scan::{ScanFunc, ScanPhys, ScanState};
use ondisk::{BlkId, DmuType, Level, ObjNum, VdevId};
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{PoolWriter, ScanCommand, ScanDone, ScanStat};
use spa::import::{Options, SystemClock};
use testpools::{
    file_system, images, import, judge, new_pool, noise, own, read_file, remove_file, write_file,
};

const SIZE: u64 = 96 << 20;
const BLOCK: usize = 1 << 17;
const LEN: usize = 8 * BLOCK;
/// Memory of a queued block.
const WAITING: u64 = 256;

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

/// A file: its dataset, seed and object number.
type File = (&'static str, u64, ObjNum);

fn put(spa: &Spa, dataset: &'static str, seed: u64) -> File {
    let object = write_file(live(spa), &own(live(spa), dataset), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    (dataset, seed, object)
}

fn remove(spa: &Spa, file: File) {
    remove_file(live(spa), &own(live(spa), file.0), file.2).unwrap();
}

/// A new file with all blocks of another one in the same dataset.
fn clone(spa: &Spa, (dataset, seed, source): File) -> File {
    let live = live(spa);
    let owned = own(live, dataset);
    let tx = live.tx_for(&owned, Need { bytes: 1 << 17, netfree: false }).unwrap();
    let spec = NewObject { block_size: BLOCK as u32, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let dn = owned.objset().create_object(&tx, &spec).unwrap();
    let source = owned.objset().dnode(source).unwrap();
    dn.clone_blocks(&tx, BlkId(0), &source, BlkId(0), (LEN / BLOCK) as u64).unwrap();
    let object = dn.object();
    drop(tx);
    live.sync_all().unwrap();
    (dataset, seed, object)
}

/// The ranges of a file's blocks with all their copies, each as vdev, start and end.
fn places(spa: &Spa, file: File) -> Vec<Vec<(VdevId, u64, u64)>> {
    let owned = own(live(spa), file.0);
    let dn = owned.objset().dnode(file.2).unwrap();
    let of = |n| {
        let bp = dn.bp(Level(0), BlkId(n)).unwrap();
        let copies = bp.stored().unwrap().copies();
        copies.map(|dva| (dva.vdev, dva.offset.0, dva.offset.0 + dva.asize.0)).collect()
    };
    (0..(LEN / BLOCK) as u64).map(of).collect()
}

fn overlap(a: (VdevId, u64, u64), b: (VdevId, u64, u64)) -> bool {
    a.0 == b.0 && a.1 < b.2 && b.1 < a.2
}

/// Overwrites all of an image but its labels.
fn ruin(image: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    let rubbish = noise(99, 1 << 20);
    for at in (4 << 20..SIZE - (1 << 20)).step_by(1 << 20) {
        file.write_all_at(&rubbish, at).unwrap();
    }
}

/// True if blocks are queued.
fn waits(stat: ScanStat) -> bool {
    stat.phys.examined > stat.issued + stat.phys.skipped
}

/// Lets txgs pass until a scan has found all its blocks and issued none.
fn gather(spa: &Spa) -> ScanStat {
    let mut before = None;
    for _ in 0..1000 {
        live(spa).sync_anew().unwrap();
        let stat = live(spa).scans().stat().unwrap();
        let met = Some(stat.phys.examined).filter(|_| stat.is_scanning() && waits(stat));
        if met.is_some() && met == before {
            return stat;
        }
        before = met;
    }
    panic!("it has not met everything: {:?}", live(spa).scans().stat());
}

/// Lets txgs pass until no scan is active.
fn finish(spa: &Spa) -> ScanStat {
    for _ in 0..10_000 {
        live(spa).sync_all().unwrap();
        let stat = live(spa).scans().stat().unwrap();
        if !stat.is_scanning() {
            return stat;
        }
    }
    panic!("no end: {:?}", live(spa).scans().stat());
}

/// The recorded scan state of a pool that is not imported.
fn recorded(dir: &Path) -> ScanPhys {
    let found = spa::discover(&[dir]);
    let options = Options { force: true, ..Options::default() };
    let spa = spa::import::import(&found.pools[0], &options, &testpools::host(), &SystemClock).unwrap();
    spa.mos().scan().unwrap().unwrap()
}

fn begin_scrub(spa: &Spa) {
    live(spa).scans().hold_looks(true);
    assert_eq!(live(spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
}

/// Imports a pool without one of its devices, and reads files.
fn check_without(dir: &Path, image: &Path, files: &[File]) {
    let away = tempfile::tempdir().unwrap();
    let hidden = away.path().join("hidden");
    std::fs::rename(image, &hidden).unwrap();
    let spa = import(dir).unwrap();
    for (dataset, seed, object) in files {
        let owned = own(live(&spa), dataset);
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed} of {dataset}");
    }
    live(&spa).export().unwrap();
    drop(spa);
    std::fs::rename(&hidden, image).unwrap();
}

/// Exports a pool, checks it, and reads files without each of the given devices.
fn discharge(spa: Spa, dir: &Path, images: &[PathBuf], files: &[File]) {
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir, "tank");
    images.iter().for_each(|image| check_without(dir, image, files));
}

/// The files that a scan finds.
struct History {
    /// Files that stay.
    files: Vec<File>,
    /// Files that are removed one by one.
    doomed: Vec<File>,
    /// A removed file that only the snapshot `tank/a@s` has.
    kept: File,
}

fn datasets(spa: &Spa) {
    let set = |name: &str, value| vec![Setting { name: name.into(), value: Value::Number(value) }];
    for (name, props) in [("tank/a", set("copies", 2)), ("tank/b", Vec::new()), ("tank/c", set("dedup", 1))] {
        live(spa).run(file_system(name, props)).unwrap();
    }
}

/// Writes blocks with one copy and with two, shared by a clone, by deduplication and by a snapshot.
fn history(spa: &Spa) -> History {
    let kept = put(spa, "tank/a", 1);
    let names = vec!["tank/a@s".to_owned()];
    live(spa).run(Box::new(Snapshot { names, props: Vec::new(), enforce_limits: false })).unwrap();
    let cloned = put(spa, "tank/b", 2);
    let mut files = vec![clone(spa, cloned), put(spa, "tank/c", 3), put(spa, "tank/b", 4)];
    files.push(put(spa, "tank/a", 5));
    let mut doomed = vec![cloned, put(spa, "tank/c", 3), put(spa, "tank/b", 6)];
    doomed.extend([put(spa, "tank/a", 7), put(spa, "tank/a", 8)]);
    History { files, doomed, kept }
}

impl History {
    /// Removes the doomed files. Then writes files until one reuses the space of one copy of a
    /// freed block, while the other copy is still intact.
    fn replace(&mut self, spa: &Spa) {
        let gone: Vec<Vec<_>> =
            self.doomed.iter().skip(2).chain([&self.kept]).flat_map(|f| places(spa, *f)).collect();
        for file in self.doomed.iter().chain([&self.kept]) {
            remove(spa, *file);
        }
        live(spa).sync_all().unwrap();
        let names = vec!["tank/a@s".to_owned()];
        live(spa).run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
        // Freed space can be reused some txgs later.
        for _ in 0..5 {
            live(spa).sync_anew().unwrap();
        }
        let mut taken: Vec<(VdevId, u64, u64)> = Vec::new();
        for seed in 100..140 {
            let file = put(spa, "tank/b", seed);
            taken.extend(places(spa, file).into_iter().flatten());
            self.files.push(file);
            let is_taken = |copy: &&(VdevId, u64, u64)| taken.iter().any(|t| overlap(**copy, *t));
            if gone.iter().any(|block| block.len() == 2 && block.iter().filter(is_taken).count() == 1) {
                return;
            }
        }
        panic!("no place was given to another");
    }
}

/// Goal: blocks that are freed while they are queued are not examined, however they were freed. No
/// repair overwrites the new owner of their space.
///
/// Blocks shared with a file that stays are examined and repaired.
#[test]
fn freed_and_given_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    datasets(&spa);
    let mut history = history(&spa);
    begin_scrub(&spa);
    let met = gather(&spa);
    assert_eq!(met.issued, 0);
    ruin(&images[0]);
    history.replace(&spa);
    let skipped = live(&spa).scans().stat().unwrap().phys.skipped;
    live(&spa).scans().hold_looks(false);
    let stat = finish(&spa);
    assert_eq!((stat.phys.func, stat.phys.state), (ScanFunc::Scrub, ScanState::Finished));
    assert_eq!((stat.phys.errors, stat.issued + stat.phys.skipped), (0, stat.phys.examined), "{stat:?}");
    // At least three files with two copies and one with one copy were skipped, and four files were
    // repaired.
    assert!(stat.phys.skipped.max(skipped) - met.phys.skipped >= 7 * LEN as u64, "{met:?}, {stat:?}");
    assert!(stat.phys.processed >= 4 * LEN as u64, "{stat:?}");
    discharge(spa, dir.path(), &images, &history.files);
}

/// Goal: the same holds for a resilver: the device that was missing gets all that it lacked, and no
/// freed block overwrites new data.
#[test]
fn freed_while_a_resilver_waits() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    datasets(&spa);
    let path = images[1].as_os_str().as_encoded_bytes();
    let config = spa.config();
    let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
    let second = leaves.find(|leaf| leaf.path.as_deref() == Some(path)).unwrap().guid;
    live(&spa).scans().hold(true);
    live(&spa).scans().hold_looks(true);
    live(&spa).vdevs().offline(second, false).unwrap();
    let mut history = history(&spa);
    live(&spa).vdevs().online(second, false).unwrap();
    live(&spa).scans().hold(false);
    let met = gather(&spa);
    assert_eq!((met.phys.func, met.issued), (ScanFunc::Resilver, 0));
    history.replace(&spa);
    live(&spa).scans().hold_looks(false);
    live(&spa).scans().wait().unwrap();
    let stat = live(&spa).scans().stat().unwrap();
    assert_eq!((stat.phys.func, stat.phys.state), (ScanFunc::Resilver, ScanState::Finished));
    assert_eq!(stat.phys.errors, 0, "{stat:?}");
    assert!(spa.tree().behind().is_empty());
    discharge(spa, dir.path(), &images, &history.files);
}

/// Goal: a process that ends, or exports the pool, while blocks are queued has not recorded them as
/// examined. A scan that is interrupted again and again still finishes.
#[test]
fn ended_while_blocks_wait() {
    for export in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
        let mut spa = new_pool(VdevShape::Mirror, &images);
        datasets(&spa);
        let files: Vec<File> = (1..12).map(|seed| put(&spa, "tank/b", seed)).collect();
        // The damage is done now, because the scan does not visit files written after it began.
        ruin(&images[0]);
        begin_scrub(&spa);
        let met = gather(&spa);
        assert!(met.phys.examined > files.len() as u64 * LEN as u64);
        let mut ends = 0;
        let stat = loop {
            if export {
                live(&spa).export().unwrap();
            }
            drop(spa);
            ends += 1;
            assert!(ends < 1000, "no end of it");
            let phys = recorded(dir.path());
            assert!(ends > 1 || phys.state == ScanState::Scanning, "{phys:?}");
            // Blocks that a transaction group freed while they waited are recorded as skipped.
            assert!(ends > 1 || phys.examined == phys.skipped, "nothing had been looked at: {phys:?}");
            // The scan continues at once.
            spa = import(dir.path()).unwrap();
            let stat = live(&spa).scans().stat().unwrap();
            if !stat.is_scanning() {
                break stat;
            }
            live(&spa).scans().set_slices(1, 1);
            live(&spa).scans().limit_bytes(1 << 17);
            live(&spa).sync_all().unwrap();
        };
        assert_eq!((stat.phys.state, stat.phys.errors), (ScanState::Finished, 0), "{stat:?}");
        assert!(stat.phys.processed >= files.len() as u64 * LEN as u64, "{stat:?}");
        assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
        let again = finish(&spa);
        assert_eq!((again.phys.processed, again.phys.errors), (0, 0));
        discharge(spa, dir.path(), &images[1..], &files);
    }
}

/// Goal: a scrub that is paused while blocks are queued examines none, and all of them when it is
/// resumed. A scrub that is stopped drops them.
#[test]
fn paused_and_stopped_while_blocks_wait() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    datasets(&spa);
    let files: Vec<File> = (1..4).map(|seed| put(&spa, "tank/b", seed)).collect();
    begin_scrub(&spa);
    gather(&spa);
    ruin(&images[0]);
    assert_eq!(live(&spa).scan(ScanCommand::Stop).unwrap(), ScanDone::Done);
    live(&spa).scans().hold_looks(false);
    let stopped = finish(&spa);
    assert_eq!((stopped.phys.state, stopped.issued), (ScanState::Canceled, 0));
    begin_scrub(&spa);
    let met = gather(&spa);
    assert_eq!(live(&spa).scan(ScanCommand::Pause).unwrap(), ScanDone::Done);
    live(&spa).scans().hold_looks(false);
    for _ in 0..3 {
        live(&spa).sync_anew().unwrap();
    }
    let paused = live(&spa).scans().stat().unwrap();
    assert_eq!((paused.issued, paused.phys.examined), (0, met.phys.examined));
    assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Resumed);
    let stat = finish(&spa);
    assert_eq!((stat.phys.state, stat.phys.errors), (ScanState::Finished, 0));
    assert_eq!(stat.issued + stat.phys.skipped, stat.phys.examined, "{stat:?}");
    discharge(spa, dir.path(), &images[1..], &files);
}

/// Goal: no block is skipped, whatever is created and destroyed while blocks are queued over many
/// slices, and wherever the process ends meanwhile.
#[test]
fn datasets_come_and_go_while_blocks_wait() {
    for (ends, waiting) in [(0, 4), (7, 4), (0, 1 << 20), (9, 1 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
        let mut spa = new_pool(VdevShape::Mirror, &images);
        datasets(&spa);
        let History { mut files, doomed, .. } = history(&spa);
        let snapshot = |spa: &Spa, name: String| {
            let props = Vec::new();
            live(spa).run(Box::new(Snapshot { names: vec![name], props, enforce_limits: false })).unwrap();
        };
        snapshot(&spa, "tank/b@s".into());
        files.push(put(&spa, "tank/b", 20));
        ruin(&images[0]);
        begin_scrub(&spa);
        let mut steps = 0u64;
        let mut destroyed = vec!["tank/b@s", "tank/a@s"];
        let mut doomed = doomed.into_iter();
        let stat = loop {
            live(&spa).scans().set_slices(1, 1);
            live(&spa).scans().limit_queue(waiting * WAITING);
            // The scan collects blocks for some txgs, and then examines them in every other txg.
            live(&spa).scans().hold_looks(steps < 6 || steps.is_multiple_of(2));
            live(&spa).sync_all().unwrap();
            let stat = live(&spa).scans().stat().unwrap();
            steps += 1;
            assert!(steps < 10_000, "no end: {stat:?}");
            if !stat.is_scanning() {
                break stat;
            }
            match steps % 5 {
                1 => snapshot(&spa, format!("tank/a@{steps}")),
                2 => {
                    if let Some(name) = destroyed.pop() {
                        let names = vec![name.to_owned()];
                        live(&spa).run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
                    }
                }
                3 => {
                    let name = format!("tank/e{steps}");
                    live(&spa).run(file_system(&name, Vec::new())).unwrap();
                    live(&spa).run(Box::new(DestroyHead { name })).unwrap();
                }
                4 => {
                    if let Some(file) = doomed.next() {
                        remove(&spa, file);
                    }
                }
                _ => {}
            }
            if ends != 0 && steps.is_multiple_of(ends) && steps < 5 * ends {
                drop(spa);
                spa = import(dir.path()).unwrap();
            }
        };
        assert_eq!((stat.phys.state, stat.phys.errors), (ScanState::Finished, 0), "{stat:?}");
        live(&spa).scans().limit_queue(0);
        live(&spa).scans().hold_looks(false);
        assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
        let again = finish(&spa);
        assert_eq!((again.phys.processed, again.phys.errors), (0, 0), "{ends}, {waiting}");
        discharge(spa, dir.path(), &images[1..], &files);
    }
}
