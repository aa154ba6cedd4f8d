//! Changing attributes (`zfs_setattr`).

use super::data::ATTR_BYTES;
use super::quota::Payers;
use super::update::{Changes, NO_EXECS_DENIED};
use super::{AclMode, Writer, nfs4};
use crate::node::Store;
use crate::{Attr, Error, FileSystem, FileType, Node, Result, Time};
use dsl::Need;
use ondisk::ObjNum;
use ondisk::objset::ObjsetFlags;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// Flags that describe the ACL: it has inheritable entries (`ZFS_INHERIT_ACE`), or entries of CIFS
/// (`ZFS_ACL_OBJ_ACE`).
const ACL_HOLDS: u64 = 0x2 | 0x8;

/// New attributes; `None` leaves an attribute unchanged (`vattr_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permissions: the low twelve bits of the mode.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the contents.
    pub mtime: Option<Time>,
    /// Clear set-user-id and set-group-id, as a write by an ordinary user does.
    pub kill: bool,
}

impl FileSystem {
    /// Changes attributes of a file, and returns its new attributes (`zfs_setattr`).
    ///
    /// All attributes except the size change in one transaction.
    ///
    /// # Errors
    /// * [`Error::NotPermitted`]: flags of the file forbid it, or `aclmode=restricted` protects its
    ///   ACL.
    /// * All errors of [`FileSystem::truncate`], if a size is given.
    /// * The errors of [changing](Error#changing).
    pub fn set_attr(&self, object: ObjNum, set: &SetAttr) -> Result<Attr> {
        let attr = self.set_attr_now(object, set)?;
        self.settle(object)?;
        Ok(attr)
    }

    fn set_attr_now(&self, object: ObjNum, set: &SetAttr) -> Result<Attr> {
        let w = self.writer()?;
        let node = self.node(object)?;
        // An ACL changes with the mode.
        let held = w.locks.hold(object);
        let _names = (set.permissions.is_some() && w.policy().posix_acl).then(|| held.names());
        let fixed = Pflags::IMMUTABLE | Pflags::APPENDONLY;
        let owned = set.permissions.is_some() || set.uid.is_some() || set.gid.is_some();
        if node.attr().pflags.0 & fixed != 0 && (owned || set.atime.is_some() || set.mtime.is_some()) {
            return Err(Error::NotPermitted { object });
        }
        let says_more = !node.attr().pflags.has(Pflags::ACL_TRIVIAL);
        if set.permissions.is_some() && says_more && w.policy().acl_mode == AclMode::Restricted {
            return Err(Error::NotPermitted { object });
        }
        // The quotas of the new owner and group apply.
        let news = |id: Option<u32>, has: u64| id.map(u64::from).filter(|id| *id != has);
        let (uid, gid) = (news(set.uid, node.attr().uid.0), news(set.gid, node.attr().gid.0));
        self.check_one_more(w, Payers::new(uid, gid, None))?;
        if let Some(size) = set.size {
            self.truncate(object, size, set.kill)?;
        }
        let rest = SetAttr { size: None, kill: set.kill && set.size.is_none(), ..*set };
        if rest != SetAttr::default() {
            let tx = w.logged_tx(Need::growing(ATTR_BYTES))?;
            let now = w.now();
            let all = || {
                let new = |node: &Node, c: &mut Changes| {
                    change(w, node, c, &rest)?;
                    c.time(Sa::Ctime, now);
                    if rest.permissions.is_some() { old_acl(node, c) } else { Ok(None) }
                };
                let acl = self.update_and(w, object, &tx, new, |a| w.log_setattr(&tx, a, &rest))?;
                if let Some(acl) = acl {
                    self.objset().free_object(&tx, acl)?;
                }
                Ok(())
            };
            w.or_unlogged(&tx, all())?;
            drop(tx);
            if set.uid.is_some() || set.gid.is_some() {
                self.hidden_follow(w, object)?;
            }
        }
        if let Some(permissions) = set.permissions.filter(|_| w.policy().posix_acl) {
            self.chmod_acl(w, object, permissions)?;
        }
        self.attr(object)
    }

    /// Replaces the access list of a directory of an AFS volume. The intent log has no such record,
    /// so commits wait for the txg.
    ///
    /// # Errors
    /// * [`Error::NotDirectory`]: the object is no directory.
    /// * The errors of [changing](Error#changing).
    pub fn set_access_list(&self, object: ObjNum, list: &[u8]) -> Result<Attr> {
        let w = self.writer()?;
        self.node(object)?.require_dir()?;
        let tx = w.tx(Need::growing(ATTR_BYTES))?;
        let now = w.now();
        self.update(w, object, &tx, |_, c| {
            c.time(Sa::Ctime, now);
            c.access_list(list.to_vec());
            Ok(())
        })?;
        drop(tx);
        self.attr(object)
    }

    /// Sets the nine permission bits. The caller has locked the file.
    pub(super) fn set_permissions(&self, w: &Writer, node: &Node, permissions: u32) -> Result<()> {
        let permissions = Some(node.attr().mode & 0o7000 | permissions & 0o777);
        let tx = w.logged_tx(Need::growing(ATTR_BYTES))?;
        let now = w.now();
        let set = SetAttr { permissions, ..SetAttr::default() };
        let new = |node: &Node, c: &mut Changes| {
            change(w, node, c, &set)?;
            c.time(Sa::Ctime, now);
            Ok(())
        };
        let changed = self.update_and(w, node.object(), &tx, new, |a| w.log_setattr(&tx, a, &set));
        w.or_unlogged(&tx, changed)
    }
}

impl FileSystem {
    /// Sets the flags of the ioctl `FS_IOC_SETFLAGS`, and the project (`zpl_ioctl_setflags`).
    ///
    /// # Errors
    /// * [`Error::BadFlags`]: a flag is unknown, the file can't have a project, or projects are not
    ///   counted.
    /// * The errors of [changing](Error#changing).
    pub fn set_flags(&self, object: ObjNum, fs_flags: u32, project: u32) -> Result<()> {
        self.set_flags_now(object, fs_flags, project)?;
        self.settle(object)
    }

    fn set_flags_now(&self, object: ObjNum, fs_flags: u32, project: u32) -> Result<()> {
        let w = self.writer()?;
        let node = self.node(object)?;
        let wanted = Pflags::from_fs_flags(fs_flags).ok_or(Error::BadFlags { object })?;
        let a = node.attr();
        let new = Some(u64::from(project)).filter(|p| *p != a.projid);
        let counted = self.uses_sa()
            && self.objset().phys().flags.0 & ObjsetFlags::PROJECTQUOTA_COMPLETE != 0
            && matches!(a.kind, FileType::Regular | FileType::Directory);
        if new.is_some() && !counted {
            return Err(Error::BadFlags { object });
        }
        self.check_one_more(w, Payers::new(None, None, new))?;
        // A file gets space for its project when it is created. A file from before projects were
        // counted has none.
        let tx = w.logged_tx(Need::growing(2 * ATTR_BYTES))?;
        let now = w.now();
        let flags = |a: &Attr| a.pflags.0 & !Pflags::FS_FLAGS | wanted.0 | Pflags::ARCHIVE;
        let change = |node: &Node, c: &mut Changes| {
            let a = node.attr();
            c.changed(a, now);
            c.word(Sa::Flags, flags(a));
            if a.pflags.has(Pflags::PROJID) {
                c.word(Sa::Projid, project.into());
            }
            Ok(())
        };
        let all = || {
            let with = (|node: &Node| flags(node.attr()), now);
            if new.is_some() && self.add_project(w, &tx, object, project.into(), with)? {
                // No record covers the added space: commits wait for the txg.
                w.unlogged(&tx);
                return Ok(());
            }
            self.update_and(w, object, &tx, change, |a| w.log_flags(&tx, a, wanted, project))
        };
        w.or_unlogged(&tx, all())?;
        drop(tx);
        if new.is_some() { self.hidden_follow(w, object) } else { Ok(()) }
    }
}

fn change(w: &Writer, node: &Node, c: &mut Changes, set: &SetAttr) -> Result<()> {
    let a = node.attr();
    let mut flags = a.pflags.0 | Pflags::ARCHIVE;
    if let Some(p) = set.permissions {
        let mode = a.mode & !0o7777 | p & 0o7777;
        let rule = w.policy().acl_mode;
        let gone = rule == AclMode::Discard || a.pflags.has(Pflags::ACL_TRIVIAL);
        let old = if gone { Vec::new() } else { node.acl()?.aces };
        let directory = a.kind == FileType::Directory;
        let acl = nfs4::chmod(&old, mode, directory, rule == AclMode::GroupMask);
        c.word(Sa::Mode, mode.into());
        c.word(Sa::DaclCount, acl.count);
        c.bytes(Sa::DaclAces, acl.aces);
        flags &= !(ACL_HOLDS | NO_EXECS_DENIED | Pflags::ACL_TRIVIAL);
        flags |= acl.flags;
    }
    if let Some(uid) = set.uid {
        c.word(Sa::Uid, uid.into());
    }
    if let Some(gid) = set.gid {
        c.word(Sa::Gid, gid.into());
    }
    if let Some(t) = set.atime {
        c.time(Sa::Atime, t);
    }
    if let Some(t) = set.mtime {
        c.time(Sa::Mtime, t);
    }
    if set.kill && set.permissions.is_none() {
        c.drop_privileges(a);
    }
    c.word(Sa::Flags, flags);
    Ok(())
}

/// Removes an ACL in the old form when a new one is written; returns its object, if it has one.
fn old_acl(node: &Node, c: &mut Changes) -> Result<Option<ObjNum>> {
    let Store::Sa(sa) = &node.store else { return Ok(None) };
    if sa.raw(Sa::ZnodeAcl)?.is_none() {
        return Ok(None);
    }
    c.remove(Sa::ZnodeAcl);
    super::remove::outer_acl(node)
}
