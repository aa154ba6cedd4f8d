//! ZAP objects: maps from names, or arrays of 64-bit words, to arrays of integers (`zap_impl.h`,
//! `zap_leaf.h`).
//!
//! # On disk
//! A ZAP has one of two shapes. The first word of block 0 tells which ([`BlockType`]).
//!
//! * A *micro* ZAP is one block of 64-byte slots. Each slot has a name of up to 49 bytes and one
//!   64-bit value ([`MicroZap`]).
//! * A *fat* ZAP is an extendible hash table. Block 0 is the header ([`FatHeader`]).
//!
//! The pointer table of a fat ZAP is the second half of the header's block. When it outgrows that,
//! it moves to blocks of its own. The high bits of a name's hash index the table, whose entries
//! are numbers of leaf blocks ([`Leaf`]). A leaf has a hash table of its own, whose buckets are
//! chains of 24-byte chunks.
//!
//! All views here read little-endian blocks: [`crate::byteswap`] has swapped foreign ones.
//!
//! # Absent
//! `dmu` chooses the next block to read. It also normalizes names, on which their hash depends.

mod fat;
mod hash;
mod leaf;
mod leaf_mut;
mod micro;
#[cfg(test)]
mod tests;

pub use fat::{FatHeader, PtrTable, ZapFlags};
pub use hash::{HashBits, hash_bytes, hash_words};
pub use leaf::{Leaf, LeafEntry};
pub use leaf_mut::{LeafMut, NewEntry};
/// What the byte swap of leaves needs to know.
pub(crate) mod raw {
    pub(crate) use super::leaf::{CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE, CHUNK_SIZE, geometry};
}
pub use micro::{MICRO_ENTRY_SIZE, MICRO_NAME_MAX, MicroEntry, MicroZap, MicroZapMut};

use crate::{Corrupt, Result};

/// First word of a leaf block (`ZBT_LEAF`).
pub const ZBT_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's header (`ZBT_HEADER`).
pub const ZBT_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP (`ZBT_MICRO`).
pub const ZBT_MICRO: u64 = (1 << 63) + 3;

/// Longest name, its final NUL included (`ZAP_MAXNAMELEN_NEW`); 256 without the `longname` feature.
pub const ZAP_MAXNAMELEN: usize = 1024;
/// Largest value in bytes.
pub const ZAP_MAXVALUELEN: usize = 8192;

/// Type of a ZAP object's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockType {
    /// The only block of a micro ZAP (`ZBT_MICRO`).
    Micro,
    /// The header of a fat ZAP (`ZBT_HEADER`).
    Header,
}

impl BlockType {
    /// The type of block 0 of a ZAP.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the block has fewer than 8 bytes.
    /// * [`Corrupt::Magic`]: the block is of neither type.
    pub fn of(block: &[u8]) -> Result<Self> {
        match crate::ByteOrder::Little.u64("ZAP block", block, 0)? {
            ZBT_MICRO => Ok(Self::Micro),
            ZBT_HEADER => Ok(Self::Header),
            found => Err(Corrupt::Magic { what: "ZAP block", found }),
        }
    }
}
