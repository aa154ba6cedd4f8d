//! Packages of `zfs send` and `zfs receive`: trees, their properties and holds, and what becomes of
//! them when the sender's tree changes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use testkit::{fixture_copy, load};

use crate::daemon::{Daemon, command, image, said};

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
    assert_eq!(pools.property("com.example:p", "dst/one"), "- - -");
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
