//! Removing log devices.
//!
//! # Theory
//! The blocks on a log device are needed until the txgs with their changes have synced. So the
//! removal stops new allocations there, and ends the chains that have a block on it. After a few
//! txgs nothing is left there, once the last frees need not be kept for older uberblocks. Then one
//! txg removes the vdev. Block pointers hold the ids of other vdevs, so a hole takes its place
//! unless it was the last.
//!
//! An unreplayed log of a file system whose key is not loaded keeps its blocks: then the device
//! stays.
//!
//! # Crash
//! Until that last txg is on disk the device is the pool's, empty or not. Its labels are made void
//! afterwards. If they are not, they belong to a vdev that the pool's config does not have.
//!
//! # See
//! OpenZFS `spa_vdev_remove_log`, `vdev_remove_make_hole_and_free`.

use std::sync::Arc;

use dmu::Tx;
use dsl::sync::Event;
use ondisk::version::SPA_VERSION_HOLES;
use ondisk::{Guid, VdevConfig, VdevId};

use crate::new_vdevs::{Claimed, CreateError};
use crate::pool_core::errors::{LifeError, ShapeError, SyncError};
use crate::pool_core::pool_tasks::Change;
use crate::txg::TXG_SIZE;
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::attach::Gone;
use crate::vdev_ops::replicas;

/// Txgs after which a device without new allocations is empty.
///
/// These are the txgs under way, and those for which freed space is kept (`TXG_CONCURRENT_STATES`,
/// `TXG_DEFER_SIZE`). They count twice, since ending a chain frees its last block when its last
/// record has synced.
const GROUPS: usize = 2 * (TXG_SIZE + 2);

impl Vdevs {
    /// Removes a top-level log vdev; when it returns, its devices belong to no pool
    /// (`spa_vdev_remove_log`).
    ///
    /// # Errors
    /// * [`LifeError::Shape`] with [`ShapeError::Busy`]: an unreplayed log lies there.
    /// * [`LifeError::Shape`] with [`ShapeError::Unsupported`]: it is another kind of vdev.
    /// * [`LifeError::Shape`] with other variants: the vdev tree cannot be changed; see
    ///   [`ShapeError`].
    ///
    /// The pool then uses the vdev as before.
    pub fn remove_log(self: &Arc<Self>, guid: Guid) -> Result<(), LifeError> {
        let _alone = self.core.shape.lock();
        self.shape_is_free()?;
        if self.core.mos.version() < SPA_VERSION_HOLES {
            return Err(ShapeError::from(CreateError::OldPool).into());
        }
        let config = self.core.config_now();
        let root = config.root();
        let Some(top) = root.children.iter().find(|top| top.guid == guid && top.is_log) else {
            return Err(ShapeError::Unsupported { what: "removing a vdev that holds data" }.into());
        };
        let vdev = VdevId(top.id as u32);
        self.works.stop_works();
        self.core.allocator.set_allocating(vdev, false);
        let done = self.empty(guid, vdev);
        if done.is_err() {
            self.core.allocator.set_allocating(vdev, true);
        }
        self.works.restart_works();
        // The device may be leaving because it is not writable: that is no reason to keep it.
        done?.iter().for_each(|gone| drop(gone.void_labels()));
        Ok(())
    }
}

impl Vdevs {
    /// Waits until a vdev is empty, and lets a txg remove it.
    fn empty(self: &Arc<Self>, guid: Guid, vdev: VdevId) -> Result<Vec<Gone>, LifeError> {
        for _ in 0..GROUPS {
            if self.core.allocator.is_unused(vdev) {
                break;
            }
            self.logs.end_chains(vdev)?;
            self.core.txgs().wait_synced(self.core.txgs().open()).map_err(ShapeError::from)?;
        }
        let me = Arc::clone(self);
        self.core.decide(move |_, tx| me.let_log_go(tx, guid, vdev))
    }

    /// Removes a log vdev from the tree, in the syncing txg.
    fn let_log_go(&self, tx: &Tx, guid: Guid, vdev: VdevId) -> Result<Change<Vec<Gone>>, SyncError> {
        let txg = tx.txg();
        if !self.core.allocator.remove_vdev(vdev) {
            return Ok(Err(ShapeError::Busy { guid }.into()));
        }
        let config = self.core.config_now();
        let mut root = config.root().clone();
        let at = root.children.iter().position(|top| top.guid == guid).expect("who removes it is alone");
        let top = root.children[at].clone();
        let gone = top.leaves().map(|leaf| self.gone(&config, leaf, false)).collect();
        match at + 1 == root.children.len() {
            true => drop(root.children.pop()),
            false => root.children[at] = replicas::hole(top.id),
        }
        self.core
            .put_tree(&root, &Claimed::new(), |_| Ok(()))
            .map_err(|source| SyncError::Shape { txg, source })?;
        self.core.edit_config(|config| config.set_root(root));
        self.forget_top(tx, &top)?;
        self.works.notice_gone(guid, top.path.clone(), "vdev_remove_dev");
        let path = match &top.path {
            Some(path) => String::from_utf8_lossy(path).into_owned(),
            None => "-".to_owned(),
        };
        let text = format!("{} vdev {} (log) {path}", self.core.dsl.pool_name(), top.id);
        let event = Event { what: "vdev remove", dataset: String::new(), object: 0, text };
        Ok(Ok((gone, vec![event])))
    }

    /// Removes what is kept of a top-level vdev that has left.
    fn forget_top(&self, tx: &Tx, top: &VdevConfig) -> Result<(), SyncError> {
        self.core.ratios.lock().remove(&VdevId(top.id as u32));
        for leaf in top.leaves() {
            self.core.dtls.lock().remove(&leaf.guid);
            self.offline_for_now.lock().remove(&leaf.guid);
        }
        crate::vdev_ops::vdev_objects::forget(&self.core.sync_mos, tx, top)
            .map_err(|source| SyncError::Metadata { txg: tx.txg(), source })
    }
}
