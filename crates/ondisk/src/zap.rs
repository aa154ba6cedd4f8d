//! ZAP objects: maps from names, or arrays of 64-bit words, to arrays of integers (`zap_impl.h`, `zap_leaf.h`).
//!
//! # On disk
//! A ZAP is one of two shapes, told apart by the first word of block 0 ([`BlockType`]):
//!
//! - *micro*: one block of 64-byte slots, each a name of up to 49 bytes and one 64-bit value ([`MicroZap`]);
//! - *fat*: an extendible hash table. Block 0 is the header ([`FatHeader`]), whose second half is the pointer
//!   table until that grows out of it into blocks of its own; the high bits of a name's hash index the table,
//!   which gives the number of a leaf block ([`Leaf`]). A leaf has a hash table of its own, whose buckets
//!   are chains of 24-byte chunks.
//!
//! All views here read little-endian blocks: foreign ones have been swapped ([`crate::byteswap`]).
//!
//! # Absent
//! Which block to read next: that is the ZAP of `dmu`. Normalization of names, too, which the hash depends on.

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
/// Largest value in bytes (`ZAP_MAXVALUELEN`).
pub const ZAP_MAXVALUELEN: usize = 8192;

/// What the first block of a ZAP object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockType {
    /// The only block of a micro ZAP.
    Micro,
    /// The header of a fat ZAP.
    Header,
}

impl BlockType {
    /// The type of a ZAP's block 0.
    ///
    /// # Errors
    /// [`Corrupt::Magic`] if it is neither.
    pub fn of(block: &[u8]) -> Result<Self> {
        match crate::ByteOrder::Little.u64("ZAP block", block, 0)? {
            ZBT_MICRO => Ok(Self::Micro),
            ZBT_HEADER => Ok(Self::Header),
            found => Err(Corrupt::Magic { what: "ZAP block", found }),
        }
    }
}
