//! What files take over from their directories and from their own files: ACLs, projects, owners.
//! OpenZFS's `zdb` checks it if there is one.

use crate::rig;

use crate::rig::{Rig, ask};
use dmu::sa::Change;
use ondisk::ObjNum;
use ondisk::acl::{Ace, Who};
use ondisk::sa::Attr as Sa;
use zpl::{
    AclInherit, FileSystem, Fuid, Kind, NewFile, Pflags, Policy, Rename, SetAttr, SetXattr, Space, SpaceKind,
};

const FILE_AND_DIRECTORY: u16 = 0x3;

fn file() -> NewFile {
    NewFile { uid: 1000, gid: 100, ..NewFile::new(Kind::Regular, 0o640) }
}

fn dir() -> NewFile {
    NewFile { uid: 1000, gid: 100, ..NewFile::new(Kind::Directory, 0o755) }
}

fn make(fs: &FileSystem, at: ObjNum, name: &str, new: &NewFile) -> ObjNum {
    fs.create(at, name.as_bytes(), new).unwrap().object
}

/// Puts entries before a file's own, as another system would.
fn put_acl(rig: &Rig, object: ObjNum, entries: &[Ace]) {
    let node = rig.fs.node(object).unwrap();
    let own = node.acl().unwrap().aces;
    let (mut raw, mut count) = (Vec::new(), 0_u64);
    for ace in entries.iter().chain(&own) {
        ace.encode(&mut raw);
        count += 1;
    }
    let flags = node.attr().pflags.0 & !Pflags::ACL_TRIVIAL | 0x2;
    let tx = rig.pool.live().tx(0).unwrap();
    let (count, flags) = (count.to_le_bytes(), flags.to_le_bytes());
    let changes: [Change<'_>; 3] =
        [(Sa::Flags, Some(&flags)), (Sa::DaclCount, Some(&count)), (Sa::DaclAces, Some(&raw))];
    rig.fs.sa().set(node.dnode(), &tx, &changes).unwrap();
}

/// Goal: files, directories and their new files inherit entries as `aclinherit` says. The rest of
/// the file is as usual, and `zdb` reads it.
#[test]
fn acls_are_inherited() {
    let rig = Rig::new();
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let top = make(&fs, root, "top", &dir());
    let ace = |kind, who| Ace { kind, flags: FILE_AND_DIRECTORY, mask: 0x1f_01ff, who, guids: None };
    put_acl(&rig, top, &[ace(0, Who::User(2000)), ace(1, Who::Group(30))]);
    let below = make(&fs, top, "below", &dir());
    let f = make(&fs, below, "f", &file());
    let link = make(&fs, below, "link", &NewFile::new(Kind::Symlink(b"f".to_vec()), 0o777));
    let unnamed = fs.create_unnamed(below, &file()).unwrap().object;
    let named = |object: ObjNum| {
        let acl = fs.node(object).unwrap().acl().unwrap();
        let named = acl.aces.iter().filter(|a| matches!(a.who, Who::User(_) | Who::Group(_)));
        (acl.trivial, named.map(|a| (a.kind, a.flags & 0xf, a.mask)).collect::<Vec<_>>())
    };
    // An inherited entry must not let a user take the file over.
    let (allowed, denied) = (0x13_01ff, 0x1f_01ff);
    assert_eq!(named(below), (false, vec![(0, 0x3, allowed), (1, 0x3, denied)]));
    for object in [f, unnamed] {
        assert_eq!(named(object), (false, vec![(0, 0, allowed), (1, 0, denied)]));
        assert_eq!(fs.attr(object).unwrap().mode & 0o7777, 0o640);
    }
    assert_eq!(named(link), (true, vec![]));
    fs.reap(unnamed).unwrap();
    fs.write(f, 0, &[1; 5000], false).unwrap();
    drop(fs);
    let rig = rig.again(Policy { acl_inherit: AclInherit::Discard, ..Policy::default() });
    let fs = rig.fs.clone();
    let plain = make(&fs, below, "plain", &file());
    assert!(fs.node(plain).unwrap().acl().unwrap().trivial);
    if let Some(said) = ask(rig.path(), &["-dddd", "tank/", &f.0.to_string()]) {
        assert!(said.contains("mode\t100640"), "{said}");
    }
}

/// Goal: a file from before projects were counted gets a project, and so do its extended
/// attributes.
///
/// They follow a change of the owner too. Nothing else changes, and the counts are right.
#[test]
fn projects_find_room() {
    let rig =
        Rig::with(&zpl::NewFileSystem::new((1_000_000, 0)), Policy { xattr_sa: false, ..Policy::default() });
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let f = make(&fs, root, "f", &file());
    fs.write(f, 0, &[7; 10_000], false).unwrap();
    fs.set_xattr(f, b"user.a", &[1; 3000], SetXattr::Either).unwrap();
    // As an older system would have created it.
    let hidden = fs.attr(f).unwrap().xattr_dir.unwrap();
    let attribute =
        fs.node(hidden).unwrap().read_dir(zpl::DirCookie(2)).unwrap().next().unwrap().unwrap().object;
    for object in [f, hidden, attribute] {
        let node = fs.node(object).unwrap();
        let flags = (node.attr().pflags.0 & !Pflags::PROJID).to_le_bytes();
        let tx = rig.pool.live().tx(0).unwrap();
        let changes: [Change<'_>; 2] = [(Sa::Flags, Some(&flags)), (Sa::Projid, None)];
        fs.sa().set(node.dnode(), &tx, &changes).unwrap();
    }
    rig.sync();
    let before = fs.attr(f).unwrap();
    assert!(!before.pflags.has(Pflags::PROJID));
    fs.set_flags(f, 0, 9).unwrap();
    let after = fs.attr(f).unwrap();
    assert_eq!(after.projid, 9);
    assert_eq!(
        (before.mode, before.size, before.mtime, before.nlink),
        (after.mode, after.size, after.mtime, after.nlink)
    );
    assert_eq!(fs.node(f).unwrap().acl().unwrap().aces.len(), 3);
    for object in [hidden, attribute] {
        assert_eq!(fs.attr(object).unwrap().projid, 9);
    }
    fs.set_attr(f, &SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() }).unwrap();
    for object in [f, hidden, attribute] {
        let a = fs.attr(object).unwrap();
        assert_eq!((a.uid, a.gid), (Fuid(5), Fuid(6)));
    }
    rig.sync();
    let objects = |kind| {
        let all: Vec<Space> = fs.space(kind).unwrap();
        all.into_iter().map(|s| (s.id.0, s.value)).collect::<Vec<_>>()
    };
    assert!(objects(SpaceKind::ProjectObjUsed).contains(&(9, 3)));
    assert!(objects(SpaceKind::UserObjUsed).contains(&(5, 3)));
    assert!(!objects(SpaceKind::UserObjUsed).iter().any(|(id, _)| *id == 1000));
    let link = make(&fs, root, "link", &NewFile::new(Kind::Symlink(b"f".to_vec()), 0o777));
    assert!(matches!(fs.set_flags(link, 0, 9), Err(zpl::Error::BadFlags { .. })));
    drop(fs);
    let rig = rig.again(Policy::default());
    assert_eq!(rig.fs.attr(f).unwrap().projid, 9);
}

/// Goal: in a directory with an inheritable project, files that can have no project are renamed,
/// replaced, exchanged and linked as elsewhere.
///
/// A regular file of another project is still refused, and one of the same project is accepted.
#[test]
fn a_project_keeps_no_special_file_out() {
    const INHERIT: u32 = 0x2000_0000;
    let rig = Rig::with(&zpl::NewFileSystem::new((1_000_000, 0)), Policy::default());
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let folder = |name: &str| make(&fs, root, name, &NewFile::new(Kind::Directory, 0o755));
    let (dir, inner) = (folder("q"), folder("r"));
    for dir in [dir, inner] {
        fs.set_flags(dir, INHERIT, 3).unwrap();
    }
    let kinds = [
        Kind::Symlink(b"a".to_vec()),
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice(1, 3),
        Kind::BlockDevice(7, 0),
    ];
    let special = |kind: &Kind| NewFile::new(kind.clone(), 0o777);
    for kind in &kinds {
        make(&fs, dir, "own", &special(kind));
        let outside = make(&fs, root, "outside", &special(kind));
        fs.rename((dir, b"own"), (dir, b"new"), Rename::Replace).unwrap();
        fs.rename((dir, b"new"), (inner, b"moved"), Rename::Replace).unwrap();
        // As `ln -sfn` does it.
        make(&fs, inner, "temporary", &special(kind));
        fs.rename((inner, b"temporary"), (inner, b"moved"), Rename::Replace).unwrap();
        fs.rename((root, b"outside"), (dir, b"inside"), Rename::Replace).unwrap();
        fs.rename((dir, b"inside"), (inner, b"moved"), Rename::Exchange).unwrap();
        fs.link(outside, dir, b"link").unwrap();
        for (dir, name) in [(dir, "inside"), (dir, "link"), (inner, "moved")] {
            fs.unlink(dir, name.as_bytes()).unwrap();
        }
    }
    let other = make(&fs, root, "other", &file());
    let refused = [
        fs.rename((root, b"other"), (dir, b"other"), Rename::Replace).map(|_| ()),
        fs.link(other, dir, b"other").map(|_| ()),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(zpl::Error::OtherProject { .. })), "{refused:?}");
    }
    make(&fs, dir, "same", &file());
    fs.rename((dir, b"same"), (inner, b"same"), Rename::Replace).unwrap();
    fs.drain().unwrap();
    drop(fs);
    let dir = rig.export();
    rig::judge(dir.path());
}
