//! `poolhouse ls` and `poolhouse cp` on pools that OpenZFS wrote: what comes out is what the manifests say went in.

#![allow(clippy::unwrap_used)]

use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use testkit::{EntryKind, Fixture};

/// Runs the command on a fixture's images; its output and exit code.
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

fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(std::fs::read(path).unwrap());
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

/// Complaints that are the destination's: not every file system takes all the attributes that ZFS has.
fn excused(line: &str) -> bool {
    line.contains("cannot keep its extended attribute")
}

/// Compares what was copied with the manifest of a snapshot, path by path; the number of files compared.
fn compare(fixture: &Fixture, snapshot: &str, out: &Path) -> usize {
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
        // A destination may not reach as far as ZFS: ext4 ends in 2446.
        if e.mtime.abs() < 1 << 61 {
            let mtime = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            assert_eq!(mtime, e.mtime, "{shown}: mtime");
        }
        // Without root the owner is who copied, and set-id bits are gone with it.
        if rustix::process::geteuid().is_root() {
            assert_eq!((meta.uid(), meta.gid()), (e.uid, e.gid), "{shown}: owner");
            assert_eq!(meta.permissions().mode() & 0o7777, e.mode, "{shown}: mode");
        }
        if e.kind == EntryKind::File {
            assert_eq!(meta.len(), e.size, "{shown}: size");
            assert_eq!(meta.nlink(), e.nlink, "{shown}: links");
            if let Some(want) = &e.sha256 {
                assert_eq!(&sha256(&path), want, "{shown}: contents");
            }
            files += 1;
        }
    }
    files
}

/// A whole snapshot comes out with contents, holes, links, owners, modes and times.
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

/// A tree that is deeper than the process may have files open comes out whole, every folder with its time.
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

/// Damage that redundancy covers is not seen: a mirror with one half damaged in 300 places copies whole.
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

/// What no redundancy covers is named by path and offset, the rest of the file is there, and the exit code is 1.
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

    // Wipe everything that the file's contents occur in, wherever it lies.
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

/// Encrypted datasets want their key: without it the error says so, with it the contents come out.
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

/// Volumes come out as files, holes and all.
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

/// Pools, datasets, states and forgotten names are listed; an unknown pool is an error, a bad line has exit code 2.
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
