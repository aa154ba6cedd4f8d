//! `zfs send`: streams, sizes, refusals, and what is busy meanwhile.
//!
//! That the streams are those of OpenZFS is a test of the library (`poolhouse::it send`).

use std::fs;
use std::io::Read;
use std::process::Stdio;

use testkit::{FixtureCopy, fixture_copy};

use crate::daemon::{Daemon, command, said};

/// A daemon that has imported a copy of a fixture.
struct Sender {
    daemon: Daemon,
    dir: tempfile::TempDir,
    #[allow(dead_code, reason = "has the pool's devices")]
    copy: FixtureCopy,
}

impl Sender {
    fn of(fixture: &str, options: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let copy = fixture_copy(fixture);
        let daemon = Daemon::start(dir.path());
        daemon.good(&format!("zpool import -N {options} -d {} -a", copy.dir().display()));
        Self { daemon, dir, copy }
    }

    /// The stream of a command that must succeed.
    fn stream(&self, line: &str) -> Vec<u8> {
        let ran = self.daemon.ran(line);
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    }

    /// What a command says that must fail, with the exit code.
    fn bad(&self, line: &str) -> (i32, String) {
        let ran = self.daemon.ran(line);
        assert!(!ran.status.success(), "{line}");
        assert!(ran.stdout.is_empty(), "{line}: a stream");
        (ran.status.code().expect("no signal"), said(&ran))
    }

    /// Verifies streams in files, in the order of a chain.
    fn verify(&self, streams: &[&[u8]]) -> String {
        let mut line = "stream verify --chain".to_owned();
        for (n, stream) in streams.iter().enumerate() {
            let file = self.dir.path().join(format!("{n}.zsend"));
            fs::write(&file, stream).expect("a file");
            line += &format!(" {}", file.display());
        }
        self.daemon.good(&line)
    }

    fn dump(&self, stream: &[u8]) -> String {
        let file = self.dir.path().join("dump.zsend");
        fs::write(&file, stream).expect("a file");
        self.daemon.good(&format!("zstream dump {}", file.display()))
    }
}

/// The size that a command with `-n -P` shows.
fn size(told: &str) -> f64 {
    told.lines().find_map(|line| line.strip_prefix("size\t")).expect("a size").parse().expect("a number")
}

/// Goal: a chain of a full stream and increments is whole, in each form. The plain one is about as
/// large as was estimated.
#[test]
fn a_chain_of_snapshots() {
    let sender = Sender::of("single-lz4", "");
    for forms in ["", "-L", "-e", "-c", "-Lec", "-w"] {
        let full = sender.stream(&format!("zfs send {forms} single-lz4/snaps@one"));
        let first = sender.stream(&format!("zfs send {forms} -i @one single-lz4/snaps@two"));
        let second =
            sender.stream(&format!("zfs send {forms} -i single-lz4/snaps@two single-lz4/snaps@three"));
        sender.verify(&[&full, &first, &second]);
        let told = sender.daemon.good(&format!("zfs send -nP {forms} single-lz4/snaps@one"));
        assert!(told.starts_with("full\tsingle-lz4/snaps@one\t"), "{told}");
        // What is compressed in the pool, and not in the stream, is not estimated.
        let ratio = full.len() as f64 / size(&told);
        assert!(!forms.is_empty() || (0.5..2.0).contains(&ratio), "{told}, and it has {}", full.len());
        let told = sender.daemon.good(&format!("zfs send -nP {forms} -i @one single-lz4/snaps@two"));
        assert!(told.starts_with("incremental\tsingle-lz4/snaps@one\tsingle-lz4/snaps@two\t"), "{told}");
    }
    // From a bookmark the stream is that from its snapshot.
    sender.daemon.good("zfs bookmark single-lz4/snaps@one single-lz4/snaps#mark");
    let from_mark = sender.stream("zfs send -i #mark single-lz4/snaps@two");
    assert!(from_mark == sender.stream("zfs send -i @one single-lz4/snaps@two"));
    assert!(sender.dump(&from_mark).contains("toname = single-lz4/snaps@two"));
}

/// Goal: a clone's snapshot is an increment of the clone's origin, also of an origin's origin. Of
/// another file system's snapshot it is not.
#[test]
fn clones_build_on_their_origins() {
    let sender = Sender::of("single-lz4", "");
    for line in [
        "zfs clone single-lz4/snaps@two single-lz4/c1",
        "zfs snapshot single-lz4/c1@s",
        "zfs clone single-lz4/c1@s single-lz4/c2",
        "zfs snapshot single-lz4/c2@s",
    ] {
        sender.daemon.good(line);
    }
    let base = sender.stream("zfs send single-lz4/snaps@one");
    for (from, to) in [("snaps@two", "c1@s"), ("c1@s", "c2@s"), ("snaps@one", "c2@s")] {
        let stream = sender.stream(&format!("zfs send -i single-lz4/{from} single-lz4/{to}"));
        let told = sender.dump(&stream);
        // `DRR_FLAG_CLONE`, `DRR_FLAG_FREERECORDS` and `DRR_FLAG_SPILL_BLOCK`.
        assert!(told.contains("flags = 0xd\n"), "{from} {to}: {told}");
        if from == "snaps@one" {
            sender.verify(&[&base, &stream]);
        }
    }
    for (from, to) in [("snaps@three", "c1@s"), ("c1@s", "snaps@three"), ("c2@s", "c1@s")] {
        let told = sender.bad(&format!("zfs send -i single-lz4/{from} single-lz4/{to}")).1;
        assert!(told.ends_with("not an earlier snapshot from the same fs\n"), "{from} {to}: {told}");
    }
}

/// Goal: pools of other byte order, old versions, and read-only ones can be sent; of the last also
/// file systems themselves.
#[test]
fn pools_of_all_kinds() {
    for fixture in ["big-endian", "v1", "v28", "gang", "longname"] {
        let sender = Sender::of(fixture, "-o readonly=on");
        let all = sender.daemon.good("zfs list -H -o keystatus,name -t filesystem,volume,snapshot");
        let mut sent = 0;
        for line in all.lines() {
            let (key, name) = line.split_once('\t').expect("two columns");
            // Without its key, a dataset can be sent as it is.
            let raw = if key == "unavailable" { "-w" } else { "" };
            let stream = sender.stream(&format!("zfs send {raw} {name}"));
            sender.verify(&[&stream]);
            let to_name = if name.contains('@') { name.to_owned() } else { format!("{name}@--head--") };
            let told = sender.dump(&stream);
            assert!(told.contains(&format!("toname = {to_name}\n")), "{fixture}: {told}");
            sent += 1;
        }
        assert!(sent > 0, "{fixture} has nothing to send");
    }
}

/// Goal: what can't be sent is refused with OpenZFS's message and exit code, and no byte of a
/// stream.
#[test]
fn refusals() {
    let sender = Sender::of("single-lz4", "");
    let cases = [
        ("zfs send", 2, "missing snapshot argument\n"),
        ("zfs send a b", 2, "too many arguments\n"),
        (
            "zfs send single-lz4/snaps@none",
            1,
            "cannot open 'single-lz4/snaps@none': dataset does not exist\n",
        ),
        (
            "zfs send -i @none single-lz4/snaps@two",
            1,
            "cannot open 'single-lz4/snaps@none': dataset does not exist\n",
        ),
        (
            "zfs send -i #none single-lz4/snaps@two",
            1,
            "warning: cannot send 'single-lz4/snaps@two': incremental source (single-lz4/snaps#none) does not exist\n",
        ),
        (
            "zfs send -i @two single-lz4/snaps@one",
            1,
            "warning: cannot send 'single-lz4/snaps@one': not an earlier snapshot from the same fs\n",
        ),
    ];
    for (line, code, told) in cases {
        let (have, said) = sender.bad(line);
        assert_eq!(have, code, "{line}: {said}");
        assert!(said.starts_with(told), "{line}: {said}");
    }
    let encrypted = Sender::of("encrypted", "");
    let locked = encrypted.bad("zfs send encrypted/pass@s1").1;
    assert_eq!(locked, "warning: cannot send 'encrypted/pass@s1': source key must be loaded\n");
    // A raw stream needs no key.
    let first = encrypted.stream("zfs send -w encrypted/pass@s1");
    let second = encrypted.stream("zfs send -w -i @s1 encrypted/pass@s2");
    encrypted.verify(&[&first, &second]);
}

/// A token of OpenZFS: the stream of `send-src/fs@a` was interrupted at object 0x50.
const TOKEN: &str = concat!(
    "1-d3e607288-b8-789c636064000310a500c4ec50360710e72765a52697303004409460caa7a515a",
    "79630c001489e0d493ea9b224b518483be8d660d55f929f5e9a99c2c0b073b5deeeebeceaba1a48f",
    "29c60f9bcc4dc540686e2d4bc14dde2a264fdb4628744a85d0012ac16b0",
);

/// Goal: a token continues a stream as OpenZFS does. What it can't continue is named.
#[test]
fn tokens() {
    let other = Sender::of("single-lz4", "");
    let gone = other.bad(&format!("zfs send -t {TOKEN}"));
    let said = "cannot resume send: 'send-src/fs@a' used in the initial send no longer exists\n";
    assert_eq!(gone, (255, said.to_owned()));
    let (code, spoiled) = other.bad(&format!("zfs send -t {}", TOKEN.replace('7', "8")));
    assert!(spoiled.starts_with("cannot resume send: resume token is corrupt ("), "{spoiled}");
    assert_eq!(code, 255);
    let (code, both) = other.bad(&format!("zfs send -t {TOKEN} -i @one"));
    assert!(code == 2 && both.starts_with("invalid flags combined with -t\n"), "{both}");
    // The pool is only in the whole set of fixtures.
    let Some(fixture) = testkit::find("send-src") else { return };
    let sender = Sender::of("send-src", "");
    let rest = sender.stream(&format!("zfs send -t {TOKEN}"));
    assert!(rest == fixture.stream("resumed-rest.zsend").expect("a stream"));
    let told = sender.daemon.good(&format!("zfs send -nv -t {TOKEN}"));
    let want = String::from_utf8(fixture.stream("resume-token-decoded.txt").expect("a text")).expect("UTF-8");
    assert_eq!(told, want);
}

/// Goal: while a snapshot is sent, it can't be destroyed, and its pool not be exported, with the
/// command's name. Both can as soon as the command has died.
#[test]
fn busy_while_it_is_sent() {
    let sender = Sender::of("mirror2", "");
    let mut send = command(sender.dir.path(), "zfs send xmirror2@s1").stdout(Stdio::piped()).spawn();
    let send = send.as_mut().expect("it runs");
    let mut begin = [0; 312];
    send.stdout.as_mut().expect("a pipe").read_exact(&mut begin).expect("a record");
    let destroyed = sender.bad("zfs destroy xmirror2@s1").1;
    assert!(destroyed.contains("dataset is busy"), "{destroyed}");
    let exported = sender.bad("zpool export xmirror2").1;
    let by = format!("in use by poolhouse send (process {})", send.id());
    assert!(exported.contains(&by), "{exported}");
    send.kill().expect("it is killed");
    send.wait().expect("it ends");
    // The daemon notices at its next write.
    while !sender.daemon.ran("zfs destroy xmirror2@s1").status.success() {
        std::thread::yield_now();
    }
    sender.daemon.good("zpool export xmirror2");
}

/// Goal: an export by force ends a send, which then fails.
#[test]
fn ended_by_an_export() {
    let sender = Sender::of("mirror2", "");
    let mut send = command(sender.dir.path(), "zfs send xmirror2@s1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut begin = [0; 312];
    send.stdout.as_mut().expect("a pipe").read_exact(&mut begin).expect("a record");
    sender.daemon.good("zpool export -f xmirror2");
    let ran = send.wait_with_output().expect("it ends");
    assert!(!ran.status.success(), "{}", said(&ran));
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(told.starts_with("warning: cannot send 'xmirror2@s1': "), "{told}");
    let part = sender.dir.path().join("part.zsend");
    fs::write(&part, [&begin[..], &ran.stdout].concat()).expect("a file");
    let verified = sender.daemon.ran(&format!("stream verify {}", part.display()));
    assert!(!verified.status.success(), "{}", said(&verified));
}
