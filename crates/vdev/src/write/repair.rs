//! Rewriting what is wrong of a block whose right bytes are known.

use device::{AlignedBuf, Block};
use ondisk::{Txg, VdevId};

use crate::Result;
use crate::request::Request;
use crate::tree::{Layout, Tree, device_offset};

/// What a repair did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// Pieces that were wrong or could not be read, and are now right.
    pub healed: usize,
    /// Pieces that are still wrong: their device refused the write.
    pub failed: usize,
}

impl Tree {
    /// Compares every piece of a block, parity too, with the right bytes, and rewrites those that
    /// differ.
    ///
    /// `good` are the block's bytes and `birth` its physical birth. Missing devices are skipped.
    /// With a request of a class that only reads, the writes are asynchronous ones.
    ///
    /// # Errors
    /// Those of [`Tree::lay_out`]. So a block of a removed vdev, or of one that is being expanded,
    /// is not repaired.
    pub fn repair(
        &self,
        vdev: VdevId,
        offset: u64,
        good: &Block,
        birth: Txg,
        request: &Request,
    ) -> Result<Repaired> {
        let (laid, request) = (self.lay_out(vdev, offset, good, birth)?, &request.for_repair());
        let mut done = Repaired::default();
        for piece in &laid.pieces {
            let want = &piece.bytes[piece.range.clone()];
            let node = self.node(piece.leaf);
            let Layout::Leaf(Some(device)) = &node.layout else { continue };
            // Not counted: wrong bytes counted an error when the block was read.
            let mut have = AlignedBuf::zeroed(want.len());
            let read = device.read_at(&mut have, device_offset(piece.offset));
            if read.is_ok() && have[..] == *want {
                continue;
            }
            match self.write_leaf(piece.leaf, piece.offset, &[want], request) {
                Ok(()) => {
                    node.stats.self_healed.add(want.len() as u64);
                    done.healed += 1;
                }
                Err(_) => done.failed += 1,
            }
        }
        Ok(done)
    }
}
