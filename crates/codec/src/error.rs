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
}
