//! Send streams: how they are made, read, checked and rewritten.
//!
//! # Theory
//! [`Reader`] takes a stream apart into [`Packet`]s: a record and its payload. It verifies the
//! checksum of a record before it uses the record. BEGIN has no checksum, and those of old senders
//! are 0. So every length has a limit as well, the largest block or list, and takes memory only as
//! its bytes arrive. A damaged stream ends in an [`Error`] that names the record and its place.
//!
//! [`Writer`] is the other side: it adds the checksums. [`send()`] makes the stream of a snapshot.
//!
//! [`check`] reads a whole file of streams, and holds that they follow one another: what
//! `zfs receive` would refuse for its form alone. [`rewrite`] holds the same, and writes a stream
//! anew with some records changed. [`token`] decodes what `zfs send -t` takes.
//!
//! [`receive`] is what [`send()`] is for: a stream becomes a snapshot.
//!
//! # Absent
//! Streams that refer to earlier blocks (`zfs send -D`) can be read. `zstream redup` resolves them,
//! this crate does not. Packages of several streams (`zfs send -R`) are the work of the commands.
//!
//! # See
//! OpenZFS `cmd/zstream`, `module/zfs/dmu_recv.c`. The records: [`ondisk::replay`].

pub mod check;
mod error;
mod reader;
pub mod receive;
pub mod redact;
pub mod rewrite;
pub mod send;
pub mod token;
mod writer;

pub use error::{Error, Result};
pub use reader::{Packet, Reader};
pub use receive::{Corrected, ReceiveError, ReceiveOptions, Receiving, Touch, abort, correct};
pub use redact::{RedactError, redact};
pub use send::{Forms, Lost, LostPart, Options, Origin, Resume, SendError, estimate, send, send_readable};
pub use writer::Writer;
