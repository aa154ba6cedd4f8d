//! Why a stream can't be read or rewritten.

use codec::Checksum;
use ondisk::Corrupt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a stream can't be read or rewritten. `record` counts from 0, and `at` is where it begins, in
/// bytes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or pipe can't be read.
    #[error("record {record} at byte {at} can't be read")]
    Io {
        /// The record.
        record: u64,
        /// Where it begins.
        at: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// What becomes of a record can't be written.
    #[error("what becomes of record {record} at byte {at} can't be written")]
    Write {
        /// The record.
        record: u64,
        /// Where it begins in the input.
        at: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// There is nothing, or not even one record.
    #[error("no stream: {have} bytes, where the first record has {}", ondisk::replay::RECORD_SIZE)]
    Empty {
        /// The bytes that there are.
        have: usize,
    },
    /// It does not begin as streams do.
    #[error("no stream: it begins with {found:#x} where streams have their magic number")]
    Magic {
        /// The number in its place.
        found: u64,
    },
    /// The stream ends inside a record or its payload.
    #[error("the stream ends inside record {record}, which begins at byte {at}")]
    Truncated {
        /// The record.
        record: u64,
        /// Where it begins.
        at: u64,
    },
    /// A record's checksum is wrong.
    #[error("record {record} at byte {at} has a wrong checksum: it or what is before it has changed")]
    Checksum {
        /// The record.
        record: u64,
        /// Where it begins.
        at: u64,
        /// The checksum of the bytes.
        computed: Checksum,
    },
    /// A record's fields are impossible.
    #[error("record {record} at byte {at}")]
    Record {
        /// The record.
        record: u64,
        /// Where it begins.
        at: u64,
        /// What is wrong.
        source: Corrupt,
    },
    /// The records are in an order that no sender makes, or do not belong together.
    #[error("record {record} at byte {at}: {why}")]
    Order {
        /// The record.
        record: u64,
        /// Where it begins.
        at: u64,
        /// What is wrong.
        why: String,
    },
}
