//! Data for a log record: a part of a block.

use device::{AlignedBuf, Block};
use dmu::Dnode;
use ondisk::BlkId;
use std::ops::Range;

/// A part of a block, which may be shared with other holders.
pub struct Bytes {
    block: Block,
    range: Range<usize>,
}

impl Bytes {
    /// `len` bytes of an object from `offset` on, with zeros beyond its end.
    ///
    /// If they are at least half of one block, they share its memory. A writer that changes the
    /// block meanwhile may have to copy it, and that copy is not much larger. Smaller ranges are
    /// copied here.
    ///
    /// # Errors
    /// * [`dmu::Error::Read`]: a block can't be read.
    /// * [`dmu::Error::Misplaced`]: a pointer contradicts its place in the object's tree.
    /// * [`dmu::Error::NoSuchObject`]: the object was freed.
    pub fn of(dn: &Dnode, offset: u64, len: usize) -> dmu::Result<Bytes> {
        let size = dn.block_size();
        let (blkid, start) = (BlkId(offset / size), (offset % size) as usize);
        let (half, whole) = (size as usize / 2, size as usize);
        if len >= half
            && start + len <= whole
            && blkid <= dn.max_blkid()
            && let Some(block) = dn.block(blkid)?
        {
            return Ok(Bytes::new(block, start..start + len));
        }
        let mut bytes = AlignedBuf::zeroed(len);
        dn.read_at(offset, &mut bytes)?;
        let block = bytes.freeze();
        Ok(Bytes { range: 0..block.len(), block })
    }

    pub(crate) fn new(block: Block, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= block.len(), "a part of the block");
        Bytes { block, range }
    }

    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns the first `n` bytes, and drops them from this range.
    pub(crate) fn take(&mut self, n: usize) -> &[u8] {
        let first = self.range.start..self.range.start + n;
        self.range.start += n;
        &self.block[first]
    }
}
