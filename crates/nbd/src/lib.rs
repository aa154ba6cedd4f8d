//! The NBD front end: volumes of a pool as network block devices.
//!
//! # Theory
//! A client connects to a listener ([`Server`]), agrees with it on an export by name ([`option`]),
//! and sends requests ([`command`]). The answers come in any order.
//!
//! An export is a volume of a pool, or a snapshot of one ([`Volumes`]). It is opened for the first
//! connection and closed after the last. The connections of an export share it, so a flush on one
//! covers all.
//!
//! One thread serves the sockets. Work that may block runs on a worker pool for each ZFS pool
//! ([`Workers`]).
//!
//! # Absent
//! Extended headers, with lengths of more than 32 bits. The daemon decides which volumes are
//! offered where ([`Exports`]).
//!
//! # See
//! `doc/proto.md` of the NBD project.

pub mod abi;
pub mod command;
mod connection;
mod disk;
mod error;
pub mod option;
mod peer;
mod reply;
mod server;
mod tls;
mod volumes;
mod workers;

pub use disk::Disk;
pub use dmu::Extent;
pub use error::{Code, Error, Result};
pub use reply::Reply;
pub use server::{Exports, Listener, Listing, Offer, Server};
pub use tls::{Tls, TlsError};
pub use volumes::{Lease, User, Volumes};
pub use workers::Workers;
