//! Freeing much, a piece at a time.
//!
//! # Theory
//! Who frees blocks has to read the indirect blocks above them, and a file of a terabyte has thousands of these. Read one after another, with a transaction in
//! hand, they would keep its group open; and what they lead to, freed all at once, would make that group a long one. So a large range is
//! freed in pieces: what leads to a piece is read first, many blocks at a time and without a transaction, and is in the cache when the piece is freed
//! and when its group syncs.
//!
//! Pieces are found in the tree as it was synced last. What has been written since has no indirect blocks yet. Freeing a piece writes the blocks above it anew, maybe in places
//! of those that went with an earlier one.
//!
//! # See
//! OpenZFS `dmu_free_long_range_impl`, `get_next_chunk`.

use crate::live::node::LiveDnode;
use crate::met::MetSince;
use crate::{Dnode, Result};
use ondisk::BlkId;
use std::sync::Arc;
use zio::ReadOptions;

/// Indirect blocks of level 1 that a piece has at most: 32 GiB of blocks of 128 KiB.
const PIECE: usize = 256;

/// A part of what is to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What comes behind it needs nothing to be read.
    pub last: bool,
}

/// See [`Dnode::pieces`].
pub struct Pieces {
    dn: Arc<LiveDnode>,
    size: u64,
    /// Where the next piece begins, and the end of the last.
    at: Option<u64>,
    end: u64,
    met: MetSince,
    options: ReadOptions,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({}, {:?} to {})", self.dn.object, self.at, self.end)
    }
}

impl Dnode {
    /// The pieces in which bytes from `offset` on are to be freed, for who has no transaction; `len` may be `u64::MAX`: to the end.
    ///
    /// # Errors
    /// [`crate::Error::Fixed`].
    pub fn pieces(&self, offset: u64, len: u64) -> Result<Pieces> {
        let dn = self.to_change()?.clone();
        let size = dn.block_size();
        let (end, met, options) = (offset.saturating_add(len), MetSince::default(), self.options().clone());
        Ok(Pieces { dn, size, at: Some(offset), end, met, options })
    }
}

impl Pieces {
    /// The next piece, what leads to which is in the cache now; `None` behind the last.
    ///
    /// # Errors
    /// As reading fails.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        let Some(offset) = self.at.take().filter(|at| *at < self.end) else { return Ok(None) };
        let whole = Piece { offset, len: self.end - offset, last: true };
        let Some(tree) = self.dn.synced().filter(|tree| tree.phys.nlevels > 1) else {
            return Ok(Some(whole));
        };
        let (first, last) = (BlkId(offset / self.size), BlkId((self.end - 1) / self.size));
        let last = last.min(tree.phys.maxblkid);
        let leaves = tree.leaves((first, last), PIECE, &mut self.met, &self.options)?;
        tree.warm(&leaves.found, &self.options)?;
        self.at = leaves.behind.and_then(|blkid| blkid.0.checked_mul(self.size)).filter(|at| *at > offset);
        Ok(Some(match self.at {
            None => whole,
            Some(behind) => Piece { offset, len: behind - offset, last: false },
        }))
    }
}
