//! Bytes that are shared instead of copied.

use std::fmt;
use std::sync::Arc;

/// Immutable bytes with shared owners: a block of the cache, for example.
pub type Block = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A part of a [`Block`]. A clone shares the block.
#[derive(Clone)]
pub struct Slice {
    block: Block,
    start: usize,
    end: usize,
}

impl Slice {
    /// A part of a block.
    ///
    /// # Panics
    /// If the range is not inside of the block.
    #[must_use]
    pub fn new(block: Block, range: std::ops::Range<usize>) -> Slice {
        let length = (*block).as_ref().len();
        assert!(range.start <= range.end && range.end <= length, "the range is inside of the block");
        Slice { block, start: range.start, end: range.end }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &(*self.block).as_ref()[self.start..self.end]
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The block that it keeps in memory: where that is, and how large.
    pub(crate) fn block(&self) -> (usize, usize) {
        let bytes = (*self.block).as_ref();
        (bytes.as_ptr() as usize, bytes.len())
    }

    /// Takes the first `n` bytes off, or all if there are fewer.
    #[must_use]
    pub fn take(&mut self, n: usize) -> Slice {
        let end = self.start + n.min(self.len());
        let head = Slice { block: Arc::clone(&self.block), start: self.start, end };
        self.start = end;
        head
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        let end = bytes.len();
        Slice { block: Arc::new(bytes), start: 0, end }
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}
