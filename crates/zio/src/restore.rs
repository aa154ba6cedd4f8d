//! Writing a damaged block again, from bytes that came from elsewhere.

use device::Block;
use ondisk::Blkptr;

use crate::{Bookmark, Priority, ReadOptions, Zio};

impl Zio {
    /// Writes the stored bytes of a block to all of its places that have others. Returns whether
    /// they are the block's and it can be read again. Otherwise nothing was written, or a device
    /// failed.
    ///
    /// The caller waits for the writes, so they are synchronous ones. It keeps the block from being
    /// freed. A gang block is not restored: its parts have
    /// places of their own.
    pub fn restore(&self, bp: &Blkptr, stored: &Block, bookmark: &Bookmark, options: &ReadOptions) -> bool {
        let Some(s) = bp.stored().filter(|s| s.psize.0 == stored.len() as u64) else { return false };
        if self.verify(bp, s, stored).is_err() {
            return false;
        }
        let (tree, request) = (self.tree(), options.request.with_priority(Priority::SyncWrite));
        for dva in s.copies().filter(|dva| !dva.gang) {
            // Whether it can be read is seen below.
            let repaired = tree.repair(dva.vdev, dva.offset.0, stored, s.phys_birth, &request);
            drop(repaired);
        }
        self.read_raw(bp, bookmark, options).is_ok()
    }
}
