//! `poolhouse ls` and `poolhouse cp` on pools that OpenZFS wrote: the output is what the manifests
//! record.

use crate::daemon;

use crate::daemon::{DROP_COPIES, Daemon, image, said, stuck};
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use testkit::{EntryKind, Fixture};

/// Runs the command on a fixture's images. Returns exit code, output and errors.
fn poolhouse(fixture: &Fixture, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(args);
    for image in fixture.images() {
        command.arg("-d").arg(image);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub(crate) fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// True for errors of the destination: not every file system takes all attributes that ZFS has.
pub(crate) fn excused(line: &str) -> bool {
    line.contains("cannot keep its extended attribute")
}

/// Compares the copies with the manifest of a snapshot, path by path. Returns the number of
/// compared files.
fn compare(fixture: &Fixture, snapshot: &str, out: &Path) -> usize {
    compare_except(fixture, snapshot, out, &[])
}

/// Compares like [`compare`], but not the contents of these paths.
pub(crate) fn compare_except(fixture: &Fixture, snapshot: &str, out: &Path, lost: &[Vec<u8>]) -> usize {
    let mut files = 0;
    for e in fixture.manifest(snapshot).expect("the snapshot has a manifest").entries() {
        let path = out.join(std::ffi::OsStr::from_bytes(&e.path));
        let meta = path.symlink_metadata().unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let shown = path.display();
        if e.kind == EntryKind::Symlink {
            let target = std::fs::read_link(&path).unwrap();
            assert_eq!(Some(target.as_os_str().as_bytes()), e.target.as_deref(), "{shown}: target");
            continue;
        }
        // The destination may not support such times: ext4 ends in 2446.
        if e.mtime.abs() < 1 << 61 {
            let mtime = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            assert_eq!(mtime, e.mtime, "{shown}: mtime");
        }
        // Without root, the owner is the user who copied, and set-id bits are lost.
        if rustix::process::geteuid().is_root() {
            assert_eq!((meta.uid(), meta.gid()), (e.uid, e.gid), "{shown}: owner");
            assert_eq!(meta.permissions().mode() & 0o7777, e.mode, "{shown}: mode");
        }
        if e.kind == EntryKind::File {
            assert_eq!(meta.len(), e.size, "{shown}: size");
            assert_eq!(meta.nlink(), e.nlink, "{shown}: links");
            if let Some(want) = e.sha256.as_ref().filter(|_| !lost.contains(&e.path)) {
                assert_eq!(&sha256(&path), want, "{shown}: contents");
            }
            files += 1;
        }
    }
    files
}

/// Goal: a whole snapshot is copied with contents, holes, links, owners, modes and times.
#[test]
fn copies_a_snapshot() {
    let fixture = testkit::load("single-lz4");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let source = "single-lz4/snaps@two:/";
    let (code, _, err) = poolhouse(&fixture, &["cp", "-r", source, out.to_str().unwrap()]);
    let complaints: Vec<&str> = err.lines().filter(|l| !excused(l)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(code, i32::from(!err.is_empty()));
    assert!(compare(&fixture, "single-lz4/snaps@two", &out) > 100);
    let sparse = out.join("records/sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 < sparse.len(), "the holes of a sparse file were filled");
}

/// Goal: a tree deeper than the limit of open files is copied completely, each directory with its
/// time.
#[test]
fn copies_deeper_than_descriptors() {
    let fixture = testkit::load("single-lz4");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let limited = Command::new("sh")
        .args(["-c", "ulimit -n 32 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_poolhouse")])
        .args(["cp", "-r", "single-lz4:/deep", out.to_str().unwrap(), "-d"])
        .arg(&fixture.images()[0])
        .output()
        .unwrap();
    let err = String::from_utf8(limited.stderr).unwrap();
    assert_eq!(err.lines().filter(|l| !excused(l)).count(), 0, "{err}");
    let manifest = fixture.manifest("single-lz4").unwrap();
    let mut deepest = 0;
    for e in manifest.entries().iter().filter(|e| e.path.starts_with(b"deep/")) {
        let below = Path::new(std::ffi::OsStr::from_bytes(&e.path)).strip_prefix("deep").unwrap();
        deepest = deepest.max(below.components().count());
        let meta = out.join(below).symlink_metadata().unwrap_or_else(|err| panic!("{below:?}: {err}"));
        let mtime = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        assert_eq!(mtime, e.mtime, "{below:?}");
    }
    assert!(deepest > 35, "{deepest}");
}

/// Goal: damage that redundancy covers is invisible: a mirror with one child damaged in 300 places
/// is copied completely.
#[test]
fn copies_past_damage() {
    let fixture = testkit::load("mirror2-damaged");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (_, _, err) = poolhouse(&fixture, &["cp", "-r", "xmirror2@s1:/", out.to_str().unwrap()]);
    assert_eq!(err.lines().filter(|l| !excused(l)).count(), 0, "{err}");
    let base = fixture.base().expect("the pool was damaged after it was described");
    assert!(compare(base, "xmirror2@s1", &out) > 100);
}

/// Goal: unrecoverable damage is reported by path and offset, the rest of the file is copied, and
/// the exit code is 1.
#[test]
fn names_what_is_lost() {
    let fixture = testkit::fixture_copy("mirror2");
    let image = &fixture.images()[0];
    let pool = testkit::load("mirror2");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rand.bin");
    let one = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["cp", "xmirror2@s1:/records/rand.bin"])
        .arg(&out)
        .arg("-d")
        .arg(image)
        .output()
        .unwrap();
    assert!(one.status.success(), "half a mirror is enough: {}", String::from_utf8_lossy(&one.stderr));
    let entries = pool.manifest("xmirror2@s1").unwrap().entries();
    let entry = entries.iter().find(|e| e.path == b"records/rand.bin").unwrap();
    assert_eq!(Some(sha256(&out)), entry.sha256);

    // Overwrite every place that has the beginning of the file's contents.
    let needle = std::fs::read(&out).unwrap()[..512].to_vec();
    let mut raw = std::fs::read(image).unwrap();
    let mut wiped = 0;
    for at in (0..raw.len() - needle.len()).step_by(512) {
        if raw[at..at + needle.len()] == needle {
            raw[at..at + 512].fill(0xa5);
            wiped += 1;
        }
    }
    assert!(wiped > 0, "random bytes are stored as they are");
    std::fs::write(image, &raw).unwrap();
    let lost = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(["cp", "xmirror2@s1:/records/rand.bin"])
        .arg(dir.path().join("again"))
        .arg("-d")
        .arg(image)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert_eq!(lost.status.code(), Some(1), "{err}");
    assert!(err.contains("xmirror2@s1:/records/rand.bin: offset 0"), "{err}");
}

/// Goal: an encrypted dataset needs its key: without it there is an error that says so, and with it
/// the contents are copied.
#[test]
fn wants_keys() {
    let fixture = testkit::load("encrypted");
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "correct horse\n").unwrap();
    let (code, _, err) = poolhouse(&fixture, &["ls", "encrypted/pass:/"]);
    assert_eq!(code, 1);
    assert!(err.contains("key"), "{err}");
    let (code, out, err) = poolhouse(&fixture, &["ls", "-k", key.to_str().unwrap(), "encrypted/pass:/"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.lines().any(|l| l == "records"), "{out}");
    std::fs::write(&key, "wrong horse\n").unwrap();
    let (code, _, err) = poolhouse(&fixture, &["ls", "-k", key.to_str().unwrap(), "encrypted/pass:/"]);
    assert_eq!(code, 1, "{err}");
}

/// Goal: volumes are copied as files, with their holes.
#[test]
fn copies_volumes() {
    let fixture = testkit::load("zvols");
    let dir = tempfile::tempdir().unwrap();
    for volume in fixture.zvols().iter().filter(|z| z.when.is_none()).take(4) {
        let out = dir.path().join("volume");
        let source = format!("{}:", volume.name);
        let (code, _, err) = poolhouse(&fixture, &["cp", &source, out.to_str().unwrap()]);
        assert_eq!((code, err.as_str()), (0, ""), "{source}");
        assert_eq!(sha256(&out), volume.sha256, "{source}");
    }
}

/// Goal: pools, datasets, txgs and deleted names are listed. An unknown pool is an error, and an
/// invalid line has exit code 2.
#[test]
fn lists() {
    let fixture = testkit::load("single-lz4");
    let lines = |args: &[&str]| {
        let (code, out, err) = poolhouse(&fixture, args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&["ls"]), ["single-lz4\t17506018290716819565"]);
    assert!(lines(&["ls", "single-lz4/snaps"]).contains(&"single-lz4/snaps@two".to_owned()));
    assert!(lines(&["ls", "--list-txgs", "single-lz4"])[0].starts_with("419\t"));
    assert_eq!(lines(&["ls", "--find", "snaps@t"]), ["single-lz4/snaps@two", "single-lz4/snaps@three"]);
    let older = poolhouse(&fixture, &["ls", "--txg", "410", "single-lz4/snaps@one:/"]);
    assert!(older.0 == 0 && older.2.contains("transaction group 410"), "{older:?}");
    assert_eq!(poolhouse(&fixture, &["ls", "nothere:/"]).0, 1);
    assert_eq!(poolhouse(&fixture, &["cp", "single-lz4:/"]).0, 2);
}

/// Two pools with one name, created by one daemon one after the other, each with its own file.
/// Returns `None` if mounting is not possible.
fn twins() -> Option<(tempfile::TempDir, [String; 2])> {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let at = dir.path().display();
    let mut guids = Vec::new();
    for (image_of, file) in [("d0", "first"), ("d1", "second")] {
        image(&dir.path().join(image_of));
        let made = daemon.ran(&format!("zpool create -m {at}/mnt tank {at}/{image_of}"));
        if !made.status.success() {
            eprintln!("nothing can be mounted here: {}", said(&made));
            return None;
        }
        std::fs::write(dir.path().join("mnt").join(file), file).unwrap();
        guids.push(daemon.good("zpool get -Ho value guid tank").trim().to_owned());
        daemon.good("zpool export tank");
    }
    let guids = guids.try_into().unwrap();
    Some((dir, guids))
}

fn run(dir: &Path, line: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = daemon::command(dir, line).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Goal: of two pools with one name neither is chosen. Both guids are named, and each pool can be
/// listed, copied from and copied into by its guid.
#[test]
fn two_pools_of_one_name() {
    let Some((dir, guids)) = twins() else { return };
    let at = dir.path().display();
    let [d0, d1] = ["d0", "d1"].map(|d| format!("{at}/{d}"));
    std::fs::write(dir.path().join("new"), "new").unwrap();
    for line in ["ls -d IMAGES tank:/", "cp -d IMAGES -r tank:/ OUT", "cp -d IMAGES NEW tank:/new"] {
        let line = line.replace("IMAGES", &format!("{d0} -d {d1}"));
        let line = line.replace("OUT", &format!("{at}/out")).replace("NEW", &format!("{at}/new"));
        let (code, out, err) = run(dir.path(), &line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}");
        assert!(err.contains("more than one pool is called 'tank'"), "{err}");
        assert!(guids.iter().all(|guid| err.contains(guid.as_str())) && err.contains(&d1), "{err}");
    }
    for (guid, file) in guids.iter().zip(["first", "second"]) {
        let good = |line: &str| {
            let (code, out, err) = run(dir.path(), &format!("{line} -d {d0} -d {d1}"));
            assert_eq!((code, err.as_str()), (0, ""), "{line}");
            out
        };
        assert_eq!(good(&format!("ls {guid}:/")), format!("{file}\n"));
        assert_eq!(good(&format!("ls {guid}")), "tank\n");
        good(&format!("cp {at}/new {guid}:/{file}.new"));
        good(&format!("cp {guid}:/{file}.new {at}/back"));
        assert_eq!(std::fs::read(dir.path().join("back")).unwrap(), b"new");
        assert_eq!(good(&format!("ls {guid}:/")), format!("{file}\n{file}.new\n"));
    }
}

/// Goal: a named path that can't be read is an error with that path, not an empty list.
#[test]
fn unreadable_devices() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let (code, out, err) = run(dir.path(), &format!("ls -d {at}/nothing"));
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert_eq!(err, format!("poolhouse ls: {at}/nothing: No such file or directory\n"));
    let (code, _, err) = run(dir.path(), "ls -d /dev/null");
    assert!(code == 1 && err.starts_with("poolhouse ls: /dev/null: it is no file"), "{err}");
    let Some(user) = Ordinary::new(dir.path()) else { return };
    std::fs::create_dir(dir.path().join("images")).unwrap();
    std::fs::write(dir.path().join("images/d0"), "secret").unwrap();
    std::fs::set_permissions(dir.path().join("images/d0"), PermissionsExt::from_mode(0o600)).unwrap();
    for named in ["images/d0", "images"] {
        let (code, _, err) = user.run(&format!("ls -d {at}/{named}"));
        assert_eq!(code, 1, "{err}");
        assert_eq!(err, format!("poolhouse ls: {at}/images/d0: Permission denied\n"));
    }
}

/// An ordinary user who may run the program and write to a directory.
struct Ordinary<'a> {
    dir: &'a Path,
    program: std::path::PathBuf,
}

impl<'a> Ordinary<'a> {
    /// Returns `None` if this process can't become another user.
    fn new(dir: &'a Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("this takes root");
            return None;
        }
        let program = dir.join("poolhouse");
        std::fs::copy(env!("CARGO_BIN_EXE_poolhouse"), &program).unwrap();
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(dir.join("home")).unwrap();
        std::os::unix::fs::chown(dir.join("home"), Some(1001), Some(1001)).unwrap();
        Some(Self { dir, program })
    }

    fn run(&self, line: &str) -> (i32, String, String) {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace()).current_dir("/").uid(1001).gid(1001);
        let Output { status, stdout, stderr } =
            command.env("POOLHOUSE_RUN_DIR", self.dir.join("home/run")).output().unwrap();
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

/// Goal: a user who may not set owners gets one message, with the options that avoid it. A
/// destination that can't be written is named itself.
#[test]
fn owners_and_destinations() {
    let fixture = testkit::load("mirror2");
    let dir = tempfile::tempdir().unwrap();
    let Some(user) = Ordinary::new(dir.path()) else { return };
    let at = dir.path().display();
    let mut images = String::new();
    for (n, image) in fixture.images().iter().enumerate() {
        let copy = dir.path().join(format!("d{n}"));
        std::fs::copy(image, &copy).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o644)).unwrap();
        images += &format!(" -d {}", copy.display());
    }
    let copy = |options: &str, to: &str| {
        user.run(&format!("cp -r {options} {}@s1:/records {at}/{to}{images}", fixture.pool()))
    };
    let once = |err: &str, what: &str| err.lines().filter(|line| line.contains(what)).count();
    let (code, _, err) = copy("", "home/a");
    assert_eq!((code, once(&err, "owners are not kept")), (0, 1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let (_, _, err) = copy("--no-owner", "home/b");
    assert_eq!(once(&err, "owner"), 0, "{err}");
    let (code, _, err) = copy("--numeric-owner", "home/c");
    assert!(code == 1 && once(&err, "cannot keep its owner: Operation not permitted") > 1, "{err}");
    let (code, _, err) = copy("", "out");
    assert_eq!(code, 1);
    assert!(err.starts_with(&format!("poolhouse cp: cannot write {at}/out: Permission denied")), "{err}");
    // In the other direction, the image can't be written.
    let (code, _, err) = user.run(&format!("cp /etc/hostname {}:/{images}", fixture.pool()));
    assert_eq!(code, 1);
    assert!(err.starts_with(&format!("poolhouse cp: cannot write {at}/d0: Permission denied")), "{err}");
}

/// Goal: `ls` and `cp` of an encrypted dataset without its key name the dataset and the option that
/// gives a key.
#[test]
fn names_the_missing_key() {
    let fixture = testkit::load("encrypted");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    for line in [&["ls", "encrypted/pass:/"][..], &["cp", "-r", "encrypted/pass:/", &out]] {
        let (code, _, err) = poolhouse(&fixture, line);
        let words =
            "encrypted/pass is encrypted, and its key is not loaded: give it with -k encrypted/pass=FILE\n";
        assert_eq!((code, err), (1, format!("poolhouse {}: {words}", line[0])));
    }
}

/// Goal: a pool of the user's own daemon is listed through it: datasets, files, snapshots, by name
/// and by guid, mounted or not.
#[test]
fn pools_of_the_daemon() {
    let Some((dir, daemon)) = daemon::tank() else { return };
    let mnt = dir.path().join("mnt");
    std::fs::write(mnt.join("home/file"), "content").unwrap();
    std::os::unix::fs::symlink("file", mnt.join("home/link")).unwrap();
    daemon.good("zfs snapshot tank/home@s");
    std::fs::create_dir(mnt.join("home/folder")).unwrap();
    let guid = daemon.good("zpool get -Ho value guid tank").trim().to_owned();
    assert!(daemon.good("ls").lines().any(|line| line == format!("tank\t{guid}")));
    assert_eq!(daemon.good("ls tank"), "tank\ntank/home\ntank/home@s\n");
    let listed = || {
        assert_eq!(daemon.good("ls tank/home:/"), "file\nfolder\nlink\n");
        assert_eq!(daemon.good(&format!("ls {guid}/home@s:/")), "file\nlink\n");
        assert_eq!(daemon.good("ls tank/home@s"), "file\nlink\n");
        assert_eq!(daemon.good("ls -R tank/home:/"), "/:\nfile\nfolder\nlink\n\n/folder:\n");
        assert_eq!(daemon.good("ls tank/home:/link"), "link\n");
        let long = daemon.good("ls -l tank/home:/");
        assert!(long.starts_with("-rw-r--r--   1      0      0            7 "), "{long}");
        assert!(long.ends_with(" link -> file\n"), "{long}");
        assert_eq!(daemon.good("ls --find /file tank"), "tank/home:/file\ntank/home@s:/file\n");
        assert_eq!(daemon.good("ls --find home@ tank"), "tank/home@s\n");
        let image = dir.path().join("d0").display().to_string();
        assert_eq!(daemon.good(&format!("ls -d {image} tank/home:/")), "file\nfolder\nlink\n");
    };
    listed();
    daemon.good("zfs unmount tank/home");
    listed();
    let refused = |line: &str, why: &str| {
        let (code, out, err) = run(dir.path(), line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}");
        assert!(err.contains(why), "{line}: {err}");
    };
    refused("ls tank/home:/nothing", "tank/home:/nothing: ");
    refused("ls tank/none:/", "tank/none: dataset does not exist");
    refused("ls tank/home@none:/", "tank/home@none: dataset does not exist");
    refused("cp tank/home:/folder /tmp/none", "tank/home:/folder: is a folder: use -r");
    refused("cp tank/home: /tmp/none", "is no volume");
    refused("cp /etc/passwd tank/home@s:/file", "tank/home@s: is no file system that can be written");
    daemon.good("zfs set readonly=on tank/home");
    refused("cp /etc/passwd tank/home:/file", "has the property readonly=on");
    daemon.good("zpool export tank");
}

/// The visible contents of a tree: a line for each file, with its contents.
fn seen(top: &Path) -> Vec<String> {
    let (mut todo, mut lines) = (vec![top.to_owned()], Vec::new());
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        let contents = match meta.file_type() {
            kind if kind.is_file() => sha256(&path),
            kind if kind.is_symlink() => std::fs::read_link(&path).unwrap().display().to_string(),
            kind if kind.is_dir() => {
                todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
            _ => String::new(),
        };
        let sparse = meta.is_file() && meta.blocks() * 512 < meta.len() / 2;
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let nlink = if meta.is_dir() { 0 } else { meta.nlink() };
        let xattr = {
            let mut value = [0; 64];
            let n = rustix::fs::lgetxattr(&path, "user.note", &mut value[..]).unwrap_or(0);
            String::from_utf8_lossy(&value[..n]).into_owned()
        };
        let below = path.strip_prefix(top).unwrap().display();
        let (mode, owner, mtime) = (meta.mode(), (meta.uid(), meta.gid()), (meta.mtime(), meta.mtime_nsec()));
        lines
            .push(format!("{below} {mode:o} {owner:?} {nlink} {size} {sparse} {mtime:?} {xattr} {contents}"));
    }
    lines.sort();
    lines
}

/// Fills a directory with several kinds of files.
fn fill(top: &Path) {
    use std::os::unix::fs::{FileExt, chown, symlink};
    std::fs::create_dir_all(top.join("folder/deeper")).unwrap();
    // Incompressible data.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = (0..3_000_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    std::fs::write(top.join("folder/noise"), &noise).unwrap();
    std::fs::hard_link(top.join("folder/noise"), top.join("folder/deeper/again")).unwrap();
    let sparse = std::fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 50 << 20).unwrap();
    symlink("folder/noise", top.join("link")).unwrap();
    std::fs::write(top.join("owned"), "owned").unwrap();
    std::fs::set_permissions(top.join("owned"), PermissionsExt::from_mode(0o640)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(top.join("owned"), Some(1234), Some(5678)).unwrap();
    }
    std::fs::write(top.join(std::ffi::OsStr::from_bytes(b"odd \xff name")), "odd").unwrap();
    let note =
        rustix::fs::setxattr(top.join("owned"), "user.note", b"noted", rustix::fs::XattrFlags::empty());
    note.unwrap();
}

/// Goal: commands show and copy the same from a pool that the daemon has mounted, that it only
/// holds, or that lies on devices. Data that is not on disk yet is included.
#[test]
fn the_same_by_the_daemon() {
    let Some((dir, daemon)) = daemon::tank() else { return };
    let at = dir.path().display();
    let home = dir.path().join("mnt/home");
    fill(&home);
    let original = seen(&home);
    let mut all = Vec::new();
    for state in ["mounted", "held", "devices"] {
        let devices = if state == "devices" { format!(" -d {at}/d0") } else { String::new() };
        let said: Vec<_> = [
            "ls -lR tank/home:/",
            "ls -l tank/home:/folder",
            "ls -l tank/home:/owned",
            "ls --find /folder/noise tank",
            "ls tank/home:/none",
            &format!("cp -rv tank/home:/ {at}/{state}"),
            &format!("cp tank/home:/sparse {at}/{state}.sparse"),
            "cp tank/home:/none /tmp/none",
        ]
        .iter()
        .map(|line| run(dir.path(), &format!("{line}{devices}")))
        .collect();
        assert_eq!(seen(&dir.path().join(state)), original, "{state}");
        assert_eq!(
            sha256(&dir.path().join(format!("{state}.sparse"))),
            sha256(&dir.path().join("mounted/sparse"))
        );
        all.push(said);
        match state {
            "mounted" => drop(daemon.good("zfs unmount tank/home")),
            "held" => drop(daemon.good("zpool export tank")),
            _ => {}
        }
    }
    assert_eq!(all[0], all[1], "mounted and not");
    assert_eq!(all[1], all[2], "held and not");
}

/// Goal: files are copied into a pool of the daemon. A mount shows them at once, although the
/// kernel has cached the old names.
///
/// A replaced file stays unchanged for a program that has it open, and its space is freed
/// afterwards.
#[test]
fn copies_into_held_pools() {
    use std::io::{Read, Seek};
    let Some((dir, daemon)) = daemon::tank() else { return };
    let at = dir.path().display();
    let home = dir.path().join("mnt/home");
    fill(&dir.path().join("source"));
    let original = seen(&dir.path().join("source"));
    // The kernel caches these results.
    assert!(!home.join("tree").exists());
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    let noise = std::fs::read(dir.path().join("source/folder/noise")).unwrap();
    std::fs::write(dir.path().join("noise"), &noise).unwrap();
    std::fs::write(dir.path().join("new"), "new").unwrap();
    let used = || {
        daemon.good("zpool sync tank");
        daemon.good("zfs get -Hpo value used tank/home").trim().parse::<u64>().unwrap()
    };
    // Three files: one that a program has open, one that the kernel knows, and one that it has
    // never seen.
    std::fs::write(home.join("open"), &noise).unwrap();
    std::fs::write(home.join("known"), &noise).unwrap();
    daemon.good(&format!("cp {at}/noise tank/home:/unknown"));
    assert!(used() > 3 * noise.len() as u64);
    let mut open = std::fs::File::open(home.join("open")).unwrap();
    for name in ["open", "known", "unknown"] {
        daemon.good(&format!("cp {at}/new tank/home:/{name}"));
    }
    for name in ["open", "known", "unknown"] {
        assert_eq!(std::fs::read_to_string(home.join(name)).unwrap(), "new");
    }
    let mut old = Vec::new();
    open.rewind().unwrap();
    open.read_to_end(&mut old).unwrap();
    assert!(old == noise, "a file that is open was changed");
    drop(open);
    let since = std::time::Instant::now();
    while used() > noise.len() as u64 {
        assert!(since.elapsed().as_secs() < 60, "what was replaced is not freed: {}", used());
    }
    daemon.good(&format!("cp -r {at}/source tank/home:/tree"));
    assert_eq!(seen(&home.join("tree")), original);
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 4);
    daemon.good("zfs unmount tank/home");
    daemon.good(&format!("cp -r {at}/source tank/home:/other"));
    daemon.good(&format!("cp {at}/new tank/home:/file"));
    daemon.good("zfs mount tank/home");
    assert_eq!(seen(&home.join("other")), original);
    daemon.good("zpool export tank");
    assert!(daemon.good(&format!("ls -d {at}/d0 tank/home:/")).contains("other\n"));
}

/// Goal: volumes, snapshots of volumes and encrypted datasets of a pool of the daemon are copied. A
/// key that was given for that is unloaded afterwards.
#[test]
fn volumes_and_keys_by_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let at = dir.path().display();
    let import = |name: &str| {
        let fixture = testkit::fixture_copy(name);
        let images: String =
            fixture.images().iter().map(|image| format!(" -d {}", image.display())).collect();
        daemon.good(&format!("zpool import -fN{images} {}", testkit::load(name).pool()));
        fixture
    };
    let _zvols = import("zvols");
    let fixture = testkit::load("zvols");
    for volume in fixture.zvols().iter().filter(|z| z.when.is_none()).take(4) {
        daemon.good(&format!("cp {}: {at}/volume", volume.name));
        assert_eq!(sha256(&dir.path().join("volume")), volume.sha256, "{}", volume.name);
    }
    let (code, _, err) = run(dir.path(), &format!("ls {}:/", fixture.zvols()[0].name));
    assert!(code == 1 && err.contains("is a volume"), "{err}");
    daemon.good("zpool export zvols");

    let _encrypted = import("encrypted");
    std::fs::write(dir.path().join("key"), "correct horse\n").unwrap();
    std::fs::write(dir.path().join("wrong"), "wrong horse\n").unwrap();
    let state = || daemon.good("zfs get -Ho value keystatus encrypted/pass").trim().to_owned();
    let (code, _, err) = run(dir.path(), "ls encrypted/pass:/");
    let words =
        "encrypted/pass is encrypted, and its key is not loaded: give it with -k encrypted/pass=FILE\n";
    assert_eq!((code, err), (1, format!("poolhouse ls: {words}")));
    assert_eq!(run(dir.path(), &format!("ls -k {at}/wrong encrypted/pass:/")).0, 1);
    for key in [format!("{at}/key"), format!("encrypted/pass={at}/key")] {
        assert!(daemon.good(&format!("ls -k {key} encrypted/pass:/")).contains("records\n"));
        let since = std::time::Instant::now();
        while state() != "unavailable" {
            assert!(since.elapsed().as_secs() < 60, "the key stays loaded");
        }
    }
    daemon.good("zpool export encrypted");
}

/// Goal: a command that uses files keeps its pool and dataset busy, and errors name it. When it is
/// killed, both are free.
///
/// A forced export ends it with an error, and so does the end of the daemon.
#[test]
fn commands_keep_pools_busy() {
    let Some((dir, mut daemon)) = daemon::tank() else { return };
    let home = dir.path().join("mnt/home");
    for n in 0..1500 {
        std::fs::write(home.join(format!("{n:04}{}", "x".repeat(150))), "").unwrap();
    }
    daemon.good("zfs snapshot tank/home@s");
    let rollback = "zfs rollback tank/home@s";
    let reader = stuck(dir.path(), "ls tank/home:/");
    let (code, _, err) = run(dir.path(), rollback);
    assert!(code == 1 && err.contains(&format!("(process {})", reader.id())), "{err}");
    drop(reader.wait_with_output().unwrap());
    daemon.good("zfs unmount tank/home");
    let mut child = stuck(dir.path(), "ls tank/home:/");
    let user = format!("in use by poolhouse ls (process {})", child.id());
    for line in ["zpool export tank", "zfs mount tank/home", rollback, "zfs destroy -r tank/home"] {
        let (code, _, err) = run(dir.path(), line);
        assert!(code == 1 && err.contains(&user), "{line}: {err}");
    }
    // Other commands can use it too.
    assert_eq!(daemon.good("ls tank/home:/").lines().count(), 1500);
    child.kill().unwrap();
    child.wait().unwrap();
    let mounted = || run(dir.path(), "zfs mount tank/home");
    let since = std::time::Instant::now();
    while mounted().0 != 0 {
        assert!(since.elapsed().as_secs() < 60, "a killed command keeps it busy: {:?}", mounted());
    }

    let ended = |child: std::process::Child| {
        let Output { status, stdout, .. } = child.wait_with_output().unwrap();
        (status.code(), stdout.split(|byte| *byte == b'\n').count())
    };
    let child = stuck(dir.path(), "ls -R tank:/ tank/home:/ tank/home:/");
    daemon.good("zpool export -f tank");
    let (code, lines) = ended(child);
    assert!(code == Some(1) && lines < 3000, "{code:?} {lines}");

    let at = dir.path().display();
    daemon.good(&format!("zpool import -d {at}/d0 tank"));
    let child = stuck(dir.path(), "ls tank/home:/");
    daemon.signal("TERM");
    assert!(daemon.ended().success());
    assert_eq!(ended(child).0, Some(1));
}

/// Goal: a daemon gives files only to its own user. Others are refused, with the paths at which the
/// kernel has the files.
#[test]
fn files_of_another_users_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let Some(user) = Ordinary::new(dir.path()) else { return };
    let daemon = Daemon::start_with(dir.path(), &["--shared"]).unwrap();
    let at = dir.path().display();
    image(&dir.path().join("d0"));
    daemon.good(&format!("zpool create -m none tank {at}/d0"));
    daemon.good("zfs create tank/home");
    let run = |line: &str| {
        let mut command = Command::new(&user.program);
        use std::os::unix::process::CommandExt;
        command.args(line.split_whitespace()).current_dir("/").uid(1001).gid(1001);
        let Output { status, stdout, stderr } =
            command.env("POOLHOUSE_RUN_DIR", dir.path().join("run")).output().unwrap();
        let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
        (status.code().unwrap(), text(stdout), text(stderr))
    };
    assert_eq!(run("ls tank"), (0, "tank\ntank/home\n".into(), String::new()));
    for line in ["ls tank/home:/", "cp tank/home:/file /tmp/none", "cp /etc/passwd tank/home:/file"] {
        let (code, out, err) = run(line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}");
        assert!(err.contains("tank/home: the daemon of another user holds the pool"), "{err}");
    }
    daemon.good("zpool export tank");
}

/// Goal: without /dev/fuse, files are copied into a pool and out of it all the same.
#[test]
fn without_dev_fuse() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    image(&dir.path().join("d0"));
    std::fs::create_dir(dir.path().join("in")).unwrap();
    fill(&dir.path().join("in"));
    // A daemon of its own, and a directory /dev with only what programs need.
    let script = format!(
        "{DROP_COPIES} mount -t tmpfs none /mnt && touch /mnt/null /mnt/urandom && mount --bind /dev/null /mnt/null && \
         mount --bind /dev/urandom /mnt/urandom && mount --move /mnt /dev || exit 99
         set -e; test ! -e /dev/fuse
         P={program}
         $P zpool create -m none t {at}/d0
         $P zfs create t/a
         $P cp -r {at}/in t/a:/
         $P ls t/a:/
         $P zfs snapshot t/a@s
         $P cp -r t/a@s:/in {at}/out
         $P zpool export t",
        program = env!("CARGO_BIN_EXE_poolhouse")
    );
    let ran = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("POOLHOUSE_RUN_DIR", dir.path().join("run"))
        .current_dir("/")
        .output();
    let Ok(ran) = ran else { return };
    if ran.status.code() == Some(99) || String::from_utf8_lossy(&ran.stderr).contains("unshare failed") {
        eprintln!("nothing can be mounted over /dev here: {}", said(&ran));
        return;
    }
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(said(&ran), "in\n");
    assert_eq!(seen(&dir.path().join("out")), seen(&dir.path().join("in")));
}
