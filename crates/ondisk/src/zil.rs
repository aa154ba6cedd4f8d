//! The intent log: header, chain of blocks, records.
//!
//! # On disk
//! Each object set has a [`ZilHeader`], which points at a chain of log blocks. A block of the newer kind
//! (checksum `zilog2`) begins with its [`ZilChain`] and holds records up to `nused`; in the older kind
//! (`zilog`) the chain is in the block's last bytes. A block's expected checksum (its pointer's four checksum words) is the
//! chain's guid (2), the object set and the block's sequence number; the embedded checksum proper lies in the
//! trailer that ends [`ZilChain`]. An allocated block that was never written fails its checksum: that is where a chain ends.
//!
//! # Absent
//! Which blocks are live (claim rules) and reading them is `zil`'s; decryption is `zio`'s.

use crate::words::words;
use crate::{Blkptr, ChecksumKind, Corrupt, Result};

mod encode;
mod record;

pub use encode::{LR_SIZE, put_write, set_place};
pub use record::{
    AclLog, ClonedRange, Create, FileId, LR_WRITE_SIZE, Record, RecordBody, RecordHeader, Rename, Setattr,
    TxKind, Whiteout, Write, Xvattr,
};

/// Bytes of [`ZilHeader`].
pub const ZIL_HEADER_SIZE: usize = 192;
/// Bytes of [`ZilChain`], trailer included (`sizeof (zil_chain_t)`).
pub const ZIL_CHAIN_SIZE: usize = 184;
/// Replay is needed (`ZIL_REPLAY_NEEDED`).
pub const ZIL_REPLAY_NEEDED: u64 = 1;
/// `claim_lr_seq` is valid (`ZIL_CLAIM_LR_SEQ_VALID`).
pub const ZIL_CLAIM_LR_SEQ_VALID: u64 = 2;
/// Word of a log block's expected checksum that is the object set (`ZIL_ZC_OBJSET`).
pub const ZIL_ZC_OBJSET: usize = 2;
/// Word of a log block's expected checksum that is its sequence number (`ZIL_ZC_SEQ`).
pub const ZIL_ZC_SEQ: usize = 3;

/// Header of an object set's log (`zil_header_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZilHeader {
    /// Txg in which the log's blocks were claimed, or 0.
    pub claim_txg: u64,
    /// Highest record replayed.
    pub replay_seq: u64,
    /// First block of the chain.
    pub log: Blkptr,
    /// Highest block claimed.
    pub claim_blk_seq: u64,
    /// `ZIL_*`.
    pub flags: u64,
    /// Highest record claimed.
    pub claim_lr_seq: u64,
}

impl ZilHeader {
    /// Decodes the 192 bytes of an object set's header.
    ///
    /// # Errors
    /// [`Corrupt`] when they are too few or the block pointer is bad.
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
    /// The next block, which may never have been written.
    pub next: Blkptr,
    /// Bytes of the block in use; in the newer kind the chain itself is among them.
    pub nused: u64,
}

impl ZilChain {
    /// Decodes the chain of a log block and returns it with the bytes that hold records.
    ///
    /// # Errors
    /// [`Corrupt`] when `nused` leaves the block or the next pointer is bad.
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

/// Walks the records in the used bytes of a log block.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    foreign: bool,
}

impl<'a> Records<'a> {
    /// `used`: what [`ZilChain::decode`] returned. `foreign`: the block's words were swapped from the other byte
    /// order, so that names and data among them must be swapped back.
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
