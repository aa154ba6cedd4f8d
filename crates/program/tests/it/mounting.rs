//! Mounting many file systems: the order, failures of single ones, and the mount points. The tests
//! print a message and do nothing if mounting is not possible.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::rc::Rc;

use crate::common::{Ran, run, run_with};
use api::{MountRequest, Requests, UnmountRequest};
use server::service::LocalService;

struct Stand {
    house: Rc<dyn Requests>,
    dir: tempfile::TempDir,
    pools: Vec<&'static str>,
}

impl Stand {
    /// Pools with their file systems mounted below a test directory.
    fn new(pools: &[&'static str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
        let stand = Self { house, dir, pools: pools.to_vec() };
        fs::create_dir(stand.dir.path().join("images")).expect("a folder");
        for pool in pools {
            let image = stand.image(pool);
            fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
            let root = stand.path("").display().to_string();
            let made = stand.ran(&format!("zpool create -R {root} {pool} {}", image.display()));
            if made.code != 0 {
                eprintln!("nothing can be mounted here: {}", made.err);
                return None;
            }
        }
        Some(stand)
    }

    fn image(&self, pool: &str) -> PathBuf {
        self.dir.path().join("images").join(format!("{pool}.img"))
    }

    fn ran(&self, line: &str) -> Ran {
        run(line, self.house.clone())
    }

    fn good(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// Datasets in the order in which they were mounted.
    fn mounted(&self) -> Vec<String> {
        self.house.mounts().expect("a list").into_iter().map(|mount| mount.dataset).collect()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        for pool in &self.pools {
            let _ = self.ran(&format!("zpool export -f {pool}"));
        }
    }
}

/// Goal: a file system that can't be mounted is reported at the end with the reason. It blocks only
/// those below it, and affects the exit code.
#[test]
fn a_failure_is_its_own_subtrees() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    for line in ["zfs create -p tank/bad/below", "zfs create -p tank/good/below", "zfs unmount -a"] {
        stand.good(line);
    }
    fs::create_dir_all(stand.path("tank")).expect("a folder");
    stand.good("zfs mount tank");
    let _ = fs::remove_dir_all(stand.path("tank/bad"));
    fs::write(stand.path("tank/bad"), b"no folder").expect("a file");
    let ran = stand.ran("zfs mount -a");
    assert_eq!((ran.code, ran.err.as_str()), (1, "cannot mount 'tank/bad': Not a directory\n"));
    let mut now = stand.mounted();
    now.sort();
    assert_eq!(now, ["tank", "tank/good", "tank/good/below"]);
}

/// Goal: a dataset that was created or renamed and could not be mounted is in the history all the
/// same.
#[test]
fn what_is_not_mounted_is_in_the_history() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    let nowhere = "/file/x";
    fs::write(stand.path("file"), b"no folder").expect("a file");
    stand.good("zfs create tank/fs");
    stand.good("zfs snapshot tank/fs@s");
    let lines = [
        format!("zfs create -o mountpoint={nowhere} tank/made"),
        format!("zfs clone -o mountpoint={nowhere} tank/fs@s tank/cloned"),
        "zfs rename tank/made tank/renamed".to_owned(),
    ];
    for line in &lines {
        let ran = stand.ran(line);
        assert!(ran.code == 0 || ran.err.contains("successfully"), "{line}: {} {}", ran.code, ran.err);
    }
    assert_eq!(stand.ran(&lines[0].replace("made", "too")).code, 1);
    // A refused command is no change.
    assert_eq!(stand.ran(&lines[1]).code, 1);
    let history = stand.good("zpool history tank");
    for line in lines.iter().chain([&lines[0].replace("made", "too")]) {
        assert_eq!(history.matches(line.as_str()).count(), 1, "{line}: {history}");
    }
}

/// Goal: `zfs mount -a` silently skips file systems without a mount point, with a legacy one, or
/// with `canmount=noauto`. By name they are mounted, or refused with a reason.
#[test]
fn some_are_not_mounted_with_the_rest() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    for line in [
        "zfs create -o mountpoint=none tank/none",
        "zfs create -o mountpoint=legacy tank/legacy",
        "zfs create -o canmount=noauto tank/noauto",
        "zfs create -o canmount=off tank/off",
        "zfs create -o mountpoint=/elsewhere tank/none/own",
        "zfs unmount -a",
        "zfs mount -a",
    ] {
        stand.good(line);
    }
    let mut now = stand.mounted();
    now.sort();
    assert_eq!(now, ["tank", "tank/none/own"]);
    assert!(stand.path("elsewhere").is_dir());
    stand.good("zfs mount tank/noauto");
    assert!(stand.mounted().contains(&"tank/noauto".to_owned()));
    for (name, why) in [
        ("none", "no mountpoint set"),
        ("legacy", "legacy mountpoint"),
        ("off", "'canmount' property is set to 'off'"),
    ] {
        let ran = stand.ran(&format!("zfs mount tank/{name}"));
        assert_eq!(ran.code, 1, "{name}");
        assert!(ran.err.starts_with(&format!("cannot mount 'tank/{name}': {why}\n")), "{}", ran.err);
    }
}

/// Goal: with one thread, file systems are mounted in the order of their paths. With any number of
/// threads the same ones are mounted.
#[test]
fn one_thread_goes_in_order() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    for name in ["a", "a/b", "a/b/c", "a.b", "d", "d/e"] {
        stand.good(&format!("zfs create tank/{name}"));
    }
    let mut sorted = None;
    for threads in [1, 3, 64] {
        let unmount = UnmountRequest { threads: Some(threads), ..UnmountRequest::default() };
        assert!(stand.house.unmount(&unmount).expect("a report").failures.is_empty());
        assert_eq!(stand.mounted(), [""; 0]);
        let mount = MountRequest { threads: Some(threads), watch: Some(7), ..MountRequest::default() };
        let report = stand.house.mount(&mount).expect("a report");
        assert_eq!((report.mounted, report.total, report.failures.len()), (7, 7, 0));
        let mut now = stand.mounted();
        let order = sorted.get_or_insert_with(|| now.clone());
        if threads > 1 {
            assert!(now.iter().position(|n| n == "tank/a/b/c") > now.iter().position(|n| n == "tank/a/b"));
            now.sort();
            order.sort();
        } else {
            assert_eq!(now, ["tank", "tank/a", "tank/a/b", "tank/a/b/c", "tank/a.b", "tank/d", "tank/d/e"]);
        }
        assert_eq!(&now, order);
        assert_eq!(stand.house.mount_progress(&7), Ok(None), "it is over");
    }
}

/// Goal: two file systems with one mount point cover each other, and are unmounted in reverse
/// order.
///
/// A directory that is not empty is covered only if `overlay` or `-O` allows it. Options of `-o`
/// apply to the mount.
#[test]
fn mountpoints_that_overlap() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    stand.good("zfs create -o mountpoint=/same tank/one");
    stand.good("zfs create -o mountpoint=/same tank/two");
    assert_eq!(stand.mounted(), ["tank", "tank/one", "tank/two"]);
    for line in ["zfs unmount -a", "zfs mount -a", "zfs unmount tank/two", "zfs unmount tank/one"] {
        stand.good(line);
    }
    stand.good("zfs set overlay=off tank/one");
    fs::write(stand.path("same/file"), b"in the way").expect("a file");
    let refused = stand.ran("zfs mount tank/one");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (1, format!("cannot mount '{}': directory is not empty\n", stand.path("same").display()).as_str())
    );
    // A directory can't be created in a file.
    stand.good("zfs create -o canmount=noauto -o mountpoint=/same/file/below tank/three");
    let refused = stand.ran("zfs mount tank/three");
    let below = stand.path("same/file/below").display().to_string();
    let told = format!("cannot mount '{below}': failed to create mountpoint: Not a directory\n");
    assert_eq!((refused.code, refused.err), (1, told));
    let refused = stand.ran("zfs mount -o bogus tank/one");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (1, "cannot mount 'tank/one': invalid mount option 'bogus'\n")
    );
    stand.good("zfs mount -O -o ro tank/one");
    assert!(fs::write(stand.path("same/new"), b"").is_err() && !stand.path("same/file").exists());
    stand.good("zfs unmount tank/one");
    assert!(stand.path("same/file").exists());
}

/// Goal: a file system that is mounted after one below it hides that one. Both can still be
/// unmounted, by name, all at once, or with the pool.
#[test]
fn a_parent_after_its_child() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    stand.good("zfs create tank/p");
    stand.good("zfs create tank/p/c");
    stand.good("zfs create tank/p/c/below");
    for (line, left) in
        [("zfs unmount tank/p", ["tank"].as_slice()), ("zfs unmount -a", &[]), ("zpool export tank", &[])]
    {
        stand.good("zfs unmount -a");
        for name in ["tank", "tank/p/c", "tank/p/c/below", "tank/p"] {
            stand.good(&format!("zfs mount {name}"));
        }
        let hidden = stand.ran("zfs unmount tank/p/c");
        assert_eq!(hidden.code, 1, "it is hidden");
        stand.good(line);
        assert_eq!(stand.mounted(), left, "{line}");
    }
}

/// Goal: a pool's file system may be mounted inside another pool's, in any order of imports and
/// exports.
#[test]
fn pools_inside_each_other() {
    let Some(mut stand) = Stand::new(&["aaa", "zzz"]) else { return };
    stand.good("zfs create -p zzz/deep");
    stand.good("zfs create -o mountpoint=/zzz/deep/from-a aaa/inner");
    stand.good("zfs create -o mountpoint=/aaa/inner2/from-z zzz/inner");
    let images = stand.image("aaa").parent().expect("a folder").display().to_string();
    for _ in 0..2 {
        // Each has a mount inside the other, so the first attempt can export neither.
        stand.good("zpool export -a");
        assert_eq!(stand.mounted(), [""; 0]);
        stand.good(&format!("zpool import -a -d {images} -R {}", stand.path("").display()));
        assert_eq!(stand.mounted().len(), 5);
        // Each is visible at its place, and none is hidden below another.
        let device = |path: &str| fs::metadata(stand.path(path)).expect("a folder").dev();
        let places = ["aaa", "zzz", "zzz/deep", "zzz/deep/from-a", "aaa/inner2/from-z"];
        assert_eq!(places.iter().map(|path| device(path)).collect::<BTreeSet<_>>().len(), 5);
    }
    // Now only one is inside the other, so it is exported first, whatever its name.
    stand.good("zfs destroy zzz/inner");
    stand.good("zpool export zzz aaa");
    stand.pools.clear();
}

/// Goal: `zfs mount -a` silently skips file systems without a loaded key, and those below that
/// share the key. `-l` prompts for the key and mounts them with the rest.
#[test]
fn encrypted_children_wait_for_keys() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    let key = || vec![b"a good passphrase".to_vec(), b"a good passphrase".to_vec()];
    let typed = |line: &str| run_with(line, stand.house.clone(), key());
    let made = typed("zfs create -o encryption=on -o keyformat=passphrase tank/secret");
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    for line in [
        "zfs create tank/secret/below",
        "zfs create tank/plain",
        "zfs unmount -a",
        "zfs unload-key tank/secret",
    ] {
        stand.good(line);
    }
    stand.good("zfs mount -a");
    assert!(!stand.mounted().iter().any(|name| name.contains("secret")));
    let refused = stand.ran("zfs mount tank/secret");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            format!("cannot mount '{}': encryption key not loaded\n", stand.path("tank/secret").display())
                .as_str()
        )
    );
    let loaded = typed("zfs mount -al");
    assert_eq!((loaded.code, loaded.err.as_str()), (0, ""), "{}", loaded.out);
    let mut now = stand.mounted();
    now.sort();
    assert_eq!(now, ["tank", "tank/plain", "tank/secret", "tank/secret/below"]);
    // One file system alone needs the key of its encryption root, and no other.
    stand.good("zfs unmount -a");
    stand.good("zfs unload-key tank/secret");
    stand.good("zfs mount -l tank");
    assert_eq!(stand.mounted().len(), 1, "a key of another was asked for");
    let loaded = typed("zfs mount -l tank/secret/below");
    assert_eq!((loaded.code, loaded.err.as_str(), loaded.out.as_str()), (0, "", ""));
    assert!(stand.mounted().contains(&"tank/secret/below".to_owned()));
}

/// Goal: a missing mount point is created with its parents. A symbolic link is mounted at its
/// target, and unmounted there. A mount point in use stays mounted, and the error says so.
#[test]
fn mountpoints_of_all_kinds() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    stand.good("zfs create -o mountpoint=/x/y/z tank/deep");
    assert!(stand.path("x/y/z/.zfs").exists());
    fs::create_dir(stand.path("real")).expect("a folder");
    symlink("real", stand.path("link")).expect("a link");
    stand.good("zfs create -o mountpoint=/link tank/linked");
    fs::write(stand.path("link/file"), b"through it").expect("a file");
    assert!(stand.path("real/file").is_file());
    let used = fs::File::open(stand.path("real/file")).expect("a file");
    let ran = stand.ran("zfs unmount tank/linked");
    assert_eq!((ran.code, ran.err.contains("busy")), (1, true), "{}", ran.err);
    drop(used);
    // The messages distinguish paths without a mount of ours.
    let real = stand.path("real").display().to_string();
    fs::create_dir(stand.path("real/inner")).expect("a folder");
    for (path, told) in [
        ("/proc", "cannot unmount '/proc': not a ZFS filesystem\n".to_owned()),
        (&format!("{real}/inner"), format!("cannot unmount '{real}/inner': not a mountpoint\n")),
        (
            "/no/such",
            "warning: /no/such not in/proc/self/mounts\n/no/such: No such file or directory\n".to_owned(),
        ),
    ] {
        let ran = stand.ran(&format!("zfs unmount {path}"));
        assert_eq!((ran.code, ran.err), (1, told));
    }
    stand.good(&format!("zfs unmount {}", stand.path("link").display()));
    assert!(!stand.path("real/file").exists() && stand.path("link").is_symlink());
    stand.good("zfs mount tank/linked");
    stand.good("zfs unmount tank/linked");
    fs::remove_dir(stand.path("real")).expect("it is empty");
    let ran = stand.ran("zfs mount tank/linked");
    assert_eq!(ran.code, 1, "a link to nowhere: {}", ran.err);
    let ran = stand.ran("zfs mount -a");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

/// Goal: a mounted file system of a pool that was imported read-only shows `readonly` as temporary,
/// as OpenZFS does from the mount's options. An unmounted one, and a volume, show the property.
#[test]
fn mounts_of_a_pool_that_is_only_read() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    for line in ["zfs create tank/a", "zfs create -o readonly=on tank/b", "zfs create -s -V 1M tank/v"] {
        stand.good(line);
    }
    stand.good("zpool export tank");
    let (images, root) = (stand.dir.path().join("images"), stand.path(""));
    stand.good(&format!("zpool import -d {} -R {} -o readonly=on tank", images.display(), root.display()));
    let shown = || stand.good("zfs get -H -r -o name,value,source readonly tank");
    assert_eq!(
        shown(),
        "tank\ton\ttemporary\ntank/a\ton\ttemporary\ntank/b\ton\tlocal\ntank/v\toff\tdefault\n"
    );
    stand.good("zfs unmount tank/a");
    assert_eq!(shown().lines().nth(1), Some("tank/a\toff\tdefault"));
}

/// Goal: a file system whose mount point is below a foreign mount is mounted in it. After the
/// export, the foreign mount can be unmounted.
#[test]
fn under_anothers_mount() {
    let Some(stand) = Stand::new(&["tank"]) else { return };
    fs::create_dir_all(stand.path("other")).expect("a folder");
    let tmpfs = |words: &[&str]| Command::new(words[0]).args(&words[1..]).arg(stand.path("other")).status();
    if !tmpfs(&["mount", "-t", "tmpfs", "none"]).is_ok_and(|status| status.success()) {
        eprintln!("nobody else can mount here");
        return;
    }
    stand.good("zfs create -o mountpoint=/other/inside tank/inside");
    assert!(stand.path("other/inside/.zfs").exists());
    stand.good("zpool export tank");
    assert!(tmpfs(&["umount"]).expect("a command").success());
}

/// A test's own daemon, killed on drop.
struct Daemon {
    child: Child,
    run_dir: PathBuf,
}

impl Daemon {
    fn start(run_dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        let child = command.args(["serve", "--run-dir"]).arg(run_dir).spawn().expect("a daemon");
        let daemon = Self { child, run_dir: run_dir.to_owned() };
        // The socket of a killed daemon may still exist.
        while UnixStream::connect(run_dir.join("control.sock")).is_err() {
            std::thread::yield_now();
        }
        daemon
    }

    fn ran(&self, line: &str) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(line.split_whitespace()).env("POOLHOUSE_RUN_DIR", &self.run_dir);
        let done = command.output().expect("a command");
        (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
    }

    fn good(&self, line: &str) -> String {
        let (ok, said) = self.ran(line);
        assert!(ok, "{line}: {said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goal: when a daemon is killed, its mounts are dead. The next daemon removes them, and after the
/// import they are back at the same places with all durable data.
#[test]
fn mounts_come_back_after_a_crash() {
    if Stand::new(&["probe"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (run_dir, image, root) = (dir.path().join("run"), dir.path().join("d0.img"), dir.path().join("root"));
    fs::File::create(&image).expect("an image").set_len(256 << 20).expect("room");
    let daemon = Daemon::start(&run_dir);
    daemon.good(&format!("zpool create -R {} crash {}", root.display(), image.display()));
    daemon.good("zfs create -p crash/a/b");
    let file = root.join("crash/a/b/file");
    fs::write(&file, b"kept").and_then(|()| fs::File::open(&file)?.sync_all()).expect("a file");
    let before = daemon.good("zfs mount");
    drop(daemon);
    assert!(fs::read(&file).is_err(), "nobody serves it");
    let daemon = Daemon::start(&run_dir);
    daemon.good(&format!("zpool import -d {} -R {} crash", dir.path().display(), root.display()));
    assert_eq!(fs::read(&file).expect("a file"), b"kept");
    let (mut now, mut then): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    let after = daemon.good("zfs mount");
    now.extend(after.lines());
    then.extend(before.lines());
    now.sort_unstable();
    then.sort_unstable();
    assert_eq!(now, then);
    daemon.good("zpool export crash");
}
