//! Changes of the pool as a whole: its vdevs, its guid, its properties.
//!
//! # Theory
//! The calling thread checks such a change, and excludes all others ([`Engine::shape`]) until it is
//! on disk. So the check still holds in the txg that makes the change. That happens in the first
//! pass, after the datasets and before the config is written, so that config, tree, allocator and
//! MOS change together.
//!
//! # Crash
//! New devices have labels of txg 0, of devices that are being added, before anything references
//! them. The txg that adds them writes the even labels of all devices, the uberblock, and the odd
//! labels. Any txg with a changed config does so ([`crate::sync::labels`]). Blocks may lie on a new
//! vdev in that very txg: without its uberblock nothing references them. (OpenZFS takes two txgs
//! for it, since it allocates outside of the sync too.)
//!
//! # See
//! OpenZFS `spa_vdev_add`, `spa_change_guid`, `spa_prop_set`.

use std::sync::Arc;

use dmu::Tx;
use dsl::sync::Event;
use ondisk::{Ashift, Guid, PoolConfig, Txg, VdevConfig};
use parking_lot::Mutex;
use vdev::Tree;

use crate::create::{Claimed, Claimer, CreateError, NewVdev, Terms, begin_labels, claim};
use crate::engine::{Engine, PoolWriter, SyncError};
use crate::txg::{Stopped, TXG_SIZE, TxgHandle};

/// Why the pool was not changed. It is as it was, except perhaps with `Stopped`.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The pool has stopped. Whether the change is on disk is unknown.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The devices can't be used, or not in this layout.
    #[error(transparent)]
    Devices(#[from] CreateError),
    /// The new vdevs have another sector size than all vdevs of the pool
    /// (`ZFS_ERR_ASHIFT_MISMATCH`).
    #[error("a new vdev has the ashift {}, all others have {}", new.0, old.0)]
    AshiftMismatch {
        /// That of the new vdev.
        new: Ashift,
        /// That of all others.
        old: Ashift,
    },
    /// The labels of a new device can't be written.
    #[error("labels of a new device")]
    Labels(#[from] vdev::label::LabelWriteError),
    /// A device is missing or bad (`ENXIO`).
    #[error("a device is missing or bad")]
    Unhealthy,
    /// The device is in use (`EBUSY`).
    #[error("the device {} is in use", guid.0)]
    Busy {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The rest of the pool has too little space (`ENOSPC`).
    #[error("the rest of the pool has no room")]
    NoRoom,
    /// There is a checkpoint (`ZFS_ERR_CHECKPOINT_EXISTS`).
    #[error("a checkpoint exists")]
    CheckpointExists,
    /// A checkpoint is being discarded (`ZFS_ERR_DISCARDING_CHECKPOINT`).
    #[error("a checkpoint is being discarded")]
    DiscardingCheckpoint,
    /// The guid is 0, or in use (`EEXIST`).
    #[error("the guid {} is in use", guid.0)]
    Guid {
        /// The guid.
        guid: Guid,
    },
    /// This release does not support it.
    #[error("{what} is not in this release")]
    Unsupported {
        /// The unsupported operation.
        what: &'static str,
    },
    /// The pool metadata can't be read.
    #[error("the pool's books")]
    Books(#[from] pool::Error),
    /// The changed tree is invalid, or lacks the vdev.
    #[error("the tree of vdevs")]
    Tree(#[from] vdev::VdevError),
}

/// A change in the syncing txg. An error stops the pool, as the txg can't be undone.
pub(crate) type PoolTask = Box<dyn FnOnce(&Engine, &Tx) -> Result<Vec<Event>, SyncError> + Send>;

/// A change in the queue of its txg.
pub(crate) struct Queued {
    task: PoolTask,
    done: Arc<Mutex<bool>>,
}

/// The options of adding vdevs.
pub struct AddTerms<'a> {
    /// Sector size as a shift, if the caller prescribes one.
    pub ashift: Option<Ashift>,
    /// Refuse a sector size other than the common one of the pool's vdevs, if they have one.
    pub check_ashift: bool,
    /// Take devices whose labels name a pool that is not in use.
    pub force: bool,
    /// How devices are opened.
    pub claimer: &'a Claimer<'a>,
}

impl Engine {
    /// The tree as it is now.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.cache.zio().tree()
    }

    /// Queues a change for the first txg of a pool that is being opened, before any other thread
    /// uses it.
    pub(crate) fn enter_first(&self, txg: Txg, task: PoolTask) {
        let queue = &self.pool_tasks[txg.0 as usize % TXG_SIZE];
        queue.lock().push(Queued { task, done: Arc::default() });
    }

    /// Runs this txg's changes of the pool as a whole.
    pub(crate) fn run_pool_tasks(&self, tx: &Tx) -> Result<(), SyncError> {
        self.run_tasks(tx, &self.pool_tasks)
    }

    /// Runs the changes of this txg that must precede all frees.
    pub(crate) fn run_early_tasks(&self, tx: &Tx) -> Result<(), SyncError> {
        self.run_tasks(tx, &self.early_tasks)
    }

    fn run_tasks(&self, tx: &Tx, queues: &[Mutex<Vec<Queued>>; TXG_SIZE]) -> Result<(), SyncError> {
        let tasks = std::mem::take(&mut *queues[tx.txg().0 as usize % TXG_SIZE].lock());
        if !tasks.is_empty() {
            self.scan.replan();
        }
        for Queued { task, done } in tasks {
            let events = task(self, tx)?;
            self.log_events(tx, &events)?;
            *done.lock() = true;
        }
        Ok(())
    }

    /// Runs a change in the open txg, and waits until it is on disk.
    pub(crate) fn change_in(
        &self,
        txgs: &TxgHandle,
        queues: &[Mutex<Vec<Queued>>; TXG_SIZE],
        task: PoolTask,
    ) -> Result<(), Stopped> {
        txgs.check_suspended()?;
        let done = Arc::new(Mutex::new(false));
        let hold = txgs.hold(0)?;
        let txg = hold.txg();
        let queue = &queues[txg.0 as usize % TXG_SIZE];
        queue.lock().push(Queued { task, done: Arc::clone(&done) });
        drop(hold);
        txgs.wait_synced(txg)?;
        assert!(*done.lock(), "a synced group has done its tasks");
        Ok(())
    }

    /// Changes the config that this txg writes to the MOS and to all labels (`vdev_config_dirty`).
    pub(crate) fn edit_config(&self, edit: impl FnOnce(&mut PoolConfig)) {
        let mut changed = self.changed_config.lock();
        let mut config = PoolConfig::clone(&self.newest_config(&changed));
        edit(&mut config);
        changed.next = Some(Arc::new(config));
    }

    /// Replaces the tree by that of this config.
    pub(crate) fn reshape(&self, root: &VdevConfig, new: &Claimed) -> Result<Arc<Tree>, vdev::VdevError> {
        let _one = self.placing.lock();
        let tree = Arc::new(self.reshaped(root, new)?);
        self.cache.zio().trees().set(Arc::clone(&tree));
        Ok(tree)
    }

    pub(crate) fn reshaped(&self, root: &VdevConfig, new: &Claimed) -> Result<Tree, vdev::VdevError> {
        let mut open = |leaf: &VdevConfig| new.get(&leaf.guid).cloned().ok_or(vdev::VdevAux::OpenFailed);
        self.tree().reshape(root, &mut open)
    }

    /// Adds vdevs, in the syncing txg.
    fn take_in(&self, tx: &Tx, tops: Vec<VdevConfig>, claimed: &Claimed) -> Result<(), SyncError> {
        let (txg, added) = (tx.txg(), tops.len());
        let mut root = None;
        self.edit_config(|config| {
            let tree = config.vdev_tree.as_mut().expect("an engine's config has a tree");
            tree.children.extend(tops);
            root = Some(tree.clone());
        });
        let mut root = root.expect("it was just set");
        let tree = self.reshape(&root, claimed).map_err(|source| SyncError::Shape { txg, source })?;
        crate::engine::add_vdevs(&self.sync_mos, tx, &tree, &self.allocator, &mut root)
            .map_err(|source| SyncError::Books { txg, source })?;
        let first = root.children.len() - added;
        self.list_distributed(tx, &root.children[first..])?;
        self.edit_config(|config| config.vdev_tree = Some(root));
        Ok(())
    }
}

/// Records the txg in which a vdev and all below it were added (`vdev_crtxg`).
fn born(vdev: &mut VdevConfig, txg: Txg) {
    vdev.create_txg = Some(txg);
    vdev.children.iter_mut().for_each(|c| born(c, txg));
}

/// The common sector size of all vdevs for normal data, if there is one (`spa_min_ashift`,
/// `spa_max_ashift`).
fn common_ashift(root: &VdevConfig) -> Option<Ashift> {
    let ordinary = root.children.iter().filter(|t| !t.is_log && t.alloc_bias.is_none());
    let mut shifts = ordinary.filter(|t| t.metaslab_array.is_some()).filter_map(|t| t.ashift);
    let first = shifts.next()?;
    shifts.all(|s| s == first).then_some(first)
}

impl PoolWriter {
    /// Runs a change of the pool as a whole, and waits until it is on disk. The caller holds
    /// `shape`.
    pub(crate) fn change_pool(&self, task: PoolTask) -> Result<(), Stopped> {
        self.engine().change_in(&self.txgs().handle(), &self.engine().pool_tasks, task)
    }

    /// Like [`PoolWriter::change_pool`], but before anything else in its txg
    /// (`dsl_early_sync_task`).
    pub(crate) fn change_early(&self, task: PoolTask) -> Result<(), Stopped> {
        self.engine().change_in(&self.txgs().handle(), &self.engine().early_tasks, task)
    }

    /// Adds top-level vdevs; when it returns, the pool allocates from them (`spa_vdev_add`).
    ///
    /// # Errors
    /// See [`ShapeError`]: its variants name the causes. The pool is then as it was, though a new
    /// device may have lost its old label.
    pub fn add(&self, vdevs: &[NewVdev], terms: &AddTerms<'_>) -> Result<(), ShapeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        let mut config = PoolConfig::clone(&self.config());
        let root = config.vdev_tree.as_mut().expect("an engine's config has a tree");
        let txg = self.txgs().open();
        let common = Terms {
            first: root.children.len() as u64,
            ashift: terms.ashift,
            force: terms.force,
            txg,
            claimer: terms.claimer,
            version: engine.mos.version(),
        };
        let (tops, claimed) = claim(vdevs, &common, &mut || engine.world.random())?;
        if let Some(old) = common_ashift(root).filter(|_| terms.check_ashift)
            && let Some(new) = tops.iter().filter_map(|t| t.ashift).find(|a| *a != old)
        {
            return Err(ShapeError::AshiftMismatch { new, old });
        }
        root.children.extend(tops.iter().cloned());
        engine.reshaped(root, &claimed)?;
        begin_labels(&config, &claimed, txg)?;
        let mut tops = tops;
        self.change_pool(Box::new(move |engine, tx| {
            tops.iter_mut().for_each(|top| born(top, tx.txg()));
            engine.take_in(tx, tops, &claimed).map(|()| Vec::new())
        }))?;
        Ok(())
    }
}
