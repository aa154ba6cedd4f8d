//! Changes of the pool as a whole: its vdevs, its guid, its properties.
//!
//! # Theory
//! The calling thread checks such a change, and excludes all others (`PoolCore::shape`) until it is
//! on disk. So the check still holds in the txg that makes the change. That happens in the first
//! pass, after the datasets and before the config is written, so that config, tree, allocator and
//! MOS change together.
//!
//! # See
//! OpenZFS `dsl_sync_task`, `dsl_early_sync_task`, `spa_vdev_enter`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::Tx;
use dsl::sync::Event;
use observe::lock::Mutex;
use ondisk::Txg;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::{LifeError, ShapeError, SyncError};
use crate::pool_core::state::{PoolTask, PoolTasks, QueuedTask, TaskQueues};
use crate::txg::{Stopped, TXG_SIZE};

/// The result of a change that is checked in its txg; a refusal changes nothing.
pub(crate) type Change<R> = Result<(R, Vec<Event>), LifeError>;

fn queue_of(queues: &TaskQueues, txg: Txg) -> &Mutex<Vec<QueuedTask>> {
    &queues[txg.0 as usize % TXG_SIZE]
}

impl PoolCore {
    /// Queues a change for the first txg of a pool that is being opened, before any other thread
    /// uses it.
    pub(crate) fn enter_first(&self, txg: Txg, task: PoolTask) {
        queue_of(&self.pool_tasks.others, txg).lock().push(QueuedTask { task, done: Arc::default() });
    }

    /// Runs a change of the pool as a whole, and waits until it is on disk. The caller holds
    /// `shape`.
    pub(crate) fn change_pool(&self, task: PoolTask) -> Result<(), Stopped> {
        self.change_in(&self.pool_tasks.others, task)
    }

    /// Like [`PoolCore::change_pool`], but before anything else in its txg
    /// (`dsl_early_sync_task`).
    pub(crate) fn change_early(&self, task: PoolTask) -> Result<(), Stopped> {
        self.change_in(&self.pool_tasks.early, task)
    }

    /// Runs a change that is checked in the txg, and waits until it is on disk. The caller holds
    /// `shape`.
    pub(crate) fn decide<R: Send + 'static>(
        &self,
        change: impl FnOnce(&PoolCore, &Tx) -> Result<Change<R>, SyncError> + Send + 'static,
    ) -> Result<R, LifeError> {
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        self.change_pool(Box::new(move |core, tx| {
            let (came, events) = match change(core, tx)? {
                Ok((value, events)) => (Ok(value), events),
                Err(refusal) => (Err(refusal), Vec::new()),
            };
            *slot.lock() = Some(came);
            Ok(events)
        }))
        .map_err(ShapeError::from)?;
        result.lock().take().expect("the group has done it")
    }

    /// Runs a change in the open txg, and waits until it is on disk.
    fn change_in(&self, queues: &TaskQueues, task: PoolTask) -> Result<(), Stopped> {
        let txgs = self.txgs();
        txgs.check_suspended()?;
        let done = Arc::new(AtomicBool::new(false));
        let hold = txgs.hold(0)?;
        let txg = hold.txg();
        let queue = queue_of(queues, txg);
        queue.lock().push(QueuedTask { task, done: Arc::clone(&done) });
        drop(hold);
        txgs.wait_synced(txg)?;
        assert!(done.load(Ordering::Acquire), "a synced group has done its tasks");
        Ok(())
    }

    /// Forgets the changes that no txg will run, when the pool is released. They may refer to parts
    /// that refer to this queue.
    pub(crate) fn forget_tasks(&self) {
        let PoolTasks { early, others } = &self.pool_tasks;
        early.iter().chain(others).for_each(|queue| queue.lock().clear());
    }

    /// Runs this txg's changes of the pool as a whole. True if there were any.
    pub(crate) fn run_pool_tasks(&self, tx: &Tx) -> Result<bool, SyncError> {
        self.run_tasks(tx, &self.pool_tasks.others)
    }

    /// Runs the changes of this txg that must precede all frees. True if there were any.
    pub(crate) fn run_early_tasks(&self, tx: &Tx) -> Result<bool, SyncError> {
        self.run_tasks(tx, &self.pool_tasks.early)
    }

    fn run_tasks(&self, tx: &Tx, queues: &TaskQueues) -> Result<bool, SyncError> {
        let tasks = std::mem::take(&mut *queue_of(queues, tx.txg()).lock());
        let any = !tasks.is_empty();
        for QueuedTask { task, done } in tasks {
            let events = task(self, tx)?;
            self.log_events(tx, &events)?;
            done.store(true, Ordering::Release);
        }
        Ok(any)
    }
}
