//! New pools. OpenZFS's `zdb` checks them if it is available.

use dmu::NewObject;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::rename::RenameSnapshot;
use dsl::ops::snapshot::Snapshot;
use dsl::sync::SyncTask;
use ondisk::config::DraidShape;
use ondisk::{DmuType, Txg};
use spa::create::VdevShape;
use spa::engine::TaskError;
use std::path::Path;
use testpools::{file_system, images, import, new_pool, read_all};

/// Reads an exported pool, and runs `zdb` on it if it is available.
pub fn judge(dir: &Path, pool: &str) {
    read_all(dir);
    testpools::judge(dir, pool);
}

const SHAPES: [(VdevShape, usize); 7] = [
    (VdevShape::Single, 1),
    (VdevShape::Mirror, 2),
    (VdevShape::Raidz(1), 3),
    (VdevShape::Raidz(2), 5),
    (VdevShape::Raidz(3), 5),
    (VdevShape::Draid(1, DraidShape { ndata: 2, nspares: 1, ngroups: 4 }), 5),
    (VdevShape::Draid(2, DraidShape { ndata: 2, nspares: 0, ngroups: 5 }), 5),
];

/// Goal: a new pool of each shape is consistent after its export.
#[test]
fn new_pools() {
    for (shape, count) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        live.log_command("zpool create tank", 0).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: data written to a file system over several txgs is there after an export, and the pool is
/// consistent.
#[test]
fn written_datasets() {
    for (shape, count) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let images = images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        let head = live.dsl().dataset("tank").unwrap();
        let owned = live.dsl().heads().own(&head).unwrap();
        let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        let object = {
            let tx = live.tx(1 << 17).unwrap();
            owned.objset().create_object(&tx, &spec).unwrap().object()
        };
        for round in 0..5u64 {
            let tx = live.tx(1 << 20).unwrap();
            let dn = owned.objset().dnode(object).unwrap();
            let bytes: Vec<u8> = (0..1u64 << 20).map(|i| (((i * i) >> 7) ^ (i * round)) as u8).collect();
            dn.write_at(&tx, round << 19, &bytes).unwrap();
            let txg = tx.txg();
            drop(tx);
            live.txgs().wait_synced(txg).unwrap();
        }
        // An owned dataset keeps the devices open.
        drop((owned, head));
        live.export().unwrap();
        drop(spa);
        // Five writes of 1 MiB, each starting 512 KiB after the one before.
        assert_eq!(read_all(dir.path()), 3 << 20);
        judge(dir.path(), "tank");
    }
}

/// Goal: a new pool can be imported, changed and exported again and again.
#[test]
fn import_and_change() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 3, 128 << 20);
    new_pool(VdevShape::Raidz(1), &images).writer().unwrap().export().unwrap();
    for round in 0..3 {
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.run(file_system(&format!("tank/fs{round}"), Vec::new())).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
    let spa = import(dir.path()).unwrap();
    let live = spa.writer().unwrap();
    assert!(live.dsl().dataset("tank/fs2").is_ok());
}

/// Goal: pools that OpenZFS wrote can be changed and are consistent afterwards, including one with
/// log space maps and some of old versions.
#[test]
fn change_real_pools() {
    let mut changed = 0;
    for name in ["single-lz4", "mirror2", "raidz3-7", "draid1", "longname", "v1", "v28"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let copy = fixture.copy();
        let spa = import(copy.dir()).unwrap();
        let live = spa.writer().unwrap();
        let pool = live.dsl().pool_name().to_owned();
        live.run(file_system(&format!("{pool}/ours"), Vec::new())).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(copy.dir(), &pool);
        changed += 1;
    }
    assert!(changed >= 3, "only {changed} of the fixtures are here");
}

fn snapshots(names: &[&str]) -> Box<Snapshot> {
    let names = names.iter().map(|n| (*n).to_owned()).collect();
    Box::new(Snapshot { names, props: Vec::new(), enforce_limits: false })
}

/// Goal: after datasets are created, written, snapshotted, cloned and destroyed, their space is
/// free again, and the pool is consistent.
#[test]
fn a_life_of_datasets() {
    let dir = tempfile::tempdir().unwrap();
    let images = images(dir.path(), 2, 128 << 20);
    let spa = new_pool(VdevShape::Mirror, &images);
    let live = spa.writer().unwrap();
    live.sync_all().unwrap();
    let before = live.dsl().root().unwrap().phys().used_bytes;
    live.run(file_system("tank/a", Vec::new())).unwrap();
    live.run(file_system("tank/a/b", Vec::new())).unwrap();
    for round in 0..3u8 {
        let head = live.dsl().dataset("tank/a/b").unwrap();
        let owned = live.dsl().heads().own(&head).unwrap();
        let tx = live.tx(1 << 22).unwrap();
        let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        let dn = owned.objset().create_object(&tx, &spec).unwrap();
        let mut seed = u64::from(round) + 1;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .take(3 << 20)
        .collect();
        dn.write_at(&tx, 0, &bytes).unwrap();
        drop((tx, dn, owned));
        let (a, b) = (format!("tank/a@s{round}"), format!("tank/a/b@s{round}"));
        live.run(snapshots(&[&a, &b])).unwrap();
    }
    let held = live.dsl().root().unwrap().phys().used_bytes;
    assert!(held > before + (9 << 20), "{before} {held}");
    // Invalid requests change nothing: to destroy a snapshot that is still needed, or a dataset
    // with children.
    assert!(live.run(snapshots(&["tank/a@s0"])).is_err());
    assert!(live.run(Box::new(DestroyHead { name: "tank/a".into() })).is_err());
    let gone: Vec<String> = (0..3).flat_map(|r| [format!("tank/a@s{r}"), format!("tank/a/b@s{r}")]).collect();
    live.run(Box::new(DestroySnapshots { names: gone, defer: false })).unwrap();
    live.run(Box::new(DestroyHead { name: "tank/a/b".into() })).unwrap();
    live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
    live.sync_all().unwrap();
    let after = live.dsl().root().unwrap().phys().used_bytes;
    assert!(after < before + (1 << 20), "{before} {after}");
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: the cache drops the blocks that transaction groups free, also those of the MOS that are
/// freed in the group after. So a pool that only takes snapshots fills no memory.
#[test]
fn freed_blocks_leave_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    let size_after = |n: u32| {
        let names = vec![format!("tank@{n}")];
        live.run(Box::new(Snapshot { names: names.clone(), props: Vec::new(), enforce_limits: false }))
            .unwrap();
        live.run(Box::new(DestroySnapshots { names, defer: false })).unwrap();
        spa.cache().stats().size
    };
    let first = (0..20).map(size_after).max().unwrap();
    let last = (20..60).map(size_after).max().unwrap();
    // Each group frees several blocks of 16 KiB. The cache grows a little: by the history, and by a
    // flush of space maps now and then.
    assert!(last < first + (1 << 20), "{first} {last}");
}

/// Goal: snapshots that several callers take of the same datasets at the same moment are all taken,
/// each in a txg of its own: one in a call, several in a call, and several calls in a batch.
#[test]
fn snapshots_at_one_moment() {
    const CALLERS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let take = |names: Vec<String>| -> Box<dyn SyncTask + Send> {
        Box::new(Snapshot { names, ..Snapshot::default() })
    };
    let together = std::sync::Barrier::new(CALLERS);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let together = &together;
            scope.spawn(move || {
                for round in 0..20 {
                    let both = ["tank", "tank/a"].map(|ds| format!("{ds}@{caller}-{round}"));
                    let again = [format!("tank@{caller}-{round}-again")];
                    together.wait();
                    let results = live.run_all(vec![take(both.to_vec()), take(again.to_vec())]).unwrap();
                    results.into_iter().for_each(|result| result.unwrap());
                }
            });
        }
    });
    let taken = |ds: &str| live.dsl().dataset(ds).unwrap().snapshots().unwrap().len();
    assert_eq!((taken("tank"), taken("tank/a")), (40 * CALLERS, 20 * CALLERS));
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}

/// Goal: of operations in order, each finds what the one before it did, and none runs after one
/// that is refused.
#[test]
fn operations_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let spa = new_pool(VdevShape::Single, &images(dir.path(), 1, 128 << 20));
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", Vec::new())).unwrap();
    let take = |name: &str| -> Box<dyn SyncTask + Send> {
        Box::new(Snapshot { names: vec![format!("tank/a@{name}")], ..Snapshot::default() })
    };
    let end = |name: &str| -> Box<dyn SyncTask + Send> {
        Box::new(DestroySnapshots { names: vec![format!("tank/a@{name}")], defer: false })
    };
    let rename = |old: &str, new: &str| -> Box<dyn SyncTask + Send> {
        let (dataset, old, new) = ("tank/a".to_owned(), old.to_owned(), new.to_owned());
        Box::new(RenameSnapshot { dataset, old, new, recursive: false })
    };
    let names = || {
        let all = live.dsl().dataset("tank/a").unwrap().snapshots().unwrap();
        all.iter().map(|one| (one.name().split_off("tank/a@".len()), one.phys().creation_txg)).collect()
    };
    live.run(take("x")).unwrap();
    let before: Vec<(String, Txg)> = names();
    let first = live.txgs().synced();
    live.run_in_order(vec![take("new"), end("x"), rename("new", "x")]).unwrap();
    let after: Vec<(String, Txg)> = names();
    assert_eq!((after.len(), &after[0].0), (1, &before[0].0));
    assert!(after[0].1 > first && after[0].1 > before[0].1);
    let refused = live.run_in_order(vec![take("new"), rename("none", "y"), end("x")]);
    let why = refused.unwrap_err();
    assert!(matches!(why, TaskError::Refused(_)), "{why:?}");
    let left: Vec<(String, Txg)> = names();
    assert_eq!(left.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["x", "new"]);
    live.run_in_order(Vec::new()).unwrap();
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
