//! Who may ask what.
//!
//! # Theory
//! The kernel says who is at the other end of the socket. Root and the daemon's own user may do anything. Others reach
//! only root's daemon (a user's own is in a folder that nobody else may enter), and may look, as they may at the
//! kernel module's pools: names, states, properties, mounts, what is granted. What `zfs allow` grants them they may do too
//! ([`crate::grants`]). Everything else that changes something, reads a device, or tells what was done by whom (history) is refused.
//!
//! A request is answered by one thread from its begin to its end, and this thread knows who asks ([`asker`]): whose name goes into the
//! history, who gets what makers of datasets are granted, and how much the answer may take
//! ([`budget`]).

use crate::budget::Budget;
use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
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

/// What anybody may ask of root's daemon.
const OPEN_TO_ALL: [&str; 11] = [
    "pool_names",
    "pool",
    "datasets",
    "holds",
    "mounts",
    "grants",
    "reclaimed",
    "kstats",
    "tunables",
    "spl",
    "unlinked",
];

thread_local! {
    /// Who asks what this thread answers, if it isn't this process itself.
    static ASKER: RefCell<Option<(Peer, Arc<Budget>)>> = const { RefCell::new(None) };
}

impl Peer {
    /// This process.
    pub fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid, gid, pid: Some(std::process::id()) }
    }

    /// The other end of a stream.
    ///
    /// # Errors
    /// As the kernel refuses to tell.
    pub fn of_stream(stream: &UnixStream) -> io::Result<Self> {
        // rustix's `socket_peercred` takes the number 0 of such a process for an error. Tokio's
        // question needs the context of a runtime, which waits for nothing here.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _context = runtime.enter();
        let again = stream.try_clone()?;
        again.set_nonblocking(true)?;
        let asked = tokio::net::UnixStream::from_std(again).and_then(|again| again.peer_cred());
        // Both have the same flags.
        stream.set_nonblocking(false)?;
        Ok(Self::of_cred(&asked?))
    }

    /// The other end of a connection, as the kernel describes it (`SO_PEERCRED`).
    pub fn of_cred(cred: &tokio::net::unix::UCred) -> Self {
        // A process that this PID namespace doesn't have has the number 0 here.
        let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        Self { uid: cred.uid(), gid: cred.gid(), pid }
    }

    /// Whether it may do anything to the pools of a daemon that runs as `owner`.
    pub fn owns(self, owner: u32) -> bool {
        self.uid == 0 || self.uid == owner
    }
}

/// Whether `peer` may call `method` of a daemon that runs as `owner`, whatever it is about.
pub fn may(peer: Peer, owner: u32, method: &str) -> bool {
    peer.owns(owner) || (owner == 0 && OPEN_TO_ALL.contains(&method))
}

/// Answers a request of `peer`, within a budget.
pub fn asking<T>(peer: Peer, budget: &Arc<Budget>, answer: impl FnOnce() -> T) -> T {
    /// Forgets who asked, however the answer ends.
    struct Asked(Option<(Peer, Arc<Budget>)>);
    impl Drop for Asked {
        fn drop(&mut self) {
            ASKER.set(self.0.take());
        }
    }
    let _asked = Asked(ASKER.replace(Some((peer, Arc::clone(budget)))));
    answer()
}

/// Who asks what this thread answers: this process itself where nobody does.
pub fn asker() -> Peer {
    ASKER.with_borrow(|asked| asked.as_ref().map_or_else(Peer::own, |(peer, _)| *peer))
}

/// What the answer that this thread makes may take.
pub fn budget() -> Arc<Budget> {
    ASKER.with_borrow(|asked| asked.as_ref().map_or_else(Budget::of_owner, |(_, budget)| Arc::clone(budget)))
}

/// Whether who asks is root or the daemon's own user.
pub fn owns() -> bool {
    asker().owns(Peer::own().uid)
}

/// Whether who asks may have file systems mounted and unmounted: as with OpenZFS on Linux, that is nobody but root, or a daemon's own user.
pub fn mounts() -> bool {
    owns()
}

#[cfg(test)]
mod tests;
