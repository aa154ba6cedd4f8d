//! Operations in memory on a pool that OpenZFS wrote, and their results as readers see them.

use crate::world::{Empty, World, create, snapshot};
use dsl::ops::bookmark::{CreateBookmarks, DestroyBookmarks};
use dsl::ops::clone::Clone;
use dsl::ops::create::{Create, NewVolume};
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::hold::{HoldSnapshots, ReleaseSnapshots};
use dsl::ops::promote::Promote;
use dsl::ops::props::{InheritProp, SetAs, SetProps};
use dsl::ops::rename::{Rename, RenameSnapshot};
use dsl::ops::rollback::Rollback;
use dsl::prop::parse::{Context, setting};
use dsl::{Error, Kind, Prop, Refusal, Value};
use std::sync::Arc;
use zio::{IoFlags, ReadOptions};

/// Goal: the owner of a head that a sync created reads it with the owner's options, not with the
/// sync's.
#[test]
fn owners_read_as_they_say() {
    let mut w = World::open("single-lz4");
    let plain = w.dsl.clone();
    w.dsl = plain.with_options(&ReadOptions::sync());
    w.ok(&mut create(w.name("/made"), Empty));
    let must = |os: &dmu::Objset| os.options().has(IoFlags::MUST_SUCCEED);
    let (sync, head) = (w.dsl.clone(), w.dsl.dataset(&w.name("/made")).unwrap());
    assert!(must(&head.objset().unwrap().unwrap()) && sync.mos().options().has(IoFlags::MUST_SUCCEED));
    let head = plain.dataset(&w.name("/made")).unwrap();
    let owned = plain.heads().own(&head).unwrap();
    assert!(!must(owned.objset()) && !must(&head.objset().unwrap().unwrap()));
    assert!(must(&plain.heads().get(head.object().0, sync.mos().options()).unwrap()));
}

/// Goal: datasets can be created only below file systems and only once, and show their properties.
#[test]
fn create_and_rename() {
    let mut w = World::open("single-lz4");
    let fs = Kind::Filesystem;
    let context = Context { kind: fs, creating: true, max_block: 1 << 20 };
    let mut task = create(w.name("/new"), Empty);
    task.props = vec![
        setting("compression", "zstd-3", context).unwrap(),
        setting("com.example:color", "blue", context).unwrap(),
        setting("quota", "10M", context).unwrap(),
        setting("reservation", "1M", context).unwrap(),
    ];
    w.ok(&mut task);
    assert_eq!(w.refused(&mut task), Refusal::Exists);
    assert_eq!(w.refused(&mut create(w.name("/absent/x"), Empty)), Refusal::NoParent);
    let mut child = create(w.name("/new/child"), Empty);
    w.ok(&mut child);
    let new = w.dsl.dataset(&w.name("/new")).unwrap();
    assert_eq!(new.dir().phys().quota, 10 << 20);
    assert_eq!(new.dir().phys().reserved, 1 << 20);
    assert_eq!(new.user_property("com.example:color").unwrap().unwrap().value, Value::Text("blue".into()));
    let root = w.dsl.root().unwrap();
    let before = root.phys().used_breakdown;
    w.ok(&mut Rename { old: w.name("/new"), new: w.name("/newer"), enforce_limits: true });
    assert_eq!(w.dsl.root().unwrap().phys().used_breakdown, before);
    let child = w.dsl.dataset(&w.name("/newer/child")).unwrap();
    let color = child.user_property("com.example:color").unwrap().unwrap();
    assert_eq!(color.source, dsl::Source::Inherited(w.name("/newer")));
    let below = Rename { old: w.name("/newer"), new: w.name("/newer/child/x"), enforce_limits: true };
    assert_eq!(w.refused(&mut below.clone()), Refusal::Recursive);
    let volume = NewVolume { size: 1 << 20, block: 1 << 14 };
    w.ok(&mut create(w.name("/vol"), volume));
    let vol = w.dsl.dataset(&w.name("/vol")).unwrap();
    assert_eq!(vol.volume().unwrap(), Some((1 << 20, 1 << 14)));
    assert_eq!(w.refused(&mut create(w.name("/vol/x"), Empty)), Refusal::WrongParent);
    w.ok(&mut InheritProp { name: w.name("/newer"), property: "compression".into(), received: false });
    let newer = w.dsl.dataset(&w.name("/newer")).unwrap();
    assert_ne!(newer.property(Prop::Compression).unwrap().unwrap().source, dsl::Source::Local);
}

/// Goal: the numbers of stored properties are those of all properties, set here, inherited or by
/// default, of file systems and snapshots.
#[test]
fn stored_numbers() {
    let mut w = World::open("single-lz4");
    let context = Context { kind: Kind::Filesystem, creating: true, max_block: 1 << 20 };
    let mut task = create(w.name("/new"), Empty);
    let set = [("recordsize", "16K"), ("primarycache", "metadata"), ("xattr", "on"), ("atime", "off")];
    task.props = set.iter().map(|(name, value)| setting(name, value, context).unwrap()).collect();
    w.ok(&mut task);
    w.ok(&mut create(w.name("/new/child"), Empty));
    w.ok(&mut snapshot(&[w.name("/new@now")]));
    let props =
        [Prop::Recordsize, Prop::Primarycache, Prop::Xattr, Prop::Atime, Prop::Sync, Prop::Aclinherit];
    for name in ["/new", "/new/child", "/new@now"] {
        let dataset = w.dsl.dataset(&w.name(name)).unwrap();
        for prop in props {
            let number = dataset.property(prop).unwrap().map(|found| found.value);
            assert_eq!(dataset.stored_number(prop).unwrap().map(Value::Number), number, "{name} {prop:?}");
        }
    }
    let child = w.dsl.dataset(&w.name("/new/child")).unwrap();
    assert_eq!(child.stored_number(Prop::Recordsize).unwrap(), Some(16 << 10));
}

/// Goal: limits, quotas and reservations refuse what exceeds them.
#[test]
fn limits_and_reservations() {
    let mut w = World::open("single-lz4");
    let context = Context { kind: Kind::Filesystem, creating: false, max_block: 1 << 20 };
    w.ok(&mut create(w.name("/l"), Empty));
    let set = |w: &mut World, name: &str, p: &str, v: &str| {
        let props = vec![setting(p, v, context).unwrap()];
        w.run(&mut [&mut SetProps { name: w.name(name), props, source: SetAs::Local }]).remove(0)
    };
    set(&mut w, "/l", "filesystem_limit", "1").unwrap();
    set(&mut w, "/l", "snapshot_limit", "1").unwrap();
    w.ok(&mut create(w.name("/l/a"), Empty));
    assert_eq!(w.refused(&mut create(w.name("/l/b"), Empty)), Refusal::Quota);
    set(&mut w, "/l", "reservation", "5M").unwrap();
    assert!(matches!(set(&mut w, "/l", "quota", "1M"), Err(Error::BadProperty { .. })));
    assert!(matches!(set(&mut w, "/l", "reservation", "1P"), Err(Error::BadProperty { .. })));
    assert!(matches!(set(&mut w, "/l", "refreservation", "1P"), Err(Error::BadProperty { .. })));
    set(&mut w, "/l", "refreservation", "1M").unwrap();
    set(&mut w, "/l", "refreservation", "none").unwrap();
    set(&mut w, "/l", "reservation", "none").unwrap();
    assert_eq!(w.dsl.dataset(&w.name("/l")).unwrap().dir().phys().used_bytes, 0);
}

/// Goal: snapshots are created all or none, and a held snapshot stays. A snapshot with clones can't
/// be destroyed, and a promotion reverses the dependency.
#[test]
fn snapshots_and_clones() {
    let mut w = World::open("single-lz4");
    let a = w.name("/acl-dir@new1");
    let b = w.name("/props@new1");
    w.ok(&mut snapshot(&[a.clone(), b.clone()]));
    assert_eq!(w.refused(&mut snapshot(&[w.name("/rs-16K@new1"), a.clone()])), Refusal::Exists);
    assert!(w.dsl.dataset(&w.name("/rs-16K@new1")).is_err());
    let snap = w.dsl.dataset(&a).unwrap();
    let head = w.dsl.dataset(&w.name("/acl-dir")).unwrap();
    assert_eq!(head.phys().prev_snap_obj, snap.object().0);
    assert_eq!(snap.phys().referenced_bytes, head.phys().referenced_bytes);
    assert_eq!(head.phys().unique_bytes, 0);
    w.ok(&mut HoldSnapshots { holds: vec![(a.clone(), "keep".into())] });
    let mut destroy = DestroySnapshots { names: vec![a.clone()], defer: false };
    assert_eq!(w.refused(&mut destroy), Refusal::Held);
    destroy.defer = true;
    w.ok(&mut destroy);
    assert!(w.dsl.dataset(&a).unwrap().is_deferred());
    w.ok(&mut ReleaseSnapshots { holds: vec![(a.clone(), "keep".into())] });
    assert!(w.dsl.dataset(&a).is_err());
    w.ok(&mut RenameSnapshot {
        dataset: w.name("/props"),
        old: "new1".into(),
        new: "new2".into(),
        recursive: false,
    });
    let b = w.name("/props@new2");
    w.ok(&mut CreateBookmarks { pairs: vec![(w.name("/props#mark"), b.clone())] });
    assert!(w.dsl.dataset(&w.name("/props")).unwrap().bookmark("mark").unwrap().is_some());
    let clone = |name: String, origin: &str| Clone {
        name,
        origin: origin.to_owned(),
        props: Vec::new(),
        enforce_limits: true,
    };
    w.ok(&mut clone(w.name("/c"), &b));
    assert_eq!(w.refused(&mut DestroySnapshots { names: vec![b.clone()], defer: false }), Refusal::HasClones);
    w.ok(&mut snapshot(&[w.name("/c@own")]));
    w.ok(&mut Promote { name: w.name("/c"), enforce_limits: true });
    let old = w.dsl.dataset(&w.name("/props")).unwrap();
    assert_eq!(old.origin().unwrap().unwrap().name(), w.name("/c@new2"));
    assert!(w.dsl.dataset(&w.name("/c")).unwrap().bookmark("mark").unwrap().is_some());
    w.ok(&mut Promote { name: w.name("/props"), enforce_limits: true });
    assert!(w.dsl.dataset(&w.name("/props")).unwrap().origin().unwrap().is_none());
    w.ok(&mut DestroySnapshots { names: vec![w.name("/c@own")], defer: false });
    w.ok(&mut DestroyHead { name: w.name("/c") });
    w.ok(&mut DestroyBookmarks { names: vec![w.name("/props#mark")] });
    w.ok(&mut Rollback { name: w.name("/props"), to: Some(b.clone()) });
    w.ok(&mut DestroySnapshots { names: vec![b], defer: false });
}

/// Goal: grants are read back as set, creators of datasets get the creation grants, and grants are
/// removed by word or whole. Invalid grants are refused.
#[test]
fn grants() {
    use dsl::deleg::{Credentials, Grants};
    use dsl::ops::deleg::{MadeBy, SetGrants};
    let mut w = World::open("single-lz4");
    let list = |list: &[(&str, &[&str])]| -> Grants {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        list.iter().map(|(whom, of)| ((*whom).to_owned(), words(of))).collect()
    };
    let root = w.name("");
    let set = |grants: Grants, remove| SetGrants { name: root.clone(), grants, remove };
    let given = list(&[
        ("ul$7", &["snapshot", "hold"]),
        ("c-$", &["destroy"]),
        ("C-$", &["@x"]),
        ("s-$@x", &["mount"]),
    ]);
    let out = w.run(&mut [&mut set(given.clone(), false)]);
    assert!(out[0].is_ok(), "{out:?}");
    assert_eq!(w.dsl.root().unwrap().grants().unwrap(), given);
    for bad in [
        list(&[("ul$x", &["hold"])]),
        list(&[("ul$7", &["@x"])]),
        list(&[("Ul$7", &["hold"])]),
        list(&[("ul$7", &["used"])]),
        list(&[("ul$7", &[])]),
    ] {
        let out = w.run(&mut [&mut set(bad, false)]);
        assert!(matches!(out[0], Err(Error::Refused { why: Refusal::BadGrant, .. })), "{out:?}");
    }
    let name = w.name("/made");
    let task = Create {
        name: name.clone(),
        contents: Arc::new(Empty),
        props: Vec::new(),
        crypt: None,
        enforce_limits: false,
    };
    let out = w.run(&mut [&mut MadeBy { task, name: name.clone(), uid: 9 }]);
    assert!(out[0].is_ok(), "{out:?}");
    let made = w.dsl.dataset(&name).unwrap();
    assert_eq!(made.dir().grants().unwrap(), list(&[("ul$9", &["destroy"]), ("Ul$9", &["@x"])]));
    let may =
        |uid, permission| made.is_granted(permission, &Credentials { uid, groups: Vec::new() }).unwrap();
    assert!(may(9, "destroy") && may(9, "mount") && !may(9, "snapshot") && !may(7, "snapshot"));
    let out = w.run(&mut [&mut set(list(&[("ul$7", &["hold"]), ("c-$", &["destroy"]), ("C-$", &[])]), true)]);
    assert!(out[0].is_ok(), "{out:?}");
    assert_eq!(
        w.dsl.root().unwrap().grants().unwrap(),
        list(&[("ul$7", &["snapshot"]), ("s-$@x", &["mount"])])
    );
}
