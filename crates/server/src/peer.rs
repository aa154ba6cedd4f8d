//! Who may ask what.
//!
//! # Theory
//! The kernel says who is at the other end of the socket. Root and the daemon's own user may do
//! anything. Others reach only root's daemon (a user's own is in a folder that nobody else may
//! enter), and may look, as they may at the kernel module's pools: names, states, properties,
//! mounts, what is granted. What `zfs allow` grants them they may do too ([`crate::grants`]).
//! Everything else that changes something, reads a device, or says what was done by whom (history)
//! is refused.

use api::Peer;
use std::io;
use std::os::unix::net::UnixStream;

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

/// The other end of a stream.
///
/// # Errors
/// Those of `SO_PEERCRED`.
pub fn of_stream(stream: &UnixStream) -> io::Result<Peer> {
    // rustix's `socket_peercred` takes the number 0 of such a process for an error. Tokio's
    // question needs the context of a runtime, which waits for nothing here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let again = stream.try_clone()?;
    again.set_nonblocking(true)?;
    let asked = tokio::net::UnixStream::from_std(again).and_then(|again| again.peer_cred());
    // Both have the same flags.
    stream.set_nonblocking(false)?;
    Ok(of_cred(&asked?))
}

/// The other end of a connection, as the kernel describes it (`SO_PEERCRED`).
pub(crate) fn of_cred(cred: &tokio::net::unix::UCred) -> Peer {
    // A process that this PID namespace doesn't have has the number 0 here.
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
    Peer { uid: cred.uid(), gid: cred.gid(), pid }
}

/// Whether `peer` may call `method` of a daemon that runs as `owner`, whatever it is about.
pub fn may(peer: Peer, owner: u32, method: &str) -> bool {
    peer.owns(owner) || (owner == 0 && OPEN_TO_ALL.contains(&method))
}

#[cfg(test)]
mod tests;
