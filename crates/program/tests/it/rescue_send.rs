//! `poolhouse send`: streams of pools that are not imported, damaged ones among them.

use std::path::Path;
use std::process::Command;

use crate::daemon::{Daemon, image, said};
use crate::rescue::{compare_except, excused, sha256};

/// Runs a command with its output in a file. Returns the exit code and what it reports.
fn into(out: &Path, args: &[&str]) -> (i32, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_poolhouse"))
        .args(args)
        .stdout(std::fs::File::create(out).unwrap())
        .output()
        .unwrap();
    (ran.status.code().unwrap(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Goal: a snapshot of a pool that is not imported is sent, whole or as an increment. So it is with
/// half of a mirror.
#[test]
fn sends_a_snapshot() {
    let fixture = testkit::load("mirror2");
    let dir = tempfile::tempdir().unwrap();
    let [whole, half] = ["whole", "half"].map(|name| dir.path().join(name));
    let images: Vec<&str> = fixture.images().iter().map(|image| image.to_str().unwrap()).collect();
    let sent = into(&whole, &["send", "-d", images[0], "-d", images[1], "xmirror2@s1"]);
    assert_eq!(sent, (0, String::new()));
    assert_eq!(into(&half, &["send", "-d", images[1], "xmirror2@s1"]), (0, String::new()));
    assert_eq!(sha256(&whole), sha256(&half));
    let fails = |args: &[&str], told: &str| {
        let (code, err) = into(&half, &[&["send", "-d", images[0]], args].concat());
        assert!(code == 1 && err == format!("poolhouse send: {told}\n"), "{err}");
    };
    fails(&["xmirror2"], "xmirror2: is no snapshot: write POOL/DATASET@SNAPSHOT");
    fails(&["xmirror2@s9"], "dataset \"xmirror2@s9\" does not exist");
    let raw = "xmirror2@s1: --skip-unreadable can't leave anything out of a raw stream (-w)";
    fails(&["-w", "--skip-unreadable", "xmirror2@s1"], raw);
    let itself = "xmirror2@s1: not sent whole: not an earlier snapshot from the same fs";
    fails(&["-i", "@s1", "xmirror2@s1"], itself);
}

/// Damages one in `rate` places of an image outside the labels.
fn spoil(image: &Path, seed: u64, rate: u64) {
    let mut raw = std::fs::read(image).unwrap();
    let end = raw.len() - (512 << 10);
    let mut state = seed;
    for at in (4 << 20..end).step_by(4096) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (state >> 33).is_multiple_of(rate) {
            raw[at..at + 512].fill(0xa5);
        }
    }
    std::fs::write(image, &raw).unwrap();
}

/// Goal: of a damaged snapshot, everything that can be read is sent with `--skip-unreadable`. What
/// is missing is named, and is all that differs at the receiver.
#[test]
fn sends_what_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let device = dir.path().join("d0");
    image(&device);
    let cache = dir.path().join("cache");
    let (device, cache) = (device.display(), cache.display());
    daemon.good(&format!("zpool create -o cachefile={cache} -O mountpoint=none dst {device}"));
    let (mut kinds, mut compared) = ([0; 3], 0);
    for (seed, rate) in [(1, 10), (2, 20), (3, 50), (4, 100), (5, 100), (6, 200)] {
        let fixture = testkit::fixture_copy("single-lz4");
        spoil(&fixture.images()[0], seed, rate);
        let image = fixture.images()[0].to_str().unwrap();
        let stream = dir.path().join("stream");
        let (code, err) = into(&stream, &["send", "-d", image, "single-lz4/snaps@two"]);
        if code == 0 {
            continue;
        }
        assert!(code == 1 && err.contains("single-lz4/snaps@two: not sent whole: "), "{err}");
        let skip = ["send", "-d", image, "--skip-unreadable", "single-lz4/snaps@two"];
        let (code, err) = into(&stream, &skip);
        let parts = err.lines().count() - 1;
        let last =
            format!("poolhouse send: single-lz4/snaps@two: {parts} parts are left out of the stream\n");
        assert!(code == 1 && err.ends_with(&last), "{err}");
        let path = stream.display();
        assert_eq!(into(&dir.path().join("told"), &["stream", "verify", &path.to_string()]).0, 0);
        let received = Command::new("sh")
            .args(["-c", &format!("exec {} zfs receive dst/{seed} <{path}", env!("CARGO_BIN_EXE_poolhouse"))])
            .env("POOLHOUSE_RUN_DIR", dir.path().join("run"))
            .output()
            .unwrap();
        assert!(received.status.success(), "{}", said(&received));
        for (kind, what) in [": bytes ", ": objects ", ": a part"].iter().enumerate() {
            kinds[kind] += err.matches(what).count();
        }
        let lost: Vec<Vec<u8>> = err.lines().filter_map(lost_path).collect();
        let names = lost.iter().any(|path| path.is_empty())
            || err.contains(": objects ")
            || err.contains(": a part, ");
        let out = dir.path().join(format!("out{seed}"));
        let copied = daemon.ran(&format!("cp -r dst/{seed}@two:/ {}", out.display()));
        assert!(
            names || copied.status.code() == Some(0) || said(&copied).lines().all(excused),
            "{}",
            said(&copied)
        );
        if !names {
            compared += 1;
            let whole = testkit::load("single-lz4");
            assert!(compare_except(&whole, "single-lz4/snaps@two", &out, &lost) > 100);
        }
    }
    assert!(kinds[0] > 0 && compared > 0, "{kinds:?}, {compared} compared");
    daemon.good("zpool destroy dst");
}

/// The path in a line about lost bytes, without its leading slash; empty if it is not known.
fn lost_path(line: &str) -> Option<Vec<u8>> {
    let rest = line.strip_prefix("poolhouse send: single-lz4/snaps@two:")?;
    if rest.starts_with(": objects ") || rest.ends_with(" are left out of the stream") {
        return None;
    }
    let path = rest.strip_prefix('/').and_then(|rest| rest.split_once(" (object "));
    Some(path.map(|(path, _)| path.as_bytes().to_vec()).unwrap_or_default())
}

/// Goal: what a stored stream of OpenZFS has is listed as it is listed in the pool that it was sent
/// from: of a whole stream, of one file system of a package, and of a volume.
#[test]
fn lists_a_stored_stream() {
    let Some(fixture) = testkit::find("send-src") else { return };
    let copy = fixture.copy();
    let dir = tempfile::tempdir().unwrap();
    let stored = |name: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, fixture.stream(&format!("{name}.zsend")).unwrap()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let ran = |args: &[&str]| {
        let temporary = dir.path().join("temporary");
        std::fs::create_dir_all(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        let ran = command.args(args).env("TMPDIR", &temporary).output().unwrap();
        assert!(std::fs::read_dir(temporary).unwrap().next().is_none(), "nothing is left");
        (ran.status.code().unwrap(), said(&ran))
    };
    let [full, package] = [stored("full-a"), stored("replicate-tree")];
    let there = |name: &str| ran(&["ls", "-lR", "-d", copy.dir().to_str().unwrap(), name]);
    let listed = ran(&["stream", "ls", "-lR", &full]);
    assert!(listed.0 == 0 && listed.1.lines().count() > 500, "{}", listed.1);
    assert!(listed == there("send-src/fs@a:/"));
    let clone = "send-src/tree/k1clone@r2";
    assert!(ran(&["stream", "ls", "-lR", &package, clone]) == there(&format!("{clone}:/")));
    let path = ran(&["stream", "ls", "-l", &full, "send-src/fs@a:/links"]);
    assert!(path == ran(&["ls", "-l", "-d", copy.dir().to_str().unwrap(), "send-src/fs@a:/links"]));
    let (code, names) = ran(&["stream", "ls", &package]);
    assert!(code == 0 && names.contains("send-src/tree/k1@r2\nsend-src/tree/k1clone@r2\n"), "{names}");
    let volume = ran(&["stream", "ls", &stored("vol-full")]);
    assert_eq!(volume, (0, "send-src/tree/vol@r1: a volume of 4194304 bytes\n".to_owned()));
    // What can't be listed is named.
    let cut = dir.path().join("cut");
    std::fs::write(&cut, &std::fs::read(&full).unwrap()[..900_000]).unwrap();
    for (file, told) in [
        (stored("incr-a-b"), "send-src/fs@b: builds on a snapshot that is not in the file before it"),
        (
            stored("raw-enc-e1"),
            "send-src/enc@e1: is encrypted, so that only a receiver with its key can list it",
        ),
        (cut.to_str().unwrap().to_owned(), "the stream ends inside record"),
        (copy.images()[0].to_str().unwrap().to_owned(), "no stream"),
    ] {
        let (code, text) = ran(&["stream", "ls", &file]);
        assert!(code == 1 && text.contains(told), "{file}: {text}");
    }
    // Only what a snapshot builds on is needed of the file, which may have streams of all kinds.
    let all = dir.path().join("all");
    let each = ["raw-enc-e1", "full-a", "incr-a-b", "large-embed-a", "full-a"];
    let bytes: Vec<u8> = each.iter().flat_map(|name| std::fs::read(stored(name)).unwrap()).collect();
    std::fs::write(&all, bytes).unwrap();
    let all = all.to_str().unwrap();
    for snapshot in ["send-src/fs@a", "send-src/fs@b"] {
        assert!(
            ran(&["stream", "ls", "-lR", all, snapshot]) == there(&format!("{snapshot}:/")),
            "{snapshot}"
        );
    }
    let (code, text) = ran(&["stream", "ls", all, ":/links"]);
    assert!(code == 1 && text.ends_with("has several snapshots: name one\n"), "{text}");
    let (code, text) = ran(&["stream", "ls", &package, "send-src/tree@r9"]);
    assert!(code == 1 && text.ends_with("the file has no such snapshot\n"), "{text}");
    assert_eq!(ran(&["stream", "ls"]).0, 2);
}
