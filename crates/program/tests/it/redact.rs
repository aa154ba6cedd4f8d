//! `zfs redact`, and redacted streams, with a daemon. The tests do nothing if mounting is not
//! possible.
//!
//! That the lists and streams are those of OpenZFS is a test of the library
//! (`poolhouse::it redact`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::daemon::{Daemon, command, said, tank};

const BLOCK: usize = 128 << 10;

/// A pool with a file system of one file, whose clone has changed a block of it.
struct Redacting {
    daemon: Daemon,
    dir: tempfile::TempDir,
    /// The contents of the file.
    noise: Vec<u8>,
}

impl Redacting {
    fn new() -> Option<Self> {
        let (dir, daemon) = tank()?;
        daemon.good("zfs set atime=off tank");
        let noise = testpools::noise(7, 4 * BLOCK);
        fs::write(dir.path().join("mnt/home/noise"), &noise).expect("a file");
        daemon.good("zfs snapshot tank/home@1");
        daemon.good("zfs clone tank/home@1 tank/clone");
        let file = File::options().write(true).open(dir.path().join("mnt/clone/noise")).expect("a file");
        file.write_all_at(&[1; BLOCK], BLOCK as u64).expect("written");
        drop(file);
        daemon.good("zfs snapshot tank/clone@r");
        Some(Self { daemon, dir, noise })
    }

    /// Stores the stream of a command in a file. Returns its length.
    fn stream(&self, line: &str, name: &str) -> usize {
        let ran = self.daemon.ran(line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        fs::write(self.dir.path().join(name), &ran.stdout).expect("a file");
        ran.stdout.len()
    }

    /// Runs a command that reads a file. Returns its exit code and what it says.
    fn from(&self, name: &str, line: &str) -> (i32, String) {
        let file = File::open(self.dir.path().join(name)).expect("a stream");
        let ran = command(self.dir.path(), line).stdin(file).output().expect("it runs");
        (ran.status.code().expect("no signal"), said(&ran))
    }

    /// What a command says that must fail, with the exit code.
    fn bad(&self, line: &str) -> (i32, String) {
        let ran = self.daemon.ran(line);
        (ran.status.code().expect("no signal"), said(&ran))
    }
}

/// Goal: a redacted file system is received without a mount, and mounted only by force and with the
/// tunable. The increment from the bookmark makes it whole.
#[test]
fn sent_and_received() {
    let Some(pool) = Redacting::new() else { return };
    let daemon = &pool.daemon;
    daemon.good("zfs redact tank/home@1 book tank/clone@r");
    let guid = daemon.good("zfs get -Hp -o value guid tank/clone@r");
    assert_eq!(daemon.good("zfs get -H -o value redact_snaps tank/home#book"), guid);
    let all = pool.stream("zfs send tank/home@1", "all");
    let redacted = pool.stream("zfs send --redact book tank/home@1", "redacted");
    assert_eq!(redacted, pool.stream("zfs send --redact tank/home#book tank/home@1", "again"));
    // The record without its block is there, and a list of one number.
    assert!((BLOCK - 512..=BLOCK).contains(&(all - redacted)), "{all} {redacted}");
    let told = daemon.good("zfs send -nP --redact book tank/home@1");
    assert_eq!(told, format!("full\ttank/home@1\t{redacted}\nsize\t{redacted}\n"));
    assert_eq!(pool.from("redacted", "zfs receive tank/got"), (0, String::new()));
    assert_eq!(daemon.good("zfs get -H -o value mounted,redact_snaps tank/got"), format!("no\n{guid}"));
    let text = "Dataset is not complete, was created by receiving a redacted zfs send stream.\n";
    let refused = (1, format!("cannot mount 'tank/got': {text}"));
    assert_eq!(pool.bad("zfs mount tank/got"), refused);
    let (code, busy) = pool.bad("zfs mount -f tank/got");
    assert!(code == 1 && busy.starts_with("cannot mount 'tank/got': "), "{busy}");
    daemon.good("set tunable zfs_allow_redacted_dataset_mount=1");
    assert_eq!(pool.bad("zfs mount tank/got"), refused);
    daemon.good("zfs mount -f tank/got");
    let got = fs::read(pool.dir.path().join("mnt/got/noise")).expect("a file");
    let mut holed = pool.noise.clone();
    holed[BLOCK..2 * BLOCK].fill(0);
    assert!(got == holed);
    daemon.good("zfs unmount tank/got");
    daemon.good("set tunable zfs_allow_redacted_dataset_mount=0");
    let rest = pool.stream("zfs send -i #book tank/home@1", "rest");
    assert!((BLOCK..BLOCK + 4096).contains(&rest), "{rest}");
    assert_eq!(pool.from("rest", "zfs receive tank/got@2"), (0, String::new()));
    assert_eq!(daemon.good("zfs get -H -o value redact_snaps tank/got"), "-\n");
    daemon.good("zfs mount tank/got");
    assert!(fs::read(pool.dir.path().join("mnt/got/noise")).expect("a file") == pool.noise);
    // Onto a file system that is mounted and whole, nothing redacted fits without force.
    daemon.good("zfs destroy tank/home#book");
    let gone = pool.bad("zfs send --redact book tank/home@1");
    assert_eq!(gone, (1, "cannot open 'tank/home#book': dataset does not exist\n".to_owned()));
}

/// Goal: refusals have OpenZFS's texts, and the error number as their exit code.
#[test]
fn refusals() {
    let Some(pool) = Redacting::new() else { return };
    pool.daemon.good("zfs redact tank/home@1 book tank/clone@r");
    pool.daemon.good("zfs bookmark tank/home@1 tank/home#plain");
    pool.daemon.good("zfs snapshot tank/home@2");
    let descendent = "redaction snapshot must be descendent of snapshot being redacted\n";
    let names = "potentially invalid redaction snapshot; full dataset names required\n";
    let hash = "redaction bookmark name must not contain '#'\n";
    let exists = |name: &str| format!("specified redaction bookmark ({name}) provided already exists\n");
    let long = "x".repeat(250);
    for (line, code, text) in [
        ("tank/home@1 b tank/home@1", 22, descendent),
        ("tank/home@2 b tank/clone@r", 22, descendent),
        ("tank/home@1 b @r", 18, names),
        ("tank/home@1 #b @r", 18, names),
        ("tank/home@1 #b tank/clone@r", 22, hash),
        ("tank/home@1 tank/home#b tank/clone@r", 22, hash),
        ("tank/home@1 book tank/clone@r", 17, &exists("book")),
        ("tank/home@1 plain tank/clone@r", 17, &exists("plain")),
        (
            "tank/home@1 book tank/home@2",
            3,
            "attempted to resume redaction  with a mismatched redaction list\n",
        ),
        (
            &format!("tank/home@1 {long} tank/clone@r"),
            36,
            "provided bookmark name cannot be used, final name would be too long\n",
        ),
        (
            "tank/home@1 b tank/no@r",
            2,
            "cannot open 'tank/no@r': dataset does not exist\nprovided snapshot tank/no@r does not exist\n",
        ),
    ] {
        assert_eq!(pool.bad(&format!("zfs redact {line}")), (code, text.to_owned()), "{line}");
    }
    let (code, told) = pool.bad("zfs redact tank/home@1 b");
    assert!(code == 2 && told.starts_with("too few arguments\nusage:\n\tredact <snapshot>"), "{told}");
    for (line, text) in [
        ("-w --redact book tank/home@1", "Error: raw sends may not be redacted.\n"),
        ("-R --redact book tank/home@1", "Error: multiple snapshots cannot be sent redacted.\n"),
        ("--redact plain tank/home@1", "warning: cannot send 'tank/home@1': not a redaction bookmark\n"),
        (
            "--redact book tank/home",
            "warning: cannot send 'tank/home': cannot do a redacted send to a filesystem\n",
        ),
    ] {
        assert_eq!(pool.bad(&format!("zfs send {line}")), (1, text.to_owned()), "{line}");
    }
    // The next increment takes for granted what was redacted.
    pool.stream("zfs send --redact book tank/home@1", "redacted");
    pool.stream("zfs send -i @1 tank/home@2", "next");
    assert_eq!(pool.from("redacted", "zfs receive tank/got"), (0, String::new()));
    let (code, told) = pool.from("next", "zfs receive tank/got");
    assert!(code == 1 && told.contains("does not fit a redacted snapshot"), "{told}");
}

/// Goal: tokens of a redacted receive continue it, also the one from the redaction bookmark.
#[test]
fn tokens() {
    let Some(pool) = Redacting::new() else { return };
    pool.daemon.good("zfs redact tank/home@1 book tank/clone@r");
    let cut = |line: &str, name: &str| {
        let length = pool.stream(line, name);
        let file = File::options().write(true).open(pool.dir.path().join(name)).expect("a stream");
        file.set_len(length as u64 - 100).expect("cut");
    };
    for (n, (send, receive)) in [
        ("zfs send --redact book tank/home@1", "zfs receive -s tank/got@1"),
        ("zfs send -i #book tank/home@1", "zfs receive -s tank/got@2"),
    ]
    .into_iter()
    .enumerate()
    {
        cut(send, "cut");
        assert_eq!(pool.from("cut", receive).0, 1);
        let token = pool.daemon.good("zfs get -H -o value receive_resume_token tank/got");
        pool.stream(&format!("zfs send -t {}", token.trim()), "rest");
        assert_eq!(pool.from("rest", receive), (0, String::new()));
        let redacted = pool.daemon.good("zfs get -H -o value redact_snaps tank/got") != "-\n";
        assert_eq!(redacted, n == 0);
    }
    pool.daemon.good("zfs mount tank/got");
    assert!(fs::read(pool.dir.path().join("mnt/got/noise")).expect("a file") == pool.noise);
}
