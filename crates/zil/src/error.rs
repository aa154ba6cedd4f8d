//! The errors of an intent log.

use ondisk::Corrupt;

/// A log can't be read, changed or freed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The log's header, in the object set, does not decode.
    #[error("object set {objset}: {source}")]
    Header {
        /// The object set.
        objset: u64,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// A block verified, but its contents are not what the format says.
    #[error("object set {objset}, log block {seq}: {source}")]
    Block {
        /// The object set.
        objset: u64,
        /// The block's sequence number.
        seq: u64,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// The object set can't be changed.
    #[error("object set {objset}: {source}")]
    Dmu {
        /// The object set.
        objset: u64,
        /// The cause.
        #[source]
        source: dmu::Error,
    },
    /// A block of the log can't be freed.
    #[error("object set {objset}: freeing a block of its log: {source}")]
    Free {
        /// The object set.
        objset: u64,
        /// The cause.
        #[source]
        source: zio::Error,
    },
    /// The pool accepts no writes.
    #[error("the pool has stopped writing")]
    Stopped {
        /// The cause.
        #[source]
        source: std::sync::Arc<dyn std::error::Error + Send + Sync>,
    },
}
