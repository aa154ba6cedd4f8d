//! File systems nested in the mount of another, by a daemon with `--nest`, which nests all that it
//! can. Programs must behave in them as in the outer one.
//!
//! The tests print a message and do nothing if mounting is not possible.

use std::fmt::{Debug, Display};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::daemon;
use crate::daemon::{Daemon, image, said};
use rustix::fs::{self as sys, FallocateFlags, IFlags, RenameFlags, SeekFrom, XattrFlags, inotify};

/// A daemon with a pool `tank` on `mnt`, and with the file systems `a`, `a/b` and `other` in its
/// mount.
struct Nest {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Nest {
    /// Returns `None` if mounting is not possible. `more` are options of `zpool create`.
    fn new(more: &str) -> Option<Self> {
        Self::by(&["--nest"], more)
    }

    /// As `new`, with these options of the daemon.
    fn by(options: &[&str], more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start_with(dir.path(), options).expect("the daemon ended");
        let at = dir.path().display();
        image(&dir.path().join("d0"));
        let made = daemon.ran(&format!("zpool create {more} -m {at}/mnt tank {at}/d0"));
        if !made.status.success() {
            eprintln!("nothing can be mounted here: {}", said(&made));
            return None;
        }
        for name in ["tank/a", "tank/a/b", "tank/other"] {
            daemon.good(&format!("zfs create {name}"));
        }
        Some(Self { daemon, dir })
    }

    fn good(&self, line: &str) -> String {
        self.daemon.good(line)
    }

    /// Runs a command that must fail. Returns its output.
    fn bad(&self, line: &str) -> String {
        let ran = self.daemon.ran(line);
        assert!(!ran.status.success(), "{line}: {}", said(&ran));
        said(&ran)
    }

    /// A path in the mount.
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("mnt").join(path)
    }

    /// The options of the pool's mounts in the kernel's table.
    fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
        let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let at = self.dir.path().join("mnt");
        let ours = lines.filter(|words| Path::new(words[1]).starts_with(&at));
        ours.map(|words| words[3].to_owned()).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Goal: if a file system in use prevents an unmount, all of its tree stays mounted, nested or not.
/// So no program writes to the directory below an unmounted one.
///
/// `zfs unmount -a` unmounts the rest.
#[test]
fn a_refused_unmount_leaves_all_mounted() {
    for options in [&["--nest"][..], &[]] {
        let Some(nest) = Nest::by(options, "") else { return };
        let mounted = || nest.good("zfs list -H -o mounted -r tank");
        for used in ["", "a/b"] {
            let open = fs::File::create(nest.at(used).join("open")).expect("a file");
            assert!(nest.bad("zfs unmount tank").contains("busy"), "{options:?}");
            assert_eq!(mounted(), "yes\n".repeat(4), "{options:?}, {used:?} is used");
            drop(open);
        }
        fs::write(nest.at("other/file"), "content").expect("it is mounted");
        let open = fs::File::create(nest.at("a/b/open")).expect("a file");
        assert!(nest.bad("zfs unmount -a").contains("busy"));
        assert_eq!(mounted(), "yes\nyes\nyes\nno\n", "{options:?}");
        assert!(!nest.at("other/file").exists());
        drop(open);
        nest.good("zfs unmount tank/a");
        assert_eq!(mounted(), "yes\nno\nno\nno\n", "{options:?}");
    }
}

/// Goal: with `--nest`, one mount has all file systems that lie in each other, and the kernel's
/// options of it never contradict theirs.
///
/// A change that one of them would contradict is refused with its name, and a change that all
/// inherit is made.
#[test]
fn one_mount_for_all() {
    let Some(nest) = Nest::new("") else { return };
    let has = |word: &str| nest.mounts()[0].split(',').any(|option| option == word);
    assert_eq!((nest.mounts().len(), nest.good("zfs list -H -o mounted -r tank")), (1, "yes\n".repeat(4)));
    let mnt = nest.at("").display().to_string();
    let mnt = mnt.trim_end_matches('/');
    if !is_root() {
        return;
    }
    for (prop, word) in [("setuid", "nosuid"), ("devices", "nodev"), ("exec", "noexec")] {
        nest.good(&format!("zfs set {prop}=off tank"));
        assert!(has(word));
        nest.good(&format!("zfs set {prop}=off tank/a/b"));
        let told = nest.bad(&format!("zfs set {prop}=on tank"));
        let expected =
            format!("a file system in the mount of {mnt} has {prop}=off, which takes effect only if");
        assert!(told.contains(&expected) && has(word), "{told}");
        nest.good(&format!("zfs inherit {prop} tank/a/b"));
        assert!(!has(word));
        let told = nest.bad(&format!("zfs set {prop}=off tank/a"));
        let expected = format!("{prop}=off takes effect only if {mnt} says the same");
        assert!(told.contains(&expected), "{told}");
        // It can't be mounted with that property either.
        nest.good("zfs unmount tank/a");
        assert!(nest.bad("zfs mount tank/a").contains(&expected));
        nest.good(&format!("zfs inherit {prop} tank/a"));
        nest.good("zfs mount -a");
    }
    nest.good("zfs set readonly=on tank");
    assert!(has("ro"));
    nest.good("zfs set readonly=off tank");
    fs::write(nest.at("a/b/file"), "content").expect("it can be written");
    // A nested file system with `readonly=on` is protected by the daemon, and the mount is not
    // read-only.
    nest.good("zfs set readonly=on tank/a/b");
    let refused = fs::write(nest.at("a/b/file"), "other").map_err(|error| error.raw_os_error());
    assert_eq!((refused, has("ro")), (Err(Some(30)), false));
    nest.good("zfs set readonly=off tank/a");
    assert!(nest.bad("zfs set readonly=on tank").contains("has readonly=off"));
    fs::write(nest.at("a/file"), "content").expect("it can be written");
    // A file system with its own mount has its own flags too.
    nest.good(&format!("zfs create -o mountpoint={}/out -o exec=off tank/out", nest.dir.path().display()));
    assert_eq!(nest.mounts().len(), 1);
    nest.good("zpool export tank");
}

/// A Python program for what Rust's safe functions lack: locks of processes and of open files, and
/// memory maps.
const LOCKS_AND_MAPS: &str = r#"
import fcntl, mmap, os, struct, sys
f = open('locked', 'w+b'); f.write(b'0' * 8192); f.flush()
g = open('locked', 'r+b')
def lock(file, command, kind, start=0, length=0):
    try:
        fcntl.fcntl(file, command, struct.pack('hhqqi', kind, 0, start, length, 0)); return 'ok'
    except OSError as error:
        return error.errno
SETLK, OFD, WRITE, READ, FREE = 6, 37, 1, 0, 2
def child(work):
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, repr(work()).encode()); os._exit(0)
    os.wait(); return os.read(r, 100).decode()
print(lock(f, SETLK, WRITE, 0, 10), child(lambda: lock(g, SETLK, READ)), child(lambda: lock(g, SETLK, READ, 10, 5)), lock(f, SETLK, FREE))
print(lock(f, OFD, READ, 0, 10), lock(g, OFD, WRITE), lock(g, OFD, READ), lock(f, OFD, FREE), lock(g, OFD, WRITE), lock(g, OFD, FREE))
fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB); fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB)
try:
    fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as error:
    print(error.errno)
m = mmap.mmap(f.fileno(), 8192); m[4096:4100] = b'maps'; m.flush()
print(os.pread(g.fileno(), 4, 4096), os.pwrite(g.fileno(), b'file', 0), m[0:4])
p = mmap.mmap(f.fileno(), 8192, flags=mmap.MAP_PRIVATE); p[0:4] = b'mine'
print(os.pread(g.fileno(), 4, 0), p[0:4])
"#;

/// Operations of a program in a directory, and their results, one line each.
struct Deeds {
    dir: PathBuf,
    said: Vec<String>,
}

impl Deeds {
    fn say(&mut self, what: impl Display, done: impl Debug) {
        self.said.push(format!("{what}: {done:?}"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn open(&self, name: &str) -> fs::File {
        fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(name))
            .expect("a file")
    }

    /// Holes. Returns the file that has them.
    fn holes(&mut self) -> fs::File {
        let holes = self.open("holes");
        for (what, flags, from, len) in [
            ("allocate", FallocateFlags::empty(), 0, 1 << 20),
            ("keep", FallocateFlags::KEEP_SIZE, 0, 2 << 20),
            ("zero", FallocateFlags::ZERO_RANGE, 0, 1 << 20),
            ("collapse", FallocateFlags::COLLAPSE_RANGE, 0, 1 << 17),
            ("insert", FallocateFlags::INSERT_RANGE, 0, 1 << 17),
        ] {
            self.say(
                what,
                (sys::fallocate(&holes, flags, from, len), holes.metadata().map(|m| m.len()).ok()),
            );
        }
        holes.write_all_at(&[7; 1 << 20], 0).and_then(|()| holes.sync_all()).expect("it can be written");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.say("punch", sys::fallocate(&holes, punch, 1 << 18, 1 << 18));
        holes.sync_all().expect("it syncs");
        for at in [0, 1 << 18, 1 << 19, 1 << 20, 2 << 20] {
            self.say(at, (sys::seek(&holes, SeekFrom::Data(at)), sys::seek(&holes, SeekFrom::Hole(at))));
        }
        let mut bytes = vec![1; 1 << 20];
        holes.read_exact_at(&mut bytes, 0).expect("it can be read");
        self.say("zeros", bytes.iter().filter(|byte| **byte == 0).count());
        holes
    }

    /// Copies, clones and flags.
    fn copies(&mut self, holes: &fs::File) {
        let copy = self.open("copy");
        let (mut from, mut to) = (5, 3);
        self.say("copy", sys::copy_file_range(holes, Some(&mut from), &copy, Some(&mut to), 100_000));
        self.say("copied", (from, to, copy.metadata().map(|m| m.len()).ok()));
        self.say("clone", sys::ioctl_ficlone(&copy, holes));
        self.say("flags", sys::ioctl_getflags(&copy));
        self.say("append", sys::ioctl_setflags(&copy, IFlags::APPEND));
        self.say(
            "appends",
            (sys::ioctl_getflags(&copy), copy.write_all_at(b"x", 0).map_err(|e| e.raw_os_error())),
        );
        self.say("plain", sys::ioctl_setflags(&copy, IFlags::empty()));
    }

    /// Extended attributes and ACLs.
    fn attributes(&mut self) {
        // An ACL: version 2, then owner, user 1, group, mask, others.
        let acl: Vec<u8> =
            [(1_u16, 6_u16, u32::MAX), (2, 5, 1), (4, 4, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)]
                .into_iter()
                .flat_map(|(tag, may, id)| {
                    [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
                })
                .collect();
        let acl = [&2_u32.to_le_bytes()[..], &acl].concat();
        fs::create_dir(self.path("acl")).expect("a folder");
        for (name, value) in [
            ("user.a", &b"value"[..]),
            ("user.large", &[9; 40_000]),
            ("trusted.a", b"value"),
            ("security.a", b"value"),
            ("system.nfs4_acl", b"value"),
            ("system.nfs4_acl_xdr", b"value"),
            ("system.posix_acl_access", &acl),
            ("system.posix_acl_default", &acl),
            ("system.posix_acl_default", b"none"),
            ("none", b"value"),
        ] {
            let mut got = vec![0; 65_536];
            for at in ["acl", "copy"] {
                let set = sys::setxattr(self.path(at), name, value, XattrFlags::empty());
                let len = sys::getxattr(self.path(at), name, &mut got[..]);
                self.say(format!("{at} {name}"), (set, len.map(|len| &got[..len] == value)));
            }
        }
        fs::write(self.path("acl/heir"), "").expect("a file");
        let mut got = vec![0; 1024];
        self.say(
            "heir",
            sys::getxattr(self.path("acl/heir"), "system.posix_acl_access", &mut got[..])
                .map(|len| got[..len].to_vec()),
        );
        self.say("mode", fs::metadata(self.path("acl/heir")).map(|m| m.mode()).ok());
        let len = sys::listxattr(self.path("copy"), &mut got[..]).expect("names");
        self.say("names", String::from_utf8_lossy(&got[..len]));
        self.say("remove", sys::removexattr(self.path("copy"), "user.a"));
    }

    fn files_without_names(&mut self) {
        let flags = sys::OFlags::TMPFILE | sys::OFlags::RDWR | sys::OFlags::CLOEXEC;
        let nameless = sys::open(&self.dir, flags, sys::Mode::from_raw_mode(0o640)).map(fs::File::from);
        let linked = nameless.as_ref().map(|file| {
            let number = format!("/proc/self/fd/{}", file.as_raw_fd());
            file.write_all_at(b"named", 0).expect("it can be written");
            sys::linkat(sys::CWD, number, sys::CWD, self.path("named"), sys::AtFlags::SYMLINK_FOLLOW)
        });
        self.say("named", (linked, fs::read(self.path("named")).ok()));
    }

    /// Files with a name and no contents.
    fn special_files(&mut self) {
        for (what, kind, device) in
            [("fifo", sys::FileType::Fifo, 0), ("null", sys::FileType::CharacterDevice, sys::makedev(1, 3))]
        {
            let made = sys::mknodat(sys::CWD, self.path(what), kind, sys::Mode::from_raw_mode(0o600), device);
            let opened = fs::File::options()
                .read(true)
                .write(true)
                .open(self.path(what))
                .map_err(|e| e.raw_os_error());
            self.say(
                what,
                (
                    made,
                    opened.map(|mut file| file.write(b"x").ok()),
                    fs::metadata(self.path(what)).map(|m| m.rdev()).ok(),
                ),
            );
        }
        let socket = UnixListener::bind(self.path("socket")).expect("a socket");
        self.say("socket", UnixStream::connect(self.path("socket")).is_ok());
        // A child process that another test has just forked has a copy of the listener until it
        // executes its program.
        rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).expect("it listens");
        drop(socket);
        self.say("nobody", UnixStream::connect(self.path("socket")).map_err(|e| e.raw_os_error()).err());
    }

    fn renames(&mut self) {
        for (what, how) in [
            ("exchange", RenameFlags::EXCHANGE),
            ("keep", RenameFlags::NOREPLACE),
            ("whiteout", RenameFlags::WHITEOUT),
        ] {
            fs::write(self.path("one"), "one")
                .and_then(|()| fs::write(self.path("two"), "two"))
                .expect("files");
            let moved = sys::renameat_with(sys::CWD, self.path("one"), sys::CWD, self.path("two"), how);
            let kind = fs::symlink_metadata(self.path("one")).map(|m| m.mode()).ok();
            self.say(what, (moved, kind, fs::read(self.path("two")).ok()));
            let _ = fs::remove_file(self.path("one"));
        }
    }

    fn programs(&mut self) {
        testkit::copy_program("/bin/true", self.path("true"));
        self.say("runs", Command::new(self.path("true")).status().map(|s| s.code()).ok());
        fs::write(self.path("script"), "#!/bin/sh\necho $1\n").expect("a file");
        fs::set_permissions(self.path("script"), fs::Permissions::from_mode(0o4755)).expect("a mode");
        self.say("script", Command::new(self.path("script")).arg("word").output().map(|o| o.stdout).ok());
    }

    fn watches(&mut self) {
        let watch =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).expect("inotify");
        let kinds = inotify::WatchFlags::CREATE | inotify::WatchFlags::DELETE | inotify::WatchFlags::MOVE;
        inotify::add_watch(&watch, &self.dir, kinds).expect("a watch");
        fs::write(self.path("seen"), "")
            .and_then(|()| fs::rename(self.path("seen"), self.path("moved")))
            .expect("a file");
        fs::remove_file(self.path("moved")).expect("it goes");
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut space);
        while let Ok(event) = events.next() {
            self.say("event", (event.events(), event.file_name()));
        }
    }

    fn locks_and_maps(&mut self) {
        let python = Command::new("python3").args(["-c", LOCKS_AND_MAPS]).current_dir(&self.dir).output();
        match python {
            Ok(ran) => self.said.extend(lines_of(&ran).lines().map(str::to_owned)),
            Err(_) => eprintln!("without locks of processes, and maps: there is no python3 here"),
        }
    }
}

/// The results of many kinds of operations of a program in a directory, one line each.
fn deeds(dir: &Path) -> Vec<String> {
    let mut all = Deeds { dir: dir.to_owned(), said: Vec::new() };
    let holes = all.holes();
    all.copies(&holes);
    all.attributes();
    all.files_without_names();
    all.special_files();
    all.renames();
    all.programs();
    all.watches();
    all.locks_and_maps();
    all.said
}

fn lines_of(ran: &std::process::Output) -> String {
    assert!(ran.status.success(), "{}", said(ran));
    said(ran)
}

/// Goal: operations beyond plain reads and writes give the same results in nested file systems, one
/// or two levels deep, as in the outer one.
///
/// This covers holes, copies, flags, attributes, ACLs, unnamed files, sockets, devices, exchanges,
/// programs, watches, locks and maps. Between two of them nothing can be linked or cloned, and
/// copies copy the data.
#[test]
fn programs_see_no_difference() {
    let Some(nest) = Nest::new("-O acltype=posix -O xattr=sa") else { return };
    let outer = deeds(&nest.at(""));
    for line in ["punch: Ok(())", "runs: Some(Some(0))", "socket: true", "clone: Err"] {
        assert!(outer.iter().any(|deed| deed.starts_with(line)), "{line}: {outer:#?}");
    }
    let python: Vec<&String> = outer.iter().skip_while(|deed| !deed.starts_with("ok ")).collect();
    let right = ["ok 11 'ok' ok", "ok 11 ok ok ok ok", "11", "b'maps' 4 b'file'", "b'file' b'mine'"];
    assert!(python.is_empty() || python == right, "{python:?}");
    for at in ["a", "a/b"] {
        let inner = deeds(&nest.at(at));
        for (outer, inner) in outer.iter().zip(&inner) {
            assert_eq!(outer, inner, "{at}");
        }
        assert_eq!(outer.len(), inner.len());
    }
    let (from, to) = (nest.at("holes"), nest.at("a/across"));
    let (source, target) = (fs::File::open(&from).expect("a file"), fs::File::create(&to).expect("a file"));
    let mut copied = 0;
    while let Ok(more @ 1..) = rustix::fs::copy_file_range(&source, None, &target, None, 1 << 20) {
        copied += more;
    }
    let same = fs::read(&to).expect("a file") == fs::read(&from).expect("a file");
    assert_eq!((copied, same), (1 << 20, true));
    assert!(rustix::fs::ioctl_ficlone(&target, &source).is_err());
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let nameless = rustix::fs::open(nest.at("other"), flags, rustix::fs::Mode::RUSR).expect("a file");
    let number = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    let linked = rustix::fs::linkat(rustix::fs::CWD, number, rustix::fs::CWD, nest.at("a/linked"), follow);
    assert_eq!(linked, Err(rustix::io::Errno::XDEV));
    drop((source, target, nameless));
    nest.good("zpool export tank");
}

/// Goal: a rollback may restore a state in which a nested file system's mount point was missing or
/// elsewhere. The nested file system stays mounted where it was, with its open files.
///
/// If that is impossible, it is unmounted.
#[test]
fn rolled_back_around_others() {
    let Some(nest) = Nest::new("") else { return };
    for line in ["zfs snapshot tank/a@0", "zfs create tank/a/new", "zfs create tank/a/new/deep"] {
        nest.good(line);
    }
    for at in ["a/new", "a/new/deep", "a/b"] {
        fs::write(nest.at(at).join("file"), at).expect("a file");
    }
    let used = fs::File::open(nest.at("a/new/deep/file")).expect("a file");
    nest.good("zfs rollback tank/a@0");
    let here = |at: &str| fs::read_to_string(nest.at(at).join("file")).map_err(|error| error.kind());
    for at in ["a/new", "a/new/deep", "a/b"] {
        assert_eq!(here(at).as_deref(), Ok(at));
    }
    assert_eq!(std::io::read_to_string(&used).expect("it is open"), "a/new/deep");
    assert!(nest.bad("zfs unmount tank/a/new").contains("busy"));
    drop(used);
    nest.good("zfs unmount tank/a/new");
    // The directory is there, and empty.
    assert_eq!(fs::read_dir(nest.at("a/new")).expect("a folder").count(), 0);
    // In the snapshot another directory with contents is at that place, and the old one is
    // elsewhere.
    fs::create_dir(nest.at("a/new/under")).expect("a folder");
    nest.good("zfs snapshot tank/a@1");
    fs::rename(nest.at("a/new"), nest.at("a/old")).expect("it moves");
    nest.good("zfs mount -a");
    nest.good("zfs rollback tank/a@1");
    assert_eq!((here("a/new").as_deref(), here("a/new/deep").as_deref()), (Ok("a/new"), Ok("a/new/deep")));
    nest.good("zfs unmount tank/a/new");
    assert!(nest.at("a/new/under").is_dir() && !nest.at("a/old").exists());
    // In this snapshot a file is at that place.
    fs::remove_dir(nest.at("a/new/under")).and_then(|()| fs::remove_dir(nest.at("a/new"))).expect("it goes");
    fs::write(nest.at("a/new"), "file").expect("a file");
    nest.good("zfs snapshot tank/a@2");
    fs::remove_file(nest.at("a/new")).expect("it goes");
    nest.good("zfs mount -a");
    let used = fs::File::open(nest.at("a/new/deep/file")).expect("a file");
    let rolled = nest.daemon.ran("zfs rollback tank/a@2");
    let warned = String::from_utf8(rolled.stderr).expect("text");
    let lines: Vec<_> = warned.lines().collect();
    assert!(rolled.status.success() && lines.len() == 2, "{warned}");
    let me = fs::read_to_string("/proc/self/comm").expect("a name");
    for (line, name) in lines.iter().zip(["a/new/deep", "a/new"]) {
        let at = nest.at(name);
        let by = format!("it was in use by {} (pid {})", me.trim(), std::process::id());
        let why = format!("is no longer mounted: {} can't be made again (Not a directory)", at.display());
        assert!(line.starts_with(&format!("warning: 'tank/{name}' {why}")), "{line}");
        assert!(line.contains(&by), "{line}");
    }
    assert_eq!(fs::read_to_string(nest.at("a/new")).expect("a file"), "file");
    assert_eq!(nest.good("zfs list -H -o mounted tank/a tank/a/b tank/a/new"), "yes\nyes\nno\n");
    drop(used);
    fs::remove_file(nest.at("a/new")).expect("it goes");
    nest.good("zfs mount -a");
    assert_eq!(here("a/new/deep").as_deref(), Ok("a/new/deep"));
    nest.good("zfs destroy -r tank/a");
    nest.good("zpool export tank");
}

/// Goal: trees of nested file systems are renamed, promoted, moved to other mount points and
/// destroyed as mounts are. If one of them is in use, all stay as they were.
#[test]
fn trees_change() {
    let Some(nest) = Nest::new("") else { return };
    for at in ["a", "a/b"] {
        fs::write(nest.at(at).join("file"), at).expect("a file");
    }
    let here = |at: &str| fs::read_to_string(nest.at(at).join("file")).map_err(|error| error.kind());
    let used = fs::File::open(nest.at("a/b/file")).expect("a file");
    let out = nest.dir.path().join("mnt/other/deep").display().to_string();
    for line in [
        "zfs rename tank/a tank/other/a",
        &format!("zfs set mountpoint={out} tank/a"),
        "zfs set canmount=off tank/a",
        "zfs destroy -r tank/a",
        "zfs unmount tank/a",
    ] {
        let told = nest.bad(line);
        assert!(told.contains("is busy: in use by it-") && told.contains("/a/b'"), "{line}: {told}");
        let mounted = nest.good("zfs list -H -o name,mounted -r tank/a");
        assert_eq!(mounted, "tank/a\tyes\ntank/a/b\tyes\n", "{line}");
        assert_eq!((here("a").as_deref(), here("a/b").as_deref()), (Ok("a"), Ok("a/b")), "{line}");
    }
    // With `-u`, it stays where it is.
    nest.good("zfs rename -u tank/a tank/z");
    assert_eq!(std::io::read_to_string(&used).expect("it is open"), "a/b");
    assert_eq!(here("a/b").as_deref(), Ok("a/b"));
    nest.good("zfs rename -u tank/z tank/a");
    drop(used);
    nest.good("zfs rename tank/a tank/other/a");
    assert_eq!((here("other/a/b").as_deref(), nest.at("a").exists()), (Ok("a/b"), false));
    nest.good(&format!("zfs set mountpoint={out} tank/other/a"));
    assert_eq!((here("other/deep/b").as_deref(), nest.at("other/a").exists()), (Ok("a/b"), false));
    nest.good("zfs snapshot -r tank/other/a@s");
    nest.good("zfs clone tank/other/a@s tank/clone");
    nest.good("zfs promote tank/clone");
    assert_eq!((here("clone").as_deref(), here("other/deep").as_deref()), (Ok("a"), Ok("a")));
    assert_eq!(nest.good("zfs get -H -o value origin tank/other/a"), "tank/clone@s\n");
    nest.good("zfs rollback tank/clone@s");
    nest.good("zfs destroy -r tank/other");
    assert_eq!((here("clone").as_deref(), nest.at("other").exists()), (Ok("a"), false));
    nest.good("zfs destroy -r tank/clone");
    let left = fs::read_dir(nest.at("")).expect("a folder").count();
    assert_eq!((left, nest.good("zfs list -H -o name")), (0, "tank\n".to_owned()));
    nest.good("zpool export tank");
}

/// Goal: the error names what keeps a file system busy, nested or not. It may be an open or a
/// removed file, a socket, a working directory, a running program, or a loop device.
///
/// A watch, or a bind mount of one of its directories, keeps only a nested one busy.
#[test]
fn users_are_named() {
    for options in [&["--nest"][..], &[]] {
        let Some(nest) = Nest::by(options, "") else { return };
        names_users(&nest);
    }
}

/// `a/b` can't be unmounted, and the message names this program.
fn refused_by(nest: &Nest, name: &str, pid: u32) {
    let told = nest.bad("zfs unmount tank/a/b");
    let at = nest.at("a/b");
    let expected =
        format!("cannot unmount '{}': dataset is busy: in use by {name} (pid {pid})\n", at.display());
    assert_eq!(told, expected);
}

/// Messages name a program in the file system, and one that was started from it.
fn programs_are_named(nest: &Nest) {
    let at = nest.at("a/b");
    testkit::copy_program("/bin/cat", at.join("meow"));
    for (name, mut command) in [("cat", Command::new("cat")), ("meow", Command::new(at.join("meow")))] {
        let dir = if name == "cat" { &*at } else { Path::new("/") };
        let mut child =
            command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        // The program runs, under its own name.
        child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("a pipe");
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a pipe");
        refused_by(nest, name, child.id());
        let by = format!("in use by {name} (pid {})\n", child.id());
        for line in ["zpool export tank", "zfs destroy tank/a/b", "zfs rename tank/a tank/z"] {
            let told = nest.bad(line);
            assert!(told.ends_with(&by), "{line}: {told}");
        }
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}

fn names_users(nest: &Nest) {
    let busy = |line: &str| nest.bad(line);
    let at = nest.at("a/b");
    // A user's daemon nests in any case.
    let nested = nest.mounts().len() == 1;
    let told_of = |name: &str, pid: u32| refused_by(nest, name, pid);
    let me = fs::read_to_string("/proc/self/comm").expect("a name").trim().to_owned();
    let file = fs::File::create(at.join("file")).expect("a file");
    told_of(&me, std::process::id());
    fs::remove_file(at.join("file")).expect("it goes");
    told_of(&me, std::process::id());
    drop(file);
    if nested {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&watch, &at, inotify::WatchFlags::CREATE).expect("a watch");
        told_of(&me, std::process::id());
        drop(watch);
    }
    let socket = UnixListener::bind(at.join("socket")).expect("a socket");
    told_of(&me, std::process::id());
    drop(socket);
    programs_are_named(nest);
    if nested && is_root() {
        let out = nest.dir.path().join("out");
        fs::create_dir(&out).and_then(|()| fs::create_dir(at.join("sub"))).expect("folders");
        rustix::mount::mount_bind(at.join("sub"), &out).expect("a mount");
        let told = busy("zfs unmount tank/a/b");
        assert!(told.contains(&format!("in use by another mount of it, at {}", out.display())), "{told}");
        rustix::mount::unmount(&out, rustix::mount::UnmountFlags::empty()).expect("it goes");
    }
    let elsewhere = (is_root() && !nested).then(|| copies(&at)).flatten();
    if let Some(mut child) = elsewhere {
        told_of("cat", child.id());
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
    let inner = at.join("inner");
    daemon::image(&inner);
    nest.good(&format!("zpool create -m none inner {}", inner.display()));
    let told = busy("zfs unmount tank/a/b");
    assert!(
        told.ends_with(&format!("in use by this daemon, which has {} open\n", inner.display())),
        "{told}"
    );
    nest.good("zpool export inner");
    if let Some(device) = looped(&at.join("image")) {
        let told = busy("zfs unmount tank/a/b");
        let by = format!("in use by {device}, which is over {}\n", at.join("image").display());
        assert!(told.ends_with(&by), "{told}");
        let gone = Command::new("losetup").args(["--detach", &device]).status().expect("losetup");
        assert!(gone.success());
    }
    nest.good("zfs unmount tank/a/b");
    nest.good("zpool export tank");
}

/// A program in another mount namespace, with its working directory in a copy of a mount that is
/// unmounted with the original. Returns `None` if mounts can't be shared.
fn copies(at: &Path) -> Option<std::process::Child> {
    let script = "cd \"$0\" && exec cat";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-c", script]).arg(at);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    child.stdin.as_mut()?.write_all(b"x").ok()?;
    child.stdout.as_mut()?.read_exact(&mut [0]).ok()?;
    let table = fs::read_to_string(format!("/proc/{}/mountinfo", child.id())).ok()?;
    let above = table
        .lines()
        .rfind(|line| at.parent().is_some_and(|dir| line.contains(&format!(" {} ", dir.display()))))?;
    if above.contains(" master:") {
        return Some(child);
    }
    eprintln!("mounts are not shared here");
    drop(child.stdin.take());
    child.wait().ok()?;
    None
}

/// A loop device over a new file, if this test may create one.
fn looped(file: &Path) -> Option<String> {
    daemon::image(file);
    let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
    let made = made.ok().filter(|made| made.status.success());
    if made.is_none() {
        eprintln!("no loop devices here");
    }
    Some(String::from_utf8(made?.stdout).expect("a path").trim().to_owned())
}

/// Goal: the command that requests an unmount is not named if the shell in the file system is, and
/// is named if nothing else is. A file system names what is mounted in it.
#[test]
fn askers_and_mounts_in_the_way() {
    for options in [&["--nest"][..], &[]] {
        let Some(nest) = Nest::by(options, "") else { return };
        let at = nest.at("a/b");
        let cannot = format!("cannot unmount '{}': dataset is busy: in use by ", at.display());
        let asks = daemon::command(nest.dir.path(), "zfs unmount tank/a/b");
        let within = |command: &mut Command| {
            let child = command.current_dir(&at).stderr(Stdio::piped()).spawn().expect("it runs");
            let pid = child.id();
            (pid, said(&child.wait_with_output().expect("it ends")))
        };
        let run = nest.dir.path().join("run");
        let script = format!("{} zfs unmount tank/a/b; exit", asks.get_program().display());
        let (pid, told) = within(Command::new("sh").env("POOLHOUSE_RUN_DIR", &run).args(["-c", &script]));
        assert_eq!(told, format!("{cannot}sh (pid {pid})\n"));
        let mut alone = asks;
        let (pid, told) = within(&mut alone);
        assert_eq!(told, format!("{cannot}poolhouse (pid {pid})\n"));

        nest.good("zfs snapshot tank/other@s");
        let inside = at.join("clone");
        nest.good(&format!("zfs clone -o mountpoint={} tank/other@s tank/clone", inside.display()));
        {
            let _used = fs::File::create(inside.join("file")).expect("a file");
            let told = nest.bad("zfs unmount tank/clone");
            assert!(told.contains("in use by ") && told.contains(" (pid "), "{told}");
        }
        {
            let _used = fs::File::create(at.join("file")).expect("a file");
            nest.good("zfs unmount tank/clone");
            let told = nest.bad("zfs unmount tank/a");
            let by =
                format!("'{}': dataset is busy: in use by 'tank/a/b', mounted at", nest.at("a").display());
            assert!(told.contains(&by), "{told}");
            nest.good("zfs mount tank/clone");
        }
        let by = format!("in use by 'tank/clone', mounted at {}\n", inside.display());
        for line in ["zfs unmount tank/a/b", "zfs rename tank/a/b tank/z", "zfs destroy tank/a/b"] {
            let told = nest.bad(line);
            assert!(told.ends_with(&by), "{line}: {told}");
        }
        if is_root() {
            nest.good("zfs unmount tank/clone");
            rustix::mount::mount("none", &inside, "tmpfs", rustix::mount::MountFlags::empty(), None)
                .expect("a mount");
            let told = nest.bad("zfs unmount tank/a/b");
            assert!(told.contains(&format!("by what is mounted at {} (tmpfs)", inside.display())), "{told}");
            rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::empty()).expect("it goes");
        }
        nest.good("zfs destroy -R tank/other");
        nest.good("zfs unmount tank/a/b");
        nest.good("zpool export tank");
    }
}

/// Goal: a rollback that can't be done below its mount unmounts the file systems inside as well,
/// and mounts them again.
///
/// If one of these is in use, the rollback is refused with the user and the reason, and everything
/// stays. Without nesting, a mount point that a rollback removes is created again.
#[test]
fn rolled_back_with_what_lies_in_it() {
    for options in [&["--nest"][..], &[]] {
        let Some(nest) = Nest::by(options, "") else { return };
        for at in ["a", "a/b"] {
            fs::write(nest.at(at).join("file"), at).expect("a file");
        }
        nest.good("zfs snapshot tank/a@s");
        nest.good("zfs create tank/a/new");
        let mounted = || nest.good("zfs list -H -o name,mounted -r tank/a");
        let all = "tank/a\tyes\ntank/a/b\tyes\ntank/a/new\tyes\n";
        nest.good("zfs rollback tank/a@s");
        assert_eq!(mounted(), all);
        let used = fs::File::open(nest.at("a/b/file")).expect("a file");
        for _ in 1..255 {
            nest.good("zfs rollback tank/a@s");
        }
        fs::write(nest.at("a/file"), "now").expect("a file");
        let told = nest.bad("zfs rollback tank/a@s");
        let me = fs::read_to_string("/proc/self/comm").expect("a name");
        let by = format!("unmount 'tank/a/b', which is in use by {} (pid {})", me.trim(), std::process::id());
        assert!(
            told.starts_with("cannot rollback 'tank/a': dataset is busy: it was rolled back 255 times"),
            "{told}"
        );
        assert!(told.contains(&by), "{told}");
        assert_eq!(mounted(), all, "{told}");
        assert_eq!(fs::read_to_string(nest.at("a/file")).expect("contents"), "now");
        drop(used);
        nest.good("zfs rollback tank/a@s");
        assert_eq!(mounted(), all);
        for at in ["a", "a/b"] {
            assert_eq!(fs::read_to_string(nest.at(at).join("file")).expect("contents"), at);
        }
        nest.good("zpool export tank");
    }
}
