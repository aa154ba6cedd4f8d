//! From paths to objects and back.

use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::zap::Zap;
use ondisk::znode::Pflags;
use ondisk::{Corrupt, ObjNum};
use std::collections::BTreeSet;

/// Most symbolic links that a walk follows, Linux's limit (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Longest target that a walk follows, Linux's limit (`PATH_MAX`).
const TARGET_MAX: usize = 4096;
/// Longest path that is taken or made.
const PATH_MAX: usize = 1 << 16;

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
                let zap = Zap::open(parent.dnode())?;
                let key = zap.search_value(at.object().0, 0xffff_ffff_ffff)?;
                let name = key.as_ref().and_then(|k| k.name());
                name.ok_or(Error::NoEntry { dir: parent.object() })?.to_vec()
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
