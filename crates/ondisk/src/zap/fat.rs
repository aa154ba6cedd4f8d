//! The header of fat ZAPs (`zap_phys_t`).

use super::{HashBits, ZBT_HEADER};
use crate::bytes::le64;
use crate::{Corrupt, Result, SPA_MAXBLOCKSIZE};

const WHAT: &str = "fat ZAP header";
const ZAP_MAGIC: u64 = 0x2_F52A_B2AB;

/// Kind of a fat ZAP's keys (`zap_flags_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZapFlags(u64);

impl ZapFlags {
    const HASH64: u64 = 1;
    const UINT64_KEY: u64 = 2;
    const PRE_HASHED_KEY: u64 = 4;

    /// Keys are names, and 48 bits of their hash are kept.
    pub const HASHES_48: Self = Self(Self::HASH64);
    /// Keys are arrays of words, and 48 bits of their hash are kept.
    pub const WORDS: Self = Self(Self::HASH64 | Self::UINT64_KEY);
    /// Keys are arrays of words, whose first word is the hash.
    pub const PRE_HASHED_WORDS: Self = Self(Self::HASH64 | Self::UINT64_KEY | Self::PRE_HASHED_KEY);

    /// True if no flag is set, so that the ZAP can be a micro ZAP.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if 48 bits of the hash are kept instead of 28 (`ZAP_FLAG_HASH64`).
    pub fn hash64(self) -> bool {
        self.0 & Self::HASH64 != 0
    }

    /// True if keys are arrays of 64-bit words instead of names (`ZAP_FLAG_UINT64_KEY`).
    pub fn uint64_key(self) -> bool {
        self.0 & Self::UINT64_KEY != 0
    }

    /// True if the first word of a key is its hash (`ZAP_FLAG_PRE_HASHED_KEY`).
    pub fn pre_hashed(self) -> bool {
        self.0 & Self::PRE_HASHED_KEY != 0
    }

    /// The bits as stored.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Location of a fat ZAP's pointer table (`zap_table_phys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtrTable {
    /// The second half of the header's block.
    Embedded,
    /// `blocks` blocks of its own, from block number `start` on.
    External {
        /// Number of the first block (`zt_blk`).
        start: u64,
        /// Number of blocks (`zt_numblks`).
        blocks: u64,
    },
}

/// A decoded header of a fat ZAP (`zap_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FatHeader {
    /// log2 of the block size, which is that of the object (`FZAP_BLOCK_SHIFT`).
    pub block_shift: u32,
    /// Location of the pointer table (`zap_ptrtbl`).
    pub table: PtrTable,
    /// Number of hash bits that index the pointer table (`zt_shift`).
    pub table_shift: u32,
    /// First block of the next, larger pointer table during its copy, or 0 (`zt_nextblk`).
    pub next_table: u64,
    /// Blocks of the pointer table that are already copied (`zt_blks_copied`).
    pub blocks_copied: u64,
    /// The next block to allocate; all blocks of the ZAP are below (`zap_freeblk`).
    pub free_block: u64,
    /// Number of leaf blocks (`zap_num_leafs`).
    pub num_leafs: u64,
    /// Number of entries (`zap_num_entries`).
    pub num_entries: u64,
    /// Start value of the hash (`zap_salt`).
    pub salt: u64,
    /// How names are normalized before their hash is computed (`zap_normflags`).
    pub normflags: u64,
    /// Kind of the keys (`zap_flags`).
    pub flags: ZapFlags,
}

impl FatHeader {
    /// Decodes the header in `block`, block 0 of the object.
    ///
    /// # Errors
    /// * [`Corrupt::Magic`]: one of the two magic numbers is wrong.
    /// * [`Corrupt::Range`]: one of these values is impossible:
    ///   * the block size, which is not a power of two from 512 bytes to 16 MiB
    ///   * the flags
    ///   * the number of hash bits that index the pointer table
    /// * [`Corrupt::Shape`]: the pointer table is not inside the object, or has the wrong number of
    ///   blocks.
    pub fn parse(block: &[u8]) -> Result<Self> {
        let size = block.len();
        if size < 512 || !size.is_power_of_two() || size as u64 > SPA_MAXBLOCKSIZE {
            return Err(Corrupt::Range { what: WHAT, field: "block size", value: size as u64 });
        }
        let word = |i: usize| le64(block, i * 8);
        if word(0) != ZBT_HEADER {
            return Err(Corrupt::Magic { what: WHAT, found: word(0) });
        }
        if word(1) != ZAP_MAGIC {
            return Err(Corrupt::Magic { what: WHAT, found: word(1) });
        }
        let flags = word(12);
        if flags > 7 || flags & 6 == ZapFlags::PRE_HASHED_KEY {
            return Err(Corrupt::Range { what: WHAT, field: "flags", value: flags });
        }
        let block_shift = size.trailing_zeros();
        let (start, blocks, shift) = (word(2), word(3), word(4));
        let flags = ZapFlags(flags);
        let hash_bits = if flags.hash64() { HashBits::Bits48 } else { HashBits::Bits28 };
        let bad_shift = Corrupt::Range { what: WHAT, field: "pointer table shift", value: shift };
        let table = if blocks == 0 {
            if shift != u64::from(block_shift - 4) {
                return Err(bad_shift);
            }
            PtrTable::Embedded
        } else {
            // Never more index bits than hash bits, and exactly as many blocks as the entries need.
            if shift > u64::from(hash_bits.get()) || shift < u64::from(block_shift - 4) {
                return Err(bad_shift);
            }
            let need = (1u64 << shift).div_ceil(size as u64 / 8);
            let free = word(7);
            if blocks != need || start == 0 || start.checked_add(blocks).is_none_or(|end| end > free) {
                return Err(Corrupt::Shape { what: WHAT, why: "the pointer table lies outside the object" });
            }
            PtrTable::External { start, blocks }
        };
        Ok(Self {
            block_shift,
            table,
            table_shift: shift as u32,
            next_table: word(5),
            blocks_copied: word(6),
            free_block: word(7),
            num_leafs: word(8),
            num_entries: word(9),
            salt: word(10),
            normflags: word(11),
            flags,
        })
    }

    /// Encodes the header at the start of `block`, little-endian, and leaves an embedded pointer
    /// table as it is.
    pub fn write(&self, block: &mut [u8]) {
        let (start, blocks) = match self.table {
            PtrTable::Embedded => (0, 0),
            PtrTable::External { start, blocks } => (start, blocks),
        };
        let words = [
            ZBT_HEADER,
            ZAP_MAGIC,
            start,
            blocks,
            self.table_shift.into(),
            self.next_table,
            self.blocks_copied,
            self.free_block,
            self.num_leafs,
            self.num_entries,
            self.salt,
            self.normflags,
            self.flags.0,
        ];
        for (slot, w) in block.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *slot = w.to_le_bytes();
        }
    }

    /// Offset of entry `index` of an embedded pointer table in the header's block.
    pub fn embedded_at(&self, index: u64) -> usize {
        (((1u64 << (self.block_shift - 4)) + index) * 8) as usize
    }

    /// How many bits of the hash this ZAP keeps (`zap_hashbits`).
    pub fn hash_bits(&self) -> HashBits {
        if self.flags.hash64() { HashBits::Bits48 } else { HashBits::Bits28 }
    }

    /// Index of `hash` in the pointer table (`ZAP_HASH_IDX`).
    pub fn index(&self, hash: u64) -> u64 {
        if self.table_shift == 0 { 0 } else { hash >> (64 - self.table_shift) }
    }

    /// The leaf block in entry `index` of an embedded pointer table (`ZAP_EMBEDDED_PTRTBL_ENT`).
    ///
    /// `block` is the header's block.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the index is outside the table, `block` has another size than the
    ///   header's, or the leaf block is not one of the ZAP.
    pub fn embedded(&self, block: &[u8], index: u64) -> Result<u64> {
        let entries = 1u64 << (self.block_shift - 4);
        if index >= entries || block.len() != 1 << self.block_shift {
            return Err(Corrupt::Range { what: WHAT, field: "pointer table index", value: index });
        }
        self.check_leaf(le64(block, ((entries + index) * 8) as usize))
    }

    /// The block of an external pointer table that has entry `index`, and the offset of the entry
    /// there.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the index is outside the table.
    pub fn external(&self, start: u64, index: u64) -> Result<(u64, usize)> {
        if index >> self.table_shift != 0 {
            return Err(Corrupt::Range { what: WHAT, field: "pointer table index", value: index });
        }
        let per_block = self.block_shift - 3;
        Ok((start + (index >> per_block), ((index & ((1 << per_block) - 1)) * 8) as usize))
    }

    /// Returns `blk` if it can be a leaf of this ZAP.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: `blk` is the header, or beyond the last block of the ZAP.
    pub fn check_leaf(&self, blk: u64) -> Result<u64> {
        if blk == 0 || blk >= self.free_block {
            return Err(Corrupt::Range { what: "ZAP pointer table", field: "leaf block", value: blk });
        }
        Ok(blk)
    }
}
