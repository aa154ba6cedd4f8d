//! Quotas, enforced as OpenZFS enforces them, and read by its `zdb` if there is one.

use crate::rig::{Rig, ask};
use ondisk::objset::ObjsetFlags;
use zpl::{Error, FileSystem, Fuid, Kind, NewFile, Policy, SetAttr, Space, SpaceKind};

fn file(uid: u32, gid: u32) -> NewFile {
    NewFile { uid, gid, ..NewFile::new(Kind::Regular, 0o644) }
}

fn is_quota<T>(r: zpl::Result<T>) -> bool {
    matches!(r, Err(Error::Quota))
}

/// Incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 1_u64;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Goal: an owner that has used up a quota of bytes or objects gets no more; others do, and
/// removing files helps. This holds for users, groups and projects.
#[test]
fn enforced() {
    let rig = Rig::new();
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let make = |name: &str, uid, gid| fs.create(root, name.as_bytes(), &file(uid, gid)).map(|a| a.object);
    let data = vec![5; 200_000];
    let noise = noise(200_000);
    fs.set_quota(SpaceKind::UserQuota, Fuid(1000), 100_000).unwrap();
    fs.set_quota(SpaceKind::GroupObjQuota, Fuid(200), 2).unwrap();
    let a = make("a", 1000, 100).unwrap();
    fs.write(a, 0, &noise, false).unwrap();
    // Usage that was not counted yet doesn't count against a quota.
    fs.write(a, 0, &noise, false).unwrap();
    rig.sync();
    assert!(is_quota(fs.write(a, 0, &data, false)));
    assert!(is_quota(make("a2", 1000, 100)));
    assert!(is_quota(fs.create_unnamed(root, &file(1000, 100))));
    let b = make("b", 1001, 200).unwrap();
    fs.write(b, 0, &data, false).unwrap();
    make("c", 1001, 200).unwrap();
    rig.sync();
    assert!(is_quota(make("d", 1001, 200)));
    fs.write(b, 0, &noise, false).unwrap();
    let chown = |uid, gid| SetAttr { uid, gid, ..SetAttr::default() };
    assert!(is_quota(fs.set_attr(b, &chown(Some(1000), None))));
    assert!(is_quota(fs.set_attr(a, &chown(None, Some(200)))));
    fs.set_attr(a, &chown(Some(1000), Some(101))).unwrap();
    // A directory of project 7 passes it on.
    fs.set_quota(SpaceKind::ProjectQuota, Fuid(7), 50_000).unwrap();
    fs.set_quota(SpaceKind::ProjectObjQuota, Fuid(8), 1).unwrap();
    let dir = fs.create(root, b"dir", &NewFile::new(Kind::Directory, 0o755)).unwrap().object;
    fs.set_flags(dir, 0x2000_0000, 7).unwrap();
    let p = fs.create(dir, b"p", &file(5, 5)).unwrap().object;
    assert_eq!(fs.attr(p).unwrap().projid, 7);
    fs.write(p, 0, &noise, false).unwrap();
    fs.set_flags(b, 0, 8).unwrap();
    rig.sync();
    assert!(is_quota(fs.write(p, 0, &data, false)));
    assert!(is_quota(fs.create(dir, b"q", &file(5, 5))));
    assert!(is_quota(fs.set_flags(a, 0, 8)));
    fs.unlink(root, b"a").unwrap();
    fs.reap(a).unwrap();
    rig.sync();
    make("a", 1000, 100).unwrap();
    fs.set_quota(SpaceKind::ProjectQuota, Fuid(7), 0).unwrap();
    fs.write(p, 0, &data, false).unwrap();
    assert!(matches!(fs.set_quota(SpaceKind::UserUsed, Fuid(1), 1), Err(Error::NotCounted)));
    drop(fs);
    let rig = rig.again(Policy::default());
    let quotas = |kind| rig.fs.space(kind).unwrap();
    assert_eq!(quotas(SpaceKind::UserQuota), [Space { id: Fuid(1000), value: 100_000 }]);
    assert_eq!(quotas(SpaceKind::GroupObjQuota), [Space { id: Fuid(200), value: 2 }]);
    assert_eq!(quotas(SpaceKind::ProjectQuota), []);
    let root = rig.fs.root();
    rig.fs.unlink(root, b"b").unwrap();
    rig.fs.drain().unwrap();
    rig.sync();
    assert!(rig.fs.create(root, b"d", &file(1001, 200)).is_ok());
    rig.sync();
    assert!(is_quota(rig.fs.create(root, b"e", &file(1001, 200))));
    let exported = rig.export();
    if let Some(shown) = ask(exported.path(), &["-dddd", "tank/", "1"]) {
        for part in ["userquota@", "groupobjquota@", "projectquota@"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

/// Goal: a file system whose tables are incomplete, as a raw stream leaves it, is counted anew from
/// its first change on. Until then, and while it is counted, the answers come from its files.
#[test]
fn counted_anew() {
    let kinds = [
        SpaceKind::UserUsed,
        SpaceKind::GroupUsed,
        SpaceKind::ProjectUsed,
        SpaceKind::UserObjUsed,
        SpaceKind::GroupObjUsed,
        SpaceKind::ProjectObjUsed,
    ];
    let counts = |fs: &FileSystem| {
        kinds.map(|kind| {
            let mut all = fs.space(kind).unwrap();
            all.sort_by_key(|s| s.id.0);
            all
        })
    };
    let uncounted = |rig: &Rig| {
        rig.pool.meddle(|os, tx| {
            os.begin_recount(tx, ObjsetFlags(7)).expect("it is open for changes");
        });
        let root = rig.fs.root();
        rig.fs.set_attr(root, &SetAttr { permissions: Some(0o755), ..SetAttr::default() }).unwrap();
        rig.sync();
    };
    let rig = Rig::new();
    let root = rig.fs.root();
    for n in 0..3000_u32 {
        let new = file(n % 7, n % 3);
        let object = rig.fs.create(root, format!("{n}").as_bytes(), &new).unwrap().object;
        if n % 100 == 0 {
            rig.fs.write(object, 0, &noise(n as usize * 100), false).unwrap();
            rig.fs.set_flags(object, 0, 9).unwrap();
        }
    }
    rig.sync();
    let before = counts(&rig.fs);
    // The tables are now empty but for the root directory.
    uncounted(&rig);
    assert!(!rig.fs.is_counted());
    assert_eq!(counts(&rig.fs), before);
    let rig = rig.again(Policy::default());
    assert!(!rig.fs.is_counted(), "opening it changed it");
    assert_eq!(counts(&rig.fs), before);
    for n in (0..3000).step_by(5) {
        let name = format!("{n}");
        let object = rig.fs.lookup(root, name.as_bytes()).unwrap();
        match n % 3 {
            0 => rig.fs.write(object, 0, &noise(5000), false).map(drop).unwrap(),
            1 => rig.fs.set_attr(object, &SetAttr { uid: Some(77), ..SetAttr::default() }).map(drop).unwrap(),
            _ => {
                rig.fs.unlink(root, name.as_bytes()).unwrap();
                rig.fs.reap(object).unwrap();
            }
        }
        if n % 500 == 0 {
            rig.sync();
        }
    }
    let since = std::time::Instant::now();
    while !rig.fs.is_counted() {
        assert!(since.elapsed().as_secs() < 60, "it is never counted");
        rig.sync();
    }
    rig.sync();
    let tables = counts(&rig.fs);
    uncounted(&rig);
    assert_eq!(tables, counts(&rig.fs));
    assert_ne!(tables, before);
    rig.again(Policy::default());
}
