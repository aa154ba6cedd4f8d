//! Changes of the pool as a whole: its vdevs, its guid, its properties.
//!
//! # Theory
//! Such a change is checked when it is asked for, by whoever asks, who then keeps every other one out ([`Engine::shape`]) until it is on disk:
//! so what was checked still holds in the group that does it. The group does it in its first pass, after the datasets and before the config is
//! written, so that config, tree, allocator and MOS change together.
//!
//! # Crash
//! New devices have labels that say "half added, group 0" before anything refers to them. The group that takes them in writes the even labels
//! of all devices, the uberblock, and the odd labels, as any group does whose config changed ([`crate::sync::labels`]). Blocks may lie on a new
//! vdev in that very group: without its uberblock nobody refers to them. (OpenZFS takes two groups for it, since it allocates outside of
//! the sync too.)
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

/// Why the pool was not changed; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// The pool has stopped: what the disk knows of the change, nobody knows.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The devices can't be had, or not in this shape.
    #[error(transparent)]
    Devices(#[from] CreateError),
    /// The new vdevs have other sector sizes than all that the pool has (`ZFS_ERR_ASHIFT_MISMATCH`).
    #[error("a new vdev has the ashift {}, all others have {}", new.0, old.0)]
    AshiftMismatch {
        /// The new one's.
        new: Ashift,
        /// All others'.
        old: Ashift,
    },
    /// The labels of a new device can't be written.
    #[error("labels of a new device")]
    Labels(#[from] vdev::label::LabelWriteError),
    /// A device is missing or bad (`ENXIO`).
    #[error("a device is missing or bad")]
    Unhealthy,
    /// It is in use (`EBUSY`).
    #[error("the device {} is in use", guid.0)]
    Busy {
        /// Which.
        guid: Guid,
    },
    /// What would be left has no room (`ENOSPC`).
    #[error("the rest of the pool has no room")]
    NoRoom,
    /// There is a checkpoint (`ZFS_ERR_CHECKPOINT_EXISTS`).
    #[error("a checkpoint exists")]
    CheckpointExists,
    /// A checkpoint is being discarded (`ZFS_ERR_DISCARDING_CHECKPOINT`).
    #[error("a checkpoint is being discarded")]
    DiscardingCheckpoint,
    /// The guid is 0, or something has it (`EEXIST`).
    #[error("the guid {} is in use", guid.0)]
    Guid {
        /// Which.
        guid: Guid,
    },
    /// This release does not do it.
    #[error("{what} is not in this release")]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The pool's books can't be read.
    #[error("the pool's books")]
    Books(#[from] pool::Error),
    /// The changed tree means nothing.
    #[error("the tree of vdevs")]
    Tree(#[from] vdev::VdevError),
}

/// What is done in the group that syncs. An error stops the pool, as the group can't be taken back.
pub(crate) type PoolTask = Box<dyn FnOnce(&Engine, &Tx) -> Result<Vec<Event>, SyncError> + Send>;

/// A change in the queue of its group.
pub(crate) struct Queued {
    task: PoolTask,
    done: Arc<Mutex<bool>>,
}

/// How vdevs are added.
pub struct AddTerms<'a> {
    /// Sector size as a shift, if it is prescribed.
    pub ashift: Option<Ashift>,
    /// Refuse a sector size other than that of all the pool's vdevs, where they have one.
    pub check_ashift: bool,
    /// Take devices that seem to belong to a pool which is not in use.
    pub force: bool,
    /// How devices are opened.
    pub claimer: &'a Claimer<'a>,
}

impl Engine {
    /// The tree as it is now.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.cache.zio().tree()
    }

    /// What a pool that is being opened is to do in its first group, before anybody else knows of it.
    pub(crate) fn enter_first(&self, txg: Txg, task: PoolTask) {
        let queue = &self.pool_tasks[txg.0 as usize % TXG_SIZE];
        queue.lock().push(Queued { task, done: Arc::default() });
    }

    /// Does what was asked of the pool as a whole in this group.
    pub(crate) fn run_pool_tasks(&self, tx: &Tx) -> Result<(), SyncError> {
        self.run_tasks(tx, &self.pool_tasks)
    }

    /// Does what must be done in this group before anything is freed.
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

    /// Does a change in the open group, and waits until it is on disk.
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

    /// Changes the config that this group writes to the MOS and to all labels (`vdev_config_dirty`).
    pub(crate) fn edit_config(&self, edit: impl FnOnce(&mut PoolConfig)) {
        let mut changed = self.changed_config.lock();
        let mut config = PoolConfig::clone(&self.newest_config(&changed));
        edit(&mut config);
        changed.next = Some(Arc::new(config));
    }

    /// Puts the tree of this configuration in the place of the one there is.
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

    /// Takes vdevs in, in the group that syncs.
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

/// A group's number in a vdev and all below it: when they came to the pool (`vdev_crtxg`).
fn born(vdev: &mut VdevConfig, txg: Txg) {
    vdev.create_txg = Some(txg);
    vdev.children.iter_mut().for_each(|c| born(c, txg));
}

/// The sector size that all vdevs for ordinary blocks have, if it is one (`spa_min_ashift`, `spa_max_ashift`).
fn common_ashift(root: &VdevConfig) -> Option<Ashift> {
    let ordinary = root.children.iter().filter(|t| !t.is_log && t.alloc_bias.is_none());
    let mut shifts = ordinary.filter(|t| t.metaslab_array.is_some()).filter_map(|t| t.ashift);
    let first = shifts.next()?;
    shifts.all(|s| s == first).then_some(first)
}

impl PoolWriter {
    /// Does a change of the pool as a whole, and waits until it is on disk. Who calls this holds `shape`.
    pub(crate) fn change_pool(&self, task: PoolTask) -> Result<(), Stopped> {
        self.engine().change_in(&self.txgs().handle(), &self.engine().pool_tasks, task)
    }

    /// As [`PoolWriter::change_pool`], before anything else in its group (`dsl_early_sync_task`).
    pub(crate) fn change_early(&self, task: PoolTask) -> Result<(), Stopped> {
        self.engine().change_in(&self.txgs().handle(), &self.engine().early_tasks, task)
    }

    /// Adds top-level vdevs; when it returns, the pool allocates from them (`spa_vdev_add`).
    ///
    /// # Errors
    /// [`ShapeError`]; the pool is then as it was, though a device that was to be added may have lost its old label.
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
