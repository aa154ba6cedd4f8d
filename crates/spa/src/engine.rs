//! The pool being written: what a transaction group does when it syncs.
//!
//! # Theory
//! A group is synced in passes. The first writes what people changed: each dirty dataset bottom-up, then the operations on
//! datasets ([`dsl::SyncTask`]), then the pool's own books. All of that changes the MOS, and writing the MOS allocates and frees
//! space, which changes space maps, which are objects of the MOS: so passes go on until one leaves nothing to do. They converge since from
//! the second pass on a block that was born in this group is overwritten where it is, and what is freed then is put on a list
//! (`sync_bplist`) whose blocks are really freed in the next group's first pass.
//!
//! # Crash
//! Nothing that the last uberblock reaches is overwritten: blocks are written where nothing was, and freed ones are not
//! given out again for two groups. When everything is on the devices, they are flushed, and only then labels and uberblocks follow
//! ([`labels`]). So at any moment the newest uberblock that verifies describes a whole state.
//!
//! # Locks
//! `config` is held exclusively while operations change datasets, and shared by whoever reads several things of them that must
//! fit together. It is taken before any lock of the rooms below. Nothing is held while labels are written.
//!
//! # See
//! OpenZFS `spa_sync`, `spa_sync_iterate_to_convergence`, `dsl_pool_sync`.

pub(crate) mod checkpoint;
pub(crate) mod claim;
pub(crate) mod identity;
pub(crate) mod logs;
pub(crate) mod mmp;
pub(crate) mod open;
pub(crate) mod pool_writer;
pub(crate) mod props;
pub(crate) mod prune;

use std::collections::VecDeque;
use std::sync::Arc;

use device::{Clock, Layer, SystemClock};
use dsl::Dsl;
use dsl::sync::Event;
use ondisk::{Nvlist, ObjNum, PoolConfig, Txg, Uberblock};
use parking_lot::{Mutex, RwLock};
use pool::Mos;
use pool::alloc::Allocator;
use pool::config::Features;
use vdev::Tree;

use crate::aux_devices::Asides;
use crate::txg::TXG_SIZE;

pub(crate) use checkpoint::decode as decode_checkpoint;
pub use checkpoint::{CheckpointError, DISCARD_MEMORY};
pub use logs::LogHandle;
pub use open::WriteRefusal;
pub(crate) use pool_writer::without_room;
pub use pool_writer::{ClearError, PoolWriter, TaskError};
pub use props::PoolProp;
pub use prune::Prune;
pub use zio::{FailMode, Reason};

pub use crate::device_monitor::deadman::{
    CHECK_MS as DEADMAN_CHECK_MS, ENABLED as DEADMAN_ENABLED, FAILMODE as DEADMAN_FAILMODE,
    HANGS_MS as DEADMAN_HANGS_MS, SYNC_MS as DEADMAN_SYNC_MS,
};
pub use crate::initialize_trim::{CHUNK, TRIM_BATCH, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE};
pub use crate::initialize_trim::{WorkCommand, WorkKind, WorkNotice, WorkRefusal, WorkStat, WorkState};
pub use crate::scan::rebuild::{REBUILD_MAX_SEGMENT, REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT, RebuildStat};
pub use crate::scan::{
    DEFER_PERCENT, RESILVER_MIN_TIME, RESILVER_MS, SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT,
    SCAN_SUSPEND_PROGRESS, SCAN_VDEV_BYTES, SCAN_VDEV_LIMIT, SCRUB_MIN_TIME, SCRUB_MS, ScanCommand, ScanDone,
    ScanNotice, ScanRefusal, ScanStat,
};
pub use crate::sync::FREE_BUDGET;
pub(crate) use crate::sync::labels::SPA_VERSION;
pub(crate) use crate::sync::pool_metadata::add_vdevs;
pub use crate::sync::tasks::Ticket;
pub use crate::vdev_ops::attach::AttachTerms;
pub(crate) use crate::vdev_ops::aux_vdevs::Aux;
pub use crate::vdev_ops::online_offline::{LifeError, Verdict};
pub(crate) use crate::vdev_ops::pool_tasks::PoolTask;
pub use crate::vdev_ops::pool_tasks::{AddTerms, ShapeError};
pub(crate) use crate::vdev_ops::replicas::can_spare;
pub use crate::vdev_ops::split::{SplitError, SplitTerms};
pub use crate::vdev_ops::vdev_props::VdevValue;

/// More passes than any group needs: it is a defect of ours not to converge (`zfs_sync_pass_*` are single digits).
pub(crate) const MAX_PASSES: u32 = 64;
/// From this pass on what the MOS frees is put off to the next group (`zfs_sync_pass_deferred_free`).
pub(crate) const DEFERRED_FREE_PASS: u32 = 2;

/// What the outside world gives an engine; a test owns it.
pub trait World: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// The same as precisely as it is known: for what people compare with other clocks.
    fn wall(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.now())
    }
    /// A random number.
    fn random(&self) -> u64;
    /// Bytes of memory that the engine may reckon with.
    fn memory(&self) -> u64;
    /// What is put around devices that the engine opens itself: those that come back, that take others' places, and cache devices.
    fn layer(&self) -> Layer {
        Layer::default()
    }
    /// What scans measure by how long devices take, and wait for their turn; each engine asks once.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock::default())
    }
}

/// The system's clock, random numbers and memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemWorld;

/// Why a group could not be synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A dataset or an operation on one.
    #[error("transaction group {txg}: datasets")]
    Datasets {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: dsl::Error,
    },
    /// The log of a dataset.
    #[error("transaction group {txg}: an intent log")]
    Log {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: zil::Error,
    },
    /// The pool's own books.
    #[error("transaction group {txg}: the pool's books")]
    Books {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: pool::Error,
    },
    /// The MOS.
    #[error("transaction group {txg}: the meta object set")]
    Mos {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: dmu::Error,
    },
    /// A block that is freed.
    #[error("transaction group {txg}: freeing")]
    Free {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: zio::Error,
    },
    /// What was held of its metadata.
    #[error("transaction group {txg}: writing metadata")]
    Write {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: zio::Error,
    },
    /// Devices could not make their writes durable.
    #[error("transaction group {txg}: flushing")]
    Flush {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: vdev::FlushError,
    },
    /// Too few devices took the labels or the uberblock.
    #[error("transaction group {txg}: {written} of {wanted} devices took the {what}")]
    Labels {
        /// The group.
        txg: Txg,
        /// `labels` or `uberblock`.
        what: &'static str,
        /// Devices that took it.
        written: usize,
        /// Devices that should have.
        wanted: usize,
    },
    /// A change of the pool's shape that was found good when it was asked for.
    #[error("transaction group {txg}: the tree of vdevs")]
    Shape {
        /// The group.
        txg: Txg,
        /// Why.
        #[source]
        source: vdev::VdevError,
    },
    /// The pool was suspended and then let go.
    #[error("transaction group {txg}: given up, as the pool is suspended")]
    LetGo {
        /// The group.
        txg: Txg,
    },
    /// The passes did not converge.
    #[error("transaction group {txg}: no end after {MAX_PASSES} passes")]
    Endless {
        /// The group.
        txg: Txg,
    },
}

/// What a sync changes of the pool as its readers see it.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    pub(crate) uberblock: Uberblock,
    pub(crate) config: Arc<PoolConfig>,
    pub(crate) features: Arc<Features>,
}

/// The config that is not the pool's yet.
#[derive(Debug, Default)]
pub(crate) struct ChangedConfig {
    /// What the next group writes.
    pub(crate) next: Option<Arc<PoolConfig>>,
    /// What the group that is just being committed writes: who changes the config meanwhile begins with this, or its changes were lost.
    pub(crate) committing: Option<Arc<PoolConfig>>,
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) tree: Arc<Tree>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) world: Arc<dyn World>,
    /// Salt of the salted checksums.
    pub(crate) salt: [u8; 32],
    pub(crate) scan: crate::scan::Scan,
}

/// A pool being written.
pub(crate) struct Engine {
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    /// The MOS and the datasets as callers read them: their reads fail when devices do.
    pub(crate) mos: Mos,
    pub(crate) dsl: Dsl,
    /// The same for the sync of a group. That can't be done again: what it reads waits for devices
    /// that fail, and for blocks that are damaged.
    pub(crate) sync_mos: Mos,
    pub(crate) sync_dsl: Dsl,
    /// The same for what a sync can do without when it is damaged, such as an operation that is
    /// checked.
    pub(crate) check_dsl: Dsl,
    pub(crate) shared: crate::sync::dedup_and_clones::Shared,
    /// The pool as its last uberblock has it.
    pub(crate) synced: RwLock<Synced>,
    /// See the module's lock order.
    pub(crate) config: RwLock<()>,
    /// What the next group writes to the MOS and to all labels.
    pub(crate) changed_config: Mutex<ChangedConfig>,
    /// What each leaf's dirty time log says on disk.
    pub(crate) dtls: Mutex<crate::sync::dtl::Written>,
    /// Operations by group.
    pub(crate) tasks: [Mutex<Vec<crate::sync::tasks::Queued>>; TXG_SIZE],
    /// The list of blocks that are freed in the next group (`spa_deferred_bpobj`).
    pub(crate) deferred: ObjNum,
    pub(crate) world: Arc<dyn World>,
    pub(crate) ratios: Mutex<std::collections::BTreeMap<ondisk::VdevId, u64>>,
    pub(crate) heart: mmp::Heart,
    /// When it was made.
    pub(crate) began: std::time::Instant,
    /// Destroyed datasets are not all freed yet.
    pub(crate) to_free: std::sync::atomic::AtomicBool,
    /// Operations wait for the next group, and for space that becomes free with it.
    pub(crate) retries: std::sync::atomic::AtomicBool,
    /// How many batches of operations there were.
    pub(crate) batches: std::sync::atomic::AtomicU64,
    /// Blocks that claimed logs refer to from the next group on.
    pub(crate) claimed: Mutex<Vec<ondisk::Blkptr>>,
    /// Blocks of logs that are freed with a group.
    pub(crate) log_frees: [Mutex<Vec<ondisk::Blkptr>>; TXG_SIZE],
    /// Commands that the history is to tell of.
    pub(crate) commands: Mutex<Vec<Command>>,
    /// What the history is to tell with the next group, of what was done outside of groups.
    pub(crate) announced: Mutex<Vec<Event>>,
    /// What the history was told of operations, for whoever wants to know.
    pub(crate) recorded: Mutex<VecDeque<Recorded>>,
    /// Hot spares and cache devices.
    pub(crate) aux: RwLock<crate::vdev_ops::aux_vdevs::Aux>,
    /// What is held of them.
    pub(crate) aside: Mutex<Asides>,
    /// The generation of properties of which the cache was told what goes to cache devices.
    pub(crate) seconds_as_of: std::sync::atomic::AtomicU64,
    /// The logs of datasets that are changed.
    pub(crate) logs: logs::Logs,
    /// Changes of the pool as a whole, by group.
    pub(crate) pool_tasks: [Mutex<Vec<crate::vdev_ops::pool_tasks::Queued>>; TXG_SIZE],
    /// Those that are done before anything else in their group.
    pub(crate) early_tasks: [Mutex<Vec<crate::vdev_ops::pool_tasks::Queued>>; TXG_SIZE],
    pub(crate) checkpoint: checkpoint::Checkpoint,
    /// Devices that are offline until the next import (`vdev_tmpoffline`).
    pub(crate) offline_for_now: Mutex<std::collections::HashSet<ondisk::Guid>>,
    /// Held while a tree takes the place of another.
    pub(crate) placing: Mutex<()>,
    /// Held while devices that are in the tree, but not open, are opened.
    pub(crate) reopening: Mutex<()>,
    /// What is done to what is free on devices.
    pub(crate) works: crate::initialize_trim::LeafWorks,
    pub(crate) errands: crate::device_monitor::Errands,
    pub(crate) deadman: crate::device_monitor::deadman::Deadman,
    /// What the next group does to the logs of damaged blocks.
    pub(crate) errors: crate::sync::error_log::ErrorLogs,
    /// Scrub and resilver.
    pub(crate) scan: crate::scan::Scan,
    /// What scans measure time by.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rebuilds: crate::scan::rebuild::Rebuilds,
    /// Held by whoever changes the pool's shape, from its look at the pool until the change is on disk: taken before anything else.
    pub(crate) shape: Mutex<()>,
}

/// Records that are kept until somebody takes them.
pub(crate) const RECORDED: usize = 1024;

/// What the history was told of an operation (`ESC_ZFS_HISTORY_EVENT`).
#[derive(Debug, Clone)]
pub struct Recorded {
    /// When.
    pub at: std::time::SystemTime,
    /// The record.
    pub record: Nvlist,
}

/// A command that somebody gave.
pub(crate) struct Command {
    pub(crate) line: String,
    pub(crate) uid: u32,
}

impl World for SystemWorld {
    fn now(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    fn wall(&self) -> std::time::SystemTime {
        std::time::SystemTime::now()
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the system gives random numbers")
    }

    fn memory(&self) -> u64 {
        crate::discovery::host::memory()
    }
}
