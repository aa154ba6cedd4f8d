//! How changes got into their groups, and what stood in their way, by the names of OpenZFS's kstat `dmu_tx`.
//!
//! # Theory
//! Whoever joins a group takes a line of his own thread's when he is counted; what holds somebody up is counted where he waits anyway. Each thing that stood in the way
//! is counted once for who asked, however often he was woken to look again; who asks again, since there was no room, is counted again.
//!
//! # Absent
//! What never is in the way here, since memory holds no writer up but by what is dirty: whoever shows the kstat says so.

use std::sync::{Arc, LazyLock};

use observe::{Counter, Sharded};

/// What stood in the way of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// Whether there is room for it could not be read (`dmu_tx_error`).
    Error,
    /// The pool was suspended (`dmu_tx_suspended`).
    Suspended,
    /// The group before still had holders (`dmu_tx_group`).
    Group,
    /// So much was dirty that writers are slowed down (`dmu_tx_dirty_delay`).
    DirtyDelay,
    /// So much was dirty that it had to wait for a group to be written (`dmu_tx_dirty_over_max`).
    DirtyOverMax,
    /// A quota, or the size of the pool, left no room, or none for sure (`dmu_tx_quota`).
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

/// What is counted.
#[derive(Debug, Default)]
pub struct TxCounts {
    assigned: Sharded,
    bars: [Counter; BARS.len()],
}

impl TxCounts {
    /// Those of all pools of this process.
    pub fn of_process() -> &'static Arc<TxCounts> {
        static ALL: LazyLock<Arc<TxCounts>> = LazyLock::new(Arc::default);
        &ALL
    }

    /// By OpenZFS's names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let bars = BARS.iter().map(|(bar, name)| (*name, self.bars[*bar as usize].get()));
        [("dmu_tx_assigned", self.assigned.get())].into_iter().chain(bars).collect()
    }

    /// A change has its group, and room (`dmu_tx_assigned`).
    pub(crate) fn assigned(&self) {
        self.assigned.inc();
    }

    /// Something stood in the way of one.
    pub(crate) fn note(&self, bar: Bar) {
        self.bars[bar as usize].inc();
    }
}

/// One who asks for a group, for whom each thing is counted once.
pub(super) struct Asker<'a> {
    counts: &'a TxCounts,
    met: [bool; BARS.len()],
}

impl<'a> Asker<'a> {
    pub(super) fn new(counts: &'a TxCounts) -> Self {
        Asker { counts, met: [false; BARS.len()] }
    }

    pub(super) fn meets(&mut self, bar: Bar) {
        if !std::mem::replace(&mut self.met[bar as usize], true) {
            self.counts.note(bar);
        }
    }
}
