//! Counters of how changes got into their txgs, and of what delayed them: OpenZFS's kstat `dmu_tx`.
//!
//! # Theory
//! Joining a txg counts on a cache line of the thread's own; a delay counts where the thread waits
//! anyway. Each kind of delay counts once for each call, however often the call is woken to check
//! again. A caller that tries again because there was no space counts again.
//!
//! # Absent
//! Delays that never occur here, since dirty data is the only memory limit for writers. The code
//! that shows the kstat says so.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use observe::{Counter, Sharded};

/// What delayed a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// Whether there is space for it could not be read (`dmu_tx_error`).
    Error,
    /// The pool was suspended (`dmu_tx_suspended`).
    Suspended,
    /// The txg before still had holders (`dmu_tx_group`).
    Group,
    /// So much was dirty that writers are delayed (`dmu_tx_dirty_delay`).
    DirtyDelay,
    /// So much was dirty that it had to wait for the sync of a txg (`dmu_tx_dirty_over_max`).
    DirtyOverMax,
    /// A quota or the pool's size left no space, or none for sure (`dmu_tx_quota`).
    Quota,
}

const BARS: [(Bar, &str); 6] = [
    (Bar::Error, "dmu_tx_error"),
    (Bar::Suspended, "dmu_tx_suspended"),
    (Bar::Group, "dmu_tx_group"),
    (Bar::DirtyDelay, "dmu_tx_dirty_delay"),
    (Bar::DirtyOverMax, "dmu_tx_dirty_over_max"),
    (Bar::Quota, "dmu_tx_quota"),
];

/// The counters (`dmu_tx_stats_t`).
#[derive(Debug, Default)]
pub struct TxCounts {
    assigned: Sharded,
    bars: [Counter; BARS.len()],
}

impl TxCounts {
    /// The counters of all pools of this process.
    pub fn of_process() -> &'static Arc<TxCounts> {
        static ALL: LazyLock<Arc<TxCounts>> = LazyLock::new(Arc::default);
        &ALL
    }

    /// The counters by OpenZFS's names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let bars = BARS.iter().map(|(bar, name)| (*name, self.bars[*bar as usize].get()));
        [("dmu_tx_assigned", self.assigned.get())].into_iter().chain(bars).collect()
    }

    /// Counts a change that has its txg and space (`dmu_tx_assigned`).
    pub(crate) fn assigned(&self) {
        self.assigned.inc();
    }

    /// Counts a delay of a change.
    pub(crate) fn note(&self, bar: Bar) {
        self.bars[bar as usize].inc();
    }
}

/// A call that asks for a txg; each kind of delay counts once for it.
pub(super) struct Asker<'a> {
    counts: &'a TxCounts,
    met: [bool; BARS.len()],
    /// When the first delay began.
    since: Option<Instant>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(counts: &'a TxCounts) -> Self {
        Asker { counts, met: [false; BARS.len()], since: None }
    }

    /// How long the call has been delayed, if it was.
    pub(super) fn delayed(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed())
    }

    pub(super) fn meets(&mut self, bar: Bar) {
        self.since.get_or_insert_with(Instant::now);
        if !std::mem::replace(&mut self.met[bar as usize], true) {
            self.counts.note(bar);
        }
    }
}
