//! The newest txgs: what each held, and how long each stage took.
//!
//! See OpenZFS `spa_txg_history_t` of `spa_stats.c`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use observe::event::{self, TxgSynced};
use observe::work::{Job, Spent};
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

/// Why a txg closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It held changes, and was old (`zfs_txg_timeout`).
    Age,
    /// It held many changes (`zfs_dirty_data_sync_percent`).
    Dirty,
    /// A change found no room (`zfs_dirty_data_max`).
    Full,
    /// A caller waits for its sync. That caller's job, if it is known.
    Requested(Option<Job>),
    /// The work of the one before continues in it, such as that of a scan.
    GoOn,
    /// The pool is exported.
    Export,
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
    /// Why it closed, if it did.
    pub closed: Option<Closed>,
    /// What its sync waited for.
    pub spent: Spent,
    /// Durations of the stages before the current one, by their numbers; 0 for those to come.
    pub took: [Duration; 4],
    /// When the current stage began.
    since: Instant,
}

impl Group {
    /// How long it has been in its stage.
    pub fn in_stage(&self) -> Duration {
        self.since.elapsed()
    }
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
                closed: None,
                spent: Spent::default(),
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

    /// Records that a txg closed, and why.
    pub(super) fn closed(&mut self, txg: Txg, why: Closed) {
        self.enter(txg, Stage::Quiescing);
        if let Some(group) = self.find(txg) {
            group.closed = Some(why);
        }
    }

    /// Records what a txg that is on disk held, what devices moved during its sync, and what the
    /// sync waited for.
    pub(super) fn committed(&mut self, txg: Txg, dirty: u64, moved: Moved, spent: Spent) {
        self.enter(txg, Stage::Committed);
        if let Some(group) = self.find(txg) {
            (group.dirty, group.moved, group.spent) = (dirty, moved, spent);
            let ns = |stage: Stage| {
                let took = group.took[stage as usize % 4];
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
            };
            event::txg_synced(|| TxgSynced {
                txg: txg.0,
                dirty,
                open_ns: ns(Stage::Open),
                ns: ns(Stage::Syncing),
            });
        }
    }

    fn find(&mut self, txg: Txg) -> Option<&mut Group> {
        self.0.iter_mut().rev().find(|group| group.txg == txg)
    }

    /// The newest, at most so many.
    pub(super) fn groups(&self, most: usize) -> Vec<Group> {
        self.0.iter().skip(self.0.len().saturating_sub(most)).copied().collect()
    }
}
