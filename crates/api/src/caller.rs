//! The identity behind a request.
//!
//! # Theory
//! The kernel reports the credentials of the process at the other end of the control socket. They
//! become a [`Caller`], which is an argument of each method of [`Service`](super::Service) and of
//! each check behind it. There is no caller by default, and none is stored beside the arguments:
//! work that continues in another thread takes its caller along.

use super::{Budget, Error, Reason};
use std::sync::Arc;

/// The process at the other end of a connection (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user id.
    pub uid: u32,
    /// Its effective group id.
    pub gid: u32,
    /// Its process id. Absent if it lives in a process namespace where this process has no number
    /// for it.
    pub pid: Option<u32>,
}

impl Peer {
    /// This process.
    pub fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, pid: Some(std::process::id()) }
    }

    /// Whether it may do anything to the pools of a daemon that runs as `owner`: it is root or
    /// `owner`.
    pub fn owns(self, owner: u32) -> bool {
        self.uid == 0 || self.uid == owner
    }
}

/// The identity behind one request, and what its answer may take.
///
/// A caller comes from a connection, or is this process itself. There is no other:
///
/// ```compile_fail,E0599
/// let caller = api::Caller::default();
/// ```
#[derive(Debug)]
pub struct Caller {
    peer: Peer,
    /// The user that the daemon runs as.
    owner: u32,
    budget: Arc<Budget>,
}

impl Caller {
    /// The peer at the other end of a connection to a daemon that runs as `owner`.
    pub fn of_connection(peer: Peer, owner: u32, budget: Arc<Budget>) -> Self {
        Self { peer, owner, budget }
    }

    /// This process, which holds the pools and acts on its own behalf.
    ///
    /// It may do anything. So each place that calls this has to say why that is right.
    pub fn this_process() -> Self {
        let peer = Peer::own();
        Self { peer, owner: peer.uid, budget: Budget::of_owner() }
    }

    /// The process that made the request.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The memory and time that the answer may take.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Whether it is root, or the daemon's own user.
    pub fn owns(&self) -> bool {
        self.peer.owns(self.owner)
    }

    /// Refuses a request about `about` that is the owners' alone.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller is neither root nor the daemon's own user.
    pub fn must_own(&self, about: &str) -> Result<(), Error> {
        if self.owns() { Ok(()) } else { Err(Error::new(about, Reason::Permission)) }
    }

    /// Whether it may have file systems mounted and unmounted.
    ///
    /// As with OpenZFS on Linux, only root may, and the daemon's own user.
    pub fn mounts(&self) -> bool {
        self.owns()
    }
}
