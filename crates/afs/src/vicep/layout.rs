//! The records of a partition's files.
//!
//! # On disk
//! | record | bytes | OpenAFS |
//! | --- | --- | --- |
//! | the head of a volume | 76 | `VolumeDiskHeader` |
//! | the information of a volume | 552 | `VolumeDiskData` |
//! | the head of an index: its magic number and version | 8 | `IndexFileHeader` |
//! | a file or link in its index | 64 | `VnodeDiskObject` |
//! | a directory in its index: the same, and an access list | 256 | |

use super::{Damage, names};
use crate::acl::RAW_SIZE;
use crate::dump::{Attributes, VolumeHeader};
use crate::types::{DataVersion, Date, PrincipalId, Unique, Vnode, VnodeType, VolumeId, VolumeType};
use crate::volume_name::MAX_NAME;

/// Bytes of a file or link in its index (`SIZEOF_SMALLDISKVNODE`).
pub const SMALL_SIZE: usize = 64;
/// Bytes of a directory in its index (`SIZEOF_LARGEDISKVNODE`).
pub const LARGE_SIZE: usize = SMALL_SIZE + RAW_SIZE;
/// Bytes of a head.
pub(super) const HEAD_SIZE: usize = 76;
/// Bytes of the information.
pub(super) const INFO_SIZE: usize = 552;

const HEAD_MAGIC: u32 = 0x88a1_bb3c;
const INFO_MAGIC: u32 = 0x78a1_b2c5;
const SMALL_MAGIC: u32 = 0x9977_6655;
const LARGE_MAGIC: u32 = 0x8866_4433;
const SMALL_VNODE: u32 = 0xda8c_041f;
const LARGE_VNODE: u32 = 0xad87_65fe;
const VERSION: u32 = 1;

/// The types of special files (`VI_VOLINFO` and so on).
pub(super) const VI_INFO: u32 = 1;
const VI_SMALL: u32 = 2;
const VI_LARGE: u32 = 3;

/// The value of `destroyMe` that counts (`DESTROY_ME`).
const DESTROY_ME: u8 = 0xd3;
/// Where the information has the name, and the message why the volume is offline.
const NAME: std::ops::Range<usize> = 12..44;
const MESSAGE: std::ops::Range<usize> = 296..424;
/// The words of an access list before its entries, and most entries.
const ACL_HEAD: usize = 5;
const ACL_ENTRIES: usize = 20;

type Checked<T> = std::result::Result<T, Damage>;

/// The number at a byte of a record, whose length was checked.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A number whose halves are at two places.
fn long(bytes: &[u8], low: usize, high: usize) -> u64 {
    u64::from(word(bytes, high)) << 32 | u64::from(word(bytes, low))
}

/// A field's value, if it is the only possible one.
fn only(field: &'static str, value: u64, wanted: u64) -> Checked<()> {
    if value == wanted { Ok(()) } else { Err(Damage::Field { field, value }) }
}

fn magic(found: u32, wanted: u32) -> Checked<()> {
    match found {
        found if found == wanted => Ok(()),
        found if found == wanted.swap_bytes() => Err(Damage::ByteOrder),
        found => Err(Damage::Magic { found, wanted }),
    }
}

/// Checks that a record has a length, and begins with a magic number and the version.
fn stamp(bytes: &[u8], size: usize, wanted: u32) -> Checked<()> {
    if bytes.len() != size {
        return Err(Damage::Length { found: bytes.len() as u64, wanted: size as u64 });
    }
    magic(word(bytes, 0), wanted)?;
    only("stamp.version", word(bytes, 4).into(), VERSION.into())
}

/// Checks the head of an index: of directories, or of files and links.
pub(super) fn index_head(bytes: &[u8], of_directories: bool) -> Checked<()> {
    stamp(bytes, 8, if of_directories { LARGE_MAGIC } else { SMALL_MAGIC })
}

/// A text up to its NUL.
fn text(field: &'static str, bytes: &[u8]) -> Checked<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or(Damage::Field { field, value: bytes.len() as u64 })?;
    Ok(bytes[..end].to_vec())
}

/// The head of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The volume.
    pub id: VolumeId,
    /// The read-write volume of its group.
    pub parent: VolumeId,
}

impl Head {
    /// Parses the bytes of the head of a volume. The special files that it names must be those of
    /// the volume.
    ///
    /// # Errors
    /// Any but [`Damage::File`].
    pub fn decode(bytes: &[u8], id: VolumeId) -> std::result::Result<Self, Damage> {
        stamp(bytes, HEAD_SIZE, HEAD_MAGIC)?;
        only("id", word(bytes, 8).into(), id.0.into())?;
        let parent = VolumeId(word(bytes, 12));
        if parent.0 == 0 {
            return Err(Damage::Field { field: "parent", value: 0 });
        }
        for (field, kind, low, high) in [
            ("volumeInfo", VI_INFO, 16, 36),
            ("smallVnodeIndex", VI_SMALL, 20, 40),
            ("largeVnodeIndex", VI_LARGE, 24, 44),
        ] {
            only(field, long(bytes, low, high), names::special(id, kind))?;
        }
        Ok(Self { id, parent })
    }

    /// The numbers of its special files: the information, the index of files, that of directories.
    pub(super) fn files(self) -> [u64; 3] {
        [VI_INFO, VI_SMALL, VI_LARGE].map(|kind| names::special(self.id, kind))
    }
}

/// Why a volume is not to be taken, although it may be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A program uses it, or crashed while it did (`inUse`).
    #[error(
        "its inUse is {by} ({}): a server has it, or crashed; stop the server, or run OpenAFS's salvager",
        user(*by)
    )]
    InUse {
        /// The program.
        by: u8,
    },
    /// A server found damage (`needsSalvaged`).
    #[error("its needsSalvaged is {value}: run OpenAFS's salvager")]
    NeedsSalvage {
        /// The value.
        value: u8,
    },
    /// It was never completed, or is deleted (`destroyMe`).
    #[error("its destroyMe is set: it was never completed, and OpenAFS's salvager deletes it")]
    DestroyMe,
}

/// The name of a program by its number (`ProgramType`).
fn user(by: u8) -> &'static str {
    match by {
        1 => "file server",
        2 => "volume utility",
        3 => "salvager",
        4 => "salvage server",
        5 => "debugging tool",
        6 => "volume server",
        7 => "volume salvager",
        _ => "unknown program",
    }
}

/// The information of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// What a dump has of it.
    pub header: VolumeHeader,
    /// The backup volume of the group (`backupId`).
    pub backup: VolumeId,
    /// When this copy was made (`copyDate`).
    pub copy_date: Date,
    in_use: u8,
    needs_salvage: u8,
    destroy_me: bool,
}

impl Info {
    /// Parses the bytes of the information of a volume.
    ///
    /// # Errors
    /// Any but [`Damage::File`].
    pub fn decode(bytes: &[u8], head: Head) -> std::result::Result<Self, Damage> {
        stamp(bytes, INFO_SIZE, INFO_MAGIC)?;
        let number = |at| word(bytes, at);
        let date = |at| Date(word(bytes, at));
        only("id", number(8).into(), head.id.0.into())?;
        only("parentId", number(56).into(), head.parent.0.into())?;
        let kind = VolumeType::from_number(number(52));
        let kind = kind.ok_or(Damage::Field { field: "type", value: number(52).into() })?;
        let name = text("name", &bytes[NAME])?;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Damage::Field { field: "the length of name", value: name.len() as u64 });
        }
        let header = VolumeHeader {
            id: head.id,
            version: number(4),
            name,
            in_service: bytes[45] != 0,
            blessed: bytes[46] != 0,
            next_unique: Unique(number(48)),
            kind,
            parent: head.parent,
            clone: VolumeId(number(60)),
            quota: number(100),
            min_quota: number(104),
            disk_used: number(156),
            file_count: number(152),
            account: number(112),
            owner: PrincipalId(number(116).cast_signed()),
            creation_date: date(240),
            access_date: date(244),
            update_date: date(248),
            expiration_date: date(252),
            backup_date: date(256),
            offline_message: text("offlineMessage", &bytes[MESSAGE])?,
            motd: Vec::new(),
            week_use: std::array::from_fn(|day| number(164 + 4 * day)),
            day_use_date: date(192),
            day_use: number(160),
        };
        Ok(Self {
            header,
            backup: VolumeId(number(64)),
            copy_date: date(260),
            in_use: bytes[44],
            needs_salvage: bytes[47],
            destroy_me: bytes[73] == DESTROY_ME,
        })
    }

    /// Why the volume is not to be taken, as OpenAFS's file server would not attach it.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match *self {
            Self { destroy_me: true, .. } => Some(Obstacle::DestroyMe),
            Self { needs_salvage: value @ 1.., .. } => Some(Obstacle::NeedsSalvage { value }),
            // Of clones, a server does not note that it uses them.
            Self { in_use: by @ 1.., .. } if self.header.kind == VolumeType::ReadWrite => {
                Some(Obstacle::InUse { by })
            }
            _ => None,
        }
    }
}

/// A vnode in its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskVnode {
    /// The number.
    pub vnode: Vnode,
    /// The use of the number.
    pub unique: Unique,
    /// The attributes as a dump has them.
    pub attributes: Attributes,
    /// The length of its data, as the index says.
    pub length: u64,
    /// The number of the file with its data.
    pub file: u64,
}

impl DiskVnode {
    /// Parses a record of an index: of directories if the vnode's number is odd. `None`: the
    /// number is not in use.
    ///
    /// # Errors
    /// Any but [`Damage::File`].
    pub fn decode(bytes: &[u8], vnode: Vnode) -> std::result::Result<Option<Self>, Damage> {
        let is_directory = vnode.is_directory();
        let size = if is_directory { LARGE_SIZE } else { SMALL_SIZE };
        if bytes.len() != size {
            return Err(Damage::Length { found: bytes.len() as u64, wanted: size as u64 });
        }
        let number = |at| word(bytes, at);
        // Bit fields: 3 bits type, 1 bit cloned, 12 bits mode, 16 bits count of links.
        let bits = number(0);
        let kind = bits & 7;
        if kind == 0 {
            return Ok(None);
        }
        magic(number(36), if is_directory { LARGE_VNODE } else { SMALL_VNODE })?;
        let wrong = Damage::Field { field: "type", value: kind.into() };
        let kind = VnodeType::from_number(kind)
            .filter(|kind| (*kind == VnodeType::Directory) == is_directory)
            .ok_or(wrong)?;
        let unique = Unique(number(8));
        let (length, file) = (long(bytes, 4, 60), long(bytes, 16, 56));
        if !names::is_of(file, vnode, unique) {
            return Err(Damage::Field { field: "vn_ino", value: file });
        }
        let acl = if is_directory { Some(access_list(&bytes[SMALL_SIZE..])?) } else { None };
        let attributes = Attributes {
            kind,
            link_count: (bits >> 16) as u16,
            data_version: DataVersion(number(12)),
            modify_time: Date(number(20)),
            author: PrincipalId(number(24).cast_signed()),
            owner: PrincipalId(number(28).cast_signed()),
            group: number(52).cast_signed(),
            mode: (bits >> 4 & 0xfff) as u16,
            parent: Vnode(number(32)),
            server_modify_time: Date(number(48)),
            acl,
            length: Some(length),
        };
        Ok(Some(Self { vnode, unique, attributes, length, file }))
    }
}

/// The access list of a directory in the byte order of dumps (`acl_HtonACL`).
fn access_list(bytes: &[u8]) -> Checked<[u8; RAW_SIZE]> {
    let mut raw = [0; RAW_SIZE];
    let entries = word(bytes, 8) as usize;
    if entries > ACL_ENTRIES {
        return Err(Damage::Field { field: "total of the access list", value: entries as u64 });
    }
    // What follows the last entry is left over from longer lists.
    let words = ACL_HEAD + 2 * entries;
    for (to, from) in raw.chunks_exact_mut(4).zip(bytes.chunks_exact(4)).take(words) {
        to.copy_from_slice(&word(from, 0).to_be_bytes());
    }
    crate::acl::Acl::from_raw(&raw)?;
    Ok(raw)
}
