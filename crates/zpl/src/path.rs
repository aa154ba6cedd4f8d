//! From paths to objects and back.

use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::zap::Zap;
use ondisk::znode::Pflags;
use ondisk::{Corrupt, DmuType, ObjNum};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Most symbolic links that a walk follows: Linux's limit (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Longest target that a walk follows, in bytes: Linux's limit (`PATH_MAX`).
const TARGET_MAX: usize = 4096;
/// Longest path that callers may pass, in bytes.
const PATH_MAX: usize = 1 << 16;
/// Longest path that is returned, in bytes. A tree may be deeper than any path that a program can
/// use.
const MADE_MAX: usize = 1 << 20;
/// Bits of a directory's entry that hold the object number.
const OBJECT: u64 = 0xffff_ffff_ffff;
/// Most directories whose names [`Paths`] keeps, and most entries of one of them.
const KEPT: usize = 16;
const KEPT_ENTRIES: u64 = 1 << 17;
/// Most bytes of directory paths that [`Paths`] keeps.
const KNOWN_MAX: usize = 8 << 20;

/// The paths of many objects of a file system that doesn't change.
///
/// The names of a directory are read once for all of its entries.
#[derive(Debug)]
pub struct Paths {
    fs: FileSystem,
    /// Names by object; the directory that was used last is at the back.
    dirs: VecDeque<(ObjNum, HashMap<u64, Vec<u8>>)>,
    /// Paths of directories, and their total length in bytes.
    known: HashMap<ObjNum, Vec<u8>>,
    known_bytes: usize,
    /// Directory and name of files that their parent attribute does not lead to.
    elsewhere: HashMap<ObjNum, (ObjNum, Vec<u8>)>,
}

impl Paths {
    /// An empty cache for this file system.
    pub fn of(fs: FileSystem) -> Self {
        Self { fs, dirs: VecDeque::new(), known: HashMap::new(), known_bytes: 0, elsewhere: HashMap::new() }
    }

    /// As [`FileSystem::object_path`], but also finds files that [`Paths::find`] found elsewhere.
    ///
    /// # Errors
    /// As [`FileSystem::object_path`].
    pub fn path(&mut self, object: ObjNum) -> Result<Vec<u8>> {
        let fs = self.fs.clone();
        let Some((dir, name)) = self.elsewhere.get(&object).cloned() else {
            return fs.path_by(object, self);
        };
        let mut path = fs.path_by(dir, self)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend(name);
        Ok(path)
    }

    /// The directory that a file names as its parent, and the file's name there; `None` if it has
    /// none there.
    ///
    /// # Errors
    /// The errors of [opening](Error#opening).
    pub fn place(&mut self, object: ObjNum) -> Result<Option<(ObjNum, Vec<u8>)>> {
        let node = self.fs.node(object)?;
        let parent = match self.fs.node(node.attr().parent) {
            Ok(parent) if parent.attr().kind == FileType::Directory => parent,
            Ok(_) | Err(Error::NoFile { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(self.name(&parent, object)?.map(|name| (parent.object(), name)))
    }

    /// Notes that a file has this name, if it has.
    ///
    /// # Errors
    /// * [`Error::NameTooLong`]: the name is longer than [`crate::NAME_MAX`].
    /// * [`Error::NotUtf8`]: the file system accepts only UTF-8, and the name is not.
    /// * The errors of [reading](Error#reading).
    pub fn try_name(&mut self, object: ObjNum, dir: ObjNum, name: &[u8]) -> Result<()> {
        let node = match self.fs.node(dir) {
            Ok(node) if node.attr().kind == FileType::Directory => node,
            Ok(_) | Err(Error::NoFile { .. }) => return Ok(()),
            Err(e) => return Err(e),
        };
        match node.lookup_entry(name, false) {
            Ok(entry) if entry.object == object => {
                self.elsewhere.insert(object, (dir, name.to_vec()));
                Ok(())
            }
            Ok(_) | Err(Error::NoEntry { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Searches all directories for names of these files, and notes one name of each.
    ///
    /// A file with several names has one parent attribute, and that may name a directory that it
    /// left.
    ///
    /// # Errors
    /// After an error, some files may have a name that was not found.
    ///
    /// * The errors of [opening](Error#opening), for a directory.
    pub fn find(&mut self, objects: &BTreeSet<ObjNum>) -> Result<()> {
        let mut left = objects.clone();
        for dn in self.fs.objset().objects(ObjNum(1)) {
            let dn = dn?;
            if left.is_empty() {
                break;
            }
            if dn.kind() != DmuType::DIRECTORY_CONTENTS {
                continue;
            }
            let dir = self.fs.node(dn.object())?;
            // The entries of an attribute directory are no files.
            if dir.attr().pflags.has(Pflags::XATTR) {
                continue;
            }
            for entry in Zap::open(dir.dnode())?.entries() {
                let entry = entry?;
                let Some(child) = entry.value.first().map(|child| ObjNum(child & OBJECT)) else { continue };
                if left.remove(&child) {
                    self.elsewhere.insert(child, (dir.object(), entry.name().to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// Where a search for a path gets names from.
trait Names {
    /// The name that a directory has for an object.
    fn name(&mut self, dir: &Node, object: ObjNum) -> Result<Option<Vec<u8>>>;

    /// The path of a directory, if it is known.
    fn known(&self, _dir: ObjNum) -> Option<&[u8]> {
        None
    }

    /// Notes the path of a directory.
    fn learn(&mut self, _dir: ObjNum, _path: &[u8]) {}
}

/// Reads names from the directories, without a cache.
struct Read;

impl Names for Read {
    fn name(&mut self, dir: &Node, object: ObjNum) -> Result<Option<Vec<u8>>> {
        name_in(dir, object)
    }
}

impl Names for Paths {
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
                    // Of several links, keep the first.
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

    fn known(&self, dir: ObjNum) -> Option<&[u8]> {
        self.known.get(&dir).map(Vec::as_slice)
    }

    fn learn(&mut self, dir: ObjNum, path: &[u8]) {
        if self.known_bytes.saturating_add(path.len()) > KNOWN_MAX {
            self.known.clear();
            self.known_bytes = 0;
        }
        if self.known.insert(dir, path.to_vec()).is_none() {
            self.known_bytes += path.len();
        }
    }
}

/// The name that a directory has for an object.
fn name_in(dir: &Node, object: ObjNum) -> Result<Option<Vec<u8>>> {
    let key = Zap::open(dir.dnode())?.search_value(object.0, OBJECT)?;
    Ok(key.as_ref().and_then(|k| k.name()).map(<[u8]>::to_vec))
}

impl FileSystem {
    /// Opens the file at `path` below the root, and follows symbolic links.
    ///
    /// Slashes at either end are ignored.
    ///
    /// # Errors
    /// * [`Error::NoEntry`]: a name on the path does not exist.
    /// * [`Error::NotDirectory`]: a file in the middle of the path is no directory.
    /// * [`Error::TooManyLinks`]: the path leads over more than 40 symbolic links.
    /// * [`Error::LeavesFileSystem`]: a symbolic link has an absolute target.
    /// * [`Error::NameTooLong`]: the path, a name or the target of a link is too long.
    /// * [`Error::NotUtf8`]: the file system accepts only UTF-8, and a name is not.
    /// * The errors of [opening](Error#opening).
    pub fn resolve(&self, path: &[u8]) -> Result<Node> {
        self.walk(path, true)
    }

    /// As [`FileSystem::resolve`], but doesn't follow a symbolic link at the end of the path.
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

    /// The path of an object from the root, with a leading slash (`zfs_obj_to_path`).
    ///
    /// If the object has several links, this is one of its paths. The hidden directory of
    /// attributes appears as `<xattrdir>`.
    ///
    /// # Errors
    /// * [`Error::Unlinked`]: the file was removed.
    /// * [`Error::NoEntry`]: the parent has no entry for the object.
    /// * [`Error::NotDirectory`]: the parent is no directory.
    /// * [`Error::NameTooLong`]: the path is longer than 1 MiB.
    /// * [`Error::Corrupt`]: the chain of parents has a cycle.
    /// * The errors of [opening](Error#opening).
    pub fn object_path(&self, object: ObjNum) -> Result<Vec<u8>> {
        self.path_by(object, &mut Read)
    }

    fn path_by(&self, object: ObjNum, names: &mut impl Names) -> Result<Vec<u8>> {
        if self.is_unlinked(object)? {
            return Err(Error::Unlinked { object });
        }
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut len = 0;
        let mut seen = BTreeSet::new();
        let mut at = self.node(object)?;
        let is_dir = at.attr().kind == FileType::Directory;
        let mut path = Vec::new();
        while at.attr().parent != at.object() {
            if let Some(known) = names.known(at.object()) {
                path.extend_from_slice(known.strip_suffix(b"/").unwrap_or(known));
                break;
            }
            let parent = self.node(at.attr().parent)?;
            let hidden = at.attr().pflags.has(Pflags::XATTR) && at.attr().kind == FileType::Directory;
            let name = if hidden {
                b"<xattrdir>".to_vec()
            } else {
                parent.require_dir()?;
                let name = names.name(&parent, at.object())?;
                name.ok_or(Error::NoEntry { dir: parent.object() })?
            };
            if !seen.insert(at.object()) {
                let source = Corrupt::Shape { what: "file", why: "its parents run in a circle" };
                return Err(Error::Corrupt { object, source });
            }
            len += 1 + name.len();
            if len > MADE_MAX {
                return Err(Error::NameTooLong { len });
            }
            parts.push(name);
            at = parent;
        }
        if path.len() + len > MADE_MAX {
            return Err(Error::NameTooLong { len: path.len() + len });
        }
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if is_dir {
            names.learn(object, &path);
        }
        Ok(path)
    }
}
