//! Why a block could not be checked, unpacked or decrypted.

use crate::Checksum;
use ondisk::{ChecksumKind, CompressKind, Corrupt};

/// What went wrong with a block's bytes. Nothing here is an I/O error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block's bytes don't have the checksum that was expected.
    #[error("{} checksum is {actual}, expected {expected}", kind.name())]
    Mismatch {
        /// The checksum function.
        kind: ChecksumKind,
        /// What the block pointer or the block's trailer says.
        expected: Checksum,
        /// What the bytes have.
        actual: Checksum,
    },
    /// The kind can't be used here: it names no function (`inherit`, `on`), or is embedded where a plain one is
    /// needed, or the other way round.
    #[error("checksum {} can't be used for this block", kind.name())]
    ChecksumKind {
        /// The kind found.
        kind: ChecksumKind,
    },
    /// A block with its checksum inside is malformed before any checksum is computed.
    #[error("{} block: bad checksum trailer", kind.name())]
    Trailer {
        /// The checksum function.
        kind: ChecksumKind,
        /// What was wrong.
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
        /// What was wrong.
        #[source]
        source: Corrupt,
    },
    /// A block of an encrypted dataset, or a wrapped key, is malformed before any cipher sees it.
    #[error("encrypted {what} is malformed")]
    Protected {
        /// What it is.
        what: &'static str,
        /// What was wrong.
        #[source]
        source: Corrupt,
    },
    /// A block of an encrypted dataset doesn't have the MAC that it should: its bytes, or what it is
    /// bound to, were changed without the key.
    #[error("{what} fails authentication")]
    Mac {
        /// What was authenticated.
        what: &'static str,
    },
    /// The wrapping key doesn't open the dataset's keys: it is the wrong one, or they were changed.
    #[error("the wrapping key does not open the dataset's keys")]
    WrongKey,
    /// A hexadecimal wrapping key is not 64 digits.
    #[error("a hexadecimal key has 64 digits")]
    HexKey,
    /// A passphrase with more PBKDF2 iterations than anyone would wait for.
    #[error("{iterations} PBKDF2 iterations are too many")]
    Iterations {
        /// The count found.
        iterations: u64,
    },
}
