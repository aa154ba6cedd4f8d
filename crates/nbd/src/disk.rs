//! The interface between the protocol and an export.

use crate::error::Result;
use dmu::Extent;

/// An open export.
///
/// Several threads may call each method at once, and each call may block on devices. The caller has
/// checked that a range lies within [`Disk::size`]. The size may have changed since, so the
/// implementation checks again.
///
/// # Errors
/// For a volume, each method returns [`Error::Volume`](crate::Error::Volume), with:
///
/// * [`zvol::Error::PastEnd`]: the range ends past the end, since the volume became smaller.
/// * [`zvol::Error::Dmu`]: a block can't be read or is damaged.
///
/// The methods that change the volume also return:
///
/// * [`zvol::Error::ReadOnly`]: the volume was not opened for writing.
/// * [`zvol::Error::NoSpace`]: the pool has no free space left.
/// * [`zvol::Error::Quota`]: a quota is exhausted.
/// * [`zvol::Error::Stopped`]: the pool has stopped writing.
pub trait Disk: Send + Sync {
    /// The present size in bytes.
    fn size(&self) -> u64;
    /// The size of its blocks in bytes, a power of two. Reads and writes of whole blocks are
    /// fastest.
    fn block_size(&self) -> u32;
    /// Whether it is read-only at present.
    fn is_read_only(&self) -> bool;
    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [Those of all methods](Disk#errors). One byte that can't be read fails the whole read.
    ///
    /// OpenZFS: `zvol_read`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [Those of changes](Disk#errors). Some of the data may have been written.
    ///
    /// OpenZFS: `zvol_write`.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes a range read as zeros, and frees its space.
    ///
    /// # Errors
    /// [Those of changes](Disk#errors). Part of the range may have been zeroed.
    ///
    /// OpenZFS: `zvol_discard`.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;
    /// Makes all changes durable that were complete before the call, by any connection.
    ///
    /// # Errors
    /// [`zvol::Error::Stopped`], in [`Error::Volume`](crate::Error::Volume): the pool has stopped
    /// writing, and the changes may be lost.
    fn flush(&self) -> Result<()>;
    /// Finds the first byte at or after `offset` that is in an extent of this kind.
    ///
    /// Returns the size if there is none.
    ///
    /// # Errors
    /// [Those of all methods](Disk#errors).
    fn next(&self, offset: u64, want: Extent) -> Result<u64>;
}
