//! Block devices: files, disks, parts of them, and simulated ones.
//!
//! # Theory
//! A [`Device`] is an array of bytes of known size. Many threads at once can read, write, flush and
//! trim it. It can be an image file, a disk, a partition in an image, memory, or a device that
//! fails on purpose. The layers above see the same trait, so a test can bring its own hardware.
//! Devices around other devices implement [`Wrapper`](wrapper::Wrapper).
//!
//! A read or write is done as a whole, or it is an error; no operation is short. A write is durable
//! after the success of a flush that began after it. Buffers are [`AlignedBuf`]s, aligned for
//! direct I/O. A finished buffer is frozen to a [`Block`], which is immutable and cheap to clone.
//! So blocks travel from here to the front ends without another copy.
//!
//! # Locks
//! - An owner claims an image file by a write lock. It claims a block device by `O_EXCL`, which the
//!   kernel refuses while the device is mounted or imported. Both claims end when the device is
//!   dropped.
//! - A reader's lock on an image refuses no owner (`file/claim.rs`).
//! - Loop devices over an image are claimed with it, because its bytes have one owner on every
//!   path.
//! - A reader that wants no owner beside it claims an image shared.
//! - [`Mode::Peek`] claims nothing and is never refused.
//! - The simulated devices hold their own mutex only while they copy. A volatile [`Faulty`] one
//!   holds it during the I/O of a write.
//!
//! # Absent
//! This crate has no redundancy, labels, checksums, retries or caches.

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
pub mod wrapper;
mod writeback;

pub use buf::{AlignedBuf, Block, Sparse, recycle};
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

/// The result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// An array of bytes that can be read and written in place (the leaf operations of `vdev_ops_t`).
pub trait Device: Send + Sync {
    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The content of `buf` is undefined after an error.
    ///
    /// * [`DeviceError::Range`]: the range passes the end of the device.
    /// * [`DeviceError::Io`]: the system or the medium failed.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `buf` at `offset`.
    ///
    /// # Errors
    /// After an error any part may have been written.
    ///
    /// * [`DeviceError::ReadOnly`]: the device is open for reading only.
    /// * [`DeviceError::Range`]: the range passes the end of the device.
    /// * [`DeviceError::Io`]: the system or the medium failed, or another owner has taken the
    ///   claim.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Writes several buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    /// The variants and causes that [`write_at`](Self::write_at) lists.
    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes all writes durable that have returned (`zio_flush`).
    ///
    /// # Errors
    /// It is unknown after an error which writes are durable.
    ///
    /// * [`DeviceError::Io`]: the system or the medium failed, or another owner has taken the
    ///   claim.
    fn flush(&self) -> Result<()>;

    /// Tells the device that a range holds no data (`zio_trim`).
    ///
    /// Afterwards the range reads as any bytes. A device that can't trim does nothing.
    ///
    /// # Errors
    /// The variants and causes that [`write_at`](Self::write_at) lists.
    fn trim(&self, offset: u64, len: u64) -> Result<()>;

    /// True if [`trim`](Self::trim) has an effect, as far as is known (`vdev_has_trim`).
    fn can_trim(&self) -> bool {
        true
    }

    /// True if the system no longer has the device: it was pulled, and won't return under this
    /// handle.
    ///
    /// It asks the system, not the device.
    fn is_gone(&self) -> bool {
        false
    }

    /// The descriptor of an image file that has no name any more (`st_nlink` is 0).
    ///
    /// Such a file disappears with its last user. `None` if the file has a name, or the device is
    /// no file.
    fn nameless(&self) -> Option<i32> {
        None
    }

    /// True if `path` now leads to another device than this one.
    ///
    /// `false` if the path leads nowhere, or if that can't be told. This looks the path up in the
    /// system, which can hang.
    fn is_not_at(&self, _path: &Path) -> bool {
        false
    }

    /// Lets another handle of this process to the same device claim it.
    ///
    /// This handle takes its claim back with its next write, and that write fails if it can't. A
    /// device whose claim can't be passed on does nothing.
    fn give_way(&self) {}

    /// Bytes in the device (`vdev_psize`).
    fn size(&self) -> u64;

    /// Bytes that the device would have with all growth since it was opened (`max_psize` of
    /// `vdev_op_open`).
    ///
    /// Never less than [`size`](Self::size).
    fn size_now(&self) -> u64 {
        self.size()
    }

    /// Accepts all growth of the device: from now on [`size`](Self::size) includes it.
    fn grow(&self) {}

    /// Smallest unit of a write, in bytes (`vdev_logical_ashift`).
    fn logical_sector(&self) -> u32;

    /// Unit that the device writes without reading first, in bytes; at least the logical sector
    /// (`vdev_physical_ashift`).
    fn physical_sector(&self) -> u32;

    /// Path or description of the device, for users (`vdev_path`).
    fn name(&self) -> &str;
}

/// Refuses a range that passes the end of a device.
///
/// # Errors
/// * [`DeviceError::Range`]: the range passes the end of the device.
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
