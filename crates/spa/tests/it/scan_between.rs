//! Scans with the shortest possible slices: what may happen to the pool between any two of them,
//! and I/O errors during them.

use testpools::ward;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use device::{Fault, Op};
use dsl::ops::clone::Clone as CloneOf;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::{Setting, Value};
use ondisk::ObjNum;
use ondisk::scan::ScanState;
use spa::Spa;
use spa::create::VdevShape;
use spa::engine::{ScanCommand, ScanDone, ScanStat};
use testpools::ward::{live, ward};
use testpools::{file_system, images, import, judge, new_pool, noise, own, read_file, write_file};

const SIZE: u64 = 96 << 20;
const LEN: usize = 300_000;

fn snapshot(spa: &Spa, names: &[&str]) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    live(spa).run(Box::new(Snapshot { names, props: Vec::new(), enforce_limits: false })).unwrap();
}

fn destroy_snapshot(spa: &Spa, name: &str) {
    live(spa).run(Box::new(DestroySnapshots { names: vec![name.to_owned()], defer: false })).unwrap();
}

fn put(spa: &Spa, dataset: &str, seed: u64) -> ObjNum {
    let object = write_file(live(spa), &own(live(spa), dataset), &noise(seed, LEN)).unwrap();
    live(spa).sync_all().unwrap();
    object
}

fn check(spa: &Spa, files: &[(&str, u64, ObjNum)]) {
    for (dataset, seed, object) in files {
        let owned = own(live(spa), dataset);
        assert!(read_file(&owned, *object, LEN) == noise(*seed, LEN), "file {seed} of {dataset}");
    }
}

/// Overwrites all of an image but its labels.
fn ruin(image: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    let rubbish = noise(99, 1 << 20);
    for at in (4 << 20..SIZE - (1 << 20)).step_by(1 << 20) {
        file.write_all_at(&rubbish, at).unwrap();
    }
}

fn reimport(spa: Spa, dir: &Path) -> Spa {
    live(&spa).export().unwrap();
    drop(spa);
    let spa = import(dir).unwrap();
    live(&spa).scans().limit_slices(1);
    spa
}

/// Imports a pool without one of its devices.
fn import_without(dir: &Path, image: &Path, run: impl FnOnce(&Spa)) {
    let away = tempfile::tempdir().unwrap();
    let hidden = away.path().join("hidden");
    std::fs::rename(image, &hidden).unwrap();
    let spa = import(dir).unwrap();
    run(&spa);
    live(&spa).export().unwrap();
    drop(spa);
    std::fs::rename(&hidden, image).unwrap();
}

/// Runs one slice and its txg. Returns the state of the scan.
fn step(spa: &Spa) -> ScanStat {
    live(spa).sync_all().unwrap();
    live(spa).scans().stat().unwrap()
}

/// Creates datasets with a history, some of it shared. Returns the files that stay.
fn history(spa: &Spa) -> Vec<(&'static str, u64, ObjNum)> {
    let run = |task| live(spa).run(task).unwrap();
    for name in ["tank/a", "tank/b", "tank/c"] {
        run(file_system(name, Vec::new()));
    }
    let mut files = vec![("tank/a", 1, put(spa, "tank/a", 1)), ("tank/b", 2, put(spa, "tank/b", 2))];
    snapshot(spa, &["tank/a@1", "tank/b@1"]);
    files.push(("tank/a", 3, put(spa, "tank/a", 3)));
    files.push(("tank/c", 4, put(spa, "tank/c", 4)));
    snapshot(spa, &["tank/a@2", "tank/c@1"]);
    live(spa)
        .run(Box::new(CloneOf {
            origin: "tank/a@2".into(),
            name: "tank/d".into(),
            props: Vec::new(),
            enforce_limits: false,
        }))
        .unwrap();
    files.push(("tank/d", 5, put(spa, "tank/d", 5)));
    files.push(("tank/a", 6, put(spa, "tank/a", 6)));
    snapshot(spa, &["tank/a@3", "tank/d@1", "tank/b@2"]);
    files.push(("tank/a", 7, put(spa, "tank/a", 7)));
    files
}

/// Goal: a scrub skips no block, whatever is created and destroyed between its slices, and wherever
/// the pool is exported and imported. It repairs a completely damaged child of a mirror.
#[test]
fn datasets_come_and_go_between_slices() {
    for (changes, imports) in [(0, 3), (1, 0), (2, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
        let mut spa = new_pool(VdevShape::Mirror, &images);
        let files = history(&spa);
        live(&spa).scans().hold(true);
        live(&spa).scans().limit_slices(1);
        assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
        ruin(&images[0]);
        live(&spa).scans().hold(false);
        let mut slices = 0u64;
        let mut doomed = vec!["tank/b@2", "tank/a@3", "tank/b@1", "tank/c@1", "tank/d@1", "tank/a@1"];
        let stat = loop {
            let stat = step(&spa);
            slices += 1;
            if !stat.is_scanning() {
                break stat;
            }
            if changes != 0 && slices.is_multiple_of(changes * 4) {
                match slices / 4 / changes % 4 {
                    0 => snapshot(&spa, &[&format!("tank/a@s{slices}"), &format!("tank/c@s{slices}")]),
                    1 if !doomed.is_empty() => destroy_snapshot(&spa, doomed.pop().unwrap()),
                    2 => snapshot(&spa, &[&format!("tank/b@s{slices}"), &format!("tank/d@s{slices}")]),
                    3 => {
                        let name = format!("tank/e{slices}");
                        live(&spa).run(file_system(&name, Vec::new())).unwrap();
                        live(&spa).run(Box::new(DestroyHead { name })).unwrap();
                    }
                    _ => {}
                }
            }
            if imports != 0 && slices.is_multiple_of(imports * 5) {
                spa = reimport(spa, dir.path());
            }
        };
        // Some slices run in txgs that the pool opens itself, because a device with so much damage
        // is degraded.
        assert!(slices > 10, "{slices}");
        assert_eq!((stat.phys.state, stat.phys.errors), (ScanState::Finished, 0));
        live(&spa).scans().limit_slices(0);
        assert_eq!(live(&spa).scan(ScanCommand::Scrub).unwrap(), ScanDone::Done);
        let again = loop {
            let stat = step(&spa);
            if !stat.is_scanning() {
                break stat;
            }
        };
        assert_eq!((again.phys.processed, again.phys.errors), (0, 0), "changes {changes}, imports {imports}");
        live(&spa).export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        import_without(dir.path(), &images[1], |spa| check(spa, &files));
    }
}

/// Goal: a dataset that is rolled back while it is visited is visited completely.
#[test]
fn a_rollback_between_slices() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    let files = history(&spa);
    live(&spa).scans().hold(true);
    live(&spa).scans().limit_slices(1);
    live(&spa).scan(ScanCommand::Scrub).unwrap();
    ruin(&images[0]);
    live(&spa).scans().hold(false);
    let mut slices = 0u64;
    while step(&spa).is_scanning() {
        slices += 1;
        if slices.is_multiple_of(10) {
            snapshot(&spa, &[&format!("tank/c@s{slices}")]);
            live(&spa).run(Box::new(Rollback { name: "tank/c".into(), to: None })).unwrap();
        }
    }
    assert_eq!(live(&spa).scans().stat().unwrap().phys.errors, 0);
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    import_without(dir.path(), &images[1], |spa| check(spa, &files));
}

/// Goal: a device that lacks nothing by its DTL can serve the pool alone, however many reads failed
/// during the resilver. A scan that reports no errors has left none.
#[test]
fn a_device_is_whole_when_it_is_said_to_be() {
    let (mut whole, mut behind) = (0, 0);
    for one_in in [2, 9, 40] {
        let ward = ward(VdevShape::Mirror, 2);
        let first = ward.write(1).0;
        live(&ward.spa).scans().hold(true);
        live(&ward.spa).scans().limit_slices(16);
        ward.patients[0].inject(Fault::Gone);
        let second = ward.write(2).0;
        let third = ward.write(3).0;
        ward.rescue();
        assert!(!ward.spa.tree().behind().is_empty());
        live(&ward.spa).scans().request_resilver();
        ward.sync(|| ward.rescue());
        ward.patients[1].inject(Fault::Rate { op: Op::Read, one_in });
        live(&ward.spa).scans().hold(false);
        for n in 0.. {
            assert!(n < 1000, "no end of the resilver");
            ward.sync(|| ward.rescue());
            if live(&ward.spa).scans().stat().is_some_and(|s| !s.is_scanning()) {
                break;
            }
        }
        live(&ward.spa).scans().hold(true);
        ward.patients.iter().for_each(|p| p.heal());
        let stat = live(&ward.spa).scans().stat().unwrap();
        let lacks = !ward.spa.tree().behind().is_empty();
        assert!(stat.phys.errors > 0 || !lacks, "{stat:?}");
        live(&ward.spa).export().unwrap();
        let dir = ward.dir;
        drop((ward.spa, ward.patients));
        if lacks {
            behind += 1;
            continue;
        }
        whole += 1;
        import_without(dir.path(), &dir.path().join("d1.img"), |spa| {
            let owned = own(live(spa), "tank");
            for (seed, object) in [(1, first), (2, second), (3, third)] {
                assert!(
                    read_file(&owned, object, ward::LEN) == noise(seed, ward::LEN),
                    "1 in {one_in}: file {seed}"
                );
            }
        });
    }
    assert!(whole > 0 && behind > 0, "{whole} {behind}");
}

/// Goal: a device is not marked complete while it lacks a block. Here deduplication added the
/// block's only reference at a place that the resilver had passed.
#[test]
fn deduplicated_behind_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    // `dedup=on`.
    let dedup = || vec![Setting { name: "dedup".into(), value: Value::Number(1) }];
    for name in ["tank/a", "tank/b"] {
        live(&spa).run(file_system(name, dedup())).unwrap();
    }
    let number = |name: &str| own(live(&spa), name).object();
    let (a, b) = (number("tank/a"), number("tank/b"));
    let config = spa.config();
    let path = images[1].as_os_str().as_encoded_bytes();
    let mut leaves = config.vdev_tree.as_ref().unwrap().leaves();
    let second = leaves.find(|leaf| leaf.path.as_deref() == Some(path)).unwrap().guid;
    live(&spa).scans().hold(true);
    live(&spa).vdevs().offline(second, false).unwrap();
    // So long that no slice visits a whole file.
    let long = |seed| noise(seed, 40 << 17);
    let put = |name: &str, seed| {
        let object = write_file(live(&spa), &own(live(&spa), name), &long(seed)).unwrap();
        live(&spa).sync_all().unwrap();
        object
    };
    let files = [("tank/a", 1, put("tank/a", 1)), ("tank/b", 2, put("tank/b", 2))];
    live(&spa).vdevs().online(second, false).unwrap();
    live(&spa).scans().limit_slices(1);
    live(&spa).scans().hold(false);
    let at = |stat: ScanStat| stat.phys.bookmark[0];
    let first = loop {
        let stat = step(&spa);
        assert!(stat.is_scanning());
        if at(stat) == a || at(stat) == b {
            break at(stat);
        }
    };
    while at(step(&spa)) == first {}
    // The visited dataset gets data that only the other one has, and then its reference is the only
    // one left.
    let (behind, ahead) = if first == a { ("tank/a", files[1]) } else { ("tank/b", files[0]) };
    let shared = put(behind, ahead.1);
    testpools::remove_file(live(&spa), &own(live(&spa), ahead.0), ahead.2).unwrap();
    live(&spa).sync_all().unwrap();
    let [objset, _, _, block] = live(&spa).scans().stat().unwrap().phys.bookmark;
    assert!(objset == a + b - first && block < 30, "the scan has been there: {block}");
    live(&spa).scans().limit_slices(0);
    while live(&spa).scans().stat().unwrap().is_scanning() || !spa.tree().behind().is_empty() {
        live(&spa).sync_all().unwrap();
    }
    live(&spa).export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    import_without(dir.path(), &images[0], |spa| {
        assert!(read_file(&own(live(spa), behind), shared, 40 << 17) == long(ahead.1));
    });
}

/// Goal: if no checksum tells which child of a mirror is right, a scrub leaves each as it is.
#[test]
fn without_checksums_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let images: Vec<PathBuf> = images(dir.path(), 2, SIZE);
    let spa = new_pool(VdevShape::Mirror, &images);
    let off = Setting { name: "checksum".into(), value: Value::Number(2) };
    live(&spa).run(file_system("tank/a", vec![off])).unwrap();
    let file = put(&spa, "tank/a", 1);
    ruin(&images[0]);
    live(&spa).scan(ScanCommand::Scrub).unwrap();
    while step(&spa).is_scanning() {}
    live(&spa).export().unwrap();
    drop(spa);
    import_without(dir.path(), &images[0], |spa| check(spa, &[("tank/a", 1, file)]));
}
