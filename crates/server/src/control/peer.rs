//! The rights of callers, by their credentials.
//!
//! # Theory
//! The kernel reports the credentials of a socket's peer.
//!
//! | caller | may |
//! |---|---|
//! | root, the daemon's own user | do anything |
//! | another user, at root's daemon | read names, states, properties, mounts, grants and counters |
//! | another user, with `zfs allow` | also make the granted changes (`crate::control::grants`) |
//! | another user, at a user's daemon | nothing: no other user may enter its folder |
//!
//! Other users may read what the kernel module shows them. Everything else that changes something,
//! reads a device, or shows history is refused.

use api::Peer;
use std::io;
use std::os::unix::net::UnixStream;

/// The methods of root's daemon for all users.
const OPEN_TO_ALL: [&str; 13] = [
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
    "top",
    "txgs",
];

/// The peer of a stream.
///
/// # Errors
/// The system's error from `SO_PEERCRED`, or from setting up the stream for it.
pub fn of_stream(stream: &UnixStream) -> io::Result<Peer> {
    // rustix's `socket_peercred` takes the number 0 of such a process for an error. Tokio's
    // function needs the context of a runtime, which waits for nothing here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let again = stream.try_clone()?;
    again.set_nonblocking(true)?;
    let asked = tokio::net::UnixStream::from_std(again).and_then(|again| again.peer_cred());
    // Both handles share their flags.
    stream.set_nonblocking(false)?;
    Ok(of_cred(&asked?))
}

/// The peer of a connection, as the kernel describes it (`SO_PEERCRED`).
pub(crate) fn of_cred(cred: &tokio::net::unix::UCred) -> Peer {
    // A process that does not exist in this PID namespace has the number 0 here.
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
    Peer { uid: cred.uid(), gid: cred.gid(), pid }
}

/// Whether `peer` may call `method` of a daemon that runs as `owner`, whatever its arguments are.
pub fn may(peer: Peer, owner: u32, method: &str) -> bool {
    peer.owns(owner) || (owner == 0 && OPEN_TO_ALL.contains(&method))
}

#[cfg(test)]
mod tests;
