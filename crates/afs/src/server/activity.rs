//! What a server does: counters that commands read.
//!
//! # Theory
//! Counters are where the events are, and always on: a call adds a few atomic numbers, and takes no
//! lock for them. A reader gets numbers of slightly different moments, but each is whole.
//!
//! | module | counts |
//! |---|---|
//! | [`calls`] | calls by name: how long they took, and their errors |
//! | [`clients`] | clients: their calls by kind, and bytes |
//! | [`volumes`] | volumes in use: calls and bytes; how often volumes come into use |
//!
//! # Absent
//! Rates and shares: the reader has two readings, and computes them.

pub mod calls;
pub mod clients;
pub mod volumes;

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::calls::{fileserver, volserver};
use calls::Calls;
use clients::Clients;

/// The counters of a server, from its start on.
pub struct Activity {
    /// The start.
    pub began: Instant,
    /// Nanoseconds from 1970 to the start. No other server of this host has the same.
    pub run: u64,
    /// Calls of clients to the file server.
    pub files: Calls,
    /// Calls of administrators' programs to the volume server.
    pub volumes: Calls,
    /// Calls of the server to its clients.
    pub callbacks: Arc<Calls>,
    /// Clients of the file server.
    pub clients: Clients,
}

impl Activity {
    /// Counters at zero, with those of calls to clients.
    pub(super) fn new(callbacks: Arc<Calls>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began: Instant::now(),
            run: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
            files: Calls::new(fileserver::Call::ALL),
            volumes: Calls::new(volserver::Call::ALL),
            callbacks,
            clients: Clients::default(),
        }
    }
}
