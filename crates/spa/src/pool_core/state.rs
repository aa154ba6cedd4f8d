//! The state that [`PoolCore`] holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dmu::Tx;
use dsl::sync::Event;
use observe::lock::Mutex;
use ondisk::config::PoolState;
use ondisk::{Nvlist, RootedConfig, Uberblock};
use pool::config::Features;

use crate::import::aux::AuxVdev;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::txg::TXG_SIZE;

/// The state of the pool that a sync changes for readers.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    pub(crate) uberblock: Uberblock,
    pub(crate) config: Arc<RootedConfig>,
    pub(crate) features: Arc<Features>,
}

/// Changes of the config that are not synced yet.
#[derive(Debug, Default)]
pub(crate) struct ChangedConfig {
    /// What the next txg writes.
    pub(crate) next: Option<Arc<RootedConfig>>,
    /// What the txg that is being committed writes. A change of the config meanwhile begins with
    /// this, or these changes would be lost.
    pub(crate) committing: Option<Arc<RootedConfig>>,
}

/// The spares and cache devices of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuxLists {
    /// Hot spares (`spa_spares`).
    pub(crate) spares: Vec<AuxVdev>,
    /// Cache devices (`spa_l2cache`).
    pub(crate) l2cache: Vec<AuxVdev>,
}

impl AuxLists {
    pub(crate) fn list(&mut self, role: Role) -> &mut Vec<AuxVdev> {
        match role {
            Role::Spare => &mut self.spares,
            Role::Cache => &mut self.l2cache,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &AuxVdev> {
        self.spares.iter().chain(&self.l2cache)
    }
}

/// The use of a spare or cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Spare,
    Cache,
}

impl Role {
    pub(crate) fn state(self) -> PoolState {
        match self {
            Role::Spare => PoolState::Spare,
            Role::Cache => PoolState::L2cache,
        }
    }

    /// OpenZFS's word for it in the history.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Spare => "spare",
            Role::Cache => "l2cache",
        }
    }
}

/// A history record of an operation (`ESC_ZFS_HISTORY_EVENT`).
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Time of the record.
    pub at: std::time::SystemTime,
    /// The record.
    pub record: Nvlist,
}

/// What a user did.
pub(crate) struct Command {
    pub(crate) what: Logged,
    pub(crate) uid: u32,
}

/// The record of what a user did.
pub(crate) enum Logged {
    /// A command line.
    Line(String),
    /// A request with its input, under the name of OpenZFS's ioctl.
    Request(&'static str, Nvlist),
}

/// What the next txg adds to the history, and what callers have not seen of it.
#[derive(Default)]
pub(crate) struct History {
    /// Commands of users.
    pub(crate) commands: Mutex<Vec<Command>>,
    /// Events outside of txgs.
    pub(crate) announced: Mutex<Vec<Event>>,
    /// The records of operations, for [`crate::engine::PoolWriter::take_recorded`].
    pub(crate) recorded: Mutex<VecDeque<Recorded>>,
}

/// A change in the syncing txg. An error stops the pool, as the txg can't be undone.
pub(crate) type PoolTask = Box<dyn FnOnce(&PoolCore, &Tx) -> Result<Vec<Event>, SyncError> + Send>;

/// A change in the queue of its txg.
pub(crate) struct QueuedTask {
    pub(crate) task: PoolTask,
    pub(crate) done: Arc<AtomicBool>,
}

pub(crate) type TaskQueues = [Mutex<Vec<QueuedTask>>; TXG_SIZE];

/// The changes that wait for their txg.
#[derive(Default)]
pub(crate) struct PoolTasks {
    /// Those that come before anything else in their txg.
    pub(crate) early: TaskQueues,
    pub(crate) others: TaskQueues,
}
