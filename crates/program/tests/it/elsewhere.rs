//! Mounts with other users: in other mount namespaces, by bind mounts, below renamed directories,
//! and on top of each other.
//!
//! The tests need root. Without it they print a message and do nothing.

use crate::daemon;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::daemon::{Daemon, image, said};

/// A script for another mount namespace. It unmounts other tests' mounts, opens a file, and writes
/// each line of its input to the file.
const WRITER: &str = "cut -d' ' -f2,3 /proc/self/mounts | grep ' fuse.poolhouse$' | cut -d' ' -f1 | grep -v \"^$1/\" | \
                      while read -r other; do umount -l \"$other\" 2>/dev/null; done; \
                      exec 9>>\"$2\" && echo ready && while read -r line; do echo \"$line\" >&9 && echo written || echo lost; done";

/// A program in another mount namespace that writes to a file.
struct Writer {
    child: Child,
    lines: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

impl Writer {
    /// Returns `None` if that is not possible.
    fn start(dir: &Path, file: &Path) -> Option<Self> {
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", WRITER, "sh"])
            .args([dir, file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("there is no unshare here");
            return None;
        };
        let lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let input = child.stdin.take();
        let mut writer = Self { child, lines, input };
        if writer.line() != "ready" {
            eprintln!("there can be no other namespace of mounts here");
            return None;
        }
        Some(writer)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    }

    fn write(&mut self, text: &str) {
        writeln!(self.input.as_mut().expect("it is open"), "{text}").expect("a pipe");
        assert_eq!(self.line(), "written", "{text}");
    }

    /// Ends the program, and its mounts with it.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("a child").success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// A daemon with a pool `tank` that is mounted on `mnt`, with a file system `a`. Returns `None` if
/// root can't mount.
fn tank() -> Option<(tempfile::TempDir, Daemon, PathBuf)> {
    if !Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n") {
        eprintln!("this takes root");
        return None;
    }
    let (dir, daemon) = daemon::tank()?;
    daemon.good("zfs rename tank/home tank/a");
    let mnt = dir.path().join("mnt");
    Some((dir, daemon, mnt))
}

/// The mount points of a test in the mount table.
fn table(dir: &Path) -> Vec<PathBuf> {
    let all = fuse::system::table().expect("a table").into_iter().map(|mount| mount.target);
    let mut all: Vec<_> = all.filter(|target| target.starts_with(dir)).collect();
    all.sort();
    all
}

fn refused(daemon: &Daemon, line: &str, why: &str) {
    let ran = daemon.ran(line);
    assert_eq!((ran.status.code(), said(&ran).as_str()), (Some(1), why), "{line}");
}

fn import(dir: &Path, daemon: &Daemon) {
    daemon.good(&format!("zpool import -d {at}/d0 -o cachefile={at}/cache tank", at = dir.display()));
}

/// Goal: a program in another mount namespace can use its file while the file system is unmounted,
/// mounted again and renamed here.
///
/// Until it ends, the file system can't be destroyed and its pool can't be exported. After a
/// refused export, all are mounted as before.
#[test]
fn in_another_namespace() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    let Some(mut writer) = Writer::start(dir.path(), &mnt.join("a/file")) else { return };
    let by = format!("in use by sh (pid {})", writer.child.id());
    let dataset = format!("cannot destroy 'tank/a': dataset is busy: {by}\n");
    let pool = format!("cannot export 'tank': pool is busy: 'tank/a' is {by}\n");
    writer.write("one");
    daemon.good("zfs unmount tank/a");
    assert_eq!(table(dir.path()), std::slice::from_ref(&mnt));
    writer.write("two");
    assert_eq!(daemon.good("zfs get -Ho value mounted tank/a"), "no\n");
    refused(&daemon, "zfs destroy tank/a", &dataset);
    refused(&daemon, "zpool export tank", &pool);
    refused(&daemon, "zpool export -f tank", &pool);
    assert_eq!(table(dir.path()), std::slice::from_ref(&mnt));
    writer.write("three");
    daemon.good("zfs mount tank/a");
    assert_eq!(fs::read_to_string(mnt.join("a/file")).expect("it is mounted"), "one\ntwo\nthree\n");
    // Both are mounted in the other namespace.
    let pool = pool.replace("'tank/a'", "'tank'");
    refused(&daemon, "zpool export tank", &pool);
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a")]);
    refused(&daemon, "zfs destroy tank/a", &dataset);
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a")]);
    writer.write("four");
    daemon.good("zfs rename tank/a tank/b");
    writer.write("five");
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("b")]);
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(log.contains(&format!("({}, \"sh\")", writer.child.id())), "the log names the user: {log}");
    writer.end();
    daemon.good("zpool export tank");
    assert_eq!(table(dir.path()), Vec::<PathBuf>::new());
    import(dir.path(), &daemon);
    let text = fs::read_to_string(mnt.join("b/file")).expect("it is mounted");
    assert_eq!(text, "one\ntwo\nthree\nfour\nfive\n");
    daemon.good("zfs destroy tank/b");
    daemon.good("zpool export tank");
}

/// The lines of a test in the mount table.
fn lines(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mounts").expect("a table");
    let own = text.lines().filter(|line| line.contains(&format!(" {}", dir.display())));
    own.map(str::to_owned).collect()
}

fn run(program: &str, words: &[&Path]) {
    let ran = Command::new(program).args(words).output().expect("it runs");
    assert!(ran.status.success(), "{}", said(&ran));
}

/// Goal: an export that is refused, because another namespace or a bind mount has a file system
/// mounted, unmounts nothing, not even for a moment.
///
/// Mount flags that were set without the daemon are still there.
#[test]
fn refused_before_anything_is_unmounted() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    let other = dir.path().join("other");
    fs::create_dir(&other).expect("a folder");
    for at in [&mnt, &mnt.join("a")] {
        run("mount", &[Path::new("-o"), Path::new("remount,bind,noexec"), at]);
    }
    let before = lines(dir.path());
    assert!(before.len() == 2 && before.iter().all(|line| line.contains("noexec")), "{before:?}");
    let again = || {
        for line in ["zpool export tank", "zpool export -f tank", "zpool destroy tank"] {
            let ran = daemon.ran(line);
            assert!(!ran.status.success() && said(&ran).contains("busy"), "{line}: {}", said(&ran));
        }
    };
    let Some(mut writer) = Writer::start(dir.path(), &mnt.join("a/file")) else { return };
    writer.write("one");
    again();
    assert_eq!(lines(dir.path()), before);
    writer.write("two");
    writer.end();
    run("mount", &[Path::new("--bind"), &mnt.join("a"), &other]);
    again();
    run("umount", &[&other]);
    assert_eq!(lines(dir.path()), before);
    daemon.good("zpool export tank");
    assert_eq!(table(dir.path()), Vec::<PathBuf>::new());
    import(dir.path(), &daemon);
    assert_eq!(fs::read_to_string(mnt.join("a/file")).expect("it is mounted"), "one\ntwo\n");
    daemon.good("zpool export tank");
}

/// Goal: a snapshot can't be destroyed while it is mounted elsewhere.
#[test]
fn a_snapshot_elsewhere() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    fs::write(mnt.join("a/file"), "then").expect("it is mounted");
    daemon.good("zfs snapshot tank/a@s");
    let (at, other) = (dir.path().join("at"), dir.path().join("other"));
    fs::create_dir(&other).expect("a folder");
    fs::create_dir(&at).expect("a folder");
    daemon.good(&format!("mount.zfs tank/a@s {}", at.display()));
    run("mount", &[Path::new("--bind"), &at, &other]);
    daemon.good(&format!("zfs unmount {}", at.display()));
    let ran = daemon.ran("zfs destroy tank/a@s");
    assert!(said(&ran).contains("busy"), "{}", said(&ran));
    assert_eq!(fs::read_to_string(other.join("file")).expect("it is served"), "then");
    run("umount", &[&other]);
    daemon.good("zfs destroy tank/a@s");
    daemon.good("zpool export tank");
}

/// Goal: a bind mount keeps a file system served and busy like another namespace, also after the
/// mount point was unmounted from outside.
///
/// A daemon that is stopped waits for neither, and earlier writes are durable.
#[test]
fn by_a_bind_mount() {
    let Some((dir, mut daemon, mnt)) = tank() else { return };
    let other = dir.path().join("other");
    fs::create_dir(&other).expect("a folder");
    run("mount", &[Path::new("--bind"), &mnt.join("a"), &other]);
    run("umount", &[&mnt.join("a")]);
    let by = format!("in use by another mount of it, at {}", other.display());
    refused(&daemon, "zfs destroy tank/a", &format!("cannot destroy 'tank/a': dataset is busy: {by}\n"));
    fs::write(other.join("file"), "by the other way").expect("it is served");
    daemon.good("zfs unmount tank/a");
    assert_eq!(table(dir.path()), [mnt.clone(), other.clone()]);
    assert_eq!(fs::read_to_string(other.join("file")).expect("it is served"), "by the other way");
    daemon.good("zfs mount tank/a");
    run("umount", &[&other]);
    daemon.good("zfs unmount tank/a");
    daemon.good("zfs mount tank/a");
    run("mount", &[Path::new("--bind"), &mnt.join("a"), &other]);
    daemon.good("zfs unmount tank/a");
    fs::write(other.join("more"), "before the end").expect("it is served");
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    run("umount", &[&other]);
    assert_eq!(table(dir.path()), Vec::<PathBuf>::new());
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(log.contains("its users lose it"), "{log}");
    let daemon = Daemon::start(dir.path());
    import(dir.path(), &daemon);
    assert_eq!(fs::read_to_string(mnt.join("a/more")).expect("it is mounted"), "before the end");
    daemon.good("zpool export tank");
}

/// Goal: a file system mounted below a renamed directory is unmounted at its current path, by
/// dataset or by path. An export leaves no mount.
#[test]
fn under_a_renamed_folder() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::create_dir(&old).expect("a folder");
    daemon.good(&format!("zfs create -o mountpoint={}/x tank/x", old.display()));
    fs::rename(&old, &new).expect("nothing hinders it");
    fs::write(new.join("x/file"), "here").expect("it is mounted");
    daemon.good("zfs unmount tank/x");
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a")]);
    daemon.good("zfs mount tank/x");
    // Another directory has its old name.
    fs::remove_dir(new.join("x")).expect("it is empty");
    fs::remove_dir(&new).expect("it is empty");
    fs::rename(&old, &new).expect("nothing hinders it");
    fs::create_dir_all(old.join("x")).expect("a folder");
    daemon.good(&format!("zfs unmount {}/x", new.display()));
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a")]);
    daemon.good("zfs mount tank/x");
    fs::remove_dir(new.join("x")).expect("it is empty");
    fs::remove_dir(&new).expect("it is empty");
    fs::rename(&old, &new).expect("nothing hinders it");
    daemon.good("zpool export tank");
    assert_eq!(table(dir.path()), Vec::<PathBuf>::new());
}

/// Goal: concurrent unmounts of file systems with one mount point each succeed or are refused, and
/// leave no file system dead or busy.
#[test]
fn several_at_one_place() {
    const NAMES: [&str; 4] = ["w", "x", "y", "z"];
    let Some((dir, daemon, mnt)) = tank() else { return };
    let at = dir.path().join("at");
    for round in 0..3 {
        for name in NAMES {
            if round == 0 {
                daemon.good(&format!("zfs create -o mountpoint={} tank/{name}", at.display()));
            } else {
                daemon.good(&format!("zfs mount -O tank/{name}"));
            }
        }
        let unmount = |name: &str| {
            let mut command = daemon::command(dir.path(), &format!("zfs unmount tank/{name}"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
        };
        let running: Vec<_> = NAMES.into_iter().chain(NAMES).rev().map(unmount).collect();
        for child in running {
            let ran = child.wait_with_output().expect("it ends");
            let told = |what: &str| said(&ran).contains(what);
            let fine = ran.status.success() || told("busy") || told("not currently mounted");
            assert!(fine, "{}", said(&ran));
        }
        let left = table(&at).len();
        let mounted = |name: &&str| daemon.good(&format!("zfs get -Ho value mounted tank/{name}")) == "yes\n";
        let said_mounted: Vec<&str> = NAMES.into_iter().rev().filter(mounted).collect();
        assert_eq!(left, said_mounted.len(), "round {round}: {said_mounted:?}");
        // A file system whose unmount was refused may be mounted again, above the others.
        let mut left = said_mounted;
        while !left.is_empty() {
            let before = left.len();
            left.retain(|name| !daemon.ran(&format!("zfs unmount tank/{name}")).status.success());
            assert!(left.len() < before, "round {round}: none of {left:?} can be unmounted");
        }
        assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a")], "round {round}");
    }
    daemon.good("zpool export tank");
}

/// Goal: an export of several pools leaves the one in use mounted as it was, also if another pool
/// was mounted in it.
#[test]
fn refused_for_one_of_several() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    let at = dir.path().display();
    image(&dir.path().join("d1"));
    daemon.good(&format!("zpool create -o cachefile={at}/cache -m {at}/mnt/a/more more {at}/d1"));
    daemon.good("zfs create tank/b");
    let used = fs::File::create(mnt.join("b/file")).expect("it is mounted");
    let ran = daemon.ran("zpool export tank more");
    assert!(!ran.status.success() && said(&ran).contains("busy"), "{}", said(&ran));
    assert_eq!(daemon.good("zpool list -Ho name"), "tank\n");
    assert_eq!(table(dir.path()), [mnt.clone(), mnt.join("a"), mnt.join("b")]);
    drop(used);
    daemon.good("zpool export tank");
}

/// Goal: a file system in use makes an export or a change of a mount point fail. All others then
/// stay mounted where and as they were.
#[test]
fn refused_for_one() {
    let Some((dir, daemon, mnt)) = tank() else { return };
    image(&dir.path().join("d1"));
    daemon.good("zfs create tank/b");
    daemon.good("zfs create -o mountpoint=legacy tank/c");
    daemon.good("zfs unmount tank/b");
    daemon.good("zfs mount -o ro,noexec tank/b");
    let legacy = dir.path().join("legacy");
    fs::create_dir(&legacy).expect("a folder");
    daemon.good(&format!("mount.zfs tank/c {}", legacy.display()));
    let lines = || {
        let mut own = lines(dir.path());
        own.sort();
        own
    };
    let before = lines();
    assert_eq!(before.len(), 4);
    let used = fs::File::create(mnt.join("a/file")).expect("it is mounted");
    for line in [
        "zpool export tank",
        "zpool export -f tank",
        "zpool destroy tank",
        "zfs set mountpoint=/nowhere tank",
    ] {
        let ran = daemon.ran(line);
        assert!(!ran.status.success() && said(&ran).contains("busy"), "{line}: {}", said(&ran));
        assert_eq!(lines(), before, "{line}");
    }
    drop(used);
    daemon.good("zpool export tank");
    assert!(lines().is_empty());
}
