//! The Rx remote procedure calls of AFS, as server and client.
//!
//! # Theory
//! Rx carries calls over UDP. A connection has four channels, and each channel carries one call at
//! a time. A call is a stream of bytes to the server and a stream back. Every packet is input from
//! strangers: it becomes a checked type once ([`packet`], [`xdr`]), and only checked types travel
//! on. What strangers and hosts can take has limits: `docs/decisions/0035-shares-of-hosts.md`.
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
//! * Protection against hosts that see the packets of a connection. They can prove an address,
//!   abort calls, and carry new packets to another address. Against all others, see [`engine`].
//! * Groups of hosts: each IPv4 address is a host, and hosts behind one address are one.
//! * A hard limit on the bytes of replies: see the table in the engine's module `shares`.
//! * Path MTU: data packets have 1,440 bytes.
//!
//! # See
//! OpenAFS: `src/rx`, `src/rxkad`. Linux: `net/rxrpc`.

pub mod block;
pub mod call;
pub mod code;
pub mod endpoint;
pub mod engine;
pub mod error;
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
