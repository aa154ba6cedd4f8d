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

use super::totals::{Summing, Totals};

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

impl Closed {
    /// The reasons in a word each.
    pub const NAMES: [&'static str; 6] = ["age", "dirty", "full", "request", "continued", "export"];

    /// Its place in [`Closed::NAMES`].
    pub(super) fn number(self) -> usize {
        match self {
            Closed::Age => 0,
            Closed::Dirty => 1,
            Closed::Full => 2,
            Closed::Requested(_) => 3,
            Closed::GoOn => 4,
            Closed::Export => 5,
        }
    }

    /// The reason in a word.
    pub fn name(self) -> &'static str {
        Closed::NAMES[self.number()]
    }
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

/// The newest txgs of a pool, oldest first, and the sums over all of them.
#[derive(Debug, Default)]
pub(super) struct History {
    newest: VecDeque<Group>,
    sums: Summing,
}

impl History {
    /// Records the opening of a txg.
    pub(super) fn open(&mut self, txg: Txg) {
        let most = usize::try_from(HISTORY.get()).unwrap_or(usize::MAX);
        while !self.newest.is_empty() && self.newest.len() >= most {
            self.newest.pop_front();
        }
        let now = Instant::now();
        self.sums.enter(txg, Stage::Open, now);
        if most > 0 {
            self.newest.push_back(Group {
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

    /// Records a txg's next stage. Returns how long those before it took, by their numbers. The row
    /// of a txg that is no longer remembered is ignored.
    pub(super) fn enter(&mut self, txg: Txg, stage: Stage) -> [Duration; 4] {
        let now = Instant::now();
        let took = self.sums.enter(txg, stage, now);
        if let Some(group) = self.find(txg) {
            (group.took, group.stage, group.since) = (took, stage, now);
        }
        took
    }

    /// Records that a txg closed, and why.
    pub(super) fn closed(&mut self, txg: Txg, why: Closed) {
        self.enter(txg, Stage::Quiescing);
        self.sums.closed(why);
        if let Some(group) = self.find(txg) {
            group.closed = Some(why);
        }
    }

    /// Records what a txg that is on disk held, what devices moved during its sync, and what the
    /// sync waited for.
    pub(super) fn committed(&mut self, txg: Txg, dirty: u64, moved: Moved, spent: Spent) {
        let took = self.enter(txg, Stage::Committed);
        if let Some(group) = self.find(txg) {
            (group.dirty, group.moved, group.spent) = (dirty, moved, spent);
        }
        let ns = |stage: Stage| u64::try_from(took[stage as usize].as_nanos()).unwrap_or(u64::MAX);
        event::txg_synced(|| TxgSynced {
            txg: txg.0,
            dirty,
            open_ns: ns(Stage::Open),
            ns: ns(Stage::Syncing),
        });
    }

    /// Records how long a thread waited because so much was dirty.
    pub(super) fn throttled(&mut self, took: Duration) {
        self.sums.throttled(took);
    }

    /// The sums over all txgs.
    pub(super) fn totals(&self) -> Totals {
        self.sums.totals()
    }

    /// How long the present sync has been under way.
    pub(super) fn syncing(&self) -> Option<Duration> {
        self.sums.syncing()
    }

    fn find(&mut self, txg: Txg) -> Option<&mut Group> {
        self.newest.iter_mut().rev().find(|group| group.txg == txg)
    }

    /// The newest, at most so many.
    pub(super) fn groups(&self, most: usize) -> Vec<Group> {
        self.newest.iter().skip(self.newest.len().saturating_sub(most)).copied().collect()
    }
}
