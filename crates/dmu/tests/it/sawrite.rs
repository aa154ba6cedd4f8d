//! Attributes are read back as set, in the bonus buffer or a spill block. Space use is counted by
//! owner.

use crate::rig::{Rig, tx};
use dmu::sa::Sa;
use dmu::zap::Zap;
use dmu::{
    DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, Dnode, Error, NewObject, Objset,
};
use ondisk::objset::{ObjsetFlags, ObjsetKind};
use ondisk::sa::Attr;
use ondisk::zap::PtrTable;
use ondisk::{DmuType, ObjNum};
use proptest::prelude::*;
use std::collections::BTreeMap;

const COUNTED: u64 = ObjsetFlags::USERACCOUNTING_COMPLETE
    | ObjsetFlags::USEROBJACCOUNTING_COMPLETE
    | ObjsetFlags::PROJECTQUOTA_COMPLETE;

fn file(os: &Objset, txg: u64) -> Dnode {
    let spec = NewObject::new(DmuType::PLAIN_FILE_CONTENTS).with_bonus(DmuType::SA, Vec::new());
    os.create_object(&tx(txg), &spec).unwrap()
}

/// Sets the attributes that a new file of OpenZFS has, in their order.
fn begin(sa: &Sa, dn: &Dnode, txg: u64, uid: u64, gid: u64, flags: u64) {
    let w = |v: u64| v.to_le_bytes().to_vec();
    let values = [
        (Attr::Mode, w(0o100_644)),
        (Attr::Size, w(0)),
        (Attr::Gen, w(txg)),
        (Attr::Uid, w(uid)),
        (Attr::Gid, w(gid)),
        (Attr::Parent, w(34)),
        (Attr::Flags, w(flags)),
        (Attr::Atime, vec![1; 16]),
        (Attr::Mtime, vec![2; 16]),
        (Attr::Ctime, vec![3; 16]),
        (Attr::Crtime, vec![4; 16]),
        (Attr::Links, w(1)),
    ];
    let values: Vec<(Attr, &[u8])> = values.iter().map(|(a, v)| (*a, &v[..])).collect();
    sa.replace(dn, &tx(txg), &values).unwrap();
}

const FIXED: [Attr; 4] = [Attr::Size, Attr::Xattr, Attr::Rdev, Attr::Projid];
const VARIABLE: [Attr; 3] = [Attr::DaclAces, Attr::Symlink, Attr::Dxattr];

#[derive(Debug, Clone)]
enum Op {
    Word(usize, u64),
    Bytes(usize, Vec<u8>),
    Remove(usize),
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0usize..4, any::<u64>()).prop_map(|(a, v)| Op::Word(a, v)),
        3 => (0usize..3, prop::collection::vec(any::<u8>(), 1..200)).prop_map(|(a, v)| Op::Bytes(a, v)),
        1 => (0usize..3, prop::collection::vec(any::<u8>(), 200..30_000)).prop_map(|(a, v)| Op::Bytes(a, v)),
        2 => (0usize..7).prop_map(Op::Remove),
        1 => Just(Op::Sync),
    ]
}

fn check(sa: &Sa, dn: &Dnode, model: &BTreeMap<Attr, Vec<u8>>) {
    let dn = dn.reload().unwrap();
    let attrs = sa.attrs(&dn).unwrap();
    for a in FIXED.iter().chain(&VARIABLE) {
        let got = attrs.get(*a).unwrap().map(|v| v.into_owned());
        assert_eq!(got.as_ref(), model.get(a), "{}", a.name());
    }
    assert_eq!(attrs.u64(Attr::Uid).unwrap(), Some(1000));
}

/// How an object set has its layouts.
#[derive(Clone, Copy)]
enum Tables {
    /// As OpenZFS makes them.
    Usual,
    /// In blocks of 1 KiB, as in volumes of AFS.
    Small,
}

impl Tables {
    fn create(self, os: &Objset) -> (Sa, ObjNum) {
        let first = match self {
            Tables::Usual => None,
            Tables::Small => Some(ObjNum(2)),
        };
        Sa::create(os, &tx(1), first).unwrap()
    }
}

/// All orders of all choices of these attributes: 1,957.
fn orders() -> Vec<Vec<Attr>> {
    let more = [Attr::Xattr, Attr::Rdev, Attr::Projid, Attr::DaclAces, Attr::Symlink, Attr::Dxattr];
    let mut all: Vec<Vec<Attr>> = vec![Vec::new()];
    let mut from = 0;
    while from < all.len() {
        let next = more.iter().filter(|attr| !all[from].contains(attr));
        let longer: Vec<Vec<Attr>> = next.map(|attr| [&all[from][..], &[*attr][..]].concat()).collect();
        all.extend(longer);
        from += 1;
    }
    all
}

/// What the file of this number has for an attribute.
fn value_of(attr: Attr, number: usize) -> Vec<u8> {
    let word = (number as u64) << 16 | attr.name().len() as u64;
    if FIXED.contains(&attr) { word.to_le_bytes().to_vec() } else { vec![number as u8; 1 + number % 9] }
}

/// Files that each have a layout of their own, without a spill block.
fn with_layouts(os: &Objset, sa: &Sa, count: usize) -> Vec<(ObjNum, Vec<Attr>)> {
    let spec = NewObject { slots: 2, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let spec = spec.with_bonus(DmuType::SA, Vec::new());
    let file = |(number, order): (usize, Vec<Attr>)| {
        let dn = os.create_object(&tx(1), &spec).unwrap();
        begin(sa, &dn, 1, 1000, 100, 0);
        for attr in &order {
            sa.set(&dn, &tx(1), &[(*attr, Some(&value_of(*attr, number)))]).unwrap();
        }
        (dn.object(), order)
    };
    orders().into_iter().take(count).enumerate().map(file).collect()
}

fn check_layouts(os: &Objset, sa: &Sa, files: &[(ObjNum, Vec<Attr>)]) {
    for (number, (object, order)) in files.iter().enumerate() {
        let attrs = sa.attrs(&os.dnode(*object).unwrap()).unwrap();
        for attr in FIXED[1..].iter().chain(&VARIABLE) {
            let expected = order.contains(attr).then(|| value_of(*attr, number));
            let found = attrs.get(*attr).unwrap().map(|v| v.into_owned());
            assert_eq!(found, expected, "{object} {}", attr.name());
        }
        let found: Vec<Attr> = attrs.in_bonus().map(|(attr, _)| attr).skip(12).collect();
        assert_eq!(&found, order);
    }
}

/// The table of layouts of an object set.
fn layouts(os: &Objset, master: ObjNum) -> Zap {
    let master = Zap::open(&os.dnode(master).unwrap()).unwrap();
    let object = master.lookup_u64(b"LAYOUTS").unwrap().unwrap();
    Zap::open(&os.dnode(ObjNum(object)).unwrap()).unwrap()
}

/// The attributes of an object follow a model, in an object set that has this many layouts before.
fn follow_a_model(ops: Vec<Op>, slots: u8, tables: Tables, before: usize) {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, COUNTED);
    let (sa, master) = tables.create(&os);
    let files = with_layouts(&os, &sa, before);
    let spec = NewObject { slots, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
    let dn = os.create_object(&tx(1), &spec.with_bonus(DmuType::SA, Vec::new())).unwrap();
    begin(&sa, &dn, 1, 1000, 100, 0);
    let mut model = BTreeMap::from([(Attr::Size, vec![0; 8])]);
    let mut txg = 1;
    for op in ops.into_iter().chain([Op::Sync]) {
        match op {
            Op::Word(a, v) => {
                let raw = v.to_le_bytes();
                sa.set(&dn, &tx(txg), &[(FIXED[a], Some(&raw))]).unwrap();
                model.insert(FIXED[a], raw.to_vec());
            }
            Op::Bytes(a, v) => {
                sa.set(&dn, &tx(txg), &[(VARIABLE[a], Some(&v))]).unwrap();
                model.insert(VARIABLE[a], v);
            }
            Op::Remove(a) => {
                let a = *FIXED.iter().chain(&VARIABLE).nth(a).unwrap();
                sa.set(&dn, &tx(txg), &[(a, None)]).unwrap();
                model.remove(&a);
            }
            Op::Sync => {
                let fixed = rig.sync(&os, txg);
                rig.check(&fixed);
                let again = Sa::load(&fixed, Some(master)).unwrap();
                check(&again, &fixed.dnode(dn.object()).unwrap(), &model);
                check_layouts(&fixed, &again, &files);
                txg += 1;
            }
        }
        check(&sa, &dn, &model);
    }
    if let Tables::Small = tables {
        let table = layouts(&os, master);
        let header = table.fat_header().unwrap();
        assert_eq!(table.dnode().block_size(), 1024);
        assert!(header.num_entries >= before as u64 && header.num_leafs > 1, "{header:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Goal: attributes that are added, resized and removed move between bonus buffer and spill
    /// block. They are right after syncs, also for a reader that loads the layouts anew.
    #[test]
    fn attributes_follow_a_model(ops in prop::collection::vec(op(), 1..40), slots in 1u8..4) {
        follow_a_model(ops, slots, Tables::Usual, 0);
    }

    /// Goal: so they are where layouts have blocks of 1 KiB, of which a leaf takes nine. Leaves
    /// split, and all files keep what they have.
    #[test]
    fn attributes_follow_a_model_in_small_tables(
        ops in prop::collection::vec(op(), 1..40),
        slots in 1u8..4,
        before in 10usize..50,
    ) {
        follow_a_model(ops, slots, Tables::Small, before);
    }
}

/// Goal: a table of layouts in blocks of 1 KiB also grows its table of pointers, from the header
/// into blocks of its own, until nearly all numbers of layouts are taken. A reader that loads all
/// layouts anew finds each.
#[test]
fn small_tables_grow() {
    const COUNT: usize = 1000;
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, COUNTED);
    let (sa, master) = Tables::Small.create(&os);
    let files = with_layouts(&os, &sa, COUNT);
    assert_eq!(files.len(), COUNT);
    let fixed = rig.sync(&os, 1);
    rig.check(&fixed);
    check_layouts(&fixed, &Sa::load(&fixed, Some(master)).unwrap(), &files);
    let table = layouts(&fixed, master);
    let header = table.fat_header().unwrap();
    assert!(header.num_leafs > 100 && header.num_entries == COUNT as u64, "{header:?}");
    assert!(matches!(header.table, PtrTable::External { blocks: 2.., .. }), "{header:?}");
    assert_eq!(table.entries().count(), COUNT);
}

/// Goal: attributes that exceed dnode and spill block are refused, and the old ones stay.
#[test]
fn too_much_is_refused() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, COUNTED);
    let (sa, _) = Sa::create(&os, &tx(1), None).unwrap();
    let dn = file(&os, 1);
    begin(&sa, &dn, 1, 1000, 100, 0);
    let big = vec![7; 65_000];
    sa.set(&dn, &tx(1), &[(Attr::Dxattr, Some(&big)), (Attr::Symlink, Some(&big))]).unwrap();
    let r = sa.set(&dn, &tx(1), &[(Attr::DaclAces, Some(&big))]);
    assert!(matches!(r, Err(Error::Attributes { .. })));
    let dn = dn.reload().unwrap();
    assert_eq!(sa.attrs(&dn).unwrap().get(Attr::Symlink).unwrap().unwrap(), &big[..]);
    rig.check(&rig.sync(&os, 1));
}

/// Goal: space and number of files are counted by owner, group and project, through creation,
/// writes, change of owner and removal.
#[test]
fn files_are_counted() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, COUNTED);
    let (sa, _) = Sa::create(&os, &tx(1), None).unwrap();
    let files: Vec<Dnode> = (0..10).map(|_| file(&os, 1)).collect();
    for (i, dn) in files.iter().enumerate() {
        begin(&sa, dn, 1, 1000 + i as u64 % 2, 100, 0);
        let noise: Vec<u8> = (0..3000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        dn.set_block_size(&tx(1), 4096).unwrap();
        dn.write_at(&tx(1), 0, &noise).unwrap();
    }
    let counts = |os: &Objset| {
        let table = |o| {
            let zap = Zap::open(&os.dnode(o).unwrap()).unwrap();
            let all = zap.entries().map(|e| e.unwrap());
            all.map(|e| (String::from_utf8(e.name().to_vec()).unwrap(), e.value.as_u64().unwrap()))
                .collect::<BTreeMap<_, _>>()
        };
        [DMU_USERUSED_OBJECT, DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT].map(table)
    };
    let map =
        |all: &[(&str, u64)]| all.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect::<BTreeMap<_, _>>();
    let synced = rig.sync(&os, 1);
    rig.check(&synced);
    // A dnode counts for 512 bytes. The noise takes seven of eight sectors in each block.
    let each = 512 + synced.dnode(files[0].object()).unwrap().used_bytes();
    let want = [
        map(&[("3e8", 5 * each), ("3e9", 5 * each), ("obj-3e8", 5), ("obj-3e9", 5)]),
        map(&[("64", 10 * each), ("obj-64", 10)]),
        map(&[("0", 10 * each), ("obj-0", 10)]),
    ];
    assert_eq!(counts(&synced), want);
    // One file gets another owner and a project, one is emptied, and the other files of its owner
    // are removed.
    let word = |v: u64| v.to_le_bytes();
    sa.set(&files[0], &tx(2), &[(Attr::Uid, Some(&word(5))), (Attr::Gid, Some(&word(6)))]).unwrap();
    begin(&sa, &files[2], 2, 1000, 100, ondisk::znode::Pflags::PROJID);
    sa.set(&files[2], &tx(2), &[(Attr::Projid, Some(&word(9)))]).unwrap();
    files[1].free_range(&tx(2), 0, u64::MAX).unwrap();
    for dn in &files[3..] {
        os.free_object(&tx(2), dn.object()).unwrap();
    }
    let synced = rig.sync(&os, 2);
    rig.check(&synced);
    let want = [
        map(&[("3e8", each), ("3e9", 512), ("5", each), ("obj-3e8", 1), ("obj-3e9", 1), ("obj-5", 1)]),
        map(&[("64", each + 512), ("6", each), ("obj-64", 2), ("obj-6", 1)]),
        map(&[("0", each + 512), ("9", each), ("obj-0", 2), ("obj-9", 1)]),
    ];
    assert_eq!(counts(&synced), want);
}

/// Goal: a sync goes on with owners whose entries collide, also when it counts anew. Those that
/// don't fit are not counted, and leave nothing when their files are removed.
#[test]
fn owners_that_collide() {
    let rig = Rig::new();
    let os = rig.create(ObjsetKind::Zfs, COUNTED);
    let (sa, _) = Sa::create(&os, &tx(1), None).unwrap();
    let mut files = Vec::new();
    for name in testkit::colliding("1", 28, 300) {
        let dn = file(&os, 1);
        begin(&sa, &dn, 1, u64::from_str_radix(&name, 16).unwrap(), 100, 0);
        files.push(dn);
    }
    let users = |os: &Objset| {
        let zap = Zap::open(&os.dnode(DMU_USERUSED_OBJECT).unwrap()).unwrap();
        let values: Vec<_> = zap.entries().map(|e| e.unwrap().value.as_u64().unwrap()).collect();
        assert!(values.iter().all(|n| *n <= 512), "{values:?}");
        values.len()
    };
    let counted = 2 * 212;
    let synced = rig.sync(&os, 1);
    assert_eq!(users(&synced), counted);
    os.begin_recount(&tx(2), ObjsetFlags(COUNTED)).unwrap();
    for dn in &files {
        dn.recount(&tx(2)).unwrap();
    }
    os.end_recount(&tx(2)).unwrap();
    let synced = rig.sync(&os, 2);
    assert_eq!(users(&synced), counted);
    for dn in files {
        os.free_object(&tx(3), dn.object()).unwrap();
    }
    let synced = rig.sync(&os, 3);
    rig.check(&synced);
    assert_eq!(users(&synced), 0);
}
