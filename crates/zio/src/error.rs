//! Why a block could not be read or written.

use crate::{Bookmark, KeyError};
use ondisk::{Corrupt, Dva, Psize};

/// A failure to read or write a block, with the block and the cause.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The pointer names a place that no block can have.
    #[error("block {bookmark}: cannot be at vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Place {
        /// The block.
        bookmark: Bookmark,
        /// The place.
        dva: Dva,
        /// Why not.
        #[source]
        source: vdev::VdevError,
    },
    /// No copy could be read: too many devices are missing or failed (`EIO`).
    #[error("block {bookmark}: no device could read it at vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Io {
        /// The block.
        bookmark: Bookmark,
        /// Its first copy.
        dva: Dva,
        /// Copies or columns that are missing or failed.
        unread: u32,
        /// The last failure of a device, if one was accessed.
        #[source]
        source: Option<std::sync::Arc<device::DeviceError>>,
    },
    /// Copies were read, and none has the right checksum (`ECKSUM`).
    #[error("block {bookmark}: checksum error at vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Checksum {
        /// The block.
        bookmark: Bookmark,
        /// Its first copy.
        dva: Dva,
        /// The checksum of the last candidate.
        #[source]
        source: codec::Error,
    },
    /// The checksum matches, and the bytes can't be decrypted, authenticated or decompressed.
    #[error("block {bookmark}: cannot be decoded")]
    Decode {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: codec::Error,
    },
    /// The pointer, the gang tree or the contents are invalid.
    #[error("block {bookmark}: {source}")]
    Corrupt {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// The block is encrypted, and its key is not loaded.
    #[error("block {bookmark}: {source}")]
    Key {
        /// The block.
        bookmark: Bookmark,
        /// Why not.
        #[source]
        source: KeyError,
    },
    /// A block can't be encoded for storage.
    #[error("block {bookmark}: cannot be encoded")]
    Encode {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: codec::Error,
    },
    /// The pool has no space for it, in one piece or several (`ENOSPC`).
    #[error("block {bookmark}: no room for {psize} bytes")]
    NoSpace {
        /// The block.
        bookmark: Bookmark,
        /// Its stored size.
        psize: Psize,
    },
    /// Too many devices refused the write.
    #[error("block {bookmark}: could not be written to vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Write {
        /// The block.
        bookmark: Bookmark,
        /// The place.
        dva: Dva,
        /// What failed.
        #[source]
        source: vdev::WriteError,
    },
    /// The pool is suspended, and the request does not wait.
    #[error("block {bookmark}: not written, as the pool is suspended")]
    Suspended {
        /// The block.
        bookmark: Bookmark,
    },
    /// The dataset was received from a redacted stream, which left out these data.
    #[error("block {bookmark}: redacted")]
    Redacted {
        /// The block.
        bookmark: Bookmark,
    },
}

impl Error {
    /// The block that failed.
    pub fn bookmark(&self) -> &Bookmark {
        match self {
            Error::Place { bookmark, .. }
            | Error::Io { bookmark, .. }
            | Error::Checksum { bookmark, .. }
            | Error::Decode { bookmark, .. }
            | Error::Corrupt { bookmark, .. }
            | Error::Key { bookmark, .. }
            | Error::Encode { bookmark, .. }
            | Error::NoSpace { bookmark, .. }
            | Error::Write { bookmark, .. }
            | Error::Suspended { bookmark }
            | Error::Redacted { bookmark } => bookmark,
        }
    }
}
