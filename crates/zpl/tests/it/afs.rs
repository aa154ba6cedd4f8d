//! The status that a volume of an AFS cell keeps with each file.

use crate::rig::Rig;
use dmu::zap::Zap;
use ondisk::sa::Attr;
use ondisk::{DmuType, ObjNum};
use zpl::{
    AfsRoot, AfsStatus, Error, FileSystem, Kind, NewFile, NewFileSystem, Place, Policy, Rename, SetAttr,
};

const ROOT: ObjNum = ObjNum(257);

fn volume() -> Rig {
    let status = AfsStatus { author: 7, access_list: b"an access list".to_vec(), ..AfsStatus::default() };
    let afs = Some(AfsRoot { object: ROOT, generation: 1, status, header: Vec::new() });
    Rig::with(&NewFileSystem { afs, ..NewFileSystem::new((1_000_000, 0)) }, Policy::default())
}

fn status(fs: &FileSystem, object: ObjNum) -> AfsStatus {
    fs.node(object).unwrap().afs_status().unwrap().expect("a volume keeps it with each file")
}

fn version(fs: &FileSystem, object: ObjNum) -> u64 {
    status(fs, object).data_version
}

fn make(fs: &FileSystem, dir: ObjNum, name: &str, kind: Kind, object: u64) -> ObjNum {
    let place = Place { object: ObjNum(object), generation: object + 1000 };
    let made = fs.create_at(dir, name.as_bytes(), &NewFile::new(kind, 0o755), place, None).unwrap();
    assert_eq!((made.object, made.generation), (place.object, place.generation));
    made.object
}

/// Goal: each change of contents raises the version of a file by one, and each change of entries
/// that of each directory by one, also a rename within a directory. Other changes leave versions
/// alone, and reads leave everything alone. All of it is there after an import.
#[test]
fn versions() {
    let rig = volume();
    let fs = rig.fs.by_afs_user(11);
    assert!(fs.is_afs() && fs.root() == ROOT);
    let mut versions = (0, 0);
    let dir = make(&fs, ROOT, "d", Kind::Directory, 259);
    let mut expect = |fs: &FileSystem, what: &str, root: u64, below: u64| {
        versions = (versions.0 + root, versions.1 + below);
        assert_eq!((version(fs, ROOT), version(fs, dir)), versions, "{what}");
    };
    expect(&fs, "mkdir", 1, 0);
    let file = make(&fs, dir, "f", Kind::Regular, 258);
    expect(&fs, "create", 0, 1);
    let other = make(&fs, dir, "g", Kind::Symlink(b"#a.volume.".to_vec()), 260);
    expect(&fs, "symlink", 0, 1);
    fs.link(file, dir, b"h").unwrap();
    expect(&fs, "link", 0, 1);
    fs.rename((dir, b"h"), (dir, b"i"), Rename::Replace).unwrap();
    expect(&fs, "rename", 0, 1);
    fs.rename((dir, b"i"), (ROOT, b"i"), Rename::Replace).unwrap();
    expect(&fs, "rename to another directory", 1, 1);
    fs.rename((dir, b"g"), (ROOT, b"i"), Rename::Replace).unwrap();
    expect(&fs, "rename over a file", 1, 1);
    assert_eq!(version(&fs, other), 0);
    fs.unlink(ROOT, b"i").unwrap();
    expect(&fs, "unlink", 1, 0);

    assert_eq!(status(&fs, file).author, 11);
    drop(fs);
    let fs = rig.fs.by_afs_user(12);
    fs.write(file, 0, b"contents", false).unwrap();
    fs.truncate(file, 3, false).unwrap();
    assert_eq!((version(&fs, file), status(&fs, file).author), (2, 12));
    let before = status(&fs, file);
    fs.set_attr(file, &SetAttr { permissions: Some(0o600), ..SetAttr::default() }).unwrap();
    let after = status(&fs, file);
    assert_eq!((after.data_version, after.author), (before.data_version, before.author));
    assert!(after.server_mtime > before.server_mtime);
    fs.read(file, 0, &mut [0; 8]).unwrap();
    fs.accessed(file).unwrap();
    assert_eq!(status(&fs, file), after);
    // The front ends that know no user of the cell change versions too.
    rig.fs.write(file, 0, b"more", false).unwrap();
    assert_eq!((version(&fs, file), status(&fs, file).author), (3, 12));

    rig.fs.write(file, 0, &vec![1; 3 << 20], false).unwrap();
    assert_eq!(version(&fs, file), 4, "a write in several transactions is one operation");

    let all: Vec<AfsStatus> = [ROOT, dir, file].map(|object| status(&fs, object)).to_vec();
    drop(fs);
    let rig = rig.again(Policy::default());
    let fs = &rig.fs;
    assert!(fs.is_afs());
    assert_eq!([ROOT, dir, file].map(|object| status(fs, object)).to_vec(), all);
    assert_eq!(fs.node(file).unwrap().attr().generation, 1258);
    expect(fs, "import", 0, 0);
}

/// Goal: directories inherit the access list of their parent, and no number is taken twice. Other
/// file systems have none of this.
#[test]
fn births() {
    let rig = volume();
    let dir = make(&rig.fs, ROOT, "d", Kind::Directory, 259);
    let file = make(&rig.fs, dir, "f", Kind::Regular, 300);
    assert_eq!(status(&rig.fs, dir).access_list, b"an access list");
    assert!(status(&rig.fs, file).access_list.is_empty());
    let place = Place { object: ObjNum(300), generation: 1 };
    let taken = rig.fs.create_at(dir, b"g", &NewFile::new(Kind::Regular, 0o644), place, None);
    assert!(matches!(taken, Err(Error::Dmu(dmu::Error::ObjectExists { .. }))), "{taken:?}");
    assert!(rig.fs.lookup(dir, b"g").is_err());
    rig.again(Policy::default());

    let plain = Rig::new();
    let made = plain.fs.create(plain.fs.root(), b"f", &NewFile::new(Kind::Regular, 0o644)).unwrap();
    assert!(!plain.fs.is_afs() && plain.fs.node(made.object).unwrap().afs_status().unwrap().is_none());
}

/// Goal: a malformed status keeps no user from changing and removing the file, or from using the
/// directory.
#[test]
fn damaged() {
    let rig = volume();
    let dir = make(&rig.fs, ROOT, "d", Kind::Directory, 259);
    let file = make(&rig.fs, dir, "f", Kind::Regular, 258);
    for object in [dir, file] {
        let fs = rig.fs.clone();
        rig.pool.meddle(move |_, tx| {
            let node = fs.node(object).unwrap();
            fs.sa().set(node.dnode(), tx, &[(Attr::Afs, Some(&[9, 9]))]).unwrap();
        });
        rig.fs.set_attr(file, &SetAttr { permissions: Some(0o600), ..SetAttr::default() }).unwrap();
        assert!(rig.fs.node(object).unwrap().afs_status().is_err());
    }
    rig.fs.write(file, 0, b"contents", false).unwrap();
    let new = make(&rig.fs, dir, "g", Kind::Regular, 260);
    assert_eq!(version(&rig.fs, new), 0);
    rig.fs.rename((dir, b"g"), (ROOT, b"g"), Rename::Replace).unwrap();
    rig.fs.unlink(dir, b"f").unwrap();
    rig.fs.rmdir(ROOT, b"d").unwrap();
}

/// Goal: a malformed status is an error.
#[test]
fn malformed() {
    let good = AfsStatus { author: -1, data_version: 5, server_mtime: 6, access_list: vec![1, 2, 3] };
    let raw = good.encode();
    assert_eq!(AfsStatus::decode(&raw).unwrap(), good);
    assert!(AfsStatus::decode(&raw[..23]).is_err());
    assert!(AfsStatus::decode(&[raw.clone(), vec![0; 600]].concat()).is_err());
    assert!(AfsStatus::decode(&[&[2], &raw[1..]].concat()).is_err());
}

/// Goal: the header of a volume is found again, whether its object has a place for it or not. A
/// short one costs no block of its own: all that an opening reads is in the first dnodes, and the
/// master node stays a micro ZAP. The tree of dnodes has levels for as many vnodes as can be.
#[test]
fn headers() {
    let mut rig = volume();
    let phys = rig.fs.objset().phys();
    assert_eq!((phys.meta_dnode.nlevels, phys.meta_dnode.indblkshift), (4, 16));
    assert_eq!(rig.fs.afs_header().unwrap(), None);
    let kind = |fs: &FileSystem, object| {
        let dn = fs.objset().dnode(ObjNum(object)).unwrap();
        let is_fat = Zap::open(&dn).is_ok_and(|zap| zap.dnode().phys().datablksz >= 16 << 10);
        (dn.kind(), is_fat)
    };
    for (len, is_long) in [(1, false), (318, false), (319, true), (4096, true), (200, false)] {
        let header: Vec<u8> = (0..len).map(|at: usize| (at % 251) as u8 + 1).collect();
        rig.fs.set_afs_header(&header).unwrap();
        assert_eq!(rig.fs.afs_header().unwrap().as_ref(), Some(&header), "{len} bytes");
        rig = rig.again(Policy::default());
        assert_eq!(rig.fs.afs_header().unwrap().as_ref(), Some(&header), "{len} bytes, after an import");
        let is_fat = kind(&rig.fs, 1) == (DmuType::MASTER_NODE, true);
        assert!(is_fat || !is_long, "{len} bytes");
        assert!(is_long || len == 200 || !is_fat, "{len} bytes");
    }
    let kinds: Vec<DmuType> = (1..7).map(|object| kind(&rig.fs, object).0).collect();
    let expected = [
        DmuType::MASTER_NODE,
        DmuType::SA_MASTER_NODE,
        DmuType::SA_ATTR_REGISTRATION,
        DmuType::SA_ATTR_LAYOUTS,
        DmuType::UNLINKED_SET,
        DmuType::UINT8_METADATA,
    ];
    assert_eq!(kinds, expected);
}

/// Goal: a volume whose header has no object of its own, as former releases made them, keeps its
/// header in the master node.
#[test]
fn headers_of_former_releases() {
    let rig = volume();
    let master = Zap::open(&rig.fs.objset().dnode(ObjNum(1)).unwrap()).unwrap();
    let hold = rig.pool.live().tx(0).unwrap();
    master.remove(&hold, b"POOLHOUSE_AFS_HEADER_OBJECT").unwrap();
    drop(hold);
    assert_eq!(rig.fs.afs_header().unwrap(), None);
    rig.fs.set_afs_header(b"a header").unwrap();
    assert_eq!(rig.fs.afs_header().unwrap().unwrap(), b"a header");
    assert!(master.lookup(b"POOLHOUSE_AFS_HEADER").unwrap().is_some());
    drop(master);
    let rig = rig.again(Policy::default());
    assert_eq!(rig.fs.afs_header().unwrap().unwrap(), b"a header");
}
