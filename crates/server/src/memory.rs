//! Who tells the cache of all pools what memory the machine has left.
//!
//! # Theory
//! A thread looks once a second, as OpenZFS's `arc_reap` does, at the machine and at the control groups that the daemon is in, and tells the store, which grows and shrinks by it ([`arc::Store::adapt`]).
//! Where it can't be found out, nothing is told, and `zfs_arc_max` alone holds.

use arc::{Memory, Store};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// From one look to the next.
const TURN: Duration = Duration::from_secs(1);

/// The memory of this machine now; where that can't be found out, all of it is free.
pub(crate) fn now() -> Memory {
    let all = spa::discovery::host::memory();
    Memory { all, free: spa::discovery::host::memory_left().unwrap_or(all) }
}

/// Looks until what is returned is dropped; nothing if there can be no thread for it.
pub(crate) fn watch(store: Weak<Store>) -> Option<Sender<()>> {
    let (keep, ended): (_, Receiver<()>) = channel();
    let look = move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TURN) {
            let Some(store) = store.upgrade() else { return };
            if let Some(free) = spa::discovery::host::memory_left() {
                store.adapt(Memory { all: spa::discovery::host::memory(), free });
            }
        }
    };
    std::thread::Builder::new().name("arc_reap".to_owned()).spawn(look).ok()?;
    Some(keep)
}
