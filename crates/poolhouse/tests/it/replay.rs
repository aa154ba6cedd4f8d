//! Pools that crashed with records in their intent logs.
//!
//! An import for writing claims the logs, and opening a dataset replays its log. The result must be
//! what OpenZFS's own replay showed, and OpenZFS's `zdb` must find no error.

use crate::common::{compare, of_volume, words};
use poolhouse::dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use poolhouse::dsl::ops::rollback::Rollback;
use poolhouse::ondisk::Txg;
use poolhouse::ondisk::zil::{ZIL_REPLAY_NEEDED, ZilHeader};
use poolhouse::spa::OpenHead;
use poolhouse::zpl::{self, Policies};
use poolhouse::{OpenOptions, Pool};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use testkit::Fixture;
use testpools::HookedSource;

fn open(dir: &Path, write: bool) -> Pool {
    let options = OpenOptions { write, force: true, ..OpenOptions::default() };
    Pool::open(&[dir], &options).unwrap_or_else(|e| panic!("{}", words(&e)))
}

fn load_keys(pool: &Pool) {
    for name in pool.dataset_names(false).unwrap().names {
        let _ = pool.load_key(&name, b"correct horse");
    }
}

fn header(pool: &Pool, name: &str) -> ZilHeader {
    let os = pool.dataset(name).unwrap().objset().unwrap();
    ZilHeader::decode(&os.phys().zil_header).unwrap()
}

/// True for fields that each replay sets anew: times, and hence block counts.
fn is_of_the_replay(what: &str) -> bool {
    ["mtime is", "ctime is", "atime is", "blocks is"].iter().any(|w| what.starts_with(w))
}

/// The differences from the result of OpenZFS's replay, as text, without those that `quirk`
/// accepts.
fn differences(pool: &Pool, fixture: &Fixture, quirk: &dyn Fn(&str, &str, &str) -> bool) -> Vec<String> {
    let all = fixture.manifests();
    let mut wrong = Vec::new();
    let mut paths = 0;
    for m in all.iter().filter(|m| m.variant.as_deref() == Some("replayed-by-openzfs")) {
        let fs = pool.dataset(&m.dataset).unwrap().filesystem().unwrap();
        let (compared, found) = compare(&fs, m, &BTreeSet::new(), true);
        paths += compared;
        let found = found
            .into_iter()
            .filter(|(path, what)| !is_of_the_replay(what) && !quirk(&m.dataset, path, what));
        wrong.extend(found.map(|(path, what)| format!("{}: {path:?}: {what}", m.dataset)));
    }
    assert!(paths > 100, "only {paths} paths were compared");
    for z in fixture.zvols().iter().filter(|z| z.when.as_deref() == Some("replayed-by-openzfs")) {
        let hash = of_volume(&pool.dataset(&z.name).unwrap().volume().unwrap());
        if hash != z.sha256 {
            wrong.push(format!("{}: content is {hash}", z.name));
        }
    }
    wrong
}

/// Opens every head for writing, which replays its log. Returns the number of records.
fn replay_all(pool: &Pool) -> u64 {
    let mut records = 0;
    for name in pool.dataset_names(false).unwrap().names {
        let dataset = pool.dataset(&name).unwrap();
        let done = pool.replay(dataset.dsl()).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
        if let Some(done) = done {
            assert!(done.ended.is_none(), "{name}: {}", words(&*done.ended.unwrap()));
            records += done.records;
        }
        if dataset.volume().is_err() {
            drop(pool.open_for_writing(dataset.dsl(), Policies::default()).unwrap());
        }
    }
    records
}

/// Checksum errors that count against devices.
fn blamed(pool: &Pool) -> u64 {
    let tree = pool.spa().tree();
    tree.devices().map(|(guid, _)| tree.stats(guid).unwrap().checksum_errors.get()).sum()
}

fn check(name: &str, quirk: &dyn Fn(&str, &str, &str) -> bool) {
    let Some(fixture) = testkit::find(name) else { return };
    let copy = fixture.copy();
    let dir = copy.dir();
    let pool = open(dir, true);
    load_keys(&pool);
    assert_eq!(blamed(&pool), 0, "nobody is to blame for what was never written where a log ends");
    let needed = |n: &String| header(&pool, n).flags & ZIL_REPLAY_NEEDED != 0;
    let names = pool.dataset_names(false).unwrap().names;
    let claimed = names.iter().filter(|n| needed(n)).count();
    assert!(claimed > 0, "no log was claimed");
    // Claimed logs without a replay stay claimed, and OpenZFS's `zdb` agrees.
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir, fixture.pool());
    let pool = open(dir, true);
    load_keys(&pool);
    assert!(replay_all(&pool) > 0);
    assert_eq!(blamed(&pool), 0);
    // Read-only datasets show the replayed state too.
    let wrong = differences(&pool, &fixture, quirk);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    pool.export().unwrap();
    drop(pool);
    testpools::judge(dir, fixture.pool());
    let pool = open(dir, true);
    load_keys(&pool);
    assert_eq!(replay_all(&pool), 0, "nothing is replayed twice");
    let wrong = differences(&pool, &fixture, quirk);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// True for known differences: OpenZFS rounds a size up to the block that a record names, and does
/// not show an empty ACL.
fn known(dataset: &str, path: &str, what: &str) -> bool {
    let rounded = matches!(path, "base-a" | "hard-new")
        && (what.starts_with("size is 700") || what.starts_with("sha256 is"));
    let empty = path == "base-f" && what.starts_with("xattrs is");
    dataset.ends_with("/thru") && rounded || dataset.ends_with("/xdir") && empty
}

/// Goal: the logs of a pool that was frozen, and not exported, are replayed.
#[test]
fn frozen() {
    check("zil-freeze", &known);
}

/// Goal: the logs of such a pool with a log device are replayed.
#[test]
fn on_a_log_device() {
    check("zil-slog", &known);
}

/// Goal: the logs of a machine that was reset while it worked are replayed.
#[test]
fn crashed() {
    check("zil-crash", &|_, _, _| false);
}

/// A source of transactions that syncs everything and then copies the devices in `dir`, every
/// `step` transactions. Each copy in `copies` is the state after a power failure there.
fn stops(head: OpenHead, dir: PathBuf, step: usize, copies: Arc<Mutex<Vec<PathBuf>>>) -> HookedSource {
    let asked = AtomicUsize::new(0);
    let clock = || UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    HookedSource::new(head, clock).before(move |head| {
        let n = asked.fetch_add(1, Relaxed);
        if n.is_multiple_of(step) {
            head.live().sync_all().unwrap();
            copies.lock().unwrap().push(clone_images(&dir, &format!("at-{n}")));
        }
    })
}

/// Copies the images of a directory to a new directory below it.
fn clone_images(dir: &Path, name: &str) -> PathBuf {
    let to = dir.join(name);
    std::fs::create_dir(&to).unwrap();
    for image in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file()) {
        let done =
            std::process::Command::new("cp").arg("--sparse=always").args([&image, &to]).status().unwrap();
        assert!(done.success());
    }
    to
}

/// Goal: wherever the power fails during a replay, the next replay continues at the position that
/// is on disk.
#[test]
fn stopped_anywhere() {
    for (name, step) in [("zil-freeze/always", 9), ("zil-freeze/xdir", 13), ("zil-freeze/enc", 17)] {
        let fixture = testkit::load("zil-freeze");
        let copy = fixture.copy();
        let pool = open(copy.dir(), true);
        load_keys(&pool);
        let head = OpenHead::open(pool.spa(), pool.dataset(name).unwrap().dsl()).unwrap();
        let os = head.objset().clone();
        let log = head.pending_log().unwrap().unwrap();
        let copies = Arc::default();
        let stops = stops(head, copy.dir().to_owned(), step, Arc::clone(&copies));
        let done = zpl::replay(&os, &log, Arc::new(stops), &Policies::default()).unwrap();
        assert!(done.ended.is_none() && done.records > 20, "{name}: {} records", done.records);
        drop(pool);
        let copies = std::mem::take(&mut *copies.lock().unwrap());
        let mut left = Vec::new();
        for dir in &copies {
            let pool = open(dir, true);
            load_keys(&pool);
            let rest = pool.replay(pool.dataset(name).unwrap().dsl()).unwrap().unwrap();
            assert!(rest.ended.is_none(), "{name}: {}", words(&*rest.ended.unwrap()));
            left.push(rest.records);
            let wrong = differences_of(&pool, &fixture, name);
            assert!(wrong.is_empty(), "{name}, {}:\n{}", dir.display(), wrong.join("\n"));
            pool.export().unwrap();
        }
        let expected: Vec<u64> = (0..left.len()).map(|n| done.records - (n * step) as u64).collect();
        assert_eq!(left, expected, "{name}");
        testpools::judge(copies.last().unwrap(), "zil-freeze");
    }
}

fn differences_of(pool: &Pool, fixture: &Fixture, name: &str) -> Vec<String> {
    let all = fixture.manifests();
    let of =
        |m: &&testkit::Manifest| m.dataset == name && m.variant.as_deref() == Some("replayed-by-openzfs");
    let fs = pool.dataset(name).unwrap().filesystem().unwrap();
    let (_, found) = compare(&fs, all.iter().find(of).unwrap(), &BTreeSet::new(), true);
    let new = |(path, what): &(String, String)| !is_of_the_replay(what) && !known(name, path, what);
    found.into_iter().filter(new).map(|(path, what)| format!("{path:?}: {what}")).collect()
}

/// Imports the newest state that is not newer than `max`.
fn rewind(dir: &Path, max: Txg) -> Pool {
    let options = OpenOptions { write: true, force: true, max_txg: Some(max), ..OpenOptions::default() };
    Pool::open(&[dir], &options).unwrap_or_else(|e| panic!("{}", words(&e)))
}

fn no_logs(pool: &Pool) {
    for name in pool.dataset_names(false).unwrap().names {
        assert!(header(pool, &name).log.is_hole(), "{name} has a log");
    }
}

/// Goal: a rewind drops the logs, claimed or not, and frees their allocated blocks.
#[test]
fn rewound() {
    let fixture = testkit::load("zil-freeze");
    for claimed in [false, true] {
        let copy = fixture.copy();
        if claimed {
            drop(open(copy.dir(), true));
        }
        let newest = open(copy.dir(), false).spa().last_synced_txg();
        let pool = rewind(copy.dir(), newest);
        load_keys(&pool);
        no_logs(&pool);
        assert_eq!(replay_all(&pool), 0);
        pool.export().unwrap();
        drop(pool);
        testpools::judge(copy.dir(), fixture.pool());
    }
}

/// Goal: a pool without its log device is imported only on request, and without the contents of its
/// logs.
#[test]
fn without_its_log_device() {
    let Some(fixture) = testkit::find("zil-slog") else { return };
    let copy = fixture.copy();
    let logs: Vec<&PathBuf> = copy.images().iter().skip(3).collect();
    assert_eq!(logs.len(), 2);
    logs.iter().for_each(|image| std::fs::remove_file(image).unwrap());
    let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    assert!(Pool::open(&[copy.dir()], &options).is_err());
    let options = OpenOptions { missing_log: true, ..options };
    let pool = Pool::open(&[copy.dir()], &options).unwrap_or_else(|e| panic!("{}", words(&e)));
    no_logs(&pool);
    let fs = pool.open_for_writing(pool.dataset("zil-slog/std").unwrap().dsl(), Policies::default()).unwrap();
    assert!(fs.is_writable());
    drop(fs);
    pool.export().unwrap();
}

/// Goal: datasets with claimed logs that were not replayed can be rolled back and destroyed, and
/// nothing of their logs is left.
#[test]
fn rolled_back_and_destroyed() {
    let fixture = testkit::load("zil-freeze");
    let copy = fixture.copy();
    let pool = open(copy.dir(), true);
    let live = pool.spa().writer().unwrap();
    for name in ["zil-freeze/always", "zil-freeze/thru", "zil-freeze/vol"] {
        let task = Rollback { name: name.to_owned(), to: Some(format!("{name}@base")) };
        live.run(Box::new(task)).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
        assert!(header(&pool, name).log.is_hole(), "{name}");
    }
    for name in ["zil-freeze/std", "zil-freeze/enc", "zil-freeze/xdir"] {
        let snapshots = DestroySnapshots { names: vec![format!("{name}@base")], defer: false };
        live.run(Box::new(snapshots)).unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
        live.run(Box::new(DestroyHead { name: name.to_owned() }))
            .unwrap_or_else(|e| panic!("{name}: {}", words(&e)));
    }
    live.sync_all().unwrap();
    pool.export().unwrap();
    drop(pool);
    testpools::judge(copy.dir(), fixture.pool());
}
