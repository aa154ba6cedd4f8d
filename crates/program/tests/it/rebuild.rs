//! `zpool attach -s` and `zpool replace -s`: messages, `zpool status`, events and `zpool wait`, as
//! in libzfs.

use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{good, run, same};
use api::*;
use server::service::LocalService;

const SIZE: u64 = 96 << 20;

fn image(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    std::fs::File::create(&path).expect("an image").set_len(SIZE).expect("room");
    path.display().to_string()
}

fn pool(dir: &Path, shape: &str, count: usize) -> (Rc<dyn Requests>, Vec<String>) {
    let paths: Vec<String> = (0..count).map(|n| image(dir, &format!("d{n}"))).collect();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool create -m none t {shape} {}", paths.join(" ")), &house);
    (house, paths)
}

fn said(house: &Rc<dyn Requests>, line: &str) -> String {
    let ran = run(line, Rc::clone(house));
    format!("{}{}rc {}\n", ran.out, ran.err, ran.code)
}

/// Goal: `zpool wait` waits for a resilver that a command requested, although it begins in a later
/// txg.
#[test]
fn what_is_wanted_is_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let (house, paths) = pool(dir.path(), "mirror", 2);
    for (n, name) in ["x", "y", "z"].into_iter().enumerate() {
        let new = image(dir.path(), name);
        if n == 0 {
            good(&format!("zpool attach -w t {} {new}", paths[0]), &house);
        } else {
            good(&format!("zpool attach t {} {new}", paths[0]), &house);
            good("zpool wait -t resilver t", &house);
        }
        let text = good("zpool status t", &house);
        assert!(text.contains("scan: resilvered ") && text.contains(" with 0 errors"), "{n}: {text}");
    }
    good(&format!("zpool replace -w t {} {}", paths[1], image(dir.path(), "r")), &house);
    let text = good("zpool status t", &house);
    assert!(!text.contains("replacing") && !text.contains(&paths[1]), "{text}");
}

/// Goal: a sequential resilver is reported as by OpenZFS, while active, afterwards and as JSON.
///
/// No other one starts beside it, `zpool wait` waits for it, and a scrub follows.
#[test]
fn a_sequential_resilver_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let (house, paths) = pool(dir.path(), "mirror", 2);
    let (new, other) = (image(dir.path(), "x"), image(dir.path(), "y"));
    house.set_tunable("zfs_scan_suspend_progress", &1).expect("it is there");
    good(&format!("zpool attach -s t {} {new}", paths[0]), &house);
    let text = good("zpool status t", &house);
    assert!(text.contains("scan: resilver (mirror-0) in progress since "), "{text}");
    assert!(text.contains("One or more devices is currently being resilvered."), "{text}");
    let json = good("zpool status -j t", &house);
    assert!(json.contains("\"rebuild_stats\"") && json.contains("\"state\":\"ACTIVE\""), "{json}");
    let refused = said(&house, &format!("zpool attach t {} {other}", paths[0]));
    let why = "currently sequentially resilvering";
    same("beside", &refused, &format!("cannot attach {other} to {}: {why}\nrc 255\n", paths[0]));
    same("scrub", &said(&house, "zpool scrub t"), "cannot scrub t: currently resilvering\nrc 1\n");
    same(
        "stop",
        &said(&house, "zpool scrub -s t"),
        "cannot cancel scrubbing t: there is no active scrub\nrc 1\n",
    );
    house.set_tunable("zfs_scan_suspend_progress", &0).expect("it is there");
    good("zpool wait -t resilver t", &house);
    let text = good("zpool status t", &house);
    assert!(text.contains("resilvered (mirror-0) ") && text.contains(" with 0 errors on "), "{text}");
    good("zpool wait -t scrub t", &house);
    let text = good("zpool status t", &house);
    assert!(
        text.contains("scan: scrub repaired 0B ") && text.contains("  scan: resilvered (mirror-0) "),
        "{text}"
    );
    let events = good("zpool events -v", &house);
    for class in ["resilver_start", "resilver_finish", "scrub_start"] {
        assert!(events.contains(&format!("\"sysevent.fs.zfs.{class}\"")), "{events}");
    }
    assert!(events.contains("resilver_type = \"sequential\""), "{events}");
    let history = good("zpool history -i t", &house);
    assert!(history.contains(" started") && history.contains("rebuild vdev_id=0 vdev_guid="), "{history}");
    good(&format!("zpool replace -s -w t {} {other}", paths[1]), &house);
    good("zpool wait t", &house);
    let text = good("zpool status t", &house);
    assert!(!text.contains("replacing") && !text.contains(&paths[1]), "{text}");
    same("features", &good("zpool get -H -o value feature@device_rebuild t", &house), "enabled\n");
}

/// Goal: a sequential resilver that is not possible is refused with libzfs's message.
#[test]
fn what_cannot_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let (house, paths) = pool(dir.path(), "raidz", 3);
    let new = image(dir.path(), "x");
    let refused = said(&house, &format!("zpool replace -s t {} {new}", paths[0]));
    let why = "only mirror and dRAID vdevs support sequential reconstruction";
    same("raidz", &refused, &format!("cannot replace {} with {new}: {why}\nrc 255\n", paths[0]));
    good("zpool destroy t", &house);
    good(&format!("zpool create -f -m none -o feature@device_rebuild=disabled t {} ", paths[0]), &house);
    let refused = said(&house, &format!("zpool attach -s t {} {new}", paths[0]));
    let why = "device_rebuild feature must be enabled in order to use sequential reconstruction";
    same("feature", &refused, &format!("cannot attach {new} to {}: {why}\nrc 255\n", paths[0]));
}

/// Goal: resilvers and sequential resilvers continue after an export and an import, also while
/// scans are suspended from before the resilver on.
///
/// So do those that need a device which is missing for a while.
#[test]
fn resilvers_go_on_after_an_import() {
    for how in ["", "-s "] {
        let dir = tempfile::tempdir().expect("a folder");
        let (house, paths) = pool(dir.path(), "", 1);
        let new = image(dir.path(), "x");
        house.set_tunable("zfs_scan_suspend_progress", &1).expect("it is there");
        good(&format!("zpool attach {how}t {} {new}", paths[0]), &house);
        let goes_on = |when: &str| {
            let text = good("zpool status t", &house);
            let going = text.contains("in progress since") && !text.contains("scan: resilvered");
            // A resilver that is suspended before it began reports nothing yet.
            assert!(going || how.is_empty() && when == "before", "{how}{when}: {text}");
        };
        goes_on("before");
        let import = format!("zpool import -N -d {} t", dir.path().display());
        for _ in 0..2 {
            good("zpool export t", &house);
            good(&import, &house);
            goes_on("after");
        }
        good("zpool export t", &house);
        let away = tempfile::tempdir().expect("a folder");
        std::fs::rename(&new, away.path().join("x")).expect("it is ours");
        good(&import, &house);
        house.set_tunable("zfs_scan_suspend_progress", &0).expect("it is there");
        good("zpool wait t", &house);
        let text = good("zpool status t", &house);
        assert!(text.contains("UNAVAIL") && text.contains("state: DEGRADED"), "{how}: {text}");
        good("zpool export t", &house);
        std::fs::rename(away.path().join("x"), &new).expect("it is ours");
        good(&import, &house);
        good("zpool wait t", &house);
        let text = good("zpool status t", &house);
        assert!(text.contains("scan: resilvered ") && text.contains("with 0 errors"), "{how}: {text}");
        assert!(text.contains("state: ONLINE"), "{how}: {text}");
        // The new device has all data.
        good(&format!("zpool detach t {}", paths[0]), &house);
        good("zpool scrub -w t", &house);
        let text = good("zpool status t", &house);
        assert!(text.contains("scrub repaired 0B") && text.contains("with 0 errors"), "{how}: {text}");
    }
}

/// Goal: rebuilds of several top-level vdevs are independent. A detached device ends its own
/// rebuild at once, and the others finish, which is on disk after `zpool wait`.
#[test]
fn a_detach_ends_its_own_rebuild() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths: Vec<String> = (0..4).map(|n| image(dir.path(), &format!("d{n}"))).collect();
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| paths[n].as_str());
    good(&format!("zpool create -m none t mirror {a} {b} mirror {c} {d}"), &house);
    let (x, y) = (image(dir.path(), "x"), image(dir.path(), "y"));
    let feature = |want: &str| {
        same(want, &good("zpool get -H -o value feature@device_rebuild t", &house), &format!("{want}\n"));
    };
    let told = |want: [usize; 4]| {
        let history = good("zpool history -i t", &house);
        let count = |word: &str| {
            history.lines().filter(|line| line.contains("rebuild") && line.contains(word)).count()
        };
        assert_eq!(["started", "reset", "complete", "canceled"].map(count), want, "{history}");
    };
    house.set_tunable("zfs_scan_suspend_progress", &1).expect("it is there");
    good(&format!("zpool replace -s t {b} {x}"), &house);
    good(&format!("zpool replace -s t {d} {y}"), &house);
    told([2, 0, 0, 0]);
    feature("active");
    good(&format!("zpool detach t {y}"), &house);
    told([2, 0, 0, 1]);
    feature("active");
    house.set_tunable("zfs_scan_suspend_progress", &0).expect("it is there");
    good("zpool wait -t resilver t", &house);
    told([2, 0, 1, 1]);
    feature("enabled");
    good("zpool wait t", &house);
    let text = good("zpool status t", &house);
    assert!(text.contains(&x) && !text.contains(&y) && !text.contains(b) && text.contains(d), "{text}");
}

/// Goal: a distributed spare replaces a device by command, by either kind of resilver, and is free
/// again when another device has replaced it.
///
/// Everything else is refused with a message.
#[test]
fn a_distributed_spare_by_its_name() {
    for how in ["", "-s "] {
        let dir = tempfile::tempdir().expect("a folder");
        let (house, paths) = pool(dir.path(), "draid1:2d:5c:1s", 5);
        let (d1, new) = (&paths[1], image(dir.path(), "x"));
        good(&format!("zpool offline t {d1}"), &house);
        good(&format!("zpool replace {how}-w t {d1} draid1-0-0"), &house);
        let text = good("zpool status t", &house);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |words: &[&str]| lines.iter().any(|line| line.starts_with(words));
        assert!(has(&["draid1-0-0", "ONLINE"]) && has(&["draid1-0-0", "INUSE"]), "{text}");
        let other = said(&house, &format!("zpool replace t {} draid1-0-0", paths[2]));
        let refused = format!("cannot replace {} with draid1-0-0: draid1-0-0 is busy\nrc 255\n", paths[2]);
        same("in use", &other, &refused);
        good(&format!("zpool replace {how}-w t {d1} {new}"), &house);
        // The spare is detached as soon as the device is resilvered. The tree shows that before it
        // is on disk.
        let until = Instant::now() + Duration::from_secs(60);
        let text = loop {
            let text = good("zpool status t", &house);
            assert!(!text.contains("UNKNOWN") && Instant::now() < until, "{text}");
            if !text.contains("spare-1") && text.contains("AVAIL") {
                break text;
            }
            thread::yield_now();
        };
        assert!(text.contains(&new) && !text.contains(d1), "{text}");
        assert!(text.contains("with 0 errors"), "{text}");
        let missing = said(&house, &format!("zpool replace t {} draid1-0-7", paths[2]));
        assert!(missing.starts_with(&format!("cannot replace {} with draid1-0-7: ", paths[2])), "{missing}");
        let attached = said(&house, &format!("zpool attach t {} draid1-0-0", paths[2]));
        assert!(attached.starts_with(&format!("cannot attach draid1-0-0 to {}: ", paths[2])), "{attached}");
        for (line, why) in [
            ("zpool add t spare draid1-0-0", "dRAID spares can only be used to replace primary vdevs"),
            ("zpool add -f t draid1-0-0", "invalid vdev configuration"),
            ("zpool create -f u draid1-0-0", "invalid vdev configuration"),
        ] {
            let refused = said(&house, line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}

/// Goal: a distributed spare whose device was detached is shown at its place and as in use. It is
/// free when a device has replaced it.
#[test]
fn a_distributed_spare_for_good() {
    let dir = tempfile::tempdir().expect("a folder");
    let (house, paths) = pool(dir.path(), "draid1:2d:5c:1s", 5);
    good(&format!("zpool replace -w t {} draid1-0-0", paths[1]), &house);
    good(&format!("zpool detach t {}", paths[1]), &house);
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.filter(|row| row.starts_with("draid1-0-0") || row.starts_with("spare-")).collect()
    };
    let text = good("zpool status t", &house);
    assert_eq!(rows(&text), ["draid1-0-0 ONLINE 0 0 0", "draid1-0-0 INUSE currently in use"], "{text}");
    good("zpool export t", &house);
    good(&format!("zpool import -d {} t", dir.path().display()), &house);
    let text = good("zpool status t", &house);
    assert_eq!(rows(&text), ["draid1-0-0 ONLINE 0 0 0", "draid1-0-0 INUSE currently in use"], "{text}");
    good(&format!("zpool replace -w t draid1-0-0 {}", image(dir.path(), "x")), &house);
    let until = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = good("zpool status t", &house);
        if rows(&text) == ["draid1-0-0 AVAIL"] {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        thread::yield_now();
    };
    assert!(
        text.contains(&dir.path().join("x").display().to_string()) && !text.contains("DEGRADED"),
        "{text}"
    );
}
