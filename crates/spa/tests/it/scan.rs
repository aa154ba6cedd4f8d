//! Scrub and resilver.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ondisk::ObjNum;
use ondisk::scan::{ScanFunc, ScanState};
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{PoolWriter, ScanCommand, ScanDone, ScanStat};
use testpools::{images, import, judge, new_pool, noise, own, read_file, write_file};

const LEN: usize = 1 << 20;
const SIZE: u64 = 96 << 20;

fn live(spa: &Spa) -> &PoolWriter {
    spa.writer().unwrap()
}

fn write(spa: &Spa, seed: u64) -> ObjNum {
    let object = write_file(live(spa), &own(live(spa), "tank"), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    object
}

fn check(spa: &Spa, files: &[(u64, ObjNum)]) {
    let owned = own(live(spa), "tank");
    for (seed, object) in files {
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed}");
    }
}

/// Lets txgs pass until no scan is active.
fn finish(spa: &Spa) -> ScanStat {
    loop {
        live(spa).sync_all().unwrap();
        let stat = live(spa).scans().stat().unwrap();
        if !stat.is_scanning() {
            return stat;
        }
    }
}

fn scrub(spa: &Spa) -> ScanStat {
    assert_eq!(live(spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
    finish(spa)
}

/// Overwrites the given range of an image, every block of it.
fn ruin(image: &Path, from: u64, to: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    let rubbish = noise(99, 1 << 16);
    let mut at = from;
    while at < to {
        file.write_all_at(&rubbish, at).unwrap();
        at += 1 << 16;
    }
}

fn checksum_errors(spa: &Spa) -> Vec<u64> {
    let top = &spa.tree().describe().children[0];
    top.children.iter().map(|leaf| leaf.stats.checksum_errors).collect()
}

/// The space of an image: all but its labels.
const SPACE: (u64, u64) = (4 << 20, SIZE - (512 << 10));

fn ruined(shape: VdevShape, count: usize, bad: &[usize]) {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), count, SIZE);
    let spa = new_pool(shape, &images);
    let files: Vec<(u64, ObjNum)> = (1..4).map(|seed| (seed, write(&spa, seed))).collect();
    bad.iter().for_each(|n| ruin(&images[*n], SPACE.0, SPACE.1));
    let stat = scrub(&spa);
    assert_eq!(
        (stat.phys.func, stat.phys.state, stat.phys.errors),
        (ScanFunc::Scrub, ScanState::Finished, 0)
    );
    assert!(stat.phys.processed >= 3 * LEN as u64 / count as u64, "{stat:?}");
    let errors = checksum_errors(&spa);
    for (n, errors) in errors.iter().enumerate() {
        assert_eq!(*errors > 0, bad.contains(&n), "device {n} of {shape:?} with {bad:?} bad");
    }
    let again = scrub(&spa);
    assert_eq!((again.phys.processed, again.phys.errors), (0, 0));
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    // The damaged device is complete again: the pool works without the devices that were good.
    let spa = import(dir.path()).unwrap();
    check(&spa, &files);
}

/// Goal: a scrub finds all damage on any device of a mirror and repairs it, and a second one finds
/// nothing.
#[test]
fn a_scrub_repairs_a_mirror() {
    ruined(VdevShape::Mirror, 2, &[0]);
    ruined(VdevShape::Mirror, 2, &[1]);
    ruined(VdevShape::Mirror, 3, &[0, 2]);
}

/// Goal: the same for raidz, with as many bad devices as there is parity.
#[test]
fn a_scrub_repairs_raidz() {
    ruined(VdevShape::Raidz(1), 3, &[1]);
    ruined(VdevShape::Raidz(2), 4, &[0, 3]);
    ruined(VdevShape::Raidz(3), 5, &[0, 2, 4]);
}

/// Goal: a device that was missing for some txgs is resilvered without a command when it is
/// available again. Only what it missed is read.
#[test]
fn a_resilver_brings_a_device_up_to_date() {
    for (shape, count) in [(VdevShape::Mirror, 2), (VdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, SIZE);
        let spa = new_pool(shape, &images);
        let first = write(&spa, 1);
        live(&spa).export().unwrap();
        drop(spa);

        let away = tempfile::tempdir().unwrap();
        let hidden = away.path().join("d0.img");
        std::fs::rename(&images[0], &hidden).unwrap();
        let spa = import(dir.path()).unwrap();
        let second = write(&spa, 2);
        live(&spa).export().unwrap();
        drop(spa);

        std::fs::rename(&hidden, &images[0]).unwrap();
        let spa = import(dir.path()).unwrap();
        let stat = finish(&spa);
        assert_eq!(
            (stat.phys.func, stat.phys.state, stat.phys.errors),
            (ScanFunc::Resilver, ScanState::Finished, 0)
        );
        assert!(stat.phys.processed >= LEN as u64 / count as u64, "{stat:?}");
        let tree = spa.tree();
        assert!(tree.behind().is_empty());
        // The pool uses the device as an up-to-date one until its DTLs are loaded.
        let before = checksum_errors(&spa);
        let clean = scrub(&spa);
        assert_eq!(checksum_errors(&spa), before);
        assert_eq!((clean.phys.processed, clean.phys.errors), (0, 0));
        check(&spa, &[(1, first), (2, second)]);
        live(&spa).export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: an active or paused scrub continues after an export and import where it was, and finds all
/// damage.
#[test]
fn a_scrub_goes_on_after_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let mut spa = new_pool(VdevShape::Mirror, &images);
    let files: Vec<(u64, ObjNum)> = (1..6).map(|seed| (seed, write(&spa, seed))).collect();
    live(&spa).scans().set_slices(1, 1);
    ruin(&images[0], SPACE.0, SPACE.1);
    live(&spa).scans().hold(true);
    live(&spa).scan(ScanCommand::Scrub).unwrap();
    live(&spa).scan(ScanCommand::Pause).unwrap();
    live(&spa).scans().hold(false);
    let mut imports = 0;
    let stat = loop {
        live(&spa).export().unwrap();
        drop(spa);
        spa = import(dir.path()).unwrap();
        imports += 1;
        let stat = live(&spa).scans().stat().unwrap();
        if !stat.is_scanning() {
            break stat;
        }
        live(&spa).scans().set_slices(1, 1);
        if stat.phys.flags != 0 {
            assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Resumed);
        }
        live(&spa).sync_all().unwrap();
    };
    assert!(imports > 1);
    assert_eq!((stat.phys.state, stat.phys.errors), (ScanState::Finished, 0));
    assert!(stat.phys.processed >= (files.len() * LEN) as u64, "{stat:?}");
    let again = scrub(&spa);
    assert_eq!((again.phys.processed, again.phys.errors), (0, 0));
    check(&spa, &files);
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
