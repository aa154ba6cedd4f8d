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
    /// The security class refused a packet, a ticket or a connection.
    #[error("the security class refuses the peer's packet: code {code}")]
    Security {
        /// The code for the peer.
        code: i32,
    },
    /// The peer ended the call.
    #[error("the peer aborted the call: code {code}")]
    Aborted {
        /// The code that it gave.
        code: i32,
    },
    /// The peer does not answer.
    #[error("the peer does not answer")]
    Dead,
    /// The call did not end before its deadline.
    #[error("the call did not end before its deadline")]
    Deadline,
    /// The connection has no call of this number any more.
    #[error("the call has ended already")]
    Gone,
    /// The system refused a socket.
    #[error("the socket can't be used")]
    Socket {
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random,
    /// The file of the cell's keys can't be read.
    #[error("the cell's keys can't be read")]
    KeyFile {
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}
