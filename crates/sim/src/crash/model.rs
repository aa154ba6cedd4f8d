//! Files as the last transaction group left them, with the records of the log applied.

use std::collections::{BTreeMap, HashMap};

use ondisk::zil::{ClonedRange, Create, RecordBody, Rename, TxKind, Write};
use ondisk::{BlkId, Blkptr, ObjNum};
use zil::{Log, LogRecord};
use zpl::{DirCookie, FileSystem, FileType, Node};

/// The type bits of a mode, and their value for a directory.
const TYPE: u64 = 0o170_000;
const DIRECTORY: u64 = 0o040_000;
/// In a record of attributes: the mode is set.
const ATTR_MODE: u64 = 1;

/// A file or directory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) mode: u64,
    pub(super) contents: Vec<u8>,
    /// Extended attributes, without those that are files in the directory `hidden`.
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    hidden: Option<u64>,
}

/// The part of a file system that the workload changes.
#[derive(Default)]
pub(super) struct Model {
    root: u64,
    names: HashMap<(u64, Vec<u8>), u64>,
    files: HashMap<u64, File>,
}

/// The result of applying a record.
pub(super) enum Applied {
    Done,
    /// The record is impossible in this state.
    Senseless,
    /// The record names a block that can't be read. The log ends here.
    End,
}

impl Model {
    /// Loads the contents of a file system.
    pub(super) fn load(fs: &FileSystem) -> zpl::Result<Model> {
        let root = fs.root();
        let mut out = Model { root: root.0, ..Model::default() };
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            for entry in fs.read_dir(dir, DirCookie::START)? {
                let entry = entry?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                out.names.insert((dir.0, entry.name), entry.object.0);
                let node = fs.node(entry.object)?;
                out.add(fs, &node)?;
                dirs.extend((node.attr().kind == FileType::Directory).then_some(entry.object));
            }
        }
        Ok(out)
    }

    fn add(&mut self, fs: &FileSystem, node: &Node) -> zpl::Result<()> {
        let a = *node.attr();
        let regular = a.kind == FileType::Regular;
        let mut contents = vec![0; if regular { a.size as usize } else { 0 }];
        if regular {
            node.read(0, &mut contents)?;
        }
        let mut xattrs =
            node.xattrs()?.into_iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect::<BTreeMap<_, _>>();
        if let Some(hidden) = a.xattr_dir {
            self.files.insert(hidden.0, File { mode: DIRECTORY, ..File::default() });
            for entry in fs.read_dir(hidden, DirCookie::START)? {
                let entry = entry?;
                if let Some(contents) = xattrs.remove(&entry.name) {
                    self.files.insert(entry.object.0, File { contents, ..File::default() });
                    self.names.insert((hidden.0, entry.name), entry.object.0);
                }
            }
        }
        let file = File { mode: a.mode.into(), contents, xattrs, hidden: a.xattr_dir.map(|o| o.0) };
        self.files.insert(a.object.0, file);
        Ok(())
    }

    /// The file of a path below the root.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        let mut at = self.root;
        for name in path.split('/') {
            at = *self.names.get(&(at, name.as_bytes().to_vec()))?;
        }
        self.files.get(&at)
    }

    /// What a reader sees: each path, and its file.
    pub(super) fn seen(&self) -> BTreeMap<Vec<u8>, File> {
        let mut below: HashMap<u64, Vec<(&[u8], u64)>> = HashMap::new();
        for ((dir, name), object) in &self.names {
            below.entry(*dir).or_default().push((name, *object));
        }
        let mut out = BTreeMap::new();
        let mut dirs = vec![(self.root, Vec::new())];
        while let Some((dir, path)) = dirs.pop() {
            for (name, object) in below.remove(&dir).unwrap_or_default() {
                let path = [&path[..], b"/", name].concat();
                let mut file = self.files.get(&object).cloned().unwrap_or_default();
                for ((at, name), value) in self.names.iter().filter(|((at, _), _)| Some(*at) == file.hidden) {
                    let _ = at;
                    let value = self.files.get(value).map(|f| f.contents.clone());
                    file.xattrs.insert(name.clone(), value.unwrap_or_default());
                }
                file.hidden = None;
                out.insert(path.clone(), file);
                dirs.push((object, path));
            }
        }
        out
    }

    /// Removes a name, and the file with its last name.
    fn drop_name(&mut self, dir: u64, name: &[u8]) -> bool {
        let Some(object) = self.names.remove(&(dir, name.to_vec())) else { return false };
        if !self.names.values().any(|o| *o == object) {
            let hidden = self.files.remove(&object).and_then(|f| f.hidden);
            self.names.retain(|(dir, _), _| Some(*dir) != hidden);
        }
        true
    }

    fn create(&mut self, kind: TxKind, c: Create) -> bool {
        let file = File { mode: c.mode, ..File::default() };
        self.files.insert(c.foid.object, file);
        if kind == TxKind::Mkxattr {
            let Some(owner) = self.files.get_mut(&c.doid) else { return false };
            return owner.hidden.replace(c.foid.object).is_none();
        }
        self.names.insert((c.doid, c.name), c.foid.object).is_none()
    }

    fn rename(&mut self, kind: TxKind, r: Rename) -> bool {
        let (from, to) = ((r.sdoid, r.source), (r.tdoid, r.target));
        let (Some(source), target) = (self.names.get(&from).copied(), self.names.get(&to).copied()) else {
            return false;
        };
        if kind == TxKind::RenameExchange {
            let Some(target) = target else { return false };
            self.names.insert(from, target);
            self.names.insert(to, source);
            return true;
        }
        self.drop_name(to.0, &to.1);
        self.names.insert(to, source);
        match r.whiteout {
            None => drop(self.names.remove(&from)),
            Some(w) => {
                self.files.insert(w.foid.object, File { mode: w.mode, ..File::default() });
                self.names.insert(from, w.foid.object);
            }
        }
        true
    }

    fn write(&mut self, log: &Log, w: &Write) -> Applied {
        // A record with a block pointer replaces the whole block, up to the end of the file.
        let (at, bytes) = match &w.blkptr {
            None => (w.offset as usize, w.data.clone()),
            Some(bp) => match log.read_block(bp, ObjNum(w.foid), BlkId(0)) {
                Ok(block) => ((w.offset - w.offset % bp.lsize.0) as usize, block.to_vec()),
                Err(_) => return Applied::End,
            },
        };
        // A write to a removed file has no effect.
        if let Some(file) = self.files.get_mut(&w.foid) {
            let end = (w.offset + w.length) as usize;
            file.contents.resize(file.contents.len().max(end), 0);
            let n = bytes.len().min(file.contents.len() - at);
            file.contents[at..at + n].copy_from_slice(&bytes[..n]);
        }
        Applied::Done
    }

    fn share(&mut self, log: &Log, c: &ClonedRange) -> Applied {
        let read = |bp: &Blkptr| match bp.is_hole() {
            true => Some(vec![0; c.blksz as usize]),
            false => log.read_block(bp, ObjNum(c.foid), BlkId(0)).ok().map(|b| b.to_vec()),
        };
        let blocks = c.blkptrs.iter().map(read).collect::<Option<Vec<_>>>();
        let Some(bytes) = blocks.map(|b| b.concat()) else { return Applied::End };
        if let Some(file) = self.files.get_mut(&c.foid) {
            let end = (c.offset + c.length) as usize;
            file.contents.resize(file.contents.len().max(end), 0);
            file.contents[c.offset as usize..end].copy_from_slice(&bytes[..c.length as usize]);
        }
        Applied::Done
    }

    /// Applies a record of the log.
    pub(super) fn apply(&mut self, log: &Log, record: LogRecord) -> Applied {
        let kind = record.header.kind;
        let done = match record.body {
            None => false,
            Some(RecordBody::Create(c)) => self.create(kind, c),
            Some(RecordBody::Remove { doid, name }) => self.drop_name(doid, &name),
            Some(RecordBody::Link { doid, link_obj, name }) => {
                self.files.contains_key(&link_obj) && self.names.insert((doid, name), link_obj).is_none()
            }
            Some(RecordBody::Rename(r)) => self.rename(kind, r),
            Some(RecordBody::Write(w)) => return self.write(log, &w),
            Some(RecordBody::CloneRange(c)) => return self.share(log, &c),
            Some(RecordBody::Truncate { foid, offset, length }) => {
                if let Some(file) = self.files.get_mut(&foid) {
                    let (at, len) = (offset as usize, file.contents.len());
                    match length {
                        0 => file.contents.resize(at, 0),
                        n => file.contents[at.min(len)..(at + n as usize).min(len)].fill(0),
                    }
                }
                true
            }
            Some(RecordBody::Setattr(s)) => {
                if let Some(file) = self.files.get_mut(&s.foid).filter(|_| s.mask & ATTR_MODE != 0) {
                    file.mode = file.mode & TYPE | s.mode & !TYPE;
                }
                true
            }
            Some(RecordBody::SetSaXattr { foid, name, value }) => {
                if let Some(file) = self.files.get_mut(&foid) {
                    match value {
                        Some(value) => drop(file.xattrs.insert(name, value)),
                        None => drop(file.xattrs.remove(&name)),
                    }
                }
                true
            }
            Some(RecordBody::Commit | RecordBody::Acl { .. }) => true,
        };
        if done { Applied::Done } else { Applied::Senseless }
    }
}
