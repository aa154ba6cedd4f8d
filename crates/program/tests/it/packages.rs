//! Packages of `zfs send` and `zfs receive`: trees, their properties and holds, and what becomes of
//! them when the sender's tree changes.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::{fixture_copy, load};

use crate::daemon::{Daemon, command, image, said, tank};

/// A daemon with two pools, `src` and `dst`. Neither is mounted.
struct Pools {
    daemon: Daemon,
    dir: tempfile::TempDir,
}

impl Pools {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemon = Daemon::start(dir.path());
        let new = Self { daemon, dir };
        for pool in ["src", "dst"] {
            let (device, cache) = (new.file(pool), new.file("cache"));
            image(&device);
            let (device, cache) = (device.display(), cache.display());
            new.good(&format!("zpool create -o cachefile={cache} -O mountpoint=none {pool} {device}"));
        }
        new
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn good(&self, line: &str) -> String {
        self.daemon.good(line)
    }

    fn all(&self, lines: &[&str]) {
        lines.iter().for_each(|line| drop(self.good(line)));
    }

    /// Stores the stream of a command.
    fn send(&self, line: &str, name: &str) {
        let ran = self.daemon.ran(line);
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        fs::write(self.file(name), ran.stdout).expect("a file");
    }

    /// Receives a stored stream. Returns the exit code and what the command says.
    fn receive(&self, line: &str, name: &str) -> (i32, String) {
        receive(self.dir.path(), line, &self.file(name))
    }

    fn received(&self, line: &str, name: &str) -> String {
        let (code, told) = self.receive(line, name);
        assert_eq!(code, 0, "{line}: {told}");
        told
    }

    /// Names, guids and origins of a tree, as they are in both pools.
    fn tree(&self, top: &str) -> Vec<String> {
        let line = format!("zfs list -H -p -r -t filesystem,volume,snapshot -o name,guid,origin {top}");
        let shown = self.good(&line);
        let pool = top.split('/').next().expect("a pool");
        let row = |line: &str| {
            let mut row: Vec<String> = line.split('\t').map(|word| word.replacen(pool, "pool", 1)).collect();
            // A file system's own guid is new, a snapshot's is that of its sender.
            if !row[0].contains('@') {
                row[1].clear();
            }
            row.join(" ")
        };
        let mut rows: Vec<String> = shown.lines().map(row).collect();
        rows.sort();
        rows
    }

    /// The value, the received value and the source of a property.
    fn property(&self, property: &str, name: &str) -> String {
        let line = format!("zfs get -H -o value,received,source {property} {name}");
        self.good(&line).trim_end().replace('\t', " ")
    }
}

fn receive(dir: &Path, line: &str, file: &Path) -> (i32, String) {
    let input = File::open(file).expect("a stream");
    let ran = command(dir, line).stdin(input).output().expect("it runs");
    (ran.status.code().expect("no signal"), said(&ran))
}

/// A tree with a clone, a volume, properties and holds.
fn planted() -> Pools {
    let pools = Pools::new();
    pools.all(&[
        "zfs create -o compression=zstd -o com.example:p=v src/t",
        "zfs create -o quota=64M src/t/k",
        "zfs create -V 4M -b 16k src/t/vol",
        "zfs snapshot -r src/t@a",
        "zfs hold keep src/t/k@a",
        "zfs clone src/t/k@a src/t/c",
        "zfs create src/t/gone",
        "zfs snapshot -r src/t@b",
        "zfs snapshot -o com.example:s=w src/t@c",
        "zfs snapshot -r src/t/k@c",
        "zfs snapshot -r src/t/vol@c",
        "zfs snapshot -r src/t/c@c",
        "zfs snapshot -r src/t/gone@c",
    ]);
    pools
}

/// Goal: a tree arrives whole: names, snapshots, clones, properties and holds. Then an increment
/// brings what is new, and with `-F` what was renamed, destroyed and promoted.
#[test]
fn a_tree_and_its_increments() {
    let pools = planted();
    pools.send("zfs send -R -h src/t@b", "full");
    pools.good(&format!("stream verify {}", pools.file("full").display()));
    let told = pools.received("zfs receive -v dst/t", "full");
    assert!(told.starts_with("receiving full stream of src/t@a into dst/t@a\nreceived "), "{told}");
    assert!(told.contains("found clone origin dst/t/k@a\n"), "{told}");
    let mut expected = pools.tree("src/t");
    expected.retain(|row| !row.contains("@c"));
    assert_eq!(pools.tree("dst/t"), expected);
    for (property, name, value) in [
        ("compression", "dst/t", "zstd zstd received"),
        ("compression", "dst/t/k", "zstd - inherited from dst/t"),
        ("com.example:p", "dst/t", "v v received"),
        ("quota", "dst/t/k", "64M 64M received"),
    ] {
        assert_eq!(pools.property(property, name), value, "{property} {name}");
    }
    assert!(pools.good("zfs holds -H dst/t/k@a").starts_with("dst/t/k@a\tkeep\t"));
    let (code, told) = pools.receive("zfs receive dst/t", "full");
    let exists = "cannot receive new filesystem stream: destination 'dst/t' exists\n\
                  must specify -F to overwrite it\n";
    assert_eq!((code, told.as_str()), (1, exists));

    pools.send("zfs send -R -I @b src/t@c", "increment");
    pools.received("zfs receive dst/t", "increment");
    assert_eq!(pools.tree("dst/t"), pools.tree("src/t"));
    assert_eq!(pools.property("com.example:s", "dst/t@c"), "w w received");
    // The same again changes nothing.
    let told = pools.received("zfs receive -v dst/t", "increment");
    assert_eq!(told.matches("already exists; ignoring").count(), 5, "{told}");

    pools.all(&[
        "zfs release keep src/t/k@a",
        "zfs destroy -r src/t/gone",
        "zfs rename src/t/k src/t/kept",
        "zfs rename src/t/vol@b src/t/vol@other",
        "zfs promote src/t/c",
        "zfs inherit com.example:p src/t",
        "zfs set compression=lz4 src/t",
        "zfs create src/t/new",
        "zfs snapshot -r src/t@d",
    ]);
    pools.good("zfs release keep dst/t/k@a");
    pools.send("zfs send -R -I @c src/t@d", "changes");
    pools.received("zfs receive -F dst/t", "changes");
    assert_eq!(pools.tree("dst/t"), pools.tree("src/t"));
    assert_eq!(pools.property("compression", "dst/t"), "lz4 lz4 received");
    assert_eq!(pools.property("com.example:p", "dst/t"), "- - -");
    pools.good("zpool export src");
    pools.good("zpool scrub -w dst");
}

/// Goal: local properties hide received ones, `-x` leaves them out, and a failed receive puts all
/// of them back.
#[test]
fn properties() {
    let pools = planted();
    pools.send("zfs send -p src/t@b", "one");
    pools.received("zfs receive -o compression=gzip -o com.example:mine=1 -x com.example:p dst/one", "one");
    assert_eq!(pools.property("compression", "dst/one"), "gzip zstd local");
    assert_eq!(pools.property("com.example:mine", "dst/one"), "1 - local");
    assert_eq!(pools.property("com.example:p", "dst/one"), "- v -");
    pools.good("zfs inherit -S compression dst/one");
    assert_eq!(pools.property("compression", "dst/one"), "zstd zstd received");
    pools.good("zfs inherit compression dst/one");
    assert_eq!(pools.property("compression", "dst/one"), "on zstd default");
    pools.good("zfs inherit -S compression dst/one");
    // Without a package, too.
    pools.send("zfs send src/t@b", "plain");
    pools.received("zfs receive -o atime=off dst/plain", "plain");
    assert_eq!(pools.property("atime", "dst/plain"), "off - local");
    let (code, told) = pools.receive("zfs receive -o volsize=1G dst/x", "plain");
    assert_eq!((code, told.as_str()), (1, "cannot receive: cannot receive: invalid property 'volsize'\n"));
    // The next stream is cut: nothing of its properties stays.
    pools.all(&["zfs set compression=lz4 src/t", "zfs set com.example:q=r src/t"]);
    pools.send("zfs send -p -i @b src/t@c", "more");
    let whole = fs::read(pools.file("more")).expect("a stream");
    fs::write(pools.file("cut"), &whole[..whole.len() - 400]).expect("a file");
    let (code, told) = pools.receive("zfs receive -o atime=off dst/one", "cut");
    assert_eq!(code, 1, "{told}");
    assert_eq!(pools.property("compression", "dst/one"), "zstd zstd received");
    assert_eq!(pools.property("com.example:q", "dst/one"), "- - -");
    assert_eq!(pools.property("atime", "dst/one"), "on - default");
    pools.received("zfs receive dst/one", "more");
    assert_eq!(pools.property("compression", "dst/one"), "lz4 lz4 received");
    assert_eq!(pools.property("com.example:q", "dst/one"), "r r received");
}

/// What `zstream dump` shows of a package: its list in any order, without the sum, and its streams.
fn shape(dump: &str) -> (Vec<&str>, &str) {
    let (list, rest) = dump.split_once("\nEND").expect("the head's end");
    let mut list: Vec<&str> = list.lines().map(str::trim).collect();
    list.sort_unstable();
    (list, rest.split_once('\n').expect("streams").1)
}

/// Goal: the kernel module's packages of a tree are received, and ours of the same tree are theirs,
/// record by record.
#[test]
fn packages_of_the_kernel_module() {
    let copy = fixture_copy("send-src");
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(dir.path());
    daemon.good(&format!("zpool import -N -o cachefile=none -d {} -a", copy.dir().display()));
    // It was set after the streams were made.
    daemon.good("zfs inherit snapdev send-src/tree/vol");
    let device = dir.path().join("d0");
    image(&device);
    daemon.good(&format!("zpool create -o cachefile=none -O mountpoint=none dst {}", device.display()));
    let kernel = |name: &str| {
        let file = dir.path().join(name);
        let stream = load("send-src").stream(&format!("{name}.zsend")).expect("a stream");
        fs::write(&file, stream).expect("a file");
        file
    };
    let dump = |file: &Path| daemon.good(&format!("zstream dump -v {}", file.display()));
    for (name, line) in [
        ("incr-multi-a-c", "zfs send -I @a send-src/fs@c"),
        ("props-b", "zfs send -p send-src/fs@b"),
        ("replicate-tree", "zfs send -R send-src/tree@r2"),
        ("replicate-incr", "zfs send -R -I @r1 send-src/tree@r2"),
    ] {
        let ours = dir.path().join("ours");
        let ran = daemon.ran(line);
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        fs::write(&ours, ran.stdout).expect("a file");
        let (ours, theirs) = (dump(&ours), dump(&kernel(name)));
        let (ours, theirs) = (shape(&ours), shape(&theirs));
        assert_eq!(ours.0, theirs.0, "{line}");
        let differs = ours.1.lines().zip(theirs.1.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!((differs, ours.1.len()), (None, theirs.1.len()), "{line}");
    }
    let into = |name: &str, line: &str| {
        let (code, told) = receive(dir.path(), line, &kernel(name));
        assert_eq!(code, 0, "{line}: {told}");
    };
    into("skip-missing", "zfs receive dst/tree");
    into("replicate-incr", "zfs receive dst/tree");
    let rows = |top: &str| {
        let line = format!("zfs list -H -r -t snapshot -o guid {top}");
        let shown = daemon.good(&line);
        let mut rows: Vec<String> = shown.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    };
    assert_eq!(rows("dst/tree"), rows("send-src/tree"));
    assert_eq!(daemon.good("zfs get -H -o value,source compression dst/tree"), "zstd\treceived\n");
    assert_eq!(
        daemon.good("zfs get -H -p -o value,source refreservation dst/tree/vol"),
        "6291456\treceived\n"
    );
    assert_eq!(daemon.good("zfs get -H -o value origin dst/tree/k1clone"), "dst/tree/k1@r1\n");
    into("props-b", "zfs receive dst/fs");
    assert_eq!(daemon.good("zfs get -H -o value,source recordsize dst/fs"), "1M\treceived\n");
    // The first of its two snapshots is there already.
    into("incr-multi-a-c", "zfs receive dst/fs");
    assert_eq!(daemon.good("zfs list -H -t snapshot -o name dst/fs"), "dst/fs@b\ndst/fs@c\n");
    daemon.good("zpool scrub -w dst");
}

/// A tree of encrypted and other file systems at the sender, with the place of its key.
fn locked() -> (Pools, String) {
    let pools = Pools::new();
    fs::write(pools.file("key"), "correct horse").expect("a file");
    let key = format!("file://{}", pools.file("key").display());
    let own = format!("-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation={key}");
    for line in [
        &*format!("zfs create {own} src/t"),
        "zfs create src/t/k",
        &format!("zfs create {own} src/t/own"),
        "zfs create -o encryption=off src/t/plain",
        "zfs snapshot -r src/t@a",
    ] {
        pools.good(line);
    }
    (pools, key)
}

/// Goal: a raw package makes the encryption roots of the sender, also where they changed there, and
/// their key locations. One key then opens what it opened at the sender.
#[test]
fn encryption_roots() {
    let (pools, key) = locked();
    let roots = |top: &str| {
        let shown = pools.good(&format!("zfs list -H -r -o name,encryptionroot,keylocation {top}"));
        shown.replace(&key, "file").replace("src/t", "dst/t").replace('\t', " ")
    };
    pools.send("zfs send -R -w src/t@a", "full");
    pools.received("zfs receive dst/t", "full");
    let expected = "dst/t dst/t file\ndst/t/k dst/t none\ndst/t/own dst/t/own file\ndst/t/plain - none\n";
    assert_eq!(roots("dst/t"), expected);
    pools.good("zfs load-key dst/t");
    assert_eq!(pools.good("zfs get -H -o value keystatus dst/t/k dst/t/own"), "available\nunavailable\n");
    pools.all(&[
        &format!("zfs change-key -o keyformat=passphrase -o keylocation={key} src/t/k"),
        "zfs change-key -i src/t/own",
        "zfs snapshot -r src/t@b",
    ]);
    pools.send("zfs send -R -w -I @a src/t@b", "increment");
    assert_eq!(pools.received("zfs receive dst/t", "increment"), "");
    let expected = "dst/t dst/t file\ndst/t/k dst/t/k file\ndst/t/own dst/t none\ndst/t/plain - none\n";
    assert_eq!((roots("src/t").as_str(), roots("dst/t").as_str()), (expected, expected));
    pools.good("zfs load-key dst/t/k");
    let status = pools.good("zfs get -H -o value keystatus dst/t/k dst/t/own");
    assert_eq!(status, "available\navailable\n");
    pools.good("zpool scrub -w dst");
    pools.all(&["zfs unload-key -a", "zfs load-key -a", "zpool scrub -w dst"]);
}

/// Goal: what arrives in the clear gets the encryption that the command line asks for, or that of
/// its parent. With properties it was in the clear at the sender, and stays so.
#[test]
fn encrypted_by_the_receiver() {
    let (pools, key) = locked();
    pools.all(&["zfs create src/c", "zfs snapshot src/c@a"]);
    pools.send("zfs send src/c@a", "plain");
    pools.send("zfs send -p src/c@a", "listed");
    let own = format!("-o encryption=aes-128-gcm -o keyformat=passphrase -o keylocation={key}");
    for (options, name, stream, expected) in [
        (&*own, "src/new", "plain", "aes-128-gcm src/new"),
        ("", "src/t/inherits", "plain", "aes-256-gcm src/t"),
        ("-o encryption=off", "src/t/off", "plain", "off -"),
        ("", "src/t/listed", "listed", "off -"),
        ("-x encryption", "src/t/excluded", "listed", "aes-256-gcm src/t"),
        ("-o encryption=aes-192-ccm", "src/t/other", "listed", "aes-192-ccm src/t"),
    ] {
        pools.received(&format!("zfs receive -u {options} {name}"), stream);
        let shown = pools.good(&format!("zfs list -H -o encryption,encryptionroot {name}"));
        assert_eq!(shown.trim_end().replace('\t', " "), expected, "{name}");
    }
    pools.good("zfs unload-key -a");
    let (code, told) = pools.receive("zfs receive src/t/late", "plain");
    let text = "cannot receive new filesystem stream: inherited key must be loaded\n";
    assert_eq!((code, told.as_str()), (1, text));
    pools.received("zfs receive src/t/late", "listed");
}

/// Goal: properties that a snapshot got or lost after it was received arrive with the next package
/// of its tree.
#[test]
fn properties_of_snapshots_that_exist() {
    let pools = planted();
    pools.all(&["zfs set com.example:s=old src/t/k@a", "zfs set com.example:gone=1 src/t/k@a"]);
    pools.send("zfs send -R src/t@b", "full");
    pools.received("zfs receive dst/t", "full");
    assert_eq!(pools.property("com.example:s", "dst/t/k@a"), "old old received");
    pools.all(&[
        "zfs set com.example:s=new src/t/k@a",
        "zfs inherit com.example:gone src/t/k@a",
        "zfs set com.example:more=2 src/t@b",
    ]);
    pools.send("zfs send -R -I @b src/t@c", "more");
    pools.received("zfs receive dst/t", "more");
    for (property, name, value) in [
        ("com.example:s", "dst/t/k@a", "new new received"),
        ("com.example:gone", "dst/t/k@a", "- - -"),
        ("com.example:more", "dst/t@b", "2 2 received"),
    ] {
        assert_eq!(pools.property(property, name), value, "{property} {name}");
    }
}

/// Goal: `zstream recompress` compresses directories too, and the stream is received.
#[test]
fn a_recompressed_stream() {
    let pools = planted();
    pools.send("zfs send -c src/t@b", "plain");
    let input = File::open(pools.file("plain")).expect("a stream");
    let ran = command(pools.dir.path(), "zstream recompress gzip-1").stdin(input).output().expect("it runs");
    assert!(ran.status.success(), "{}", said(&ran));
    fs::write(pools.file("smaller"), ran.stdout).expect("a file");
    let dump = pools.good(&format!("zstream dump -v {}", pools.file("smaller").display()));
    assert!(dump.contains("compression type = 5"), "{dump}");
    pools.received("zfs receive dst/t", "smaller");
    pools.good("zpool scrub -w dst");
}

/// Goal: a file system that is not mounted is sent without a snapshot, and the rest of such a
/// stream too.
#[test]
fn a_file_system_itself() {
    let pools = planted();
    pools.send("zfs send src/t/k", "whole");
    pools.received("zfs receive dst/k", "whole");
    let whole = fs::read(pools.file("whole")).expect("a stream");
    fs::write(pools.file("cut"), &whole[..whole.len() - 312]).expect("a file");
    assert_eq!(pools.receive("zfs receive -s dst/rest", "cut").0, 1);
    let token = pools.good("zfs get -H -o value receive_resume_token dst/rest");
    pools.send(&format!("zfs send -t {}", token.trim_end()), "rest");
    pools.received("zfs receive -s dst/rest", "rest");
    let shown = pools.good("zfs list -H -t snapshot -o name -r dst");
    assert_eq!(shown, "dst/k@--head--\ndst/rest@--head--\n");
}

/// Goal: no snapshot of a package can be destroyed until the package was sent, also before its
/// turn. Then each can.
#[test]
fn snapshots_of_a_package_are_kept() {
    let Some((dir, daemon)) = tank() else { return };
    for n in 0..4 {
        fs::write(dir.path().join(format!("mnt/home/{n}")), testpools::noise(n, 1 << 20)).unwrap();
        daemon.good(&format!("zfs snapshot tank/home@{n}"));
    }
    let mut child = command(dir.path(), "zfs send -R tank/home@3").stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let mut head = [0; 4096];
    pipe.read_exact(&mut head).unwrap();
    for n in 0..4 {
        let ran = daemon.ran(&format!("zfs destroy tank/home@{n}"));
        assert!(said(&ran).contains("dataset is busy"), "{n}: {}", said(&ran));
    }
    let told = said(&daemon.ran("zpool export tank"));
    assert!(told.contains(&format!("poolhouse send (process {})", child.id())), "{told}");
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    assert!(child.wait().unwrap().success() && rest.len() > 4 << 20);
    // The daemon sees the end of the command a moment later.
    for n in 0..4 {
        while !daemon.ran(&format!("zfs destroy tank/home@{n}")).status.success() {
            std::thread::yield_now();
        }
    }
}
