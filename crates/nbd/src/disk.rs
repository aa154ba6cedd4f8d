//! What a door serves: bytes by number.

use crate::error::Result;
use dmu::Extent;

/// An open export.
///
/// Every method may be called by several threads at once, and may block on devices. Ranges lie within [`Disk::size`] as it was a moment ago: the
/// implementation checks again.
pub trait Disk: Send + Sync {
    /// Bytes in it, now.
    fn size(&self) -> u64;
    /// Bytes of the blocks that it is made of, a power of two: what is best read and written.
    fn block_size(&self) -> u32;
    /// Whether it can't be written, now.
    fn is_read_only(&self) -> bool;
    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    /// A byte that can't be read fails all of it.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `data`.
    ///
    /// # Errors
    /// Some of it may be written then.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes a range read as zeroes, and gives its room back.
    ///
    /// # Errors
    /// As writing.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;
    /// Makes every change that was finished before the call durable, whoever made it.
    ///
    /// # Errors
    /// They may be lost then.
    fn flush(&self) -> Result<()>;
    /// The first byte from `offset` on that lies in such an extent; the size if there is none.
    ///
    /// # Errors
    /// As reading.
    fn next(&self, offset: u64, want: Extent) -> Result<u64>;
}
