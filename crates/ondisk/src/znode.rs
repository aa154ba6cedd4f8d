//! Znodes of ZPL versions 1 to 4, and the file flags of all versions (`sys/zfs_znode.h`,
//! `sys/zfs_sa.h`).
//!
//! # On disk
//! Before system attributes (ZPL 5), a file's attributes were a fixed structure of 264 bytes in the
//! bonus of its dnode. The target of a short symbolic link, or a scan stamp, follows it.

#[cfg(test)]
mod tests;

use crate::acl::{ACL_PHYS_SIZE, AclPhys};
use crate::bytes::le64;
use crate::sa::Attr;
use crate::{ByteOrder, Corrupt, ObjNum, Result};
use std::ops::Range;

/// Size of a `znode_phys_t`, and the offset of a symbolic link's target
/// (`ZFS_OLD_ZNODE_PHYS_SIZE`).
pub const ZNODE_SIZE: usize = 264;

/// Offset of the ACL.
const ACL_AT: usize = ZNODE_SIZE - ACL_PHYS_SIZE;

/// A znode of ZPL 1 to 4 (`znode_phys_t`). Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Znode {
    /// Time of the last access (`zp_atime`).
    pub atime: [u64; 2],
    /// Time of the last change of the contents (`zp_mtime`).
    pub mtime: [u64; 2],
    /// Time of the last change of contents or attributes (`zp_ctime`).
    pub ctime: [u64; 2],
    /// Time of creation (`zp_crtime`).
    pub crtime: [u64; 2],
    /// Transaction group of creation (`zp_gen`).
    pub generation: u64,
    /// File type and permissions (`zp_mode`).
    pub mode: u64,
    /// Size in bytes, or number of entries of a directory (`zp_size`).
    pub size: u64,
    /// Object of the parent directory (`zp_parent`).
    pub parent: ObjNum,
    /// Number of links (`zp_links`).
    pub links: u64,
    /// Object of the directory of extended attributes, or 0 (`zp_xattr`).
    pub xattr: ObjNum,
    /// Device number of a device file (`zp_rdev`).
    pub rdev: u64,
    /// Flags of the file (`zp_flags`).
    pub flags: Pflags,
    /// Owner (`zp_uid`).
    pub uid: u64,
    /// Group (`zp_gid`).
    pub gid: u64,
    /// ACL (`zp_acl`).
    pub acl: AclPhys,
}

impl Znode {
    /// Decodes the znode at the start of a bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus has fewer than 264 bytes.
    /// * [`Corrupt::Range`]: the ACL has a fault that [`AclPhys::parse`] lists.
    pub fn parse(bonus: &[u8]) -> Result<Self> {
        if bonus.len() < ZNODE_SIZE {
            return Err(Corrupt::Truncated { what: "znode", need: ZNODE_SIZE, have: bonus.len() });
        }
        let w = |i: usize| le64(bonus, i * 8);
        Ok(Self {
            atime: [w(0), w(1)],
            mtime: [w(2), w(3)],
            ctime: [w(4), w(5)],
            crtime: [w(6), w(7)],
            generation: w(8),
            mode: w(9),
            size: w(10),
            parent: ObjNum(w(11)),
            links: w(12),
            xattr: ObjNum(w(13)),
            rdev: w(14),
            flags: Pflags(w(15)),
            uid: w(16),
            gid: w(17),
            acl: AclPhys::parse(ByteOrder::Little, &bonus[ACL_AT..])?,
        })
    }

    /// Range of an attribute in a little-endian znode; `None` if a znode doesn't have it
    /// (`sa_legacy_attrs`).
    pub fn place(attr: Attr) -> Option<Range<usize>> {
        let (at, words) = match attr {
            Attr::Atime => (0, 2),
            Attr::Mtime => (2, 2),
            Attr::Ctime => (4, 2),
            Attr::Crtime => (6, 2),
            Attr::Gen => (8, 1),
            Attr::Mode => (9, 1),
            Attr::Size => (10, 1),
            Attr::Parent => (11, 1),
            Attr::Links => (12, 1),
            Attr::Xattr => (13, 1),
            Attr::Rdev => (14, 1),
            Attr::Flags => (15, 1),
            Attr::Uid => (16, 1),
            Attr::Gid => (17, 1),
            Attr::ZnodeAcl => return Some(ACL_AT..ZNODE_SIZE),
            _ => return None,
        };
        Some(at * 8..(at + words) * 8)
    }
}

/// Flags of a file (`z_pflags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pflags(pub u64);

impl Pflags {
    /// The file is an extended attribute, or a directory of them (`ZFS_XATTR`).
    pub const XATTR: u64 = 0x1;
    /// The ACL expresses only the mode (`ZFS_ACL_TRIVIAL`).
    pub const ACL_TRIVIAL: u64 = 0x4;
    /// A scan stamp follows the znode (`ZFS_BONUS_SCANSTAMP`).
    pub const BONUS_SCANSTAMP: u64 = 0x80;
    /// Read-only, for DOS (`ZFS_READONLY`).
    pub const READONLY: u64 = 1 << 32;
    /// Hidden, for DOS (`ZFS_HIDDEN`).
    pub const HIDDEN: u64 = 1 << 33;
    /// System file, for DOS (`ZFS_SYSTEM`).
    pub const SYSTEM: u64 = 1 << 34;
    /// To be archived, for DOS (`ZFS_ARCHIVE`).
    pub const ARCHIVE: u64 = 1 << 35;
    /// The file cannot be changed (`ZFS_IMMUTABLE`).
    pub const IMMUTABLE: u64 = 1 << 36;
    /// The file cannot be removed (`ZFS_NOUNLINK`).
    pub const NOUNLINK: u64 = 1 << 37;
    /// The file can only grow (`ZFS_APPENDONLY`).
    pub const APPENDONLY: u64 = 1 << 38;
    /// Dumps skip the file (`ZFS_NODUMP`).
    pub const NODUMP: u64 = 1 << 39;
    /// Children inherit the project (`ZFS_PROJINHERIT`).
    pub const PROJINHERIT: u64 = 1 << 46;
    /// The file has a project id of its own (`ZFS_PROJID`).
    pub const PROJID: u64 = 1 << 47;

    /// True if all of `bits` are set.
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// The flags that `FS_IOC_GETFLAGS` shows (`ZFS_FL_USER_VISIBLE`).
    pub const FS_FLAGS: u64 = Self::IMMUTABLE | Self::APPENDONLY | Self::NODUMP | Self::PROJINHERIT;

    /// These flags, with the bits of Linux: immutable, append-only, nodump, project inheritance.
    const FS_BITS: [(u64, u32); 4] = [
        (Self::IMMUTABLE, 0x10),
        (Self::APPENDONLY, 0x20),
        (Self::NODUMP, 0x40),
        (Self::PROJINHERIT, 0x2000_0000),
    ];

    /// The bits that `FS_IOC_GETFLAGS` returns: immutable, append-only, nodump, project
    /// inheritance.
    pub fn to_fs_flags(self) -> u32 {
        Self::FS_BITS.iter().filter(|(bit, _)| self.has(*bit)).fold(0, |fl, (_, f)| fl | f)
    }

    /// The flags for the bits of `FS_IOC_SETFLAGS`; `None` if a bit is unknown.
    pub fn from_fs_flags(bits: u32) -> Option<Self> {
        let known = Self::FS_BITS.iter().fold(0, |all, (_, f)| all | f);
        let flags = Self::FS_BITS.iter().filter(|(_, f)| bits & f != 0).fold(0, |all, (bit, _)| all | bit);
        (bits & !known == 0).then_some(Self(flags))
    }
}
