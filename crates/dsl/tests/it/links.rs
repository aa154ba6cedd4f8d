//! Walks along links of directories and clones that form cycles.

use crate::world::{Empty, World, create, snapshot};
use dmu::Tx;
use dmu::zap::Value;
use dsl::ops::clone::Clone;
use dsl::ops::destroy::DestroySnapshots;
use dsl::ops::promote::Promote;
use dsl::ops::rename::Rename;
use dsl::{Dsl, Error, SyncTask};
use ondisk::dsl::DslDirPhys;
use ondisk::{DmuType, ObjNum};

/// The object number and the on-disk form of the directory with this name.
fn dir(dsl: &Dsl, name: &str) -> (ObjNum, DslDirPhys) {
    let dir = dsl.dir(name).unwrap();
    (dir.object(), *dir.phys())
}

fn store(dsl: &Dsl, tx: &Tx, object: ObjNum, phys: &DslDirPhys) {
    let dn = dsl.mos().objset().dnode(object).unwrap();
    dn.set_bonus(tx, DmuType::DSL_DIR, &phys.encode()).unwrap();
}

fn add(dsl: &Dsl, tx: &Tx, map: u64, name: &str, object: u64) {
    let zap = dsl.mos().zap(ObjNum(map)).unwrap();
    zap.update(tx, name.as_bytes(), &Value::integers(8, &[object])).unwrap();
}

/// Runs a task on a damaged pool. It must detect the damage before it changes anything.
fn finds_damage(w: &mut World, task: &mut dyn SyncTask) {
    match w.run_damaged(&mut [task]).remove(0) {
        Err(Error::Corrupt { .. }) => {}
        r => panic!("{r:?}"),
    }
}

/// Goal: a directory that lists itself, or that is listed by a directory other than its parent, is
/// reported as damage. No walk is endless.
#[test]
fn children_that_lead_back_are_damage() {
    let mut w = World::open("single-lz4");
    for name in ["/a", "/a/b", "/c"] {
        w.ok(&mut create(w.name(name), Empty));
    }
    let (a, b, c) = (w.name("/a"), w.name("/a/b"), w.name("/c"));
    w.damage(|dsl, tx| {
        let ((a, pa), (b, pb), (_, pc)) = (dir(dsl, &a), dir(dsl, &b), dir(dsl, &c));
        // Each directory is the other's parent, and both agree. A third directory lists one of
        // them.
        add(dsl, tx, pb.child_dir_zapobj, "a", a.0);
        add(dsl, tx, pc.child_dir_zapobj, "b", b.0);
        store(dsl, tx, a, &DslDirPhys { parent_obj: b.0, ..pa });
    });
    for old in [&a, &format!("{c}/b")] {
        let new = format!("{}/longer-than-before", w.dsl.pool_name());
        finds_damage(&mut w, &mut Rename { old: old.clone(), new, enforce_limits: true });
    }
    let new = w.name("/longer-than-before");
    w.damage(|dsl, tx| {
        let (c, pc) = dir(dsl, &c);
        add(dsl, tx, pc.child_dir_zapobj, "c", c.0);
    });
    finds_damage(&mut w, &mut Rename { old: c, new, enforce_limits: true });
}

/// Goal: clones that are each other's origin are reported as damage, and do not leave a snapshot
/// half destroyed.
#[test]
fn clones_that_lead_back_are_damage() {
    let mut w = World::open("single-lz4");
    let (a, b) = (w.name("/acl-dir"), w.name("/b"));
    w.ok(&mut snapshot(&[format!("{a}@1")]));
    w.ok(&mut snapshot(&[format!("{a}@2")]));
    let clone = Clone { name: b.clone(), origin: format!("{a}@2"), props: Vec::new(), enforce_limits: true };
    w.ok(&mut { clone });
    w.ok(&mut snapshot(&[format!("{b}@3")]));
    w.damage(|dsl, tx| {
        let ((a, pa), (b, pb)) = (dir(dsl, &a), dir(dsl, &b));
        // The first is a clone of the second, which is a clone of the first.
        add(dsl, tx, pa.clones, "f00", pa.head_dataset_obj);
        store(dsl, tx, a, &DslDirPhys { origin_obj: pb.origin_obj, ..pa });
        let _ = b;
    });
    finds_damage(&mut w, &mut DestroySnapshots { names: vec![format!("{a}@1")], defer: false });
}

/// Goal: after a promotion a file system may be a clone of its own child. It can be renamed and
/// promoted back.
#[test]
fn a_clone_of_its_own_child_is_legal() {
    let mut w = World::open("single-lz4");
    let p = w.name("/acl-dir");
    let (child, origin) = (format!("{p}/cl"), format!("{p}@new"));
    w.ok(&mut snapshot(std::slice::from_ref(&origin)));
    w.ok(&mut Clone { name: child.clone(), origin, props: Vec::new(), enforce_limits: true });
    for _ in 0..3 {
        w.ok(&mut Promote { name: child.clone(), enforce_limits: true });
        let old = w.dsl.dataset(&p).unwrap();
        assert_eq!(old.origin().unwrap().unwrap().name(), format!("{child}@new"));
        w.ok(&mut Promote { name: p.clone(), enforce_limits: true });
    }
    w.ok(&mut Rename { old: p, new: w.name("/a-longer-name"), enforce_limits: true });
}
