//! Who makes a request.
//!
//! # Theory
//! The kernel says who is at the other end of the control socket. That becomes a [`Caller`], which
//! is an argument of each method of [`Service`](super::Service), and of each check behind it.
//! There is no caller by default, and none is kept beside the arguments: work that goes on in
//! another thread takes its caller along.

use super::Budget;
use std::sync::Arc;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its process, as far as this one can name it: not in another namespace of processes.
    pub pid: Option<u32>,
}

impl Peer {
    /// This process.
    pub fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, pid: Some(std::process::id()) }
    }

    /// Whether it may do anything to the pools of a daemon that runs as `owner`.
    pub fn owns(self, owner: u32) -> bool {
        self.uid == 0 || self.uid == owner
    }
}

/// Who makes one request, and what its answer may take.
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

    /// This process, which holds the pools and acts of its own accord. Where that is so, it must be
    /// said why: it may do anything.
    pub fn this_process() -> Self {
        let peer = Peer::own();
        Self { peer, owner: peer.uid, budget: Budget::of_owner() }
    }

    /// The process that asks.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What the answer may take.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Whether it is root, or the daemon's own user.
    pub fn owns(&self) -> bool {
        self.peer.owns(self.owner)
    }

    /// Whether it may have file systems mounted and unmounted. As with OpenZFS on Linux, only root
    /// may, and a daemon's own user.
    pub fn mounts(&self) -> bool {
        self.owns()
    }
}
