//! The enumerations in block pointers and dnodes: object types, checksums, compressors.

use crate::{Corrupt, Result};
use strum::{FromRepr, IntoStaticStr};

/// Checksum function of a block (`enum zio_checksum`, `ZIO_CHECKSUM_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum ChecksumKind {
    /// The parent's function; never in a block pointer on disk.
    Inherit = 0,
    /// The default function; never in a block pointer on disk.
    On = 1,
    /// No checksum.
    Off = 2,
    /// SHA-256 embedded in a label area.
    Label = 3,
    /// SHA-256 embedded in a gang header.
    GangHeader = 4,
    /// Fletcher-2 embedded in an intent log block (`ZIO_CHECKSUM_ZILOG`).
    Zilog = 5,
    /// Fletcher-2.
    Fletcher2 = 6,
    /// Fletcher-4.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// Fletcher-4 embedded in an intent log block (`ZIO_CHECKSUM_ZILOG2`).
    Zilog2 = 9,
    /// No checksum; raidz does not verify parity either (`ZIO_CHECKSUM_NOPARITY`).
    Noparity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Skein-512-256, salted.
    Skein = 12,
    /// Edon-R-512, salted.
    Edonr = 13,
    /// BLAKE3, salted.
    Blake3 = 14,
}

impl ChecksumKind {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: OpenZFS 2.3 has no function with this number.
    pub fn from_disk(v: u8) -> Result<Self> {
        Self::from_repr(v).ok_or(Corrupt::Range { what: "block pointer", field: "checksum", value: v.into() })
    }

    /// The name that properties and `zdb` use (`ci_name` in `zio_checksum_table`).
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Compressor of a block (`enum zio_compress`, `ZIO_COMPRESS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum CompressKind {
    /// The parent's compressor; never in a block pointer on disk.
    Inherit = 0,
    /// The default compressor; never in a block pointer on disk.
    On = 1,
    /// No compression.
    #[strum(serialize = "uncompressed")]
    Off = 2,
    /// LZJB.
    Lzjb = 3,
    /// All zeros, stored as a hole.
    Empty = 4,
    /// gzip, level 1.
    #[strum(serialize = "gzip-1")]
    Gzip1 = 5,
    /// gzip, level 2.
    #[strum(serialize = "gzip-2")]
    Gzip2 = 6,
    /// gzip, level 3.
    #[strum(serialize = "gzip-3")]
    Gzip3 = 7,
    /// gzip, level 4.
    #[strum(serialize = "gzip-4")]
    Gzip4 = 8,
    /// gzip, level 5.
    #[strum(serialize = "gzip-5")]
    Gzip5 = 9,
    /// gzip, level 6.
    #[strum(serialize = "gzip-6")]
    Gzip6 = 10,
    /// gzip, level 7.
    #[strum(serialize = "gzip-7")]
    Gzip7 = 11,
    /// gzip, level 8.
    #[strum(serialize = "gzip-8")]
    Gzip8 = 12,
    /// gzip, level 9.
    #[strum(serialize = "gzip-9")]
    Gzip9 = 13,
    /// Zero-length encoding: runs of zeros are replaced by their length.
    Zle = 14,
    /// LZ4.
    Lz4 = 15,
    /// Zstandard; the level is in the block's own header.
    Zstd = 16,
}

impl CompressKind {
    /// Decodes an on-disk number.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: OpenZFS 2.3 has no compressor with this number.
    pub fn from_disk(v: u8) -> Result<Self> {
        Self::from_repr(v).ok_or(Corrupt::Range {
            what: "block pointer",
            field: "compression",
            value: v.into(),
        })
    }

    /// The name that properties and `zdb` use (`ci_name` in `zio_compress_table`).
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a block is converted from one byte order to the other (`dmu_object_byteswap_t`,
/// `DMU_BSWAP_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr)]
#[repr(u8)]
pub enum ByteSwap {
    /// Bytes: nothing to swap.
    Uint8 = 0,
    /// Array of 16-bit words.
    Uint16 = 1,
    /// Array of 32-bit words.
    Uint32 = 2,
    /// Array of 64-bit words.
    Uint64 = 3,
    /// ZAP blocks.
    Zap = 4,
    /// Arrays of dnodes.
    Dnode = 5,
    /// Object sets.
    Objset = 6,
    /// A `znode_phys_t` in a bonus buffer.
    Znode = 7,
    /// ACLs of ZPL version 0.
    OldAcl = 8,
    /// ACLs.
    Acl = 9,
}

/// Type of an object, as dnodes and block pointers name it (`dmu_object_type_t`).
///
/// Two families share the byte:
///
/// * Numbered types, the entries of `dmu_ot[]`.
/// * Self-describing types (bit 7 is set, `DMU_OTN_*`), which carry their byte swap, a metadata bit
///   and an encryption bit.
///
/// Each constant below is `DMU_OT_` and its name in OpenZFS, unless its line names another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DmuType(u8);

/// A type's byte swap, whether its blocks are metadata, whether they are encrypted, its name
/// (`dmu_object_type_info_t`).
struct TypeInfo(ByteSwap, bool, bool, &'static str);

use ByteSwap as B;
const TYPES: [TypeInfo; 54] = [
    TypeInfo(B::Uint8, true, false, "unallocated"),
    TypeInfo(B::Zap, true, false, "object directory"),
    TypeInfo(B::Uint64, true, false, "object array"),
    TypeInfo(B::Uint8, true, false, "packed nvlist"),
    TypeInfo(B::Uint64, true, false, "packed nvlist size"),
    TypeInfo(B::Uint64, true, false, "bpobj"),
    TypeInfo(B::Uint64, true, false, "bpobj header"),
    TypeInfo(B::Uint64, true, false, "SPA space map header"),
    TypeInfo(B::Uint64, true, false, "SPA space map"),
    TypeInfo(B::Uint64, true, true, "ZIL intent log"),
    TypeInfo(B::Dnode, true, true, "DMU dnode"),
    TypeInfo(B::Objset, true, false, "DMU objset"),
    TypeInfo(B::Uint64, true, false, "DSL directory"),
    TypeInfo(B::Zap, true, false, "DSL directory child map"),
    TypeInfo(B::Zap, true, false, "DSL dataset snap map"),
    TypeInfo(B::Zap, true, false, "DSL props"),
    TypeInfo(B::Uint64, true, false, "DSL dataset"),
    TypeInfo(B::Znode, true, false, "ZFS znode"),
    TypeInfo(B::OldAcl, true, true, "ZFS V0 ACL"),
    TypeInfo(B::Uint8, false, true, "ZFS plain file"),
    TypeInfo(B::Zap, true, true, "ZFS directory"),
    TypeInfo(B::Zap, true, false, "ZFS master node"),
    TypeInfo(B::Zap, true, true, "ZFS delete queue"),
    TypeInfo(B::Uint8, false, true, "zvol object"),
    TypeInfo(B::Zap, true, false, "zvol prop"),
    TypeInfo(B::Uint8, false, true, "other uint8[]"),
    TypeInfo(B::Uint64, false, true, "other uint64[]"),
    TypeInfo(B::Zap, true, false, "other ZAP"),
    TypeInfo(B::Zap, true, false, "persistent error log"),
    TypeInfo(B::Uint8, true, false, "SPA history"),
    TypeInfo(B::Uint64, true, false, "SPA history offsets"),
    TypeInfo(B::Zap, true, false, "Pool properties"),
    TypeInfo(B::Zap, true, false, "DSL permissions"),
    TypeInfo(B::Acl, true, true, "ZFS ACL"),
    TypeInfo(B::Uint8, true, true, "ZFS SYSACL"),
    TypeInfo(B::Uint8, true, true, "FUID table"),
    TypeInfo(B::Uint64, true, false, "FUID table size"),
    TypeInfo(B::Zap, true, false, "DSL dataset next clones"),
    TypeInfo(B::Zap, true, false, "scan work queue"),
    TypeInfo(B::Zap, true, true, "ZFS user/group/project used"),
    TypeInfo(B::Zap, true, true, "ZFS user/group/project quota"),
    TypeInfo(B::Zap, true, false, "snapshot refcount tags"),
    TypeInfo(B::Zap, true, false, "DDT ZAP algorithm"),
    TypeInfo(B::Zap, true, false, "DDT statistics"),
    TypeInfo(B::Uint8, true, true, "System attributes"),
    TypeInfo(B::Zap, true, true, "SA master node"),
    TypeInfo(B::Zap, true, true, "SA attr registration"),
    TypeInfo(B::Zap, true, true, "SA attr layouts"),
    TypeInfo(B::Zap, true, false, "scan translations"),
    TypeInfo(B::Uint8, false, true, "deduplicated block"),
    TypeInfo(B::Zap, true, false, "DSL deadlist map"),
    TypeInfo(B::Uint64, true, false, "DSL deadlist map hdr"),
    TypeInfo(B::Zap, true, false, "DSL dir clones"),
    TypeInfo(B::Uint64, true, false, "bpobj subobj"),
];

const NEW_TYPE: u8 = 0x80;
const NEW_METADATA: u8 = 0x40;
const NEW_ENCRYPTED: u8 = 0x20;

impl DmuType {
    /// No object.
    pub const NONE: Self = Self(0);
    /// The directory of the MOS.
    pub const OBJECT_DIRECTORY: Self = Self(1);
    /// An array of object numbers.
    pub const OBJECT_ARRAY: Self = Self(2);
    /// An nvlist in XDR encoding.
    pub const PACKED_NVLIST: Self = Self(3);
    /// The length of a packed nvlist, in the bonus.
    pub const PACKED_NVLIST_SIZE: Self = Self(4);
    /// A list of block pointers.
    pub const BPOBJ: Self = Self(5);
    /// Header of a bpobj, in the bonus.
    pub const BPOBJ_HDR: Self = Self(6);
    /// Header of a space map, in the bonus.
    pub const SPACE_MAP_HEADER: Self = Self(7);
    /// A space map.
    pub const SPACE_MAP: Self = Self(8);
    /// An intent log block.
    pub const INTENT_LOG: Self = Self(9);
    /// An array of dnodes.
    pub const DNODE: Self = Self(10);
    /// An object set.
    pub const OBJSET: Self = Self(11);
    /// A DSL directory, in the bonus.
    pub const DSL_DIR: Self = Self(12);
    /// The children of a DSL directory.
    pub const DSL_DIR_CHILD_MAP: Self = Self(13);
    /// The snapshots of a dataset, by name (`DMU_OT_DSL_DS_SNAP_MAP`).
    pub const DSL_DS_SNAP_MAP: Self = Self(14);
    /// Properties.
    pub const DSL_PROPS: Self = Self(15);
    /// A DSL dataset, in the bonus.
    pub const DSL_DATASET: Self = Self(16);
    /// A `znode_phys_t`, in the bonus.
    pub const ZNODE: Self = Self(17);
    /// An ACL of ZPL version 0.
    pub const OLDACL: Self = Self(18);
    /// File contents.
    pub const PLAIN_FILE_CONTENTS: Self = Self(19);
    /// Directory contents.
    pub const DIRECTORY_CONTENTS: Self = Self(20);
    /// The master node of a file system.
    pub const MASTER_NODE: Self = Self(21);
    /// The unlinked set of a file system.
    pub const UNLINKED_SET: Self = Self(22);
    /// The contents of a volume.
    pub const ZVOL: Self = Self(23);
    /// The properties of a volume.
    pub const ZVOL_PROP: Self = Self(24);
    /// The history of the pool.
    pub const SPA_HISTORY: Self = Self(29);
    /// The bounds of the history, in the bonus.
    pub const SPA_HISTORY_OFFSETS: Self = Self(30);
    /// The properties of the pool.
    pub const POOL_PROPS: Self = Self(31);
    /// Delegated permissions.
    pub const DSL_PERMS: Self = Self(32);
    /// An ACL that has an object of its own.
    pub const ACL: Self = Self(33);
    /// An ACL in a system attribute.
    pub const SYSACL: Self = Self(34);
    /// The clones of a snapshot.
    pub const NEXT_CLONES: Self = Self(37);
    /// Space by user, group or project.
    pub const USERGROUP_USED: Self = Self(39);
    /// Limits by user, group or project.
    pub const USERGROUP_QUOTA: Self = Self(40);
    /// The log of damaged blocks.
    pub const ERROR_LOG: Self = Self(28);
    /// A ZAP of any other use.
    pub const ZAP_OTHER: Self = Self(27);
    /// Datasets that a scan has yet to visit.
    pub const SCAN_QUEUE: Self = Self(38);
    /// The holds of a snapshot.
    pub const USERREFS: Self = Self(41);
    /// A dedup table.
    pub const DDT_ZAP: Self = Self(42);
    /// Totals of the dedup tables.
    pub const DDT_STATS: Self = Self(43);
    /// System attributes: a bonus or a spill block.
    pub const SA: Self = Self(44);
    /// The SA master node.
    pub const SA_MASTER_NODE: Self = Self(45);
    /// The SA registry: attributes by name.
    pub const SA_ATTR_REGISTRATION: Self = Self(46);
    /// The SA layouts by number.
    pub const SA_ATTR_LAYOUTS: Self = Self(47);
    /// The type of the block pointers that are made from dedup table entries.
    pub const DEDUP: Self = Self(49);
    /// A deadlist: a map from transaction group to bpobj.
    pub const DEADLIST: Self = Self(50);
    /// Header of a deadlist, in the bonus.
    pub const DEADLIST_HDR: Self = Self(51);
    /// The clones of a directory.
    pub const DSL_CLONES: Self = Self(52);
    /// Numbers of the sub-bpobjs of a bpobj.
    pub const BPOBJ_SUBOBJ: Self = Self(53);
    /// Self-describing bytes, as metadata (`DMU_OTN_UINT8_METADATA`).
    pub const UINT8_METADATA: Self = Self(0xc0);
    /// Self-describing 64-bit words, as metadata (`DMU_OTN_UINT64_METADATA`).
    pub const UINT64_METADATA: Self = Self(0xc3);
    /// A self-describing ZAP, as metadata (`DMU_OTN_ZAP_METADATA`).
    pub const ZAP_METADATA: Self = Self(0xc4);

    /// Decodes an on-disk byte (`DMU_OT_IS_VALID`).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: OpenZFS 2.3 has no type with this number.
    pub fn from_disk(v: u8) -> Result<Self> {
        let ok = if v & NEW_TYPE != 0 { v & 0x1f <= B::Acl as u8 } else { usize::from(v) < TYPES.len() };
        if ok { Ok(Self(v)) } else { Err(Corrupt::Range { what: "object", field: "type", value: v.into() }) }
    }

    /// Encodes the type as its on-disk byte.
    pub fn to_disk(self) -> u8 {
        self.0
    }

    /// How the level-0 blocks of this type are byte-swapped (`DMU_OT_BYTESWAP`).
    pub fn byteswap(self) -> ByteSwap {
        if self.0 & NEW_TYPE == 0 {
            return TYPES[usize::from(self.0)].0;
        }
        ByteSwap::from_repr(self.0 & 0x1f).expect("it was checked when it was decoded")
    }

    /// True if the level-0 blocks of this type are metadata too (`DMU_OT_IS_METADATA`).
    pub fn is_metadata(self) -> bool {
        if self.0 & NEW_TYPE != 0 { self.0 & NEW_METADATA != 0 } else { TYPES[usize::from(self.0)].1 }
    }

    /// True if the level-0 blocks of this type are encrypted in an encrypted dataset
    /// (`DMU_OT_IS_ENCRYPTED`).
    pub fn is_encrypted(self) -> bool {
        if self.0 & NEW_TYPE != 0 { self.0 & NEW_ENCRYPTED != 0 } else { TYPES[usize::from(self.0)].2 }
    }

    /// The name that `zdb` prints (`ot_name` in `dmu_ot[]`).
    pub fn name(self) -> &'static str {
        if self.0 & NEW_TYPE == 0 {
            return TYPES[usize::from(self.0)].3;
        }
        match (self.byteswap(), self.is_metadata()) {
            (B::Uint8, true) => "uint8 (metadata)",
            (B::Uint8, false) => "uint8",
            (B::Uint16, true) => "uint16 (metadata)",
            (B::Uint16, false) => "uint16",
            (B::Uint32, true) => "uint32 (metadata)",
            (B::Uint32, false) => "uint32",
            (B::Uint64, true) => "uint64 (metadata)",
            (B::Uint64, false) => "uint64",
            (B::Zap, true) => "zap (metadata)",
            (B::Zap, false) => "zap",
            (B::Dnode, _) => "dnode",
            (B::Objset, _) => "objset",
            (B::Znode, _) => "znode",
            (B::OldAcl, _) => "v0 ACL",
            (B::Acl, _) => "ACL",
        }
    }
}

#[cfg(test)]
mod tests;
