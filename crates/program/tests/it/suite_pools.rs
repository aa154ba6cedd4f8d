//! Differences that OpenZFS's own test suite found about pools and their devices: commands on pools
//! of this process.

use crate::daemon;

use crate::common::stand::Stand;
use crate::common::{good, pool, run};
use api::Requests;
use ondisk::label::{LABEL_SIZE, label_offset};
use server::service::LocalService;
use spa::Host;
use spa::import::SystemClock;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

const MIB: usize = 1 << 20;

/// Creates an image of 128 MiB. Returns its path.
fn image(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("an image");
    path.display().to_string()
}

/// The exit code of `zdb -lq` for a device.
fn labels(image: &str) -> i32 {
    let clock = console::Clock::system();
    let sink = || console::Out::new(Box::new(std::io::sink()));
    zdb::run(&["-lq".to_owned(), image.to_owned()], &mut sink(), &mut sink(), &clock)
}

/// Goal: `zpool labelclear` overwrites existing labels, after their padding, and nothing where a
/// label is missing.
#[test]
fn labels_alone_are_cleared() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let [log, cache, spare] = ["log", "cache", "spare"].map(|name| image(dir.path(), name));
    good(&format!("zpool add -f tank log {log} cache {cache} spare {spare}"), &house);
    good("zpool export tank", &house);
    let first = dir.path().join("d0.img").display().to_string();
    let pattern: Vec<u8> = (0..4 * MIB).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
    let pad = vec![7; 16 << 10];
    for path in [&first, &log, &cache, &spare] {
        let file = fs::File::options().read(true).write(true).open(path).expect("the image");
        file.write_all_at(&pattern, 0).expect("its begin is somebody else's now");
        file.write_all_at(&[9; 512], 4 * MIB as u64).expect("where a cache device has its header");
        let at = label_offset(128 << 20, 2).expect("a label");
        file.write_all_at(&pad, at).expect("a pad");
        assert_eq!(labels(path), 1, "two labels of {path} are still there");
        good(&format!("zpool labelclear -f {path}"), &house);
        assert_eq!(labels(path), 2, "{path}");
        let read = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, at).expect("bytes");
            bytes
        };
        assert!(read(0, pattern.len()) == pattern, "{path}");
        assert!(
            read(at, pad.len()) == pad
                && read(at + 16 * 1024, LABEL_SIZE as usize - 16 * 1024).iter().all(|b| *b == 0)
        );
        assert_eq!(read(4 * MIB as u64, 512) == [0; 512], *path == cache, "{path}");
        assert_eq!(run(&format!("zpool labelclear -f {path}"), house.clone()).code, 1, "{path}");
    }
}

/// Goal: a pool whose root can't get its key is refused before any device is written.
#[test]
fn nothing_is_written_for_a_pool_without_its_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let path = image(dir.path(), "new");
    let said = run(&format!("zpool create -m none -O encryption=on other {path}"), house);
    assert_eq!(said.code, 1);
    assert_eq!(said.err, "cannot create 'other': Keyformat required for new encryption root.\n");
    assert_eq!(fs::metadata(&path).expect("the image").blocks(), 0);
}

/// Goal: `ashift` of the pool or the command line applies to new top-level vdevs. A device that
/// joins a vdev uses that vdev's sector size.
#[test]
fn who_joins_takes_the_sectors_that_are_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-o ashift=9 -O mountpoint=none");
    let first = dir.path().join("d0.img").display().to_string();
    let [second, third] = ["second", "third"].map(|name| image(dir.path(), name));
    good("zpool set ashift=14 tank", &house);
    good(&format!("zpool attach -w tank {first} {second}"), &house);
    good(&format!("zpool replace -w -o ashift=13 tank {first} {third}"), &house);
    assert_eq!(good("zpool get -H -o value ashift tank mirror-0", &house).trim(), "9");
    assert_ne!(run(&format!("zpool attach -o ashift=17 tank {third} {first}"), house.clone()).code, 0);
}

/// Goal: the hostid is read when it is needed, so it may be set while pools are imported.
#[test]
fn a_hostid_may_come_later() {
    let dir = tempfile::tempdir().expect("a folder");
    static HOSTID: AtomicU32 = AtomicU32::new(0);
    let host = || Host { hostid: HOSTID.load(Ordering::Relaxed), hostname: "h".to_owned() };
    let house: Rc<dyn Requests> =
        Rc::new(LocalService::asking(Box::new(host), Box::new(SystemClock)).in_process());
    let [first, second] = ["first", "second"].map(|name| image(dir.path(), name));
    good(&format!("zpool create -m none tank mirror {first} {second}"), &house);
    let split = "zpool split -o multihost=on tank half";
    let said = run(split, house.clone());
    assert_eq!(
        (said.code, said.err.contains("requires a non-zero system hostid")),
        (1, true),
        "{}",
        said.err
    );
    HOSTID.store(0x1234, Ordering::Relaxed);
    good(split, &house);
    good(&format!("zpool import -N -d {} half", dir.path().display()), &house);
    assert_eq!(good("zpool get -H -o value multihost half", &house), "on\n");
    for name in ["half", "tank"] {
        good(&format!("zpool export {name}"), &house);
    }
}

/// Goal: a disabled feature is reported before an import as it is after one.
#[test]
fn features_count_before_an_import_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-o feature@resilver_defer=disabled -O mountpoint=none");
    assert!(
        good("zpool status tank", &house).contains("Some supported and requested features are not enabled")
    );
    good("zpool export tank", &house);
    let found = format!("zpool import -d {}", dir.path().display());
    assert!(good(&found, &house).contains("Some supported features are not enabled on the pool."));
    good(&format!("{found} tank"), &house);
    good("zpool upgrade tank", &house);
    good("zpool export tank", &house);
    assert!(!good(&found, &house).contains("features are not enabled"));
}

/// Goal: `zpool status -e` shows unhealthy devices and the vdevs that contain them. `-g` shows
/// vdevs by guid, and `-L` resolves links.
#[test]
fn status_of_some_devices_by_other_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| image(dir.path(), name));
    let link = dir.path().join("link").display().to_string();
    std::os::unix::fs::symlink(&d, &link).expect("a link");
    good(&format!("zpool create -m none tank mirror {a} {b} mirror {c} {link}"), &house);
    // Names with their indentation, and states.
    let rows = |letter: &str| -> Vec<String> {
        let shown = good(&format!("zpool status -{letter} tank"), &house);
        let table = shown.split("CKSUM\n").nth(1).expect("a table").split("\n\n").next().expect("its end");
        let row = |line: &str| {
            let line = line.strip_prefix('\t').expect("a row");
            let name = line.trim_start();
            let mut words = name.split_whitespace();
            let (name, state) = (words.next().expect("a name"), words.next().expect("a state"));
            format!("{}{name} {state}", &line[..line.len() - line.trim_start().len()])
        };
        table.lines().map(row).collect()
    };
    assert_eq!(rows("e"), ["tank ONLINE"]);
    good(&format!("zpool offline tank {link}"), &house);
    let sick = ["tank DEGRADED", "  mirror-1 DEGRADED"].map(str::to_owned);
    let with = |last: String| [&sick[..], &[last]].concat();
    assert_eq!(rows("e"), with(format!("    {link} OFFLINE")));
    assert_eq!(rows("eL"), with(format!("    {d} OFFLINE")));
    let guid =
        |vdev: &str| good(&format!("zpool get -H -o value guid tank {vdev}"), &house).trim().to_owned();
    let guids = ["mirror-0", &a, &b, "mirror-1", &c, &link].map(guid);
    assert!(guids.iter().all(|guid| guid.parse::<u64>().is_ok()), "{guids:?}");
    let [m0, ga, gb, m1, gc, gd] = &guids;
    assert_eq!(
        rows("g"),
        [
            "tank DEGRADED".to_owned(),
            format!("  {m0} ONLINE"),
            format!("    {ga} ONLINE"),
            format!("    {gb} ONLINE"),
            format!("  {m1} DEGRADED"),
            format!("    {gc} ONLINE"),
            format!("    {gd} OFFLINE"),
        ]
    );
    let shown = rows("L");
    assert_eq!((shown.len(), shown[5].trim()), (7, format!("{c} ONLINE").as_str()));
    good("zpool export tank", &house);
}

/// Goal: TRIM of a device that was not opened is shown as unsupported. TRIM of a device that fails
/// ends, although it waits for its rate limit.
#[test]
fn trim_ends_with_its_device() {
    let dir = tempfile::tempdir().expect("a folder");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    let [first, second] = ["first", "second"].map(|name| image(dir.path(), name));
    good(&format!("zpool create -m none tank mirror {first} {second}"), &house);
    let line = || {
        let shown = good("zpool status -tP tank", &house);
        shown.lines().find(|line| line.contains(&first)).expect("the device").to_owned()
    };
    // One byte a second: the wait before the second discard never ends in practice.
    house.set_tunable("zfs_trim_extent_bytes_max", &(1 << 16)).expect("it is set");
    good(&format!("zpool trim -r 1 tank {first}"), &house);
    assert!(line().contains("trimmed, started"), "{}", line());
    good(&format!("zpool offline -f tank {first}"), &house);
    // The state changes at once, whatever the thread is doing.
    assert!(line().contains("(untrimmed)"), "{}", line());
    house.set_tunable("zfs_trim_extent_bytes_max", &(128 << 20)).expect("it is set back");
    good("zpool export tank", &house);
    good(&format!("zpool import -d {} tank", dir.path().display()), &house);
    assert!(line().contains("(trim unsupported)"), "{}", line());
    good(&format!("zpool online tank {first}"), &house);
    good(&format!("zpool clear tank {first}"), &house);
    assert!(line().contains("(untrimmed)"), "{}", line());
    good("zpool export tank", &house);
}

/// Goal: `zpool status -DD` shows how much of the dedup tables is cached: little after an import,
/// and all after `zpool prefetch`.
#[test]
fn tables_are_cached_when_they_are_read() {
    let Some(stand) = Stand::new("-O dedup=on -O recordsize=512 -O compression=off") else { return };
    let bytes: Vec<u8> = (0..1_u32 << 20).flat_map(|n| (n / 128).to_le_bytes()).collect();
    fs::write(stand.path("tank/file"), &bytes).expect("a file");
    stand.good("zpool sync tank");
    let sizes = || {
        let shown = stand.good("zpool status -DDp tank");
        let line = shown.lines().find(|line| line.starts_with(" dedup: ")).expect("the tables").to_owned();
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.trim_end_matches(',').parse().ok()).collect();
        let [_, _, core, cached] = numbers[..] else { panic!("{line}") };
        (core, cached)
    };
    let (core, cached) = sizes();
    assert!(core > 64 << 10 && cached > 0, "{core} {cached}");
    stand.good("zpool export tank");
    stand.good(&format!("zpool import -N -d {} tank", stand.dir.path().display()));
    let (core, cached) = sizes();
    assert!(cached < core / 2, "{cached} of {core}");
    stand.good("zpool prefetch -t ddt tank");
    // A block that another reader is loading is there a moment later.
    let mut last = (0, 0);
    let all = (0..200).any(|_| {
        last = sizes();
        last.0 == last.1
    });
    assert!(all, "{last:?}");
}

/// Goal: with `ZFS_ABORT`, a command dumps core after it has done its work.
#[test]
fn commands_dump_core_by_request() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().expect("a folder");
    for words in [&["zpool", "version"][..], &["zpool", "list", "-?"], &["zfs"]] {
        let done = std::process::Command::new("sh")
            .args(["-c", "ulimit -c 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_poolhouse")])
            .args(words)
            .env("ZFS_ABORT", "yes")
            .env("POOLHOUSE_RUN_DIR", dir.path())
            .output()
            .expect("it runs");
        assert_eq!(done.status.signal(), Some(6), "{words:?}");
        assert!(String::from_utf8_lossy(&done.stdout).ends_with("dumping core by request\n"));
    }
}

/// Goal: `zpool import -a` imports all pools concurrently. One that fails is reported and blocks no
/// other.
#[test]
fn all_pools_are_imported_at_a_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = daemon::Daemon::start(dir.path());
    let pools = dir.path().join("pools");
    fs::create_dir(&pools).expect("a folder");
    for (name, file) in [("one", "a"), ("two", "b"), ("three", "c"), ("one", "d")] {
        let path = image(&pools, file);
        daemon.good(&format!("zpool create -m none {name} {path}"));
        daemon.good(&format!("zpool export {name}"));
    }
    let done = daemon.ran(&format!("zpool import -a -d {}", pools.display()));
    let said = daemon::said(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("cannot import 'one': ").count(), 1, "{said}");
    let mut names: Vec<String> = daemon.good("zpool list -H -o name").lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["one", "three", "two"]);
    for name in names {
        daemon.good(&format!("zpool export {name}"));
    }
}

/// Goal: `zpool remove` removes log vdevs, single and mirrored, and shows before how much memory
/// that takes. It names what it can't remove.
#[test]
fn logs_are_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let house = pool(dir.path(), 128 << 20, "-O mountpoint=none");
    let [log, a, b, cache] = ["log", "a", "b", "cache"].map(|name| image(dir.path(), name));
    good(&format!("zpool add tank log {log} mirror {a} {b} cache {cache}"), &house);
    for word in [&log, "mirror-2", &cache] {
        let said = good(&format!("zpool remove -n tank {word}"), &house);
        assert_eq!(said, format!("Memory that will be used after removing {word}: 0\n"));
    }
    assert_eq!(good(&format!("zpool remove -np tank {log}"), &house), format!("{log} 0\n"));
    // The vdevs after it keep their names, since a hole remains.
    good(&format!("zpool remove tank {log}"), &house);
    let status = || good("zpool status tank", &house);
    assert!(status().contains("mirror-2") && !status().contains(&log), "{}", status());
    good("zpool remove tank mirror-2", &house);
    assert!(!status().contains("logs"), "{}", status());
    good(&format!("zpool add tank log {a}"), &house);
    let history = good("zpool history -i tank", &house);
    assert!(history.contains(&format!("vdev remove tank vdev 1 (log) {log}")), "{history}");
    for (line, why) in [
        (format!("zpool remove tank {}", dir.path().join("d0.img").display()), "data"),
        ("zpool remove -s tank".to_owned(), "cannot cancel removal: operation is not in progress"),
        ("zpool remove -n tank nothing".to_owned(), "no such device in pool"),
    ] {
        let ran = run(&line, Rc::clone(&house));
        assert!(ran.code == 1 && ran.err.contains(why), "{ran:?}");
    }
}
