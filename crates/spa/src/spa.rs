//! An imported pool, for reading or for writing.
//!
//! # Theory
//! A pool that is only read stays as it was loaded. One that is open for writing has a
//! [`PoolWriter`], whose transaction groups change it; this type then gives the state of the last
//! txg. The MOS is the same for both: readers of a writable pool see the txg that is being synced
//! too. [`Spa::read`] gives them a consistent view.

use std::sync::Arc;

use ondisk::{Guid, RootedConfig, Txg, Uberblock};
use pool::Mos;
use pool::config::Features;
use vdev::Tree;

use crate::aux_devices::Asides;
use crate::engine::PoolWriter;
use crate::import::AuxVdev;
use crate::pool_core::state::Synced;
use crate::vdev_ops::replicas;
use crate::{Candidate, Errata};

/// An imported pool: what the crates above use (`spa_t`). Its devices stay locked as long as it
/// exists.
pub struct Spa {
    pub(crate) name: String,
    /// The pool's name on its devices.
    pub(crate) kept_name: String,
    pub(crate) candidate: Candidate,
    /// The state as it was loaded; a writer has a newer one.
    pub(crate) loaded: Synced,
    /// The prefetch threads would keep the devices for a moment longer.
    pub(crate) _ahead: Option<arc::PrefetchGuard>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) mos: Mos,
    pub(crate) spares: Vec<AuxVdev>,
    pub(crate) l2cache: Vec<AuxVdev>,
    /// The claims on both, for a pool that is only read; a writer has its own.
    pub(crate) aside: Asides,
    pub(crate) checkpoint: Option<Uberblock>,
    pub(crate) errata: Option<Errata>,
    /// Txg of the newest uberblock on the devices, even if the pool was opened at an older one.
    pub(crate) newest: Txg,
    pub(crate) log_dropped: bool,
    pub(crate) writer: Option<PoolWriter>,
}

impl std::fmt::Debug for Spa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spa")
            .field("name", &self.name)
            .field("guid", &self.guid())
            .field("uberblock", &self.uberblock())
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}

impl Spa {
    /// The name under which it was imported (`spa_name`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid (`spa_guid`).
    pub fn guid(&self) -> Guid {
        self.config().pool_guid.unwrap_or(self.candidate.guid)
    }

    /// The handle for changes, if it is open for writing (`spa_writeable`).
    pub fn writer(&self) -> Option<&PoolWriter> {
        self.writer.as_ref()
    }

    /// Runs `read` while no operation changes datasets, so that everything it reads fits together
    /// (`dsl_pool_config_enter`).
    pub fn read<R>(&self, read: impl FnOnce() -> R) -> R {
        match &self.writer {
            Some(live) => live.read(|_| read()),
            None => read(),
        }
    }

    /// The pool as of its last txg.
    fn synced(&self) -> Synced {
        self.writer.as_ref().map_or_else(|| self.loaded.clone(), PoolWriter::synced)
    }

    /// Pool version: 1 to 28, or 5000 (`spa_version`).
    pub fn version(&self) -> u64 {
        self.uberblock().version
    }

    /// The trusted config from the MOS, with the paths at which the devices were found
    /// (`spa_config`).
    pub fn config(&self) -> Arc<RootedConfig> {
        self.synced().config
    }

    /// The candidate from which it was imported.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The uberblock of the last txg (`spa_ubsync`).
    pub fn uberblock(&self) -> Uberblock {
        self.synced().uberblock
    }

    /// The uberblock of the imported state; of a rewound pool, the one that it was rewound to.
    pub fn imported_uberblock(&self) -> &Uberblock {
        &self.loaded.uberblock
    }

    /// The last synced transaction group (`spa_last_synced_txg`).
    pub fn last_synced_txg(&self) -> Txg {
        self.uberblock().txg
    }

    /// The vdev tree as it is now (`spa_root_vdev`).
    pub fn tree(&self) -> Arc<Tree> {
        self.cache.zio().tree()
    }

    /// The paths of its devices whose file systems had no space for a write since errors were last
    /// cleared.
    pub fn without_room(&self) -> Vec<String> {
        crate::vdev_ops::reopen::without_room(&self.tree())
    }

    /// Whether everything can be read without these devices.
    pub fn can_spare(&self, devices: &[Guid]) -> bool {
        let config = self.config();
        let root = config.root();
        replicas::can_spare(&self.tree(), root, devices)
    }

    /// The cache through which all blocks are read; the pipeline is below it.
    pub fn cache(&self) -> &Arc<arc::Cache> {
        &self.cache
    }

    /// The meta object set (`spa_meta_objset`).
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// The pool's features with their reference counts; empty before version 5000.
    pub fn features(&self) -> Arc<Features> {
        self.synced().features
    }

    /// Hot spares (`spa_spares`).
    pub fn spares(&self) -> Vec<AuxVdev> {
        self.writer.as_ref().map_or_else(|| self.spares.clone(), |live| live.vdevs().aux().spares)
    }

    /// Bytes that a top-level vdev could grow by, since its devices have grown (`vs_esize`).
    pub fn room_to_grow(&self, top: &ondisk::VdevConfig) -> u64 {
        crate::vdev_ops::expand::room_to_grow(&self.tree(), top)
    }

    /// Cache devices (`spa_l2cache`).
    pub fn l2cache(&self) -> Vec<AuxVdev> {
        self.writer.as_ref().map_or_else(|| self.l2cache.clone(), |live| live.vdevs().aux().l2cache)
    }

    /// The uberblock of the pool's checkpoint, if it has one (`spa_checkpoint_txg`).
    pub fn checkpoint(&self) -> Option<Uberblock> {
        match &self.writer {
            Some(live) => live.checkpoints().uberblock(),
            None => self.checkpoint.clone(),
        }
    }

    /// Whether a checkpoint is being discarded (`CS_CHECKPOINT_DISCARDING`).
    pub fn is_discarding_checkpoint(&self) -> bool {
        match &self.writer {
            Some(live) => live.checkpoints().is_going(),
            None => self.checkpoint.is_none() && self.features().is_active("com.delphix:zpool_checkpoint"),
        }
    }

    /// A known defect of the pool (`spa_errata`).
    pub fn errata(&self) -> Option<Errata> {
        self.errata
    }

    /// Whether intent logs must be ignored, as log devices are missing or the pool was rewound
    /// (`SPA_LOG_CLEAR`).
    pub fn log_dropped(&self) -> bool {
        self.log_dropped
    }
}
