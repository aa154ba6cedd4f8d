//! Volume dumps: what `vos dump` writes and `vos restore` reads.
//!
//! # Theory
//! A dump is a stream of sections. Each section begins with its number, and holds tagged values. A
//! tag says what its value is, and so how long it is; there are no lengths around it.
//!
//! | section | content |
//! | --- | --- |
//! | 1 | the dump header: volume, name, and the time span that the dump covers |
//! | 2 | the volume header |
//! | 3 | one vnode: number and unique, attributes, and last its data |
//! | 4 | the end |
//!
//! A full dump has each vnode whole: first the directories (odd numbers), then the others, each in
//! ascending order. An incremental dump *names* each vnode of the volume. Those changed since its
//! first date are whole, and all directories are, unless the caller omits unchanged directories
//! (`VOLDUMPV2_OMITDIRS`). The receiver deletes vnodes that a dump does not name.
//!
//! [`Reader`] takes a dump apart into [`Event`]s, and [`Writer`] makes one of the same parts. Both
//! hold one section and one buffer in memory.
//!
//! A newer program may add tags. [`Reader`] skips an unknown tag where the format gives its length,
//! unless the tag before it (126) says that it is critical.
//!
//! # Absent
//! The reader requires neither the order of the vnodes nor that each occurs once.
//!
//! # See
//! OpenAFS: `src/volser/dump.h`, `src/volser/dumpstuff.c`.

mod input;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Event, Reader};
pub(crate) use writer::{NAME_SIZE, record_size};
pub(crate) use writer::{Output, Plain};
pub use writer::{Writer, dump_size};

use crate::acl::RAW_SIZE as ACL_SIZE;
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
use crate::volume_name::MAX_NAME;

/// Longest message in a volume header in bytes (`VMSGSIZE` without its NUL).
pub const MAX_MESSAGE: usize = 127;
/// Most time spans in a dump header (`MAXDUMPTIMES`).
pub const MAX_SPANS: usize = 50;
/// Largest file in a dump in bytes. Lengths are signed in OpenAFS.
pub const MAX_LENGTH: u64 = i64::MAX as u64;

const BEGIN_MAGIC: u32 = 0xB3A1_1322;
const END_MAGIC: u32 = 0x3A21_4B6E;
const VERSION: u32 = 1;

/// The numbers of sections (`D_DUMPHEADER` and so on).
mod section {
    pub const DUMP_HEADER: u8 = 1;
    pub const VOLUME_HEADER: u8 = 2;
    pub const VNODE: u8 = 3;
    pub const DUMP_END: u8 = 4;
    /// Every number up to this one begins a section (`D_MAX`).
    pub const MAX: u8 = 20;
}

/// A time span that a dump covers: changes from `from` on, up to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The date since which changes are in the dump. It is 0 in a full dump.
    pub from: Date,
    /// The date of the last change that the dump has.
    pub to: Date,
}

/// The dump header (`DumpHeader`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The volume that was dumped.
    pub volume: VolumeId,
    /// Its name.
    pub name: Vec<u8>,
    /// What the dump covers. Merged dumps may have several spans, all others have one.
    pub spans: Vec<Span>,
}

/// The volume header of a dump (`VolumeDiskData`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeHeader {
    /// The volume.
    pub id: VolumeId,
    /// The version of the volume's format, 1 (`V_stamp.version`).
    pub version: u32,
    /// The name.
    pub name: Vec<u8>,
    /// Whether the volume may be attached (`V_inService`).
    pub in_service: bool,
    /// Whether clients may use the volume (`V_blessed`).
    pub blessed: bool,
    /// The unique of the next new vnode, with a reserve (`V_uniquifier`).
    pub next_unique: Unique,
    /// Which copy this is (`V_type`).
    pub kind: VolumeType,
    /// The read-write volume of the group (`V_parentId`).
    pub parent: VolumeId,
    /// The read-only volume that was cloned last (`V_cloneId`).
    pub clone: VolumeId,
    /// The quota in KiB, 0 for none (`V_maxquota`).
    pub quota: u32,
    /// The space in KiB that is reserved; 0 (`V_minquota`).
    pub min_quota: u32,
    /// The space in use, in KiB (`V_diskused`).
    pub disk_used: u32,
    /// The number of vnodes (`V_filecount`).
    pub file_count: u32,
    /// The account; 0 (`V_accountNumber`).
    pub account: u32,
    /// The owner; 0 (`V_owner`).
    pub owner: PrincipalId,
    /// When the volume was made, or cloned (`V_creationDate`).
    pub creation_date: Date,
    /// When the volume was last used (`V_accessDate`).
    pub access_date: Date,
    /// When the volume last changed (`V_updateDate`).
    pub update_date: Date,
    /// When the volume expires; 0 (`V_expirationDate`).
    pub expiration_date: Date,
    /// When the backup volume was last cloned (`V_backupDate`).
    pub backup_date: Date,
    /// Why the volume is offline (`V_offlineMessage`).
    pub offline_message: Vec<u8>,
    /// The message of the day. OpenAFS always writes an empty one.
    pub motd: Vec<u8>,
    /// Uses on each of the last seven days (`V_weekUse`).
    pub week_use: [u32; 7],
    /// The day that `day_use` counts (`V_dayUseDate`).
    pub day_use_date: Date,
    /// Uses today (`V_dayUse`).
    pub day_use: u32,
}

/// One vnode of a dump, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VnodeRecord {
    /// The number.
    pub vnode: Vnode,
    /// The use of the number.
    pub unique: Unique,
    /// The attributes. `None`: the dump only names the vnode, which has not changed.
    pub attributes: Option<Attributes>,
}

/// The attributes of a vnode (`VnodeDiskObject`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// What the vnode is.
    pub kind: VnodeType,
    /// The number of directory entries that name the vnode, or 2 and the subdirectories.
    pub link_count: u16,
    /// The count of changes.
    pub data_version: DataVersion,
    /// The modification time that users see (`unixModifyTime`).
    pub modify_time: Date,
    /// The user who stored the data last.
    pub author: PrincipalId,
    /// The owner.
    pub owner: PrincipalId,
    /// The Unix group; mostly 0.
    pub group: i32,
    /// The Unix mode bits.
    pub mode: u16,
    /// The directory that has the vnode; 0 for the root.
    pub parent: Vnode,
    /// When the server last changed the vnode (`serverModifyTime`).
    pub server_modify_time: Date,
    /// The access list of a directory, in its raw form. [`crate::acl::Acl::from_raw`] decodes it.
    pub acl: Option<[u8; ACL_SIZE]>,
    /// The length of the data that follows. `None`: no data are in the dump.
    pub length: Option<u64>,
}
