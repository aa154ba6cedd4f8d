//! Identifiers of volumes, vnodes and principals.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($type:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $type);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The number of a volume in its cell (`VolumeId`). 31 bits are in use; 0 is no volume.
    VolumeId(u32)
}
number! {
    /// The number of a file, directory or symbolic link in its volume (`VnodeId`).
    ///
    /// Directories have odd numbers, everything else has even ones. 0 is no vnode.
    Vnode(u32)
}
number! {
    /// What tells apart the users of one vnode number over time (`Unique`).
    ///
    /// A volume never hands out the same pair of vnode and unique twice.
    Unique(u32)
}
number! {
    /// The count of changes of a file's data or of a directory's entries (`FileVersion`).
    ///
    /// Clients cache data by it. It is 32 bits wide in dumps and in OpenAFS's answers.
    DataVersion(u32)
}
number! {
    /// A time in seconds since 1970 (`Date`). 0 is no time.
    Date(u32)
}
number! {
    /// The number of a user (positive) or group (negative) in the protection database.
    PrincipalId(i32)
}

impl Vnode {
    /// The root directory of each volume (`ROOTVNODE`).
    pub const ROOT: Self = Self(1);

    /// Whether vnodes of this number are directories (`vnodeIsDirectory`).
    pub fn is_directory(self) -> bool {
        self.0 & 1 == 1
    }
}

impl DataVersion {
    /// The version after one more change.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl PrincipalId {
    /// Everyone (`ANYUSERID`, system:anyuser).
    pub const ANYUSER: Self = Self(-101);
    /// Everyone who showed a ticket (`AUTHUSERID`, system:authuser).
    pub const AUTHUSER: Self = Self(-102);
    /// Administrators of the cell (`SYSADMINID`, system:administrators).
    pub const ADMINISTRATORS: Self = Self(-204);
    /// A caller without a ticket (`ANONYMOUSID`).
    pub const ANONYMOUS: Self = Self(32766);
}

/// The name of a file in its cell (`AFSFid`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fid {
    /// The volume.
    pub volume: VolumeId,
    /// The vnode in the volume.
    pub vnode: Vnode,
    /// The use of the vnode's number.
    pub unique: Unique,
}

impl fmt::Display for Fid {
    /// Volume, vnode and unique with dots between them, as OpenAFS's tools print them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.volume, self.vnode, self.unique)
    }
}

/// What a vnode is (`VnodeType`, `FileType`). The numbers are those of all formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VnodeType {
    /// A file (`vFile`).
    File = 1,
    /// A directory (`vDirectory`).
    Directory = 2,
    /// A symbolic link or a mount point (`vSymlink`).
    Symlink = 3,
}

impl VnodeType {
    /// The type with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::File, Self::Directory, Self::Symlink].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Which copy of its data a volume is (`readwriteVolume` and so on).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum VolumeType {
    /// The volume that changes (`readwriteVolume`, RWVOL).
    #[default]
    ReadWrite = 0,
    /// A released copy (`readonlyVolume`, ROVOL).
    ReadOnly = 1,
    /// The clone of the last backup (`backupVolume`, BACKVOL).
    Backup = 2,
}

impl VolumeType {
    /// The type with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::ReadWrite, Self::ReadOnly, Self::Backup].into_iter().find(|kind| *kind as u32 == number)
    }
}
