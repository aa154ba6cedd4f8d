//! The pool's config and its vdev tree.
//!
//! # Theory
//! A change of the config is made in memory first. The next txg writes it to the MOS and to the
//! labels of all devices. Until then [`PoolCore::config_now`] gives the changed config, and
//! `PoolCore::synced` the one on disk.

use std::sync::Arc;

use ondisk::{RootedConfig, VdevConfig};
use vdev::Tree;

use crate::new_vdevs::Claimed;
use crate::pool_core::PoolCore;
use crate::pool_core::state::ChangedConfig;

impl PoolCore {
    /// The config so far in the syncing txg.
    pub(crate) fn config_now(&self) -> Arc<RootedConfig> {
        self.newest_config(&self.changed_config.lock())
    }

    /// The same, for a caller that changes it.
    pub(crate) fn newest_config(&self, changed: &ChangedConfig) -> Arc<RootedConfig> {
        let coming = changed.next.clone().or_else(|| changed.committing.clone());
        coming.unwrap_or_else(|| self.synced.read().config.clone())
    }

    /// Changes the config that this txg writes to the MOS and to all labels (`vdev_config_dirty`).
    pub(crate) fn edit_config(&self, edit: impl FnOnce(&mut RootedConfig)) {
        let mut changed = self.changed_config.lock();
        let mut config = RootedConfig::clone(&self.newest_config(&changed));
        edit(&mut config);
        changed.next = Some(Arc::new(config));
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
}
