//! Errors of device operations.

use std::fmt;
use std::io;

/// Kind of a device operation (`zio_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Open the device.
    Open,
    /// Read a range (`ZIO_TYPE_READ`).
    Read,
    /// Write a range (`ZIO_TYPE_WRITE`).
    Write,
    /// Make writes durable (`ZIO_TYPE_FLUSH`).
    Flush,
    /// Discard a range (`ZIO_TYPE_TRIM`).
    Trim,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Open => "open",
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Trim => "trim",
        })
    }
}

/// The reason for which a device operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The system or the medium failed (`EIO` and others), or another owner has taken the device's
    /// claim.
    #[error("{op} of {len} bytes at {offset} on {device}")]
    Io {
        /// Kind of the operation.
        op: Op,
        /// Name of the device.
        device: String,
        /// Offset of the range; 0 for a flush.
        offset: u64,
        /// Bytes in the range.
        len: u64,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The range passes the end of the device.
    #[error("{op} of {len} bytes at {offset} on {device}, which has {size} bytes")]
    Range {
        /// Kind of the operation.
        op: Op,
        /// Name of the device.
        device: String,
        /// Offset of the range.
        offset: u64,
        /// Bytes in the range.
        len: u64,
        /// Bytes in the device.
        size: u64,
    },
    /// The device is open for reading only.
    #[error("{op} on {device}, which is open read-only")]
    ReadOnly {
        /// Kind of the operation.
        op: Op,
        /// Name of the device.
        device: String,
    },
    /// The system refuses to open the device.
    #[error("open {device}")]
    Open {
        /// Path of the device.
        device: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Another process, or another part of this one, has the device (`EBUSY`).
    #[error("{device} is in use")]
    Busy {
        /// Path of the device.
        device: String,
    },
    /// The path names neither a regular file nor a block device.
    #[error("{device} is neither a file nor a block device")]
    NotADevice {
        /// Path of the device.
        device: String,
    },
}

impl DeviceError {
    /// Error number of the system (`errno`); `None` for errors that the system didn't report.
    pub fn errno(&self) -> Option<i32> {
        match self {
            DeviceError::Io { source, .. } | DeviceError::Open { source, .. } => source.raw_os_error(),
            DeviceError::Range { .. }
            | DeviceError::ReadOnly { .. }
            | DeviceError::Busy { .. }
            | DeviceError::NotADevice { .. } => None,
        }
    }

    /// True if the storage behind the device is full (`ENOSPC`, `EDQUOT`).
    ///
    /// That is the file system of an image, or a quota there.
    pub fn is_no_room(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}
