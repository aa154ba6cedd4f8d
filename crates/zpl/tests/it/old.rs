//! File systems of versions 1 to 4 that are created, written and upgraded to version 5, checked by
//! OpenZFS's `zdb` if there is one.

use crate::rig;

use crate::rig::{Rig, ask};
use dmu::NewObject;
use ondisk::acl::{Ace, AclPhys, AclVersion, Who};
use ondisk::sa::Attr;
use ondisk::zil::{RecordBody, Setattr, TxKind, Xvattr};
use ondisk::znode::Znode;
use ondisk::{DmuType, ObjNum, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::{
    AclInherit, AclMode, DirCookie, Error, FileSystem, FileType, Fuid, Kind, NewFile, NewFileSystem, Pflags,
    Policy, SetAttr, SetXattr, SpaceKind,
};

fn file() -> NewFile {
    NewFile { uid: 1000, gid: 100, ..NewFile::new(Kind::Regular, 0o640) }
}

fn rig(version: u64) -> Rig {
    let policy = Policy { slots: 2, ..Policy::default() };
    Rig::with(&NewFileSystem { version, ..NewFileSystem::new((1_000_000, 0)) }, policy)
}

fn make(fs: &FileSystem, at: ObjNum, name: &str, new: &NewFile) -> ObjNum {
    fs.create(at, name.as_bytes(), new).unwrap().object
}

fn bonus_of(fs: &FileSystem, object: ObjNum) -> DmuType {
    fs.node(object).unwrap().dnode().bonus_kind()
}

/// The types in the entries of a directory.
fn kinds(fs: &FileSystem, dir: ObjNum) -> Vec<FileType> {
    fs.read_dir(dir, DirCookie(2)).unwrap().map(|e| e.unwrap().kind).collect()
}

/// Creates a tree with everything that a version supports. Returns a file of several blocks.
fn grow(fs: &FileSystem) -> ObjNum {
    let root = fs.root();
    let d = make(fs, root, "d", &NewFile::new(Kind::Directory, 0o755));
    let f = make(fs, d, "f", &file());
    fs.write(f, 0, &[7; 300_000], false).unwrap();
    fs.truncate(f, 290_000, false).unwrap();
    make(fs, root, "short", &NewFile::new(Kind::Symlink(b"d/f".to_vec()), 0o777));
    make(
        fs,
        root,
        "long",
        &NewFile::new(Kind::Symlink([b"./".repeat(100), b"d/f".to_vec()].concat()), 0o777),
    );
    make(fs, root, "null", &NewFile::new(Kind::CharDevice(1, 3), 0o666));
    // This ACL has more entries than that of a plain mode.
    fs.set_attr(f, &SetAttr { permissions: Some(0o604), uid: Some(7), ..SetAttr::default() }).unwrap();
    fs.set_xattr(f, b"user.a", b"value", SetXattr::Create).unwrap();
    fs.link(f, root, b"g").unwrap();
    let gone = make(fs, root, "gone", &file());
    fs.write(gone, 0, &[1; 5000], false).unwrap();
    assert_eq!(fs.unlink(root, b"gone").unwrap(), Some(gone));
    fs.reap(gone).unwrap();
    f
}

fn check(fs: &FileSystem, f: ObjNum) {
    let a = fs.attr(f).unwrap();
    assert_eq!((a.mode, a.uid.0, a.gid.0, a.size, a.nlink), (0o100_604, 7, 100, 290_000, 2));
    let mut data = vec![0; 290_000];
    assert_eq!(fs.read(f, 0, &mut data).unwrap(), data.len());
    assert!(data.iter().all(|b| *b == 7));
    for link in ["short", "long"] {
        assert_eq!(fs.resolve(link.as_bytes()).unwrap().object(), f, "{link}");
    }
    assert_eq!(fs.resolve(b"null").unwrap().attr().rdev, Some((1, 3)));
    assert_eq!(fs.node(f).unwrap().xattr(b"user.a").unwrap(), b"value");
    let acl = fs.node(f).unwrap().acl().unwrap();
    assert!(acl.trivial && acl.aces.len() > 3, "{acl:?}");
}

/// Goal: files and changes in file systems of all old versions survive an export, in the form of
/// that version, and `zdb` finds it sound. What a version doesn't support is refused.
#[test]
fn old_versions_are_written() {
    for version in 1..=4 {
        let rig = rig(version);
        let f = grow(&rig.fs);
        let rig = rig.again(Policy::default());
        let fs = &rig.fs;
        assert_eq!(fs.version(), version);
        check(fs, f);
        for object in [f, fs.root(), fs.lookup(fs.root(), b"long").unwrap()] {
            assert_eq!(bonus_of(fs, object), DmuType::ZNODE, "version {version}");
        }
        let said = kinds(fs, fs.root()).contains(&FileType::Symlink);
        assert_eq!(said, version > 1, "version 1 says no types of entries");
        let quota = fs.set_quota(SpaceKind::UserQuota, Fuid(7), 1 << 30);
        assert_eq!(quota.is_ok(), version >= 4, "version {version}: {quota:?}");
        assert!(
            matches!(fs.set_flags(f, 0, 5), Err(Error::BadFlags { .. })),
            "there is no room for projects"
        );
        assert!(matches!(fs.set_version(6), Err(Error::UnsupportedVersion { .. })));
        let dir = rig.export();
        if let Some(text) = ask(dir.path(), &["-dddd", "tank/", &f.0.to_string()]) {
            assert!(text.contains("bonus  ZFS znode") && text.contains("uid     7"), "{text}");
        }
    }
}

/// Goal: a file system that is upgraded to version 5 stays usable.
///
/// With their next change its files get system attributes and lose nothing. Symbolic links stay as
/// they are, new files have system attributes from the start, and `zdb` finds it sound.
#[test]
fn upgraded_file_systems_go_on() {
    for version in [1, 2, 4] {
        let rig = rig(version);
        let f = grow(&rig.fs);
        let fs = rig.fs.clone();
        let old = make(&fs, fs.root(), "old", &file());
        fs.set_version(5).unwrap();
        assert!(matches!(fs.set_version(4), Err(Error::UnsupportedVersion { .. })), "there is no way back");
        let new = make(&fs, fs.root(), "new", &file());
        assert_eq!((bonus_of(&fs, new), bonus_of(&fs, f)), (DmuType::SA, DmuType::ZNODE));
        fs.write(f, 0, &[7; 10], false).unwrap();
        fs.set_flags(old, 0, 5).unwrap();
        fs.set_xattr(old, b"user.own", b"own", SetXattr::Create).unwrap();
        let link = fs.lookup(fs.root(), b"short").unwrap();
        fs.set_attr(link, &SetAttr { uid: Some(9), ..SetAttr::default() }).unwrap();
        fs.set_xattr(link, b"trusted.a", b"hidden", SetXattr::Create).unwrap();
        drop(fs);
        let rig = rig.again(Policy::default());
        let fs = &rig.fs;
        assert_eq!(fs.version(), 5);
        check(fs, f);
        for (object, kind) in
            [(f, DmuType::SA), (old, DmuType::SA), (fs.root(), DmuType::SA), (link, DmuType::ZNODE)]
        {
            assert_eq!(bonus_of(fs, object), kind, "object {object:?}");
        }
        assert_eq!(fs.attr(old).unwrap().projid, 5);
        assert_eq!(fs.attr(link).unwrap().uid.0, 9);
        assert_eq!(fs.node(old).unwrap().xattr(b"user.own").unwrap(), b"own");
        assert_eq!(fs.node(link).unwrap().xattr(b"trusted.a").unwrap(), b"hidden");
        let dir = rig.export();
        if let Some(text) = ask(dir.path(), &["-dddd", "tank/", &old.0.to_string()]) {
            assert!(text.contains("bonus  System attributes") && text.contains("projid\t5"), "{text}");
        }
    }
}

/// The nonzero counts of a kind, by owner.
fn counted(fs: &FileSystem, kind: SpaceKind) -> BTreeMap<u64, u64> {
    fs.space(kind).unwrap().into_iter().map(|s| (s.id.0, s.value)).filter(|(_, n)| *n != 0).collect()
}

/// Compares the counts with the files.
fn check_space(rig: &Rig) {
    rig.sync();
    let fs = &rig.fs;
    let mut all = [(); 4].map(|()| BTreeMap::<u64, u64>::new());
    for dnode in fs.objset().objects(ObjNum(1)) {
        let dnode = dnode.unwrap();
        let Ok(node) = fs.node(dnode.object()) else { continue };
        let (a, bytes) = (node.attr(), dnode.used_bytes() + 512 * dnode.phys().num_slots() as u64);
        for (sums, (id, n)) in
            all.iter_mut().zip([(a.uid.0, bytes), (a.gid.0, bytes), (a.uid.0, 1), (a.gid.0, 1)])
        {
            *sums.entry(id).or_default() += n;
        }
    }
    let kinds = [SpaceKind::UserUsed, SpaceKind::GroupUsed, SpaceKind::UserObjUsed, SpaceKind::GroupObjUsed];
    for (kind, sums) in kinds.into_iter().zip(all) {
        assert_eq!(counted(fs, kind), sums, "{kind:?}");
    }
}

/// Goal: space and objects of files with znodes are counted for their current owner, after changes
/// of owner and form, until the files are freed.
#[test]
fn owners_are_counted() {
    for version in [2, 4] {
        let rig = rig(version);
        let fs = rig.fs.clone();
        let f = grow(&fs);
        let other = make(&fs, fs.root(), "other", &file());
        fs.write(other, 0, &[3; 200_000], false).unwrap();
        check_space(&rig);
        let objects = |id| counted(&fs, SpaceKind::UserObjUsed).get(&id).copied();
        // The file, its hidden directory and the attribute in it.
        assert_eq!((objects(7), objects(1000)), (Some(3), Some(1)), "version {version}");
        let all_of = SetAttr { uid: Some(5000), gid: Some(600), ..SetAttr::default() };
        fs.set_attr(other, &all_of).unwrap();
        check_space(&rig);
        assert_eq!((objects(1000), objects(5000)), (None, Some(1)), "version {version}");
        fs.set_version(5).unwrap();
        check_space(&rig);
        fs.set_attr(f, &SetAttr { uid: Some(8), ..SetAttr::default() }).unwrap();
        fs.set_flags(other, 0, 9).unwrap();
        assert_eq!(bonus_of(&fs, other), DmuType::SA);
        check_space(&rig);
        assert_eq!(counted(&fs, SpaceKind::ProjectObjUsed).get(&9), Some(&1));
        fs.unlink(fs.root(), b"other").unwrap();
        fs.reap(other).unwrap();
        check_space(&rig);
        assert_eq!(objects(5000), None, "version {version}");
        drop(fs);
        let dir = rig.export();
        rig::judge(dir.path());
        if let Some(text) = ask(dir.path(), &["-dddd", "tank/"]) {
            assert!(text.contains("obj-8 = 3") && !text.contains("obj-1388"), "{text}");
        }
    }
}

/// Objects of ACLs, by type and bonus.
fn acl_objects(rig: &Rig) -> Vec<(DmuType, DmuType)> {
    rig.sync();
    let all = rig.fs.objset().objects(ObjNum(1)).map(Result::unwrap);
    let acls = all.filter(|dn| [DmuType::OLDACL, DmuType::ACL].contains(&dn.kind()));
    acls.map(|dn| (dn.kind(), dn.bonus_kind())).collect()
}

/// Puts entries before those of a file with a znode, as another system would.
fn put_acl(rig: &Rig, object: ObjNum, entries: &[Ace]) {
    let node = rig.fs.node(object).unwrap();
    let all: Vec<Ace> = entries.iter().chain(&node.acl().unwrap().aces).copied().collect();
    let old = rig.fs.version() < 3;
    let (mut phys, raw) = AclPhys::of(&all, if old { AclVersion::Initial } else { AclVersion::Fuid });
    let tx = rig.pool.live().tx(0).unwrap();
    if let Some(raw) = raw {
        let new = match old {
            true => NewObject::new(DmuType::OLDACL),
            false => NewObject::new(DmuType::ACL).with_bonus(DmuType::SYSACL, vec![0; 320]),
        };
        let dn = rig.fs.objset().create_object(&tx, &new).unwrap();
        dn.write_at(&tx, 0, &raw).unwrap();
        phys.extern_obj = dn.object();
    }
    let mut bonus = node.dnode().bonus().to_vec();
    let flags = node.attr().pflags.0 & !Pflags::ACL_TRIVIAL | 0x2;
    bonus[Znode::place(Attr::Flags).unwrap()].copy_from_slice(&flags.to_le_bytes());
    bonus[Znode::place(Attr::ZnodeAcl).unwrap()].copy_from_slice(&phys.encode());
    node.dnode().set_bonus(&tx, DmuType::ZNODE, &bonus).unwrap();
}

/// Goal: an ACL that does not fit into a znode lies in an object of its own. That has the type and
/// bonus that OpenZFS gives it.
///
/// The object is freed when the ACL is small again, when another ACL replaces it, when system
/// attributes take it in, and with the file.
#[test]
fn large_acls_of_znodes() {
    for (version, kind) in [(2, (DmuType::OLDACL, DmuType::NONE)), (3, (DmuType::ACL, DmuType::SYSACL))] {
        let keep = Policy {
            slots: 2,
            acl_mode: AclMode::Passthrough,
            acl_inherit: AclInherit::Passthrough,
            ..Policy::default()
        };
        let rig = Rig::with(&NewFileSystem { version, ..NewFileSystem::new((1_000_000, 0)) }, keep);
        let fs = rig.fs.clone();
        let top = make(&fs, fs.root(), "top", &NewFile::new(Kind::Directory, 0o755));
        assert_eq!(acl_objects(&rig), []);
        let user = |n: u64| Ace { kind: 0, flags: 0x3, mask: 0x12_0089, who: Who::User(n), guids: None };
        let entries: Vec<Ace> = (2000..2008).map(user).collect();
        put_acl(&rig, top, &entries);
        let named = |object| {
            let acl = fs.node(object).unwrap().acl().unwrap();
            acl.aces.iter().filter(|a| matches!(a.who, Who::User(_))).count()
        };
        assert_eq!(named(top), 8);
        // Files created there inherit as many entries, and so do files and directories with a new
        // mode.
        let below = make(&fs, top, "below", &file());
        let (a, b) = (make(&fs, top, "a", &file()), make(&fs, top, "b", &file()));
        assert_eq!((named(below), acl_objects(&rig)), (8, vec![kind; 4]), "version {version}");
        for object in [top, below] {
            let mode = SetAttr { permissions: Some(0o710), ..SetAttr::default() };
            fs.set_attr(object, &mode).unwrap();
        }
        assert_eq!((named(top), named(below), acl_objects(&rig)), (8, 8, vec![kind; 4]));
        fs.unlink(top, b"a").unwrap();
        fs.reap(a).unwrap();
        assert_eq!(acl_objects(&rig), vec![kind; 3], "it went with its file");
        drop(fs);
        let rig = rig.again(Policy { acl_mode: AclMode::Discard, ..keep });
        let fs = rig.fs.clone();
        fs.set_attr(below, &SetAttr { permissions: Some(0o600), ..SetAttr::default() }).unwrap();
        assert!(fs.node(below).unwrap().acl().unwrap().trivial);
        assert_eq!(acl_objects(&rig), vec![kind; 2], "it went when it was small again");
        let (acl, of_b) = (fs.node(top).unwrap().acl().unwrap(), fs.node(b).unwrap().acl().unwrap());
        fs.set_version(5).unwrap();
        for object in [top, b] {
            fs.set_attr(object, &SetAttr { gid: Some(3), ..SetAttr::default() }).unwrap();
            assert_eq!(bonus_of(&fs, object), DmuType::SA);
        }
        assert_eq!((fs.node(top).unwrap().acl().unwrap(), fs.node(b).unwrap().acl().unwrap()), (acl, of_b));
        assert_eq!(acl_objects(&rig), [], "they went into the files' own attributes");
        drop(fs);
        drop(rig.again(Policy::default()));
    }
}

/// The state that a crash would leave now. No txg is written meanwhile.
fn crash(rig: &Rig) -> Arc<tempfile::TempDir> {
    let live = rig.pool.live();
    let hold = live.tx(0).unwrap();
    live.txgs().wait_synced(Txg(hold.txg().0 - 1)).unwrap();
    Arc::new(testkit::copy_of(rig.path()))
}

/// Logs changes that need system attributes, and commits them: an extended attribute, flags and a
/// project. Returns the state that a crash leaves.
fn log_for_sa(rig: &Rig, object: ObjNum) -> Arc<tempfile::TempDir> {
    let fs = &rig.fs;
    // The log has begun when its header is on disk.
    let first = make(fs, fs.root(), "first", &file());
    fs.fsync(first).unwrap();
    rig.sync();
    let log = rig.pool.log().unwrap();
    let tx = rig.pool.live().tx(0).unwrap();
    let (name, value) = (b"user.logged".to_vec(), Some(b"value".to_vec()));
    let own = RecordBody::SetSaXattr { foid: object.0, name, value };
    log.log_object(&tx, object, TxKind::SetSaXattr, &own);
    let mut scanstamp = [0; 32];
    scanstamp[..8].copy_from_slice(&5_u64.to_le_bytes());
    // The project, and the flag that dumps skip the file.
    let xvattr = Xvattr { bitmap: vec![0x4_0100, 0, 0], attrs: 0x100, crtime: [0, 0], scanstamp };
    let (time, xvattr) = ([0, 0], Some(xvattr));
    let set = Setattr {
        foid: object.0,
        mask: 1 << 31,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        atime: time,
        mtime: time,
        xvattr,
        domains: Vec::new(),
    };
    log.log_object(&tx, object, TxKind::Setattr, &RecordBody::Setattr(set));
    drop(tx);
    fs.fsync(object).unwrap();
    crash(rig)
}

/// Goal: records of attributes that don't fit into a znode are replayed as far as possible.
///
/// An extended attribute goes into the hidden directory, the project is dropped, and the rest
/// applies.
#[test]
fn records_that_znodes_have_no_room_for() {
    for (version, name) in [(4, "d/f"), (2, "d/f"), (4, "short")] {
        let rig = rig(version);
        grow(&rig.fs);
        let parent = rig.fs.lookup(rig.fs.root(), b"d").unwrap();
        let object = match name {
            "short" => rig.fs.lookup(rig.fs.root(), b"short").unwrap(),
            _ => rig.fs.lookup(parent, b"f").unwrap(),
        };
        let left = log_for_sa(&rig, object);
        let left = Rig::import(left, Policy::default());
        assert_eq!(left.replay(), 2, "version {version}");
        left.sync();
        let fs = &left.fs;
        let node = fs.node(object).unwrap();
        assert_eq!(bonus_of(fs, object), DmuType::ZNODE);
        assert_eq!(node.xattr(b"user.logged").unwrap(), b"value", "version {version}, {name}");
        assert!(node.attr().pflags.has(Pflags::NODUMP) && !node.attr().pflags.has(Pflags::PROJID));
        assert_eq!(node.attr().projid, 0);
    }
}

/// Goal: a record that only the new version supports enters the log only after the txg with that
/// version is on disk.
#[test]
fn a_new_version_comes_before_its_records() {
    let rig = rig(4);
    let f = grow(&rig.fs);
    rig.fs.fsync(f).unwrap();
    rig.sync();
    rig.fs.set_version(5).unwrap();
    rig.fs.set_xattr(f, b"user.own", b"own", SetXattr::Create).unwrap();
    let before = rig.pool.live().txgs().open();
    rig.fs.fsync(f).unwrap();
    assert!(rig.pool.live().txgs().synced() >= before, "the commit waits for the version's group");
    let left = Rig::import(crash(&rig), Policy::default());
    assert_eq!(left.fs.version(), 5);
    assert_eq!(left.fs.node(f).unwrap().xattr(b"user.own").unwrap(), b"own");
}
