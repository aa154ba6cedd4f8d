//! Pools and datasets that run full: a writer gets an error before anything changes, and can free
//! space and continue.

use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::props::{SetAs, SetProps};
use dsl::ops::snapshot::Snapshot;
use dsl::{Error, Refusal, Setting, Value};
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::engine::{PoolWriter, TaskError};
use testpools::{file_system, judge, new_pool, noise, own, remove_file, write_file};

fn why(e: &TaskError) -> Option<&Refusal> {
    match e {
        TaskError::Refused(Error::Refused { why, .. }) => Some(why),
        _ => None,
    }
}

/// Writes files until no space is left.
fn fill(live: &PoolWriter, owned: &dsl::Owned, size: usize) -> (Vec<ObjNum>, TaskError) {
    let mut files = Vec::new();
    loop {
        match write_file(live, owned, &noise(files.len() as u64, size)) {
            Ok(object) => files.push(object),
            Err(e) => return (files, e),
        }
        assert!(files.len() < 4096, "the pool has no end");
    }
}

/// Goal: a full pool refuses writers and new datasets, but removes files and destroys datasets.
/// Afterwards there is space again, and the pool is consistent when full and when emptied.
#[test]
fn a_full_pool_can_be_emptied() {
    for (shape, count) in [(VdevShape::Single, 1), (VdevShape::Raidz(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let images = testpools::images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        live.run(file_system("tank/a", Vec::new())).unwrap();
        let owned = own(live, "tank/a");
        let (files, e) = fill(live, &owned, 1 << 20);
        assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
        assert!(files.len() > 20, "{}", files.len());
        let e = live.run(file_system("tank/b", Vec::new())).unwrap_err();
        assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
        assert!(live.txgs().stopped().is_none());
        for object in &files {
            remove_file(live, &owned, *object).unwrap();
        }
        live.sync_all().unwrap();
        // Freed space can be allocated two txgs later. Operations wait for that, and keep their
        // order.
        let snapshot = |name: &str| -> Box<dyn dsl::SyncTask + Send> {
            Box::new(Snapshot { names: vec![format!("tank/a@{name}")], ..Snapshot::default() })
        };
        let destroy = DestroySnapshots { names: vec!["tank/a@first".to_owned()], defer: false };
        let done = live.run_all(vec![snapshot("first"), Box::new(destroy)]).unwrap();
        assert!(done.iter().all(Result::is_ok), "{done:?}");
        let listed = live.dsl().dataset("tank/a").unwrap().snapshots().unwrap();
        assert!(listed.is_empty(), "each found what the one before it did");
        live.run(snapshot("emptied")).unwrap();
        let (again, e) = fill(live, &owned, 1 << 20);
        assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
        assert!(again.len() + 4 >= files.len(), "{} and {}", files.len(), again.len());
        drop(owned);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = testpools::import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        let names = vec!["tank/a@emptied".to_owned()];
        live.run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
        live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
        // The destroy frees its blocks in later txgs, and freed space waits two more txgs.
        (0..4).for_each(|_| live.sync_all().unwrap());
        live.run(file_system("tank/b", Vec::new())).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: quotas of a directory and of a dataset hold, but one change may exceed them. Files can be
/// removed from a full dataset, and a larger quota allows more writes.
#[test]
fn quotas_are_kept() {
    const QUOTA: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 256 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    for prop in ["quota", "refquota"] {
        let name = format!("tank/a/{prop}");
        let set = |value| Setting { name: prop.into(), value: Value::Number(value) };
        live.run(file_system(&name, vec![set(QUOTA)])).unwrap();
        let owned = own(live, &name);
        let (files, e) = fill(live, &owned, 1 << 20);
        assert_eq!(why(&e), Some(&Refusal::Quota), "{e:?}");
        assert!((7..=9).contains(&files.len()), "{prop}: {}", files.len());
        live.sync_all().unwrap();
        let used = live.dsl().dataset(&name).unwrap().phys().referenced_bytes;
        assert!(used <= QUOTA + (2 << 20), "{prop}: {used}");
        remove_file(live, &owned, files[0]).unwrap();
        remove_file(live, &owned, files[1]).unwrap();
        live.sync_all().unwrap();
        write_file(live, &owned, &noise(99, 1 << 20)).unwrap();
        let (_, e) = fill(live, &owned, 1 << 20);
        assert_eq!(why(&e), Some(&Refusal::Quota), "{e:?}");
        let props = vec![set(2 * QUOTA)];
        live.run(Box::new(SetProps { name: name.clone(), props, source: SetAs::Local })).unwrap();
        assert!(fill(live, &owned, 1 << 20).0.len() >= 7);
    }
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: reserved space stays available to its dataset while others fill the pool.
#[test]
fn reservations_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 256 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    for prop in ["reservation", "refreservation"] {
        let set = Setting { name: prop.into(), value: Value::Number(32 << 20) };
        live.run(file_system(&format!("tank/{prop}"), vec![set])).unwrap();
    }
    live.run(file_system("tank/greedy", Vec::new())).unwrap();
    let (_, e) = fill(live, &own(live, "tank/greedy"), 1 << 20);
    assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
    for prop in ["reservation", "refreservation"] {
        // The written bytes count, not the worst case of a change. The last changes may slightly
        // exceed the limit.
        let (files, e) = fill(live, &own(live, &format!("tank/{prop}")), 1 << 18);
        assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
        assert!((124..=144).contains(&files.len()), "{prop}: {}", files.len());
    }
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: in a full pool, data within a reservation can be overwritten again and again, in requests
/// of any size that the kernel makes.
#[test]
fn what_is_reserved_is_written_over() {
    const FILE: usize = 16 << 20;
    const PIECE: usize = 1 << 18;
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 256 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    live.run(file_system("tank/thick", Vec::new())).unwrap();
    let owned = own(live, "tank/thick");
    let file = write_file(live, &owned, &noise(1, FILE)).unwrap();
    live.sync_all().unwrap();
    // A reservation like a volume's: little more than the fully written data takes.
    let unique = live.dsl().dataset("tank/thick").unwrap().phys().unique_bytes;
    let value = Value::Number(unique + (1 << 20));
    let props = vec![Setting { name: "refreservation".into(), value }];
    live.run(Box::new(SetProps { name: "tank/thick".into(), props, source: SetAs::Local })).unwrap();
    live.run(file_system("tank/greedy", Vec::new())).unwrap();
    let greedy = own(live, "tank/greedy");
    let (_, e) = fill(live, &greedy, 1 << 20);
    assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
    for round in 0..3 {
        for at in (0..FILE).step_by(PIECE) {
            // A write also writes its indirect blocks.
            let need = dsl::Need { bytes: 2 * PIECE as u64, netfree: false };
            let tx = live.tx_for(&owned, need).unwrap();
            let bytes = noise((round * FILE + at) as u64, PIECE);
            owned.objset().dnode(file).unwrap().write_at(&tx, at as u64, &bytes).unwrap();
        }
    }
    live.sync_all().unwrap();
    let now = live.dsl().dataset("tank/thick").unwrap().phys().unique_bytes;
    assert!(now.abs_diff(unique) < 1 << 16, "{now} instead of {unique}");
    let e = write_file(live, &greedy, &noise(9, 1 << 20)).unwrap_err();
    assert_eq!(why(&e), Some(&Refusal::NoSpace), "others get nothing of it: {e:?}");
    drop((owned, greedy));
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: many datasets that use up their reservations, and try to write more, leave a full pool in
/// which frees still work.
#[test]
fn many_reservations_leave_room() {
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 256 << 20);
    let spa = new_pool(VdevShape::Single, &images);
    let live = spa.writer().unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("tank/r{n}")).collect();
    for name in &names {
        let set = Setting { name: "refreservation".into(), value: Value::Number(1 << 18) };
        live.run(file_system(name, vec![set])).unwrap();
    }
    live.run(file_system("tank/greedy", Vec::new())).unwrap();
    let greedy = own(live, "tank/greedy");
    let (files, e) = fill(live, &greedy, 1 << 20);
    assert_eq!(why(&e), Some(&Refusal::NoSpace), "{e:?}");
    for name in &names {
        let (_, e) = fill(live, &own(live, name), 1 << 17);
        assert_eq!(why(&e), Some(&Refusal::NoSpace), "{name}: {e:?}");
    }
    live.sync_all().unwrap();
    files.iter().take(4).for_each(|file| remove_file(live, &greedy, *file).unwrap());
    live.sync_all().unwrap();
    assert_eq!(live.suspended(), None);
    drop(greedy);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
