//! Znodes of ZPL versions 1 to 4, and the flags that all versions share (`zfs_znode.h`, `zfs_sa.h`).
//!
//! # On disk
//! Before system attributes (ZPL 5), a file's attributes were a fixed structure of 264 bytes in its dnode's bonus,
//! followed by a short symlink's target or a scan stamp.

#[cfg(test)]
mod tests;

use crate::acl::{ACL_PHYS_SIZE, AclPhys};
use crate::bytes::le64;
use crate::sa::Attr;
use crate::{ByteOrder, Corrupt, ObjNum, Result};
use std::ops::Range;

/// Size of a `znode_phys_t`, and where a symlink's target follows it (`ZFS_OLD_ZNODE_PHYS_SIZE`).
pub const ZNODE_SIZE: usize = 264;

/// Where its ACL begins.
const ACL_AT: usize = ZNODE_SIZE - ACL_PHYS_SIZE;

/// A znode of ZPL 1 to 4. Times are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Znode {
    /// Last access.
    pub atime: [u64; 2],
    /// Last change of the contents.
    pub mtime: [u64; 2],
    /// Last change of anything.
    pub ctime: [u64; 2],
    /// Creation.
    pub crtime: [u64; 2],
    /// Transaction group of creation.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Size in bytes; entries of a directory.
    pub size: u64,
    /// The parent directory.
    pub parent: ObjNum,
    /// Number of links.
    pub links: u64,
    /// Directory of extended attributes, or 0.
    pub xattr: ObjNum,
    /// Device number, of device files.
    pub rdev: u64,
    /// [`Pflags`].
    pub flags: Pflags,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Its ACL.
    pub acl: AclPhys,
}

impl Znode {
    /// The znode at the start of a bonus.
    ///
    /// # Errors
    /// [`Corrupt`] if the bonus is too short or its ACL impossible.
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

    /// Where a znode keeps an attribute, in the host's order of a little-endian pool (`sa_legacy_attrs`); `None` if it has no place for it.
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
    /// It is an extended attribute, or a directory of them (`ZFS_XATTR`).
    pub const XATTR: u64 = 0x1;
    /// Its ACL says no more than its mode (`ZFS_ACL_TRIVIAL`).
    pub const ACL_TRIVIAL: u64 = 0x4;
    /// A scan stamp follows the znode (`ZFS_BONUS_SCANSTAMP`).
    pub const BONUS_SCANSTAMP: u64 = 0x80;
    /// `ZFS_READONLY`, of DOS.
    pub const READONLY: u64 = 1 << 32;
    /// `ZFS_HIDDEN`, of DOS.
    pub const HIDDEN: u64 = 1 << 33;
    /// `ZFS_SYSTEM`, of DOS.
    pub const SYSTEM: u64 = 1 << 34;
    /// `ZFS_ARCHIVE`, of DOS.
    pub const ARCHIVE: u64 = 1 << 35;
    /// It cannot be changed (`ZFS_IMMUTABLE`).
    pub const IMMUTABLE: u64 = 1 << 36;
    /// It cannot be removed (`ZFS_NOUNLINK`).
    pub const NOUNLINK: u64 = 1 << 37;
    /// It can only grow (`ZFS_APPENDONLY`).
    pub const APPENDONLY: u64 = 1 << 38;
    /// Dumps skip it (`ZFS_NODUMP`).
    pub const NODUMP: u64 = 1 << 39;
    /// Children inherit its project (`ZFS_PROJINHERIT`).
    pub const PROJINHERIT: u64 = 1 << 46;
    /// It has a project id of its own (`ZFS_PROJID`).
    pub const PROJID: u64 = 1 << 47;

    /// True if all of `bits` are set.
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Those that `FS_IOC_GETFLAGS` shows.
    pub const FS_FLAGS: u64 = Self::IMMUTABLE | Self::APPENDONLY | Self::NODUMP | Self::PROJINHERIT;

    /// The same by the bits of Linux: immutable, append-only, nodump, and project inheritance.
    const FS_BITS: [(u64, u32); 4] = [
        (Self::IMMUTABLE, 0x10),
        (Self::APPENDONLY, 0x20),
        (Self::NODUMP, 0x40),
        (Self::PROJINHERIT, 0x2000_0000),
    ];

    /// What `FS_IOC_GETFLAGS` answers: immutable, append-only, nodump, and project inheritance.
    pub fn to_fs_flags(self) -> u32 {
        Self::FS_BITS.iter().filter(|(bit, _)| self.has(*bit)).fold(0, |fl, (_, f)| fl | f)
    }

    /// The flags that `FS_IOC_SETFLAGS` asks for; `None` if one of them is unknown.
    pub fn from_fs_flags(bits: u32) -> Option<Self> {
        let known = Self::FS_BITS.iter().fold(0, |all, (_, f)| all | f);
        let flags = Self::FS_BITS.iter().filter(|(_, f)| bits & f != 0).fold(0, |all, (bit, _)| all | bit);
        (bits & !known == 0).then_some(Self(flags))
    }
}
