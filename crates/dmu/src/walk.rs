//! The way through an object's contents from front to back, past damage.
//!
//! # Theory
//! A rescue wants every byte that is there, and to know which are not. So a walk that meets an indirect block that it
//! can't read says which bytes lie below it, and goes on behind them.
//!
//! Of an object that changes, a walk sees what is there at each step.
//!
//! The walk remembers where the indirect blocks were, as every walk through metadata here does: none is at two places
//! of a sound tree, since metadata are neither deduplicated nor cloned. A few of them that lead to one another could claim
//! exabytes of data. Blocks of data may well be at many places: how often, only the size of the object bounds.

use crate::met::Met;
use crate::{Dnode, Error, Extent};
use ondisk::BlkId;

/// See [`Dnode::walk`].
#[derive(Debug)]
pub struct Walk {
    dn: Dnode,
    met: Met,
}

/// Bytes that can't be found, and why: an indirect block above them can't be read, or is elsewhere in the tree too.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The first byte.
    pub from: u64,
    /// The first byte behind them; beyond that of the search.
    pub to: u64,
    /// Why.
    pub error: Error,
}

impl Dnode {
    /// A walk through its contents.
    pub fn walk(&self) -> Walk {
        Walk { dn: self.clone(), met: Met::default() }
    }
}

impl Walk {
    /// As [`Dnode::next_offset`]; offsets must not go back by more than a search.
    ///
    /// # Errors
    /// [`Damage`] that lies before the next byte that is wanted; from `offset` to it there is none.
    pub fn next_offset(&mut self, offset: u64, want: Extent) -> Result<Option<u64>, Box<Damage>> {
        self.dn.next_offset_in(offset, want, &mut self.met).map_err(|blocked| {
            let size = self.dn.block_size();
            let bytes = |blkid: Option<BlkId>| blkid.map_or(u64::MAX, |b| b.0.saturating_mul(size));
            let (from, to) = (bytes(blocked.from), bytes(blocked.behind));
            Box::new(Damage { from, to, error: blocked.error })
        })
    }
}
