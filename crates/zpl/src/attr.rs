//! Attributes of a file, from a znode or from system attributes.

use crate::{Error, Result};
use dmu::Dnode;
use dmu::sa::Attrs;
use ondisk::dirent::FileType;
use ondisk::fuid::Fuid;
use ondisk::sa::Attr as Sa;
use ondisk::znode::{Pflags, Znode};
use ondisk::{Corrupt, ObjNum};
use std::time::{SystemTime, UNIX_EPOCH};

/// More than there are kinds of system attributes.
const SA_KINDS: usize = 32;

/// A time, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds of the second.
    pub nanos: u32,
}

impl Time {
    fn from_disk(raw: [u64; 2]) -> Self {
        // Another port may have stored a value that is no fraction of a second. Zero replaces it.
        Self {
            secs: raw[0] as i64,
            nanos: u32::try_from(raw[1]).ok().filter(|n| *n < 1_000_000_000).unwrap_or(0),
        }
    }

    /// Nanoseconds since 1970.
    pub fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }
}

impl From<SystemTime> for Time {
    /// A time before 1970 becomes 0.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    }
}

/// Everything that `stat` shows of a file, and some more (`zfs_getattr_fast`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The object number, which is the inode number.
    pub object: ObjNum,
    /// The type of the file.
    pub kind: FileType,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner. Linux shows [`Fuid::rid`] as the uid.
    pub uid: Fuid,
    /// Group.
    pub gid: Fuid,
    /// Size in bytes; for a directory, the number of entries including `.` and `..`.
    pub size: u64,
    /// Number of links.
    pub nlink: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Space in units of 512 bytes, as `st_blocks`.
    pub blocks: u64,
    /// Bytes of a block, as `st_blksize`.
    pub block_size: u64,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// Transaction group of the creation. With the object number, it identifies this file forever.
    pub generation: u64,
    /// Project; 0 means none.
    pub projid: u64,
    /// Flags of the file (`z_pflags`).
    pub pflags: Pflags,
    /// The directory that contains the file; for the root, the root itself.
    pub parent: ObjNum,
    /// The directory of the file's extended attributes.
    pub xattr_dir: Option<ObjNum>,
    /// True if no block waits to be written. Otherwise `blocks` will change.
    pub settled: bool,
}

impl Attr {
    /// The flags that the ioctl `FS_IOC_GETFLAGS` returns (`zpl_ioctl_getflags`).
    pub fn fs_flags(&self) -> u32 {
        self.pflags.to_fs_flags()
    }

    /// Space as Linux shows it, including the slots of the dnode.
    fn blocks(dn: &Dnode) -> u64 {
        let phys = dn.phys();
        dn.used_bytes().saturating_add(256) / 512 + phys.num_slots() as u64
    }

    /// Decodes Linux's device number, which has 20 bits of minor.
    fn rdev(raw: u64) -> (u32, u32) {
        ((raw >> 20) as u32, (raw & 0xf_ffff) as u32)
    }

    fn is_device(kind: FileType) -> bool {
        matches!(kind, FileType::CharDevice | FileType::BlockDevice)
    }

    /// The attributes in a znode.
    pub(crate) fn of_znode(dn: &Dnode, z: &Znode) -> Self {
        let kind = FileType::from_mode(z.mode);
        Self {
            object: dn.object(),
            kind,
            mode: z.mode as u32,
            uid: Fuid(z.uid),
            gid: Fuid(z.gid),
            size: z.size,
            nlink: z.links,
            atime: Time::from_disk(z.atime),
            mtime: Time::from_disk(z.mtime),
            ctime: Time::from_disk(z.ctime),
            crtime: Time::from_disk(z.crtime),
            blocks: Self::blocks(dn),
            block_size: dn.block_size(),
            rdev: Self::is_device(kind).then(|| Self::rdev(z.rdev)),
            generation: z.generation,
            projid: 0,
            pflags: z.flags,
            parent: z.parent,
            xattr_dir: Some(z.xattr).filter(|o| o.0 != 0),
            settled: dn.space_is_settled(),
        }
    }

    /// The attributes in system attributes.
    ///
    /// # Errors
    /// * [`Error::Corrupt`]: an attribute that every file has is missing.
    /// * [`Error::Dmu`]: a spill block can't be read.
    pub(crate) fn of_sa(dn: &Dnode, sa: &Attrs) -> Result<Self> {
        let missing = || Error::Corrupt {
            object: dn.object(),
            source: Corrupt::Shape { what: "file", why: "an attribute is missing" },
        };
        // Nearly all are in the bonus, which one pass reads.
        let mut here = [None; SA_KINDS];
        for (attr, raw) in sa.in_bonus() {
            let (words, _) = raw.as_chunks::<8>();
            let word = |at| words.get(at).map(|word| u64::from_le_bytes(*word));
            if let Some(slot @ None) = here.get_mut(attr as usize)
                && let Some(first) = word(0)
            {
                *slot = Some((first, word(1)));
            }
        }
        let found = |a: Sa| here.get(a as usize).copied().flatten();
        let word = |a| match found(a) {
            Some((word, _)) => Ok(word),
            None => sa.u64(a)?.ok_or_else(missing),
        };
        let time = |a| match found(a) {
            Some((secs, Some(nanos))) => Ok::<_, Error>(Time::from_disk([secs, nanos])),
            _ => Ok(Time::from_disk(sa.pair(a)?.ok_or_else(missing)?)),
        };
        let mode = word(Sa::Mode)?;
        let kind = FileType::from_mode(mode);
        let pflags = Pflags(word(Sa::Flags)?);
        Ok(Self {
            object: dn.object(),
            kind,
            mode: mode as u32,
            uid: Fuid(word(Sa::Uid)?),
            gid: Fuid(word(Sa::Gid)?),
            size: word(Sa::Size)?,
            nlink: word(Sa::Links)?,
            atime: time(Sa::Atime)?,
            mtime: time(Sa::Mtime)?,
            ctime: time(Sa::Ctime)?,
            crtime: time(Sa::Crtime)?,
            blocks: Self::blocks(dn),
            block_size: dn.block_size(),
            rdev: if Self::is_device(kind) { sa.u64(Sa::Rdev)?.map(Self::rdev) } else { None },
            generation: word(Sa::Gen)?,
            projid: if pflags.has(Pflags::PROJID) { sa.u64(Sa::Projid)?.unwrap_or(0) } else { 0 },
            pflags,
            parent: ObjNum(word(Sa::Parent)?),
            xattr_dir: sa.u64(Sa::Xattr)?.filter(|o| *o != 0).map(ObjNum),
            settled: dn.space_is_settled(),
        })
    }
}
