//! Changing the pool's guid (`zpool reguid`).

use dsl::sync::Event;
use ondisk::{Guid, RootedConfig};

use crate::checkpoint;
use crate::engine::PoolWriter;
use crate::new_vdevs::Claimed;
use crate::pool_core::errors::{ShapeError, SyncError};

impl PoolWriter {
    /// Changes the pool's guid, so that a copy of its devices can be imported beside it
    /// (`spa_change_guid`).
    ///
    /// Without `guid` it is random. The caller ensures that no other pool has it.
    ///
    /// # Errors
    /// * [`ShapeError::CheckpointExists`]: there is a checkpoint, which has the old guid.
    /// * [`ShapeError::DiscardingCheckpoint`]: a checkpoint is being discarded.
    /// * [`ShapeError::Metadata`]: the pool metadata cannot be read.
    /// * [`ShapeError::Unhealthy`]: a device is missing, and would keep the old guid.
    /// * [`ShapeError::Guid`]: the guid is 0 or that of a vdev of the pool.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn reguid(&self, guid: Option<Guid>) -> Result<Guid, ShapeError> {
        let core = &self.parts().core;
        let _alone = core.shape.lock();
        checkpoint::shape_is_free(&core.mos)?;
        if core.tree().state().0 != vdev::VdevState::Healthy {
            return Err(ShapeError::Unhealthy);
        }
        let config = self.config();
        let root = config.root();
        let free = |g: &Guid| g.0 != 0 && root.find(*g).is_none();
        let mut random = || Guid(core.world.random());
        let new = match guid {
            Some(g) => Some(g).filter(free).ok_or(ShapeError::Guid { guid: g })?,
            None => std::iter::repeat_with(&mut random).find(free).expect("most numbers are free"),
        };
        let old = root.guid;
        core.change_pool(Box::new(move |core, tx| {
            let mut root = None;
            core.edit_config(|config: &mut RootedConfig| {
                config.pool_guid = Some(new);
                let tree = config.root_mut();
                tree.guid = new;
                root = Some(tree.clone());
            });
            let root = root.expect("it was just set");
            let none = Claimed::new();
            core.reshape(&root, &none).map_err(|source| SyncError::Shape { txg: tx.txg(), source })?;
            core.cache.set_pool_guid(new);
            let text = format!("old={} new={}", old.0, new.0);
            Ok(vec![Event { what: "guid change", dataset: String::new(), object: 0, text }])
        }))?;
        Ok(new)
    }
}
