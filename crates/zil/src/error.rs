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
}
