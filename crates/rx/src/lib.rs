//! The Rx remote procedure calls of AFS, as server and client.
//!
//! # Theory
//! Rx carries calls over UDP. A connection has four channels, and each channel carries one call at
//! a time. A call is a stream of bytes to the server and a stream back. Every packet is input from
//! strangers: it becomes a checked type once ([`packet`], [`xdr`]), and only checked types travel
//! on.
//!
//! | module | content |
//! |---|---|
//! | [`xdr`], [`packet`] | bytes become checked types |
//! | [`security`] | who the peer is, how its packets are protected |
//! | [`engine`] | the protocol, without sockets, threads or a clock |
//! | [`net`], [`shard`] | sockets and their threads |
//! | [`endpoint`], [`call`] | services, and calls that a thread reads and writes |
//!
//! # Absent
//! * The calls of file servers and volume servers, and what their arguments mean.
//! * Shares of memory, workers and connections for each host. Until these exist, one stranger can
//!   take all of them with incomplete requests and slow reads, so no server may face strangers.
//! * Proof of an address beyond its first acknowledgement. Of a client's new address, one packet is
//!   proof, which may be a replay.
//! * A limit on the bytes of replies, and aborts when an endpoint ends.
//! * Path MTU: data packets have 1,440 bytes. One refused batch ends segmentation for its sender.
//! * Changes of the clock after the start.
//!
//! # See
//! OpenAFS: `src/rx`, `src/rxkad`. Linux: `net/rxrpc`.

pub mod block;
pub mod call;
pub mod code;
pub mod endpoint;
pub mod engine;
pub mod error;
mod limit;
pub mod net;
pub mod packet;
pub mod security;
pub mod shard;
pub mod stats;
pub mod xdr;

pub use block::{Block, Slice};
pub use call::Call;
pub use endpoint::{Connection, Endpoint, Options, Service, call_all};
pub use error::Error;
pub use shard::{Reply, Request};
pub use stats::Stats;

/// The result of what decodes bytes or makes a call.
pub type Result<T> = std::result::Result<T, Error>;
