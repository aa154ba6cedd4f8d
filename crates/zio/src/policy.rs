//! What a write request contains.

use crate::{Bookmark, ClassHint};
use codec::compress::ZstdLevel;
use codec::crypt::MAC_LEN;
use device::Sparse;
use ondisk::blkptr::CryptParams;
use ondisk::{Blkptr, ChecksumKind, CompressKind, DmuType, Level};

/// How a block is to be stored (`zio_prop_t`).
///
/// Properties are resolved: neither compressor nor checksum is `On` or `Inherit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePolicy {
    /// Compressor (`zp_compress`). `Off` also stores zeros as they are; `Empty` only detects zeros.
    pub compress: CompressKind,
    /// Level of zstd (`zp_complevel`).
    pub zstd: ZstdLevel,
    /// Checksum function (`zp_checksum`).
    pub checksum: ChecksumKind,
    /// Copies, 1 to 3; blocks of encrypted kinds get at most 2 (`zp_copies`).
    pub copies: u8,
    /// Whether to look in the dedup table first (`zp_dedup`).
    pub dedup: bool,
    /// Whether to compare the bytes with a block found there (`zp_dedup_verify`).
    pub verify: bool,
    /// Whether to keep the old block if it has the same checksum (`zp_nopwrite`).
    pub nopwrite: bool,
    /// Whether the object set is encrypted (`zp_encrypt`). Level-0 blocks of encrypted kinds are
    /// encrypted, others get MACs.
    pub encrypt: bool,
    /// Whether small blocks may be stored in their pointer (the feature `embedded_data` is
    /// enabled).
    pub embed: bool,
    /// Whether holes keep their birth (the feature `hole_birth` is active).
    pub hole_birth: bool,
    /// The class of vdevs, beyond what the kind says.
    pub class: ClassHint,
}

impl WritePolicy {
    /// LZ4 and Fletcher-4, one copy, and nothing else: the base of tests.
    pub const PLAIN: WritePolicy = WritePolicy {
        compress: CompressKind::Lz4,
        zstd: ZstdLevel::DEFAULT,
        checksum: ChecksumKind::Fletcher4,
        copies: 1,
        dedup: false,
        verify: false,
        nopwrite: false,
        encrypt: false,
        embed: false,
        hole_birth: true,
        class: ClassHint::Normal { special_small_blocks: 0 },
    };
}

/// How the bytes of a block are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed {
    /// The compressor, not `Off`, `Empty`, `On` or `Inherit`.
    pub kind: CompressKind,
    /// The size of the contents, not less than that of the compressed bytes.
    pub lsize: u64,
}

/// How the bytes of a block of an encrypted object set are protected already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted {
    /// Salt and IV, which are zeros if the block's type is only authenticated.
    pub params: CryptParams,
    /// The MAC.
    pub mac: [u8; MAC_LEN],
}

/// A block to be written.
#[derive(Debug, Clone)]
pub struct WriteReq {
    /// Its bytes, in the native byte order; their number is its logical size.
    ///
    /// Of a block that is compressed already, its compressed bytes.
    pub data: Sparse,
    /// How `data` is compressed already. Such a block is stored as it is
    /// (`ZIO_FLAG_RAW_COMPRESS`).
    pub compressed: Option<Compressed>,
    /// How `data` is encrypted or authenticated already. Such a block is stored as it is, and no
    /// key is needed (`ZIO_FLAG_RAW_ENCRYPT`). Of a block of dnodes, only the bonuses are
    /// ciphertext.
    pub encrypted: Option<Encrypted>,
    /// Type of its object; of a spill block, the type of the bonus.
    pub kind: DmuType,
    /// Its level.
    pub level: Level,
    /// Its logical place, for messages and to find the keys.
    pub bookmark: Bookmark,
    /// Blocks below it that are not holes, or dnodes (`blk_fill`): 1 for data.
    pub fill: u64,
    /// How to store it.
    pub policy: WritePolicy,
    /// The block that was there before, if any.
    pub old: Option<Blkptr>,
    /// Whether the old block may be overwritten if it was born in this txg and the new one fits.
    /// That lets a sync converge (`pass >= zfs_sync_pass_rewrite`).
    pub in_place: bool,
}

impl WriteReq {
    /// The size of its contents.
    pub fn lsize(&self) -> u64 {
        self.compressed.map_or(self.data.len() as u64, |compressed| compressed.lsize)
    }
}
