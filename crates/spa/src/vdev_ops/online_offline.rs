//! Devices that are taken out of use and brought back: offline, faulted, online.
//!
//! # Theory
//! An offline or faulted device stays in the tree, closed. Nothing is read from it or written to
//! it. Its dirty time log records what it misses. So it can be brought back at any time, and only
//! what it missed must be resilvered. The txg that takes it out decides whether the pool can do
//! without it, from the DTLs of the others ([`replicas`](crate::vdev_ops::replicas)). A device that
//! is being replaced does not count as redundancy for a faulted one.
//!
//! # On disk
//! `offline` and `faulted` in the config, and `aux_state` with a fault that outlasts an import.
//! Only this engine knows what is temporary. A temporary fault is in the config without
//! `aux_state`, by which an import knows that it is over.
//!
//! # Crash
//! The flags and the tree change in one txg. The labels of the device itself stay as they were: it
//! is found by its guid.
//!
//! # Absent
//! The last device of a log vdev stays: its logs are not moved elsewhere.
//!
//! # See
//! OpenZFS `vdev_offline`, `vdev_fault`, `vdev_online`.

use std::sync::Arc;

use dmu::Tx;
use dsl::sync::Event;
use ondisk::{Guid, PoolConfig, VdevConfig, VdevKind};
use parking_lot::Mutex;
use vdev::{Devices, Tree, VdevAux, VdevState};

use crate::create::Claimed;
use crate::engine::{ChangedConfig, Engine, PoolWriter, ShapeError, SyncError};
use crate::txg::TxgHandle;
use crate::vdev_ops::replicas;

/// `aux_state` of a device that a user faulted.
const EXTERNAL: &str = "external";
/// `aux_state` of a device with too many errors.
const ERR_EXCEEDED: &str = "err_exceeded";

/// The verdict on a device, for [`PoolWriter::fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A user faults it, until it is cleared (`VDEV_AUX_EXTERNAL_PERSIST`).
    ByHand,
    /// A user faults it, until the next import (`VDEV_AUX_EXTERNAL`).
    ByHandForNow,
    /// It has too many errors to be used (`VDEV_STATE_FAULTED`, `VDEV_AUX_ERR_EXCEEDED`).
    Failing,
    /// It has many errors, but stays in use (`VDEV_STATE_DEGRADED`, `VDEV_AUX_ERR_EXCEEDED`).
    Poor,
}

impl Verdict {
    /// The reason for its state, and the word for that in the config.
    fn aux(self) -> (VdevAux, Option<String>) {
        match self {
            Verdict::ByHand => (VdevAux::External, Some(EXTERNAL.to_owned())),
            Verdict::ByHandForNow => (VdevAux::External, None),
            Verdict::Failing | Verdict::Poor => (VdevAux::ErrExceeded, Some(ERR_EXCEEDED.to_owned())),
        }
    }
}

/// Why a device was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// The pool can't be changed.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The vdev is not a device of its own (`ENOTSUP`).
    #[error("the vdev {} is no device", guid.0)]
    NotLeaf {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// Some data can be read only from it (`EBUSY`).
    #[error("the device {} holds what no other does", guid.0)]
    NoReplicas {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The device has left with a split (`EINVAL`).
    #[error("the device {} was split off", guid.0)]
    SplitOff {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// Nothing can be attached to it or replace it at its place (`ENOTSUP`).
    #[error("the vdev {} can't have a side more", guid.0)]
    Target {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The new device is too small (`EOVERFLOW`).
    #[error("the new device has {size} bytes, and {least} are needed")]
    TooSmall {
        /// Its allocatable bytes.
        size: u64,
        /// The least size, in bytes.
        least: u64,
    },
    /// The new device has larger sectors than its vdev (`EDOM`).
    #[error("the new device has an ashift of {}, its vdev one of {}", new.0, vdev.0)]
    Ashift {
        /// The device's.
        new: ondisk::Ashift,
        /// The vdev's.
        vdev: ondisk::Ashift,
    },
    /// The new device is in use (`EBUSY`).
    #[error("the new device is in use")]
    InUse,
    /// The place of a hot spare in use can only be taken by another hot spare.
    #[error("the device {} can only be replaced by another hot spare", guid.0)]
    OnlySpare {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// A resilver is running or requested, which excludes a rebuild
    /// (`ZFS_ERR_RESILVER_IN_PROGRESS`).
    #[error("a resilver is in progress")]
    Resilvering,
    /// A sequential rebuild is running, which excludes a resilver (`ZFS_ERR_REBUILD_IN_PROGRESS`).
    #[error("a sequential resilver is in progress")]
    Rebuilding,
    /// Its top-level vdev can't be rebuilt sequentially (`ENOTSUP`).
    #[error("what is beside {} can't be rebuilt sequentially", guid.0)]
    NotSequential {
        /// Guid of the vdev.
        guid: Guid,
    },
    /// The feature `device_rebuild` is not enabled (`ENOTSUP`).
    #[error("the feature device_rebuild is not enabled")]
    RebuildDisabled,
    /// Only children of mirrors and of replacements can be detached (`ENOTSUP`).
    #[error("the vdev {} can't lose a side", guid.0)]
    NotMirror {
        /// Guid of the vdev.
        guid: Guid,
    },
}

/// The result of a change; a refusal changes nothing.
pub(crate) type Change<R> = Result<(R, Vec<Event>), LifeError>;

/// A leaf that is a device of its own.
fn device_of(root: &VdevConfig, guid: Guid) -> Result<&VdevConfig, LifeError> {
    let missing = || LifeError::Shape(vdev::VdevError::NoSuchGuid { guid }.into());
    let found = root.find(guid).ok_or_else(missing)?;
    match found.kind {
        VdevKind::Disk | VdevKind::File => Ok(found),
        _ => Err(LifeError::NotLeaf { guid }),
    }
}

impl Engine {
    /// The config so far in the syncing txg.
    pub(crate) fn config_now(&self) -> Arc<PoolConfig> {
        self.newest_config(&self.changed_config.lock())
    }

    /// The same, for a caller that changes it.
    pub(crate) fn newest_config(&self, changed: &ChangedConfig) -> Arc<PoolConfig> {
        let coming = changed.next.clone().or_else(|| changed.committing.clone());
        coming.unwrap_or_else(|| self.synced.read().config.clone())
    }

    /// Replaces the tree by that of a config; `before` may change it first.
    pub(crate) fn put_tree(
        &self,
        root: &VdevConfig,
        new: &Claimed,
        before: impl FnOnce(&Tree) -> Result<(), vdev::VdevError>,
    ) -> Result<Arc<Tree>, vdev::VdevError> {
        let _one = self.placing.lock();
        let tree = Arc::new(self.reshaped(root, new)?);
        before(&tree)?;
        self.cache.zio().trees().set(Arc::clone(&tree));
        Ok(tree)
    }

    /// Whether a device is offline, temporarily or not.
    fn is_offline(&self, leaf: &VdevConfig) -> bool {
        leaf.offline || self.offline_for_now.lock().contains(&leaf.guid)
    }

    /// Closes a device in the syncing txg.
    fn close(&self, tx: &Tx, guid: Guid, state: VdevState, aux: VdevAux) -> Result<(), SyncError> {
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let tree = self.tree();
        let open = tree.devices().any(|(leaf, _)| leaf == guid);
        tree.set_state(guid, state, aux).map_err(shape)?;
        if open {
            // Its writes of this txg and of the open ones were not flushed.
            tree.leaves_out(guid, tx.txg()).map_err(shape)?;
        }
        let mut root = tree.config().clone();
        replicas::edit(&mut root, guid, &mut |leaf| leaf.offline = true);
        self.put_tree(&root, &Claimed::new(), |_| Ok(())).map(drop).map_err(shape)
    }

    pub(crate) fn take_offline(&self, tx: &Tx, guid: Guid, temporary: bool) -> Result<Change<()>, SyncError> {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let leaf = match device_of(root, guid) {
            Ok(leaf) => leaf,
            Err(e) => return Ok(Err(e)),
        };
        let tree = self.tree();
        if !self.is_offline(leaf) && replicas::is_required(&tree, root, guid) {
            return Ok(Err(LifeError::NoReplicas { guid }));
        }
        self.edit_leaf(guid, |leaf| leaf.offline = !temporary);
        let mut for_now = self.offline_for_now.lock();
        if temporary {
            for_now.insert(guid)
        } else {
            for_now.remove(&guid)
        };
        drop(for_now);
        // A fault takes precedence: it must be cleared first.
        if tree.state_of(guid).is_ok_and(|(state, _)| state != VdevState::Faulted) {
            self.close(tx, guid, VdevState::Offline, VdevAux::None)?;
        }
        Ok(Ok(((), Vec::new())))
    }

    fn take_fault(&self, tx: &Tx, guid: Guid, verdict: Verdict) -> Result<Change<()>, SyncError> {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        match device_of(root, guid) {
            // The device's current state is no better.
            Ok(leaf) if verdict == Verdict::Poor && (leaf.faulted || leaf.degraded) => {
                return Ok(Ok(((), Vec::new())));
            }
            Ok(_) => {}
            Err(e) => return Ok(Err(e)),
        }
        let (why, aux) = verdict.aux();
        let tree = self.tree();
        if verdict == Verdict::Poor || replicas::is_required_when_faulting(&tree, root, guid) {
            // What only it holds must stay readable.
            self.edit_leaf(guid, |leaf| {
                (leaf.degraded, leaf.faulted, leaf.aux_state) = (true, false, aux.clone());
                leaf.unspare = false;
            });
            if tree.state_of(guid).is_ok_and(|(state, _)| state >= VdevState::Degraded) {
                let degrade = tree.set_state(guid, VdevState::Degraded, why);
                degrade.map_err(|source| SyncError::Shape { txg: tx.txg(), source })?;
            }
        } else {
            self.edit_leaf(guid, |leaf| {
                (leaf.faulted, leaf.degraded, leaf.aux_state) = (true, false, aux.clone());
                leaf.unspare = false;
            });
            self.close(tx, guid, VdevState::Faulted, why)?;
        }
        Ok(Ok(((), Vec::new())))
    }

    /// Clears the faults that a user made, of a vdev or of all; gives the devices.
    fn forgive(&self, of: Option<Guid>) -> Vec<Guid> {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let within = of.map_or(Some(root), |guid| root.find(guid));
        let faulted: Vec<VdevConfig> = within
            .into_iter()
            .flat_map(VdevConfig::leaves)
            .filter(|leaf| leaf.faulted || leaf.degraded)
            .cloned()
            .collect();
        for leaf in &faulted {
            let parent = replicas::parent_of(root, leaf.guid).filter(|above| above.kind == VdevKind::Spare);
            let spared = parent.is_some_and(|above| above.children[0].guid == leaf.guid);
            // In one txg: without this record, the spare would stay for good.
            self.edit_leaf(leaf.guid, |leaf| {
                (leaf.faulted, leaf.degraded, leaf.aux_state) = (false, false, None);
                leaf.unspare |= spared;
            });
            let tree = self.tree();
            let now = match tree.state_of(leaf.guid) {
                Ok((VdevState::Faulted, _)) if self.is_offline(leaf) => (VdevState::Offline, VdevAux::None),
                Ok((VdevState::Faulted, _)) => (VdevState::CantOpen, VdevAux::OpenFailed),
                // The device was in use all the time.
                Ok((VdevState::Degraded, _)) => (VdevState::Healthy, VdevAux::None),
                Ok(_) | Err(_) => continue,
            };
            tree.set_state(leaf.guid, now.0, now.1).expect("the config's leaves are in the tree");
        }
        faulted.into_iter().map(|leaf| leaf.guid).collect()
    }

    fn edit_leaf(&self, guid: Guid, mut with: impl FnMut(&mut VdevConfig)) {
        self.edit_config(|config| {
            let root = config.vdev_tree.as_mut().expect("an engine's config has a tree");
            replicas::edit(root, guid, &mut with);
        });
    }

    fn take_online(&self, tx: &Tx, guid: Guid, found: &Devices) -> Result<Change<bool>, SyncError> {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let leaf = match device_of(root, guid) {
            Ok(leaf) => leaf,
            Err(e) => return Ok(Err(e)),
        };
        let was = self.is_offline(leaf);
        self.edit_leaf(guid, |leaf| (leaf.offline, leaf.removed) = (false, false));
        self.offline_for_now.lock().remove(&guid);
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let (state, _) = self.tree().state_of(guid).map_err(shape)?;
        if matches!(state, VdevState::Faulted | VdevState::Degraded | VdevState::Healthy) {
            return Ok(Ok((was, Vec::new())));
        }
        if found.is_empty() {
            self.tree().set_state(guid, VdevState::CantOpen, VdevAux::OpenFailed).map_err(shape)?;
        } else {
            self.put_opened(found).map_err(shape)?;
        }
        Ok(Ok((true, Vec::new())))
    }
}

impl Engine {
    /// See [`PoolWriter::fault`].
    pub(crate) fn fault(&self, txgs: &TxgHandle, guid: Guid, verdict: Verdict) -> Result<(), LifeError> {
        let _alone = self.shape.lock();
        self.decide(txgs, move |engine, tx| engine.take_fault(tx, guid, verdict))?;
        self.cancel_works_if_faulted(guid);
        Ok(())
    }

    /// Runs a change that is checked in the txg, and waits until it is on disk. The caller holds
    /// `shape`.
    pub(crate) fn decide<R: Send + 'static>(
        &self,
        txgs: &TxgHandle,
        change: impl FnOnce(&Engine, &Tx) -> Result<Change<R>, SyncError> + Send + 'static,
    ) -> Result<R, LifeError> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let task = Box::new(move |engine: &Engine, tx: &Tx| {
            let (came, events) = match change(engine, tx)? {
                Ok((value, events)) => (Ok(value), events),
                Err(refusal) => (Err(refusal), Vec::new()),
            };
            *slot.lock() = Some(came);
            Ok(events)
        });
        self.change_in(txgs, &self.pool_tasks, task).map_err(ShapeError::from)?;
        result.lock().take().expect("the group has done it")
    }
}

impl PoolWriter {
    /// Takes a device offline until it is brought online, or until the next import if `temporary`
    /// (`vdev_offline`). It is closed.
    ///
    /// # Errors
    /// * [`LifeError::NoReplicas`]: some data can be read only from the device.
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    pub fn offline(&self, guid: Guid, temporary: bool) -> Result<(), LifeError> {
        let _alone = self.engine().shape.lock();
        if self.is_cache(guid) {
            return Ok(self.cache_offline(guid, temporary)?);
        }
        self.engine()
            .decide(&self.txgs().handle(), move |engine, tx| engine.take_offline(tx, guid, temporary))
    }

    /// Faults or degrades a device, until it is cleared or the pool is imported again
    /// (`vdev_fault`, `vdev_degrade`).
    ///
    /// If the pool can't do without it, it is degraded instead of faulted.
    ///
    /// # Errors
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    pub fn fault(&self, guid: Guid, verdict: Verdict) -> Result<(), LifeError> {
        self.engine().fault(&self.txgs().handle(), guid, verdict)
    }

    /// Brings a device online that is offline or was absent; gives its state then (`vdev_online`).
    /// With `expand`, its vdev grows with its devices.
    ///
    /// # Errors
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::SplitOff`]: the device has left with a split.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`]. The device may
    ///   be online then.
    pub fn online(&self, guid: Guid, expand: bool) -> Result<VdevState, LifeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        if self.is_cache(guid) {
            if expand {
                return Err(ShapeError::Unsupported { what: "expanding a cache device" }.into());
            }
            return Ok(self.cache_online(guid)?);
        }
        let _resilver = engine.scan.comes();
        let tree = engine.tree();
        let state_of = |tree: &Tree| tree.state_of(guid).map_err(|e| LifeError::Shape(e.into()));
        let (before, aux) = state_of(&tree)?;
        if aux == VdevAux::SplitPool {
            return Err(LifeError::SplitOff { guid });
        }
        let found = match before {
            VdevState::Healthy | VdevState::Degraded => Devices::new(),
            _ => engine.there_now(guid),
        };
        let changed =
            engine.decide(&self.txgs().handle(), move |engine, tx| engine.take_online(tx, guid, &found))?;
        if before >= VdevState::Degraded {
            engine.close_lost(Some(guid)).map_err(ShapeError::from)?;
        }
        let (now, _) = state_of(&engine.tree())?;
        if changed && now >= VdevState::Degraded {
            self.resume_works();
            engine.heal(&self.txgs().handle())?;
        }
        if expand {
            engine.grow_top_of(&self.txgs().handle(), guid)?;
        }
        Ok(now)
    }

    /// Clears faults that a user made ([`PoolWriter::clear`]).
    pub(crate) fn forgive(&self, of: Option<Guid>) -> Result<(), ShapeError> {
        let engine = self.engine();
        let config = self.config();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        if !root.leaves().any(|leaf| leaf.faulted || leaf.degraded) {
            return Ok(());
        }
        if self.suspended().is_some() {
            engine.forgive(of);
            return Ok(());
        }
        let forgive = move |engine: &Engine, _: &Tx| {
            engine.forgive(of);
            Ok(Vec::new())
        };
        Ok(self.change_pool(Box::new(forgive))?)
    }
}
