//! Files of versions 1 to 4, and upgrades of file systems to a newer version (`zfs_set_version`).
//!
//! # Theory
//! A file of version 1 to 4 has a znode in the bonus of its dnode, which is changed in place. A
//! file system of version 5 may hold files of both kinds, because an upgrade touches no file. The
//! next change of a file gives it system attributes, in the order of a new file, and gives its ACL
//! their form. Symbolic links stay as they are, as in OpenZFS: their targets follow the znode.
//!
//! # On disk
//! An ACL of at most 72 bytes is embedded in the znode. A larger one lies in an object of its own,
//! which is freed when the ACL fits again or changes its encoding. The encoding is version 0 before
//! version 3 of the file system, and version 1 from then on.

use super::data::ATTR_BYTES;
use super::remove;
use super::trivial::stored;
use super::update::Value;
use crate::fs::{ZPL_VERSION, ZPL_VERSION_SA};
use crate::node::Store;
use crate::{Error, FileSystem, FileType, Node, Result};
use dmu::sa::Sa;
use dmu::zap::Value as Entry;
use dmu::{Dnode, NewObject, Tx};
use dsl::Need;
use ondisk::acl::{Ace, AclPhys, AclVersion, aces};
use ondisk::objset::ObjsetFlags;
use ondisk::sa::Attr;
use ondisk::znode::{Pflags, ZNODE_SIZE, Znode};
use ondisk::{Corrupt, DmuType, ObjNum};

/// The first version of file systems with ACLs of version 1 (`ZPL_VERSION_FUID`).
const ZPL_VERSION_FUID: u64 = 3;
/// Bytes of a bonus, which the target of a symbolic link may share (`DN_OLD_MAX_BONUSLEN`).
const BONUS_MAX: usize = 320;
/// Bytes of a scan stamp (`AV_SCANSTAMP_SZ`).
const SCANSTAMP_SIZE: usize = 32;

/// The system attributes of a converted file, in order, before its ACL.
const ORDER: [Attr; 14] = [
    Attr::Mode,
    Attr::Size,
    Attr::Gen,
    Attr::Uid,
    Attr::Gid,
    Attr::Parent,
    Attr::Flags,
    Attr::Atime,
    Attr::Mtime,
    Attr::Ctime,
    Attr::Crtime,
    Attr::Links,
    Attr::Projid,
    Attr::Rdev,
];

/// The encoding of a file system's ACLs (`zfs_acl_version`).
fn acl_version(version: u64) -> AclVersion {
    if version < ZPL_VERSION_FUID { AclVersion::Initial } else { AclVersion::Fuid }
}

/// The position of an attribute in a znode. Only for a damaged file or record can there be none.
fn lies_in(attr: Attr) -> ondisk::Result<std::ops::Range<usize>> {
    Znode::place(attr).ok_or(Corrupt::Shape { what: "znode", why: "it has no place for an attribute" })
}

/// The znode of a new file with these attributes, whose ACL is in the form of system attributes.
/// Also returns the ACL's entries if they don't fit into the znode.
pub(crate) fn znode(attrs: &[(Attr, &[u8])], version: u64) -> ondisk::Result<(Vec<u8>, Option<Vec<u8>>)> {
    let mut raw = vec![0; ZNODE_SIZE];
    let mut count = 0;
    let mut outside = None;
    for (attr, value) in attrs {
        match attr {
            Attr::DaclCount => count = word_of(value) as u32,
            Attr::DaclAces => {
                let entries = aces(AclVersion::Fuid, count, value)?;
                let (phys, object) = AclPhys::of(&entries, acl_version(version));
                raw[lies_in(Attr::ZnodeAcl)?].copy_from_slice(&phys.encode());
                outside = object;
            }
            Attr::Symlink => {}
            attr => raw[lies_in(*attr)?].copy_from_slice(value),
        }
    }
    Ok((raw, outside))
}

fn word_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("it is a word"))
}

impl FileSystem {
    /// Gives a new file, whose bonus holds a znode, its attributes.
    pub(super) fn begin_znode(&self, tx: &Tx, dn: &Dnode, attrs: &[(Attr, &[u8])]) -> Result<()> {
        let corrupt = |source| Error::Corrupt { object: dn.object(), source };
        let (mut raw, outside) = znode(attrs, self.version()).map_err(corrupt)?;
        if let Some(aces) = outside {
            let object = self.new_acl(tx, &aces)?;
            let at = lies_in(Attr::ZnodeAcl).map_err(corrupt)?;
            raw[at][..8].copy_from_slice(&object.0.to_le_bytes());
        }
        if let Some((_, target)) = attrs.iter().find(|(attr, _)| *attr == Attr::Symlink) {
            if ZNODE_SIZE + target.len() <= BONUS_MAX {
                raw.extend_from_slice(target);
            } else {
                let size = u32::try_from(target.len()).expect("a target is a path");
                dn.set_block_size(tx, size)?;
                dn.write_at(tx, 0, target)?;
            }
        }
        Ok(dn.set_bonus(tx, DmuType::ZNODE, &raw)?)
    }

    /// Creates an object for an ACL that does not fit into the znode.
    fn new_acl(&self, tx: &Tx, raw: &[u8]) -> Result<ObjNum> {
        let kind = match acl_version(self.version()) {
            AclVersion::Initial => NewObject::new(DmuType::OLDACL),
            AclVersion::Fuid => NewObject::new(DmuType::ACL).with_bonus(DmuType::SYSACL, vec![0; BONUS_MAX]),
        };
        let block_size = u32::try_from(raw.len()).expect("an ACL is small");
        let dn = self.objset().create_object(tx, &NewObject { block_size, ..kind })?;
        dn.write_at(tx, 0, raw)?;
        Ok(dn.object())
    }
}

impl Node {
    /// Changes a file with a znode: in place, or by converting it to system attributes if the file
    /// system has them.
    pub(super) fn apply_to_znode(&self, z: &Znode, changes: &[(Attr, Value)], tx: &Tx) -> Result<()> {
        if self.fs.uses_sa() && self.attr().kind != FileType::Symlink {
            return self.convert(z, changes, tx);
        }
        let mut raw = self.dn.bonus().to_vec();
        let mut freed = None;
        let place = |attr: Attr| lies_in(attr).map_err(|e| self.corrupt(e));
        // Check that all attributes have a place before the first change.
        for (attr, _) in changes.iter().filter(|(a, _)| !matches!(a, Attr::DaclCount | Attr::DaclAces)) {
            place(*attr)?;
        }
        for (attr, value) in changes {
            match (attr, value.bytes()) {
                // The entries and the count are set together, with the entries.
                (Attr::DaclCount | Attr::ZnodeAcl, _) => {}
                (Attr::DaclAces, Some(entries)) => {
                    let count = changes.iter().find(|(a, _)| *a == Attr::DaclCount);
                    let count = count.and_then(|(_, v)| v.bytes()).map_or(0, word_of) as u32;
                    let entries = aces(AclVersion::Fuid, count, entries).map_err(|e| self.corrupt(e))?;
                    freed = Some(z.acl.extern_obj).filter(|o| o.0 != 0);
                    let phys = self.place_acl(&entries, tx)?;
                    raw[place(Attr::ZnodeAcl)?].copy_from_slice(&phys.encode());
                }
                (attr, Some(value)) => raw[place(*attr)?].copy_from_slice(value),
                (attr, None) => raw[place(*attr)?].fill(0),
            }
        }
        self.dn.set_bonus(tx, DmuType::ZNODE, &raw)?;
        freed.map_or(Ok(()), |acl| Ok(self.fs.objset().free_object(tx, acl)?))
    }

    fn place_acl(&self, entries: &[Ace], tx: &Tx) -> Result<AclPhys> {
        let (mut phys, outside) = AclPhys::of(entries, acl_version(self.fs.version()));
        if let Some(raw) = outside {
            phys.extern_obj = self.fs.new_acl(tx, &raw)?;
        }
        Ok(phys)
    }

    /// Replaces the znode by system attributes with these changes (`zfs_sa_upgrade`).
    fn convert(&self, z: &Znode, changes: &[(Attr, Value)], tx: &Tx) -> Result<()> {
        let bonus = self.dn.bonus();
        let kind = self.attr().kind;
        let counted = self.fs.objset().phys().flags.0 & ObjsetFlags::PROJECTQUOTA_COMPLETE != 0
            && matches!(kind, FileType::Regular | FileType::Directory);
        let new = |attr: Attr| changes.iter().find(|(a, _)| *a == attr).map(|(_, v)| v.bytes());
        let place = |attr: Attr| lies_in(attr).map_err(|e| self.corrupt(e));
        let mut flags = new(Attr::Flags).flatten().map_or(z.flags.0, word_of);
        // The flag always means space for a project, whatever set it: accounting finds the project
        // by the flag.
        let counted = counted || flags & Pflags::PROJID != 0;
        flags |= if counted { Pflags::PROJID } else { 0 };
        let stamp = bonus.get(ZNODE_SIZE..ZNODE_SIZE + SCANSTAMP_SIZE);
        let stamp = stamp.filter(|_| flags & Pflags::BONUS_SCANSTAMP != 0);
        flags &= !Pflags::BONUS_SCANSTAMP;
        let (flags, no_project) = (flags.to_le_bytes(), [0; 8]);
        let device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        let (count, entries) = match (new(Attr::DaclCount).flatten(), new(Attr::DaclAces).flatten()) {
            (Some(count), Some(entries)) => (word_of(count), entries.to_vec()),
            _ => stored(self.acl()?.aces.iter()),
        };
        let count = count.to_le_bytes();
        let mut all: Vec<(Attr, &[u8])> = Vec::new();
        for attr in ORDER {
            let value = match attr {
                Attr::Flags => &flags[..],
                Attr::Projid if !counted => continue,
                Attr::Projid => new(attr).flatten().unwrap_or(&no_project),
                Attr::Rdev if !device => continue,
                attr => match new(attr).flatten() {
                    Some(value) => value,
                    None => &bonus[place(attr)?],
                },
            };
            all.push((attr, value));
        }
        all.extend([(Attr::DaclCount, &count[..]), (Attr::DaclAces, &entries[..])]);
        match new(Attr::Xattr) {
            Some(value) => all.extend(value.map(|v| (Attr::Xattr, v))),
            None if z.xattr.0 != 0 => all.push((Attr::Xattr, &bonus[place(Attr::Xattr)?])),
            None => {}
        }
        all.extend(stamp.map(|s| (Attr::Scanstamp, s)));
        all.extend(new(Attr::Dxattr).flatten().map(|v| (Attr::Dxattr, v)));
        let outside = remove::outer_acl(self)?;
        // The bonus is a znode until `replace` writes the new layout.
        self.fs.sa().replace(&self.dn, tx, &all)?;
        outside.map_or(Ok(()), |acl| Ok(self.fs.objset().free_object(tx, acl)?))
    }

    /// True if extended attributes may be stored as system attributes, now or after a conversion
    /// (`z_is_sa`).
    pub(super) fn takes_own(&self) -> bool {
        match self.store {
            Store::Sa(_) => true,
            Store::Znode(_) => self.fs.uses_sa() && self.attr().kind != FileType::Symlink,
        }
    }
}

impl FileSystem {
    /// Upgrades the file system to a newer version, without waiting; the current version is no
    /// change (`zfs_set_version`).
    ///
    /// The transaction has no record. So records that need the new version stay out of the log
    /// until its txg is on disk.
    ///
    /// # Errors
    /// * [`Error::UnsupportedVersion`]: the version does not exist, or is older than the current
    ///   one.
    /// * The errors of [changing](Error#changing).
    pub fn set_version(&self, version: u64) -> Result<()> {
        let w = self.writer()?;
        if version > ZPL_VERSION || version < self.version() {
            return Err(Error::UnsupportedVersion { version });
        }
        let _one = w.moves.lock();
        if version <= self.version() {
            return Ok(());
        }
        let tx = w.tx(Need::growing(16 * ATTR_BYTES))?;
        let made = if version >= ZPL_VERSION_SA && !self.uses_sa() {
            let (sa, number) = Sa::create(self.objset(), &tx, None)?;
            self.master().update(&tx, b"SA_ATTRS", &Entry::from(number.0))?;
            Some(sa)
        } else {
            None
        };
        self.master().update(&tx, b"VERSION", &Entry::from(version))?;
        self.now_is(version, made);
        Ok(())
    }
}
