//! The daemon as a service: stopped, killed and restarted, under a service manager, and with a pool
//! whose device never responds.
//!
//! Tests that need root or a mount print a message and do nothing without.

use crate::daemon::{Daemon, command, image, said, tank};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Goal: a daemon that is stopped unmounts, syncs and exports. Its successor finds the pool by the
/// cache file and mounts it at the same place.
///
/// OpenZFS's zdb finds the pool by the cache file while it is imported.
#[test]
fn stopped() {
    let Some((dir, mut daemon)) = tank() else { return };
    let file = dir.path().join("mnt/home/file");
    fs::write(&file, "content").expect("it is mounted");
    daemon.good("zpool sync tank");
    let cache = dir.path().join("cache");
    if let Some(zdb) = std::env::var_os("ZDB") {
        for what in ["-C", "-d"] {
            let ran = Command::new(&zdb).arg("-U").arg(&cache).args([what, "tank"]).output().expect("zdb");
            assert!(ran.status.success(), "{}", said(&ran));
        }
    }
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    assert!(!file.exists(), "it is still mounted");
    let daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool import -c {} -a", cache.display()));
    assert_eq!(fs::read_to_string(&file).expect("it is mounted again"), "content");
    daemon.good("zpool export tank");
}

/// The options of the system's mount at a path, or `None` if there is none.
fn mounted_at(place: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mounts").expect("a table");
    let place = place.display().to_string();
    let line = table.lines().rfind(|line| line.split(' ').nth(1) == Some(&place))?;
    line.split(' ').nth(3).map(str::to_owned)
}

/// Goal: mounts that no property describes are restored after a daemon was killed, with the rest of
/// their pool and not before:
///
/// * legacy file systems and snapshots, at their paths
/// * file systems that were mounted by name
/// * options of a single mount
///
/// File systems that were unmounted are not restored, and after an export none is.
#[test]
fn killed_with_mounts_by_hand() {
    let Some((dir, mut daemon)) = tank() else { return };
    let at = dir.path().to_owned();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), at.join("mount.zfs")).expect("a link");
    let place = |name: &str| at.join(name);
    let by_hand = |what: &str, name: &str, options: &str| {
        fs::create_dir_all(place(name)).expect("a folder");
        let mut helper = Command::new(place("mount.zfs"));
        helper.env("POOLHOUSE_RUN_DIR", place("run")).args([what, &place(name).display().to_string()]);
        let ran = helper.args(["-o", options]).output().expect("it runs");
        assert!(ran.status.success(), "{}", said(&ran));
    };
    for name in ["legacy", "left", "dead"] {
        daemon.good(&format!("zfs create -o mountpoint=legacy tank/{name}"));
        by_hand(&format!("tank/{name}"), name, "rw,noexec");
    }
    daemon.good("zfs create -o canmount=noauto tank/noauto");
    daemon.good("zfs snapshot tank/legacy@then");
    by_hand("tank/legacy@then", "then", "ro");
    fs::write(place("legacy/file"), "content").expect("it is mounted");
    daemon.good("zfs mount tank/noauto");
    daemon.good("zfs unmount tank/home");
    daemon.good("zfs mount -o ro tank/home");
    daemon.good("zpool sync");
    let unmount = |words: &[&str], name: &str| {
        let ran = Command::new("umount").args(words).arg(place(name)).status().expect("umount");
        assert!(ran.success(), "{name}");
    };
    unmount(&[], "left");
    for round in 0..2 {
        daemon.signal("KILL");
        daemon.ended();
        if round == 0 {
            // A dead mount can be unmounted.
            unmount(&["-l"], "dead");
        }
        daemon = Daemon::start(&at);
        daemon.good(&format!("zpool import -N -c {0}/cache -o cachefile={0}/cache -a", at.display()));
        for name in ["legacy", "left", "dead", "then", "mnt/noauto", "mnt/home"] {
            assert_eq!(mounted_at(&place(name)), None, "{name}");
        }
        daemon.good("zfs mount -a");
        assert_eq!(fs::read_to_string(place("legacy/file")).expect("it is mounted"), "content");
        let options = |name: &str| mounted_at(&place(name)).unwrap_or_default();
        let legacy = options("legacy");
        assert!(legacy.starts_with("rw,") && legacy.contains("noexec"), "{legacy}");
        assert!(options("then").starts_with("ro"), "{}", options("then"));
        assert!(options("mnt/noauto").starts_with("rw"), "{}", options("mnt/noauto"));
        assert!(options("mnt/home").starts_with("ro"), "{}", options("mnt/home"));
        assert_eq!((mounted_at(&place("left")), mounted_at(&place("dead"))), (None, None));
    }
    // A regular export forgets these mounts.
    daemon.good("zpool export tank");
    daemon.good(&format!("zpool import -d {}/d0 tank", at.display()));
    for name in ["legacy", "then", "mnt/noauto"] {
        assert_eq!(mounted_at(&place(name)), None, "{name}");
    }
    assert!(mounted_at(&place("mnt/home")).is_some_and(|options| options.starts_with("rw")));
    daemon.good("zpool export tank");
}

/// Goal: data that was fsynced survives a kill of the daemon. The successor imports by the cache
/// file, without force, and mounts at the same place. The dead mounts are gone.
#[test]
fn killed() {
    let Some((dir, mut daemon)) = tank() else { return };
    let file = dir.path().join("mnt/home/file");
    for round in 0..3 {
        let text = format!("round {round}");
        fs::write(&file, &text).and_then(|()| fs::File::open(&file)?.sync_all()).expect("it is mounted");
        daemon.signal("KILL");
        daemon.ended();
        assert!(fs::metadata(&file).is_err(), "nobody serves it");
        daemon = Daemon::start(dir.path());
        assert!(!file.exists(), "the dead mount is gone");
        daemon.good(&format!(
            "zpool import -c {at}/cache -o cachefile={at}/cache -a",
            at = dir.path().display()
        ));
        assert_eq!(fs::read_to_string(&file).expect("it is mounted again"), text);
    }
    daemon.good("zpool export tank");
}

/// Goal: a pool on a file in a mount of another pool of the same daemon loses nothing when the
/// daemon is stopped. The other pool is exported after it.
#[test]
fn stopped_one_inside_the_other() {
    let Some((dir, mut daemon)) = tank() else { return };
    let at = dir.path().display().to_string();
    // Names in both orders, so that the order of names can't decide.
    for (name, order) in [("aaa", 0), ("zzz", 1)] {
        image(&dir.path().join(format!("mnt/home/{name}")));
        daemon.good(&format!(
            "zpool create -o cachefile={at}/inner{order} -m {at}/{name} {name} {at}/mnt/home/{name}"
        ));
        fs::write(dir.path().join(name).join("file"), vec![7; 8 << 20]).expect("it is mounted");
    }
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(!log.contains("unmounted lazily") && !log.contains("ERROR"), "{log}");
    daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool import -c {at}/cache -a"));
    for (name, order) in [("aaa", 0), ("zzz", 1)] {
        daemon.good(&format!("zpool import -c {at}/inner{order} -o cachefile={at}/inner{order} {name}"));
        let there = fs::read(dir.path().join(name).join("file")).expect("it is mounted again");
        assert!(there == vec![7; 8 << 20], "{name} has lost something");
        daemon.good(&format!("zpool export {name}"));
    }
    daemon.good("zpool export tank");
}

/// Goal: a daemon with `--attach` makes every volume a block device, also later ones.
///
/// A daemon may be killed while a program has such a device open, with unwritten data. Nothing
/// hangs and no device is left, and the volume has what was fsynced through the device.
#[test]
fn attached() {
    let Some((dir, daemon)) = tank() else { return };
    daemon.good("zpool export tank");
    drop(daemon);
    // Links to devices are global to this machine.
    let pool = format!("attached{}", std::process::id());
    let at = dir.path().display().to_string();
    let Some(mut daemon) = Daemon::start_with(dir.path(), &["--attach"]) else { panic!("no daemon") };
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -m none -o cachefile={at}/cache {pool} {at}/d1"));
    daemon.good(&format!("zfs create -V 16M {pool}/vol"));
    let link = Path::new("/dev/zvol").join(&pool).join("vol");
    if !link.exists() {
        eprintln!("there are no loop devices here");
        daemon.good(&format!("zpool export {pool}"));
        return;
    }
    let over = || {
        let all = fs::read_dir("/sys/block").expect("sysfs").flatten();
        let file = |dir: fs::DirEntry| fs::read_to_string(dir.path().join("loop/backing_file")).ok();
        all.filter_map(file).filter(|file| file.starts_with(&at)).count()
    };
    assert_eq!(over(), 1);
    let again = daemon.ran(&format!("attach {pool}/vol"));
    let told = format!("cannot attach '{pool}/vol': already attached, as {}\n", link.display());
    assert_eq!((again.status.code(), said(&again)), (Some(1), told));
    used(&daemon, &pool, &link);
    for round in 1..=3u8 {
        let device = fs::File::options().read(true).write(true).open(&link).expect("a block device");
        device
            .write_all_at(&[round; 1 << 16], 1 << 20)
            .and_then(|()| device.sync_all())
            .expect("it is written");
        device.write_all_at(&[0xee; 4 << 20], 4 << 20).expect("it is in the page cache");
        daemon.signal("KILL");
        daemon.ended();
        device.sync_all().expect_err("nobody takes it");
        daemon = Daemon::start_with(dir.path(), &["--attach"]).expect("a daemon");
        // The device is removed after its last user closed it.
        drop(device);
        daemon.good(&format!("zpool import -c {at}/cache -o cachefile={at}/cache {pool}"));
        let mut seen = [0; 1 << 16];
        fs::File::open(&link).and_then(|new| new.read_exact_at(&mut seen, 1 << 20)).expect("a new device");
        assert!(seen == [round; 1 << 16], "round {round}");
        assert_eq!(over(), 1, "round {round}");
    }
    daemon.good(&format!("zpool export {pool}"));
    assert!(!link.exists());
    assert_eq!(over(), 0);
}

/// A claimed device keeps its volume and pool busy, even with force, and follows a rename of its
/// volume.
fn used(daemon: &Daemon, pool: &str, link: &Path) {
    use std::os::unix::fs::OpenOptionsExt;
    // A child process that another test has just forked briefly has copies of this process's files.
    // So a dropped claim may still be held.
    let claim = |link: &Path| {
        let flags = rustix::fs::OFlags::EXCL.bits().cast_signed();
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match fs::File::options().read(true).write(true).custom_flags(flags).open(link) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < end => {
                    std::thread::yield_now();
                }
                opened => break opened.expect("nobody has claimed it"),
            }
        }
    };
    let claimed = claim(link);
    for line in [
        format!("zpool export -f {pool}"),
        format!("zpool destroy -f {pool}"),
        format!("zfs destroy -f {pool}/vol"),
    ] {
        let ran = daemon.ran(&line);
        assert!(!ran.status.success() && said(&ran).contains("busy"), "{line}: {}", said(&ran));
        assert!(link.exists(), "{line}");
    }
    daemon.good(&format!("zfs rename {pool}/vol {pool}/other"));
    let other = link.with_file_name("other");
    assert!(!link.exists() && other.exists());
    claimed.write_all_at(&[9; 4096], 0).and_then(|()| claimed.sync_all()).expect("it is the volume's still");
    drop(claimed);
    drop(claim(&other));
    daemon.good(&format!("zfs rename {pool}/other {pool}/vol"));
    // The device is detached without the daemon.
    daemon.good(&format!("zfs create -V 16M {pool}/gone"));
    let gone = link.with_file_name("gone");
    let detached = Command::new("losetup").arg("-d").arg(fs::read_link(&gone).expect("a link")).status();
    assert!(detached.expect("losetup").success());
    daemon.good(&format!("zfs destroy {pool}/gone"));
    assert!(fs::symlink_metadata(&gone).is_err());
}

/// Goal: a volume whose device a program has open, without a claim, can't be destroyed or detached,
/// and its pool can't be exported. `detach` names the program.
///
/// Data that the program wrote is in the volume, also after a forced detach.
#[test]
fn held_open() {
    let Some((dir, daemon)) = tank() else { return };
    let (pool, at) = (format!("held{}", std::process::id()), dir.path().display().to_string());
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -m {at}/held {pool} {at}/d1"));
    daemon.good(&format!("zfs create -V 16M {pool}/vol"));
    daemon.good(&format!("zfs create -V 16M {pool}/other"));
    daemon.good(&format!("zfs snapshot {pool}/vol@s"));
    if !daemon.ran(&format!("attach {pool}/vol")).status.success() {
        eprintln!("no volume can be attached here");
        daemon.good(&format!("zpool export {pool}"));
        return;
    }
    daemon.good(&format!("attach {pool}/other"));
    let link = |name: &str| Path::new("/dev/zvol").join(&pool).join(name);
    let open = || fs::File::options().read(true).write(true).open(link("vol")).expect("a block device");
    let device = open();
    device.write_all_at(&[1; 1 << 16], 0).expect("it is in the page cache");
    for (line, why) in [
        (format!("zfs destroy {pool}/vol@s"), ""),
        (format!("zfs destroy {pool}/vol"), "dataset is busy"),
        (format!("zpool export {pool}"), "pool is busy"),
        (format!("zpool export -f {pool}"), "pool is busy"),
        (format!("zpool destroy -f {pool}"), "busy"),
    ] {
        let ran = daemon.ran(&line);
        assert_eq!(ran.status.success(), why.is_empty(), "{line}: {}", said(&ran));
        assert!(said(&ran).contains(why), "{line}: {}", said(&ran));
        assert!(link("vol").exists() && link("other").exists() && dir.path().join("held").exists(), "{line}");
    }
    let ran = daemon.ran(&format!("detach {pool}/vol"));
    let name = fs::read_to_string("/proc/self/comm").expect("its name");
    let by = format!("in use by {} (pid {})", name.trim_end(), std::process::id());
    assert!(!ran.status.success() && said(&ran).contains(&by), "{}", said(&ran));
    device.write_all_at(&[2; 1 << 16], 1 << 20).expect("it is in the page cache");
    drop(device);
    daemon.good(&format!("zpool export {pool}"));
    assert!(!link("vol").exists());
    daemon.good(&format!("zpool import -d {at}/d1 {pool}"));
    daemon.good(&format!("attach {pool}/vol"));
    let device = open();
    let seen = |device: &fs::File, at: u64| {
        let mut seen = [0; 1 << 16];
        device.read_exact_at(&mut seen, at).map(|()| seen[0])
    };
    assert_eq!((seen(&device, 0).expect("a read"), seen(&device, 1 << 20).expect("a read")), (1, 2));
    device.write_all_at(&[3; 1 << 16], 2 << 20).expect("it is in the page cache");
    daemon.good(&format!("detach -f {pool}/vol"));
    daemon.good(&format!("attach {pool}/vol"));
    let again = open();
    assert_eq!(seen(&again, 2 << 20).expect("a read"), 3);
    drop((device, again));
    daemon.good(&format!("zfs destroy {pool}/vol"));
    daemon.good(&format!("zpool export {pool}"));
}

/// Goal: a volume that was attached by name and is unused can be destroyed and rolled back like any
/// other.
///
/// If that fails, or the volume still exists, its device is there again, read-only if it was.
#[test]
fn changed_while_attached() {
    let Some((dir, daemon)) = tank() else { return };
    let pool = format!("changed{}", std::process::id());
    let at = dir.path().display().to_string();
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -m none {pool} {at}/d1"));
    daemon.good(&format!("zfs create -V 8M {pool}/vol"));
    daemon.good(&format!("zfs snapshot {pool}/vol@one"));
    if !daemon.ran(&format!("attach -r {pool}/vol")).status.success() {
        eprintln!("no volume can be attached here");
        daemon.good(&format!("zpool export {pool}"));
        return;
    }
    let link = Path::new("/dev/zvol").join(&pool).join("vol");
    daemon.good(&format!("zfs rollback {pool}/vol@one"));
    assert!(fs::File::open(&link).is_ok(), "it is there again");
    let children = daemon.ran(&format!("zfs destroy {pool}/vol"));
    assert!(said(&children).contains("has children"), "{}", said(&children));
    let write = |link: &Path| {
        let device = fs::OpenOptions::new().write(true).open(link)?;
        (&device).write_all(&[1; 4096])?;
        device.sync_all()
    };
    assert!(fs::File::open(&link).is_ok() && write(&link).is_err(), "it is there again, as it was");
    daemon.good(&format!("zfs destroy -r {pool}/vol"));
    assert!(fs::symlink_metadata(&link).is_err());
    daemon.good(&format!("zpool export {pool}"));
}

/// Goal: the daemon may be stopped while a file system on an attached volume is mounted. The volume
/// then has all its data, and the log names the device.
#[test]
fn stopped_below_a_file_system() {
    let Some((dir, daemon)) = tank() else { return };
    daemon.good("zpool export tank");
    drop(daemon);
    let (pool, at) = (format!("below{}", std::process::id()), dir.path().display().to_string());
    let mut daemon = Daemon::start_with(dir.path(), &["--attach"]).expect("a daemon");
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -m none -o cachefile={at}/cache {pool} {at}/d1"));
    daemon.good(&format!("zfs create -V 32M {pool}/vol"));
    let link = Path::new("/dev/zvol").join(&pool).join("vol");
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).expect("a folder");
    let run = |program: &str, words: &[&Path]| Command::new(program).args(words).output();
    let made = run("mkfs.ext4", &[&link]).is_ok_and(|ran| ran.status.success());
    if !made || !run("mount", &[&link, &inner]).is_ok_and(|ran| ran.status.success()) {
        eprintln!("no file system can be made and mounted on a volume here");
        daemon.good(&format!("zpool export {pool}"));
        return;
    }
    fs::write(inner.join("precious"), vec![5; 3 << 20]).expect("it is mounted");
    let busy = daemon.ran(&format!("zpool export -f {pool}"));
    assert!(said(&busy).contains("busy"), "{}", said(&busy));
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(log.contains("its users lose it") && log.contains(&link.display().to_string()), "{log}");
    let gone = run("umount", &[&inner]).expect("umount");
    assert!(gone.status.success(), "{}", said(&gone));
    daemon = Daemon::start_with(dir.path(), &["--attach"]).expect("a daemon");
    daemon.good(&format!("zpool import -c {at}/cache -o cachefile={at}/cache {pool}"));
    let again = run("mount", &[&link, &inner]).expect("mount");
    assert!(again.status.success(), "{}", said(&again));
    let kept = fs::read(inner.join("precious"));
    run("umount", &[&inner]).expect("umount");
    assert!(kept.expect("it is there") == vec![5; 3 << 20]);
    daemon.good(&format!("zpool export {pool}"));
}

/// Goal: data written before `sync(2)` is there after the daemon was killed, in every pool, if the
/// kernel notifies the daemon. The notification leaves no device behind.
#[test]
fn synced() {
    let Some((dir, daemon)) = tank() else { return };
    daemon.good("zpool export tank");
    drop(daemon);
    let at = dir.path().display().to_string();
    let mut daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool import -d {at}/d0 -o cachefile={at}/cache tank"));
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -o cachefile={at}/cache -m {at}/more more {at}/d1"));
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    if !log.contains("sync(2) is heard") {
        eprintln!("this kernel does not tell of sync(2), or there are no loop devices");
    } else {
        for name in ["mnt", "more"] {
            fs::write(dir.path().join(name).join("file"), name).expect("it is mounted");
        }
        rustix::fs::sync();
        daemon.signal("KILL");
        daemon.ended();
        daemon = Daemon::start(dir.path());
        daemon.good(&format!("zpool import -c {at}/cache -o cachefile={at}/cache -a"));
        for name in ["mnt", "more"] {
            let text = fs::read_to_string(dir.path().join(name).join("file"));
            assert_eq!(text.expect("it was synced"), name);
        }
    }
    daemon.good("zpool export -a");
}

/// Goal: a daemon that has reached its limit of open files still replies to its user, unmounts, and
/// leaves nothing when it is stopped.
#[test]
fn out_of_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    let script = dir.path().join("few");
    let text = format!("#!/bin/sh\nulimit -n 64\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_poolhouse"));
    fs::write(&script, text).expect("a script");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let mut daemon = Daemon::start_as(&script, dir.path(), &[]).expect("a daemon");
    image(&dir.path().join("d0"));
    if !daemon.ran(&format!("zpool create -o cachefile={at}/cache -m {at}/mnt tank {at}/d0")).status.success()
    {
        eprintln!("nothing can be mounted here");
        return;
    }
    let mounts = || {
        let all = fuse::system::table().expect("a table");
        all.into_iter().filter(|mount| mount.target.starts_with(dir.path())).count()
    };
    let full = (0..80).find(|number| {
        let made = daemon.ran(&format!("zfs create tank/f{number}"));
        said(&made).contains("Too many open files")
    });
    let full = full.expect("a limit");
    assert!(full > 10 && mounts() > 10, "{full}");
    daemon.good("zfs unmount tank/f1");
    daemon.good("zfs unmount tank/f2");
    daemon.good("zfs mount tank/f1");
    daemon.good("zfs mount tank/f2");
    assert!(said(&daemon.ran(&format!("zfs mount tank/f{full}"))).contains("Too many open files"));
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    assert_eq!(mounts(), 0);
    let daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool import -c {at}/cache -o cachefile={at}/cache tank"));
    assert!(dir.path().join(format!("mnt/f{full}")).exists() && mounts() > full);
    daemon.good("zpool export tank");
}

/// Goal: systemd accepts the units, if it is available to check them. It also reports problems of
/// other units on the machine, and those lines are ignored.
#[test]
fn units() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd");
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    for name in ["poolhouse", "zpool", "zfs"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), dir.path().join(name)).expect("a link");
    }
    for (unit, user) in
        [("poolhouse.service", false), ("poolhouse-mount@.service", false), ("user/poolhouse.service", true)]
    {
        let text = fs::read_to_string(from.join(unit)).expect(unit);
        let name = unit.rsplit('/').next().expect("a name").replace('@', "@tank");
        let name = if user { format!("user-{name}") } else { name };
        let file = dir.path().join(&name);
        let complaints = |text: &str| {
            fs::write(&file, text.replace("@bindir@", &at).replace("@sbindir@", &at)).expect("room");
            let mut verify = Command::new("systemd-analyze");
            verify.args(["verify", "--man=no", if user { "--user" } else { "--system" }]).arg(&file);
            let ran = verify.env("XDG_RUNTIME_DIR", dir.path()).output().ok()?;
            let about_ours = |line: &&str| line.contains(&name);
            Some(said(&ran).lines().filter(about_ours).map(str::to_owned).collect::<Vec<_>>())
        };
        let Some(found) = complaints(&text) else {
            eprintln!("there is no systemd here");
            return;
        };
        assert!(found.is_empty(), "{unit}: {found:#?}");
        let spoiled = text.replace("[Service]", "[Service]\nNoSuchSetting=1");
        assert!(
            complaints(&spoiled).is_some_and(|found| !found.is_empty()),
            "{unit}: nothing is complained of"
        );
    }
}

/// Goal: after an upgrade and after a crash, the daemon's successor has everything mounted at the
/// same place with all data.
///
/// The test does what a service manager does: it replaces the program, ends or kills the daemon,
/// and runs the unit's commands.
#[test]
fn upgraded() {
    let Some((dir, mut daemon)) = tank() else { return };
    let at = dir.path().display().to_string();
    let program = |name: &str| {
        testkit::copy_program(env!("CARGO_BIN_EXE_poolhouse"), dir.path().join("new"));
        fs::rename(dir.path().join("new"), dir.path().join(name)).expect("it takes the other's place");
    };
    program("poolhouse");
    for name in ["zpool", "zfs"] {
        std::os::unix::fs::symlink("poolhouse", dir.path().join(name)).expect("a link");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/user/poolhouse.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    let commands: Vec<&str> =
        unit.lines().filter_map(|l| l.strip_prefix("ExecStartPost=-/bin/sh -c ")).collect();
    assert!(!commands.is_empty());
    daemon.good("zfs create tank/home/below");
    daemon.good("zfs create -o canmount=noauto tank/never");
    let before = daemon.good("zfs mount");
    for (round, signal) in ["TERM", "KILL", "TERM"].into_iter().enumerate() {
        let (file, text) = (dir.path().join("mnt/home/below/file"), format!("round {round}"));
        fs::write(&file, &text).and_then(|()| fs::File::open(&file)?.sync_all()).expect("it is mounted");
        program("poolhouse");
        daemon.signal(signal);
        assert_eq!(daemon.ended().success(), signal == "TERM");
        // The process has this name whatever its file is called.
        fs::hard_link(dir.path().join("poolhouse"), dir.path().join("exe")).expect("a name");
        daemon = Daemon::start_as(&dir.path().join("exe"), dir.path(), &[]).expect("a daemon");
        let name = fs::read_to_string(format!("/proc/{}/comm", daemon.child.id())).expect("it runs");
        assert_eq!(name, "poolhouse\n");
        fs::remove_file(dir.path().join("exe")).expect("it is there");
        for command in &commands {
            let line =
                command.replace("%S/poolhouse/zpool.cache", &format!("{at}/cache")).replace("@sbindir@", &at);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("sh -c {line}")).env("POOLHOUSE_RUN_DIR", dir.path().join("run"));
            let ran = shell.output().expect("it runs");
            assert!(ran.status.success(), "{line}: {}", said(&ran));
        }
        assert_eq!(daemon.good("zfs mount"), before);
        assert_eq!(fs::read_to_string(&file).expect("it is mounted again"), text);
    }
    daemon.good("zpool export tank");
}

/// Goal: the daemon notifies a service manager when it serves and when it ends. A second daemon in
/// the same directory reports the first.
#[test]
fn told() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
    let start = || {
        command(dir.path(), "serve")
            .arg("--run-dir")
            .arg(dir.path().join("run"))
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("a daemon")
    };
    let hear = || {
        let mut text = [0; 64];
        let len = socket.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let child = start();
    assert_eq!(hear(), "READY=1\nSTATUS=serving");
    UnixStream::connect(dir.path().join("run/control.sock")).expect("it serves");
    let second = start().wait_with_output().expect("it ends");
    assert!(!second.status.success());
    let (pid, at) = (child.id().to_string(), dir.path().join("run/control.sock"));
    let running = format!(
        "cannot serve: a daemon runs already at {} (pid {pid}). Commands use it. To start another one, \
         end it with 'kill {pid}', or choose another folder with --run-dir.\n",
        at.display()
    );
    assert!(said(&second).ends_with(&running), "{}", said(&second));
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill").success());
    assert_eq!(hear(), "STOPPING=1");
    assert!(child.wait_with_output().expect("it ends").status.success());
}

/// Goal: a pool whose device never responds blocks no other pool. Lists, states, changes and an
/// export of the other complete, and the hanging pool continues when its device does.
///
/// Its device is a file in a pool of another daemon, which is stopped.
#[test]
fn one_sick_pool() {
    let Some((ground, under)) = tank() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(dir.path());
    let (at, below) = (dir.path().display(), ground.path().display());
    image(&ground.path().join("mnt/home/d1"));
    image(&dir.path().join("d2"));
    daemon.good(&format!("zpool create -m {at}/sick sick {below}/mnt/home/d1"));
    daemon.good(&format!("zpool create -m {at}/well well {at}/d2"));
    fs::write(dir.path().join("sick/file"), "before").expect("it is mounted");
    daemon.good("zpool sync sick");
    under.signal("STOP");
    // A writer waits for the hanging pool, and so does a command.
    let waiting = dir.path().join("sick/file");
    let writer = std::thread::spawn(move || {
        fs::write(&waiting, vec![7; 4 << 20]).and_then(|()| fs::File::open(&waiting)?.sync_all())
    });
    let asked = command(dir.path(), "zpool sync sick").spawn().expect("it runs");
    // A waiting command that is killed in the middle.
    let mut gone = command(dir.path(), "zpool sync sick").spawn().expect("it runs");
    gone.kill().and_then(|()| gone.wait()).expect("it is ended");
    fs::write(dir.path().join("well/file"), "content").expect("it is mounted");
    for line in [
        "zpool list -H -o name,health well",
        "zpool status well",
        "zpool get all well",
        "zfs list -r well",
        "zfs snapshot well@now",
        "zpool sync well",
        "zpool list",
        "zpool status",
        "zfs mount",
        "zfs unmount well",
        "zfs mount well",
        "zpool export well",
    ] {
        // A command that hangs is killed, so that the test ends.
        let words: Vec<&str> = line.split(' ').collect();
        let ran = Command::new("timeout")
            .args(["-s", "KILL", "120", env!("CARGO_BIN_EXE_poolhouse")])
            .args(&words)
            .env("POOLHOUSE_RUN_DIR", dir.path().join("run"))
            .current_dir("/")
            .output()
            .expect("it runs");
        assert!(ran.status.success(), "{line}: {} {}", ran.status, said(&ran));
    }
    under.signal("CONT");
    writer.join().expect("a thread").expect("it is written in the end");
    assert!(asked.wait_with_output().expect("it ends").status.success());
    daemon.good("zpool export sick");
    drop(daemon);
    under.good("zpool export tank");
}

/// Goal: the helper of mount(8) mounts file systems with `mountpoint=legacy` at the given place,
/// and no others, with its exit codes.
#[test]
fn by_mount() {
    let Some((dir, daemon)) = tank() else { return };
    let at = dir.path().display().to_string();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_poolhouse"), dir.path().join("mount.zfs"))
        .expect("a link");
    let helper = |line: &str| {
        let mut helper = Command::new(dir.path().join("mount.zfs"));
        helper.args(line.split(' ')).env("POOLHOUSE_RUN_DIR", dir.path().join("run")).current_dir(dir.path());
        let ran = helper.output().expect("it runs");
        (ran.status.code(), said(&ran))
    };
    daemon.good("zfs create -o mountpoint=legacy tank/old");
    fs::create_dir(dir.path().join("there")).expect("a folder");
    let (code, text) = helper("tank/home there -o rw");
    assert!(
        code == Some(1) && text.contains("Use 'zfs set mountpoint=legacy' or 'zfs mount tank/home'."),
        "{text}"
    );
    assert_eq!(helper("tank/none there").0, Some(1));
    assert_eq!(helper("tank/old nowhere"), (Some(2), "mount point 'nowhere' does not exist\n".to_owned()));
    assert_eq!(helper("tank/old"), (Some(1), "missing mountpoint argument\n".to_owned()));
    assert_eq!(helper("tank/old there -o rw,noauto,x-systemd.automount"), (Some(0), String::new()));
    fs::write(dir.path().join("there/file"), "content").expect("it is mounted");
    assert!(daemon.good("zfs mount").contains(&format!("tank/old                        {at}/there\n")));
    assert_eq!(
        helper("tank/old there"),
        (Some(128), "filesystem 'tank/old' is already mounted\n".to_owned())
    );
    // As with OpenZFS, umount(8) unmounts what mount(8) has mounted.
    let refused = daemon.ran(&format!("zfs unmount {at}/there"));
    assert!(said(&refused).contains("use umount(8) to unmount this filesystem"), "{}", said(&refused));
    assert!(Command::new("umount").arg(dir.path().join("there")).status().expect("umount").success());
    assert!(!dir.path().join("there/file").exists());
    daemon.good("zpool export tank");
}

/// Goal: a pool whose file is removed while it is imported is used, written and exported as before,
/// since the file is open. A later import names the pool as missing.
#[test]
fn file_gone() {
    let Some((dir, mut daemon)) = tank() else { return };
    let file = dir.path().join("mnt/home/file");
    fs::remove_file(dir.path().join("d0")).expect("it is there");
    fs::write(&file, "content").and_then(|()| fs::File::open(&file)?.sync_all()).expect("it is mounted");
    assert_eq!(daemon.good("zpool list -H -o name,health tank"), "tank\tONLINE\n");
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    let daemon = Daemon::start(dir.path());
    let lost = daemon.ran(&format!("zpool import -c {}/cache tank", dir.path().display()));
    assert!(
        !lost.status.success() && said(&lost).contains("cannot import 'tank': no such pool available"),
        "{}",
        said(&lost)
    );
}

/// Goal: a daemon starts with the given tunables, and refuses to start with an invalid one.
#[test]
fn tunables_from_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    for (wrong, why) in
        [("zfs_nothing=1", "there is no such tunable"), ("zfs_txg_timeout=0", "'0' is not between")]
    {
        assert!(Daemon::start_with(dir.path(), &["--tunable", wrong]).is_none(), "{wrong}");
        let log = fs::read_to_string(dir.path().join("log")).expect("it said something");
        assert!(log.contains("cannot set 'zfs_") && log.contains(why), "{log}");
    }
    let words = ["--tunable", "zfs_probe_timeout_ms=1234", "--tunable", "zfs_arc_max=100000000"];
    let daemon = Daemon::start_with(dir.path(), &words).expect("a daemon");
    let got = |name: &str| daemon.good(&format!("get tunable {name}"));
    assert_eq!(got("zfs_probe_timeout_ms"), "1234\n");
    assert_eq!(got("zfs_arc_max"), "100000000\n");
}

/// Goal: the daemon serves to Prometheus, at the given address, what the command prints: device
/// states, errors, service times, the cache.
///
/// It serves nothing else there. A daemon that can't use the address reports that.
#[test]
fn metrics() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path().display().to_string();
    let Some(daemon) = Daemon::start_with(dir.path(), &["--metrics", "127.0.0.1:0"]) else {
        panic!("no daemon")
    };
    for disk in ["d0", "d1"] {
        image(&dir.path().join(disk));
    }
    daemon.good(&format!("zpool create -m none -o cachefile=none watched mirror {at}/d0 {at}/d1"));
    daemon.good(&format!("zpool offline watched {at}/d1"));
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    let address =
        log.lines().find_map(|line| line.split_once("metrics at=")).expect("it says where").1.trim();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("it hears");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let page = ask("GET /metrics");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("openmetrics-text"), "{page}");
    let own = daemon.good("metrics");
    let of = |disk: &str| format!(r#"pool="watched",vdev="{disk}",path="{at}/{disk}",role="data""#);
    for text in [&page, &own] {
        for line in [
            format!("poolhouse_vdev_state{{{},state=\"online\"}} 1", of("d0")),
            format!("poolhouse_vdev_state{{{},state=\"offline\"}} 1", of("d1")),
            format!("poolhouse_vdev_write_errors_total{{{}}} 0", of("d0")),
            "poolhouse_vdev_state{pool=\"watched\",vdev=\"mirror-0\",path=\"\",role=\"data\",state=\"degraded\"} 1"
                .to_owned(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let number = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(name) && !line.ends_with(' ')).expect(name);
            line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect(name)
        };
        let writes = format!("poolhouse_vdev_write_service_seconds_count{{{}}}", of("d0"));
        assert!(number(&writes) > 0.0 && number("poolhouse_arcstats_c_max ") > 0.0, "{text}");
    }
    assert!(ask("GET /").starts_with("HTTP/1.1 404") && ask("POST /metrics").starts_with("HTTP/1.1 405"));
    let other = tempfile::tempdir().expect("a folder");
    let refused = command(other.path(), &format!("serve --metrics {address}")).output().expect("poolhouse");
    let told = format!("cannot serve: cannot serve metrics at {address}: Address already in use\n");
    // Messages about the daemon's start come before it.
    assert!(refused.status.code() == Some(1) && said(&refused).ends_with(&told), "{}", said(&refused));
    daemon.good("zpool destroy watched");
}
