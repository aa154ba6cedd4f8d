//! Changing extended attributes (`zpl_xattr_set`).
//!
//! # On disk
//! With `xattr=sa` they are a packed list in a system attribute. Each may have at most 32 KiB, and
//! all at most 64 KiB. Others, and all with `xattr=dir`, are files of a hidden directory. An
//! attribute is in one of the two places.
//!
//! # Locks
//! The file's names, for a file of any type. A hidden directory is reached only through its file.

use super::Writer;
use super::log::Hidden;
use super::make::{Birth, Kind, MAKE_BYTES, NewFile};
use super::posix::{self, ACCESS, DEFAULT};
use super::quota::Payers;
use super::update::Changes;
use crate::xattr::bare;
use crate::{Error, FileSystem, FileType, Node, Result, XATTR_SIZE_MAX};
use dmu::Tx;
use dsl::Need;
use ondisk::ObjNum;
use ondisk::nvlist::{Nvlist, Value};
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// Largest attribute in the system attribute, in bytes (`DXATTR_MAX_ENTRY_SIZE`).
const OWN_ENTRY_MAX: usize = 32768;
/// Largest packed list, in bytes (`SA_ATTR_MAX_LEN`).
const OWN_LIST_MAX: usize = 65535;
/// Longest name: Linux's limit (`XATTR_NAME_MAX`).
const NAME_MAX: usize = 255;

/// When setting an attribute fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Whether the attribute exists doesn't matter.
    Either,
    /// If the attribute exists (`XATTR_CREATE`).
    Create,
    /// If the attribute does not exist (`XATTR_REPLACE`).
    Replace,
}

/// An attribute and its new value; `None` removes it.
type Change<'a> = (&'a [u8], Option<&'a [u8]>);
/// The attributes that a new file inherits.
type Inherited = Vec<(&'static [u8], Vec<u8>)>;

impl FileSystem {
    /// Sets an extended attribute (`zpl_xattr_set`).
    ///
    /// A POSIX ACL also sets the mode. It is not stored if the mode expresses all of it.
    ///
    /// # Errors
    /// * [`Error::XattrExists`]: the attribute exists, with [`SetXattr::Create`].
    /// * [`Error::NoXattr`]: the attribute does not exist, with [`SetXattr::Replace`].
    /// * [`Error::XattrTooLarge`]: the new value is longer than [`XATTR_SIZE_MAX`].
    /// * [`Error::NameTooLong`]: the name is empty or longer than 255 bytes.
    /// * [`Error::BadName`]: nothing follows the name's namespace.
    /// * [`Error::NotUtf8`]: the hidden directory accepts only UTF-8, and the name is not.
    /// * [`Error::BadAcl`]: the value of a POSIX ACL is malformed.
    /// * [`Error::NotPermitted`]: the file is immutable or append-only.
    /// * [`Error::NotDirectory`], [`Error::IsDirectory`]: an object of the attributes has the wrong
    ///   type.
    /// * The errors of [changing](Error#changing).
    pub fn set_xattr(&self, object: ObjNum, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.set_xattr_now(object, name, value, how)?;
        self.settle(object)
    }

    fn set_xattr_now(&self, object: ObjNum, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Error::NameTooLong { len: name.len() });
        }
        if value.len() as u64 > XATTR_SIZE_MAX {
            return Err(Error::XattrTooLarge { object, size: value.len() as u64 });
        }
        let w = self.writer()?;
        let held = w.locks.hold(object);
        let _names = held.names();
        let node = self.node(object)?;
        may_change(&node)?;
        let there = node.has_xattr(name)?;
        match how {
            SetXattr::Create if there => return Err(Error::XattrExists { object }),
            SetXattr::Replace if !there => return Err(Error::NoXattr { object }),
            _ => {}
        }
        if name == ACCESS {
            let mode = posix::mode_of(value).ok_or(Error::BadAcl { object })?;
            self.set_permissions(w, &node, mode.permissions)?;
            if mode.says_all {
                return if there { self.unset(w, &self.node(object)?, name) } else { Ok(()) };
            }
        } else if name == DEFAULT && posix::mode_of(value).is_none() {
            return Err(Error::BadAcl { object });
        }
        self.put(w, &self.node(object)?, name, value)
    }

    /// Removes an extended attribute (`zpl_xattr_set`).
    ///
    /// # Errors
    /// * [`Error::NoXattr`]: the attribute does not exist.
    /// * [`Error::BadName`]: nothing follows the name's namespace.
    /// * [`Error::NotPermitted`]: the file is immutable or append-only.
    /// * [`Error::NotDirectory`], [`Error::IsDirectory`]: an object of the attributes has the wrong
    ///   type.
    /// * The errors of [changing](Error#changing).
    pub fn remove_xattr(&self, object: ObjNum, name: &[u8]) -> Result<()> {
        self.remove_xattr_now(object, name)?;
        self.settle(object)
    }

    fn remove_xattr_now(&self, object: ObjNum, name: &[u8]) -> Result<()> {
        let w = self.writer()?;
        let held = w.locks.hold(object);
        let _names = held.names();
        let node = self.node(object)?;
        may_change(&node)?;
        if !node.has_xattr(name)? {
            return Err(Error::NoXattr { object });
        }
        self.unset(w, &node, name)
    }

    /// Stores the attribute in its proper place, and removes it from the other. The caller has
    /// locked the file.
    fn put(&self, w: &Writer, node: &Node, name: &[u8], value: &[u8]) -> Result<()> {
        if w.policy().xattr_sa && node.takes_own() && value.len() <= OWN_ENTRY_MAX {
            let mut list = node.sa_xattrs()?.unwrap_or_default();
            list.set(name, Value::ByteArray(value.to_vec()));
            let other = drop_bare(&mut list, name);
            let packed = list.encode_xdr();
            if packed.len() <= OWN_LIST_MAX {
                let changes = [Some((name, Some(value))), other.map(|bare| (bare, None))];
                match self.put_own(w, node, packed, changes) {
                    Ok(()) => return self.unset_hidden(w, node, name),
                    Err(Error::Dmu(dmu::Error::Attributes { .. })) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        self.put_hidden(w, node, name, value)?;
        self.unset_own(w, &self.node(node.object())?, name)
    }

    /// Sets the packed list; `changes` lists the differences.
    fn put_own(
        &self,
        w: &Writer,
        node: &Node,
        packed: Vec<u8>,
        changes: [Option<Change<'_>>; 2],
    ) -> Result<()> {
        let tx = w.logged_tx(Need::growing(MAKE_BYTES + packed.len() as u64))?;
        let list = |node: &Node, c: &mut Changes| self.own_list(w, node, c, packed);
        let changed = self.update_and(w, node.object(), &tx, list, |a| {
            changes.into_iter().flatten().for_each(|(name, value)| w.log_sa_xattr(&tx, a, name, value));
        });
        match changed {
            // The list doesn't fit, so nothing has changed.
            Err(e @ Error::Dmu(dmu::Error::Attributes { .. })) => Err(e),
            changed => w.or_unlogged(&tx, changed),
        }
    }

    pub(super) fn own_list(&self, w: &Writer, node: &Node, c: &mut Changes, packed: Vec<u8>) -> Result<()> {
        c.bytes(Sa::Dxattr, packed);
        c.changed(node.attr(), w.now());
        Ok(())
    }

    /// Stores the attribute in the hidden directory, which is created if there is none.
    pub(super) fn put_hidden(&self, w: &Writer, node: &Node, name: &[u8], value: &[u8]) -> Result<()> {
        let a = node.attr();
        let bytes = 4 * MAKE_BYTES + (value.len() as u64).next_multiple_of(512);
        self.check_one_more(w, Payers::from(a))?;
        let tx = w.logged_tx(Need::growing(bytes))?;
        let put = self.put_hidden_now(w, &tx, node, name, value);
        w.or_unlogged(&tx, put)
    }

    fn put_hidden_now(&self, w: &Writer, tx: &Tx, node: &Node, name: &[u8], value: &[u8]) -> Result<()> {
        let a = node.attr();
        let mut new = NewFile { uid: a.uid.rid(), gid: a.gid.rid(), ..NewFile::new(Kind::Directory, 0o1777) };
        let (dir, new_dir) = match node.xattr_dir()? {
            Some(dir) => (dir, false),
            None => {
                let born = self.make(w, tx, &Birth { xattr: true, ..Birth::new(&new, node) })?;
                self.update(w, node.object(), tx, |_, c| {
                    c.word(Sa::Xattr, born.object().0);
                    Ok(())
                })?;
                (Node::new(self.clone(), born)?, true)
            }
        };
        let (file, new_file) = match self.find(&dir, name)? {
            Some(e) => (self.node(e.object)?, false),
            None => {
                (new.kind, new.permissions) = (Kind::Regular, 0o644);
                let born = self.make(w, tx, &Birth { xattr: true, ..Birth::new(&new, &dir) })?;
                if let Err(e) = self.enter_name(w, &dir, tx, name, (born.object(), FileType::Regular)) {
                    self.objset().free_object(tx, born.object())?;
                    return Err(e);
                }
                (Node::new(self.clone(), born)?, true)
            }
        };
        file.dn.free_range(tx, 0, u64::MAX)?;
        let size = (value.len() as u32).next_multiple_of(512);
        if u64::from(size) > file.dn.block_size() {
            file.dn.set_block_size(tx, size)?;
        }
        file.dn.write_at(tx, 0, value)?;
        let now = w.now();
        self.update(w, file.object(), tx, |file, c| {
            c.word(Sa::Size, value.len() as u64);
            c.modified(file.attr(), now);
            Ok(())
        })?;
        let changed = |node: &Node, c: &mut Changes| {
            c.changed(node.attr(), now);
            Ok(())
        };
        let hidden = Hidden { dir: &dir, new_dir, file: &file, new_file, name, value };
        self.update_and(w, node.object(), tx, changed, |a| w.log_hidden(tx, a, &hidden))
    }

    /// Removes the attribute from both places.
    fn unset(&self, w: &Writer, node: &Node, name: &[u8]) -> Result<()> {
        self.unset_own(w, node, name)?;
        self.unset_hidden(w, node, name)
    }

    fn unset_own(&self, w: &Writer, node: &Node, name: &[u8]) -> Result<()> {
        let Some(mut list) = node.sa_xattrs()? else { return Ok(()) };
        let had = list.remove(name).then_some(name);
        let gone = [had, drop_bare(&mut list, name)];
        if gone == [None, None] {
            return Ok(());
        }
        self.put_own(w, node, list.encode_xdr(), gone.map(|name| name.map(|name| (name, None))))
    }

    pub(super) fn unset_hidden(&self, w: &Writer, node: &Node, name: &[u8]) -> Result<()> {
        let Some(dir) = node.xattr_dir()? else { return Ok(()) };
        for stored in std::iter::once(name).chain(bare(name)) {
            let Some(e) = self.find(&dir, stored)? else { continue };
            let file = self.node(e.object)?;
            let tx = w.logged_tx(Need::netfree(2 * MAKE_BYTES))?;
            let all = || {
                let gone = self.remove_link(w, &tx, &dir, &e, &file)?;
                let now = w.now();
                let changed = |node: &Node, c: &mut Changes| {
                    c.changed(node.attr(), now);
                    Ok(gone)
                };
                self.update_and(w, node.object(), &tx, changed, |a| {
                    w.log_unhidden(&tx, a, dir.object(), &e.name);
                })
            };
            let gone = w.or_unlogged(&tx, all())?;
            drop(tx);
            if gone {
                self.reap(e.object)?;
            }
        }
        Ok(())
    }

    /// Adapts a file's POSIX ACL to a new mode. The caller has locked the file.
    pub(super) fn chmod_acl(&self, w: &Writer, object: ObjNum, permissions: u32) -> Result<()> {
        let node = self.node(object)?;
        match node.xattr(ACCESS) {
            Ok(mut acl) => {
                if posix::chmod(&mut acl, permissions) {
                    self.put(w, &node, ACCESS, &acl)?;
                }
                Ok(())
            }
            Err(Error::NoXattr { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// What a new file inherits from its directory's POSIX ACL: its permissions, and its first
    /// attributes.
    pub(super) fn inherited(&self, w: &Writer, dir: &Node, new: &NewFile) -> Result<(u32, Inherited)> {
        let masked = new.permissions & !new.umask;
        if !w.policy().posix_acl || matches!(new.kind, Kind::Symlink(_)) {
            return Ok((masked, Vec::new()));
        }
        let acl = match dir.xattr(DEFAULT) {
            Ok(acl) => acl,
            Err(Error::NoXattr { .. }) => return Ok((masked, Vec::new())),
            Err(e) => return Err(e),
        };
        let mut access = acl.clone();
        let mode =
            posix::create(&mut access, new.permissions).ok_or(Error::BadAcl { object: dir.object() })?;
        let mut all = Vec::new();
        if !mode.says_all {
            all.push((ACCESS, access));
        }
        if new.kind == Kind::Directory {
            all.push((DEFAULT, acl));
        }
        Ok((mode.permissions, all))
    }

    /// Sets the attributes that a new file inherits.
    pub(super) fn endow(&self, w: &Writer, object: ObjNum, all: Inherited) -> Result<()> {
        for (name, value) in all {
            self.put(w, &self.node(object)?, name, &value)?;
        }
        Ok(())
    }
}

fn may_change(node: &Node) -> Result<()> {
    let denied = Pflags::IMMUTABLE | Pflags::APPENDONLY;
    if node.attr().pflags.0 & denied != 0 {
        return Err(Error::NotPermitted { object: node.object() });
    }
    Ok(())
}

/// Removes the attribute as another port stored it; returns that name if it existed.
fn drop_bare<'a>(list: &mut Nvlist, name: &'a [u8]) -> Option<&'a [u8]> {
    bare(name).filter(|b| list.remove(b))
}
