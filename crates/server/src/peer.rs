//! Who may ask what.
//!
//! # Theory
//! The kernel says who is at the other end of the socket. Root and the daemon's own user may do anything. Others reach
//! only root's daemon (a user's own is in a folder that nobody else may enter), and may look, as they may at the
//! kernel module's pools: names, states, properties, mounts, what is granted. What `zfs allow` grants them they may do too
//! ([`crate::grants`]). Everything else that changes something, reads a device, or tells what was done by whom (history) is refused.
//!
//! A request is answered by one thread from its begin to its end, and this thread knows who asks ([`asker`]): whose name goes into the
//! history, and who gets what makers of datasets are granted.

use std::cell::Cell;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
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
    static ASKER: Cell<Option<Peer>> = const { Cell::new(None) };
}

impl Peer {
    /// This process.
    pub fn own() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
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

/// Answers a request of `peer`.
pub fn asking<T>(peer: Peer, answer: impl FnOnce() -> T) -> T {
    /// Forgets who asked, however the answer ends.
    struct Asked(Option<Peer>);
    impl Drop for Asked {
        fn drop(&mut self) {
            ASKER.set(self.0);
        }
    }
    let _asked = Asked(ASKER.replace(Some(peer)));
    answer()
}

/// Who asks what this thread answers: this process itself where nobody does.
pub fn asker() -> Peer {
    ASKER.get().unwrap_or_else(Peer::own)
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
