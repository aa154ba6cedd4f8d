//! Reports the machine's free memory to the cache of all pools.
//!
//! # Theory
//! A thread reads the free memory of the machine and of the daemon's control groups once a second,
//! as OpenZFS's `arc_reap` does. The cache grows and shrinks with it ([`arc::Store::adapt`]). If it
//! can't be read, nothing is reported, and only `zfs_arc_max` limits the cache.
//!
//! The same thread frees the memory of dropped buffers that no new buffer has used for a second.

use arc::{Memory, Store};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The time between two reports.
const TURN: Duration = Duration::from_secs(1);

/// The present memory of this machine. If the free memory is unknown, all of it counts as free.
pub(crate) fn now() -> Memory {
    let all = spa::discovery::host::memory();
    Memory { all, free: spa::discovery::host::memory_left().unwrap_or(all) }
}

/// Starts the reports. Dropping the result ends them. `None` if there is no thread.
pub(crate) fn watch(store: Weak<Store>) -> Option<Sender<()>> {
    let (keep, ended): (_, Receiver<()>) = channel();
    device::recycle::set_memory(spa::discovery::host::memory());
    let look = move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TURN) {
            let Some(store) = store.upgrade() else { return };
            device::recycle::shrink();
            if let Some(free) = spa::discovery::host::memory_left() {
                store.adapt(Memory { all: spa::discovery::host::memory(), free });
            }
        }
    };
    std::thread::Builder::new().name("arc_reap".to_owned()).spawn(look).ok()?;
    Some(keep)
}
