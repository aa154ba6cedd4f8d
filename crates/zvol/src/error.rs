//! Why an operation on a volume failed.

use ondisk::Corrupt;
use std::sync::Arc;

/// Failure of an operation on a volume.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An object could not be read (`EIO`).
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// The object set holds no volume (`EINVAL`).
    #[error("the object set holds no volume")]
    NotVolume,
    /// The volume's records are not what the format says (`EIO`).
    #[error("volume: {0}")]
    Corrupt(#[from] Corrupt),
    /// The range passes the end (`EINVAL`).
    #[error("{len} bytes at {offset} pass the end of a volume of {size} bytes")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The volume's size.
        size: u64,
    },
    /// A volume has at least one block, and whole ones (`EINVAL`).
    #[error("a volume of blocks of {block} bytes cannot have {size} bytes")]
    BadSize {
        /// What was asked for.
        size: u64,
        /// Bytes of a block.
        block: u64,
    },
    /// The volume is not open for writing (`EROFS`).
    #[error("the volume is read-only")]
    ReadOnly,
    /// The pool has no room left (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota has been reached (`EDQUOT`).
    #[error("a quota of the volume has been reached")]
    Quota,
    /// The pool takes no more changes (`EIO`).
    #[error("the pool takes no changes")]
    Stopped {
        /// Why.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}
