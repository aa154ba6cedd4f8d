//! The newest txgs: what each held, and how long each stage took.
//!
//! See OpenZFS `spa_txg_history_t` of `spa_stats.c`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use observe::{Tunable, Unit};
use ondisk::Txg;
use vdev::Moved;

/// Number of txgs that are remembered (`zfs_txg_history`).
pub static HISTORY: Tunable = Tunable::new(
    "zfs_txg_history",
    100,
    0..=1 << 20,
    Unit::Count,
    "number of transaction groups in the txgs kstat",
);

/// The stage of a txg's life (`txg_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It takes holders.
    Open = 0,
    /// It is closed, and waits for its last holders.
    Quiescing = 1,
    /// It waits for the one before to be on disk.
    Waiting = 2,
    /// Its sync is under way.
    Syncing = 3,
    /// It is on disk.
    Committed = 4,
}

/// A txg in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub txg: Txg,
    /// Its stage.
    pub stage: Stage,
    /// When it opened.
    pub opened: Instant,
    /// Bytes that were dirtied in it.
    pub dirty: u64,
    /// The bytes that devices moved during its sync, for any purpose.
    pub moved: Moved,
    /// Durations of the stages before the current one, by their numbers; 0 for those to come.
    pub took: [Duration; 4],
    /// When the current stage began.
    since: Instant,
}

/// The newest txgs of a pool, oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Group>);

impl History {
    /// Records the opening of a txg.
    pub(super) fn open(&mut self, txg: Txg) {
        let most = usize::try_from(HISTORY.get()).unwrap_or(usize::MAX);
        while !self.0.is_empty() && self.0.len() >= most {
            self.0.pop_front();
        }
        let now = Instant::now();
        if most > 0 {
            self.0.push_back(Group {
                txg,
                stage: Stage::Open,
                opened: now,
                dirty: 0,
                moved: Moved::default(),
                took: Default::default(),
                since: now,
            });
        }
    }

    /// Records a txg's next stage; ignores a txg that is no longer remembered.
    pub(super) fn enter(&mut self, txg: Txg, stage: Stage) {
        let now = Instant::now();
        if let Some(group) = self.find(txg) {
            group.took[group.stage as usize % 4] = now.saturating_duration_since(group.since);
            (group.stage, group.since) = (stage, now);
        }
    }

    /// Records what a txg that is on disk held, and what devices moved during its sync.
    pub(super) fn committed(&mut self, txg: Txg, dirty: u64, moved: Moved) {
        self.enter(txg, Stage::Committed);
        if let Some(group) = self.find(txg) {
            (group.dirty, group.moved) = (dirty, moved);
        }
    }

    fn find(&mut self, txg: Txg) -> Option<&mut Group> {
        self.0.iter_mut().rev().find(|group| group.txg == txg)
    }

    pub(super) fn groups(&self) -> Vec<Group> {
        self.0.iter().copied().collect()
    }
}
