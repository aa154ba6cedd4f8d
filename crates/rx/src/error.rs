//! The errors of packets, arguments and calls.

/// Why bytes were refused, or why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before what they must hold.
    #[error("the data end {missing} bytes too early")]
    Short {
        /// How many bytes are missing at least.
        missing: usize,
    },
    /// Bytes follow the last argument.
    #[error("{extra} bytes follow the last argument")]
    Trailing {
        /// How many bytes are left.
        extra: usize,
    },
    /// A string or array claims to be longer than its limit.
    #[error("a string or array of {length} elements is longer than its limit of {limit}")]
    TooLong {
        /// What the bytes claim.
        length: usize,
        /// What the caller allows.
        limit: usize,
    },
    /// A string has a byte 0 inside.
    #[error("a string has a byte 0 inside")]
    Nul,
    /// The packet has a type that no program sends.
    #[error("{kind} is no packet type")]
    PacketType {
        /// The type in the header.
        kind: u8,
    },
}
