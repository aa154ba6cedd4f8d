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
use ondisk::{Guid, VdevConfig, VdevKind};
use vdev::{Devices, Tree, VdevAux, VdevState};

use crate::new_vdevs::Claimed;
use crate::pool_core::errors::{LifeError, ShapeError, SyncError};
use crate::pool_core::pool_tasks::Change;
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::replicas;

/// `aux_state` of a device that a user faulted.
const EXTERNAL: &str = "external";
/// `aux_state` of a device with too many errors.
const ERR_EXCEEDED: &str = "err_exceeded";

/// The verdict on a device, for [`Vdevs::fault`].
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

/// A leaf that is a device of its own.
fn device_of(root: &VdevConfig, guid: Guid) -> Result<&VdevConfig, LifeError> {
    let missing = || LifeError::Shape(vdev::VdevError::NoSuchGuid { guid }.into());
    let found = root.find(guid).ok_or_else(missing)?;
    match found.kind {
        VdevKind::Disk | VdevKind::File => Ok(found),
        _ => Err(LifeError::NotLeaf { guid }),
    }
}

impl Vdevs {
    /// Whether a device is offline, temporarily or not.
    fn is_offline(&self, leaf: &VdevConfig) -> bool {
        leaf.offline || self.offline_for_now.lock().contains(&leaf.guid)
    }

    /// Closes a device in the syncing txg.
    fn close(&self, tx: &Tx, guid: Guid, state: VdevState, aux: VdevAux) -> Result<(), SyncError> {
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let tree = self.core.tree();
        let open = tree.devices().any(|(leaf, _)| leaf == guid);
        tree.set_state(guid, state, aux).map_err(shape)?;
        if open {
            // Its writes of this txg and of the open ones were not flushed.
            tree.leaves_out(guid, tx.txg()).map_err(shape)?;
        }
        let mut root = tree.config().clone();
        replicas::edit(&mut root, guid, &mut |leaf| leaf.offline = true);
        self.core.put_tree(&root, &Claimed::new(), |_| Ok(())).map(drop).map_err(shape)
    }

    pub(crate) fn take_offline(&self, tx: &Tx, guid: Guid, temporary: bool) -> Result<Change<()>, SyncError> {
        let config = self.core.config_now();
        let root = config.root();
        let leaf = match device_of(root, guid) {
            Ok(leaf) => leaf,
            Err(e) => return Ok(Err(e)),
        };
        let tree = self.core.tree();
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
        let config = self.core.config_now();
        let root = config.root();
        match device_of(root, guid) {
            // The device's current state is no better.
            Ok(leaf) if verdict == Verdict::Poor && (leaf.faulted || leaf.degraded) => {
                return Ok(Ok(((), Vec::new())));
            }
            Ok(_) => {}
            Err(e) => return Ok(Err(e)),
        }
        let (why, aux) = verdict.aux();
        let tree = self.core.tree();
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
        let config = self.core.config_now();
        let root = config.root();
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
            let tree = self.core.tree();
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
        self.core.edit_config(|config| {
            let root = config.root_mut();
            replicas::edit(root, guid, &mut with);
        });
    }

    fn take_online(&self, tx: &Tx, guid: Guid, found: &Devices) -> Result<Change<bool>, SyncError> {
        let config = self.core.config_now();
        let root = config.root();
        let leaf = match device_of(root, guid) {
            Ok(leaf) => leaf,
            Err(e) => return Ok(Err(e)),
        };
        let was = self.is_offline(leaf);
        self.edit_leaf(guid, |leaf| (leaf.offline, leaf.removed) = (false, false));
        self.offline_for_now.lock().remove(&guid);
        let shape = |source| SyncError::Shape { txg: tx.txg(), source };
        let (state, _) = self.core.tree().state_of(guid).map_err(shape)?;
        if matches!(state, VdevState::Faulted | VdevState::Degraded | VdevState::Healthy) {
            return Ok(Ok((was, Vec::new())));
        }
        if found.is_empty() {
            self.core.tree().set_state(guid, VdevState::CantOpen, VdevAux::OpenFailed).map_err(shape)?;
        } else {
            self.put_opened(found).map_err(shape)?;
        }
        Ok(Ok((true, Vec::new())))
    }
}

impl Vdevs {
    /// Takes a device offline until it is brought online, or until the next import if `temporary`
    /// (`vdev_offline`). It is closed.
    ///
    /// # Errors
    /// * [`LifeError::NoReplicas`]: some data can be read only from the device.
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    pub fn offline(self: &Arc<Self>, guid: Guid, temporary: bool) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        if self.is_cache(guid) {
            return Ok(self.cache_offline(guid, temporary)?);
        }
        let me = Arc::clone(self);
        self.core.decide(move |_, tx| me.take_offline(tx, guid, temporary))
    }

    /// Faults or degrades a device, until it is cleared or the pool is imported again
    /// (`vdev_fault`, `vdev_degrade`).
    ///
    /// If the pool can't do without it, it is degraded instead of faulted.
    ///
    /// # Errors
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`].
    pub fn fault(self: &Arc<Self>, guid: Guid, verdict: Verdict) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        let me = Arc::clone(self);
        self.core.decide(move |_, tx| me.take_fault(tx, guid, verdict))?;
        self.works.cancel_works_if_faulted(guid);
        Ok(())
    }

    /// Brings a device online that is offline or was absent; gives its state then (`vdev_online`).
    /// With `expand`, its vdev grows with its devices.
    ///
    /// # Errors
    /// * [`LifeError::NotLeaf`]: the vdev is not a device.
    /// * [`LifeError::SplitOff`]: the device has left with a split.
    /// * [`LifeError::Shape`]: the vdev tree cannot be changed; see [`ShapeError`]. The device may
    ///   be online then.
    pub fn online(self: &Arc<Self>, guid: Guid, expand: bool) -> Result<VdevState, LifeError> {
        let _alone = self.core.shape.lock();
        if self.is_cache(guid) {
            if expand {
                return Err(ShapeError::Unsupported { what: "expanding a cache device" }.into());
            }
            return Ok(self.cache_online(guid)?);
        }
        let _resilver = self.scans.scan.comes();
        let tree = self.core.tree();
        let state_of = |tree: &Tree| tree.state_of(guid).map_err(|e| LifeError::Shape(e.into()));
        let (before, aux) = state_of(&tree)?;
        if aux == VdevAux::SplitPool {
            return Err(LifeError::SplitOff { guid });
        }
        let found = match before {
            VdevState::Healthy | VdevState::Degraded => Devices::new(),
            _ => self.there_now(guid),
        };
        let me = Arc::clone(self);
        let changed = self.core.decide(move |_, tx| me.take_online(tx, guid, &found))?;
        if before >= VdevState::Degraded {
            self.close_lost(Some(guid)).map_err(ShapeError::from)?;
        }
        let (now, _) = state_of(&self.core.tree())?;
        if changed && now >= VdevState::Degraded {
            self.works.restart_works();
            self.heal()?;
        }
        if expand {
            self.grow_top_of(guid)?;
        }
        Ok(now)
    }

    /// Clears faults that a user made ([`crate::engine::PoolWriter::clear`]).
    pub(crate) fn clear_faults(self: &Arc<Self>, of: Option<Guid>) -> Result<(), ShapeError> {
        let config = self.core.synced.read().config.clone();
        let root = config.root();
        if !root.leaves().any(|leaf| leaf.faulted || leaf.degraded) {
            return Ok(());
        }
        if self.core.cache.zio().suspension().reason().is_some() {
            self.forgive(of);
            return Ok(());
        }
        let me = Arc::clone(self);
        Ok(self.core.change_pool(Box::new(move |_, _| {
            me.forgive(of);
            Ok(Vec::new())
        }))?)
    }
}
