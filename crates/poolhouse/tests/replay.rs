//! Pools that crashed with work in their intent logs: imported for writing, their logs are claimed, and replayed when a dataset is opened. What is
//! there then is what OpenZFS's own replay showed, and OpenZFS finds nothing wrong.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod common;
#[path = "../../spa/tests/rig/mod.rs"]
mod rig;

use common::{compare, of_volume, words};
use poolhouse::ondisk::zil::{ZIL_REPLAY_NEEDED, ZilHeader};
use poolhouse::zpl::Policies;
use poolhouse::{OpenOptions, Pool};
use std::collections::BTreeSet;
use std::path::Path;
use testkit::Fixture;

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

/// What a replay makes anew: when, and so how many blocks things take.
fn is_of_the_replay(what: &str) -> bool {
    ["mtime is", "ctime is", "atime is", "blocks is"].iter().any(|w| what.starts_with(w))
}

/// Differences from what OpenZFS's replay left, in words; those that `quirk` knows are left out.
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

/// Opens every head to write, which replays its log; how many records there were.
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

fn check(name: &str, quirk: &dyn Fn(&str, &str, &str) -> bool) {
    let Some(fixture) = testkit::find(name) else { return };
    let copy = fixture.copy();
    let dir = copy.dir();
    let pool = open(dir, true);
    load_keys(&pool);
    let needed = |n: &String| header(&pool, n).flags & ZIL_REPLAY_NEEDED != 0;
    let names = pool.dataset_names(false).unwrap().names;
    let claimed = names.iter().filter(|n| needed(n)).count();
    assert!(claimed > 0, "no log was claimed");
    // What was claimed and nobody replayed stays claimed, and OpenZFS finds it so.
    pool.export().unwrap();
    drop(pool);
    rig::judge(dir, fixture.pool());
    let pool = open(dir, true);
    load_keys(&pool);
    assert!(replay_all(&pool) > 0);
    let wrong = differences(&pool, &fixture, quirk);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    pool.export().unwrap();
    drop(pool);
    rig::judge(dir, fixture.pool());
    let pool = open(dir, true);
    load_keys(&pool);
    assert_eq!(replay_all(&pool), 0, "nothing is replayed twice");
    let wrong = differences(&pool, &fixture, quirk);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// OpenZFS rounds a size up to the block that a record names, and does not show an ACL of no bytes.
fn known(dataset: &str, path: &str, what: &str) -> bool {
    let rounded = matches!(path, "base-a" | "hard-new")
        && (what.starts_with("size is 700") || what.starts_with("sha256 is"));
    let empty = path == "base-f" && what.starts_with("xattrs is");
    dataset.ends_with("/thru") && rounded || dataset.ends_with("/xdir") && empty
}

/// Goal: logs of a pool that was frozen, and then left.
#[test]
fn frozen() {
    check("zil-freeze", &known);
}

/// Goal: the same with a log device.
#[test]
fn on_a_log_device() {
    check("zil-slog", &known);
}

/// Goal: logs of a machine that was reset in the middle of its work.
#[test]
fn crashed() {
    check("zil-crash", &|_, _, _| false);
}
