//! `zfs receive`, with a daemon: what becomes visible, what is kept, and what ends a receive. The
//! tests do nothing if mounting is not possible.
//!
//! That what is received is what was sent is a test of the library (`poolhouse::it receive`).

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, command, said, tank};

/// A pool with a file system whose snapshot is in a file.
struct Receiver {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Receiver {
    fn new() -> Option<Self> {
        let (dir, daemon) = tank()?;
        // A look at a received file must not change its file system.
        daemon.good("zfs set atime=off tank");
        let new = Self { daemon, dir };
        let noise = testpools::noise(7, 3 << 20);
        fs::write(new.path("home/noise"), noise).expect("a file");
        fs::write(new.path("home/text"), "first").expect("a file");
        new.daemon.good("zfs snapshot tank/home@1");
        new.stream("zfs send tank/home@1", "full");
        Some(new)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("mnt").join(name)
    }

    /// Creates the encrypted file system `tank/enc`. Returns where its key is.
    fn encrypted(&self, options: &str) -> String {
        fs::write(self.dir.path().join("key"), "correct horse").expect("a file");
        let key = format!("file://{}/key", self.dir.path().display());
        let how = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
        self.daemon.good(&format!("zfs create {how} -o keylocation={key} {options} tank/enc"));
        key
    }

    /// Stores the stream of a command in a file.
    fn stream(&self, line: &str, name: &str) {
        let ran = self.daemon.ran(line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        fs::write(self.dir.path().join(name), ran.stdout).expect("a file");
    }

    /// Runs a command that reads a file. Returns its exit code and what it says.
    fn from(&self, name: &str, line: &str) -> (i32, String) {
        let file = File::open(self.dir.path().join(name)).expect("a stream");
        let ran = command(self.dir.path(), line).stdin(file).output().expect("it runs");
        (ran.status.code().expect("no signal"), said(&ran))
    }

    /// Begins a receive that has only a part of its stream yet.
    fn begin(&self, name: &str, part: usize, line: &str) -> Child {
        let bytes = fs::read(self.dir.path().join(name)).expect("a stream");
        let mut child = command(self.dir.path(), line)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        child.stdin.as_mut().expect("a pipe").write_all(&bytes[..part]).expect("it reads");
        child
    }

    /// Waits until a command's answer satisfies a condition.
    fn until(&self, line: &str, done: impl Fn(&str) -> bool) {
        let since = Instant::now();
        loop {
            let told = said(&self.daemon.ran(line));
            if done(&told) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{line}: {told}");
            std::thread::yield_now();
        }
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Goal: a raw stream needs no key. The received file system is mounted once its key is loaded, and
/// goes on with an increment while it is mounted.
#[test]
fn a_raw_stream_is_mounted_with_its_key() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    let key = receiver.encrypted("");
    let noise = testpools::noise(11, 1 << 20);
    fs::write(receiver.path("enc/noise"), &noise).expect("a file");
    daemon.good("zfs snapshot tank/enc@1");
    receiver.stream("zfs send -w tank/enc@1", "raw");
    assert_eq!(receiver.from("raw", "zfs receive tank/got"), (0, String::new()));
    let told = daemon.good("zfs get -H -o value keystatus,mounted,keylocation,encryptionroot tank/got");
    assert_eq!(told, "unavailable\nno\nprompt\ntank/got\n");
    assert_eq!(receiver.from("raw", "zfs receive tank/other"), (0, String::new()));
    daemon.good(&format!("zfs load-key -L {key} tank/got"));
    daemon.good("zfs mount tank/got");
    assert_eq!(fs::read(receiver.path("got/noise")).expect("a file"), noise);
    // The next snapshot goes into one that is mounted, and into one that is locked.
    fs::write(receiver.path("enc/text"), "second").expect("a file");
    fs::remove_file(receiver.path("enc/noise")).expect("a file");
    daemon.good("zfs snapshot tank/enc@2");
    receiver.stream("zfs send -w -i @1 tank/enc@2", "increment");
    for name in ["tank/got", "tank/other"] {
        assert_eq!(receiver.from("increment", &format!("zfs receive {name}")), (0, String::new()), "{name}");
    }
    assert_eq!(text(&receiver.path("got/text")), "second");
    assert!(!receiver.path("got/noise").exists());
    // Its data keys are those of the sender. Its own key is another one.
    daemon.good("zfs unmount tank/got");
    daemon.good("zfs unload-key tank/got");
    assert_eq!(text(&receiver.path("enc/text")), "second");
    daemon.good("zfs snapshot tank/enc@3");
    daemon.good(&format!("zfs load-key -L {key} tank/got"));
    daemon.good(&format!("zfs load-key -L {key} tank/other"));
    daemon.good("zfs mount tank/other");
    assert_eq!(text(&receiver.path("other/text")), "second");
    // It takes writes like any other, and a new key.
    fs::write(receiver.path("other/text"), "mine").expect("a file");
    daemon.good("zfs snapshot tank/other@mine");
    let (code, told) = receiver.from("increment", "zfs receive tank/home");
    let words = "cannot receive incremental stream: cannot perform raw receive on top of existing \
                 unencrypted dataset\n";
    assert_eq!((code, told.as_str()), (1, words));
    // What is not encrypted takes no raw stream, and an encrypted one no other.
    daemon.good("zfs create tank/plain");
    let (code, told) = receiver.from("raw", "zfs receive -F tank/plain");
    let words = "cannot receive new filesystem stream: zfs receive -F cannot be used to destroy an \
                 encrypted filesystem or overwrite an unencrypted one with an encrypted one\n";
    assert_eq!((code, told.as_str()), (1, words));
}

/// Goal: a new file system is mounted. An increment shows at once below the mount, and an open file
/// continues.
#[test]
fn what_was_received_is_there() {
    let Some(receiver) = Receiver::new() else { return };
    assert_eq!(receiver.from("full", "zfs receive tank/got"), (0, String::new()));
    assert_eq!(text(&receiver.path("got/text")), "first");
    let mut open = File::open(receiver.path("got/text")).expect("a file");
    fs::write(receiver.path("home/text"), "second").expect("a file");
    fs::remove_file(receiver.path("home/noise")).expect("a file");
    receiver.daemon.good("zfs snapshot tank/home@2");
    receiver.stream("zfs send -i @1 tank/home@2", "increment");
    let (code, told) = receiver.from("increment", "zfs receive -v tank/got");
    assert_eq!(code, 0, "{told}");
    assert!(
        told.starts_with("receiving incremental stream of tank/home@2 into tank/got@2\nreceived "),
        "{told}"
    );
    assert_eq!(text(&receiver.path("got/text")), "second");
    assert!(!receiver.path("got/noise").exists());
    let mut now = String::new();
    open.rewind().and_then(|()| open.read_to_string(&mut now)).expect("it is still there");
    assert_eq!(now, "second");
    assert_eq!(text(&receiver.path("got/.zfs/snapshot/1/text")), "first");
    // Once more: it is there already, and is left out.
    assert_eq!(receiver.from("increment", "zfs receive tank/got"), (0, String::new()));
    // A change is in the way, unless it may be undone.
    fs::write(receiver.path("got/mine"), "mine").expect("a file");
    fs::write(receiver.path("home/text"), "third").expect("a file");
    receiver.daemon.good("zfs snapshot tank/home@3");
    receiver.stream("zfs send -i @2 tank/home@3", "third");
    let (code, told) = receiver.from("third", "zfs receive tank/got");
    let modified = "cannot receive incremental stream: destination tank/got has been modified\n\
                    since most recent snapshot\n";
    assert_eq!((code, told.as_str()), (1, modified));
    assert_eq!(receiver.from("third", "zfs receive -F tank/got"), (0, String::new()));
    assert_eq!(text(&receiver.path("got/text")), "third");
    assert!(!receiver.path("got/mine").exists());
}

/// Goal: a stream that breaks off leaves nothing, or with `-s` what a token continues.
#[test]
fn a_stream_that_breaks_off() {
    let Some(receiver) = Receiver::new() else { return };
    let full = fs::read(receiver.dir.path().join("full")).expect("a stream");
    fs::write(receiver.dir.path().join("half"), &full[..full.len() / 2]).expect("a file");
    let incomplete = "cannot receive new filesystem stream: incomplete stream\n".to_owned();
    assert_eq!(receiver.from("half", "zfs receive tank/got"), (1, incomplete));
    assert!(!receiver.daemon.ran("zfs list tank/got").status.success());
    let (code, told) = receiver.from("half", "zfs receive -s tank/got");
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("Partially received snapshot is saved.\n"), "{told}");
    let token = receiver.daemon.good("zfs get -H -o value receive_resume_token tank/got");
    receiver.stream(&format!("zfs send -t {}", token.trim()), "rest");
    assert_eq!(receiver.from("rest", "zfs receive -s tank/got"), (0, String::new()));
    assert_eq!(text(&receiver.path("got/text")), "first");
    assert_eq!(receiver.daemon.good("zfs get -H -o value receive_resume_token tank/got"), "-\n");
    // What is not to be continued is given up.
    let (code, told) = receiver.from("half", "zfs receive -s tank/other");
    assert_eq!(code, 1, "{told}");
    assert_eq!(receiver.daemon.good("zfs receive -A tank/other"), "");
    assert!(!receiver.daemon.ran("zfs list tank/other").status.success());
}

/// Goal: what an interrupted receive has left can be sent on (`--saved`), and its receiver goes on
/// with the rest from the first sender: of a whole stream, of an increment, and of raw ones.
#[test]
fn a_part_is_sent_on() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    let key = receiver.encrypted("");
    let halve = |name: &str| {
        let whole = fs::read(receiver.dir.path().join(name)).expect("a stream");
        fs::write(receiver.dir.path().join("half"), &whole[..whole.len() / 2]).expect("a file");
    };
    // Receives a part into `got`, sends that on into `copy`, and completes `copy`.
    let relay = |got: &str, copy: &str| {
        let (code, told) = receiver.from("half", &format!("zfs receive -s {got}"));
        assert!(code == 1 && told.contains("is saved.\n"), "{got}: {told}");
        receiver.stream(&format!("zfs send --saved {got}"), "part");
        // No stream but that of a clone has its flag.
        assert!(
            daemon
                .good(&format!("zstream dump {}/part", receiver.dir.path().display()))
                .contains("flags = 0xc\n")
        );
        assert!(
            !daemon.ran(&format!("stream verify {}/part", receiver.dir.path().display())).status.success()
        );
        let (code, told) = receiver.from("part", &format!("zfs receive -s {copy}"));
        assert!(code == 1 && told.contains("is saved.\n"), "{copy}: {told}");
        let token = daemon.good(&format!("zfs get -H -o value receive_resume_token {copy}"));
        receiver.stream(&format!("zfs send -t {}", token.trim()), "rest");
        assert_eq!(receiver.from("rest", &format!("zfs receive -s {copy}")), (0, String::new()));
    };
    let noise = |seed| testpools::noise(seed, 600 << 10);
    for (from, forms) in [("home", ""), ("home", "-c"), ("enc", "-w")] {
        let (got, copy) = (format!("tank/got{from}{forms}"), format!("tank/copy{from}{forms}"));
        let short = copy.trim_start_matches("tank/").to_owned();
        fs::write(receiver.path(&format!("{from}/one")), noise(21)).expect("a file");
        daemon.good(&format!("zfs snapshot tank/{from}@a{forms}"));
        receiver.stream(&format!("zfs send {forms} tank/{from}@a{forms}"), "full");
        halve("full");
        relay(&got, &copy);
        // The first receiver is completed by the whole stream.
        daemon.good(&format!("zfs receive -A {got}"));
        assert_eq!(receiver.from("full", &format!("zfs receive {got}")), (0, String::new()));
        fs::write(receiver.path(&format!("{from}/two")), noise(22)).expect("a file");
        daemon.good(&format!("zfs snapshot tank/{from}@b{forms}"));
        receiver.stream(&format!("zfs send {forms} -i @a{forms} tank/{from}@b{forms}"), "increment");
        halve("increment");
        relay(&got, &copy);
        if from == "enc" {
            daemon.good(&format!("zfs load-key -L {key} {copy}"));
            daemon.good(&format!("zfs mount {copy}"));
        }
        for (file, seed) in [("one", 21), ("two", 22)] {
            let path = receiver.path(&format!("{short}/{file}"));
            assert!(fs::read(&path).expect("a file") == noise(seed), "{}", path.display());
        }
    }
}

/// Goal: `--saved` needs a part, and goes with few other options.
#[test]
fn no_part_to_send_on() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    let none = daemon.ran("zfs send --saved tank/home");
    assert_eq!(said(&none), "saved send failed: 'tank/home' has no partially received state\n");
    let flags = "incompatible flags combined with saved send flag\n";
    let operand = "saved send must specify the dataset with partially-received state\n";
    for (line, text) in [
        ("", "missing snapshot argument\n"),
        ("tank/home@a", operand),
        ("-i tank/home@a tank/home@b", flags),
        ("-R tank/home", flags),
        ("-p tank/home", flags),
        ("-c tank/home", flags),
        ("-t 1-1-1-1", "invalid flags combined with -t\n"),
    ] {
        let ran = daemon.ran(&format!("zfs send --saved {line}"));
        assert_eq!(ran.status.code(), Some(2), "{line}");
        assert!(said(&ran).starts_with(text), "{line}: {}", said(&ran));
    }
}

/// Goal: while a send with `-V` runs, the title of its process says how far it is.
#[test]
fn progress_as_a_title() {
    let Some(receiver) = Receiver::new() else { return };
    for line in ["zfs send -V tank/home@1", "zfs send -R -V tank/home@1"] {
        let mut child = command(receiver.dir.path(), line).stdout(Stdio::piped()).spawn().expect("it runs");
        let shown = format!("/proc/{}/cmdline", child.id());
        let since = Instant::now();
        let title = loop {
            let words = fs::read(&shown).expect("a process");
            if words.starts_with(b"zfs: ") {
                break String::from_utf8(words).expect("UTF-8");
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{}", String::from_utf8_lossy(&words));
            std::thread::yield_now();
        };
        let title = title.trim_end_matches('\0');
        assert!(title.starts_with("zfs: sending tank/home@1 (0%: 0/") && title.ends_with(')'), "{title}");
        let mut stream = Vec::new();
        child.stdout.as_mut().expect("a pipe").read_to_end(&mut stream).expect("a stream");
        assert!(child.wait().expect("a child").success());
        assert!(stream.len() > 3 << 20);
    }
}

/// Goal: a receive ends with its command, also while its sender sends nothing. Meanwhile the
/// dataset and the pool are busy.
#[test]
fn a_receive_ends_with_its_command() {
    let Some(receiver) = Receiver::new() else { return };
    let mut child = receiver.begin("full", 1 << 20, "zfs receive tank/got");
    receiver.until("zfs list -H -o name -r tank", |told| told.contains("tank/got\n"));
    let (code, told) = receiver.from("full", "zfs receive tank/got");
    assert_eq!(code, 1, "{told}");
    assert!(!receiver.daemon.ran("zpool export tank").status.success());
    assert!(!receiver.daemon.ran("zfs destroy tank/got").status.success());
    assert!(!receiver.daemon.ran("zfs mount tank/got").status.success());
    child.kill().and_then(|()| child.wait()).expect("a child");
    receiver.until("zfs list -H -o name -r tank", |told| !told.contains("tank/got\n"));
    assert_eq!(receiver.from("full", "zfs receive tank/got"), (0, String::new()));
    // A forced export ends a receive, too.
    let mut child = receiver.begin("full", 1 << 20, "zfs receive tank/other");
    receiver.until("zfs list -H -o name -r tank", |told| told.contains("tank/other\n"));
    receiver.daemon.good("zpool export -f tank");
    assert!(!child.wait().expect("a child").success());
}

/// Goal: what arrived raw shows the space of its users at once, and goes on with an increment after
/// a mount. What was changed here, and what an increment then changed, is counted.
#[test]
fn a_raw_stream_is_counted_by_user() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    let key = receiver.encrypted("");
    let user = rustix::process::getuid().as_raw();
    let used = |dataset: &str| {
        let told = daemon.good(&format!("zfs userspace -Hp -o name,used,objused tank/{dataset}"));
        assert!(!told.is_empty() && told != "\n", "{dataset}");
        told
    };
    for (n, name) in ["1", "2", "3"].into_iter().enumerate() {
        fs::write(receiver.path(&format!("enc/{name}")), testpools::noise(n as u64, 300_000))
            .expect("a file");
        if n == 1 {
            fs::remove_file(receiver.path("enc/1")).expect("a file");
        }
        daemon.good(&format!("zfs snapshot tank/enc@{name}"));
    }
    receiver.stream("zfs send -w tank/enc@1", "raw");
    receiver.stream("zfs send -w -i @1 tank/enc@2", "second");
    receiver.stream("zfs send -w -i @2 tank/enc@3", "third");
    assert_eq!(receiver.from("raw", "zfs receive tank/got"), (0, String::new()));
    daemon.good(&format!("zfs load-key -L {key} tank/got"));
    daemon.good("zfs mount tank/got");
    assert_eq!(used("got"), used("enc@1"));
    assert_eq!(receiver.from("second", "zfs receive tank/got"), (0, String::new()));
    assert_eq!(used("got"), used("enc@2"));
    // It is counted from its first change on.
    fs::write(receiver.path("got/mine"), testpools::noise(9, 200_000)).expect("a file");
    let file_of = |dataset: &str| format!("zfs get -Hp -o value userobjused@{user} tank/{dataset}");
    let objects = |dataset: &str| -> u64 { daemon.good(&file_of(dataset)).trim().parse().expect("a number") };
    receiver.until(&file_of("got"), |_| objects("got") == objects("enc@2") + 1);
    fs::write(receiver.path("got/mine"), "less").expect("a file");
    daemon.good("zpool sync tank");
    // The increment takes the place of that change, and the tables are those of before.
    assert_eq!(receiver.from("third", "zfs receive -F tank/got"), (0, String::new()));
    assert_eq!(used("got"), used("enc@3"));
    fs::write(receiver.path("got/mine"), testpools::noise(9, 200_000)).expect("a file");
    fs::write(receiver.path("enc/mine"), testpools::noise(9, 200_000)).expect("a file");
    daemon.good("zpool sync tank");
    assert_eq!(used("got"), used("enc"));
    // A quota is enforced once the tables are complete. They then say the same.
    daemon.good(&format!("zfs set userobjquota@{user}=1 tank/got"));
    let probe = receiver.path("got/probe");
    receiver.until("zpool sync tank", |_| match fs::write(&probe, "") {
        Ok(()) => fs::remove_file(&probe).is_err(),
        Err(e) => e.kind() == std::io::ErrorKind::QuotaExceeded,
    });
    daemon.good("zpool sync tank");
    assert_eq!(used("got"), used("enc"));
    // A quota of what is not counted yet.
    assert_eq!(receiver.from("raw", "zfs receive tank/other"), (0, String::new()));
    daemon.good(&format!("zfs load-key -L {key} tank/other"));
    daemon.good("zfs mount tank/other");
    daemon.good(&format!("zfs set userobjquota@{user}=100 tank/other"));
}

/// Goal: a raw increment keeps the extended attributes of a file that got larger blocks, although
/// its stream says that their block did not change.
#[test]
fn a_raw_increment_keeps_attributes() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    let key = receiver.encrypted("-o xattr=sa -o dnodesize=legacy");
    let file = |dataset: &str| receiver.path(&format!("{dataset}/file"));
    fs::write(file("enc"), vec![1; 16 << 10]).expect("a file");
    let names: Vec<String> = (0..20).map(|n| format!("user.attribute{n}")).collect();
    for name in &names {
        let value = [7; 52];
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(file("enc"), name.as_str(), &value, flags).expect("an attribute");
    }
    daemon.good("zfs snapshot tank/enc@1");
    receiver.stream("zfs send -w tank/enc@1", "raw");
    assert_eq!(receiver.from("raw", "zfs receive tank/got"), (0, String::new()));
    fs::write(file("enc"), vec![2; 1 << 20]).expect("a file");
    daemon.good("zfs snapshot tank/enc@2");
    receiver.stream("zfs send -w -i @1 tank/enc@2", "more");
    assert_eq!(receiver.from("more", "zfs receive tank/got"), (0, String::new()));
    daemon.good(&format!("zfs load-key -L {key} tank/got"));
    daemon.good("zfs mount tank/got");
    assert_eq!(fs::read(file("got")).expect("a file"), vec![2; 1 << 20]);
    for name in &names {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(file("got"), name.as_str(), &mut value).expect("an attribute");
        assert_eq!(value[..length], [7; 52], "{name}");
    }
}

/// Goal: the dataset that a stream goes into is the engine's: it is neither renamed nor promoted. A
/// file system that is mounted is not sent itself.
#[test]
fn what_is_in_use_stays() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    assert_eq!(receiver.from("full", "zfs receive tank/got"), (0, String::new()));
    fs::write(receiver.path("home/more"), testpools::noise(8, 1 << 20)).expect("a file");
    daemon.good("zfs snapshot tank/home@2");
    receiver.stream("zfs send -i @1 tank/home@2", "more");
    let whole = fs::read(receiver.dir.path().join("more")).expect("a stream");
    fs::write(receiver.dir.path().join("cut"), &whole[..whole.len() - 400]).expect("a file");
    assert_eq!(receiver.from("cut", "zfs receive -s tank/got").0, 1);
    for line in ["zfs rename tank/got/%recv tank/x", "zfs promote tank/got/%recv"] {
        assert!(!daemon.ran(line).status.success(), "{line}");
    }
    daemon.good("zfs receive -A tank/got");
    let told = said(&daemon.ran("zfs send tank/home"));
    let words = "warning: cannot send 'tank/home': target is busy; if a filesystem, it must not be mounted\n";
    assert_eq!(told, words);
}

/// Goal: an increment into a dataset whose name leaves no space for the engine's own child is
/// refused at once, and the pool can be imported again. A whole stream is received there.
#[test]
fn a_name_without_space() {
    let Some(receiver) = Receiver::new() else { return };
    let daemon = &receiver.daemon;
    daemon.good("zfs snapshot tank/home@2");
    receiver.stream("zfs send -i @1 tank/home@2", "more");
    let name = format!("tank/{}/{}", "a".repeat(120), "b".repeat(124));
    daemon.good(&format!("zfs create -o mountpoint=none {}", name.rsplit_once('/').expect("a parent").0));
    assert_eq!(receiver.from("full", &format!("zfs receive -u {name}")), (0, String::new()));
    let (code, told) = receiver.from("more", &format!("zfs receive -u {name}"));
    assert!(code == 1 && told.contains("too long"), "{told}");
    daemon.good("zpool export tank");
    daemon.good(&format!("zpool import -d {} tank", receiver.dir.path().display()));
    daemon.good(&format!("zfs destroy -r {name}"));
}
