//! Operations on a pool's devices: `zpool add`, `attach`, `replace`, `detach`, `remove`, `split`,
//! `online`, `offline` and `reopen`.
//!
//! # Theory
//! An operation is checked while its caller waits, and then queued for a transaction group
//! ([`crate::pool_core::pool_tasks`]). The txg changes the config and the vdev tree together, so
//! that labels and uberblocks of one state fit together.
//!
//! # See
//! OpenZFS `module/zfs/spa.c` (`spa_vdev_add`, `spa_vdev_attach`, `spa_vdev_detach`),
//! `vdev_removal.c`, `vdev.c` (`vdev_offline`, `vdev_online`).

pub(crate) mod add;
pub(crate) mod attach;
pub(crate) mod aux_vdevs;
pub(crate) mod blank_check;
pub(crate) mod error_limits;
pub(crate) mod expand;
pub(crate) mod log_removal;
pub(crate) mod online_offline;
pub(crate) mod reopen;
pub(crate) mod replicas;
pub(crate) mod split;
pub(crate) mod vdev_objects;
pub(crate) mod vdev_props;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use observe::lock::Mutex;
use ondisk::Guid;

use crate::aux_devices::Asides;
use crate::checkpoint;
use crate::initialize_trim::InitializeTrim;
use crate::intent_logs::IntentLogs;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::ShapeError;
use crate::scan::Scans;

/// The operations on the vdevs of an open pool.
pub struct Vdevs {
    core: Arc<PoolCore>,
    scans: Arc<Scans>,
    works: Arc<InitializeTrim>,
    logs: Arc<IntentLogs>,
    /// The claims on hot spares and cache devices.
    pub(crate) aside: Mutex<Asides>,
    /// The generation of properties from which the cache knows what may go to cache devices.
    cache_as_of: AtomicU64,
    /// Devices that are offline until the next import (`vdev_tmpoffline`).
    offline_for_now: Mutex<HashSet<Guid>>,
    /// Held while closed devices of the tree are opened.
    reopening: Mutex<()>,
}

impl Vdevs {
    pub(crate) fn new(
        core: Arc<PoolCore>,
        scans: Arc<Scans>,
        works: Arc<InitializeTrim>,
        logs: Arc<IntentLogs>,
    ) -> Vdevs {
        let (aside, cache_as_of) = (Mutex::default(), AtomicU64::default());
        let (offline_for_now, reopening) = (Mutex::default(), Mutex::default());
        Vdevs { core, scans, works, logs, aside, cache_as_of, offline_for_now, reopening }
    }

    /// Refuses changes of the vdev tree that a checkpoint forbids.
    fn shape_is_free(&self) -> Result<(), ShapeError> {
        checkpoint::shape_is_free(&self.core.mos)
    }
}
