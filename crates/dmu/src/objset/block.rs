//! A block of dnodes.

use crate::tree::BlockTree;
use crate::{Error, Result};
use device::Sparse;
use ondisk::dnode::{DNODE_MIN_SIZE, DnodePhys};
use ondisk::{BlkId, DmuType};
use std::borrow::Cow;
use std::ops::Range;
use zio::ReadOptions;

/// A free slot.
static FREE: [u8; DNODE_MIN_SIZE] = [0; DNODE_MIN_SIZE];

/// A block of dnodes.
///
/// The first blocks of a file system are mostly free. Of such a block, the cache holds the
/// beginning only.
pub(crate) struct DnodeBlock {
    held: Sparse,
    /// The error for its encrypted bonuses, if they can't be decrypted. Everything else is plain.
    pub(crate) locked: Option<Error>,
}

impl DnodeBlock {
    /// Reads a block of dnodes. `None` for a hole.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading), but not for a key that is not loaded.
    pub(crate) fn read(meta: &BlockTree, blkid: BlkId, options: &ReadOptions) -> Result<Option<DnodeBlock>> {
        match meta.block_sparse(blkid, options) {
            Err(locked @ Error::Read(zio::Error::Key { .. })) => {
                let block = meta.block_undecrypted(blkid, options)?;
                Ok(block.map(|b| DnodeBlock { held: b.into(), locked: Some(locked) }))
            }
            read => Ok(read?.map(|held| DnodeBlock { held, locked: None })),
        }
    }

    /// The bytes from a slot on, with the whole dnode. A large dnode may end in zeros that the
    /// cache does not hold.
    fn bytes(&self, slot: usize) -> Cow<'_, [u8]> {
        let at = slot * DNODE_MIN_SIZE;
        let held = self.held.head().get(at..).filter(|raw| raw.len() >= DNODE_MIN_SIZE).unwrap_or(&FREE);
        if self.held.is_whole() || held[0] == 0 || DnodePhys::slots(held).is_ok() {
            return Cow::Borrowed(held);
        }
        Cow::Owned(self.held.whole()[at..].to_vec())
    }

    /// The bytes that the cache holds.
    pub(crate) fn held(&self) -> &[u8] {
        self.held.head()
    }

    /// Where the bonus of the dnode that begins in a slot is in [`DnodeBlock::held`], and its type.
    /// `None` if the dnode must be decoded, or if bonuses are encrypted.
    pub(crate) fn find_bonus(&self, slot: usize) -> Option<(DmuType, Range<usize>)> {
        let start = slot * DNODE_MIN_SIZE;
        let (kind, at) = DnodePhys::find_bonus(self.held().get(start..)?)?;
        self.locked.is_none().then_some((kind, start + at.start..start + at.end))
    }

    /// True if a slot is the first of a dnode.
    pub(crate) fn is_used(&self, slot: usize) -> bool {
        self.bytes(slot)[0] != 0
    }

    /// The number of slots that are taken from this one on. A free slot counts as one.
    pub(crate) fn taken(&self, slot: usize) -> ondisk::Result<usize> {
        let raw = self.bytes(slot);
        if raw[0] == 0 { Ok(1) } else { DnodePhys::slots(&raw) }
    }

    /// The dnode that begins in a slot. `None` if the slot is free.
    pub(crate) fn decode(&self, slot: usize) -> ondisk::Result<Option<DnodePhys>> {
        DnodePhys::decode(&self.bytes(slot))
    }
}

#[cfg(test)]
mod tests;
