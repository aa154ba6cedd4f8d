//! Files in mounted file systems of a pool that commands created. OpenZFS's `zdb` checks the pool
//! if it is available.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::common::run;
use api::Requests;
use server::service::LocalService;

/// Returns true if this machine can mount. Otherwise prints a message.
fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        println!("skipped: /dev/fuse can't be opened here");
    }
    can
}

struct Stand {
    dir: tempfile::TempDir,
    house: Rc<dyn Requests>,
}

impl Stand {
    /// A pool on one device, mounted in its own directory.
    fn new() -> Stand {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dev")).unwrap();
        let image = dir.path().join("dev/d0.img");
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let stand = Stand { dir, house: Rc::new(LocalService::new().in_process()) };
        stand.good(&format!("zpool create -m {} tank {}", stand.at("").display(), image.display()));
        stand
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("mnt").join(path)
    }

    fn good(&self, line: &str) -> String {
        let ran = run(line, self.house.clone());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// Runs `zdb` on the exported pool, if it is available.
    fn judge(&self) {
        let named = std::env::var_os("ZDB").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|d| d.join("zdb")).find(|p| p.is_file());
        let Some(zdb) = named.or(found) else { return };
        let ask = |args: &[&str]| {
            let mut zdb = std::process::Command::new(&zdb);
            let out = zdb.args(["-e", "-p"]).arg(self.dir.path().join("dev")).args(args).output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "zdb {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
            text
        };
        assert!(ask(&["-bcc", "tank"]).contains("No leaks"));
        let shown = ask(&["-ddddd", "tank/a"]);
        assert!(shown.contains("path\t/sub/hello") && shown.contains("size\t11"), "{shown}");
        assert!(!shown.contains("leaked"), "{shown}");
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        run("zpool export -f tank", self.house.clone());
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// `.zfs/snapshot` shows snapshots that commands create and destroy. Root can also create, rename
/// and destroy them there.
fn the_snapshot_folder(stand: &Stand) {
    for round in ["one", "two"] {
        stand.good("zfs snapshot tank/a@again");
        assert_eq!(names(&stand.at("a/.zfs/snapshot")), ["again", "before"]);
        assert_eq!(stand.at("a/.zfs/snapshot/again/two").exists(), round == "two");
        stand.good("zfs destroy tank/a@again");
        assert_eq!(names(&stand.at("a/.zfs/snapshot")), ["before"]);
        fs::write(stand.at("a/two"), round).unwrap();
    }
    let snap = |name: &str| stand.at("a/.zfs/snapshot").join(name);
    if rustix::process::geteuid().is_root() {
        fs::create_dir(snap("made")).unwrap();
        assert_eq!(fs::create_dir(snap("made")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(snap("made/two")).unwrap(), b"two");
        fs::rename(snap("made"), snap("other")).unwrap();
        assert_eq!(names(&stand.at("a/.zfs/snapshot")), ["before", "other"]);
        assert_eq!(stand.good("zfs list -Ht snapshot -o name tank/a"), "tank/a@before\ntank/a@other\n");
        assert!(
            fs::rename(snap("other"), snap("before")).is_err() && fs::create_dir(snap("no@name")).is_err()
        );
        assert!(fs::File::create(snap("file")).is_err());
        fs::remove_dir(snap("other")).unwrap();
        assert_eq!(names(&stand.at("a/.zfs/snapshot")), ["before"]);
    }
}

/// Goal: file systems of a new pool are mounted for writing, one inside the other. Written data is
/// in snapshots, survives an export, and shows in properties and `zfs` commands.
#[test]
fn written_through_mounts() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new();
    fs::write(stand.at("top"), b"top").unwrap();
    stand.good("zfs create tank/a");
    assert_eq!(names(&stand.at("")), ["a", "top"]);
    fs::create_dir(stand.at("a/sub")).unwrap();
    fs::write(stand.at("a/sub/hello"), b"hello world").unwrap();
    let data: Vec<u8> =
        (0..2_000_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(stand.at("a/big"), &data).unwrap();
    stand.good("zfs snapshot tank/a@before");
    fs::write(stand.at("a/big"), b"small now").unwrap();
    fs::remove_file(stand.at("a/sub/hello")).unwrap();
    assert!(fs::read(stand.at("a/.zfs/snapshot/before/big")).unwrap() == data);
    assert_eq!(fs::read(stand.at("a/.zfs/snapshot/before/sub/hello")).unwrap(), b"hello world");
    assert_eq!(
        fs::write(stand.at("a/.zfs/snapshot/before/x"), b"").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    the_snapshot_folder(&stand);
    stand.good("zfs rollback tank/a@before");
    assert!(fs::read(stand.at("a/big")).unwrap() == data);
    stand.good("zfs set recordsize=4k tank/a");
    fs::write(stand.at("a/fine"), &data[..100_000]).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blksize(&fs::metadata(stand.at("a/fine")).unwrap()), 4096);
    stand.good("zfs rename tank/a tank/b");
    assert_eq!(names(&stand.at("b")), ["big", "fine", "sub"]);
    stand.good("zfs rename tank/b tank/a");
    stand.good("zpool export tank");
    assert!(names(&stand.at("")).is_empty());
    stand.judge();
    let image_dir = stand.dir.path().join("dev").display().to_string();
    stand.good(&format!("zpool import -d {image_dir} tank"));
    assert_eq!(fs::read(stand.at("top")).unwrap(), b"top");
    assert!(fs::read(stand.at("a/big")).unwrap() == data);
    assert_eq!(fs::read(stand.at("a/sub/hello")).unwrap(), b"hello world");
    fs::write(stand.at("a/more"), b"more").unwrap();
    stand.good("zfs unmount tank/a");
    stand.good("zfs set readonly=on tank/a");
    stand.good("zfs mount tank/a");
    assert_eq!(fs::read(stand.at("a/more")).unwrap(), b"more");
    assert_eq!(
        fs::write(stand.at("a/even"), b"").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    stand.good("zpool export tank");
    stand.judge();
}

/// Goal: a file system at its quota refuses writes as full, and takes more after a file is removed.
#[test]
fn a_quota_is_felt() {
    if !can_mount() {
        return;
    }
    let stand = Stand::new();
    stand.good("zfs create -o quota=8M -o compression=off tank/a");
    let full = (0..64).find_map(|i| fs::write(stand.at(&format!("a/{i}")), vec![7; 1 << 20]).err());
    let errno = full.expect("there is an end").raw_os_error();
    assert_eq!(errno, Some(122));
    for i in 0..4 {
        fs::remove_file(stand.at(&format!("a/{i}"))).unwrap();
    }
    stand.good("zpool sync tank");
    fs::write(stand.at("a/again"), vec![8; 1 << 20]).unwrap();
    stand.good("zfs destroy tank/a");
}

/// Goal: quotas of users and projects are set on mounted and unmounted file systems, shown and
/// enforced, and refused if invalid.
///
/// Properties that control how a file system is mounted take effect while it is mounted.
#[test]
fn quotas_and_mount_options() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new();
    stand.good("zfs create tank/a");
    stand.good("zfs set userquota@1234=100k groupobjquota@root=10 projectquota@7=1m tank/a");
    assert_eq!(
        stand.good("zfs get -Hp -o value userquota@1234,groupobjquota@0,userquota@1 tank/a"),
        "102400\n10\n0\n"
    );
    let noise: Vec<u8> = (0..100_000_u64)
        .flat_map(|i| {
            (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(i | 1).to_le_bytes()
        })
        .collect();
    fs::write(stand.at("a/f"), &noise).unwrap();
    std::os::unix::fs::chown(stand.at("a/f"), Some(1234), None).unwrap();
    stand.good("zpool sync tank");
    let e = fs::File::options()
        .append(true)
        .open(stand.at("a/f"))
        .and_then(|mut f| std::io::Write::write_all(&mut f, b"x"));
    assert_eq!(e.unwrap_err().kind(), std::io::ErrorKind::QuotaExceeded);
    stand.good("zfs unmount tank/a");
    stand.good("zfs set userquota@1234=none tank/a");
    stand.good("zfs mount tank/a");
    fs::write(stand.at("a/f"), b"more").unwrap();
    let bad = |line: &str| run(line, stand.house.clone());
    for (line, why) in [
        ("zfs set userused@1234=5 tank/a", "'userused@1234' is readonly"),
        (
            "zfs set userquota@nobody-at-all=5 tank/a",
            "'userquota@nobody-at-all' has an invalid user/group name",
        ),
    ] {
        let ran = bad(line);
        assert!(ran.code != 0 && ran.err.contains(why), "{line}: {}", ran.err);
    }
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = stand.at("a").display().to_string();
        let line = table.lines().find(|l| l.split(' ').nth(4) == Some(&at)).unwrap().to_owned();
        line.split(' ').nth(5).unwrap().to_owned()
    };
    assert!(!options().contains("noexec"));
    stand.good("zfs set exec=off tank/a");
    stand.good("zfs set readonly=on tank/a");
    assert!(options().contains("noexec") && options().starts_with("ro"), "{}", options());
    stand.good("zfs set readonly=off tank/a");
    stand.good("zfs inherit exec tank/a");
    assert!(!options().contains("noexec") && options().starts_with("rw"), "{}", options());
    stand.good("zfs mount -o remount,noatime tank/a");
    stand.good("zfs set setuid=off tank/a");
    assert!(options().contains("noatime") && options().contains("nosuid"), "{}", options());
    let open = fs::File::options().append(true).open(stand.at("a/f")).unwrap();
    let told = "cannot mount 'tank/a': mountpoint or dataset is busy\nproperty may be set but unable to remount filesystem\n";
    let ran = bad("zfs set readonly=on tank/a");
    assert_eq!((ran.code, ran.err.as_str()), (255, told));
    assert!(options().starts_with("rw"), "{}", options());
    stand.good("zfs set compression=off tank/a");
    drop(open);
    stand.good("zfs set readonly=on tank/a");
    assert!(options().starts_with("ro"), "{}", options());
}

/// Goal: a directory that was named for one mount belongs to the user and stays. A directory
/// created for a property is removed with its dataset, and only then.
#[test]
fn folders_of_mounts() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new();
    let own = stand.dir.path().join("own");
    fs::create_dir(&own).unwrap();
    stand.good("zfs create tank/a");
    stand.good("zfs create tank/b");
    stand.good("zfs unmount tank/a");
    stand.good(&format!("zfs mount -o mntpoint={} tank/a", own.display()));
    stand.good("zfs destroy tank/a");
    assert!(own.is_dir());
    stand.good("zfs create tank/c");
    stand.good("zfs unmount tank/b");
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(stand.at(path)).unwrap());
    let before = inode("b");
    stand.good("zfs mount tank/b");
    assert_ne!(run("zfs rename tank/b tank/c", stand.house.clone()).code, 0);
    stand.good("zfs unmount tank/b");
    assert_eq!(inode("b"), before);
    stand.good("zfs mount tank/b");
    stand.good("zfs destroy tank/b");
    assert!(!stand.at("b").exists());
}

/// Makes a tree with a file of these bytes, holes, links, an owner and a mode.
fn make_tree(tree: &Path, data: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::write(tree.join("sub/big"), data).unwrap();
    fs::write(tree.join("over"), b"new").unwrap();
    fs::hard_link(tree.join("over"), tree.join("sub/deep/hard")).unwrap();
    std::os::unix::fs::symlink("sub/big", tree.join("link")).unwrap();
    fs::File::create(tree.join("sparse")).unwrap().set_len(100 << 20).unwrap();
    fs::set_permissions(tree.join("sub/big"), fs::Permissions::from_mode(0o4711)).unwrap();
    std::os::unix::fs::chown(tree.join("sub/big"), Some(7), Some(8)).unwrap();
    fs::set_permissions(tree.join("sub/big"), fs::Permissions::from_mode(0o4711)).unwrap();
}

/// Goal: `poolhouse cp` copies a tree into a pool that is not mounted, with holes, links,
/// attributes and times, and replaces existing files.
///
/// A copy out of the pool, and a mount, show the same tree.
#[test]
fn copied_into_a_pool() {
    use std::os::unix::fs::MetadataExt;
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let stand = Stand::new();
    stand.good("zfs create tank/a");
    fs::write(stand.at("a/over"), b"written over").unwrap();
    fs::create_dir(stand.at("a/kept")).unwrap();
    stand.good("zpool export tank");
    let tree = stand.dir.path().join("tree");
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3) as u8 ^ (i >> 11) as u8).collect();
    make_tree(&tree, &data);
    let device = stand.dir.path().join("dev");
    let cp = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        let out = command.arg("cp").args(words).arg("-d").arg(&device).output().unwrap();
        (out.status.code().unwrap(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let inside = format!("{}/.", tree.display());
    assert_eq!(cp(&["-r", &inside, "tank/a:/"]), (0, String::new()));
    assert_eq!(cp(&[tree.join("over").to_str().unwrap(), "tank/a:/kept/other"]), (0, String::new()));
    let (code, err) = cp(&[tree.to_str().unwrap(), "tank/a:/"]);
    assert!(code == 1 && err.contains("is a folder: use -r"), "{err}");
    let (code, err) = cp(&["tank/a:/over", "tank/a:/copy"]);
    assert!(code == 1 && err.contains("copy it out first"), "{err}");
    // Existing files stay, unless the file that replaces them can be read. No failure keeps the
    // pool from others.
    let (code, err) = cp(&["-r", tree.join("sub").to_str().unwrap(), "tank/a:/kept/other"]);
    assert!(code == 1 && err.contains("is a folder, and something else is in its place"), "{err}");
    let unreadable = "/proc/sys/vm/compact_memory";
    if Path::new(unreadable).exists() && fs::File::open(unreadable).is_err() {
        let (code, err) = cp(&[unreadable, "tank/a:/kept/other"]);
        assert!(code == 1 && err.contains("denied"), "{err}");
    }
    // Both names are one file. The second copy replaces the first.
    let (one, twin) = (tree.join("over"), stand.dir.path().join("twin"));
    fs::create_dir(&twin).unwrap();
    let two = twin.join("over");
    fs::hard_link(&one, &two).unwrap();
    let twice = [one.to_str().unwrap(), two.to_str().unwrap(), "tank/a:/kept"];
    assert_eq!(cp(&twice), (0, String::new()));
    fs::remove_file(&two).unwrap();
    let key = format!("-k{}", one.display());
    let (code, err) = cp(&[&key, one.to_str().unwrap(), "tank/a:/kept"]);
    assert!(code == 1 && err.contains("is not encrypted"), "{err}");
    let out = stand.dir.path().join("out");
    assert_eq!(cp(&["-r", "tank/a:/", out.to_str().unwrap()]), (0, String::new()));
    stand.good(&format!("zpool import -d {} tank", device.display()));
    for root in [&out, &stand.at("a")] {
        assert!(fs::read(root.join("link")).unwrap() == data);
        assert_eq!(fs::read(root.join("kept/other")).unwrap(), b"new");
        assert_eq!(fs::read(root.join("kept/over")).unwrap(), b"new");
        assert_eq!(fs::metadata(root.join("over")).unwrap().nlink(), 2);
        assert!(fs::metadata(root.join("sparse")).unwrap().blocks() < 100);
        for name in ["sub", "sub/big", "over"] {
            let (a, b) = (fs::metadata(tree.join(name)).unwrap(), fs::metadata(root.join(name)).unwrap());
            assert_eq!((a.mode(), a.uid(), a.gid()), (b.mode(), b.uid(), b.gid()), "{name}");
            assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{name}");
        }
    }
    let (code, err) = cp(&[tree.join("over").to_str().unwrap(), "tank/a:/busy"]);
    assert!(code == 1 && err.contains("in use"), "{err}");
}
