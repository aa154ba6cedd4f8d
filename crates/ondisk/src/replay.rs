//! Records of send streams, and the features and flags of a stream.
//!
//! # On disk
//! A stream is a sequence of records of [`RECORD_SIZE`] bytes, in the byte order of the sender.
//! Some have a payload behind them.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | type of the record |
//! | 4..8 | length of the payload, in BEGIN only |
//! | 8..312 | the fields of the type |
//! | 280..312 | Fletcher-4 of the stream up to here; not in BEGIN, whose name is there |
//!
//! A stream begins with BEGIN and ends with END. A package of several streams
//! ([`HeaderType::Compound`]) has a BEGIN with a list of what is in it, an END, then the streams,
//! and one more END.
//!
//! # See
//! OpenZFS `dmu_replay_record_t`.

use crate::bytes::ByteOrder;
use crate::{Corrupt, Result};

/// Size of a record in bytes.
pub const RECORD_SIZE: usize = 312;
/// Where a record has its checksum.
pub const CHECKSUM_AT: usize = 280;
/// The magic number of BEGIN (`DMU_BACKUP_MAGIC`).
pub const BACKUP_MAGIC: u64 = 0x2_F5BA_CBAC;
/// The largest payload of a record that describes data (`SPA_MAXBLOCKSIZE`).
pub const MAX_DATA: u64 = 16 << 20;
/// The largest list behind a BEGIN (the default of `libzfs_max_nvlist`).
pub const MAX_LIST: u64 = 64 << 20;

const WHAT: &str = "stream record";

/// Bits of [`Begin::features`] (`DMU_BACKUP_FEATURE_*`).
pub mod features {
    /// Blocks that the stream had before are only named (`zfs send -D`, no longer made).
    pub const DEDUP: u64 = 1 << 0;
    /// The checksums of blocks are those of dedup (`zfs send -D`, no longer made).
    pub const DEDUPPROPS: u64 = 1 << 1;
    /// Objects may have spill blocks.
    pub const SA_SPILL: u64 = 1 << 2;
    /// Blocks may be embedded (`-e`).
    pub const EMBED_DATA: u64 = 1 << 16;
    /// Blocks may be compressed with lz4.
    pub const LZ4: u64 = 1 << 17;
    /// Blocks may be larger than 128 KiB (`-L`).
    pub const LARGE_BLOCKS: u64 = 1 << 19;
    /// The stream continues one that was interrupted (`-t`).
    pub const RESUMING: u64 = 1 << 20;
    /// Some blocks are left out on purpose (`--redact`).
    pub const REDACTED: u64 = 1 << 21;
    /// Blocks may be compressed (`-c`).
    pub const COMPRESSED: u64 = 1 << 22;
    /// Dnodes may be larger than 512 bytes.
    pub const LARGE_DNODE: u64 = 1 << 23;
    /// Blocks are as on disk, encrypted ones included (`-w`).
    pub const RAW: u64 = 1 << 24;
    /// Blocks may be compressed with zstd.
    pub const ZSTD: u64 = 1 << 25;
    /// The package lists holds (`-h`).
    pub const HOLDS: u64 = 1 << 26;
    /// Large blocks may follow on a stream that had split them.
    pub const SWITCH_TO_LARGE_BLOCKS: u64 = 1 << 27;
    /// Names may be longer than 255 bytes.
    pub const LONGNAME: u64 = 1 << 28;
    /// Micro ZAPs may be larger than 128 KiB.
    pub const LARGE_MICROZAP: u64 = 1 << 29;

    /// All that OpenZFS 2.4 knows (`DMU_BACKUP_FEATURE_MASK`), and the two of deduplicated streams.
    pub const KNOWN: u64 = DEDUP
        | DEDUPPROPS
        | SA_SPILL
        | EMBED_DATA
        | LZ4
        | LARGE_BLOCKS
        | RESUMING
        | REDACTED
        | COMPRESSED
        | LARGE_DNODE
        | RAW
        | ZSTD
        | HOLDS
        | SWITCH_TO_LARGE_BLOCKS
        | LONGNAME
        | LARGE_MICROZAP;
}

/// Bits of [`Begin::flags`] (`DRR_FLAG_*`).
pub mod flags {
    /// The snapshot is received into a clone of another one.
    pub const CLONE: u32 = 1 << 0;
    /// Names of the file system ignore case.
    pub const CI_DATA: u32 = 1 << 1;
    /// A full stream has the records of what is free, and can be received as a clone.
    pub const FREERECORDS: u32 = 1 << 2;
    /// OBJECT says whether the object has a spill block.
    pub const SPILL_BLOCK: u32 = 1 << 3;
}

/// What a BEGIN begins (`drr_headertype_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderType {
    /// One snapshot (`DMU_SUBSTREAM`).
    Substream,
    /// A package of streams (`DMU_COMPOUNDSTREAM`).
    Compound,
}

/// A field of a record.
trait Field {
    fn get(raw: &[u8; RECORD_SIZE], at: usize, order: ByteOrder) -> Self;
    fn put(&self, raw: &mut [u8; RECORD_SIZE], at: usize, order: ByteOrder);
}

impl<const N: usize> Field for [u8; N] {
    fn get(raw: &[u8; RECORD_SIZE], at: usize, _: ByteOrder) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&raw[at..at + N]);
        bytes
    }

    fn put(&self, raw: &mut [u8; RECORD_SIZE], at: usize, _: ByteOrder) {
        raw[at..at + N].copy_from_slice(self);
    }
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Field for $ty {
            fn get(raw: &[u8; RECORD_SIZE], at: usize, order: ByteOrder) -> Self {
                let bytes = Field::get(raw, at, order);
                match order {
                    ByteOrder::Little => Self::from_le_bytes(bytes),
                    ByteOrder::Big => Self::from_be_bytes(bytes),
                }
            }

            fn put(&self, raw: &mut [u8; RECORD_SIZE], at: usize, order: ByteOrder) {
                let bytes = match order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                };
                bytes.put(raw, at, order);
            }
        }
    )*};
}
number!(u8, u32, u64);

impl<const N: usize> Field for [u64; N] {
    fn get(raw: &[u8; RECORD_SIZE], at: usize, order: ByteOrder) -> Self {
        std::array::from_fn(|i| u64::get(raw, at + 8 * i, order))
    }

    fn put(&self, raw: &mut [u8; RECORD_SIZE], at: usize, order: ByteOrder) {
        self.iter().enumerate().for_each(|(i, word)| word.put(raw, at + 8 * i, order));
    }
}

/// What decrypts a block or verifies it, in raw streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crypt {
    /// Salt of the key (`ZIO_DATA_SALT_LEN`).
    pub salt: [u8; 8],
    /// Initialisation vector (`ZIO_DATA_IV_LEN`).
    pub iv: [u8; 12],
    /// Message authentication code (`ZIO_DATA_MAC_LEN`).
    pub mac: [u8; 16],
}

impl Field for Crypt {
    fn get(raw: &[u8; RECORD_SIZE], at: usize, order: ByteOrder) -> Self {
        Self {
            salt: Field::get(raw, at, order),
            iv: Field::get(raw, at + 8, order),
            mac: Field::get(raw, at + 20, order),
        }
    }

    fn put(&self, raw: &mut [u8; RECORD_SIZE], at: usize, order: ByteOrder) {
        self.salt.put(raw, at, order);
        self.iv.put(raw, at + 8, order);
        self.mac.put(raw, at + 20, order);
    }
}

/// Declares the types of records: their numbers (`drr_type`), their fields, and where these are.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident = $number:literal {
        $($(#[$about:meta])* $field:ident: $ty:ty = $at:literal,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name {
                $($(#[$about])* pub $field: $ty,)*
            }
        )*

        /// A record of a stream.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "one record exists at a time")]
        #[allow(missing_docs, reason = "the fields' types say what they are")]
        pub enum Record {
            $($name($name),)*
        }

        impl Record {
            /// Decodes a record of this byte order.
            ///
            /// # Errors
            /// * [`Corrupt::Range`]: its type is unknown.
            pub fn decode(raw: &[u8; RECORD_SIZE], order: ByteOrder) -> Result<Self> {
                match u32::get(raw, 0, order) {
                    $($number => Ok(Self::$name($name { $($field: Field::get(raw, $at, order),)* })),)*
                    value => Err(Corrupt::Range { what: WHAT, field: "type", value: value.into() }),
                }
            }

            /// Encodes a record, without its checksum. `list` is the length of the list behind a
            /// BEGIN.
            pub fn encode(&self, list: u32, order: ByteOrder) -> [u8; RECORD_SIZE] {
                let mut raw = [0; RECORD_SIZE];
                self.number().put(&mut raw, 0, order);
                list.put(&mut raw, 4, order);
                self.store(&mut raw, order);
                raw
            }

            /// Stores the fields in the bytes of a record of the same type. What lies between the
            /// fields stays: type, length, padding and checksum.
            pub fn store(&self, raw: &mut [u8; RECORD_SIZE], order: ByteOrder) {
                match self {
                    $(Self::$name(r) => {
                        $(r.$field.put(raw, $at, order);)*
                    })*
                }
            }

            /// The number of its type (`drr_type`).
            pub fn number(&self) -> u32 {
                match self {
                    $(Self::$name(_) => $number,)*
                }
            }

            /// The guid of the snapshot that it belongs to (`drr_toguid`).
            pub fn to_guid(&self) -> u64 {
                match self {
                    $(Self::$name(r) => r.to_guid,)*
                }
            }
        }
    };
}

layout! {
    /// The begin of a stream (`drr_begin`).
    Begin = 0 {
        /// [`BACKUP_MAGIC`].
        magic: u64 = 8,
        /// [`HeaderType`] and [`features`] (`drr_versioninfo`).
        version_info: u64 = 16,
        /// When the snapshot was made, in seconds since 1970.
        creation_time: u64 = 24,
        /// Type of the object set (`dmu_objset_type_t`).
        objset_type: u32 = 32,
        /// [`flags`].
        flags: u32 = 36,
        /// Guid of the snapshot.
        to_guid: u64 = 40,
        /// Guid of the snapshot that it builds on, or 0.
        from_guid: u64 = 48,
        /// Name of the snapshot at its sender, with NULs behind it.
        to_name: [u8; 256] = 56,
    }

    /// The end of a stream (`drr_end`).
    End = 5 {
        /// Fletcher-4 of all before this record, or zeros at the end of a package.
        checksum: [u64; 4] = 8,
        /// Guid of the snapshot.
        to_guid: u64 = 40,
    }

    /// An object, with its bonus as payload (`drr_object`).
    Object = 1 {
        /// Number of the object.
        object: u64 = 8,
        /// Type of the object (`dmu_object_type_t`).
        kind: u32 = 16,
        /// Type of the bonus.
        bonus_type: u32 = 20,
        /// Block size in bytes.
        block_size: u32 = 24,
        /// Length of the bonus in bytes.
        bonus_len: u32 = 28,
        /// How its blocks are checksummed.
        checksum_type: u8 = 32,
        /// How its blocks are compressed.
        compress: u8 = 33,
        /// Length of the dnode in units of 512 bytes.
        dn_slots: u8 = 34,
        /// [`OBJECT_SPILL`], [`RAW_BYTESWAP`].
        flags: u8 = 35,
        /// Length of the bonus as encrypted, in raw streams.
        raw_bonus_len: u32 = 36,
        /// Guid of the snapshot.
        to_guid: u64 = 40,
        /// Size of an indirect block, as a power of two, in raw streams.
        indirect_shift: u8 = 48,
        /// Number of levels, in raw streams.
        levels: u8 = 49,
        /// Number of block pointers in the dnode, in raw streams.
        block_pointers: u8 = 50,
        /// Number of the last block, in raw streams.
        max_block: u64 = 56,
    }

    /// A range of objects that do not exist (`drr_freeobjects`).
    FreeObjects = 2 {
        /// The first of them.
        first: u64 = 8,
        /// How many.
        count: u64 = 16,
        /// Guid of the snapshot.
        to_guid: u64 = 24,
    }

    /// A block, with its contents as payload (`drr_write`).
    Write = 3 {
        /// Number of the object.
        object: u64 = 8,
        /// Type of the object.
        kind: u32 = 16,
        /// Where the block begins in the object, in bytes.
        offset: u64 = 24,
        /// Size of its contents.
        logical_size: u64 = 32,
        /// Guid of the snapshot.
        to_guid: u64 = 40,
        /// How it is checksummed.
        checksum_type: u8 = 48,
        /// [`CHECKSUM_DEDUP`], [`RAW_BYTESWAP`].
        flags: u8 = 49,
        /// How the payload is compressed, or 0.
        compression: u8 = 50,
        /// The block's checksum at its sender.
        key_checksum: [u64; 4] = 56,
        /// Its sizes and compression there (`ddk_prop`).
        key_prop: u64 = 88,
        /// Size of the payload, if it is compressed.
        compressed_size: u64 = 96,
        /// What decrypts it, in raw streams.
        crypt: Crypt = 104,
    }

    /// A hole (`drr_free`).
    Free = 4 {
        /// Number of the object.
        object: u64 = 8,
        /// Where the hole begins, in bytes.
        offset: u64 = 16,
        /// Its length, or all ones for all that follows.
        length: u64 = 24,
        /// Guid of the snapshot.
        to_guid: u64 = 32,
    }

    /// A block that an earlier record had (`drr_write_byref`).
    WriteByRef = 6 {
        /// Number of the object.
        object: u64 = 8,
        /// Where the block begins in the object, in bytes.
        offset: u64 = 16,
        /// Its length in bytes.
        length: u64 = 24,
        /// Guid of the snapshot.
        to_guid: u64 = 32,
        /// Guid of the snapshot that has the contents.
        ref_guid: u64 = 40,
        /// The object there.
        ref_object: u64 = 48,
        /// The place in that object.
        ref_offset: u64 = 56,
        /// How it is checksummed.
        checksum_type: u8 = 64,
        /// [`CHECKSUM_DEDUP`].
        flags: u8 = 65,
        /// The block's checksum at its sender.
        key_checksum: [u64; 4] = 72,
        /// Its sizes and compression there.
        key_prop: u64 = 104,
    }

    /// The spill block of an object, as payload (`drr_spill`).
    Spill = 7 {
        /// Number of the object.
        object: u64 = 8,
        /// Size of its contents.
        length: u64 = 16,
        /// Guid of the snapshot.
        to_guid: u64 = 24,
        /// [`SPILL_UNMODIFIED`], [`RAW_BYTESWAP`].
        flags: u8 = 32,
        /// How the payload is compressed, or 0.
        compression: u8 = 33,
        /// Size of the payload, in raw streams.
        compressed_size: u64 = 40,
        /// What decrypts it, in raw streams.
        crypt: Crypt = 48,
        /// Type of the block.
        kind: u32 = 84,
    }

    /// A block that is embedded in its pointer (`drr_write_embedded`).
    WriteEmbedded = 8 {
        /// Number of the object.
        object: u64 = 8,
        /// Where the block begins in the object, in bytes.
        offset: u64 = 16,
        /// Its length, a whole block.
        length: u64 = 24,
        /// Guid of the snapshot.
        to_guid: u64 = 32,
        /// How it is compressed.
        compression: u8 = 40,
        /// Type of the embedded data (`bp_embedded_type_t`).
        embedded_type: u8 = 41,
        /// Size of the contents.
        logical_size: u32 = 48,
        /// Size of the payload.
        physical_size: u32 = 52,
    }

    /// A range of dnodes as the sender's pool has them, in raw streams (`drr_object_range`).
    ObjectRange = 9 {
        /// The first object.
        first: u64 = 8,
        /// Number of units of 512 bytes.
        slots: u64 = 16,
        /// Guid of the snapshot.
        to_guid: u64 = 24,
        /// What decrypts the dnodes.
        crypt: Crypt = 32,
        /// [`RAW_BYTESWAP`].
        flags: u8 = 68,
    }

    /// A range that is left out on purpose (`drr_redact`).
    Redact = 10 {
        /// Number of the object.
        object: u64 = 8,
        /// Where the range begins, in bytes.
        offset: u64 = 16,
        /// Its length in bytes.
        length: u64 = 24,
        /// Guid of the snapshot.
        to_guid: u64 = 32,
    }
}

/// The checksum is one of those by which dedup finds blocks (`DRR_CHECKSUM_DEDUP`).
pub const CHECKSUM_DEDUP: u8 = 1 << 0;
/// A raw payload has the other byte order (`DRR_RAW_BYTESWAP`).
pub const RAW_BYTESWAP: u8 = 1 << 1;
/// An object has a spill block (`DRR_OBJECT_SPILL`).
pub const OBJECT_SPILL: u8 = 1 << 2;
/// A spill block is as before (`DRR_SPILL_UNMODIFIED`).
pub const SPILL_UNMODIFIED: u8 = 1 << 2;

impl Begin {
    /// Where [`Begin::version_info`] has the features, in bits.
    pub const FEATURES_SHIFT: u32 = 2;

    /// What this begins.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: neither a stream nor a package.
    pub fn header_type(&self) -> Result<HeaderType> {
        match self.version_info & 3 {
            1 => Ok(HeaderType::Substream),
            2 => Ok(HeaderType::Compound),
            value => Err(Corrupt::Range { what: WHAT, field: "header type", value }),
        }
    }

    /// The stream's [`features`] (`DMU_GET_FEATUREFLAGS`).
    pub fn features(&self) -> u64 {
        (self.version_info >> Self::FEATURES_SHIFT) & ((1 << 56) - 1)
    }

    /// Name of the snapshot at its sender.
    pub fn name(&self) -> &[u8] {
        self.to_name.split(|b| *b == 0).next().unwrap_or_default()
    }
}

impl Record {
    /// Number of types (`DRR_NUMTYPES`).
    pub const TYPES: u32 = 11;

    /// Length of the payload behind the record. `list` is the length in its head, which counts for
    /// a BEGIN.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the payload is larger than any block, or a list than [`MAX_LIST`].
    /// * [`Corrupt::Shape`]: the payload has no whole number of words.
    pub fn payload_size(&self, list: u32) -> Result<usize> {
        let (field, size, limit) = match self {
            Self::Begin(_) => ("list", u64::from(list), MAX_LIST),
            Self::Object(r) if r.raw_bonus_len != 0 => ("bonus", r.raw_bonus_len.into(), MAX_DATA),
            Self::Object(r) => ("bonus", u64::from(r.bonus_len).next_multiple_of(8), MAX_DATA),
            Self::Write(r) if r.compression != 0 => ("payload", r.compressed_size, MAX_DATA),
            Self::Write(r) => ("payload", r.logical_size, MAX_DATA),
            Self::Spill(r) if r.compressed_size != 0 => ("payload", r.compressed_size, MAX_DATA),
            Self::Spill(r) => ("payload", r.length, MAX_DATA),
            Self::WriteEmbedded(r) => ("payload", u64::from(r.physical_size).next_multiple_of(8), MAX_DATA),
            Self::FreeObjects(_)
            | Self::Free(_)
            | Self::End(_)
            | Self::WriteByRef(_)
            | Self::ObjectRange(_)
            | Self::Redact(_) => ("payload", 0, 0),
        };
        if size > limit {
            return Err(Corrupt::Range { what: WHAT, field, value: size });
        }
        if !size.is_multiple_of(4) {
            return Err(Corrupt::Shape { what: WHAT, why: "its payload has no whole number of words" });
        }
        Ok(size as usize)
    }
}

/// The length of the payload in the head of a record (`drr_payloadlen`).
pub fn list_length(raw: &[u8; RECORD_SIZE], order: ByteOrder) -> u32 {
    u32::get(raw, 4, order)
}

/// The checksum in a record other than BEGIN.
pub fn stored_checksum(raw: &[u8; RECORD_SIZE], order: ByteOrder) -> [u64; 4] {
    Field::get(raw, CHECKSUM_AT, order)
}

/// Stores the checksum of a record other than BEGIN.
pub fn store_checksum(raw: &mut [u8; RECORD_SIZE], order: ByteOrder, checksum: &[u64; 4]) {
    checksum.put(raw, CHECKSUM_AT, order);
}

#[cfg(test)]
mod tests;
