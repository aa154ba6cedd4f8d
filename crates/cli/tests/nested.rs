//! File systems nested in the mount of another, by a daemon that nests all that it can (`--nest`):
//! what programs do in them is held to what they do in the outer one. Says so aloud and does
//! nothing where nothing can be mounted.

#![allow(clippy::print_stderr, reason = "a helper says what it leaves out")]

#[path = "common/daemon.rs"]
mod daemon;

use std::fs;
use std::path::PathBuf;

use daemon::{Daemon, image, said};

/// A daemon with a pool `tank` on `mnt`, and in its mount the file systems `a`, `a/b` and `other`.
struct Nest {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Nest {
    /// `None` where nothing can be mounted. `more` are options of `zpool create`.
    fn new(more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start_with(dir.path(), &["--nest"]).expect("the daemon ended");
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

    /// Runs one that fails: what it says.
    fn bad(&self, line: &str) -> String {
        let ran = self.daemon.ran(line);
        assert!(!ran.status.success(), "{line}: {}", said(&ran));
        said(&ran)
    }

    /// A path in the mount.
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("mnt").join(path)
    }

    /// The options of the mounts of the pool, as the kernel has them.
    fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
        let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let ours =
            lines.filter(|words| words[1].starts_with(&*self.at("").to_string_lossy().trim_end_matches('/')));
        ours.map(|words| words[3].to_owned()).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Goal: with `--nest` one mount has all file systems that lie in each other; what the kernel is told of it and what
/// they say is never at odds: what one of them would lose is refused by name, and what all inherit goes through.
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
        // It isn't mounted like that either.
        nest.good("zfs unmount tank/a");
        assert!(nest.bad("zfs mount tank/a").contains(&expected));
        nest.good(&format!("zfs inherit {prop} tank/a"));
        nest.good("zfs mount -a");
    }
    nest.good("zfs set readonly=on tank");
    assert!(has("ro"));
    nest.good("zfs set readonly=off tank");
    fs::write(nest.at("a/b/file"), "content").expect("it can be written");
    // One that says otherwise is protected by itself, and the mount isn't.
    nest.good("zfs set readonly=on tank/a/b");
    let refused = fs::write(nest.at("a/b/file"), "other").map_err(|error| error.raw_os_error());
    assert_eq!((refused, has("ro")), (Err(Some(30)), false));
    nest.good("zfs set readonly=off tank/a");
    assert!(nest.bad("zfs set readonly=on tank").contains("has readonly=off"));
    fs::write(nest.at("a/file"), "content").expect("it can be written");
    // What has a mount of its own has its flags too.
    nest.good(&format!("zfs create -o mountpoint={}/out -o exec=off tank/out", nest.dir.path().display()));
    assert_eq!(nest.mounts().len(), 1);
    nest.good("zpool export tank");
}
