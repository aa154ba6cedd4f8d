//! The errors of checksums, compressors and ciphers.

use crate::Checksum;
use ondisk::{ChecksumKind, CompressKind, Corrupt};

/// A fault in a block's bytes or in a key. None of these is an I/O error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block's bytes don't have the expected checksum (`ECKSUM`).
    #[error("{} checksum is {actual}, expected {expected}", kind.name())]
    Mismatch {
        /// The checksum function.
        kind: ChecksumKind,
        /// The checksum in the block pointer or in the block's trailer.
        expected: Checksum,
        /// The checksum of the bytes.
        actual: Checksum,
    },
    /// The kind can't be used here.
    ///
    /// It names no function (`inherit`, `on`), it is embedded where a plain one is needed, or it is
    /// plain where an embedded one is needed.
    #[error("checksum {} can't be used for this block", kind.name())]
    ChecksumKind {
        /// The kind of checksum.
        kind: ChecksumKind,
    },
    /// A block with an embedded checksum is malformed, so that no checksum can be computed.
    #[error("{} block: bad checksum trailer", kind.name())]
    Trailer {
        /// The checksum function.
        kind: ChecksumKind,
        /// The fault.
        #[source]
        source: Corrupt,
    },
    /// Compressed bytes don't unpack to exactly the block's logical size.
    #[error("{} block of {psize} bytes can't be unpacked to {lsize}", kind.name())]
    Decompress {
        /// The compressor.
        kind: CompressKind,
        /// Bytes stored.
        psize: usize,
        /// Bytes wanted.
        lsize: usize,
        /// The fault.
        #[source]
        source: Corrupt,
    },
    /// A block of an encrypted dataset, or a wrapped key, is malformed before any cipher runs.
    #[error("encrypted {what} is malformed")]
    Protected {
        /// The kind of block or key.
        what: &'static str,
        /// The fault.
        #[source]
        source: Corrupt,
    },
    /// A block of an encrypted dataset doesn't have the right MAC (`ECKSUM`).
    ///
    /// Its bytes, or the data to which the MAC binds them, were changed without the key.
    #[error("{what} fails authentication")]
    Mac {
        /// The kind of block.
        what: &'static str,
    },
    /// The wrapping key doesn't unwrap the dataset's keys: it is the wrong key, or they were
    /// changed (`EACCES`).
    #[error("the wrapping key does not open the dataset's keys")]
    WrongKey,
    /// A hexadecimal wrapping key does not have 64 digits.
    #[error("a hexadecimal key has 64 digits")]
    HexKey,
    /// The number of PBKDF2 iterations is 0 or absurdly large.
    #[error("{iterations} PBKDF2 iterations are too many")]
    Iterations {
        /// The number of iterations.
        iterations: u64,
    },
}
