//! Finds the path of a file by its object: up from parent to parent.

use super::ctx::{Run, Stop};
use super::files::Files;
use dmu::Objset;
use dmu::zap::{Key, Zap};
use ondisk::ObjNum;
use ondisk::sa::Attr;
use ondisk::znode::Pflags;
use std::collections::BTreeSet;

/// The bits of a directory entry that hold the object (`ZFS_DIRENT_OBJ`).
pub(super) const OBJ_MASK: u64 = (1 << 48) - 1;
const S_IFMT: u64 = 0o170_000;
const S_IFDIR: u64 = 0o040_000;

/// The result of a search for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The path in the file system.
    Path(Vec<u8>),
    /// The file is unlinked and waits to be removed.
    Unlinked,
    /// No path leads to the object.
    Lost,
}

/// Finds the path of an object (`zfs_obj_to_path`).
pub fn of(os: &Objset, files: &Files, object: ObjNum) -> Found {
    match is_unlinked(os, files, object) {
        Ok(true) => return Found::Unlinked,
        Ok(false) => {}
        Err(_) => return Found::Lost,
    }
    match upwards(os, files, object) {
        Ok(Some(path)) => Found::Path(path),
        Ok(None) | Err(_) => Found::Lost,
    }
}

fn is_unlinked(os: &Objset, files: &Files, object: ObjNum) -> Run<bool> {
    let Some(queue) = files.unlinked else { return Ok(false) };
    let queue = Zap::open(&os.dnode(queue)?)?;
    Ok(queue.lookup(format!("{:x}", object.0).as_bytes())?.is_some())
}

fn upwards(os: &Objset, files: &Files, mut object: ObjNum) -> Run<Option<Vec<u8>>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut seen = BTreeSet::new();
    loop {
        if !seen.insert(object) {
            return Ok(None);
        }
        let file = files.attrs(&os.dnode(object)?)?;
        let word = |attr| file.u64(attr)?.ok_or(Stop::Exit(0));
        let (parent, flags, mode) = (ObjNum(word(Attr::Parent)?), word(Attr::Flags)?, word(Attr::Mode)?);
        let xattr_dir = flags & Pflags::XATTR != 0 && mode & S_IFMT == S_IFDIR;
        let parent_mode = files.attrs(&os.dnode(parent)?)?.u64(Attr::Mode)?.unwrap_or(0);
        // After a link is removed the object may stay, and its parent may be any object by then.
        if !xattr_dir && parent_mode & S_IFMT != S_IFDIR {
            return Ok(None);
        }
        if parent == object {
            break;
        }
        if xattr_dir {
            parts.push(b"<xattrdir>".to_vec());
        } else {
            let found = Zap::open(&os.dnode(parent)?)?.search_value(object.0, OBJ_MASK)?;
            let Some(Key::Name(name)) = found else { return Ok(None) };
            parts.push(name);
        }
        object = parent;
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
}
