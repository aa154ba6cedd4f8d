//! The blocks that a walk has visited, so that it visits none of them twice.
//!
//! # Theory
//! Each pointer of one object's tree leads to a block of its own, because metadata are neither
//! deduplicated nor cloned. In a malicious pool, many pointers lead to one block. A few sectors
//! then look like a tree of 2^60 blocks, and a walk of it never ends. A walk through metadata that
//! remembers the places of its blocks detects this at the second pointer.

use ondisk::{BlkId, Blkptr, Corrupt, Level, Offset, Txg, VdevId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The places of visited blocks, and which block of the tree was at each.
#[derive(Debug, Default)]
pub(crate) struct Visited(HashMap<(VdevId, Offset), (Level, BlkId)>);

impl Visited {
    /// Notes that block `blkid` of `level` is where `bp` says. An embedded block has no place.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: another block of the tree is there.
    pub(crate) fn note(&mut self, bp: &Blkptr, level: Level, blkid: BlkId) -> ondisk::Result<()> {
        let Some(dva) = bp.stored().and_then(|s| s.dvas[0]) else { return Ok(()) };
        if *self.0.entry((dva.vdev, dva.offset)).or_insert((level, blkid)) == (level, blkid) {
            return Ok(());
        }
        Err(Corrupt::Shape { what: "block tree", why: "two of its pointers lead to one block" })
    }
}

/// The visited blocks of a walk through a tree that is written meanwhile.
///
/// A place that was freed may hold another block of the same tree, which was born there later.
#[derive(Debug, Default)]
pub(crate) struct VisitedSince(HashMap<(VdevId, Offset), (Level, BlkId, Txg)>);

impl VisitedSince {
    /// Notes that block `blkid` of `level` is where `bp` says.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: another block of the tree is or was there, and was not born before
    ///   this one.
    pub(crate) fn note(&mut self, bp: &Blkptr, level: Level, blkid: BlkId) -> ondisk::Result<()> {
        let Some(stored) = bp.stored() else { return Ok(()) };
        let Some(dva) = stored.dvas[0] else { return Ok(()) };
        let here = (level, blkid, stored.phys_birth);
        match self.0.entry((dva.vdev, dva.offset)) {
            Entry::Vacant(entry) => {
                entry.insert(here);
            }
            Entry::Occupied(entry) if *entry.get() == here => {}
            // At each visit the block must be younger, so a walk of a malicious tree still ends
            // soon.
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
