//! Sums over all txgs since the pool's import, for readers that compare two moments.
//!
//! # Theory
//! The numbers only grow. They don't depend on the history, which forgets the oldest txgs, and can
//! be switched off. A stage counts when it ends, a txg's reason when it closes.

use std::time::{Duration, Instant};

use observe::HistogramSnapshot;
use ondisk::Txg;

use super::{Closed, Stage, TXG_SIZE, Txgs};

/// What all txgs of a pool took, and why they closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Time in the stages open, quiescing, waiting and syncing, by their numbers.
    pub took: [Duration; 4],
    /// The txgs that closed, in the order of [`Closed::NAMES`].
    pub closed: [u64; Closed::NAMES.len()],
    /// Time that threads waited because so much was dirty, all threads together.
    pub throttled: Duration,
}

impl Txgs {
    /// The sums over all txgs since this began.
    pub fn totals(&self) -> Totals {
        self.shared.state.lock().history.totals()
    }

    /// How long changes were delayed before they got their txg, in nanoseconds. Those that were not
    /// don't count (`dmu_tx_assign`).
    pub fn delays(&self) -> HistogramSnapshot {
        self.shared.delays.snapshot()
    }

    /// How long the present sync has been under way, if there is one.
    pub fn syncing(&self) -> Option<Duration> {
        self.shared.state.lock().history.syncing()
    }

    /// The most bytes that may be dirty (`zfs_dirty_data_max`).
    pub fn dirty_max(&self) -> u64 {
        self.shared.state.lock().tunables.dirty_max
    }
}

/// The stage of a txg, since when, and how long those before it took, by their numbers.
#[derive(Debug, Clone, Copy)]
struct Live {
    txg: Txg,
    stage: Stage,
    since: Instant,
    took: [Duration; 4],
}

/// The sums, and the txgs that are not on disk yet.
#[derive(Debug, Default)]
pub(super) struct Summing {
    live: [Option<Live>; TXG_SIZE],
    totals: Totals,
}

impl Summing {
    /// Counts a txg's next stage. Returns how long its stages before that took, by their numbers.
    pub(super) fn enter(&mut self, txg: Txg, stage: Stage, now: Instant) -> [Duration; 4] {
        let slot = &mut self.live[txg.0 as usize % TXG_SIZE];
        let mut took = [Duration::ZERO; 4];
        if let Some(last) = slot.take().filter(|last| last.txg == txg) {
            took = last.took;
            took[last.stage as usize] = now.saturating_duration_since(last.since);
            self.totals.took[last.stage as usize] += took[last.stage as usize];
        }
        *slot = (stage != Stage::Committed).then_some(Live { txg, stage, since: now, took });
        took
    }

    /// Counts a txg that closes.
    pub(super) fn closed(&mut self, why: Closed) {
        self.totals.closed[why.number()] += 1;
    }

    /// Counts the wait of a thread for space in a txg.
    pub(super) fn throttled(&mut self, took: Duration) {
        self.totals.throttled += took;
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// How long the present sync has been under way.
    pub(super) fn syncing(&self) -> Option<Duration> {
        let syncing = self.live.iter().flatten().find(|live| live.stage == Stage::Syncing);
        syncing.map(|live| live.since.elapsed())
    }
}
