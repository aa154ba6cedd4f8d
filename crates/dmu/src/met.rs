//! The blocks that a walk has met, so that it goes through none of them twice.
//!
//! # Theory
//! The pointers of one object's tree lead to blocks of their own: metadata are neither deduplicated nor cloned. In a pool
//! that was made to harm, many pointers lead to one block, and a few sectors become a tree of 2^60 blocks that a walk never
//! leaves. A walk through metadata that remembers where its blocks were finds that out at the second pointer.

use ondisk::{BlkId, Blkptr, Corrupt, Level, Offset, VdevId};
use std::collections::HashMap;

/// Places of blocks, and which blocks of the tree were there.
#[derive(Debug, Default)]
pub(crate) struct Met(HashMap<(VdevId, Offset), (Level, BlkId)>);

impl Met {
    /// Notes that the block `blkid` of `level` is where `bp` says. One that lies in its pointer is nowhere.
    ///
    /// # Errors
    /// [`Corrupt`] if another block of the tree is there.
    pub(crate) fn note(&mut self, bp: &Blkptr, level: Level, blkid: BlkId) -> ondisk::Result<()> {
        let Some(dva) = bp.stored().and_then(|s| s.dvas[0]) else { return Ok(()) };
        if *self.0.entry((dva.vdev, dva.offset)).or_insert((level, blkid)) == (level, blkid) {
            return Ok(());
        }
        Err(Corrupt::Shape { what: "block tree", why: "two of its pointers lead to one block" })
    }
}
