//! Operations on names during which a device fails.

use crate::rig::Rig;
use device::{Device, Fault, Faulty, Op};
use ondisk::ObjNum;
use spa::create::claim_file;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zpl::{DirCookie, FileSystem, FileType, Kind, NewFile, NewFileSystem, Policy, Rename};

fn make(fs: &FileSystem, dir: ObjNum, name: &str, kind: Kind) -> ObjNum {
    fs.create(dir, name.as_bytes(), &NewFile::new(kind, 0o700)).unwrap().object
}

/// Every path with its object and number of links.
///
/// Checks that each file has as many links as names, and each directory as many links as
/// directories lead to it. Files without names must be in the list of unlinked files.
fn names(fs: &FileSystem) -> BTreeMap<String, (ObjNum, u64)> {
    let (mut out, mut links) = (BTreeMap::new(), BTreeMap::from([(fs.root(), 2)]));
    let mut dirs = vec![(fs.root(), String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let entries: Vec<_> = fs.read_dir(dir, DirCookie::START).unwrap().map(|e| e.unwrap()).collect();
        assert_eq!(fs.attr(dir).unwrap().size, entries.len() as u64, "{path}/");
        for e in entries.into_iter().filter(|e| !e.name.starts_with(b".")) {
            let path = format!("{path}/{}", String::from_utf8_lossy(&e.name));
            let a = fs.attr(e.object).unwrap();
            let is_dir = a.kind == FileType::Directory;
            *links.entry(e.object).or_insert(0) += 1 + u64::from(is_dir);
            *links.entry(dir).or_insert(0) += u64::from(is_dir);
            out.insert(path.clone(), (e.object, a.nlink));
            if is_dir {
                assert_eq!(a.parent, dir, "{path}");
                dirs.push((e.object, path));
            }
        }
    }
    for (object, links) in links {
        assert_eq!(fs.attr(object).unwrap().nlink, links, "{object:?} of {out:?}");
    }
    for object in fs.unlinked().unwrap() {
        assert_eq!(fs.attr(object).unwrap().nlink, 0);
    }
    out
}

/// The directories and files that the operations use.
struct Scene {
    rig: Rig,
    device: Arc<Faulty>,
    a: ObjNum,
    b: ObjNum,
}

fn scene() -> Scene {
    let device = Mutex::new(None);
    let claimer = |path: &Path| {
        let (inner, kind) = claim_file(path)?;
        let faulty = Arc::new(Faulty::new(inner, 1));
        *device.lock().unwrap() = Some(faulty.clone());
        Ok((faulty as Arc<dyn Device>, kind))
    };
    let rig = Rig::on(&NewFileSystem::new((1_000_000, 0)), Policy::default(), &claimer);
    let (fs, root) = (&rig.fs, rig.fs.root());
    let [a, b] = ["a", "b"].map(|name| make(fs, root, name, Kind::Directory));
    let x = make(fs, a, "x", Kind::Regular);
    fs.link(x, b, b"x too").unwrap();
    for (dir, name) in [(a, "y"), (b, "z")] {
        make(fs, dir, name, Kind::Regular);
    }
    for (dir, name) in [(a, "d"), (b, "e")] {
        make(fs, dir, name, Kind::Directory);
    }
    // Small directories are wholly in memory. With one long name, or many names, they are not.
    for dir in [a, b] {
        make(fs, dir, &"long".repeat(20), Kind::Regular);
    }
    for _ in 0..2100 {
        fs.create_unnamed(root, &NewFile::new(Kind::Regular, 0o600)).unwrap();
    }
    let device = device.into_inner().unwrap().unwrap();
    Scene { rig, device, a, b }
}

impl Scene {
    /// Runs an operation while only blocks that the open txg has changed can be read. `mask`
    /// selects which of both directories and the list of unlinked files were changed.
    fn attempt(&self, mask: u32, act: &dyn Fn(&Scene) -> zpl::Result<()>) -> zpl::Result<()> {
        let fs = &self.rig.fs;
        self.rig.sync();
        for (bit, dir) in [self.a, self.b].into_iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0) {
            // The name is removed again, but its directory has been changed.
            fs.link(fs.lookup(self.a, b"x").unwrap(), dir, b"more").unwrap();
            assert_eq!(fs.unlink(dir, b"more").unwrap(), None, "{bit}");
        }
        if mask >> 2 & 1 != 0 {
            let new = fs.create_unnamed(self.a, &NewFile::new(Kind::Regular, 0o600)).unwrap();
            fs.reap(new.object).unwrap();
        }
        let device = self.device.clone();
        self.rig.pool.meddle(move |os, _| {
            os.cache().purge();
            device.inject(Fault::Error { op: Op::Read, range: 0..u64::MAX });
        });
        let done = act(self);
        self.device.heal();
        self.rig.pool.live().clear(None).unwrap();
        done
    }
}

type Act = dyn Fn(&Scene) -> zpl::Result<()>;

/// Goal: an operation on names that fails on an unreadable block has no effect. Names and numbers
/// of links stay as they were, and the operation works later.
#[test]
fn half_of_an_operation_is_nothing() {
    const WHITE: Rename = Rename::Whiteout { replace: true, uid: 1, gid: 2 };
    let rename = |from: &'static str, to: &'static str, how: Rename| -> Box<Act> {
        Box::new(move |s: &Scene| {
            let place = |path: &'static str| {
                let (dir, name) = path.split_once('/').unwrap();
                (if dir == "a" { s.a } else { s.b }, name.as_bytes())
            };
            s.rig.fs.rename(place(from), place(to), how).map(drop)
        })
    };
    let acts: Vec<(&str, Box<Act>)> = vec![
        ("link", Box::new(|s| s.rig.fs.link(s.rig.fs.lookup(s.a, b"y")?, s.b, b"y too").map(drop))),
        ("unlink", Box::new(|s| s.rig.fs.unlink(s.a, b"x").map(drop))),
        ("unlink the last", Box::new(|s| s.rig.fs.unlink(s.a, b"y").map(drop))),
        ("rmdir", Box::new(|s| s.rig.fs.rmdir(s.a, b"d").map(drop))),
        ("rename", rename("a/y", "b/new", Rename::NoReplace)),
        ("rename a directory", rename("a/d", "b/new", Rename::NoReplace)),
        ("rename over", rename("a/y", "b/z", Rename::Replace)),
        ("rename over one of two", rename("b/z", "a/x", Rename::Replace)),
        ("rename over a directory", rename("b/e", "a/d", Rename::Replace)),
        ("whiteout", rename("a/y", "b/new", WHITE)),
        ("whiteout over", rename("a/y", "b/z", WHITE)),
        ("exchange", rename("a/d", "b/z", Rename::Exchange)),
    ];
    for (name, act) in &acts {
        let scene = scene();
        let mut failed = 0;
        for mask in 0..8 {
            let before = names(&scene.rig.fs);
            let done = scene.attempt(mask, act);
            let after = names(&scene.rig.fs);
            if done.is_ok() {
                assert_ne!(before, after, "{name}");
                break;
            }
            assert_eq!(before, after, "{name} {mask:b}: {done:?}");
            failed += 1;
        }
        assert!(failed > 0, "{name} did not fail");
        if failed == 8 {
            act(&scene).unwrap();
            names(&scene.rig.fs);
        }
        scene.rig.fs.drain().unwrap();
        assert_eq!(scene.rig.fs.unlinked().unwrap(), []);
        // An image has one owner at a time.
        let Scene { rig, device, .. } = scene;
        drop(device);
        let rig = rig.again(Policy::default());
        names(&rig.fs);
    }
}
