//! From paths to objects and back.

use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::zap::Zap;
use ondisk::znode::Pflags;
use ondisk::{Corrupt, ObjNum};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Most symbolic links that a walk follows, Linux's limit (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Longest target that a walk follows, Linux's limit (`PATH_MAX`).
const TARGET_MAX: usize = 4096;
/// Longest path that is taken or made.
const PATH_MAX: usize = 1 << 16;
/// Bits of a directory's entry that are its object.
const OBJECT: u64 = 0xffff_ffff_ffff;
/// Directories whose names [`Paths`] keeps, and entries of one that it keeps at most.
const KEPT: usize = 16;
const KEPT_ENTRIES: u64 = 1 << 17;

/// The paths of many objects of a file system that doesn't change: the names of a directory are read once for its many entries.
#[derive(Debug)]
pub struct Paths {
    fs: FileSystem,
    /// Names by object, the directory that was asked last behind the others.
    dirs: VecDeque<(ObjNum, HashMap<u64, Vec<u8>>)>,
}

impl Paths {
    /// Of this file system.
    pub fn of(fs: FileSystem) -> Self {
        Self { fs, dirs: VecDeque::new() }
    }

    /// As [`FileSystem::object_path`].
    ///
    /// # Errors
    /// As there.
    pub fn path(&mut self, object: ObjNum) -> Result<Vec<u8>> {
        let fs = self.fs.clone();
        fs.path_by(object, &mut |dir, object| self.name(dir, object))
    }

    fn name(&mut self, dir: &Node, object: ObjNum) -> Result<Option<Vec<u8>>> {
        match self.dirs.iter().position(|(known, _)| *known == dir.object()) {
            Some(at) => {
                let known = self.dirs.remove(at);
                self.dirs.extend(known);
            }
            None => {
                let zap = Zap::open(dir.dnode())?;
                if zap.count()? > KEPT_ENTRIES {
                    return name_in(dir, object);
                }
                let mut names = HashMap::new();
                for entry in zap.entries() {
                    let entry = entry?;
                    let Some(child) = entry.value.first() else { continue };
                    // Of several links, the first.
                    names.entry(child & OBJECT).or_insert_with(|| entry.name().to_vec());
                }
                if self.dirs.len() >= KEPT {
                    self.dirs.pop_front();
                }
                self.dirs.push_back((dir.object(), names));
            }
        }
        Ok(self.dirs.back().and_then(|(_, names)| names.get(&object.0)).cloned())
    }
}

/// Finds the name that a directory has for an object.
type NameIn<'a> = dyn FnMut(&Node, ObjNum) -> Result<Option<Vec<u8>>> + 'a;

/// The name that a directory has for an object.
fn name_in(dir: &Node, object: ObjNum) -> Result<Option<Vec<u8>>> {
    let key = Zap::open(dir.dnode())?.search_value(object.0, OBJECT)?;
    Ok(key.as_ref().and_then(|k| k.name()).map(<[u8]>::to_vec))
}

impl FileSystem {
    /// The file at `path` below the root; slashes at either end mean nothing, and links are followed.
    ///
    /// # Errors
    /// [`Error::NoEntry`], [`Error::NotDirectory`], [`Error::TooManyLinks`]; [`Error::LeavesFileSystem`] for a link to an
    /// absolute path; or as reading fails.
    pub fn resolve(&self, path: &[u8]) -> Result<Node> {
        self.walk(path, true)
    }

    /// The same, but a link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`FileSystem::resolve`].
    pub fn resolve_link(&self, path: &[u8]) -> Result<Node> {
        self.walk(path, false)
    }

    fn walk(&self, path: &[u8], follow_last: bool) -> Result<Node> {
        let split = |p: &[u8]| -> Vec<Vec<u8>> {
            p.split(|b| *b == b'/').filter(|c| !c.is_empty()).rev().map(<[u8]>::to_vec).collect()
        };
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong { len: path.len() });
        }
        let mut todo = split(path);
        let mut links = 0;
        let mut at = self.node(self.root())?;
        while let Some(name) = todo.pop() {
            let next = self.node(at.lookup_entry(&name, false)?.object)?;
            if next.attr().kind != FileType::Symlink || (todo.is_empty() && !follow_last) {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let target = next.readlink()?;
            if target.len() > TARGET_MAX {
                return Err(Error::NameTooLong { len: target.len() });
            }
            if target.starts_with(b"/") {
                return Err(Error::LeavesFileSystem { object: next.object() });
            }
            todo.extend(split(&target));
        }
        Ok(at)
    }

    /// The path of an object from the root, with a slash at its start (`zfs_obj_to_path`): one of them, if it has several
    /// links. An attribute's hidden directory is `<xattrdir>`.
    ///
    /// # Errors
    /// [`Error::Unlinked`] for a removed file, [`Error::NoEntry`] if its parent doesn't know it,
    /// [`Error::Corrupt`] if its parents run in a circle, or as reading fails.
    pub fn object_path(&self, object: ObjNum) -> Result<Vec<u8>> {
        self.path_by(object, &mut name_in)
    }

    fn path_by(&self, object: ObjNum, name_in: &mut NameIn<'_>) -> Result<Vec<u8>> {
        if self.is_unlinked(object)? {
            return Err(Error::Unlinked { object });
        }
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut len = 0;
        let mut seen = BTreeSet::new();
        let mut at = self.node(object)?;
        while at.attr().parent != at.object() {
            let parent = self.node(at.attr().parent)?;
            let hidden = at.attr().pflags.has(Pflags::XATTR) && at.attr().kind == FileType::Directory;
            let name = if hidden {
                b"<xattrdir>".to_vec()
            } else {
                parent.require_dir()?;
                let name = name_in(&parent, at.object())?;
                name.ok_or(Error::NoEntry { dir: parent.object() })?
            };
            len += 1 + name.len();
            if len > PATH_MAX || !seen.insert(at.object()) {
                let source = Corrupt::Shape { what: "file", why: "its parents run in a circle" };
                return Err(Error::Corrupt { object, source });
            }
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::with_capacity(len.max(1));
        for p in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(p);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}
