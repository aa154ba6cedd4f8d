//! Object sets sync to the contents of a simple model after any operations, and leak nothing.

use crate::rig;

use crate::rig::{Rig, tx};
use dmu::zap::{Normalization, Zap};
use dmu::{Dnode, DnodesShape, Error, NewObject, Objset, SyncSink, Tx};
use ondisk::dnode::DnodePhys;
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::zap::ZapFlags;
use ondisk::{BlkId, Blkptr, DmuType, Level, ObjNum, Txg};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use zio::{IoFlags, ReadOptions};

const FILE: DmuType = DmuType::PLAIN_FILE_CONTENTS;

/// The expected state of one object: the written sectors, and the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Thing {
    block: u64,
    slots: u8,
    sectors: BTreeMap<u64, [u8; 512]>,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

impl Thing {
    fn write(&mut self, offset: u64, data: &[u8]) {
        for (i, b) in data.iter().enumerate() {
            let at = offset + i as u64;
            self.sectors.entry(at / 512).or_insert([0; 512])[(at % 512) as usize] = *b;
        }
    }

    fn free(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> = self.sectors.range(offset / 512..).map(|(s, _)| *s).collect();
        for s in touched.into_iter().take_while(|s| s * 512 < end) {
            for (i, b) in self.sectors.get_mut(&s).unwrap().iter_mut().enumerate() {
                if (offset..end).contains(&(s * 512 + i as u64)) {
                    *b = 0;
                }
            }
        }
    }
}

type Model = BTreeMap<u64, Thing>;

fn check(os: &Objset, model: &Model) {
    let found: Vec<Dnode> = os.objects(ObjNum(1)).collect::<Result<_, _>>().unwrap();
    let numbers: Vec<u64> = found.iter().map(|d| d.object().0).collect();
    assert_eq!(numbers, model.keys().copied().collect::<Vec<_>>());
    for dn in found {
        let want = &model[&dn.object().0];
        assert_eq!(dn.block_size(), want.block, "{dn:?}");
        assert_eq!(dn.bonus(), want.bonus, "{dn:?}");
        assert_eq!(dn.phys().num_slots(), usize::from(want.slots), "{dn:?}");
        assert_eq!(dn.spill().unwrap().map(|b| b.to_vec()), want.spill, "{dn:?}");
        for (s, bytes) in &want.sectors {
            let mut got = [1; 512];
            dn.read_at(s * 512, &mut got).unwrap();
            assert_eq!(&got, bytes, "{dn:?} sector {s}");
        }
        // All data lies in blocks that the model has.
        let mut from = BlkId(0);
        while let Some(blk) = dn.next_data_block(from).unwrap() {
            let sectors = blk.0 * want.block / 512..(blk.0 + 1) * want.block / 512;
            assert!(want.sectors.range(sectors).next().is_some(), "{dn:?} has block {blk}");
            from = BlkId(blk.0 + 1);
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Create { block: u32, slots: u8, bonus: usize },
    Claim { object: u64 },
    Free { which: usize },
    Write { which: usize, offset: u64, len: usize, byte: u8 },
    Punch { which: usize, offset: u64, len: u64 },
    Truncate { which: usize, offset: u64 },
    Bonus { which: usize, len: usize },
    Spill { which: usize, sectors: usize },
    Grow { which: usize, block: u32 },
    NextTxg,
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0usize..8;
    let offset = prop_oneof![
        4 => 0u64..20_000,
        2 => 0u64..2_000_000,
        1 => 0u64..(1 << 40),
        1 => (0u64..60).prop_map(|n| n * 16384),
    ];
    let block = prop::sample::select(vec![512u32, 512, 1024, 4096, 16384]);
    prop_oneof![
        3 => (block.clone(), prop::sample::select(vec![1u8, 1, 2, 8]), 0usize..100)
            .prop_map(|(block, slots, bonus)| Op::Create { block, slots, bonus }),
        1 => (1u64..200).prop_map(|object| Op::Claim { object }),
        1 => which.clone().prop_map(|which| Op::Free { which }),
        8 => (which.clone(), offset.clone(), 1usize..9000, any::<u8>())
            .prop_map(|(which, offset, len, byte)| Op::Write { which, offset, len, byte }),
        3 => (which.clone(), offset.clone(), 1u64..100_000)
            .prop_map(|(which, offset, len)| Op::Punch { which, offset, len }),
        2 => (which.clone(), offset).prop_map(|(which, offset)| Op::Truncate { which, offset }),
        2 => (which.clone(), 0usize..192).prop_map(|(which, len)| Op::Bonus { which, len }),
        2 => (which.clone(), 0usize..4).prop_map(|(which, sectors)| Op::Spill { which, sectors }),
        1 => (which, block).prop_map(|(which, block)| Op::Grow { which, block }),
        2 => Just(Op::NextTxg),
        3 => Just(Op::Sync),
    ]
}

fn new(block: u32, slots: u8, bonus: usize) -> (NewObject, Thing) {
    // Small indirect blocks have few pointers, so trees become deep.
    let spec = NewObject { block_size: block, indblkshift: 12, slots, ..NewObject::new(FILE) };
    let bonus = vec![7; bonus];
    let thing = Thing { block: block.into(), slots, bonus: bonus.clone(), ..Thing::default() };
    (spec.with_bonus(DmuType::SA, bonus), thing)
}

/// Whether no object of the model has one of these dnode slots.
fn slots_free(model: &Model, object: u64, slots: u64) -> bool {
    object % 32 + slots <= 32
        && !model.iter().any(|(o, th)| *o < object + slots && object < o + u64::from(th.slots))
}

/// Compares the free slots of a block of dnodes with the model.
fn assert_frees(os: &Objset, model: &Model, object: u64) {
    for near in object / 32 * 32..(object / 32 + 1) * 32 {
        let free = near > 0 && slots_free(model, near, 1);
        assert_eq!(os.is_free_object(ObjNum(near)).unwrap(), free, "object {near}");
    }
}

/// Applies an operation to the object set and the model.
fn apply(os: &Objset, model: &mut Model, op: &Op, txg: u64) {
    let t = tx(txg);
    match *op {
        Op::Create { block, slots, bonus } => {
            let (spec, thing) = new(block, slots, bonus);
            let object = os.create_object(&t, &spec).unwrap().object().0;
            assert!(slots_free(model, object, slots.into()), "object {object} was not free");
            model.insert(object, thing);
        }
        Op::Claim { object } => {
            let (spec, thing) = new(1024, 2, 5);
            assert_frees(os, model, object);
            match os.claim_object(&t, ObjNum(object), &spec) {
                Ok(_) => {
                    assert!(slots_free(model, object, 2), "object {object} was not free");
                    model.insert(object, thing);
                }
                Err(Error::ObjectExists { .. }) => assert!(!slots_free(model, object, 2)),
                Err(e) => panic!("{e}"),
            }
        }
        Op::Free { which }
        | Op::Write { which, .. }
        | Op::Punch { which, .. }
        | Op::Truncate { which, .. }
        | Op::Bonus { which, .. }
        | Op::Spill { which, .. }
        | Op::Grow { which, .. } => {
            let chosen = model.keys().nth(which % model.len().max(1)).copied();
            if let Some(object) = chosen {
                change(os, model, object, op, &t);
                assert_frees(os, model, object);
            }
        }
        Op::NextTxg | Op::Sync => {}
    }
}

/// Applies an operation on this object of the model.
fn change(os: &Objset, model: &mut Model, object: u64, op: &Op, t: &Tx) {
    let dn = os.dnode(ObjNum(object)).unwrap();
    let thing = model.get_mut(&object).unwrap();
    match *op {
        Op::Free { .. } => {
            os.free_object(t, ObjNum(object)).unwrap();
            model.remove(&object);
        }
        Op::Write { offset, len, byte, .. } => {
            let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(byte)).collect();
            dn.write_at(t, offset, &data).unwrap();
            thing.write(offset, &data);
        }
        Op::Punch { offset, len, .. } => {
            dn.free_range(t, offset, len).unwrap();
            thing.free(offset, offset + len);
        }
        Op::Truncate { offset, .. } => {
            dn.free_range(t, offset, u64::MAX).unwrap();
            thing.free(offset, u64::MAX);
        }
        Op::Bonus { len, .. } => {
            thing.bonus = vec![len as u8; len];
            dn.set_bonus(t, DmuType::SA, &thing.bonus).unwrap();
        }
        Op::Spill { sectors, .. } => {
            thing.spill = (sectors > 0).then(|| vec![sectors as u8; sectors * 512]);
            dn.set_spill(t, thing.spill.as_deref()).unwrap();
        }
        Op::Grow { block, .. } => match dn.set_block_size(t, block) {
            Ok(()) => {
                thing.block = block.into();
                // The block stays, even if only zeros are left of it.
                if !thing.sectors.is_empty() {
                    thing.sectors.entry(0).or_insert([0; 512]);
                }
                thing.sectors.retain(|s, _| s * 512 < block.into());
            }
            Err(e) => assert!(matches!(e, Error::BlockSize { .. })),
        },
        _ => {}
    }
}

fn run(ops: &[Op], kind: ObjsetKind) {
    let rig = Rig::new();
    let os = rig.create(kind, 0);
    let mut model = Model::new();
    // Transaction groups that wait for their sync, with the model at their end.
    let mut waiting: Vec<(u64, Model)> = Vec::new();
    let mut txg = 1;
    for op in ops.iter().chain([&Op::NextTxg, &Op::Sync, &Op::Sync, &Op::Sync]) {
        match op {
            Op::NextTxg if waiting.len() < 2 => {
                waiting.push((txg, model.clone()));
                txg += 1;
            }
            Op::NextTxg => {}
            Op::Sync if !waiting.is_empty() => {
                let (txg, model) = waiting.remove(0);
                let synced = rig.sync(&os, txg);
                check(&synced, &model);
                rig.check(&synced);
            }
            Op::Sync => {}
            op => apply(&os, &mut model, op, txg),
        }
        check(&os, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Goal: after any operations in any transaction groups, each group syncs to the state at its
    /// end.
    ///
    /// Readers always see the newest state, no space is lost or freed twice, and all counts are
    /// right.
    #[test]
    fn object_sets_follow_a_model(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops, ObjsetKind::Other);
    }
}

/// Goal: a new object set has the shape that OpenZFS gives it: a meta dnode with six levels, or
/// with one for the MOS. Indirect blocks of the MOS and its objects are smaller than OpenZFS's.
#[test]
fn new_object_sets() {
    let rig = Rig::new();
    for (kind, levels, shift) in [(ObjsetKind::Zfs, 6, 17), (ObjsetKind::Meta, 1, 14)] {
        let os = rig.create(kind, 0);
        let object = os.create_object(&tx(1), &NewObject::new(FILE)).unwrap();
        assert_eq!(object.phys().indblkshift, shift);
        let synced =
            Objset::open(rig.cache.clone(), 5, &rig.sync_pass(&os, 1, 1), ReadOptions::demand()).unwrap();
        let meta = synced.meta_dnode();
        assert_eq!((meta.nlevels(), meta.block_size(), meta.phys().indblkshift), (levels, 16384, shift));
        assert_eq!((meta.phys().blkptrs.len(), synced.kind()), (3, kind));
    }
}

/// Goal: from the second pass on, blocks born in the same txg are rewritten in place. No block is
/// allocated or freed.
#[test]
fn later_passes_rewrite_in_place() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Meta, 0);
    let dn = os.create_object(&tx(1), &NewObject { block_size: 4096, ..NewObject::new(FILE) }).unwrap();
    let noise: Vec<u8> = (0..40_960u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    dn.write_at(&tx(1), 0, &noise).unwrap();
    let first = rig.sync_pass(&os, 1, 1);
    let used = rig.open(&first).dnode(dn.object()).unwrap().used_bytes();
    for pass in 2..5 {
        dn.write_at(&tx(1), 5000, &[pass as u8; 100]).unwrap();
        let again = rig.sync_pass(&os, 1, pass);
        assert_eq!(again.stored().unwrap().dvas, first.stored().unwrap().dvas);
        let synced = rig.open(&again);
        let mut got = [0; 100];
        synced.dnode(dn.object()).unwrap().read_at(5000, &mut got).unwrap();
        assert_eq!(got, [pass as u8; 100]);
        assert_eq!(synced.dnode(dn.object()).unwrap().used_bytes(), used);
        rig.check(&synced);
    }
}

/// A sink that starts a read of a dnode after its block was overwritten, before any reader can know
/// of that.
struct Peeked {
    sink: rig::Sink,
    os: Objset,
    cache: Arc<arc::Cache>,
    object: ObjNum,
    reader: OnceLock<std::thread::JoinHandle<dmu::Result<u64>>>,
}

impl SyncSink for Peeked {
    fn policy(&self, kind: DmuType, level: Level, dnode: &DnodePhys) -> zio::WritePolicy {
        if kind == DmuType::OBJSET {
            self.cache.purge();
            let before = self.cache.stats().misses;
            let (os, object) = (self.os.clone(), self.object);
            let reader = self
                .reader
                .get_or_init(|| std::thread::spawn(move || os.dnode(object).map(|dn| dn.block_size())));
            while !reader.is_finished() && self.cache.stats().misses == before {
                std::thread::yield_now();
            }
        }
        self.sink.policy(kind, level, dnode)
    }

    fn born(&mut self, bp: &Blkptr) {
        self.sink.born(bp);
    }

    fn kill(&mut self, bp: &Blkptr) {
        self.sink.kill(bp);
    }

    fn dsize(&self, bp: &Blkptr) -> u64 {
        self.sink.dsize(bp)
    }

    fn hole_birth(&self) -> bool {
        true
    }

    fn large_dnode(&mut self) {}
}

/// Goal: a read of the MOS, while a sync pass overwrites blocks of the pass before, returns the new
/// contents. It returns no error, although its block pointers are out of date.
#[test]
fn passes_are_read_across() {
    let rig = Rig::new();
    let os = Objset::create_live(
        rig.cache.clone(),
        0,
        ObjsetKind::Meta,
        ObjsetFlags(0),
        &tx(1),
        ReadOptions::demand(),
    );
    let spec = NewObject { block_size: 4096, ..NewObject::new(FILE) };
    let written = os.create_object(&tx(1), &spec).unwrap();
    let peeked = os.create_object(&tx(1), &NewObject { block_size: 8192, ..spec }).unwrap().object();
    written.write_at(&tx(1), 0, &[1; 4096]).unwrap();
    rig.sync_pass(&os, 1, 1);
    written.write_at(&tx(1), 0, &[2; 4000]).unwrap();
    let sink = rig::Sink { space: rig.space.clone(), txg: Txg(1), policy: rig.policy, born: 0 };
    let (cache, reader) = (rig.cache.clone(), OnceLock::new());
    let mut sink = Peeked { sink, os: os.clone(), cache, object: peeked, reader };
    os.sync(&tx(1), 2, &mut sink, &os.cache().zio().workers()).unwrap();
    let reader = sink.reader.take().expect("the root block was written");
    assert_eq!(reader.join().unwrap().unwrap(), 8192);
}

/// Goal: a txg creates a thousand objects with consecutive numbers after the first block of dnodes.
/// The next txg frees half of them, and new objects reuse these numbers.
#[test]
fn freed_numbers_are_used_again() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let spec = NewObject::new(FILE);
    let first: Vec<ObjNum> = (0..1000).map(|_| os.create_object(&tx(1), &spec).unwrap().object()).collect();
    assert!(first.iter().map(|o| o.0).eq(32..1032));
    rig.check(&rig.sync(&os, 1));
    first.iter().step_by(2).for_each(|o| os.free_object(&tx(2), *o).unwrap());
    let synced = rig.sync(&os, 2);
    rig.check(&synced);
    assert_eq!(synced.objects(ObjNum(1)).count(), 500);
    let os = Objset::open_live(rig.cache.clone(), 5, &synced.root_bp(), ReadOptions::demand()).unwrap();
    let again: Vec<u64> = (0..500).map(|_| os.create_object(&tx(3), &spec).unwrap().object().0).collect();
    assert!(again.iter().all(|o| *o < 1032), "numbers were free");
    let synced = rig.sync(&os, 3);
    rig.check(&synced);
    assert_eq!(synced.objects(ObjNum(1)).count(), 1000);
}

/// Goal: a range of objects has those of all objects that lie in it, synced or not.
#[test]
fn objects_of_a_range() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, 0);
    let claim = |txg, object| _ = os.claim_object(&tx(txg), ObjNum(object), &NewObject::new(FILE)).unwrap();
    [1, 3, 31, 32, 33, 64, 200].into_iter().for_each(|object| claim(1, object));
    let synced = rig.sync(&os, 1);
    [2, 34, 63, 199, 300].into_iter().for_each(|object| claim(2, object));
    [3, 33, 64].into_iter().for_each(|object| os.free_object(&tx(2), ObjNum(object)).unwrap());
    for os in [synced, os] {
        let all: Vec<ObjNum> = os.objects(ObjNum(1)).map(|dn| dn.unwrap().object()).collect();
        assert!([7, 9].contains(&all.len()));
        for (first, end) in (1..=70).flat_map(|first| (first..=70).map(move |end| (first, end))).chain([
            (1, 199),
            (199, 200),
            (199, 201),
            (201, 300),
            (250, 301),
            (1, u64::MAX),
        ]) {
            let objects = os.objects(ObjNum(first)).until(ObjNum(end));
            let found: Vec<ObjNum> = objects.map(|dn| dn.unwrap().object()).collect();
            let in_range = |object: &&ObjNum| (first..end).contains(&object.0);
            assert!(all.iter().filter(in_range).eq(&found), "{first} to {end}: {found:?}");
        }
    }
}

/// Goal: the same holds of dnodes with several slots, also for ranges that begin or end inside of
/// one, and for objects that come into the slots of one that was freed.
#[test]
fn objects_of_a_range_of_large_dnodes() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, 0);
    let claim = |txg, object, slots| {
        // Each slot of it begins as the dnode of a file does.
        let bonus = vec![19; usize::from(slots) * 512 - 192];
        let spec = NewObject { slots, ..NewObject::new(FILE).with_bonus(DmuType::SA, bonus) };
        os.claim_object(&tx(txg), ObjNum(object), &spec).unwrap();
    };
    let synced = [(1, 3), (4, 1), (5, 8), (30, 2), (32, 32), (66, 2), (68, 16), (96, 31)];
    synced.into_iter().for_each(|(object, slots)| claim(1, object, slots));
    assert!(os.claim_object(&tx(1), ObjNum(70), &NewObject::new(FILE)).is_err());
    let before = rig.sync(&os, 1);
    rig.check(&before);
    [1, 32, 68].into_iter().for_each(|object| os.free_object(&tx(2), ObjNum(object)).unwrap());
    let new = [(2, 2), (13, 17), (33, 7), (40, 24), (64, 2), (68, 1), (72, 24), (127, 1), (160, 32)];
    new.into_iter().for_each(|(object, slots)| claim(2, object, slots));
    // Where dnodes begin and end, and the numbers beside.
    let edges = synced.iter().chain(&new).flat_map(|(object, slots)| [*object, object + u64::from(*slots)]);
    let edges: BTreeSet<u64> = edges.flat_map(|edge| [edge - 1, edge, edge + 1]).collect();
    let ranges = || edges.iter().flat_map(|first| edges.range(first..).map(move |end| (*first, *end)));
    let check = |os: &Objset, all: &[u64]| {
        for (first, end) in ranges() {
            let objects = os.objects(ObjNum(first)).until(ObjNum(end));
            let found: Vec<u64> = objects.map(|dn| dn.unwrap().object().0).collect();
            let in_range = all.iter().filter(|object| (first..end).contains(object));
            assert!(in_range.eq(&found), "{first} to {end}: {found:?}");
        }
    };
    check(&before, &synced.map(|(object, _)| object));
    let all = [2, 4, 5, 13, 30, 33, 40, 64, 66, 68, 72, 96, 127, 160];
    check(&os, &all);
    let after = rig.sync(&os, 2);
    rig.check(&after);
    check(&after, &all);
}

/// Goal: a tree of dnodes has the shape that a new object set is given, and grows with its objects.
#[test]
fn trees_of_dnodes_grow() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, 0);
    let shape = |objects| DnodesShape { indirect_shift: 12, objects };
    os.shape_dnodes(&tx(1), shape(1 << 32)).unwrap();
    assert_eq!(os.phys().meta_dnode.nlevels, 7);
    os.shape_dnodes(&tx(1), shape(1)).unwrap();
    // Three pointers in the dnode, 32 in each indirect block, and 32 dnodes in a block.
    let mut last = 0;
    for (txg, most, levels) in [(1, 96, 1), (2, 3072, 2), (3, 4000, 3)] {
        while last + 1 < most {
            let spec = NewObject { block_size: 512, ..NewObject::new(FILE) };
            let dn = os.create_object(&tx(txg), &spec).unwrap();
            last = dn.object().0;
            dn.write_at(&tx(txg), 0, &last.to_le_bytes()).unwrap();
        }
        let synced = rig.sync(&os, txg);
        rig.check(&synced);
        assert_eq!(synced.phys().meta_dnode.nlevels, levels, "{last} objects");
        for dn in synced.objects(ObjNum(1)).map(Result::unwrap) {
            let mut word = [0; 8];
            dn.read_at(0, &mut word).unwrap();
            assert_eq!(u64::from_le_bytes(word), dn.object().0);
        }
    }
    assert!(matches!(os.shape_dnodes(&tx(4), shape(1)), Err(Error::DnodesShape { objset: 5 })));
}

/// Goal: a tree of dnodes that can't exist is refused by name, and so is any for an object set with
/// objects, before their txg syncs and after it. Nothing changes then.
#[test]
fn impossible_trees_of_dnodes_are_refused() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, 0);
    let before = os.phys().meta_dnode.clone();
    for (indirect_shift, objects) in
        [(0, 1), (7, 1 << 32), (11, 1), (18, 1), (255, 1), (12, (1 << 48) + 1), (17, u64::MAX)]
    {
        let refused = os.shape_dnodes(&tx(1), DnodesShape { indirect_shift, objects });
        let Err(Error::DnodesTree { objset: 5, indirect_shift: shift, objects: count }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((shift, count), (indirect_shift, objects));
    }
    assert_eq!(os.phys().meta_dnode, before);
    for (indirect_shift, nlevels) in [(12, 10), (17, 6)] {
        os.shape_dnodes(&tx(1), DnodesShape { indirect_shift, objects: 1 << 48 }).unwrap();
        assert_eq!(os.phys().meta_dnode.nlevels, nlevels);
    }
    os.create_object(&tx(1), &NewObject::new(FILE)).unwrap();
    let shape = DnodesShape { indirect_shift: 12, objects: 1 };
    assert!(matches!(os.shape_dnodes(&tx(1), shape), Err(Error::DnodesShape { objset: 5 })));
    assert!(matches!(os.shape_dnodes(&tx(2), shape), Err(Error::DnodesShape { objset: 5 })));
    rig.check(&rig.sync(&os, 1));
    assert!(matches!(os.shape_dnodes(&tx(2), shape), Err(Error::DnodesShape { objset: 5 })));
    assert_eq!(os.phys().meta_dnode.nlevels, 6);
}

/// Goal: a reader that opened a snapshot earlier still reads the same after the live object set
/// changed.
#[test]
fn old_trees_stand() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let dn = os.create_object(&tx(1), &NewObject { block_size: 512, ..NewObject::new(FILE) }).unwrap();
    dn.write_at(&tx(1), 0, &[1; 5000]).unwrap();
    let before = rig.sync(&os, 1);
    dn.write_at(&tx(2), 1000, &[2; 5000]).unwrap();
    rig.sync(&os, 2);
    let mut got = [0; 5000];
    before.dnode(dn.object()).unwrap().read_at(0, &mut got).unwrap();
    assert_eq!(got, [1; 5000]);
    dn.read_at(1000, &mut got).unwrap();
    assert_eq!(got, [2; 5000], "a handle sees what is there now");
}

/// Goal: readers of an object that is read so often that they take no lock see each change, before
/// its sync and after it. The object has one level of blocks, or two.
#[test]
fn changes_show_after_many_reads() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    for blocks in [1u64, 100] {
        let spec = NewObject { block_size: 512, ..NewObject::new(FILE) };
        let dn = os.create_object(&tx(1), &spec).unwrap();
        (0..blocks).for_each(|n| dn.write_at(&tx(1), n * 512, &[1; 512]).unwrap());
    }
    let dnodes: Vec<Dnode> = os.objects(ObjNum(1)).map(Result::unwrap).collect();
    rig.sync(&os, 1);
    let shows = |dn: &Dnode, byte: u8| {
        for _ in 0..40 {
            let mut got = [0; 512];
            dn.read_at(0, &mut got).unwrap();
            assert_eq!(got, [byte; 512]);
        }
    };
    for txg in 2..6u8 {
        for dn in &dnodes {
            let blocks = dn.max_blkid().0;
            shows(dn, txg - 1);
            dn.write_at(&tx(txg.into()), 0, &[txg; 512]).unwrap();
            shows(dn, txg);
            dn.write_at(&tx(txg.into()), (blocks + 1) * 512, &[txg; 512]).unwrap();
            assert_eq!(dn.max_blkid().0, blocks + 1);
        }
        let synced = rig.sync(&os, txg.into());
        dnodes.iter().for_each(|dn| shows(dn, txg));
        rig.check(&synced);
    }
}

/// Goal: a dnode with three pointers has no space for a spill pointer.
#[test]
fn spill_pointers_need_room() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let dn = os.create_object(&tx(1), &NewObject::new(FILE)).unwrap();
    assert_eq!(dn.phys().blkptrs.len(), 3);
    assert!(matches!(dn.set_spill(&tx(1), Some(&[1; 512])), Err(Error::BonusLength { .. })));
    assert!(matches!(dn.set_bonus(&tx(1), DmuType::SA, &[0; 65]), Err(Error::BonusLength { .. })));
    rig.check(&rig.sync(&os, 1));
}

/// Goal: handles from a view of an object set read with the view's options. The object set itself
/// keeps the options that it was opened with.
#[test]
fn a_view_says_how_is_read() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let spec = NewObject::new(DmuType::OBJECT_DIRECTORY);
    let zap = Zap::create(&os, &tx(1), &spec, Normalization::NONE, ZapFlags::default()).unwrap();
    let object = zap.dnode().object();
    let fixed = rig.sync(&os, 1);
    let must = |dn: &Dnode| dn.options().has(IoFlags::MUST_SUCCEED);
    for os in [&os, &fixed] {
        let view = os.with_options(ReadOptions::sync());
        let (plain, dn) = (os.dnode(object).unwrap(), view.dnode(object).unwrap());
        assert!(must(&dn) && must(&dn.reload().unwrap()) && must(&view.meta_dnode()));
        assert!(must(&view.objects(ObjNum(1)).next().unwrap().unwrap()));
        assert!(must(Zap::open(&dn).unwrap().dnode()));
        assert!(!must(&plain) && !must(Zap::open(&plain).unwrap().dnode()));
        assert!(must(Zap::open(&plain).unwrap().with_options(ReadOptions::sync()).dnode()));
    }
    // It is one object set: what is changed through the view is seen without it.
    let view = os.with_options(ReadOptions::sync());
    let made = view.create_object(&tx(2), &NewObject::new(FILE)).unwrap();
    assert!(must(&made) && !must(&os.dnode(made.object()).unwrap()));
}

/// Goal: an intent log header that a newer txg set is not written with an older one, and none is
/// lost.
#[test]
fn headers_of_logs_belong_to_groups() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    os.create_object(&tx(1), &NewObject::new(FILE)).unwrap();
    os.set_zil_header(&tx(1), [1; 192]).unwrap();
    os.create_object(&tx(2), &NewObject::new(FILE)).unwrap();
    os.set_zil_header(&tx(3), [3; 192]).unwrap();
    for (txg, header) in [(1, 1), (2, 1), (3, 3)] {
        assert_eq!(os.phys().zil_header, [3; 192]);
        assert_eq!(rig.sync(&os, txg).phys().zil_header, [header; 192]);
    }
}
