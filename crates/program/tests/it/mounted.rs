//! What happens to mounted file systems when commands change their datasets.
//!
//! The tests print a message and do nothing if mounting is not possible, or if they need root and
//! lack it.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::common::stand::Stand;

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::File::create(path)?.write_all(bytes)
}

/// Goal: a renamed file system is mounted where its new name says, with all below it. If it is in
/// use, everything stays as it was.
#[test]
fn a_rename_takes_mounts_along() {
    let Some(stand) = Stand::new("") else { return };
    for line in ["zfs create -p tank/a/b", "zfs create tank/c", "zfs create -o mountpoint=/own tank/a/own"] {
        stand.good(line);
    }
    write(&stand.path("tank/a/b/f"), b"1").expect("a file");
    let used = fs::File::open(stand.path("tank/a/b/f")).expect("a file");
    let busy = stand.bad("zfs rename tank/a tank/c/z");
    let place = stand.path("tank/a/b");
    // The daemon is this process here.
    let by = format!("in use by this daemon, which has {} open", place.join("f").display());
    assert_eq!(busy, format!("cannot unmount '{}': dataset is busy: {by}\n", place.display()));
    assert!(stand.path("tank/a/b/f").is_file());
    assert_eq!(stand.good("zfs list -H -o name,mounted tank/a/b"), "tank/a/b\tyes\n");
    drop(used);
    stand.good("zfs rename tank/a tank/c/z");
    let mut now = stand.mounted();
    now.sort();
    let named = |name: &str, at: &str| (name.to_owned(), at.to_owned());
    let here = stand.path("tank");
    assert!(now.contains(&named("tank/c/z/b", "tank/c/z/b")), "{now:?} {}", here.display());
    assert!(now.contains(&named("tank/c/z/own", "own")) && now.len() == 5, "{now:?}");
    assert!(stand.path("tank/c/z/b/f").is_file() && !stand.path("tank/a").exists());
}

/// Goal: `zfs rename -u` leaves mounts where they are, and in use, under the new name.
///
/// * Inherited properties come from the new parent.
/// * Snapshots, sizes and quotas are those of the renamed dataset.
/// * A file system whose mount point does not depend on its name stays mounted without `-u` too.
#[test]
fn a_rename_can_leave_mounts_alone() {
    let Some(stand) = Stand::new("") else { return };
    for line in ["zfs create -p tank/a/b", "zfs create -o recordsize=16k -o atime=off tank/c"] {
        stand.good(line);
    }
    let mut used = fs::File::create(stand.path("tank/a/b/f")).expect("a file");
    stand.good("zfs rename -u tank/a tank/c/z");
    used.write_all(&[7; 1000]).and_then(|()| used.sync_all()).expect("it goes on");
    let mut now = stand.mounted();
    now.sort();
    let named = |name: &str, at: &str| (name.to_owned(), at.to_owned());
    assert!(now.contains(&named("tank/c/z", "tank/a")), "{now:?}");
    assert!(now.contains(&named("tank/c/z/b", "tank/a/b")), "{now:?}");
    assert_eq!(
        stand.good("zfs list -H -o name,mounted -r tank/c"),
        "tank/c\tyes\ntank/c/z\tyes\ntank/c/z/b\tyes\n"
    );
    write(&stand.path("tank/a/b/large"), &[3; 100_000]).expect("a file");
    assert_eq!(fs::metadata(stand.path("tank/a/b/large")).expect("a file").blksize(), 16 << 10);
    fs::create_dir(stand.path("tank/a/b/.zfs/snapshot/s1")).expect("a snapshot");
    assert_eq!(stand.good("zfs list -H -t snapshot -o name"), "tank/c/z/b@s1\n");
    assert_eq!(fs::read(stand.path("tank/a/b/.zfs/snapshot/s1/f")).expect("a file"), [7; 1000]);
    stand.good("zfs set quota=20M tank/c");
    let df =
        Command::new("stat").args(["-f", "-c", "%a %S"]).arg(stand.path("tank/a/b")).output().expect("stat");
    let df = String::from_utf8_lossy(&df.stdout).trim().to_owned();
    let (free, unit) = df.split_once(' ').expect("two numbers");
    let bytes = free.parse::<u64>().expect("a number") * unit.parse::<u64>().expect("a number");
    assert!(bytes < 20 << 20, "{df}");
    drop(used);
    stand.good("zfs unmount tank/c/z");
    assert!(stand.path("tank/a").is_dir() && !stand.path("tank/a/b").exists());
    // This dataset's name does not determine any mount point.
    stand.good("zfs create -o mountpoint=none tank/n");
    stand.good("zfs create -o mountpoint=/kid tank/n/kid");
    let used = fs::File::create(stand.path("kid/f")).expect("a file");
    stand.good("zfs rename tank/n tank/m");
    assert!(stand.mounted().contains(&named("tank/m/kid", "kid")));
    drop(used);
}

/// Goal: a read-only mount becomes writable as soon as its property or a remount says so, and
/// read-only again likewise.
///
/// A file that is open for writing prevents the latter. The mount's option overrides the property.
#[test]
fn read_only_comes_and_goes() {
    let Some(stand) = Stand::of_root() else { return };
    stand.good("zfs create -o readonly=on tank/r");
    let file = stand.path("tank/r/f");
    assert_eq!(write(&file, b"1").map_err(|e| e.raw_os_error()), Err(Some(30)));
    // The kernel must not conclude from this that files need no sync.
    fs::File::open(stand.path("tank/r")).and_then(|d| d.sync_all()).expect("nothing to do");
    stand.good("zfs set readonly=off tank/r");
    let mut open = fs::File::create(&file).expect("a file");
    open.write_all(b"written").and_then(|()| open.sync_all()).expect("it can be written");
    assert_ne!(stand.ran("zfs set readonly=on tank/r").code, 0);
    drop(open);
    stand.good("zfs mount -o remount,ro tank/r");
    assert_eq!(write(&file, b"1").map_err(|e| e.raw_os_error()), Err(Some(30)));
    stand.good("zfs mount -o remount,rw tank/r");
    write(&file, b"again").expect("it can be written");
    stand.good("zfs unmount tank/r");
    stand.good("zfs inherit readonly tank/r");
    stand.good("zfs mount -o ro tank/r");
    stand.good("zfs set readonly=off tank/r");
    assert_eq!(write(&file, b"1").map_err(|e| e.raw_os_error()), Err(Some(30)));
    stand.good("zfs mount -o remount,rw tank/r");
    write(&file, b"written").expect("it can be written");
    // A read-only mount shows new snapshots too.
    stand.good("zfs mount -o remount,ro tank/r");
    let listed = || fs::read_dir(stand.path("tank/r/.zfs/snapshot")).expect("a folder").count();
    assert_eq!(listed(), 0);
    stand.good("zfs snapshot tank/r@s");
    assert_eq!(listed(), 1);
    assert_eq!(fs::read(stand.path("tank/r/.zfs/snapshot/s/f")).expect("a file"), b"written");
}

/// Goal: properties that the kernel does not enforce take effect at once on mounted file systems.
#[test]
fn properties_take_effect_at_once() {
    let Some(stand) = Stand::of_root() else { return };
    stand.good("zfs create tank/p");
    let file = stand.path("tank/p/f");
    write(&file, b"1").expect("a file");
    let set = |value: &str| {
        let done = Command::new("setfattr").args(["-n", "user.a", "-v", value]).arg(&file).output();
        done.map(|d| d.status.success())
    };
    if let Ok(first) = set("1") {
        assert!(first);
        stand.good("zfs set xattr=off tank/p");
        assert!(!set("2").expect("it is there"));
        stand.good("zfs set xattr=sa tank/p");
        assert!(set("3").expect("it is there"));
    } else {
        eprintln!("setfattr is not here");
    }
    stand.good("zfs set recordsize=32k exec=off devices=off setuid=off tank/p");
    write(&stand.path("tank/p/large"), &[3; 100_000]).expect("a file");
    assert_eq!(fs::metadata(stand.path("tank/p/large")).expect("a file").blksize(), 32 << 10);
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    let line =
        table.lines().find(|l| l.contains(&*stand.path("tank/p ").to_string_lossy())).expect("it is mounted");
    assert!(["noexec", "nodev", "nosuid"].iter().all(|word| line.contains(word)), "{line}");
}

/// Incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 1_u64;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Goal: a file copied out of a snapshot shares its blocks, also when the snapshot is destroyed.
/// The pool is consistent then.
#[test]
fn snapshots_give_blocks_back() {
    let Some(stand) = Stand::new("") else { return };
    let bytes = noise(1_000_000);
    let file = stand.path("tank/f");
    write(&file, &bytes).expect("a file");
    stand.good("zfs snapshot tank@s");
    fs::remove_file(&file).expect("it was there");
    let shared =
        || stand.good("zpool get -H -p -o value bcloneused tank").trim().parse::<u64>().expect("a number");
    assert_eq!(shared(), 0);
    fs::copy(stand.path("tank/.zfs/snapshot/s/f"), &file).expect("a copy");
    stand.good("zpool sync tank");
    assert!(shared() >= bytes.len() as u64, "{}", shared());
    stand.good("zfs destroy tank@s");
    assert!(fs::read(&file).expect("a file") == bytes);
    stand.good("zpool sync tank");
    stand.good("zpool export tank");
    if let Some(zdb) = std::env::var_os("ZDB") {
        let judged =
            Command::new(zdb).args(["-e", "-p"]).arg(stand.dir.path()).args(["-bcc", "tank"]).output();
        let judged = judged.expect("zdb runs");
        assert!(judged.status.success() && String::from_utf8_lossy(&judged.stdout).contains("No leaks"));
    }
    stand.good(&format!(
        "zpool import -d {} -R {} tank",
        stand.dir.path().display(),
        stand.path("").display()
    ));
    assert!(fs::read(&file).expect("a file") == bytes);
}

/// Goal: a program that has a directory of a snapshot open can use it while the snapshot is renamed
/// and others are destroyed. When its own is destroyed, its blocks belong to others.
#[test]
fn a_destroyed_snapshot_is_stale() {
    let Some(stand) = Stand::new("") else { return };
    for name in ["a", "b"] {
        write(&stand.path("tank").join(name), name.as_bytes()).expect("a file");
    }
    for line in ["zfs snapshot tank@s", "zfs snapshot tank@other"] {
        stand.good(line);
    }
    let open = fs::File::open(stand.path("tank/.zfs/snapshot/s")).expect("a directory");
    let read = |name: &str| fs::read(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    stand.good("zfs rename tank@s @renamed");
    stand.good("zfs destroy tank@other");
    assert_eq!(read("a").expect("it is there"), b"a");
    stand.good("zfs destroy tank@renamed");
    let error = read("b").expect_err("it is gone");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()));
    stand.good("zfs snapshot tank@s");
    assert_eq!(fs::read(stand.path("tank/.zfs/snapshot/s/b")).expect("it is there"), b"b");
    read("b").expect_err("this is another one");
}

/// Writes until a write fails. Returns the number of written bytes and the error.
fn fill(path: &Path) -> (usize, Option<i32>) {
    let mut file = fs::File::create(path).expect("a file");
    let piece = noise(1 << 18);
    let mut done = 0;
    loop {
        // Data of a successful write does not fail later.
        match file.write(&piece) {
            Ok(n) => done += n,
            Err(e) => {
                file.sync_all().expect("what was taken can be kept");
                return (done, e.raw_os_error());
            }
        }
    }
}

/// Goal: the write that finds no space, or exceeds a quota, gets the error. Space is free again
/// after files are removed.
#[test]
fn who_writes_too_much_hears_of_it() {
    const MIB: usize = 1 << 20;
    let Some(stand) = Stand::sized(96 << 20, "") else { return };
    stand.good("zfs create -o quota=20M tank/q");
    let (done, why) = fill(&stand.path("tank/q/f"));
    assert_eq!(why, Some(122));
    assert!((10 * MIB..40 * MIB).contains(&done), "{done}");
    assert_eq!(fs::metadata(stand.path("tank/q/f")).expect("a file").len(), done as u64);
    fs::remove_file(stand.path("tank/q/f")).expect("it can be removed");
    // Removed files are freed when the kernel has dropped them, in the txgs after that.
    let again = |name: &str| {
        let there = (0..100).any(|_| {
            stand.good("zpool sync tank");
            write(&stand.path(name), &noise(5 * MIB)).is_ok()
        });
        assert!(there, "there is no room again for {name}");
    };
    again("tank/q/g");
    let (done, why) = fill(&stand.path("tank/f"));
    assert_eq!(why, Some(28));
    assert!(done > 20 * MIB, "{done}");
    let piece = write(&stand.path("tank/h"), &noise(4 * MIB));
    assert!(piece.is_err_and(|e| e.raw_os_error() == Some(28)));
    fs::remove_file(stand.path("tank/f")).expect("it can be removed");
    again("tank/i");
}

/// Goal: a file system is created with all the requested quotas, or not at all.
#[test]
fn quotas_of_a_new_file_system() {
    let Some(stand) = Stand::new("") else { return };
    stand.good("zfs create -o userquota@1000=1M -o groupobjquota@5=7 -o atime=off tank/q");
    let got = stand.good("zfs get -H -p -o value userquota@1000,groupobjquota@5,atime tank/q");
    assert_eq!(got, "1048576\n7\noff\n");
    assert_eq!(stand.good("zfs list -H -o mounted tank/q"), "yes\n");
    stand.good("zfs snapshot tank/q@s");
    stand.good("zfs clone -o projectquota@3=2M tank/q@s tank/clone");
    assert_eq!(
        stand.good("zfs get -H -p -o value projectquota@3,userquota@1000 tank/clone"),
        "2097152\n1048576\n"
    );
    for (line, words) in [
        ("zfs create -o userquota@1000=x tank/x", "cannot create 'tank/x': bad numeric value 'x'\n"),
        ("zfs create -o userused@1000=1 tank/x", "cannot create 'tank/x': 'userused@1000' is readonly\n"),
    ] {
        assert_eq!(stand.bad(line), words, "{line}");
    }
    assert!(!stand.bad("zfs create -o userquota@1000=1M -V 1M tank/x").is_empty());
    assert_eq!(stand.ran("zfs list tank/x").code, 1);
}
