//! The errors of a volume.

use ondisk::Corrupt;
use std::sync::Arc;

/// An operation on a volume failed.
///
/// Each variant is one `errno` at a front end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read or changed (`EIO`).
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The object set holds no volume (`EINVAL`).
    #[error("the object set holds no volume")]
    NotVolume,
    /// The volume's records are not what the format says (`EIO`).
    #[error("volume: {0}")]
    Corrupt(#[from] Corrupt),
    /// The range goes beyond the end of the volume (`EINVAL`).
    #[error("{len} bytes at {offset} pass the end of a volume of {size} bytes")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The volume's size.
        size: u64,
    },
    /// The size is zero, too large, or no multiple of the block size (`EINVAL`).
    #[error("a volume of blocks of {block} bytes cannot have {size} bytes")]
    BadSize {
        /// The requested size.
        size: u64,
        /// Bytes of a block.
        block: u64,
    },
    /// The volume is not open for writing (`EROFS`).
    #[error("the volume is read-only")]
    ReadOnly,
    /// The pool has no free space (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota is exceeded (`EDQUOT`).
    #[error("a quota of the volume has been reached")]
    Quota,
    /// The pool accepts no more changes (`EIO`).
    #[error("the pool takes no changes")]
    Stopped {
        /// The cause.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl From<zil::TxError> for Error {
    fn from(e: zil::TxError) -> Self {
        match e {
            zil::TxError::NoSpace => Error::NoSpace,
            zil::TxError::Quota => Error::Quota,
            zil::TxError::Stopped { source } => Error::Stopped { source },
        }
    }
}
