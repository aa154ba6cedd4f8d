//! A walk through an object's contents from front to back, past damage.
//!
//! # Theory
//! A rescue needs every byte that can be read, and a list of those that can't. So at an indirect
//! block that can't be read, the walk reports the bytes below it and continues after them.
//!
//! At each step, a walk of an object that changes sees its current state.
//!
//! As every walk through metadata, this one remembers the places of indirect blocks. A sound tree
//! has none of them at two places, because metadata are neither deduplicated nor cloned. A few
//! indirect blocks that lead to one another could claim exabytes of data. Data blocks may well be
//! at many places. Only the size of the object limits how often.

use crate::visited::Visited;
use crate::{Dnode, Error, Extent};
use ondisk::BlkId;

/// A walk. See [`Dnode::walk`].
#[derive(Debug)]
pub struct Walk {
    dn: Dnode,
    visited: Visited,
}

/// Bytes that can't be found: an indirect block above them can't be read, or is at another place of
/// the tree too.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The first byte.
    pub from: u64,
    /// The first byte after them. It lies after the byte where the search began.
    pub to: u64,
    /// The cause.
    pub error: Error,
}

impl Dnode {
    /// Begins a walk through its contents.
    pub fn walk(&self) -> Walk {
        Walk { dn: self.clone(), visited: Visited::default() }
    }
}

impl Walk {
    /// As [`Dnode::next_offset`]. Offsets must not go back by more than a search.
    ///
    /// # Errors
    /// * [`Damage`]: the bytes that can't be found before the next wanted byte. From `offset` to
    ///   the damage, no byte is wanted.
    pub fn next_offset(&mut self, offset: u64, want: Extent) -> Result<Option<u64>, Box<Damage>> {
        self.dn.next_offset_in(offset, want, &mut self.visited).map_err(|blocked| {
            let size = self.dn.block_size();
            let bytes = |blkid: Option<BlkId>| blkid.map_or(u64::MAX, |b| b.0.saturating_mul(size));
            let (from, to) = (bytes(blocked.from), bytes(blocked.behind));
            Box::new(Damage { from, to, error: blocked.error })
        })
    }
}
