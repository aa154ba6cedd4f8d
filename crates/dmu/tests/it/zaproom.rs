//! ZAPs with names that collide: they stay small, refuse what doesn't fit, and say so before.

use crate::rig::{Rig, tx};
use dmu::zap::{Add, Normalization, Value, Zap, new_has_room};
use dmu::{Error, NewObject, Objset};
use ondisk::DmuType;
use ondisk::objset::ObjsetKind;
use ondisk::zap::{HashBits, ZapFlags, hash_bytes};
use testkit::colliding;

fn new(os: &Objset, flags: ZapFlags) -> Zap {
    Zap::create(os, &tx(1), &NewObject::new(DmuType::DSL_PROPS), Normalization::NONE, flags).unwrap()
}

/// Adds names until one is refused, and returns how many were added.
fn fill(zap: &Zap, names: &[String], value: &Value) -> usize {
    for (i, name) in names.iter().enumerate() {
        match zap.add(&tx(1), name.as_bytes(), value) {
            Ok(()) => {}
            Err(Error::ZapFull { .. }) => return i,
            Err(e) => panic!("{e}"),
        }
    }
    names.len()
}

fn add(name: &str, value_len: usize) -> Add<'_> {
    Add { name: name.as_bytes(), value_len }
}

/// Goal: the names of the tests collide under each salt, in exactly the wanted bits.
#[test]
fn names_that_collide() {
    for equal in [16, 20, 28] {
        let names = colliding("x:", equal, 300);
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 300);
        for salt in [1, 0xdead_beef_dead_beef] {
            let hash = |n: &String| hash_bytes(salt, n.as_bytes(), HashBits::Bits28);
            let differ = names.iter().fold(0, |d, n| d | (hash(n) ^ hash(&names[0])));
            assert_eq!(differ.leading_zeros(), if equal == 28 { 64 } else { equal });
        }
    }
}

/// Goal: names that collide fill one leaf at most. Then they are refused, the ZAP stays as it was,
/// and takes other names.
#[test]
fn a_leaf_of_names_that_collide() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let big = Value::bytes(&[7; 8000]);
    for (equal, value, most) in
        [(28, Value::from(1), 212), (20, Value::from(1), 212), (28, big.clone(), 1), (20, big, 1)]
    {
        let zap = new(&os, ZapFlags::default());
        let names = colliding("x:", equal, 400);
        assert_eq!(fill(&zap, &names, &value), most, "{equal} bits, {} integers", value.len());
        let stats = zap.fat_stats().unwrap().unwrap();
        assert!(stats.table_blocks == 0 && stats.leafs < 3, "{stats:?}");
        assert_eq!(zap.count().unwrap(), most as u64);
        assert!(names[..most].iter().all(|n| zap.lookup(n.as_bytes()).unwrap().as_ref() == Some(&value)));
        for n in 0..300 {
            zap.add(&tx(1), format!("other {n}").as_bytes(), &Value::from(n)).unwrap();
        }
        zap.remove(&tx(1), names[0].as_bytes()).unwrap();
        zap.add(&tx(1), names[most].as_bytes(), &value).unwrap();
    }
    rig.check(&rig.sync(&os, 1));
}

/// Goal: a table grows no more than its entries need, also if names are alike in fewer bits than
/// it may have.
#[test]
fn the_table_of_names_that_are_alike() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let zap = new(&os, ZapFlags::default());
    let names = colliding("x:", 16, 400);
    assert_eq!(fill(&zap, &names, &Value::bytes(b"fat")), 400);
    assert_eq!(zap.fat_header().unwrap().table_shift, 17);
    rig.check(&rig.sync(&os, 1));
}

/// Goal: a micro ZAP that can't become a fat one refuses what it has no slot for, and keeps its
/// entries.
#[test]
fn micro_zaps() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let zap = new(&os, ZapFlags::default());
    let names = colliding(&"x".repeat(34), 28, 300);
    assert_eq!(names[0].len(), 49);
    assert_eq!(fill(&zap, &names, &Value::from(1)), 127);
    assert!(zap.is_micro());
    assert_eq!(zap.count().unwrap(), 127);
    let long = [b'y'; 100];
    zap.add(&tx(1), &long, &Value::from(2)).unwrap();
    assert!(!zap.is_micro());
    assert!(names[..127].iter().all(|n| zap.lookup(n.as_bytes()).unwrap().is_some()));
    rig.check(&rig.sync(&os, 1));
}

/// Goal: what has room is added. What hasn't fits into three quarters of a leaf no more.
#[test]
fn room_says_what_can_be_added() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let names = colliding("x:", 28, 400);
    for flags in [ZapFlags::default(), ZapFlags::HASHES_48] {
        let zap = new(&os, flags);
        let mut added = 0;
        while zap.has_room(&[add(&names[added], 8)]).unwrap() {
            zap.add(&tx(1), names[added].as_bytes(), &Value::from(1)).unwrap();
            added += 1;
        }
        assert!((95..=159).contains(&added), "{added}");
        assert!(zap.has_room(&[add(&names[0], 8), add("other", 8000)]).unwrap());
        // The rest is for what a sync adds itself.
        zap.add(&tx(1), names[added].as_bytes(), &Value::from(1)).unwrap();
        assert!(zap.has_room(&[add("other", 8)]).unwrap() && !zap.has_room(&[add(&names[399], 8)]).unwrap());
        assert!(zap.can_add(&[add(&names[399], 8)]).unwrap());
    }
    let zap = new(&os, ZapFlags::default());
    let two = [add(&names[0], 8000), add(&names[1], 8000)];
    assert!(zap.has_room(&two[..1]).unwrap() && !zap.has_room(&two).unwrap());
    assert!(new_has_room(&two[..1]) && !new_has_room(&two));
    zap.add(&tx(1), names[0].as_bytes(), &Value::bytes(&[7; 8000])).unwrap();
    assert!(!zap.has_room(&two[1..]).unwrap());
    // A value may become another.
    assert!(zap.has_room(&two[..1]).unwrap() && zap.has_room(&[two[0].clone(), two[0].clone()]).unwrap());
    assert!(!zap.has_room(&[add(&"x".repeat(256), 8)]).unwrap() && !zap.has_room(&[add("x", 8193)]).unwrap());
}

/// Goal: names of real users always have room, at random and in series.
#[test]
fn names_of_real_users() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Other, 0);
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let letter = |n: u64| char::from(b'a' + (n % 26) as u8);
    let long: Vec<String> = (0..10_000).map(|_| (0..200).map(|_| letter(random())).collect()).collect();
    let series: Vec<Vec<String>> = vec![
        (0..20_000).map(|n| format!("backup-2026-{:02}-{:02}-{n:06}", n % 12, n % 31)).collect(),
        (0..20_000).map(|n| format!("IMG_{n:08}.jpeg")).collect(),
        (0..20_000).map(|n| format!("{n:x}")).collect(),
        (0..5000).map(|n| format!("com.example:property-{n}")).collect(),
        long,
    ];
    for names in series {
        let zap = new(&os, ZapFlags::default());
        let value = Value::bytes(&[7; 60]);
        let mut refused = 0;
        for name in &names {
            refused += usize::from(!zap.has_room(&[Add::new(name.as_bytes(), &value)]).unwrap());
            zap.add(&tx(1), name.as_bytes(), &value).unwrap();
        }
        assert_eq!(refused, 0, "{}", names[0]);
        let h = zap.fat_header().unwrap();
        assert!(1 << h.table_shift <= 2 * h.num_entries.max(512), "{h:?}");
        let all: Vec<_> = names.iter().map(|n| Add::new(n.as_bytes(), &value)).collect();
        assert!(new_has_room(&all));
    }
}
