//! Who may ask what.
//!
//! # Theory
//! The kernel says who is at the other end of the socket. Root and the daemon's own user may do anything. Others reach
//! only root's daemon (a user's own is in a folder that nobody else may enter), and may look, as they may at the
//! kernel module's pools: names, states, properties, mounts. Everything that changes something, reads a device, or
//! tells what was done by whom (history) is refused.
//!
//! # Absent
//! What `zfs allow` grants: those permissions are not read yet, so they grant nothing.

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
}

/// What anybody may ask of root's daemon.
const OPEN_TO_ALL: [&str; 5] = ["pool_names", "pool", "datasets", "holds", "mounts"];

/// Whether `peer` may call `method` of a daemon that runs as `owner`.
pub fn may(peer: Peer, owner: u32, method: &str) -> bool {
    peer.uid == 0 || peer.uid == owner || OPEN_TO_ALL.contains(&method)
}

#[cfg(test)]
mod tests;
