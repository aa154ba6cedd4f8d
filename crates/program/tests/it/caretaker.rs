//! What a daemon does about devices without a command, and what commands report about it.

use crate::daemon;

use crate::daemon::{Daemon, image};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon in a directory with images of these names.
fn stand(names: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = tempfile::tempdir().expect("a folder");
    names.iter().for_each(|name| image(&dir.path().join(name)));
    let daemon = Daemon::start(dir.path());
    (dir, daemon)
}

fn at(dir: &Path, names: &[&str]) -> String {
    names.iter().map(|name| format!(" {}", dir.join(name).display())).collect()
}

/// Repeats a command until its output satisfies `so`, and returns that output.
fn until(daemon: &Daemon, line: &str, so: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let said = daemon.good(line);
        if so(&said) {
            return said;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{line}: {said}");
        std::thread::yield_now();
    }
}

/// Goal: two pools share a spare, and the pool whose device fails gets it without a command. Both
/// show which pool uses it, and after a clear of the device it is free.
#[test]
fn a_shared_spare() {
    let (dir, daemon) = stand(&["a", "b", "c", "d", "s"]);
    let at = |names: &[&str]| at(dir.path(), names);
    for (pool, sides) in [("one", ["a", "b"]), ("two", ["c", "d"])] {
        daemon.good(&format!("zpool create -m none {pool} mirror{}", at(&sides)));
        daemon.good(&format!("zpool add -f {pool} spare{}", at(&["s"])));
    }
    let a = dir.path().join("a").display().to_string();
    let s = dir.path().join("s").display().to_string();
    daemon.good(&format!("zinject -d {a} -e io one"));
    daemon.good(&format!("zinject -d {a} -e io -T probe one"));
    daemon.good("zfs create one/fs");
    let said =
        until(&daemon, "zpool status one", |said| said.contains("INUSE") && said.contains("resilvered"));
    let line = |said: &str, name: &str| {
        let found =
            said.lines().rfind(|line| line.trim_start().starts_with(&format!("{name} "))).map(str::to_owned);
        found
            .unwrap_or_else(|| panic!("no {name}: {said}"))
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line(&said, &s), "INUSE currently in use");
    assert!(said.contains("spare-0") && line(&said, &a).starts_with("FAULTED"), "{said}");
    assert_eq!(line(&daemon.good("zpool status two"), &s), "INUSE in use by pool 'one'");
    let events = daemon.good("zpool events -H");
    assert!(events.contains("sysevent.fs.zfs.vdev_spare") && events.contains("statechange"), "{events}");
    daemon.good("zinject -c all");
    daemon.good(&format!("zpool clear one {a}"));
    let said = until(&daemon, "zpool status one", |said| said.contains("AVAIL") && !said.contains("spare-0"));
    assert!(line(&said, &a).starts_with("ONLINE"), "{said}");
    assert_eq!(line(&daemon.good("zpool status two"), &s), "AVAIL");
}

/// Goal: as with OpenZFS, a pool's own hot spares come before distributed spares created with them,
/// and so are used first. Spares added later come last.
#[test]
fn spares_in_their_order() {
    let names = ["a", "b", "c", "s", "t"];
    let (dir, daemon) = stand(&names);
    let paths = names.map(|name| dir.path().join(name).display().to_string());
    daemon.good(&format!(
        "zpool create -m none one draid1:1s{} spare {}",
        at(dir.path(), &names[..3]),
        paths[3]
    ));
    daemon.good(&format!("zpool add one spare {}", paths[4]));
    let status = daemon.good("zpool status -P one");
    let listed = status.split_once("spares\n").expect("spares").1.lines().take(3);
    let listed: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed, [paths[3].as_str(), "draid1-0-0", paths[4].as_str()], "{status}");
    daemon.good(&format!("zpool offline -f one {}", paths[0]));
    until(&daemon, "zpool status -P one", |status| {
        status.lines().any(|line| line.contains(&paths[3]) && line.contains("INUSE"))
    });
}

/// Goal: a distributed spare that replaced a healthy device by command can be detached again.
#[test]
fn a_distributed_spare_by_hand() {
    let names = ["a", "b", "c"];
    let (dir, daemon) = stand(&names);
    let paths = names.map(|name| dir.path().join(name).display().to_string());
    daemon.good(&format!("zpool create -m none one draid1:1s{}", at(dir.path(), &names)));
    let spare = |state: &str| {
        let status = daemon.good("zpool status one");
        let row = status.lines().rfind(|line| line.contains("draid1-0-0")).expect("a spare").to_owned();
        assert!(row.contains(state), "{status}");
        status
    };
    daemon.good(&format!("zpool replace -w one {} draid1-0-0", paths[0]));
    assert!(spare("INUSE").contains("spare-0"));
    daemon.good("zpool detach one draid1-0-0");
    assert!(!spare("AVAIL").contains("spare-0"));
}

/// Goal: `zpool status -s` counts operations slower than `zio_slow_io_ms`, and events report them,
/// no more each second than the limit.
#[test]
fn slow_operations() {
    let (dir, daemon) = stand(&["a"]);
    daemon.good(&format!("zpool create -m none one{}", at(dir.path(), &["a"])));
    daemon.good("set tunable zio_slow_io_ms=20");
    daemon.good("set tunable zfs_slow_io_events_per_second=1");
    daemon.good(&format!("zinject -d {} -D 50:4 one", dir.path().join("a").display()));
    daemon.good("zfs create one/fs");
    daemon.good("zinject -c all");
    let status = daemon.good("zpool status -s one");
    let leaf = status.lines().find(|line| line.contains("/a ")).expect("the device");
    let slow: u64 = leaf.split_whitespace().nth(5).and_then(|n| n.parse().ok()).expect("a number");
    assert!(slow >= 2, "{status}");
    let events = daemon.good("zpool events -v");
    let told = events.matches("class = \"ereport.fs.zfs.delay\"").count() as u64;
    assert!(told >= 1 && told < slow, "{told} of {slow}");
    assert!(events.contains("zio_delay = 0x"), "{events}");
}

/// Goal: executables in a directory run at the events that their names select, with the event in
/// their environment and this daemon for their commands.
///
/// One that hangs blocks nothing, and ends with the daemon.
#[test]
fn executables_at_events() {
    let dir = tempfile::tempdir().expect("a folder");
    let (at, folder) = (dir.path(), dir.path().join("events"));
    ["a", "b"].iter().for_each(|name| image(&at.join(name)));
    std::fs::create_dir(&folder).expect("a folder");
    let executable = |name: &str, text: &str| {
        std::fs::write(at.join("text"), format!("#!/bin/sh\n{text}\n")).expect("room");
        testkit::copy_program(at.join("text"), folder.join(name));
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o755))
            .expect("it is ours");
    };
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (led, made) = (at.join("led"), at.join("made"));
    let poolhouse = env!("CARGO_BIN_EXE_poolhouse");
    executable(
        "statechange-led.sh",
        &format!("echo $ZEVENT_VDEV_PATH $ZEVENT_VDEV_STATE_STR >> {}", led.display()),
    );
    executable(
        "pool_create-mail",
        &format!("{poolhouse} zpool list -H -o name,health > {0}.new; mv {0}.new {0}", made.display()),
    );
    executable("all-hangs", "exec sleep 1000");
    let mut daemon =
        Daemon::start_with(at, &["--event-dir", &folder.display().to_string()]).expect("a daemon");
    daemon.good(&format!("zpool create -m none one mirror {0}/a {0}/b", at.display()));
    let says = |file: &Path, words: &str| {
        let began = Instant::now();
        while !std::fs::read_to_string(file).is_ok_and(|text| text.contains(words)) {
            assert!(began.elapsed() < Duration::from_secs(120), "{} lacks {words}", file.display());
            std::thread::yield_now();
        }
    };
    says(&made, "one\tONLINE\n");
    daemon.good(&format!("zpool offline one {}/b", at.display()));
    says(&led, &format!("{}/b OFFLINE\n", at.display()));
    // The daemon learns of device failures only by probing the devices.
    daemon.good(&format!("zpool online one {}/b", at.display()));
    daemon.good("zpool wait -t resilver one");
    daemon.good(&format!("zinject -d {0}/b -e io one", at.display()));
    daemon.good(&format!("zinject -d {0}/b -e io -T probe one", at.display()));
    daemon.good("zfs create one/fs");
    says(&led, &format!("{}/b FAULTED\n", at.display()));
    daemon.signal("TERM");
    assert!(daemon.ended().success());
}

/// Goal: operations that do not complete, and those that a hanging txg waits for, are reported
/// again and again, as OpenZFS's deadman parameters say.
///
/// The parameters take OpenZFS's values, and with `panic` the daemon aborts.
#[test]
fn operations_that_hang() {
    let (dir, mut daemon) = stand(&["a"]);
    daemon.good(&format!("zpool create -m none one{}", at(dir.path(), &["a"])));
    assert_eq!(daemon.good("get tunable zfs_deadman_failmode"), "wait\n");
    for bad in ["set tunable zfs_deadman_failmode=1", "set tunable zfs_deadman_failmode=stop"] {
        let ran = daemon.ran(bad);
        assert_eq!(ran.status.code(), Some(1));
        assert!(daemon::said(&ran).contains("is not one of 'wait | continue | panic'"), "{bad}");
    }
    let delayed = format!("zinject -d {} -D 3000:64 one", dir.path().join("a").display());
    let told = |events: &str| events.contains("class = \"ereport.fs.zfs.deadman\"");
    let device = |events: &str| told(events) && events.contains("vdev_path =");
    // One after the other: single operations, then those that a txg waits for.
    for limit in ["zfs_deadman_ziotime_ms", "zfs_deadman_synctime_ms"] {
        daemon.good("zpool events -c");
        let before = daemon.good(&format!("get tunable {limit}"));
        daemon.good(&format!("set tunable {limit}=10 zfs_deadman_checktime_ms=10"));
        daemon.good(&delayed);
        let mut change =
            daemon::command(dir.path(), &format!("zfs create one/{limit}")).spawn().expect("it runs");
        let events = until(&daemon, "zpool events -v one", device);
        assert!(events.contains("zio_delta = 0x"), "{events}");
        daemon.good("zinject -c all");
        assert!(change.wait().expect("it ends").success());
        daemon.good(&format!("set tunable {limit}={}", before.trim()));
    }
    daemon.good("zpool events -c");
    daemon.good("zfs create one/soon");
    assert!(!told(&daemon.good("zpool events -v one")), "nothing took long");
    daemon.good("set tunable zfs_deadman_failmode=panic zfs_deadman_ziotime_ms=10");
    daemon.good(&delayed);
    let mut change = daemon::command(dir.path(), "zfs create one/never").spawn().expect("it runs");
    assert!(!daemon.ended().success());
    let _ = change.wait().expect("it ends");
    let log = std::fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(log.contains("I/O to pool 'one' appears to be hung"), "{log}");
}

/// Goal: a device that reports that it is gone is UNAVAIL after `zpool reopen`, and a spare
/// replaces it. It can be replaced below the spare.
///
/// The replacing and spare vdevs are then nested, and the pool still grows.
#[test]
fn one_that_is_gone_is_replaced_below_its_spare() {
    let names = ["a", "b", "c", "s", "t", "r", "n"];
    let (dir, daemon) = stand(&names);
    let [a, b, c, s, t, r, n] = names.map(|name| dir.path().join(name).display().to_string());
    daemon.good(&format!("zpool create -m none one raidz1 {a} {b} {c} spare {s}"));
    daemon.good(&format!("zinject -d {a} -e nxio -T all -f 100 one"));
    daemon.good("zpool reopen one");
    let row = |said: &str, name: &str| {
        let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.filter(|row| row.starts_with(&format!("{name} "))).collect::<Vec<_>>()
    };
    let said =
        until(&daemon, "zpool status one", |said| row(said, &s).len() == 2 && said.contains("resilvered"));
    assert_eq!(row(&said, &a), [format!("{a} UNAVAIL 0 0 0 cannot open")], "{said}");
    assert_eq!(row(&said, &s)[1], format!("{s} INUSE currently in use"), "{said}");
    assert_eq!(row(&said, "one"), ["one DEGRADED 0 0 0"], "{said}");
    daemon.good("set tunable zfs_scan_suspend_progress=1");
    daemon.good(&format!("zpool replace one {a} {r}"));
    let said = daemon.good("zpool status one");
    let names: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let nested = ["one", "raidz1-0", "spare-0", "replacing-0"];
    assert!(names.windows(4).any(|four| four == nested), "{said}");
    daemon.good(&format!("zpool add one spare {t}"));
    daemon.good(&format!("zpool add -f one {n}"));
    let said = daemon.good("zpool status one");
    assert_eq!(row(&said, &t), [format!("{t} AVAIL")], "{said}");
    assert!(row(&said, &n)[0].contains("ONLINE"), "{said}");
    daemon.good("set tunable zfs_scan_suspend_progress=0");
    let said =
        until(&daemon, "zpool status one", |said| !said.contains("replacing") && !said.contains("spare-0"));
    assert_eq!(row(&said, &s), [format!("{s} AVAIL")], "{said}");
}

/// Goal: a distributed spare that one device no longer needs replaces another faulted device
/// without a command. Resilvers run one after the other, never two at a time.
///
/// `zpool clear` of a device with cleared labels starts no other one.
#[test]
fn one_resilver_at_a_time() {
    let names: Vec<String> = (0..10).map(|n| format!("d{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (dir, daemon) = stand(&names);
    let d = |n: usize| dir.path().join(names[n]).display().to_string();
    daemon.good(&format!("zpool create -m none one draid1:8d:1s{}", at(dir.path(), &names)));
    daemon.good("zfs create one/fs");
    daemon.good(&format!("zpool offline -f one {}", d(5)));
    until(&daemon, "zpool status one", |said| said.contains("spare-5"));
    daemon.good("zpool wait -t resilver one");
    daemon.good("zpool wait -t scrub one");
    daemon.good(&format!("zpool offline -f one {}", d(6)));
    daemon.good(&format!("zpool labelclear -f {}", d(5)));
    daemon.good(&format!("zpool labelclear -f {}", d(6)));
    daemon.good("zpool events -c");
    daemon.good(&format!("zpool replace -w one {}", d(5)));
    until(&daemon, "zpool status one", |said| said.contains("spare-6"));
    daemon.good("zpool clear one");
    daemon.good("zpool wait -t resilver one");
    daemon.good("zpool wait -t scrub one");
    let said = daemon.good("zpool status one");
    let row = said.lines().find(|line| line.contains(&d(6))).expect("the device");
    assert!(row.contains("UNAVAIL") && said.contains("spare-6") && said.contains("INUSE"), "{said}");
    assert!(said.contains("with 0 errors") && !said.contains("resilvering"), "{said}");
    let events = daemon.good("zpool events -H");
    let words =
        events.lines().filter_map(|line| line.split_once("zfs.resilver_")).map(|(_, word)| word.trim());
    assert_eq!(words.collect::<Vec<_>>(), ["start", "finish", "start", "finish"], "{events}\n{said}");
}

/// Goal: while devices join and leave, each status query shows each device once and in its state. A
/// group vdev always has more than one child.
///
/// This holds whichever txg syncs at that moment.
#[test]
fn each_device_is_shown_once() {
    let names = ["a", "b", "c", "s"];
    let (dir, daemon) = stand(&names);
    let [a, b, c, s] = names.map(|name| dir.path().join(name).display().to_string());
    daemon.good(&format!("zpool create -m none one mirror {a} {b} spare {s}"));
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for _ in 0..8 {
                daemon.good(&format!("zpool attach -f -w one {a} {c}"));
                daemon.good(&format!("zpool replace -w one {b} {s}"));
                daemon.good(&format!("zpool detach one {s}"));
                daemon.good(&format!("zpool detach one {c}"));
                daemon.good(&format!("zpool replace -f -w one {b} {c}"));
                daemon.good(&format!("zpool detach one {c}"));
                daemon.good(&format!("zpool attach -f -w one {a} {b}"));
            }
        });
        while !changes.is_finished() {
            let said = daemon.good("zpool status one");
            let (_, rows) = said.split_once("NAME ").expect("a table");
            let (rows, _) = rows.split_once("spares").expect("a spare");
            let rows: Vec<&str> = rows.lines().skip(1).filter(|row| !row.trim().is_empty()).collect();
            for name in [&a, &b, &c, &s] {
                let of = rows.iter().filter(|row| row.split_whitespace().next() == Some(name));
                assert!(of.count() < 2, "{name}: {said}");
            }
            assert!(rows.iter().all(|row| row.split_whitespace().nth(1) == Some("ONLINE")), "{said}");
            let depth = |row: &str| row.len() - row.trim_start().len();
            for (n, group) in rows.iter().enumerate().filter(|(_, row)| row.contains("-0 ")) {
                let below = rows[n + 1..].iter().take_while(|row| depth(row) > depth(group));
                let children = below.filter(|row| depth(row) == depth(group) + 2).count();
                assert!(children > 1, "{group}: {said}");
            }
        }
        changes.join().expect("all went well");
    });
}
