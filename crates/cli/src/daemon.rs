//! What commands need of the daemon's code.
//!
//! # Theory
//! This crate knows the daemon by its protocol alone, and links no async runtime. What a few
//! commands share with the daemon beyond that comes from the program that links both.

use api::{Error, Peer, Requests};
use std::io;
use std::os::unix::net::UnixStream;

/// Functions of the daemon's code.
#[derive(Debug, Clone, Copy)]
pub struct Daemon {
    /// The process at the other end of a connection.
    pub peer: fn(&UnixStream) -> io::Result<Peer>,
    /// The page of metrics, made of the answers to these requests.
    pub metrics: fn(&dyn Requests) -> Result<String, Error>,
}
