//! Pools that stop writing: suspended or broken.

use observe::lock::Mutex;
use poolhouse::Pool;
use std::sync::Arc;
use std::time::SystemTime;

/// Most halts to keep for events.
const KEPT: usize = 16;

/// When a pool stopped writing, and why.
pub(crate) struct Halt {
    pub(crate) at: SystemTime,
    /// The cause, if it is not a device's: only a new import helps.
    pub(crate) broken: Option<String>,
}

/// The halts of a pool that no event has reported yet.
#[derive(Default, Clone)]
pub(crate) struct Halts(Arc<Mutex<Vec<Halt>>>);

impl Halts {
    fn put(&self, broken: Option<String>) {
        let mut all = self.0.lock();
        if all.len() < KEPT {
            all.push(Halt { at: SystemTime::now(), broken });
        }
    }

    pub(crate) fn take(&self) -> Vec<Halt> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Logs when a pool stops writing, and why, and keeps that for an event.
pub(super) fn watch(pool: &Pool, all: &Halts) {
    let Some(live) = pool.spa().writer() else { return };
    let (name, halts) = (pool.name().to_owned(), all.clone());
    live.on_suspend(move |reason, full| {
        halts.put(None);
        match full.is_empty() {
            true => tracing::error!(pool = name, ?reason, "suspended"),
            false => tracing::error!(
                pool = name,
                ?reason,
                devices = full.join(" "),
                "suspended: there is no space left (ENOSPC or EDQUOT) on what holds these devices"
            ),
        }
    });
    let (name, halts) = (pool.name().to_owned(), all.clone());
    live.on_break(move |stopped| {
        let cause = api::chain(stopped);
        tracing::error!(pool = name, cause, "broken: it writes nothing until it is imported again");
        halts.put(Some(cause));
    });
}
