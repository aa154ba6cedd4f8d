//! Random operations on files, compared with a model in memory, with exports and imports in
//! between. The environment variables `SEED` and `STEPS` select the run.

use crate::rig;

use crate::rig::Rig;
use ondisk::ObjNum;
use std::collections::BTreeMap;
use zpl::{DirCookie, Error, FileSystem, FileType, Kind, NewFile, Policy, Rename, SetAttr, SetXattr};

/// A small generator of random numbers that depend only on the seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The expected state of a file.
#[derive(Debug, Clone)]
struct File {
    kind: FileType,
    mode: u32,
    parent: ObjNum,
    links: u64,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, ObjNum>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Model {
    files: BTreeMap<ObjNum, File>,
    root: ObjNum,
}

impl Model {
    fn of_kind(&self, directory: bool) -> Vec<ObjNum> {
        let wanted = |f: &File| (f.kind == FileType::Directory) == directory;
        self.files.iter().filter(|(_, f)| wanted(f)).map(|(o, _)| *o).collect()
    }

    fn subdirs(&self, dir: ObjNum) -> u64 {
        let is_dir = |o: &&ObjNum| self.files[*o].kind == FileType::Directory;
        self.files[&dir].entries.values().filter(is_dir).count() as u64
    }

    fn below(&self, mut at: ObjNum, top: ObjNum) -> bool {
        while at != self.root {
            if at == top {
                return true;
            }
            at = self.files[&at].parent;
        }
        at == top
    }

    fn file(&mut self, object: ObjNum) -> &mut File {
        self.files.get_mut(&object).unwrap()
    }

    /// Removes a name of a file.
    fn drop_link(&mut self, object: ObjNum) {
        let f = self.file(object);
        f.links = if f.kind == FileType::Directory { 0 } else { f.links - 1 };
        if f.links == 0 {
            self.files.remove(&object);
        }
    }

    /// Compares all files with the file system.
    fn check(&self, fs: &FileSystem) {
        for (object, f) in &self.files {
            let node = fs.node(*object).unwrap();
            let a = *node.attr();
            assert_eq!((a.kind, a.mode & 0o7777), (f.kind, f.mode), "{object}");
            if f.kind == FileType::Directory {
                let listed: BTreeMap<Vec<u8>, ObjNum> = node
                    .read_dir(DirCookie(2))
                    .unwrap()
                    .map(|e| e.map(|e| (e.name, e.object)).unwrap())
                    .collect();
                assert_eq!(listed, f.entries, "{object}");
                assert_eq!(a.size, f.entries.len() as u64 + 2, "{object}");
                assert_eq!(a.nlink, self.subdirs(*object) + 2, "{object}");
                assert_eq!(a.parent, f.parent, "{object}");
            } else if f.kind == FileType::Symlink {
                assert_eq!(node.readlink().unwrap(), f.data, "{object}");
            } else {
                assert_eq!((a.size, a.nlink), (f.data.len() as u64, f.links), "{object}");
                let mut data = vec![0; f.data.len()];
                assert_eq!(fs.read(*object, 0, &mut data).unwrap(), data.len());
                assert!(data == f.data, "{object}: contents");
            }
            assert_eq!(node.xattrs().unwrap(), f.xattrs, "{object}");
        }
    }
}

fn name(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(24);
    // Long names make a directory a fat ZAP.
    if n % 5 == 4 { format!("{n}-{}", "long".repeat(20)).into_bytes() } else { format!("n{n}").into_bytes() }
}

fn bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    let word = rng.next();
    (0..len).map(|i| (word >> (i % 57)) as u8 ^ (i >> 9) as u8).collect()
}

struct Run {
    rng: Rng,
    model: Model,
}

impl Run {
    fn dir(&mut self) -> ObjNum {
        let all = self.model.of_kind(true);
        self.rng.pick(&all)
    }

    fn plain(&mut self) -> Option<ObjNum> {
        let all: Vec<ObjNum> = self.model.of_kind(false);
        let all: Vec<ObjNum> =
            all.into_iter().filter(|o| self.model.files[o].kind == FileType::Regular).collect();
        (!all.is_empty()).then(|| self.rng.pick(&all))
    }

    fn create(&mut self, fs: &FileSystem) {
        let (dir, name) = (self.dir(), name(&mut self.rng));
        let kind = match self.rng.below(6) {
            0 | 1 => Kind::Directory,
            2 => {
                let len = self.rng.pick(&[1, 40, 200, 900]);
                Kind::Symlink(bytes(&mut self.rng, len).iter().map(|b| b | 0x40).collect())
            }
            _ => Kind::Regular,
        };
        let new = NewFile::new(kind.clone(), self.rng.next() as u32 & 0o7777);
        let made = fs.create(dir, &name, &new);
        if self.model.files[&dir].entries.contains_key(&name) {
            assert!(matches!(made, Err(Error::Exists { .. })), "{made:?}");
            return;
        }
        let object = made.unwrap().object;
        let (kind, data) = match kind {
            Kind::Directory => (FileType::Directory, Vec::new()),
            Kind::Symlink(to) => (FileType::Symlink, to),
            _ => (FileType::Regular, Vec::new()),
        };
        // A new directory in a set-group-id directory is set-group-id too.
        let parents = self.model.files[&dir].mode & 0o2000;
        let mode = new.permissions | if kind == FileType::Directory { parents } else { 0 };
        let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
        let file = File { kind, mode, parent: dir, links: 1, data, entries, xattrs };
        assert!(self.model.files.insert(object, file).is_none(), "{object} is new");
        self.model.file(dir).entries.insert(name, object);
    }

    fn change(&mut self, fs: &FileSystem) {
        let Some(object) = self.plain() else { return };
        let scale = self.rng.pick(&[600, 5000, 200_000, 900_000]);
        let (at, len) = (self.rng.below(scale), self.rng.below(scale / 2 + 1));
        let what = self.rng.below(8);
        let new = bytes(&mut self.rng, len);
        let data = &mut self.model.file(object).data;
        let (start, end) = (at as usize, (at + len) as usize);
        match what {
            0 => {
                fs.truncate(object, at, false).unwrap();
                data.resize(start, 0);
            }
            1 => {
                fs.punch(object, at, len).unwrap();
                let end = end.min(data.len());
                data[start.min(end)..end].fill(0);
            }
            2 => {
                fs.extend(object, at).unwrap();
                data.resize(start.max(data.len()), 0);
            }
            _ => {
                fs.write(object, at, &new, false).unwrap();
                if len > 0 {
                    data.resize(end.max(data.len()), 0);
                    data[start..end].copy_from_slice(&new);
                }
            }
        }
    }

    fn remove(&mut self, fs: &FileSystem) {
        let (dir, name) = (self.dir(), name(&mut self.rng));
        let Some(object) = self.model.files[&dir].entries.get(&name).copied() else {
            assert!(matches!(fs.unlink(dir, &name), Err(Error::NoEntry { .. })));
            return;
        };
        let f = &self.model.files[&object];
        if f.kind == FileType::Directory {
            assert!(matches!(fs.unlink(dir, &name), Err(Error::IsDirectory { .. })));
            let removed = fs.rmdir(dir, &name);
            if !f.entries.is_empty() {
                assert!(matches!(removed, Err(Error::NotEmpty { .. })));
                return;
            }
            removed.unwrap();
        } else {
            assert!(matches!(fs.rmdir(dir, &name), Err(Error::NotDirectory { .. })));
            let last = f.links == 1;
            assert_eq!(fs.unlink(dir, &name).unwrap(), last.then_some(object));
        }
        self.model.file(dir).entries.remove(&name);
        self.model.drop_link(object);
        // Some files are left for the next mount.
        if self.rng.below(4) > 0 {
            fs.reap(object).unwrap();
        }
    }

    fn rename(&mut self, fs: &FileSystem) {
        let (from, to) = (self.dir(), self.dir());
        let (name, new) = (name(&mut self.rng), name(&mut self.rng));
        let how = self.rng.pick(&[Rename::Replace, Rename::Replace, Rename::NoReplace, Rename::Exchange]);
        let did = fs.rename((from, &name), (to, &new), how);
        let m = &mut self.model;
        let source = m.files[&from].entries.get(&name).copied();
        let target = m.files[&to].entries.get(&new).copied();
        let is_dir = |o: ObjNum| m.files[&o].kind == FileType::Directory;
        let Some(s) = source else {
            assert!(matches!(did, Err(Error::NoEntry { .. })), "{did:?}");
            return;
        };
        let loops = is_dir(s) && m.below(to, s)
            || how == Rename::Exchange && target.is_some_and(|t| is_dir(t) && m.below(from, t));
        let refused = loops
            || how == Rename::NoReplace && target.is_some()
            || how == Rename::Exchange && target.is_none()
            || how == Rename::Replace
                && target
                    .is_some_and(|t| s != t && (is_dir(s) != is_dir(t) || !m.files[&t].entries.is_empty()));
        if refused {
            assert!(did.is_err(), "{how:?}");
            return;
        }
        let gone = did.unwrap();
        if target == Some(s) {
            return;
        }
        m.file(to).entries.insert(new.clone(), s);
        m.file(s).parent = to;
        match (target, how) {
            (Some(t), Rename::Exchange) => {
                m.file(from).entries.insert(name, t);
                m.file(t).parent = from;
            }
            _ => {
                m.file(from).entries.remove(&name);
            }
        }
        if let Some(t) = target.filter(|_| how != Rename::Exchange) {
            m.drop_link(t);
            assert_eq!(gone, (!m.files.contains_key(&t)).then_some(t));
            if gone.is_some() && self.rng.below(4) > 0 {
                fs.reap(t).unwrap();
            }
        }
    }

    fn link(&mut self, fs: &FileSystem) {
        let Some(object) = self.plain() else { return };
        let (dir, name) = (self.dir(), name(&mut self.rng));
        let linked = fs.link(object, dir, &name);
        if self.model.files[&dir].entries.contains_key(&name) {
            assert!(matches!(linked, Err(Error::Exists { .. })));
            return;
        }
        linked.unwrap();
        self.model.file(object).links += 1;
        self.model.file(dir).entries.insert(name, object);
    }

    fn attributes(&mut self, fs: &FileSystem) {
        let all: Vec<ObjNum> = self.model.files.keys().copied().collect();
        let object = self.rng.pick(&all);
        if self.rng.below(3) == 0 {
            let permissions = self.rng.next() as u32 & 0o7777;
            let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
            fs.set_attr(object, &set).unwrap();
            self.model.file(object).mode = permissions;
            return;
        }
        let name = format!("user.{}", self.rng.below(4)).into_bytes();
        if self.rng.below(3) == 0 {
            let removed = fs.remove_xattr(object, &name);
            let had = self.model.file(object).xattrs.remove(&name).is_some();
            assert_eq!(removed.is_ok(), had, "{removed:?}");
        } else {
            let len = self.rng.pick(&[0, 10, 300, 3000, 40_000]);
            let value = bytes(&mut self.rng, len);
            fs.set_xattr(object, &name, &value, SetXattr::Either).unwrap();
            self.model.file(object).xattrs.insert(name, value);
        }
    }

    fn step(&mut self, fs: &FileSystem) {
        match self.rng.below(16) {
            0..4 => self.create(fs),
            4..9 => self.change(fs),
            9..11 => self.remove(fs),
            11..13 => self.rename(fs),
            13 => self.link(fs),
            _ => self.attributes(fs),
        }
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(otherwise)
}

/// Goal: after random operations, files match the model, at once and after an export, and the pool
/// is sound.
#[test]
fn as_the_model_says() {
    let (seed, steps) = (number("SEED", 7), number("STEPS", 1500));
    println!("SEED={seed} STEPS={steps}");
    let mut rig = Rig::new();
    let root = rig.fs.root();
    let top = File {
        kind: FileType::Directory,
        mode: 0o755,
        parent: root,
        links: 2,
        data: Vec::new(),
        entries: BTreeMap::new(),
        xattrs: BTreeMap::new(),
    };
    let mut run = Run {
        rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        model: Model { files: BTreeMap::from([(root, top)]), root },
    };
    for part in 0..3 {
        for step in 0..steps / 3 {
            run.step(&rig.fs);
            if step % 100 == 99 {
                rig.sync();
            }
            if step % 250 == 249 {
                run.model.check(&rig.fs);
            }
        }
        run.model.check(&rig.fs);
        let recordsize = [4096, 1 << 20, 128 << 10][part];
        rig = rig.again(Policy { recordsize, xattr_sa: part != 0, ..Policy::default() });
        assert!(rig.fs.drain().is_ok());
        assert!(rig.fs.unlinked().unwrap().is_empty());
        run.model.check(&rig.fs);
    }
    rig::judge(rig.export().path());
}
