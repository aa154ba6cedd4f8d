//! An imported pool, read or written.
//!
//! # Theory
//! A pool that is only read stays what it was when it was loaded. One that is open for writing has a [`PoolWriter`] beside it, whose transaction
//! groups change it; what this type tells of it is as of the last group. The MOS is the same for both: readers of a pool that is
//! written see the group that is being synced too, and [`Spa::read`] lets them see it whole.

use std::sync::Arc;

use ondisk::{Guid, PoolConfig, Txg, Uberblock};
use pool::Mos;
use pool::config::Features;
use vdev::Tree;

use crate::aux_devices::Asides;
use crate::engine::{PoolWriter, Synced};
use crate::import::AuxVdev;
use crate::{Candidate, Errata};

/// A pool that is imported: everything that the rooms above ask for (`spa_t`). Its devices stay locked as long as it lives.
pub struct Spa {
    pub(crate) name: String,
    /// The name that its devices have.
    pub(crate) kept_name: String,
    pub(crate) candidate: Candidate,
    /// As it was loaded; a writer knows newer.
    pub(crate) loaded: Synced,
    /// Who reads ahead would keep the devices for a moment longer.
    pub(crate) _ahead: Option<arc::ReadingAhead>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) mos: Mos,
    pub(crate) spares: Vec<AuxVdev>,
    pub(crate) l2cache: Vec<AuxVdev>,
    /// What is held of both, of a pool that is only read; a writer has its own.
    pub(crate) aside: Asides,
    pub(crate) checkpoint: Option<Uberblock>,
    pub(crate) errata: Option<Errata>,
    /// Group of the newest uberblock that the devices held, though the pool may have been opened at an older one.
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
    /// The name that it was imported under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid.
    pub fn guid(&self) -> Guid {
        self.config().pool_guid.unwrap_or(self.candidate.guid)
    }

    /// What changes it, if it is open for writing (`spa_writeable`).
    pub fn writer(&self) -> Option<&PoolWriter> {
        self.writer.as_ref()
    }

    /// Runs `read` while no operation changes datasets, so that several things that it reads fit together
    /// (`dsl_pool_config_enter`).
    pub fn read<R>(&self, read: impl FnOnce() -> R) -> R {
        match &self.writer {
            Some(live) => live.read(|_| read()),
            None => read(),
        }
    }

    /// The pool as of its last group.
    fn synced(&self) -> Synced {
        self.writer.as_ref().map_or_else(|| self.loaded.clone(), PoolWriter::synced)
    }

    /// Pool version: 1 to 28, or 5000 (`spa_version`).
    pub fn version(&self) -> u64 {
        self.uberblock().version
    }

    /// The trusted config, as the MOS holds it, with the paths at which the devices were found (`spa_config`).
    pub fn config(&self) -> Arc<PoolConfig> {
        self.synced().config
    }

    /// What the search found it to be.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The uberblock of the last group (`spa_ubsync`).
    pub fn uberblock(&self) -> Uberblock {
        self.synced().uberblock
    }

    /// The uberblock of the state that was imported: of a pool that was rewound the one that it
    /// went back to.
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

    /// The paths of its devices behind which there was no room for a write, since errors were
    /// cleared last: the file system of an image is full.
    pub fn without_room(&self) -> Vec<String> {
        crate::engine::without_room(&self.tree())
    }

    /// Whether everything can be read without these devices, by what the others have.
    pub fn can_spare(&self, devices: &[Guid]) -> bool {
        let config = self.config();
        let root = config.vdev_tree.as_ref().expect("a pool that was loaded has a tree");
        crate::engine::can_spare(&self.tree(), root, devices)
    }

    /// The cache that all blocks are read through; the pipeline is below it.
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
        self.writer.as_ref().map_or_else(|| self.spares.clone(), |live| live.aux().spares)
    }

    /// Bytes that a top-level vdev could grow by, since its devices have (`vs_esize`).
    pub fn room_to_grow(&self, top: &ondisk::VdevConfig) -> u64 {
        crate::vdev_ops::expand::room_to_grow(&self.tree(), top)
    }

    /// Cache devices (`spa_l2cache`).
    pub fn l2cache(&self) -> Vec<AuxVdev> {
        self.writer.as_ref().map_or_else(|| self.l2cache.clone(), |live| live.aux().l2cache)
    }

    /// The uberblock of the pool's checkpoint, if it has one (`spa_checkpoint_txg`).
    pub fn checkpoint(&self) -> Option<Uberblock> {
        match &self.writer {
            Some(live) => live.checkpointed(),
            None => self.checkpoint.clone(),
        }
    }

    /// Whether what a checkpoint held is not all freed yet (`CS_CHECKPOINT_DISCARDING`).
    pub fn is_discarding_checkpoint(&self) -> bool {
        match &self.writer {
            Some(live) => live.is_discarding(),
            None => self.checkpoint.is_none() && self.features().is_active("com.delphix:zpool_checkpoint"),
        }
    }

    /// A known defect of the pool (`spa_errata`).
    pub fn errata(&self) -> Option<Errata> {
        self.errata
    }

    /// Whether intent logs must not be looked at, as log devices are missing or the pool was rewound (`SPA_LOG_CLEAR`).
    pub fn log_dropped(&self) -> bool {
        self.log_dropped
    }
}
