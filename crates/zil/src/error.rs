//! What can go wrong with a log.

use ondisk::Corrupt;

/// Failure to read a log's header or the records of a block that verified.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The object set's header is bad.
    #[error("object set {objset}: {source}")]
    Header {
        /// The object set.
        objset: u64,
        /// What is wrong.
        #[source]
        source: Corrupt,
    },
    /// A block verified, but its contents are bad.
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
        /// Why.
        #[source]
        source: dmu::Error,
    },
    /// A block of the log can't be freed.
    #[error("object set {objset}: freeing a block of its log: {source}")]
    Free {
        /// The object set.
        objset: u64,
        /// Why.
        #[source]
        source: zio::Error,
    },
    /// The pool takes no writes.
    #[error("the pool has stopped writing")]
    Stopped {
        /// Why.
        #[source]
        source: std::sync::Arc<dyn std::error::Error + Send + Sync>,
    },
}
