//! Buffers for device I/O, and the immutable blocks that they become.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod recycle;

/// The unit of buffers: direct I/O needs memory that is aligned to the sector.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(512))]
struct Sector([u8; SECTOR]);

const SECTOR: usize = 512;

/// Bytes that are aligned for direct I/O.
pub struct AlignedBuf {
    sectors: Vec<Sector>,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zeros.
    ///
    /// The caller has checked `len`: the process aborts if memory is short.
    pub fn zeroed(len: usize) -> Self {
        // Zeroed memory from the allocator would be new pages of the system, with a page fault for
        // each. These may have been used before.
        Self::padded(&[], len)
    }

    /// A buffer of `len` bytes with any content, perhaps of other blocks. The caller overwrites all
    /// of them, or drops the buffer.
    ///
    /// The caller has checked `len`: the process aborts if memory is short.
    pub fn for_overwrite(len: usize) -> Self {
        let mut sectors = recycle::ALL.take(len.div_ceil(SECTOR));
        // What is behind the end stays zero, as in other buffers.
        if let Some(last) = sectors.last_mut().filter(|_| !len.is_multiple_of(SECTOR)) {
            last.0[len % SECTOR..].fill(0);
        }
        Self { sectors, len }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::padded(bytes, bytes.len())
    }

    /// A copy of `bytes` with zeros after it, `len` bytes in all.
    ///
    /// # Panics
    /// If `bytes` is longer than `len`.
    pub fn padded(bytes: &[u8], len: usize) -> Self {
        assert!(bytes.len() <= len, "padding makes nothing shorter");
        let (whole, tail) = bytes.as_chunks::<SECTOR>();
        // Written once: to fill a large buffer with zeros first costs as much as the copy.
        let mut sectors = recycle::ALL.take_part(len.div_ceil(SECTOR));
        sectors.clear();
        sectors.extend(whole.iter().map(|s| Sector(*s)));
        if !tail.is_empty() {
            let mut last = Sector([0; SECTOR]);
            last.0[..tail.len()].copy_from_slice(tail);
            sectors.push(last);
        }
        sectors.resize(len.div_ceil(SECTOR), Sector([0; SECTOR]));
        Self { sectors, len }
    }

    /// Drops the bytes from `len` on; does nothing if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.sectors.truncate(len.div_ceil(SECTOR));
        }
    }

    /// Makes the bytes immutable and shareable, without a copy.
    pub fn freeze(self) -> Block {
        Block(Arc::new(self))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        recycle::ALL.give(std::mem::take(&mut self.sectors));
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.sectors.as_slice().as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.sectors.as_mut_slice().as_mut_bytes()[..self.len]
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self { sectors: self.sectors.clone(), len: self.len }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Immutable bytes, shared by reference: a clone increments a reference count.
#[derive(Clone)]
pub struct Block(Arc<AlignedBuf>);

impl Block {
    /// A block that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        AlignedBuf::copy_of(bytes).freeze()
    }

    /// A block of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        AlignedBuf::zeroed(len).freeze()
    }

    /// The bytes as a mutable buffer: without a copy if this is the last reference, else a copy.
    pub fn thaw(self) -> AlignedBuf {
        Arc::unwrap_or_clone(self.0)
    }

    /// The bytes as a mutable buffer in place, copied first if there are other references.
    pub fn make_mut(&mut self) -> &mut AlignedBuf {
        Arc::make_mut(&mut self.0)
    }

    /// True if both are the same memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<AlignedBuf> for Block {
    fn from(buf: AlignedBuf) -> Self {
        buf.freeze()
    }
}

/// A block of which only the start is in memory; the rest is zeros.
///
/// Most indirect blocks of a small object are zeros nearly to the end.
#[derive(Debug, Clone)]
pub struct Sparse {
    head: Block,
    len: usize,
}

impl Sparse {
    /// A block of `len` bytes that starts with `head`.
    ///
    /// # Panics
    /// If `head` is longer than `len`.
    pub fn new(head: Block, len: usize) -> Self {
        assert!(head.len() <= len, "a block is not shorter than its beginning");
        Self { head, len }
    }

    /// A block of which only the first `start` bytes are known, and the rest is zeros. Small starts
    /// are copied, as whole sectors.
    ///
    /// # Panics
    /// If `start` is beyond the block.
    pub fn starting(mut block: AlignedBuf, start: usize) -> Self {
        let (len, held) = (block.len(), start.next_multiple_of(SECTOR));
        if held * 2 > len || held >= len {
            block[start..].fill(0);
            return block.freeze().into();
        }
        Self::new(AlignedBuf::padded(&block[..start], held).freeze(), len)
    }

    /// The same bytes without the zeros at the end, as a copy, if the zeros are most of the block.
    ///
    /// Otherwise the result shares the block's memory.
    pub fn trimmed(block: &Block) -> Self {
        let sectors = block.0.sectors.iter();
        let zeros = sectors.rev().take_while(|sector| sector.0 == [0; SECTOR]).count();
        let held = block.0.sectors.len() - zeros;
        if held * 2 > block.0.sectors.len() || held * SECTOR >= block.len() {
            return block.clone().into();
        }
        Self { head: Block::copy_of(&block[..held * SECTOR]), len: block.len() }
    }

    /// The bytes in memory.
    pub fn head(&self) -> &Block {
        &self.head
    }

    /// Takes the bytes in memory out.
    pub fn into_head(self) -> Block {
        self.head
    }

    /// Bytes of the whole block.
    #[allow(clippy::len_without_is_empty, reason = "a size, not a count")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if all bytes are in memory.
    pub fn is_whole(&self) -> bool {
        self.head.len() == self.len
    }

    /// All bytes of the block; a copy unless all are in memory.
    pub fn whole(&self) -> Block {
        if self.is_whole() { self.head.clone() } else { AlignedBuf::padded(&self.head, self.len).freeze() }
    }
}

impl From<Block> for Sparse {
    fn from(block: Block) -> Self {
        let len = block.len();
        Self { head: block, len }
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || self[..] == other[..]
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}
