//! Pools with deduplicated blocks: new pools, and pools that OpenZFS wrote and that are changed
//! here.

use dsl::ops::destroy::DestroyHead;
use dsl::ops::snapshot::Snapshot;
use dsl::{Setting, Value};
use ondisk::ObjNum;
use spa::create::VdevShape;
use spa::engine::{PoolWriter, Prune, World};
use testpools::{ask, file_system, import, judge, new_pool, noise, own, read_file, remove_file, write_file};

/// Values of the property `dedup`: `on`, `sha512,verify`, `edonr,verify`.
const KINDS: [u64; 3] = [1, 11 | 0x100, 13 | 0x100];
const MIB: usize = 1 << 20;

fn set(name: &str, value: u64) -> Setting {
    Setting { name: name.into(), value: Value::Number(value) }
}

fn stored(live: &PoolWriter) -> u64 {
    live.dsl().space().dspace - live.dsl().space().rdspace
}

/// Goal: equal blocks of files, datasets and txgs are stored once, with the largest requested
/// number of copies. The pool's sums are right.
///
/// When files and datasets are removed, all blocks are freed, and the tables last. zdb finds each
/// state consistent.
#[test]
fn a_life_of_shared_blocks() {
    for (n, kind) in KINDS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (shape, count) = if n == 0 { (VdevShape::Single, 1) } else { (VdevShape::Mirror, 2) };
        let images = testpools::images(dir.path(), count, 128 << 20);
        let spa = new_pool(shape, &images);
        let live = spa.writer().unwrap();
        let bytes = noise(7, MIB);
        for (name, copies) in [("tank/a", 1), ("tank/b", 1), ("tank/c", 3)] {
            live.run(file_system(name, vec![set("dedup", kind), set("copies", copies)])).unwrap();
            let owned = own(live, name);
            for _ in 0..2 {
                write_file(live, &owned, &bytes).unwrap();
                write_file(live, &owned, &noise(8, MIB / 2)).unwrap();
                live.sync_all().unwrap();
            }
        }
        assert!(stored(live) > 5 * MIB as u64, "{}", stored(live));
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        let owned = own(live, "tank/c");
        let first = owned.objset().objects(ObjNum(2)).map(|d| d.unwrap()).next().unwrap().object();
        assert_eq!(read_file(&owned, first, bytes.len()), bytes);
        live.run(Box::new(Snapshot {
            names: vec!["tank/c@s".into()],
            props: Vec::new(),
            enforce_limits: false,
        }))
        .unwrap();
        remove_file(live, &owned, first).unwrap();
        drop(owned);
        live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        let spa = import(dir.path()).unwrap();
        let live = spa.writer().unwrap();
        live.run(Box::new(dsl::ops::destroy::DestroySnapshots {
            names: vec!["tank/c@s".into()],
            defer: false,
        }))
        .unwrap();
        for name in ["tank/b", "tank/c"] {
            live.run(Box::new(DestroyHead { name: name.into() })).unwrap();
        }
        (0..4).for_each(|_| live.sync_all().unwrap());
        assert_eq!(stored(live), 0);
        live.export().unwrap();
        drop(spa);
        judge(dir.path(), "tank");
        if let Some(text) = ask(dir.path(), "tank", &["-D"]) {
            assert!(text.contains("All DDTs are empty"), "{text}");
        }
    }
}

/// Goal: dedup tables of OpenZFS, legacy and fast ones, are kept up to date: writes find their
/// blocks and add references, and frees remove them.
#[test]
fn tables_of_openzfs() {
    let mut changed = 0;
    for name in ["dedup-legacy", "dedup-fast"] {
        let Some(fixture) = testkit::find(name) else { continue };
        let copy = fixture.copy();
        let spa = import(copy.dir()).unwrap();
        let live = spa.writer().unwrap();
        let pool = live.dsl().pool_name().to_owned();
        let saved = stored(live);
        let head = live.dsl().list_sorted(None, &dsl::ListOptions::default()).unwrap().whole().unwrap();
        let mut files = Vec::new();
        for ds in head {
            let Ok(owned) = live.dsl().heads().own(&ds) else { continue };
            for dn in owned.objset().objects(ObjNum(2)) {
                let dn = dn.unwrap();
                if dn.kind() == ondisk::DmuType::PLAIN_FILE_CONTENTS && dn.block_size() == 1 << 17 {
                    let size = (dn.max_size() as usize).min(4 * MIB);
                    files.push((ds.name(), dn.object(), read_file(&owned, dn.object(), size)));
                }
            }
        }
        assert!(!files.is_empty(), "{name} has files");
        let again = format!("{pool}/again");
        live.run(file_system(&again, vec![set("dedup", 1), set("compression", 2)])).unwrap();
        let owned = own(live, &again);
        for (_, _, bytes) in &files {
            write_file(live, &owned, bytes).unwrap();
        }
        live.sync_all().unwrap();
        assert!(stored(live) > saved, "{name}: {saved} {}", stored(live));
        drop(owned);
        live.export().unwrap();
        drop(spa);
        judge(copy.dir(), &pool);
        let spa = import(copy.dir()).unwrap();
        let live = spa.writer().unwrap();
        for (ds, object, _) in files {
            remove_file(live, &own(live, &ds), object).unwrap();
        }
        live.export().unwrap();
        drop(spa);
        judge(copy.dir(), &pool);
        changed += 1;
    }
    assert!(changed == 2 || testkit::find("single-lz4").is_none(), "only {changed} of the fixtures are here");
}

/// An environment whose clock stands still until the test moves it.
struct Standing(std::sync::atomic::AtomicU64);

impl World for Standing {
    fn now(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        spa::engine::SystemWorld.random()
    }

    fn memory(&self) -> u64 {
        1 << 30
    }
}

/// Clones the first MiB of an object into a new one.
fn clone_whole(live: &PoolWriter, owned: &dsl::Owned, source: ObjNum) -> dmu::Result<()> {
    let tx = live.tx_for(owned, dsl::Need { bytes: 1 << 17, netfree: false }).unwrap();
    let spec =
        dmu::NewObject { block_size: 1 << 17, ..dmu::NewObject::new(ondisk::DmuType::PLAIN_FILE_CONTENTS) };
    let dn = owned.objset().create_object(&tx, &spec).unwrap();
    let source = owned.objset().dnode(source).unwrap();
    dn.clone_blocks(&tx, ondisk::BlkId(0), &source, ondisk::BlkId(0), 8).map(drop)
}

/// Goal: pruning removes the entries of unshared blocks of the requested age, and no others.
///
/// The blocks keep their contents, and the free of their only reference frees them. When the same
/// data is written again, it is stored anew. zdb finds each state consistent.
#[test]
fn what_is_not_shared_is_pruned() {
    const HOUR: u64 = 3600;
    let dir = tempfile::tempdir().unwrap();
    let images = testpools::images(dir.path(), 1, 128 << 20);
    let world = std::sync::Arc::new(Standing((500_000 * HOUR).into()));
    let pass = |hours| world.0.fetch_add(hours * HOUR, std::sync::atomic::Ordering::Relaxed);
    let features: Vec<_> = ondisk::feature::FEATURES.iter().filter(|f| f.can_write()).collect();
    let leaves = vec![spa::create::NewLeaf { path: images[0].clone() }];
    let vdev = spa::create::NewVdev { shape: VdevShape::Single, bias: None, leaves };
    let spa = testpools::pool_in(vec![vdev], &features, &spa::create::claim_file, 1, world.clone());
    let live = spa.writer().unwrap();
    live.run(file_system("tank/a", vec![set("dedup", 1)])).unwrap();
    let owned = own(live, "tank/a");
    let old = write_file(live, &owned, &noise(1, MIB)).unwrap();
    for _ in 0..2 {
        write_file(live, &owned, &noise(2, MIB)).unwrap();
    }
    live.sync_all().unwrap();
    pass(40);
    let new = write_file(live, &owned, &noise(3, MIB)).unwrap();
    live.sync_all().unwrap();
    pass(2);
    assert_eq!(live.prune_ddt(Prune::Older(100 * HOUR)).unwrap(), 0);
    assert_eq!(live.prune_ddt(Prune::Percent(50)).unwrap(), 8, "all of the class that is enough");
    assert_eq!(live.prune_ddt(Prune::Older(10 * HOUR)).unwrap(), 0);
    assert_eq!(read_file(&owned, old, MIB), noise(1, MIB));
    // A clone of a pruned block would be counted in two tables, so it is refused and the caller
    // must copy. A block with an entry can be cloned.
    for (source, is_cloned) in [(old, false), (new, true)] {
        let done = clone_whole(live, &owned, source);
        assert_eq!(done.is_ok(), is_cloned, "{done:?}");
        assert!(is_cloned || matches!(done, Err(dmu::Error::CloneShape { .. })), "{done:?}");
    }
    // An entry that a clone in an unsynced txg refers to is not pruned either.
    assert_eq!(live.prune_ddt(Prune::Older(0)).unwrap(), 0);
    let before = stored(live);
    write_file(live, &owned, &noise(3, MIB)).unwrap();
    live.sync_all().unwrap();
    let found = stored(live);
    assert!(found > before, "what was not pruned is found");
    let again = write_file(live, &owned, &noise(1, MIB)).unwrap();
    live.sync_all().unwrap();
    assert_eq!(stored(live), found, "what was pruned is stored anew");
    remove_file(live, &owned, new).unwrap();
    drop(owned);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
    let spa = import(dir.path()).unwrap();
    let live = spa.writer().unwrap();
    let owned = own(live, "tank/a");
    assert_eq!(read_file(&owned, again, MIB), noise(1, MIB));
    remove_file(live, &owned, old).unwrap();
    (0..4).for_each(|_| live.sync_all().unwrap());
    assert_eq!(read_file(&owned, again, MIB), noise(1, MIB));
    remove_file(live, &owned, again).unwrap();
    drop(owned);
    live.run(Box::new(DestroyHead { name: "tank/a".into() })).unwrap();
    (0..4).for_each(|_| live.sync_all().unwrap());
    assert_eq!(stored(live), 0);
    live.export().unwrap();
    drop(spa);
    judge(dir.path(), "tank");
}
