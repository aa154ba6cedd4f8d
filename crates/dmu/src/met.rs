//! The blocks that a walk has met, so that it goes through none of them twice.
//!
//! # Theory
//! The pointers of one object's tree lead to blocks of their own: metadata are neither deduplicated nor cloned. In a pool
//! that was made to harm, many pointers lead to one block, and a few sectors become a tree of 2^60 blocks that a walk never
//! leaves. A walk through metadata that remembers where its blocks were finds that out at the second pointer.

use ondisk::{BlkId, Blkptr, Corrupt, Level, Offset, Txg, VdevId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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

/// The same for a walk through a tree that is written meanwhile: a place that was given back may have been given to another of its blocks, which
/// was born there later.
#[derive(Debug, Default)]
pub(crate) struct MetSince(HashMap<(VdevId, Offset), (Level, BlkId, Txg)>);

impl MetSince {
    /// Notes that the block `blkid` of `level` is where `bp` says.
    ///
    /// # Errors
    /// [`Corrupt`] if another block of the tree is there, or was and was not born before this one.
    pub(crate) fn note(&mut self, bp: &Blkptr, level: Level, blkid: BlkId) -> ondisk::Result<()> {
        let Some(stored) = bp.stored() else { return Ok(()) };
        let Some(dva) = stored.dvas[0] else { return Ok(()) };
        let here = (level, blkid, stored.phys_birth);
        match self.0.entry((dva.vdev, dva.offset)) {
            Entry::Vacant(entry) => {
                entry.insert(here);
            }
            Entry::Occupied(entry) if *entry.get() == here => {}
            // Each time it is met it is younger, so that a tree made to harm is not walked for long.
            Entry::Occupied(mut entry) if entry.get().2 < here.2 => {
                entry.insert(here);
            }
            Entry::Occupied(_) => {
                return Err(Corrupt::Shape {
                    what: "block tree",
                    why: "two of its pointers lead to one block",
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
