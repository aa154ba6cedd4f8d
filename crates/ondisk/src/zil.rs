//! The intent log: its header, its chain of blocks, its records.
//!
//! # On disk
//! Each object set has a [`ZilHeader`], which points to a chain of log blocks. There are two kinds
//! of blocks:
//!
//! * The newer kind (checksum `zilog2`) begins with its [`ZilChain`], and holds records up to
//!   `nused`.
//! * The older kind (`zilog`) has its chain in the last bytes of the block.
//!
//! The four checksum words of a log block's pointer are the chain's guid (2), the object set and
//! the sequence number of the block. The checksum itself is embedded, in the trailer at the end of
//! [`ZilChain`]. A block that was allocated but never written fails its checksum. There the chain
//! ends.
//!
//! # Absent
//! `zil` knows which blocks are live (the rules of claiming) and reads them. `zio` decrypts them.

use crate::words::words;
use crate::{Blkptr, ChecksumKind, Corrupt, Result};

mod encode;
mod record;

pub use encode::{LR_SIZE, put_write, set_place};
pub use record::{
    AclLog, ClonedRange, Create, FileId, LR_WRITE_SIZE, Record, RecordBody, RecordHeader, Rename, Setattr,
    TxKind, Whiteout, Write, Xvattr,
};

/// Bytes of a [`ZilHeader`] (`sizeof (zil_header_t)`).
pub const ZIL_HEADER_SIZE: usize = 192;
/// Bytes of a [`ZilChain`], its trailer included (`sizeof (zil_chain_t)`).
pub const ZIL_CHAIN_SIZE: usize = 184;
/// Flag of a header: the log must be replayed.
pub const ZIL_REPLAY_NEEDED: u64 = 1;
/// Flag of a header: `claim_lr_seq` is valid.
pub const ZIL_CLAIM_LR_SEQ_VALID: u64 = 2;
/// Index of the object set in the checksum words of a log block's pointer.
pub const ZIL_ZC_OBJSET: usize = 2;
/// Index of the sequence number in the checksum words of a log block's pointer.
pub const ZIL_ZC_SEQ: usize = 3;

/// Header of an object set's log. OpenZFS's fields have these names with `zh_` in front
/// (`zil_header_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZilHeader {
    /// Transaction group in which the blocks of the log were claimed, or 0.
    pub claim_txg: u64,
    /// Sequence number of the last replayed record.
    pub replay_seq: u64,
    /// First block of the chain.
    pub log: Blkptr,
    /// Sequence number of the last claimed block.
    pub claim_blk_seq: u64,
    /// Flags, `ZIL_*`.
    pub flags: u64,
    /// Sequence number of the last claimed record.
    pub claim_lr_seq: u64,
}

impl ZilHeader {
    /// Decodes the 192 bytes of an object set's log header.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 192 bytes.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: the block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
    pub fn decode(raw: &[u8]) -> Result<Self> {
        let w: [u64; 24] = words("intent log header", raw)?;
        Ok(Self {
            claim_txg: w[0],
            replay_seq: w[1],
            log: Blkptr::decode(&raw[16..144])?,
            claim_blk_seq: w[18],
            flags: w[19],
            claim_lr_seq: w[20],
        })
    }
}

/// Link of a log block to the next (`zil_chain_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZilChain {
    /// Pointer to the next block, which may never have been written (`zc_next_blk`).
    pub next: Blkptr,
    /// Used bytes of the block; in the newer kind they include the chain (`zc_nused`).
    pub nused: u64,
}

impl ZilChain {
    /// Decodes the chain of a log block, and returns it with the bytes that hold records.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the block is shorter than a chain.
    /// * [`Corrupt::Range`]: `nused` is larger than the space for records or, in the newer kind,
    ///   smaller than the chain.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: the pointer to the next block has a fault that
    ///   [`Blkptr::decode`] lists.
    pub fn decode(kind: ChecksumKind, block: &[u8]) -> Result<(Self, &[u8])> {
        const WHAT: &str = "intent log block";
        if block.len() < ZIL_CHAIN_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: ZIL_CHAIN_SIZE, have: block.len() });
        }
        let first = kind == ChecksumKind::Zilog2;
        let (at, limits) = if first {
            (0, ZIL_CHAIN_SIZE..=block.len())
        } else {
            (block.len() - ZIL_CHAIN_SIZE, 0..=block.len() - ZIL_CHAIN_SIZE)
        };
        let chain = &block[at..at + ZIL_CHAIN_SIZE];
        let nused: u64 = words::<1>(WHAT, &chain[136..])?[0];
        let end = usize::try_from(nused).ok().filter(|n| limits.contains(n)).ok_or(Corrupt::Range {
            what: WHAT,
            field: "bytes used",
            value: nused,
        })?;
        let start = if first { ZIL_CHAIN_SIZE } else { 0 };
        let next = Blkptr::decode(&chain[8..136])?;
        Ok((Self { next, nused }, &block[start..end]))
    }
}

/// Iterates over the records in the used bytes of a log block.
///
/// An item can be an error that [`Record::decode`] lists. An error is the last item.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    foreign: bool,
}

impl<'a> Records<'a> {
    /// An iterator over `used`, the bytes that [`ZilChain::decode`] returned.
    ///
    /// `foreign` means that the block's words were swapped from the other byte order. Names and
    /// data among them are then swapped back.
    pub fn new(used: &'a [u8], foreign: bool) -> Self {
        Self { rest: used, foreign }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = record::length(self.rest).and_then(|len| {
            let (head, tail) = self.rest.split_at(len);
            Ok((Record::decode(head, self.foreign)?, tail))
        });
        match step {
            Ok((record, tail)) => {
                self.rest = tail;
                Some(Ok(record))
            }
            Err(e) => {
                self.rest = &[];
                Some(Err(e))
            }
        }
    }
}

#[cfg(test)]
mod tests;
