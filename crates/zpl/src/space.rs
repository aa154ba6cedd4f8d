//! Space and objects by user, group and project, and their quotas (`zfs userspace`).
//!
//! # Theory
//! Tables hold the counts, and each txg changes them. A file system that arrived in a raw stream
//! has no tables, or old ones, until it was changed and counted ([`crate::write`]). Then, and in
//! its snapshots, the counts come from a walk through all files.
//!
//! A stream can carry hundreds of owners whose entries collide in a table. The table then lacks
//! some of them: they show no use, and their quotas refuse nothing.

use crate::{Error, FileSystem, Fuid, Node, Result};
use dmu::zap::Zap;
use dmu::{DMU_GROUPUSED_OBJECT, DMU_PROJECTUSED_OBJECT, DMU_USERUSED_OBJECT, Dnode};
use ondisk::dnode::DNODE_MIN_SIZE;
use ondisk::objset::ObjsetFlags;
use ondisk::version::SPA_VERSION_USERSPACE;
use ondisk::{Corrupt, ObjNum};
use std::collections::BTreeMap;

/// Prefix of entries that count objects instead of bytes (`DMU_OBJACCT_PREFIX`).
pub(crate) const OBJECTS: &[u8] = b"obj-";

/// A kind of accounting or quota (`zfs_userquota_prop_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// Bytes used by users.
    UserUsed,
    /// Limits of users' bytes.
    UserQuota,
    /// Bytes used by groups.
    GroupUsed,
    /// Limits of groups' bytes.
    GroupQuota,
    /// Objects of users.
    UserObjUsed,
    /// Limits of users' objects.
    UserObjQuota,
    /// Objects of groups.
    GroupObjUsed,
    /// Limits of groups' objects.
    GroupObjQuota,
    /// Bytes used by projects.
    ProjectUsed,
    /// Limits of projects' bytes.
    ProjectQuota,
    /// Objects of projects.
    ProjectObjUsed,
    /// Limits of projects' objects.
    ProjectObjQuota,
}

impl SpaceKind {
    /// The master node's entry for a quota; `None` for usage.
    pub(crate) fn quota_name(self) -> Option<&'static str> {
        Some(match self {
            Self::UserQuota => "userquota@",
            Self::GroupQuota => "groupquota@",
            Self::UserObjQuota => "userobjquota@",
            Self::GroupObjQuota => "groupobjquota@",
            Self::ProjectQuota => "projectquota@",
            Self::ProjectObjQuota => "projectobjquota@",
            Self::UserUsed
            | Self::GroupUsed
            | Self::UserObjUsed
            | Self::GroupObjUsed
            | Self::ProjectUsed
            | Self::ProjectObjUsed => return None,
        })
    }

    /// The object that accounts for usage, and whether its entries count objects; `None` for a
    /// quota.
    fn used(self) -> Option<(ObjNum, bool)> {
        Some(match self {
            Self::UserUsed => (DMU_USERUSED_OBJECT, false),
            Self::UserObjUsed => (DMU_USERUSED_OBJECT, true),
            Self::GroupUsed => (DMU_GROUPUSED_OBJECT, false),
            Self::GroupObjUsed => (DMU_GROUPUSED_OBJECT, true),
            Self::ProjectUsed => (DMU_PROJECTUSED_OBJECT, false),
            Self::ProjectObjUsed => (DMU_PROJECTUSED_OBJECT, true),
            Self::UserQuota
            | Self::GroupQuota
            | Self::UserObjQuota
            | Self::GroupObjQuota
            | Self::ProjectQuota
            | Self::ProjectObjQuota => return None,
        })
    }
}

/// One line of accounting (`zfs_useracct_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The user, group or project.
    pub id: Fuid,
    /// Bytes or objects, used or allowed.
    pub value: u64,
}

impl FileSystem {
    /// The table of one kind, and whether its entries count objects; `None` if there is none.
    fn table(&self, kind: SpaceKind) -> Result<Option<(Dnode, bool)>> {
        let (object, objects) = match kind.used() {
            Some(used) => used,
            None => match self.quota_object(kind)? {
                Some(obj) => (obj, false),
                None => return Ok(None),
            },
        };
        let dn = match self.objset().dnode(object) {
            Ok(dn) => dn,
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if dn.max_size() == 0 || dn.block(ondisk::BlkId(0))?.is_none() {
            return Ok(None);
        }
        Ok(Some((dn, objects)))
    }

    /// The accounting or quota of one user, group or project; `None` if there is none
    /// (`zfs_userspace_one`).
    ///
    /// # Errors
    /// * [`crate::Error::Dmu`]: the table can't be read, or a file of a file system that is not
    ///   counted.
    /// * [`crate::Error::Corrupt`]: such a file has no valid attributes.
    pub fn space_of(&self, kind: SpaceKind, id: Fuid) -> Result<Option<u64>> {
        if let Some((table, objects)) = kind.used().filter(|_| !self.is_counted()) {
            return Ok(self.count_files(table, objects)?.remove(&id.0));
        }
        let Some((dn, objects)) = self.table(kind)? else { return Ok(None) };
        let prefix = if objects { OBJECTS } else { b"" };
        let name = [prefix, format!("{:x}", id.0).as_bytes()].concat();
        Ok(Zap::open(&dn)?.lookup_u64(&name)?)
    }

    /// All entries of one kind, in no special order; empty if the file system has none
    /// (`zfs_userspace_many`).
    ///
    /// # Errors
    /// * [`crate::Error::Dmu`]: the table can't be read, or an entry is not an id and a count, or a
    ///   file of a file system that is not counted can't be read.
    /// * [`crate::Error::Corrupt`]: such a file has no valid attributes.
    pub fn space(&self, kind: SpaceKind) -> Result<Vec<Space>> {
        if let Some((table, objects)) = kind.used().filter(|_| !self.is_counted()) {
            let counts = self.count_files(table, objects)?;
            return Ok(counts.into_iter().map(|(id, value)| Space { id: Fuid(id), value }).collect());
        }
        let Some((dn, objects)) = self.table(kind)? else { return Ok(Vec::new()) };
        let zap = Zap::open(&dn)?;
        let bad =
            || dn.corrupt(Corrupt::Shape { what: "space accounting", why: "an entry is not id and count" });
        let mut out = Vec::new();
        for e in zap.entries() {
            let e = e?;
            let (name, counts_objects) = match e.name().strip_prefix(OBJECTS) {
                Some(rest) => (rest, true),
                None => (e.name(), false),
            };
            if counts_objects != objects {
                continue;
            }
            let id = std::str::from_utf8(name)
                .ok()
                .and_then(|s| u64::from_str_radix(s, 16).ok())
                .ok_or_else(bad)?;
            out.push(Space { id: Fuid(id), value: e.value.as_u64().ok_or_else(bad)? });
        }
        Ok(out)
    }

    /// True if the tables hold all files, or the pool is too old to have tables. Otherwise
    /// [`FileSystem::space`] takes a walk through all files.
    pub fn is_counted(&self) -> bool {
        let os = self.objset();
        let complete = os.phys().flags.0 & ObjsetFlags::USERACCOUNTING_COMPLETE != 0;
        complete || os.cache().zio().pool_version() < SPA_VERSION_USERSPACE
    }

    /// What the owners in a table use, by a walk through the files as the last txg left them.
    fn count_files(&self, table: ObjNum, objects: bool) -> Result<BTreeMap<u64, u64>> {
        let mut counts = BTreeMap::new();
        for dn in self.objset().objects(ObjNum(1)) {
            let dn = dn?;
            let used = dn.used_bytes().saturating_add(DNODE_MIN_SIZE as u64);
            let node = match Node::new(self.clone(), dn) {
                Ok(node) => node,
                Err(Error::NoFile { .. }) => continue,
                Err(e) => return Err(e),
            };
            let attr = node.attr();
            let owner = match table {
                DMU_USERUSED_OBJECT => attr.uid.0,
                DMU_GROUPUSED_OBJECT => attr.gid.0,
                _ => attr.projid,
            };
            let count: &mut u64 = counts.entry(owner).or_default();
            *count = count.saturating_add(if objects { 1 } else { used });
        }
        Ok(counts)
    }
}
