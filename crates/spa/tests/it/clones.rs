//! Block cloning between files: in new pools, and in pools where OpenZFS has cloned files.

use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::snapshot::Snapshot;
use dsl::{Need, Setting, Value};
use ondisk::{BlkId, DmuType, ObjNum};
use spa::create::VdevShape;
use spa::engine::PoolWriter;
use testpools::{file_system, import, judge, new_pool, noise, own, read_file, remove_file, write_file};

const BLOCK: usize = 1 << 17;

fn snapshot(live: &PoolWriter, name: &str) {
    live.run(Box::new(Snapshot { names: vec![name.into()], props: Vec::new(), enforce_limits: false }))
        .unwrap();
}

fn saved(live: &PoolWriter) -> u64 {
    live.dsl().space().dspace - live.dsl().space().rdspace
}

/// A new file with the first blocks of another one.
fn clone_file(live: &PoolWriter, to: &dsl::Owned, from: &dsl::Owned, source: ObjNum, blocks: u64) -> ObjNum {
    assert!(live.dsl().may_clone(from.object(), to.object()).unwrap());
    let tx = live.tx_for(to, Need { bytes: 1 << 17, netfree: false }).unwrap();
    let spec =
        dmu::NewObject { block_size: BLOCK as u32, ..dmu::NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let dn = to.objset().create_object(&tx, &spec).unwrap();
    let source = from.objset().dnode(source).unwrap();
    dn.clone_blocks(&tx, BlkId(0), &source, BlkId(0), blocks).unwrap();
    dn.object()
}

/// Goal: clones share their blocks with the source, within and across datasets, with and without
/// deduplication.
///
/// * Clones can be read before they are synced.
/// * They can be overwritten at once, in part and in whole.
/// * They and the source can be removed in any order, also in the txg of the clone.
/// * A block is freed with its last reference.
#[test]
fn a_life_of_clones() {
    for dedup in [2, 1] {
        let dir = tempfile::tempdir().unwrap();
        let images = testpools::images(dir.path(), 1, 256 << 20);
        let spa = new_pool(VdevShape::Single, &images);
        let live = spa.writer().unwrap();
        let set = Setting { name: "dedup".into(), value: Value::Number(dedup) };
        live.run(file_system("tank/a", vec![set])).unwrap();
        live.run(file_system("tank/b", Vec::new())).unwrap();
        let (a, b) = (own(live, "tank/a"), own(live, "tank/b"));
        let bytes = noise(1, 8 * BLOCK);
        let source = write_file(live, &a, &bytes).unwrap();
        {
            let tx = live.tx_for(&b, Need { bytes: 1 << 17, netfree: false }).unwrap();
            let dn = a.objset().dnode(source).unwrap();
            let e = dn.clone_blocks(&tx, BlkId(20), &dn, BlkId(0), 2).unwrap_err();
            assert!(matches!(e, dmu::Error::Unsynced { .. }), "{e:?}");
        }
        live.sync_all().unwrap();
        let one = clone_file(live, &a, &a, source, 8);
        let two = clone_file(live, &b, &a, source, 4);
        assert_eq!(read_file(&b, two, 4 * BLOCK), bytes[..4 * BLOCK]);
        {
            // Overwrites one clone in part and frees a block of it, in the txg that made the clone.
            let tx = live.tx_for(&b, Need { bytes: 2 << 17, netfree: false }).unwrap();
            let dn = b.objset().dnode(two).unwrap();
            dn.write_at(&tx, 5, b"hello").unwrap();
            dn.free_range(&tx, BLOCK as u64, BLOCK as u64).unwrap();
        }
        live.sync_all().unwrap();
        assert!(saved(live) >= 10 * BLOCK as u64, "{}", saved(live));
        let three = clone_file(live, &b, &a, one, 8);
        // The txg of this clone also frees two of the files that share its blocks.
        remove_file(live, &a, source).unwrap();
        remove_file(live, &a, one).unwrap();
        snapshot(live, "tank/b@s");
        drop((a, b));
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        let b = own(live, "tank/b");
        assert_eq!(read_file(&b, three, 8 * BLOCK), bytes);
        let mut want = bytes[..4 * BLOCK].to_vec();
        want[5..10].copy_from_slice(b"hello");
        want[BLOCK..2 * BLOCK].fill(0);
        assert_eq!(read_file(&b, two, 4 * BLOCK), want);
        remove_file(live, &b, three).unwrap();
        drop(b);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.run(Box::new(DestroySnapshots { names: vec!["tank/b@s".into()], defer: false })).unwrap();
        live.run(Box::new(DestroyHead { name: "tank/b".into() })).unwrap();
        (0..4).for_each(|_| live.sync_all().unwrap());
        assert_eq!(saved(live), 0);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
    }
}

/// Goal: in a pool with files that OpenZFS cloned, these can be removed one by one and cloned
/// again, and the table stays right.
#[test]
fn clones_of_openzfs() {
    let Some(fixture) = testkit::find("block-clone") else { return };
    let copy = fixture.copy();
    let spa = import(copy.dir()).unwrap();
    let live = spa.writer().unwrap();
    let pool = live.dsl().pool_name().to_owned();
    let before = saved(live);
    assert!(before > 0);
    let all = live.dsl().list_sorted(None, &dsl::ListOptions::default()).unwrap().whole().unwrap();
    let mut removed = 0;
    for ds in all {
        let Ok(owned) = live.dsl().heads().own(&ds) else { continue };
        let objects: Vec<_> = owned.objset().objects(ObjNum(2)).map(|d| d.unwrap()).collect();
        let files = objects.iter().filter(|d| d.kind() == DmuType::PLAIN_FILE_CONTENTS);
        for dn in files.filter(|d| d.block_size() == BLOCK as u64) {
            clone_file(live, &owned, &owned, dn.object(), dn.max_size() / BLOCK as u64);
            remove_file(live, &owned, dn.object()).unwrap();
            removed += 1;
            if removed % 3 == 0 {
                live.sync_all().unwrap();
            }
        }
    }
    assert!(removed > 1, "{removed}");
    live.export().unwrap();
    drop(spa);
    judge(copy.dir(), &pool);
}
