//! Freeing a large range in several steps.
//!
//! # Theory
//! A free must read the indirect blocks above the range. A file of a terabyte has thousands of
//! them. Reading them one after another inside a transaction would keep its txg open. Freeing
//! everything at once would make one very long txg.
//!
//! So a large range is freed in pieces. The indirect blocks of a piece are read first, many at a
//! time and without a transaction. They are in the cache when the piece is freed, and when its txg
//! syncs.
//!
//! Pieces are found in the tree that was synced last. Blocks that were written since have no
//! indirect blocks yet. Freeing a piece rewrites the blocks above it, possibly to places that an
//! earlier piece freed.
//!
//! # See
//! OpenZFS `dmu_free_long_range_impl`, `get_next_chunk`.

use crate::live::node::LiveDnode;
use crate::visited::VisitedSince;
use crate::{Dnode, Result};
use ondisk::BlkId;
use std::sync::Arc;
use zio::ReadOptions;

/// Most indirect blocks of level 1 in a piece: 32 GiB in blocks of 128 KiB.
const PIECE: usize = 256;

/// A part of the range to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeChunk {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// True if the rest of the range needs no reads, so that this piece is the last.
    pub last: bool,
}

/// The pieces of a range. See [`Dnode::pieces`].
pub struct FreeChunks {
    dn: Arc<LiveDnode>,
    size: u64,
    /// Where the next piece begins, and where the last one ends.
    at: Option<u64>,
    end: u64,
    visited: VisitedSince,
    options: ReadOptions,
}

impl std::fmt::Debug for FreeChunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FreeChunks({}, {:?} to {})", self.dn.object, self.at, self.end)
    }
}

impl Dnode {
    /// The pieces in which `len` bytes from `offset` on are to be freed (`dmu_free_long_range`).
    ///
    /// The caller holds no transaction while it gets a piece. A `len` of `u64::MAX` means up to the
    /// end.
    ///
    /// # Errors
    /// * [`crate::Error::Fixed`]: the object set is not open for changes.
    pub fn pieces(&self, offset: u64, len: u64) -> Result<FreeChunks> {
        let dn = self.to_change()?.clone();
        let size = dn.block_size();
        let (end, visited, options) =
            (offset.saturating_add(len), VisitedSince::default(), self.options().clone());
        Ok(FreeChunks { dn, size, at: Some(offset), end, visited, options })
    }
}

impl FreeChunks {
    /// The next piece, with the indirect blocks above it in the cache. `None` after the last.
    ///
    /// # Errors
    /// The errors of [reading](crate::Error#reading), for indirect blocks.
    pub fn next_piece(&mut self) -> Result<Option<FreeChunk>> {
        let Some(offset) = self.at.take().filter(|at| *at < self.end) else { return Ok(None) };
        let whole = FreeChunk { offset, len: self.end - offset, last: true };
        let Some(tree) = self.dn.synced().filter(|tree| tree.phys.nlevels > 1) else {
            return Ok(Some(whole));
        };
        let (first, last) = (BlkId(offset / self.size), BlkId((self.end - 1) / self.size));
        let last = last.min(tree.phys.maxblkid);
        let leaves = tree.leaves((first, last), PIECE, &mut self.visited, &self.options)?;
        tree.warm(&leaves.found, &self.options)?;
        self.at = leaves.behind.and_then(|blkid| blkid.0.checked_mul(self.size)).filter(|at| *at > offset);
        Ok(Some(match self.at {
            None => whole,
            Some(behind) => FreeChunk { offset, len: behind - offset, last: false },
        }))
    }
}
