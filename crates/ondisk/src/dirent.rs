//! Values of directory ZAPs: an object number and a type in one word.

#[cfg(test)]
mod tests;

use crate::ObjNum;

/// Type of a directory entry, as `readdir` reports it (`DT_*`, `IFTODT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Not recorded: entries of ZPL version 1.
    Unknown,
    /// A fifo.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A plain file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    /// The type of the four bits that directory entries (`DT_*`) and modes (`S_IFMT >> 12`) share.
    pub fn from_bits(bits: u64) -> Self {
        match bits & 0xf {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// The type in a file mode (`IFTODT`).
    pub fn from_mode(mode: u64) -> Self {
        Self::from_bits(mode >> 12)
    }

    /// The four bits of the type.
    pub fn bits(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }
}

/// The value of a directory entry: the type in the top four bits, the object number in the low 48
/// (`zfs_dirent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent {
    /// Object of the file (`ZFS_DIRENT_OBJ`).
    pub obj: ObjNum,
    /// Type of the file (`ZFS_DIRENT_TYPE`).
    pub kind: FileType,
}

impl Dirent {
    /// Decodes a stored value. The twelve bits between type and object are unused, and ignored as
    /// in OpenZFS.
    pub fn from_disk(v: u64) -> Self {
        Self { obj: ObjNum(v & 0xffff_ffff_ffff), kind: FileType::from_bits(v >> 60) }
    }

    /// Encodes the value.
    pub fn to_disk(self) -> u64 {
        (self.kind.bits() << 60) | (self.obj.0 & 0xffff_ffff_ffff)
    }
}
