//! A config that is known to have a vdev tree.

use std::ops::{Deref, DerefMut};

use super::{PoolConfig, VdevConfig, WHAT};
use crate::{Corrupt, Result};

/// The config of a pool that is open: unlike that of a label, it always has its vdev tree.
///
/// It is made once, when a pool is imported or created. Its fields can be changed like those of the
/// config inside; the tree is never taken out.
#[derive(Debug, Clone, PartialEq)]
pub struct RootedConfig(PoolConfig);

impl RootedConfig {
    /// The root of the vdev tree (`vdev_tree`).
    pub fn root(&self) -> &VdevConfig {
        self.0.vdev_tree.as_ref().expect("a rooted config keeps its tree")
    }

    /// The same, to change it.
    pub fn root_mut(&mut self) -> &mut VdevConfig {
        self.0.vdev_tree.as_mut().expect("a rooted config keeps its tree")
    }

    /// Replaces the tree.
    pub fn set_root(&mut self, root: VdevConfig) {
        self.0.vdev_tree = Some(root);
    }

    /// The config as labels and the MOS have it.
    pub fn into_config(self) -> PoolConfig {
        self.0
    }
}

impl TryFrom<PoolConfig> for RootedConfig {
    type Error = Corrupt;

    /// # Errors
    /// * [`Corrupt::Shape`]: the config has no vdev tree.
    fn try_from(config: PoolConfig) -> Result<Self> {
        match config.vdev_tree {
            Some(_) => Ok(Self(config)),
            None => Err(Corrupt::Shape { what: WHAT, why: "the config has no vdev tree" }),
        }
    }
}

impl Deref for RootedConfig {
    type Target = PoolConfig;

    fn deref(&self) -> &PoolConfig {
        &self.0
    }
}

impl DerefMut for RootedConfig {
    fn deref_mut(&mut self) -> &mut PoolConfig {
        &mut self.0
    }
}
