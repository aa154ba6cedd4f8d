//! ZAPs hold the entries put into them, through growth, splits and syncs. The reader for OpenZFS's
//! ZAPs checks this.

use crate::rig::{Rig, tx};
use dmu::zap::{Key, Match, Normalization, Value, Zap};
use dmu::{Error, NewObject, Objset};
use ondisk::DmuType;
use ondisk::objset::ObjsetKind;
use ondisk::zap::ZapFlags;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ZAP: DmuType = DmuType::MASTER_NODE;
type Model = BTreeMap<Vec<u8>, Value>;

/// Checks that a ZAP lists and finds exactly the entries of the model, and resumes at each cursor
/// position.
fn check(zap: &Zap, model: &Model) {
    assert_eq!(zap.count().unwrap(), model.len() as u64);
    let all: Vec<_> = zap.entries().collect::<Result<_, _>>().unwrap();
    let found: Model = all.iter().map(|e| (e.name().to_vec(), e.value.clone())).collect();
    assert_eq!(found.len(), all.len(), "an entry was listed twice");
    assert!(&found == model, "the entries are not those of the model");
    for (i, e) in all.iter().enumerate() {
        assert_eq!(zap.lookup(e.name()).unwrap().as_ref(), Some(&e.value));
        if i % 53 == 0 {
            assert_eq!(zap.cursor_at(e.next).next_entry().unwrap().as_ref(), all.get(i + 1));
        }
    }
    assert_eq!(zap.lookup(b"nobody has this name").unwrap(), None);
}

fn synced(rig: &Rig, os: &Objset, txg: u64, zap: &Zap, model: &Model) {
    let fixed = rig.sync(os, txg);
    rig.check(&fixed);
    check(&Zap::open(&fixed.dnode(zap.dnode().object()).unwrap()).unwrap(), model);
}

#[derive(Debug, Clone)]
enum Op {
    Add(Vec<u8>, Value),
    Update(Vec<u8>, Value),
    Remove(Vec<u8>),
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    let name = prop_oneof![
        6 => (0u32..400).prop_map(|n| format!("{n:x}").into_bytes()),
        1 => (0u32..40, 45usize..60).prop_map(|(n, len)| format!("{n:0len$}").into_bytes()),
    ];
    // Some runs stay micro ZAPs for long.
    let value = prop_oneof![
        30 => any::<u64>().prop_map(Value::from),
        1 => prop::collection::vec(any::<u8>(), 1..3000).prop_map(|b| Value::bytes(&b)),
        1 => prop::collection::vec(any::<u64>(), 2..40).prop_map(|w| Value::integers(8, &w)),
        1 => prop::collection::vec(0u64..1 << 16, 1..40).prop_map(|w| Value::integers(2, &w)),
    ];
    prop_oneof![
        8 => (name.clone(), value.clone()).prop_map(|(n, v)| Op::Add(n, v)),
        4 => (name.clone(), value).prop_map(|(n, v)| Op::Update(n, v)),
        4 => name.prop_map(Op::Remove),
        1 => Just(Op::Sync),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Goal: add, update and remove change a ZAP as they change a map.
    #[test]
    fn zaps_follow_a_model(ops in prop::collection::vec(op(), 1..700), fat in any::<bool>()) {
        let rig = Rig::new();
        let os = rig.create(ObjsetKind::Other, 0);
        let flags = if fat { ZapFlags::HASHES_48 } else { ZapFlags::default() };
        let spec = NewObject { block_size: if fat { 2048 } else { 0 }, ..NewObject::new(ZAP) };
        let zap = Zap::create(&os, &tx(1), &spec, Normalization::NONE, flags).unwrap();
        let (mut model, mut txg) = (Model::new(), 1);
        for op in ops {
            match op {
                Op::Add(n, v) => match zap.add(&tx(txg), &n, &v) {
                    Ok(()) => prop_assert!(model.insert(n, v).is_none()),
                    Err(Error::EntryExists { .. }) => prop_assert!(model.contains_key(&n)),
                    // A block of 2 KiB is too small.
                    Err(Error::EntryValue { .. }) => prop_assert!(fat && v.len() > 1000),
                    Err(e) => panic!("{e}"),
                },
                Op::Update(n, v) => match zap.update(&tx(txg), &n, &v) {
                    Ok(()) => drop(model.insert(n, v)),
                    Err(Error::EntryValue { .. } | Error::ZapFull { .. }) => prop_assert!(fat && v.len() > 1000),
                    Err(e) => panic!("{e}"),
                },
                Op::Remove(n) => match zap.remove(&tx(txg), &n) {
                    Ok(()) => prop_assert!(model.remove(&n).is_some()),
                    Err(Error::NoEntry { .. }) => prop_assert!(!model.contains_key(&n)),
                    Err(e) => panic!("{e}"),
                },
                Op::Sync => {
                    synced(&rig, &os, txg, &zap, &model);
                    txg += 1;
                }
            }
        }
        check(&zap, &model);
        synced(&rig, &os, txg, &zap, &model);
    }
}

/// Goal: a directory grows from empty to a hundred thousand names over several txgs, through a
/// micro ZAP and leaf splits.
///
/// One with small blocks grows through a pointer table that leaves the header and doubles. Then
/// most names are removed.
#[test]
fn a_hundred_thousand_names() {
    grow(0, ZapFlags::default());
    grow(4096, ZapFlags::HASHES_48);
}

fn grow(block_size: u32, flags: ZapFlags) {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let spec = NewObject { block_size, ..NewObject::new(ZAP) };
    let zap = Zap::create(&os, &tx(1), &spec, Normalization::NONE, flags).unwrap();
    let mut model = Model::new();
    for txg in 1..=5u64 {
        for n in 0..20_000 {
            let name = format!("file-{txg}-{n}").into_bytes();
            let value = Value::from(txg << 32 | n);
            zap.add(&tx(txg), &name, &value).unwrap();
            model.insert(name, value);
        }
        synced(&rig, &os, txg, &zap, &model);
    }
    let stats = zap.fat_stats().unwrap().unwrap();
    assert_eq!(stats.entries, 100_000);
    assert!(stats.leafs > 500 && (block_size == 0 || stats.table_blocks > 4), "{stats:?}");
    let gone: Vec<_> = model.keys().filter(|n| !n.ends_with(b"7")).cloned().collect();
    for name in gone {
        zap.remove(&tx(6), &name).unwrap();
        model.remove(&name);
    }
    synced(&rig, &os, 6, &zap, &model);
}

/// Goal: keys of words work, hashed ones and those that are their own hash, with values of several
/// words.
#[test]
fn keys_of_words() {
    for flags in [ZapFlags::WORDS, ZapFlags::PRE_HASHED_WORDS] {
        let rig = Rig::new();
        let os = rig.create(ObjsetKind::Meta, 0);
        let spec = NewObject { block_size: 4096, ..NewObject::new(ZAP) };
        let zap = Zap::create(&os, &tx(1), &spec, Normalization::NONE, flags).unwrap();
        let key = |n: u64| [n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n, 7];
        for n in 0..20_000u64 {
            zap.add_words(&tx(1), &key(n), &Value::integers(8, &[n, n + 1, n + 2])).unwrap();
        }
        for n in (0..20_000).step_by(3) {
            zap.remove_words(&tx(1), &key(n)).unwrap();
        }
        zap.update_words(&tx(1), &key(1), &Value::bytes(b"other")).unwrap();
        assert!(matches!(zap.remove_words(&tx(1), &key(0)), Err(Error::NoEntry { .. })));
        assert!(matches!(zap.add(&tx(1), b"name", &Value::from(1)), Err(Error::EntryName { .. })));
        let fixed = rig.sync(&os, 1);
        rig.check(&fixed);
        let fixed = Zap::open(&fixed.dnode(zap.dnode().object()).unwrap()).unwrap();
        assert_eq!(
            fixed.entries().map(|e| e.unwrap()).filter(|e| matches!(e.key, Key::Words(_))).count(),
            13_333
        );
        assert_eq!(fixed.lookup_words(&key(1)).unwrap(), Some(Value::bytes(b"other")));
        for n in 2..20_000u64 {
            let want = (n % 3 != 0).then(|| Value::integers(8, &[n, n + 1, n + 2]));
            assert_eq!(fixed.lookup_words(&key(n)).unwrap(), want);
        }
    }
}

/// Goal: names that are equal after normalization get differentiators of their own, in micro and
/// fat ZAPs. Exact and normalized lookups find and remove them.
#[test]
fn normalized_names() {
    let norm = Normalization::from_disk(0x12).unwrap();
    for many in [0, 3000] {
        let rig = Rig::new();
        let os = rig.create(ObjsetKind::Zfs, 0);
        let zap = Zap::create(&os, &tx(1), &NewObject::new(ZAP), norm, ZapFlags::default()).unwrap();
        for (i, name) in ["Readme", "README", "readme", "ReadMe"].iter().enumerate() {
            zap.add(&tx(1), name.as_bytes(), &Value::from(i as u64)).unwrap();
        }
        zap.remove(&tx(1), b"README").unwrap();
        for n in 0..many {
            zap.add(&tx(1), format!("n{n}").as_bytes(), &Value::from(n)).unwrap();
        }
        zap.add(&tx(1), b"rEADME", &Value::from(9)).unwrap();
        assert_eq!(zap.is_micro(), many == 0);
        let fixed = rig.sync(&os, 1);
        let fixed = Zap::open(&fixed.dnode(zap.dnode().object()).unwrap()).unwrap();
        for z in [&zap, &fixed] {
            assert_eq!(z.lookup_matching(b"README", Match::Normalized).unwrap().unwrap().0, b"Readme");
            // The next name got the freed differentiator.
            let order: Vec<_> = z.entries().map(|e| e.unwrap().key).collect();
            let order: Vec<_> = order.iter().filter(|k| k.name().unwrap().len() == 6).collect();
            let want: Vec<_> = ["Readme", "rEADME", "readme", "ReadMe"].map(|n| Key::Name(n.into())).to_vec();
            assert_eq!(order, want.iter().collect::<Vec<_>>());
        }
        zap.remove_matching(&tx(2), b"rEaDmE", Match::Normalized).unwrap();
        assert_eq!(zap.lookup(b"Readme").unwrap(), None);
        assert_eq!(zap.count().unwrap(), many + 3);
        rig.check(&rig.sync(&os, 2));
    }
}

/// Goal: a cursor over a changing ZAP lists each name that stays once, and no name that was removed
/// before the cursor reached it.
#[test]
fn cursors_of_changing_zaps() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    for count in [100u64, 5000] {
        let zap = Zap::create_kind(&os, &tx(1), ZAP).unwrap();
        for n in 0..count {
            zap.add(&tx(1), format!("{n}").as_bytes(), &Value::from(n)).unwrap();
        }
        // Remove each name as it is listed.
        let mut cursor = zap.cursor();
        let mut seen = 0;
        while let Some(e) = cursor.next_entry().unwrap() {
            zap.remove(&tx(1), e.name()).unwrap();
            seen += 1;
        }
        assert_eq!((seen, zap.count().unwrap()), (count, 0));
    }
}

/// Goal: names and values that no ZAP can hold are refused, and counters that reach zero are
/// removed.
#[test]
fn refusals_and_counters() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let zap = Zap::create_kind(&os, &tx(1), ZAP).unwrap();
    for name in [&b""[..], b"a\0b", &[b'x'; 256]] {
        assert!(matches!(zap.add(&tx(1), name, &Value::from(1)), Err(Error::EntryName { .. })));
    }
    assert!(matches!(zap.add(&tx(1), b"v", &Value::bytes(&[0; 8193])), Err(Error::EntryValue { .. })));
    assert!(zap.is_micro());
    zap.increment(&tx(1), b"c", 5).unwrap();
    assert_eq!(zap.lookup_u64(b"c").unwrap(), Some(5));
    zap.increment(&tx(1), b"c", -7).unwrap();
    assert_eq!(zap.lookup_u64(b"c").unwrap(), None, "a value stays at 0 or above");
    zap.increment(&tx(1), b"c", -2).unwrap();
    assert_eq!(zap.lookup_u64(b"c").unwrap(), None);
    let fixed = rig.sync(&os, 1);
    let fixed = Zap::open(&fixed.dnode(zap.dnode().object()).unwrap()).unwrap();
    assert!(matches!(fixed.add(&tx(2), b"a", &Value::from(1)), Err(Error::Fixed { .. })));
}
