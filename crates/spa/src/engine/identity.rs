//! The pool's guid.

use dsl::sync::Event;
use ondisk::{Guid, PoolConfig};

use crate::create::Claimed;
use crate::engine::{PoolWriter, ShapeError, SyncError};

impl PoolWriter {
    /// Gives the pool another guid, so that a copy of its devices can be imported beside it (`spa_change_guid`). Without `guid`
    /// it is a random one. That no other pool has it, the caller knows.
    ///
    /// # Errors
    /// [`ShapeError::CheckpointExists`], since that knows the old guid; [`ShapeError::Unhealthy`] when a device is missing: it would be left behind; [`ShapeError::Guid`] for 0 and for guids that
    /// a vdev of the pool has.
    pub fn reguid(&self, guid: Option<Guid>) -> Result<Guid, ShapeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        engine.shape_is_free()?;
        if engine.tree().state().0 != vdev::VdevState::Healthy {
            return Err(ShapeError::Unhealthy);
        }
        let config = self.config();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let free = |g: &Guid| g.0 != 0 && root.find(*g).is_none();
        let mut random = || Guid(engine.world.random());
        let new = match guid {
            Some(g) => Some(g).filter(free).ok_or(ShapeError::Guid { guid: g })?,
            None => std::iter::repeat_with(&mut random).find(free).expect("most numbers are free"),
        };
        let old = root.guid;
        self.change_pool(Box::new(move |engine, tx| {
            let mut root = None;
            engine.edit_config(|config: &mut PoolConfig| {
                config.pool_guid = Some(new);
                let tree = config.vdev_tree.as_mut().expect("an engine's config has a tree");
                tree.guid = new;
                root = Some(tree.clone());
            });
            let root = root.expect("it was just set");
            let none = Claimed::new();
            engine.reshape(&root, &none).map_err(|source| SyncError::Shape { txg: tx.txg(), source })?;
            engine.cache.set_pool_guid(new);
            let text = format!("old={} new={}", old.0, new.0);
            Ok(vec![Event { what: "guid change", dataset: String::new(), object: 0, text }])
        }))?;
        Ok(new)
    }
}
