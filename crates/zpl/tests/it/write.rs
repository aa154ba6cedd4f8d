//! Files that are created, written and removed, checked by OpenZFS's `zdb` if there is one.

use crate::rig;

use crate::rig::{Rig, ask};
use ondisk::ObjNum;
use zpl::{
    DirCookie, Error, FileSystem, FileType, Kind, NewFile, NewFileSystem, Part, Policy, SetXattr, Unlinked,
};

fn file() -> NewFile {
    NewFile { uid: 1000, gid: 100, ..NewFile::new(Kind::Regular, 0o640) }
}

fn dir() -> NewFile {
    NewFile::new(Kind::Directory, 0o755)
}

fn make(fs: &FileSystem, at: ObjNum, name: &str, new: &NewFile) -> ObjNum {
    fs.create(at, name.as_bytes(), new).unwrap().object
}

fn names(fs: &FileSystem, dir: ObjNum) -> Vec<String> {
    let all = fs.read_dir(dir, DirCookie(2)).unwrap().map(|e| String::from_utf8(e.unwrap().name).unwrap());
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn contents(fs: &FileSystem, object: ObjNum) -> Vec<u8> {
    let mut all = vec![0; fs.attr(object).unwrap().size as usize];
    assert_eq!(fs.read(object, 0, &mut all).unwrap(), all.len());
    all
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    })
    .take(len)
    .collect()
}

/// Goal: files of all types survive an export, as `zdb` shows them; removed files are gone.
#[test]
fn a_first_tree() {
    let rig = Rig::new();
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let d = make(&fs, root, "d", &dir());
    let f = make(&fs, d, "f", &file());
    let data = pattern(300_000, 1);
    fs.write(f, 0, &data, false).unwrap();
    make(&fs, root, "link", &NewFile::new(Kind::Symlink(b"d/f".to_vec()), 0o777));
    make(&fs, root, "null", &NewFile::new(Kind::CharDevice(1, 3), 0o666));
    make(&fs, root, "pipe", &NewFile::new(Kind::Fifo, 0o600));
    make(&fs, root, "sock", &NewFile::new(Kind::Socket, 0o600));
    let gone = make(&fs, root, "gone", &file());
    fs.write(gone, 0, &data, false).unwrap();
    assert_eq!(fs.unlink(root, b"gone").unwrap(), Some(gone));
    assert_eq!(contents(&fs, gone), data, "an open file outlives its name");
    fs.reap(gone).unwrap();
    assert!(matches!(fs.node(gone), Err(Error::NoFile { .. })));
    assert!(matches!(fs.create(root, b"d", &dir()), Err(Error::Exists { .. })));
    assert!(matches!(fs.rmdir(root, b"d"), Err(Error::NotEmpty { .. })));
    assert!(matches!(fs.unlink(root, b"d"), Err(Error::IsDirectory { .. })));
    let a = fs.attr(root).unwrap();
    assert_eq!((a.size, a.nlink), (7, 3));
    drop(fs);
    let rig = rig.again(Policy::default());
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    assert_eq!(names(&fs, root), ["d", "link", "null", "pipe", "sock"]);
    assert_eq!(contents(&fs, f), data);
    assert_eq!(fs.resolve(b"link").unwrap().object(), f);
    let null = fs.resolve(b"null").unwrap();
    assert_eq!((null.attr().kind, null.attr().rdev), (FileType::CharDevice, Some((1, 3))));
    let a = fs.attr(f).unwrap();
    assert_eq!((a.mode, a.uid.0, a.gid.0, a.nlink, a.parent), (0o100_640, 1000, 100, 1, d));
    fs.unlink(d, b"f").unwrap();
    let empty = fs.rmdir(root, b"d").unwrap();
    assert_eq!(empty, d);
    assert_eq!(fs.drain().unwrap(), 2);
    assert_eq!(fs.unlinked().unwrap(), []);
    let h = make(&fs, root, "hello", &file());
    fs.write(h, 5, b"world", false).unwrap();
    drop((fs, null));
    let exported = rig.export();
    rig::judge(exported.path());
    if let Some(shown) = ask(exported.path(), &["-ddddd", "tank/", &h.0.to_string()]) {
        for part in [
            "size\t10",
            "mode\t100640",
            "uid     1000",
            "gid     100",
            "links\t1",
            "path\t/hello",
            "System attributes",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

/// Goal: a file whose hidden directory can't be freed with it stays unchanged, in the list of
/// unlinked files.
///
/// A file that can't be freed itself keeps its hidden directory, which is not in the list.
#[test]
fn files_are_freed_with_their_hidden_directories() {
    let rig = Rig::with(&NewFileSystem::new((0, 0)), Policy { xattr_sa: false, ..Policy::default() });
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let unlinked = |name: &str| {
        let f = make(&fs, root, name, &file());
        fs.set_xattr(f, b"user.a", b"value", SetXattr::Either).unwrap();
        let hidden = fs.node(f).unwrap().attr().xattr_dir.unwrap();
        assert_eq!(fs.unlink(root, name.as_bytes()).unwrap(), Some(f));
        (f, hidden)
    };
    let (f, hidden) = unlinked("f");
    rig.pool.meddle(move |os, tx| os.free_object(tx, hidden).unwrap());
    assert!(fs.reap(f).is_err());
    assert!(fs.node(f).is_ok(), "it is there for another try");
    assert_eq!(fs.unlinked().unwrap(), [f]);
    assert_eq!(fs.drain().unwrap(), 1);
    assert!(matches!(fs.node(f), Err(Error::NoFile { .. })));
    let (g, hidden) = unlinked("g");
    rig.pool.meddle(move |os, tx| os.free_object(tx, g).unwrap());
    assert!(fs.reap(g).is_err());
    assert_eq!(fs.unlinked().unwrap(), [g]);
    assert!(fs.node(hidden).is_ok());
}

/// Goal: an attribute longer than Linux's limit, as another system can write one, can't be read. It
/// can be replaced and removed.
#[test]
fn an_attribute_that_is_too_long() {
    let rig = Rig::with(&NewFileSystem::new((0, 0)), Policy { xattr_sa: false, ..Policy::default() });
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let f = make(&fs, root, "f", &file());
    let value = || fs.node(f).unwrap().xattr(b"user.a");
    let lengthen = || {
        fs.set_xattr(f, b"user.a", b"value", SetXattr::Either).unwrap();
        let hidden = fs.attr(f).unwrap().xattr_dir.unwrap();
        let stored = fs.read_dir(hidden, DirCookie(2)).unwrap().next().unwrap().unwrap();
        fs.write(stored.object, 0, &pattern(70_000, 1), false).unwrap();
        assert!(matches!(value(), Err(Error::XattrTooLarge { size: 70_000, .. })));
    };
    lengthen();
    let exists = fs.set_xattr(f, b"user.a", b"new", SetXattr::Create);
    assert!(matches!(exists, Err(Error::XattrExists { .. })), "{exists:?}");
    fs.set_xattr(f, b"user.a", b"new", SetXattr::Replace).unwrap();
    assert_eq!(value().unwrap(), b"new");
    lengthen();
    fs.remove_xattr(f, b"user.a").unwrap();
    assert!(matches!(value(), Err(Error::NoXattr { .. })));
    assert!(matches!(fs.remove_xattr(f, b"user.a"), Err(Error::NoXattr { .. })));
    drop(fs);
    rig::judge(rig.export().path());
}

/// Goal: a file without users is freed with its last name, in the same transaction if it is small.
/// Other files wait in the list of unlinked files, as after `unlink`.
#[test]
fn files_without_users() {
    let rig = Rig::new();
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let d = make(&fs, root, "d", &dir());
    let small = make(&fs, d, "small", &file());
    fs.write(small, 0, &pattern(3_000, 1), false).unwrap();
    let synced = make(&fs, d, "synced", &file());
    fs.write(synced, 0, &pattern(3_000, 2), false).unwrap();
    let linked = make(&fs, d, "linked", &file());
    fs.link(linked, d, b"other").unwrap();
    let large = make(&fs, d, "large", &file());
    fs.write(large, 0, &pattern(700_000, 3), false).unwrap();
    rig.sync();
    let young = make(&fs, d, "young", &file());
    fs.write(young, 0, b"young", false).unwrap();

    for (name, object) in [(&b"small"[..], small), (b"synced", synced), (b"young", young)] {
        assert_eq!(fs.unlink_unused(d, name).unwrap(), Unlinked::Freed);
        assert!(matches!(fs.attr(object), Err(Error::NoFile { .. })));
    }
    assert_eq!(fs.unlink_unused(d, b"linked").unwrap(), Unlinked::Named);
    assert_eq!(fs.attr(linked).unwrap().nlink, 1);
    assert!(!fs.has_orphans());
    assert_eq!(fs.unlink_unused(d, b"large").unwrap(), Unlinked::Orphan(large));
    assert!(fs.has_orphans() && fs.attr(large).is_ok());
    fs.reap(large).unwrap();
    assert!(matches!(fs.unlink_unused(d, b"small"), Err(Error::NoEntry { .. })));
    assert!(matches!(fs.unlink_unused(root, b"d"), Err(Error::IsDirectory { .. })));
    assert_eq!(names(&fs, d), ["other"]);
    assert_eq!(fs.attr(d).unwrap().size, 3);
    drop(fs);
    rig.again(Policy::default());
}

/// Goal: the blocks of a file are its contents, with holes and the end, before and after a sync. A
/// later write does not change them.
#[test]
fn blocks_are_the_contents() {
    let rig = Rig::new();
    let (fs, root) = (rig.fs.clone(), rig.fs.root());
    let f = make(&fs, root, "f", &file());
    let read = |parts: &[Part]| -> Vec<u8> {
        let bytes = |part: &Part| match &part.block {
            Some(block) => block[part.range.clone()].to_vec(),
            None => vec![0; part.range.len()],
        };
        parts.iter().flat_map(bytes).collect()
    };
    assert!(fs.read_blocks(f, 0, 100).unwrap().is_empty());
    fs.write(f, 0, &pattern(300_000, 1), false).unwrap();
    fs.write(f, 900_000, &pattern(300_001, 2), false).unwrap();
    let all = contents(&fs, f);
    for _ in 0..2 {
        for (from, len) in [(0, u64::MAX), (1, 5), (131_000, 300_000), (500_000, 10), (1_200_000, 9)] {
            let end = (from + len.min(2_000_000)).min(all.len() as u64);
            let found = read(&fs.read_blocks(f, from, len).unwrap());
            assert!(found == all[from as usize..end as usize], "{from}+{len}");
        }
        let before = fs.read_blocks(f, 0, 4_000).unwrap();
        fs.write(f, 0, &[7; 4_000], false).unwrap();
        assert!(read(&before) == all[..4_000]);
        fs.write(f, 0, &all[..4_000], false).unwrap();
        rig.sync();
    }
    assert!(fs.read_blocks(f, 2_000_000, 1).unwrap().is_empty());
    assert!(matches!(fs.read_blocks(root, 0, 1), Err(Error::IsDirectory { .. })));
}
