//! Why a block could not be had.

use crate::{Bookmark, KeyError};
use ondisk::{Corrupt, Dva, Psize};

/// Failure to read or write a block; says which block, for whom, and what was wrong with it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The pointer names a place that the pool does not have.
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
    /// The devices could not deliver it: too many of them are missing or fail (`EIO`).
    #[error("block {bookmark}: no device could read it at vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Io {
        /// The block.
        bookmark: Bookmark,
        /// Its first copy.
        dva: Dva,
        /// Copies or columns that are not there or fail.
        unread: u32,
        /// The last failure of a device, if one was asked.
        #[source]
        source: Option<std::sync::Arc<device::DeviceError>>,
    },
    /// Every copy was read, and none has the right checksum (`ECKSUM`).
    #[error("block {bookmark}: checksum error at vdev {}, offset {:#x}", dva.vdev, dva.offset.0)]
    Checksum {
        /// The block.
        bookmark: Bookmark,
        /// Its first copy.
        dva: Dva,
        /// What the last candidate had.
        #[source]
        source: codec::Error,
    },
    /// The bytes verify, but can't be unpacked.
    #[error("block {bookmark}: cannot be decoded")]
    Decode {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: codec::Error,
    },
    /// The pointer or the gang tree contradicts itself.
    #[error("block {bookmark}: {source}")]
    Corrupt {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// The block is encrypted, and its key isn't there.
    #[error("block {bookmark}: {source}")]
    Key {
        /// The block.
        bookmark: Bookmark,
        /// Why not.
        #[source]
        source: KeyError,
    },
    /// A block can't be put into the form that it should be stored in.
    #[error("block {bookmark}: cannot be encoded")]
    Encode {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong.
        #[source]
        source: codec::Error,
    },
    /// The pool has no room for it, in one piece or several (`ENOSPC`).
    #[error("block {bookmark}: no room for {psize} bytes")]
    NoSpace {
        /// The block.
        bookmark: Bookmark,
        /// Its stored size.
        psize: Psize,
    },
    /// Too many devices failed to take it.
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
    /// The pool was suspended, and nobody attends it any more.
    #[error("block {bookmark}: not written, as the pool is suspended")]
    Suspended {
        /// The block.
        bookmark: Bookmark,
    },
    /// The data were left out of the stream that this dataset was received from.
    #[error("block {bookmark}: redacted")]
    Redacted {
        /// The block.
        bookmark: Bookmark,
    },
}

impl Error {
    /// The block that it happened to.
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
