//! Pools whose devices hang or fail, beside healthy pools: commands, and the end of the daemon. The
//! tests print a message and do nothing if mounting is not possible.
//!
//! The device of the `sick` pool is a file in a pool of another daemon:
//!
//! | state of that daemon | the device |
//! |---|---|
//! | stopped | never responds |
//! | killed | fails |
//! | at its quota | takes no more data |

use crate::daemon::{Daemon, command, image, said, tank};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command, which is killed if it hangs.
fn timely(dir: &Path, line: &str) -> Output {
    within(dir, 120, line)
}

/// As `timely`, with the time limit in seconds.
fn within(dir: &Path, seconds: u32, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = Command::new("timeout");
    let program = env!("CARGO_BIN_EXE_poolhouse");
    command.args(["-s", "KILL", &seconds.to_string(), program]).args(&words);
    command.env("POOLHOUSE_RUN_DIR", dir.join("run")).current_dir("/").output().expect("it runs")
}

fn good(dir: &Path, line: &str) -> String {
    let ran = timely(dir, line);
    assert!(ran.status.success(), "{line}: {} {}", ran.status, said(&ran));
    String::from_utf8(ran.stdout).expect("text")
}

/// Two daemons. The pool of `ground` holds the device of the pool `sick` of `daemon`. That one also
/// has the pools `well`, and `inner`, which is mounted inside `well`.
///
/// The fields are dropped in this order, directories last: nothing can be removed from the mounts
/// of a stopped daemon.
struct Stand {
    daemon: Daemon,
    ground: Daemon,
    _left: Left,
    dir: tempfile::TempDir,
    below: tempfile::TempDir,
}

/// Directories below which nothing stays mounted after a test, which may kill a daemon and start no
/// other.
struct Left([std::path::PathBuf; 2]);

impl Drop for Left {
    fn drop(&mut self) {
        let mounts = fuse::system::table().unwrap_or_default();
        let of_ours = |mount: &&fuse::system::Mounted| self.0.iter().any(|dir| mount.target.starts_with(dir));
        for mount in mounts.iter().filter(of_ours) {
            fuse::system::detach(&mount.target, fuse::Detach::Lazy).unwrap_or_default();
        }
    }
}

impl Stand {
    fn new() -> Option<Stand> {
        Self::patient(2)
    }

    /// As `new`, with a daemon that waits this many seconds without progress before it ends.
    fn patient(seconds: u32) -> Option<Stand> {
        let (below, ground) = tank()?;
        ground.good("zfs create -o quota=24M tank/home/small");
        let dir = tempfile::tempdir().expect("a folder");
        let daemon =
            Daemon::start_with(dir.path(), &["--stop-timeout", &seconds.to_string()]).expect("a daemon");
        let (at, under) = (dir.path().display(), below.path().display());
        image(&below.path().join("mnt/home/small/d0"));
        fs::create_dir(dir.path().join("dev")).expect("a folder");
        image(&dir.path().join("dev/well"));
        image(&dir.path().join("dev/inner"));
        daemon.good(&format!("zpool create -m {at}/sick sick {under}/mnt/home/small/d0"));
        daemon.good(&format!("zpool create -m {at}/well well {at}/dev/well"));
        daemon.good(&format!("zpool create -m {at}/well/inner inner {at}/dev/inner"));
        for pool in ["sick", "well", "well/inner"] {
            fs::write(dir.path().join(pool).join("file"), "content").expect("it is mounted");
        }
        daemon.good("zpool sync");
        let left = Left([dir.path(), below.path()].map(Path::to_owned));
        Some(Stand { daemon, ground, _left: left, dir, below })
    }

    /// Fills the sick pool's device until the pool is suspended. The returned thread completes its
    /// writes when the pool continues.
    fn suspend(&self) -> std::thread::JoinHandle<std::io::Result<()>> {
        let file = self.dir.path().join("sick/large");
        let writer = std::thread::spawn(move || {
            let file = fs::File::create(file)?;
            let mut noise = vec![0; 1 << 20];
            for n in 0..32 {
                let mut x = n + 1;
                noise.fill_with(|| {
                    x = u64::wrapping_mul(x, 6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (x >> 33) as u8
                });
                file.write_all_at(&noise, n << 20)?;
            }
            file.sync_all()
        });
        while good(self.dir.path(), "zpool list -H -o health sick") != "SUSPENDED\n" {
            assert!(!writer.is_finished(), "its device takes everything");
        }
        writer
    }

    /// Checks that the healthy pools were exported: they are imported without force, with their
    /// data.
    fn are_well(&self) {
        let daemon = Daemon::start(self.dir.path());
        let at = self.dir.path();
        good(at, &format!("zpool import -d {}/dev -a", at.display()));
        for pool in ["well", "well/inner"] {
            assert_eq!(fs::read_to_string(at.join(pool).join("file")).expect("it is mounted"), "content");
        }
        assert_eq!(good(at, "zpool list -H -o name"), "inner\nwell\n");
        good(at, "zpool export -a");
        drop(daemon);
    }
}

/// Goal: a suspended pool is shown as such in OpenZFS's words, refuses what would wait for it, and
/// blocks no other pool.
///
/// When its device works again and it is cleared, waiting writers continue and nothing is lost.
#[test]
fn suspended() {
    let Some(stand) = Stand::new() else { return };
    let at = stand.dir.path();
    let writer = stand.suspend();
    let status = good(at, "zpool status sick");
    let device = format!("{}/mnt/home/small/d0", stand.below.path().display());
    for words in [
        &format!(
            "  pool: sick\n state: SUSPENDED\nstatus: One or more devices are faulted in response to IO failures: there is \
             no\n\tspace left (ENOSPC or EDQUOT) on what holds\n\t\t{device}\n\
             action: Make room there, then run 'zpool clear'.\n   \
             see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-HC\n"
        ),
        "\n\tNAME",
    ] {
        assert!(status.contains(words), "{status}");
    }
    // Status, events and log all name the quota below as the cause.
    let events = good(at, "zpool events -v sick");
    assert!(events.contains("zio_err = 0x7a\n"), "{events}");
    assert!(events.contains("ereport.fs.zfs.io_failure"), "{events}");
    let log = fs::read_to_string(at.join("log")).expect("a log");
    assert!(
        log.contains("suspended: there is no space left (ENOSPC or EDQUOT)") && log.contains(&device),
        "{log}"
    );
    for (line, words) in [
        ("zfs create sick/x", "cannot create 'sick/x': pool I/O is currently suspended\n"),
        ("zfs snapshot sick@x", "pool I/O is currently suspended\n"),
        ("zpool export sick", "cannot export 'sick': pool I/O is currently suspended\n"),
    ] {
        let ran = timely(at, line);
        assert!(ran.status.code() == Some(1) && said(&ran).contains(words), "{line}: {}", said(&ran));
    }
    assert!(good(at, "zpool list").contains("SUSPENDED") && good(at, "top").contains("sick"));
    for line in [
        "zpool status",
        "zpool list -v",
        "zpool get health",
        "zpool iostat -v",
        "zfs list",
        "zfs get all -r well",
        "zfs create well/new",
        "zfs snapshot -r well@now",
        "zfs mount -a",
        "zpool export inner",
        &format!("zpool import -d {}/dev inner", at.display()),
        "zpool export inner",
        "zpool sync well",
        "zpool export well",
        &format!("zpool import -d {}/dev -a", at.display()),
    ] {
        good(at, line);
    }
    assert_eq!(fs::read_to_string(at.join("well/inner/file")).expect("it is mounted"), "content");
    // A pool that is cleared too early is soon suspended again.
    timely(at, "zpool clear sick");
    stand.ground.good("zfs set quota=none tank/home/small");
    while good(at, "zpool list -H -o health sick") != "ONLINE\n" {
        good(at, "zpool clear sick");
    }
    writer.join().expect("a thread").expect("it is written in the end");
    good(at, "zfs create sick/x");
    good(at, "zpool export sick");
    good(at, &format!("zpool import -d {}/mnt/home/small sick", stand.below.path().display()));
    assert_eq!(fs::metadata(at.join("sick/large")).expect("it is mounted").len(), 32 << 20);
    good(at, "zpool export sick");
}

/// A mount that is unmounted on drop.
struct Below(std::path::PathBuf);

impl Drop for Below {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Goal: an export whose last txg can't be written is refused. The file systems that it unmounted
/// are mounted again when the pool is cleared.
#[test]
fn an_export_that_fails_at_the_end() {
    let Some((dir, daemon)) = tank() else { return };
    let (at, mnt) = (dir.path(), dir.path().join("mnt"));
    // No txg syncs before the export requests one.
    good(at, "set tunable zfs_txg_timeout=3600");
    fs::write(mnt.join("home/file"), "content").expect("it is mounted");
    good(at, "zpool sync tank");
    let mounted =
        || fuse::system::table().expect("a table").into_iter().filter(|m| m.target.starts_with(at)).count();
    assert_eq!(mounted(), 2);
    good(at, &format!("zinject -d {}/d0 -e io -T write tank", at.display()));
    let ran = timely(at, "zpool export tank");
    let why = "cannot export 'tank': pool I/O is currently suspended\n";
    assert_eq!((ran.status.code(), said(&ran).as_str()), (Some(1), why));
    assert_eq!(mounted(), 0, "it failed after that");
    good(at, "zinject -c all");
    good(at, "zpool clear tank");
    assert_eq!(mounted(), 2);
    assert_eq!(fs::read_to_string(mnt.join("home/file")).expect("it is mounted"), "content");
    fs::write(mnt.join("home/more"), "content").expect("it can be written");
    good(at, "zpool export tank");
    assert_eq!(mounted(), 0);
    drop(daemon);
}

/// Goal: a pool on a sparse file is suspended when the file system below is full. Its status,
/// events and log name what is full. With new space it continues, with all written data.
#[test]
fn the_file_system_below_is_full() {
    let dir = tempfile::tempdir().expect("a folder");
    let (at, below) = (dir.path(), dir.path().join("below"));
    fs::create_dir(&below).expect("a folder");
    let mount = |options: &str| {
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&below).status()
    };
    if !mount("size=24m").is_ok_and(|status| status.success()) {
        eprintln!("nothing can be mounted here");
        return;
    }
    // Dropped after the daemon and before the directory.
    let _below = Below(below.clone());
    let daemon = Daemon::start(at);
    let device = below.join("d0");
    image(&device);
    daemon.good(&format!("zpool create -m {}/mnt tank {}", at.display(), device.display()));
    let mut x = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8
    })
    .take(32 << 20)
    .collect();
    let file = at.join("mnt/file");
    let bytes = noise.clone();
    let other = fs::File::create(at.join("mnt/other")).expect("it is mounted");
    let writer = std::thread::spawn(move || {
        let file = fs::File::create(file)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    });
    while good(at, "zpool list -H -o health tank") != "SUSPENDED\n" {
        assert!(!writer.is_finished(), "there is room for everything");
    }
    // A later writer blocks in the kernel, and can be killed.
    let mut waits = Command::new("dd").arg("if=/dev/zero").arg("bs=1M").stdout(other).spawn().expect("dd");
    let stat = || fs::read_to_string(format!("/proc/{}/stat", waits.id())).expect("a child");
    while !["(dd) S", "(dd) D"].iter().any(|state| stat().contains(state)) {
        std::thread::yield_now();
    }
    waits.kill().expect("a child");
    waits.wait().expect("it ends");
    let status = good(at, "zpool status tank");
    assert!(status.contains("ENOSPC") && status.contains(&format!("\t\t{}\n", device.display())), "{status}");
    let events = good(at, "zpool events -v tank");
    assert!(events.contains("zio_err = 0x1c\n"), "{events}");
    let log = fs::read_to_string(at.join("log")).expect("a log");
    assert!(log.contains("suspended: there is no space left") && log.contains("d0"), "{log}");
    assert!(mount("remount,size=256m").expect("a command").success());
    while good(at, "zpool list -H -o health tank") != "ONLINE\n" {
        good(at, "zpool clear tank");
    }
    writer.join().expect("a thread").expect("it is written in the end");
    assert!(fs::read(at.join("mnt/file")).expect("it is mounted") == noise);
    assert!(!good(at, "zpool status tank").contains("ENOSPC"), "that is over");
    good(at, "zpool export tank");
}

/// Goal: a pool whose device disappeared with its mount is suspended. It continues when the mount
/// is there again and the pool is cleared.
///
/// The old descriptor is useless then, although no event reported that.
#[test]
fn the_mount_below_comes_back() {
    let Some(mut stand) = Stand::new() else { return };
    stand.ground.signal("KILL");
    stand.ground.ended();
    let at = stand.dir.path().to_owned();
    fs::write(at.join("sick/more"), "more").expect("it is in memory");
    let asked = command(&at, "zpool sync sick").spawn().expect("it runs");
    while good(&at, "zpool list -H -o health sick") != "SUSPENDED\n" {}
    let under = stand.below.path().to_owned();
    let _ = Command::new("umount").args(["-R", "-l"]).arg(under.join("mnt")).status();
    stand.ground = Daemon::start(&under);
    if good(&under, "zpool list -H -o name").is_empty() {
        good(&under, &format!("zpool import -d {} tank", under.display()));
    }
    while good(&at, "zpool list -H -o health sick") != "ONLINE\n" {
        good(&at, "zpool clear sick");
    }
    assert!(asked.wait_with_output().expect("it ends").status.success());
    for (file, content) in [("file", "content"), ("more", "more")] {
        assert_eq!(fs::read_to_string(at.join("sick").join(file)).expect("it is mounted"), content);
    }
    good(&at, "zpool export sick");
    good(&at, &format!("zpool import -d {}/mnt/home/small sick", under.display()));
    assert_eq!(fs::read_to_string(at.join("sick/more")).expect("it is mounted"), "more");
    good(&at, "zpool export -a");
}

/// Goal: a pool whose device stops responding is shown with its last known state, also if no query
/// ran before. Queries about all pools do not block for long.
#[test]
fn asked_for_the_first_time() {
    let Some(stand) = Stand::new() else { return };
    let at = stand.dir.path().to_owned();
    good(&at, "zpool export -a");
    for dir in [stand.below.path().join("mnt/home/small"), at.join("dev")] {
        good(&at, &format!("zpool import -d {} -a", dir.display()));
    }
    stand.ground.signal("STOP");
    let file = at.join("sick/new");
    let writer = std::thread::spawn(move || fs::File::create(file)?.sync_all());
    let lines = ["zpool list -H -o name", "zpool status -x", "zpool list", "zpool status"];
    let ran = lines.map(|line| (line, within(&at, 40, line)));
    // Let the device continue first, so that a failed check does not wait for it.
    stand.ground.signal("CONT");
    for (line, ran) in &ran {
        assert!(ran.status.success(), "{line}: {} {}", ran.status, said(ran));
    }
    assert_eq!(String::from_utf8_lossy(&ran[0].1.stdout), "inner\nsick\nwell\n");
    writer.join().expect("a thread").expect("it is written in the end");
    good(&at, "zpool export -a");
}

/// The number of a daemon's threads that wait for devices which it scanned.
fn asking(daemon: &Daemon) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("it runs");
    let name = |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().filter(|task| ["ask\n", "ask-read\n"].contains(&&*name(task))).count()
}

/// Goal: a pool whose device hangs blocks no import of other pools, wherever the scan looks. It is
/// reported with its device, and can be imported when the device responds.
///
/// Repeated scans leave no more threads behind.
#[test]
fn hanging_device_beside_imports() {
    let Some(stand) = Stand::new() else { return };
    let at = stand.dir.path().to_owned();
    let device = format!("{}/mnt/home/small/d0", stand.below.path().display());
    let (kept, cache) = (at.join("kept").display().to_string(), at.join("cache").display().to_string());
    for pool in ["sick", "well", "inner"] {
        good(&at, &format!("zpool set cachefile={kept} {pool}"));
    }
    fs::copy(&kept, &cache).expect("a cache file");
    good(&at, "zpool export inner");
    good(&at, "zpool export -a");
    std::os::unix::fs::symlink(&device, at.join("dev/link")).expect("a link");
    good(&at, "set tunable zfs_probe_timeout_ms=1000");
    stand.ground.signal("STOP");
    // Only the pool's own devices are scanned.
    let ran = timely(&at, &format!("zpool import -c {cache} well"));
    assert!(ran.status.success() && said(&ran).is_empty(), "{}", said(&ran));
    good(&at, "zpool export well");
    let lost = format!(
        "cannot import 'sick': no such pool or dataset\n\tThese devices do not answer:\n\t\t{device}\n"
    );
    let mut left = Vec::new();
    for _ in 0..3 {
        let ran = timely(&at, &format!("zpool import -c {cache} -aN"));
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(told, format!("warning: '{device}' does not answer: it is passed over\n{lost}"));
        assert_eq!(good(&at, "zpool list -H -o name"), "inner\nwell\n");
        good(&at, "zpool export -a");
        left.push(asking(&stand.daemon));
    }
    assert!(left[0] > 0 && left.iter().all(|n| *n == left[0]), "{left:?}");
    let dev = at.join("dev").display().to_string();
    let passed = format!("warning: '{dev}/link' does not answer: it is passed over\n");
    let ran = timely(&at, &format!("zpool import -d {dev} well"));
    assert!(ran.status.success() && said(&ran) == passed, "{}", said(&ran));
    assert_eq!(fs::read_to_string(at.join("well/file")).expect("it is mounted"), "content");
    let ran = timely(&at, &format!("zpool import -d {device} sick"));
    let told = format!(
        "cannot import 'sick': no such pool available\n\tThese devices do not answer:\n\t\t{device}\n"
    );
    assert!(ran.status.code() == Some(1) && said(&ran).ends_with(&told), "{}", said(&ran));
    stand.ground.signal("CONT");
    good(&at, &format!("zpool import -c {cache} -a"));
    assert_eq!(good(&at, "zpool list -H -o name"), "inner\nsick\nwell\n");
    assert_eq!(fs::read_to_string(at.join("sick/file")).expect("it is mounted"), "content");
    good(&at, "zpool export inner");
    good(&at, "zpool export -a");
}

/// Goal: a daemon that is terminated while one pool's device hangs exports all other pools, also
/// those mounted inside each other.
///
/// It reports the one that it left, also by its exit status. Data that was synced to that pool is
/// there when the device responds.
#[test]
fn ends_with_a_pool_that_hangs() {
    let Some(mut stand) = Stand::new() else { return };
    stand.ground.signal("STOP");
    // A writer waits for the sick pool.
    let waiting = stand.dir.path().join("sick/more");
    let (opened, is_open) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let file = fs::File::create(waiting)?;
        opened.send(()).expect("somebody listens");
        file.write_all_at(&[7; 1 << 20], 0)?;
        file.sync_all()
    });
    // The file must be open before the daemon unmounts, or the write would go to the directory
    // below.
    is_open.recv().expect("it is in memory");
    stand.daemon.signal("TERM");
    let ended = stand.daemon.ended();
    let log = fs::read_to_string(stand.dir.path().join("log")).expect("a log");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("'sick' has devices that do not answer"), "{log}");
    assert!(writer.join().expect("a thread").is_err(), "nobody serves it");
    stand.are_well();
    stand.ground.signal("CONT");
    let daemon = Daemon::start(stand.dir.path());
    daemon.good(&format!("zpool import -d {}/mnt/home/small sick", stand.below.path().display()));
    assert_eq!(fs::read_to_string(stand.dir.path().join("sick/file")).expect("it is mounted"), "content");
    daemon.good("zpool export sick");
}

/// Goal: the same while that pool is being exported. It is listed until it is exported, and the end
/// of the daemon waits for it too.
#[test]
fn ends_while_an_export_hangs() {
    let Some(mut stand) = Stand::new() else { return };
    let at = stand.dir.path().to_owned();
    stand.ground.signal("STOP");
    fs::write(at.join("sick/more"), "more").expect("it is in memory");
    let mut export = command(&at, "zpool export sick").spawn().expect("it runs");
    while good(&at, "zfs list -H -o name").contains("sick\n") {}
    assert!(good(&at, "zpool list -H -o name").contains("sick\n"));
    assert!(!timely(&at, "zpool export -a").status.success());
    stand.daemon.signal("TERM");
    let ended = stand.daemon.ended();
    let log = fs::read_to_string(at.join("log")).expect("a log");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("'sick' has devices that do not answer"), "{log}");
    assert!(!export.wait().expect("it ends").success());
    stand.ground.signal("CONT");
}

/// Goal: the same while one pool is suspended: waiting writers get an error, and the pool is left.
#[test]
fn ends_with_a_suspended_pool() {
    let Some(mut stand) = Stand::new() else { return };
    let writer = stand.suspend();
    stand.daemon.signal("TERM");
    let ended = stand.daemon.ended();
    let log = fs::read_to_string(stand.dir.path().join("log")).expect("a log");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("'sick' is suspended"), "{log}");
    assert!(writer.join().expect("a thread").is_err(), "nobody serves it");
    stand.are_well();
}

/// Goal: a pool whose device is gone for good is shown as such, blocks nothing, and is left at the
/// end.
#[test]
fn device_gone() {
    let Some(mut stand) = Stand::new() else { return };
    stand.ground.signal("KILL");
    stand.ground.ended();
    let at = stand.dir.path().to_owned();
    fs::write(at.join("sick/more"), "more").expect("it is in memory");
    let asked = command(&at, "zpool sync sick").spawn().expect("it runs");
    while good(&at, "zpool list -H -o health sick") != "SUSPENDED\n" {}
    assert!(good(&at, "zpool status").contains(" state: SUSPENDED\n"));
    // Its datasets are not available, and those of the other pools are.
    let listed = timely(&at, "zfs list -H -o name");
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(names.contains("inner\n") && names.contains("well\n"), "{}", said(&listed));
    good(&at, "zfs create well/new");
    let cleared = timely(&at, "zpool clear sick");
    assert!(cleared.status.code().is_some(), "it hangs: {}", said(&cleared));
    stand.daemon.signal("TERM");
    assert_eq!(stand.daemon.ended().code(), Some(1));
    asked.wait_with_output().expect("it ends");
    stand.are_well();
}

/// Starts a write to a file of the sick pool while its device does not respond.
fn hanging_writer(stand: &Stand) -> std::thread::JoinHandle<std::io::Result<()>> {
    stand.ground.signal("STOP");
    let waiting = stand.dir.path().join("sick/more");
    let (opened, is_open) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let file = fs::File::create(waiting)?;
        opened.send(()).expect("somebody listens");
        file.write_all_at(&[7; 1 << 20], 0)?;
        file.sync_all()
    });
    is_open.recv().expect("it is in memory");
    writer
}

/// Goal: a pool whose txg makes no progress is shown as such, and not as healthy. An export reports
/// that its devices do not respond, and a forced export abandons the pool.
///
/// Other pools are used as before. The device stays claimed until the daemon ends, and then has the
/// synced data.
#[test]
fn a_pool_without_progress_is_given_up() {
    let Some(mut stand) = Stand::new() else { return };
    let at = stand.dir.path().to_owned();
    good(&at, "set tunable zfs_deadman_synctime_ms=50 zfs_deadman_checktime_ms=50");
    let writer = hanging_writer(&stand);
    let mut status = String::new();
    while !status.contains("has been writing one transaction group for") {
        status = good(&at, "zpool status -x");
    }
    assert!(status.contains("pool: sick\n") && status.contains("'zpool export -f sick'"), "{status}");
    while !good(&at, "zpool events -v sick").contains("class = \"ereport.fs.zfs.deadman\"") {}
    let refused = timely(&at, "zpool export sick");
    assert_eq!((refused.status.code(), said(&refused).contains("do not answer")), (Some(1), true));
    good(&at, "zpool export -f sick");
    assert_eq!(good(&at, "zpool list -H -o name"), "inner\nwell\n");
    good(&at, "zfs create well/new");
    assert!(writer.join().expect("a thread").is_err(), "nobody serves it");
    stand.ground.signal("CONT");
    let place = format!("{}/mnt/home/small", stand.below.path().display());
    assert!(!timely(&at, &format!("zpool import -d {place} sick")).status.success(), "it is claimed");
    stand.daemon.signal("TERM");
    assert!(stand.daemon.ended().success());
    stand.are_well();
    let daemon = Daemon::start(&at);
    daemon.good(&format!("zpool import -d {place} sick"));
    assert_eq!(fs::read_to_string(at.join("sick/file")).expect("it is mounted"), "content");
    daemon.good("zpool export sick");
}

/// Goal: a daemon that is terminated twice ends at once, whatever a pool waits for and however long
/// its timeout is.
#[test]
fn told_twice_it_ends_at_once() {
    let Some(mut stand) = Stand::patient(3600) else { return };
    let writer = hanging_writer(&stand);
    let log = stand.dir.path().join("log");
    stand.daemon.signal("TERM");
    while !fs::read_to_string(&log).expect("a log").contains("ending: terminated") {}
    stand.daemon.signal("TERM");
    assert_eq!(stand.daemon.ended().code(), Some(1));
    assert!(writer.join().expect("a thread").is_err(), "nobody serves it");
    stand.ground.signal("CONT");
}
