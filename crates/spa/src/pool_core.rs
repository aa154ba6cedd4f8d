//! What all parts of a pool that is open for writing share.
//!
//! [`PoolCore`] has the cache, the allocator, the MOS and the datasets, and the pool's config. The
//! other parts hold a reference to it, and have their own state: scans ([`crate::scan`]), vdev
//! operations ([`crate::vdev_ops`]), initialize and TRIM ([`crate::initialize_trim`]), the device
//! monitor, the intent logs, the checkpoint, and the sync of transaction groups ([`crate::sync`]).
//! [`crate::engine::PoolWriter`] puts them together.
//!
//! | module | what it holds |
//! |---|---|
//! | [`state`] | the types of its state |
//! | [`config`] | the config and the vdev tree, and their changes |
//! | [`history`] | records of the pool's history |
//! | [`aux_lists`] | the lists of hot spares and cache devices |
//! | [`props`] | properties of the pool that its parts obey |
//! | [`labels`] | writing to the labels of devices |
//! | [`pool_tasks`] | changes of the pool as a whole, by txg |
//! | [`space`] | the space that a block takes |
//! | [`errors`] | why a change or a txg fails |
//! | [`world`] | clock, random numbers and memory |
//!
//! # Locks
//! `shape` is held during a change of the vdev tree, from its check until the change is on disk. It
//! is taken before any other lock.
//!
//! `datasets` is held exclusively while operations change datasets. Readers hold it shared if they
//! read several things that must fit together. It is taken before any lock of the crates below.
//! Nothing is held while labels are written.

pub(crate) mod aux_lists;
pub(crate) mod config;
pub(crate) mod errors;
pub(crate) mod history;
pub(crate) mod labels;
pub(crate) mod pool_tasks;
pub(crate) mod props;
pub(crate) mod space;
pub(crate) mod state;
pub(crate) mod world;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use device::Clock;
use dsl::Dsl;
use observe::lock::{Mutex, RwLock};
use ondisk::{Guid, VdevId};
use pool::Mos;
use pool::alloc::Allocator;
use vdev::{Tree, TxgRanges};
use zio::{IoFlags, ReadOptions};

use crate::error_log::ErrorLogs;
use crate::multihost::Heart;
use crate::pool_core::state::{AuxLists, ChangedConfig, History, PoolTasks, Synced};
use crate::pool_core::world::World;
use crate::txg::TxgHandle;

/// What all parts of an open pool share.
pub(crate) struct PoolCore {
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) world: Arc<dyn World>,
    /// The clock of scans.
    pub(crate) clock: Arc<dyn Clock>,
    /// When the pool was opened.
    began: Instant,
    /// The MOS and the datasets for callers: their reads fail if devices do.
    pub(crate) mos: Mos,
    pub(crate) dsl: Dsl,
    /// The same for the sync of a txg. The sync can't be repeated, so its reads wait for devices
    /// that fail, and for damaged blocks.
    pub(crate) sync_mos: Mos,
    pub(crate) sync_dsl: Dsl,
    /// The same for what a sync can do without if it is damaged, such as the check of an operation.
    pub(crate) check_dsl: Dsl,
    /// See the module's locks.
    pub(crate) datasets: RwLock<()>,
    /// See the module's locks.
    pub(crate) shape: Mutex<()>,
    /// The pool as of its last uberblock.
    pub(crate) synced: RwLock<Synced>,
    /// What the next txg writes to the MOS and to all labels.
    pub(crate) changed_config: Mutex<ChangedConfig>,
    /// Held while one tree replaces another.
    pub(crate) placing: Mutex<()>,
    /// Hot spares and cache devices.
    pub(crate) aux: RwLock<AuxLists>,
    /// Each leaf's dirty time log as it is on disk.
    pub(crate) dtls: Mutex<HashMap<Guid, TxgRanges>>,
    /// The deflate ratios of top-level vdevs.
    pub(crate) ratios: Mutex<BTreeMap<VdevId, u64>>,
    pub(crate) heart: Heart,
    /// The changes that the next txg makes to the error logs.
    pub(crate) error_logs: ErrorLogs,
    pub(crate) history: History,
    pub(crate) pool_tasks: PoolTasks,
    /// The device monitor is to detach replaced devices whose resilver is done.
    pub(crate) replacements_end: AtomicBool,
    txgs: OnceLock<TxgHandle>,
}

impl PoolCore {
    /// The core of a pool that was loaded, or that is being created.
    pub(crate) fn new(
        cache: Arc<arc::Cache>,
        allocator: Arc<Allocator>,
        world: Arc<dyn World>,
        mos: Mos,
        dsl: Dsl,
        loaded: Synced,
    ) -> PoolCore {
        let config = loaded.config.clone();
        let tree = cache.zio().tree();
        let leaves = config.root().leaves();
        let dtls = leaves.filter_map(|leaf| Some((leaf.guid, tree.dtl(leaf.guid).ok()?))).collect();
        let sync = ReadOptions::sync();
        let check = sync.with(IoFlags::CAN_FAIL);
        PoolCore {
            cache,
            allocator,
            clock: world.clock(),
            world,
            began: Instant::now(),
            sync_mos: mos.with_options(&sync),
            sync_dsl: dsl.with_options(&sync),
            check_dsl: dsl.with_options(&check),
            mos,
            dsl,
            datasets: RwLock::default(),
            shape: Mutex::default(),
            heart: Heart::new(loaded.uberblock.clone()),
            synced: RwLock::new(loaded),
            // The first txg after an open brings all labels up to date.
            changed_config: Mutex::new(ChangedConfig { next: Some(config), committing: None }),
            placing: Mutex::default(),
            aux: RwLock::default(),
            dtls: Mutex::new(dtls),
            ratios: Mutex::default(),
            error_logs: ErrorLogs::default(),
            history: History::default(),
            pool_tasks: PoolTasks::default(),
            replacements_end: AtomicBool::default(),
            txgs: OnceLock::new(),
        }
    }

    /// Passes the transaction groups on to all parts, when these have started.
    pub(crate) fn set_txgs(&self, txgs: TxgHandle) {
        let _ = self.txgs.set(txgs);
    }

    /// The transaction groups.
    ///
    /// # Panics
    /// If they have not started. Only the code that opens the pool runs before that.
    pub(crate) fn txgs(&self) -> &TxgHandle {
        self.txgs.get().expect("the transaction groups start before the pool is used")
    }

    /// The vdev tree as it is now.
    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.cache.zio().tree()
    }

    /// Time since a fixed moment, for the multihost heartbeat.
    pub(crate) fn uptime(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    /// Requests that the device monitor detaches replaced devices whose resilver is done. Does not
    /// wait.
    pub(crate) fn request_end_of_replacements(&self) {
        self.replacements_end.store(true, std::sync::atomic::Ordering::Relaxed);
        self.tree().bell().ring();
    }
}
