//! The progress of mount requests that a client watches.

use api::{MountPhase, MountProgress};
use observe::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of watched requests, by the number that their watcher chose.
#[derive(Default)]
pub(crate) struct Watched(Mutex<BTreeMap<u64, Arc<Progress>>>);

/// The progress of a request.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) loaded: AtomicU64,
    pub(super) total: AtomicU64,
    pub(super) done: AtomicU64,
}

/// A request that can be watched until this is dropped.
pub(super) struct Watch<'a> {
    watched: &'a Watched,
    number: Option<u64>,
    pub(super) progress: Arc<Progress>,
}

impl Watched {
    pub(super) fn begin(&self, number: Option<u64>) -> Watch<'_> {
        let progress = Arc::new(Progress::default());
        if let Some(number) = number {
            self.0.lock().insert(number, Arc::clone(&progress));
        }
        Watch { watched: self, number, progress }
    }

    pub(super) fn ask(&self, number: u64) -> Option<MountProgress> {
        let progress = Arc::clone(self.0.lock().get(&number)?);
        let total = progress.total.load(Ordering::Acquire);
        let phase = if total == 0 { MountPhase::Load } else { MountPhase::Mount };
        let loaded = progress.loaded.load(Ordering::Relaxed);
        Some(MountProgress { phase, loaded, total, done: progress.done.load(Ordering::Relaxed) })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.watched.0.lock().remove(&number);
        }
    }
}
