//! Files that get a project although they were created without space for one (`sa_add_projid`).
//!
//! # On disk
//! Accounting finds owner, flags and project at fixed offsets, so a project can't be appended. All
//! attributes get a new layout, in the order of a new file. An ACL in the old form takes the new
//! one. A file has a project only if its flags say so, whatever lies at that offset.

use super::trivial::stored;
use super::update::{Changes, time_bytes};
use super::{Writer, remove};
use crate::node::Store;
use crate::{FileSystem, Node, Result, Time};
use dmu::Tx;
use ondisk::ObjNum;
use ondisk::sa::Attr as Sa;
use ondisk::znode::Pflags;

/// The attributes before the ACL, in order.
const BEFORE: [Sa; 14] = [
    Sa::Mode,
    Sa::Size,
    Sa::Gen,
    Sa::Uid,
    Sa::Gid,
    Sa::Parent,
    Sa::Flags,
    Sa::Atime,
    Sa::Mtime,
    Sa::Ctime,
    Sa::Crtime,
    Sa::Links,
    Sa::Projid,
    Sa::Rdev,
];
/// The attributes that may follow the ACL.
const BEHIND: [Sa; 3] = [Sa::Xattr, Sa::Scanstamp, Sa::Dxattr];

impl FileSystem {
    /// Sets the project and flags of a file without space for a project. False, with nothing
    /// changed, if the file has that space now.
    ///
    /// # Errors
    /// * The errors of [opening](crate::Error#opening).
    /// * [`Error::Dmu`](crate::Error::Dmu): also if the attributes don't fit.
    pub(super) fn add_project(
        &self,
        w: &Writer,
        tx: &Tx,
        object: ObjNum,
        project: u64,
        (flags, now): (impl FnOnce(&Node) -> u64, Time),
    ) -> Result<bool> {
        let held = w.locks.hold(object);
        let _attrs = held.attrs();
        let node = self.node(object)?;
        if node.attr().pflags.has(Pflags::PROJID) {
            return Ok(false);
        }
        let Store::Sa(sa) = &node.store else {
            // The file gets space for a project with its system attributes.
            let mut c = Changes::default();
            c.word(Sa::Flags, flags(&node) | Pflags::PROJID);
            c.word(Sa::Projid, project);
            c.time(Sa::Ctime, now);
            c.apply(&node, tx)?;
            return Ok(true);
        };
        let flags = (flags(&node) | Pflags::PROJID).to_le_bytes();
        let (project, ctime) = (project.to_le_bytes(), time_bytes(now));
        let acl = node.acl()?;
        let (count, aces) = stored(acl.aces.iter());
        let count = count.to_le_bytes();
        let mut kept = Vec::new();
        for attr in BEFORE.into_iter().chain(BEHIND) {
            kept.push((attr, sa.get(attr)?));
        }
        let (before, behind) = kept.split_at(BEFORE.len());
        let mut all: Vec<(Sa, &[u8])> = Vec::new();
        for (attr, value) in before {
            match attr {
                Sa::Flags => all.push((Sa::Flags, &flags)),
                Sa::Ctime => all.push((Sa::Ctime, &ctime)),
                Sa::Projid => all.push((Sa::Projid, &project)),
                _ => all.extend(value.as_deref().map(|v| (*attr, v))),
            }
        }
        all.extend([(Sa::DaclCount, &count[..]), (Sa::DaclAces, &aces[..])]);
        all.extend(behind.iter().filter_map(|(attr, v)| v.as_deref().map(|v| (*attr, v))));
        let outside = remove::outer_acl(&node)?;
        self.sa().replace(&node.dn, tx, &all)?;
        if let Some(acl) = outside {
            self.objset().free_object(tx, acl)?;
        }
        Ok(true)
    }
}
