//! The NBD door: volumes of a pool as network block devices.
//!
//! # Theory
//! A client connects to a listener ([`Server`]), agrees with it on an export by name ([`option`]), and sends requests ([`command`]) that are answered in
//! any order. An export is a volume, or a snapshot of one, of a pool ([`Volumes`]), opened for the first connection and closed after the last; several connections
//! share it, so that a flush on one covers all. Sockets belong to one thread, and what may block to a crew of threads for each pool ([`Crew`]).
//!
//! # Absent
//! Headers of more than 32 bits of length. Which volumes are offered where is the daemon's to say ([`Exports`]).
//!
//! # See
//! `doc/proto.md` of the NBD project.

pub mod abi;
pub mod command;
mod connection;
mod crew;
mod disk;
mod error;
pub mod option;
mod reply;
mod server;
mod tls;
mod volumes;

pub use crew::Crew;
pub use disk::Disk;
pub use dmu::Extent;
pub use error::{Code, Error, Result};
pub use reply::Reply;
pub use server::{Exports, Listener, Listing, Offer, Server};
pub use tls::{Tls, TlsError};
pub use volumes::{Lease, User, Volumes};
