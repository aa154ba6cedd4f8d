//! Extended attributes: as a system attribute (`xattr=sa`), or as files of a hidden directory
//! (`xattr=dir`).
//!
//! A file can have both. An attribute stored as a system attribute hides one of the same name in
//! the directory. Names are stored with their Linux namespace. A name without one, which another
//! port of OpenZFS wrote, belongs to `user.`.

use crate::node::Store;
use crate::{DirCookie, Error, Node, Result, XATTR_SIZE_MAX, XATTRS_MAX};
use ondisk::nvlist::Nvlist;
use ondisk::sa::Attr as Sa;
use std::collections::{BTreeMap, BTreeSet};

const USER: &[u8] = b"user.";
const NAMESPACES: [&[u8]; 3] = [USER, b"trusted.", b"security."];
const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Namespace of attributes that FreeBSD hides from other systems.
const FREEBSD: &[u8] = b"freebsd:";

/// The name that Linux shows for a stored one; `None` if it shows none.
fn shown(stored: &[u8]) -> Option<Vec<u8>> {
    if NAMESPACES.iter().any(|ns| stored.starts_with(ns)) || POSIX_ACLS.contains(&stored) {
        return Some(stored.to_vec());
    }
    if stored.starts_with(FREEBSD) {
        return None;
    }
    Some([USER, stored].concat())
}

/// The name under which another port of OpenZFS stores this one. `.` and `..` are no directory
/// entries, so no port stores an attribute as one of them.
pub(crate) fn bare(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(USER).filter(|bare| !matches!(*bare, b"" | b"." | b".."))
}

/// True if no attribute can have this name: nothing follows its namespace.
fn is_nameless(name: &[u8]) -> bool {
    name.is_empty() || NAMESPACES.contains(&name)
}

/// Where an attribute is stored.
enum Stored {
    /// In the system attribute: its value.
    Own(Vec<u8>),
    /// In the hidden directory: its file.
    Hidden(Box<Node>),
}

impl Node {
    /// The attributes that are stored as a system attribute.
    pub(crate) fn sa_xattrs(&self) -> Result<Option<Nvlist>> {
        let Store::Sa(sa) = &self.store else { return Ok(None) };
        let Some(packed) = sa.get(Sa::Dxattr)? else { return Ok(None) };
        if packed.is_empty() {
            return Ok(None);
        }
        Nvlist::decode(&packed).map(Some).map_err(|e| self.corrupt(e))
    }

    /// The hidden directory of attributes, if the file has one (`zfs_get_xattrdir`).
    ///
    /// # Errors
    /// The errors of [opening](Error#opening).
    pub fn xattr_dir(&self) -> Result<Option<Node>> {
        self.attr().xattr_dir.map(|o| self.fs.node(o)).transpose()
    }

    /// Names of the extended attributes, as Linux shows them (`zpl_xattr_list`).
    ///
    /// `max` limits their total bytes, with a NUL after each, because a hidden directory may hold
    /// any number of them.
    ///
    /// # Errors
    /// * [`Error::XattrsTooLarge`]: the names are more than `max` bytes.
    /// * [`Error::NotDirectory`]: the hidden directory is no directory.
    /// * The errors of [opening](Error#opening), for the hidden directory.
    pub fn xattr_names(&self, max: usize) -> Result<Vec<Vec<u8>>> {
        self.names_in(self.sa_xattrs()?.as_ref(), self.xattr_dir()?.as_ref(), max)
    }

    fn names_in(&self, list: Option<&Nvlist>, dir: Option<&Node>, max: usize) -> Result<Vec<Vec<u8>>> {
        let mut seen = BTreeSet::new();
        let mut names = Vec::new();
        let mut left = max;
        let mut add = |stored: &[u8]| -> Result<()> {
            let Some(name) = shown(stored).filter(|n| seen.insert(n.clone())) else { return Ok(()) };
            let larger = Error::XattrsTooLarge { object: self.object(), max };
            left = left.checked_sub(name.len() + 1).ok_or(larger)?;
            names.push(name);
            Ok(())
        };
        for (stored, _) in list.iter().flat_map(|l| l.iter()) {
            add(stored)?;
        }
        if let Some(dir) = dir {
            for e in dir.read_dir(DirCookie(2))? {
                add(&e?.name)?;
            }
        }
        Ok(names)
    }

    /// The value of an extended attribute, by the name that Linux shows (`zpl_xattr_get`).
    ///
    /// # Errors
    /// * [`Error::BadName`]: nothing follows the namespace.
    /// * [`Error::NoXattr`]: the file has no such attribute.
    /// * [`Error::XattrTooLarge`]: the value is longer than [`XATTR_SIZE_MAX`].
    /// * [`Error::NotDirectory`], [`Error::IsDirectory`]: an object of the attributes has the wrong
    ///   type.
    /// * The errors of [opening](Error#opening), for the hidden directory and its files.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if is_nameless(name) {
            return Err(Error::BadName);
        }
        self.value_in(self.sa_xattrs()?.as_ref(), self.xattr_dir()?.as_ref(), name)
    }

    /// Whether the file has an extended attribute of this name, even one too long to be read.
    pub(crate) fn has_xattr(&self, name: &[u8]) -> Result<bool> {
        if is_nameless(name) {
            return Err(Error::BadName);
        }
        match self.stored_in(self.sa_xattrs()?.as_ref(), self.xattr_dir()?.as_ref(), name) {
            Ok(_) => Ok(true),
            Err(Error::NoXattr { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn value_in(&self, list: Option<&Nvlist>, dir: Option<&Node>, name: &[u8]) -> Result<Vec<u8>> {
        match self.stored_in(list, dir, name)? {
            Stored::Own(value) => Ok(value),
            Stored::Hidden(file) => self.xattr_file(&file),
        }
    }

    fn stored_in(&self, list: Option<&Nvlist>, dir: Option<&Node>, name: &[u8]) -> Result<Stored> {
        // With its namespace first, then as another port would have stored it.
        for stored in std::iter::once(name).chain(bare(name)) {
            if shown(stored).as_deref() != Some(name) {
                continue;
            }
            if let Some(v) = list.and_then(|l| l.bytes(stored)) {
                return Ok(Stored::Own(v.to_vec()));
            }
            if let Some(dir) = dir {
                match dir.lookup_entry(stored, false) {
                    Ok(e) => return Ok(Stored::Hidden(Box::new(self.fs.node(e.object)?))),
                    Err(Error::NoEntry { .. } | Error::NameTooLong { .. } | Error::NotUtf8) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Err(Error::NoXattr { object: self.object() })
    }

    fn xattr_file(&self, file: &Node) -> Result<Vec<u8>> {
        let size = file.attr().size;
        if size > XATTR_SIZE_MAX {
            return Err(Error::XattrTooLarge { object: self.object(), size });
        }
        let mut value = vec![0; size as usize];
        let n = file.read(0, &mut value)?;
        value.truncate(n);
        Ok(value)
    }

    /// All extended attributes with their values, [`XATTRS_MAX`] bytes at most.
    ///
    /// # Errors
    /// * [`Error::XattrsTooLarge`]: names and values are more than [`XATTRS_MAX`] bytes.
    /// * All errors of [`Node::xattr`].
    pub fn xattrs(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let (list, dir) = (self.sa_xattrs()?, self.xattr_dir()?);
        let (list, dir) = (list.as_ref(), dir.as_ref());
        let mut left = XATTRS_MAX;
        let mut all = BTreeMap::new();
        for name in self.names_in(list, dir, XATTRS_MAX)? {
            let value = self.value_in(list, dir, &name)?;
            let larger = Error::XattrsTooLarge { object: self.object(), max: XATTRS_MAX };
            left = left.checked_sub(name.len() + value.len()).ok_or(larger)?;
            all.insert(name, value);
        }
        Ok(all)
    }
}
