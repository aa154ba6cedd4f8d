//! Why a device operation failed.

use std::fmt;
use std::io;

/// What was asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Open it.
    Open,
    /// Read a range.
    Read,
    /// Write a range.
    Write,
    /// Make writes durable.
    Flush,
    /// Discard a range.
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

/// Why a device operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The operating system or the medium refused.
    #[error("{op} of {len} bytes at {offset} on {device}")]
    Io {
        /// What was asked.
        op: Op,
        /// The device's name.
        device: String,
        /// First byte of the range; 0 for a flush.
        offset: u64,
        /// Bytes in the range.
        len: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The range passes the end of the device.
    #[error("{op} of {len} bytes at {offset} on {device}, which has {size} bytes")]
    Range {
        /// What was asked.
        op: Op,
        /// The device's name.
        device: String,
        /// First byte of the range.
        offset: u64,
        /// Bytes in the range.
        len: u64,
        /// Bytes in the device.
        size: u64,
    },
    /// The device was opened for reading only.
    #[error("{op} on {device}, which is open read-only")]
    ReadOnly {
        /// What was asked.
        op: Op,
        /// The device's name.
        device: String,
    },
    /// The device could not be opened.
    #[error("open {device}")]
    Open {
        /// The path.
        device: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Somebody else has the device open.
    #[error("{device} is in use")]
    Busy {
        /// The path.
        device: String,
    },
    /// The path names neither a regular file nor a block device.
    #[error("{device} is neither a file nor a block device")]
    NotADevice {
        /// The path.
        device: String,
    },
}

impl DeviceError {
    /// What the system said (`errno`), if it said anything.
    pub fn errno(&self) -> Option<i32> {
        match self {
            DeviceError::Io { source, .. } | DeviceError::Open { source, .. } => source.raw_os_error(),
            DeviceError::Range { .. }
            | DeviceError::ReadOnly { .. }
            | DeviceError::Busy { .. }
            | DeviceError::NotADevice { .. } => None,
        }
    }

    /// Whether what is behind the device has no room: the file system of an image, or a quota there
    /// (`ENOSPC`, `EDQUOT`).
    pub fn is_no_room(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}
