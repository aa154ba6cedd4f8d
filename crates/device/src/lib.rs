//! Block devices: files, disks, parts of them, and simulated ones.
//!
//! # Theory
//! A [`Device`] is an array of bytes of known size that can be read, written, flushed and trimmed by many
//! threads at once. Whatever stands behind it, an image file, a disk, a partition within an image, memory,
//! or a device that fails on purpose, the rooms above see the same trait, so that a test owns its hardware.
//!
//! A read or write is done whole or it is an error; nothing is ever short. A write is durable once a flush
//! that began after it has succeeded. Buffers are [`AlignedBuf`], aligned for direct I/O; a finished one is
//! frozen into a [`Block`], immutable and cheap to clone, which is how blocks travel from here to the front
//! doors without another copy.
//!
//! # Locks
//! An owner claims an image file by a write lock, and a block device by `O_EXCL`, which the kernel
//! refuses while anyone has it mounted or imported; both end when the device is dropped. What
//! readers of an image lock refuses no owner (`file/claim.rs`). Loop devices over an image are
//! claimed with it, as its bytes have one owner however they are reached. Readers that want no
//! owner beside them claim an image shared. Who only looks ([`Mode::Peek`]) claims nothing and is
//! never refused. The simulated devices hold their
//! own mutex only while they copy.
//!
//! # Absent
//! Redundancy, labels, checksums, retries and caching are not known here.

mod ahead;
mod buf;
mod discard;
mod error;
mod faulty;
mod file;
mod layer;
mod loops;
mod mem;
mod project;
mod recording;
mod region;
mod slow;
mod spinning;

pub use buf::{AlignedBuf, Block, Sparse};
pub use error::{DeviceError, Op};
pub use faulty::{Fault, Faulty};
pub use file::{FileDevice, Mode};
pub use layer::Layer;
pub use loops::LoopDevice;
pub use mem::MemDevice;
pub use project::Project;
pub use recording::{Event, Recording};
pub use region::Region;
pub use slow::{Clock, Slow, SystemClock};
pub use spinning::{Effort, Spinning};

use std::path::Path;

/// A result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An array of bytes that can be read and written in place.
pub trait Device: Send + Sync {
    /// Fills `buf` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`DeviceError::Range`] when the range passes the end, [`DeviceError::Io`] when the medium failed. The
    /// contents of `buf` are undefined after an error.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`], [`DeviceError::Range`] or [`DeviceError::Io`]; after an error any part may
    /// have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Writes several buffers, one behind the other, from `offset` on.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// [`DeviceError::Io`]: which writes are durable is unknown then.
    fn flush(&self) -> Result<()>;

    /// Tells the device that a range holds nothing of use; it may read as anything afterwards. A device that
    /// can't trim does nothing.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn trim(&self, offset: u64, len: u64) -> Result<()>;

    /// Whether [`trim`](Self::trim) does anything, as far as is known.
    fn can_trim(&self) -> bool {
        true
    }

    /// Whether the system has it no more: it was pulled, and will not come back under this handle. Asks the system, not the device.
    fn is_gone(&self) -> bool {
        false
    }

    /// The descriptor of an image file that has no name any more (`st_nlink`): with its last user it is gone. `None` for whatever has one, or is no file.
    fn nameless(&self) -> Option<i32> {
        None
    }

    /// Whether a path leads to another device now than this one: what was opened there is not what
    /// is there. Asks the system for the path, which may hang. `false` where the path leads
    /// nowhere, or that can't be told.
    fn is_not_at(&self, _path: &Path) -> bool {
        false
    }

    /// Lets another opening of the same device by this process claim it. This one takes its claim
    /// back with its next write, and fails if it can't. Does nothing where a claim can't be given
    /// away.
    fn give_way(&self) {}

    /// Bytes in the device.
    fn size(&self) -> u64;

    /// Bytes that it would have if it took in what it has grown by since it was opened; never less than [`size`](Self::size).
    fn size_now(&self) -> u64 {
        self.size()
    }

    /// Takes in what it has grown by: from now on [`size`](Self::size) says so.
    fn grow(&self) {}

    /// Smallest unit that can be written, in bytes.
    fn logical_sector(&self) -> u32;

    /// Unit that is written without reading first, in bytes; at least the logical sector.
    fn physical_sector(&self) -> u32;

    /// The path or description that people know the device by.
    fn name(&self) -> &str;
}

/// Refuses a range that passes the end of a device.
pub(crate) fn check_range(device: &dyn Device, op: Op, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device.size() => Ok(()),
        _ => {
            Err(DeviceError::Range { op, device: device.name().to_owned(), offset, len, size: device.size() })
        }
    }
}

#[cfg(test)]
mod tests;
