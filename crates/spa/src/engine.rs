//! The engine: a pool that is open for writing, and its operations.
//!
//! `Engine` holds the state that the sync, scans and vdev operations share. [`PoolWriter`] is the
//! handle for callers. The submodules open a pool for writing (`open`, `claim`), and hold its
//! intent logs, properties, checkpoint and multihost activity. `crate::sync` syncs its transaction
//! groups.
//!
//! # Theory
//! A txg is synced in passes. The first pass writes what callers changed: each dirty dataset
//! bottom-up, then the operations on datasets ([`dsl::SyncTask`]), then the pool metadata. All of
//! that changes the MOS. Writing the MOS allocates and frees space, and so changes space maps,
//! which are objects of the MOS. So passes follow until one leaves nothing to do.
//!
//! The passes converge. From the second pass on, a block born in this txg is overwritten in place.
//! Frees go to a list then (`sync_bplist`), and the next txg's first pass frees these blocks.
//!
//! # Crash
//! Nothing that the last uberblock reaches is overwritten: blocks go to free space, and freed space
//! is not reused for two txgs. After all writes the devices are flushed; only then labels and
//! uberblocks follow (`sync::labels`). So at any moment the newest valid uberblock describes a
//! whole state.
//!
//! # Locks
//! `config` is held exclusively while operations change datasets. Readers hold it shared if they
//! read several things that must fit together. It is taken before any lock of the crates below.
//! Nothing is held while labels are written.
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

/// More passes than any txg needs: not to converge is a defect (the `zfs_sync_pass_*` are single
/// digits).
pub(crate) const MAX_PASSES: u32 = 64;
/// From this pass on, frees of the MOS wait for the next txg (`zfs_sync_pass_deferred_free`).
pub(crate) const DEFERRED_FREE_PASS: u32 = 2;

/// The environment of an engine; tests provide their own.
pub trait World: Send + Sync {
    /// Seconds since 1970.
    fn now(&self) -> u64;
    /// The current time with full precision, for comparison with other clocks.
    fn wall(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.now())
    }
    /// A random number.
    fn random(&self) -> u64;
    /// Bytes of memory that the engine may use.
    fn memory(&self) -> u64;
    /// The layer around devices that the engine itself opens: reopened devices, replacements and
    /// cache devices.
    fn layer(&self) -> Layer {
        Layer::default()
    }
    /// The clock by which scans measure devices and wait; each engine calls this once.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock::default())
    }
}

/// The system's clock, random numbers and memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemWorld;

/// Why a transaction group could not be synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A dataset, or an operation on one, failed.
    #[error("transaction group {txg}: datasets")]
    Datasets {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: dsl::Error,
    },
    /// The intent log of a dataset failed.
    #[error("transaction group {txg}: an intent log")]
    Log {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zil::Error,
    },
    /// The pool metadata could not be read or written.
    #[error("transaction group {txg}: the pool's books")]
    Books {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: pool::Error,
    },
    /// The MOS could not be read or written.
    #[error("transaction group {txg}: the meta object set")]
    Mos {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: dmu::Error,
    },
    /// A block could not be freed.
    #[error("transaction group {txg}: freeing")]
    Free {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zio::Error,
    },
    /// A deferred metadata write failed.
    #[error("transaction group {txg}: writing metadata")]
    Write {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: zio::Error,
    },
    /// Devices could not make their writes durable.
    #[error("transaction group {txg}: flushing")]
    Flush {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: vdev::FlushError,
    },
    /// Too few devices took the labels or the uberblock.
    #[error("transaction group {txg}: {written} of {wanted} devices took the {what}")]
    Labels {
        /// The transaction group.
        txg: Txg,
        /// `labels` or `uberblock`.
        what: &'static str,
        /// Devices that took it.
        written: usize,
        /// Devices that should have.
        wanted: usize,
    },
    /// A change of the vdev tree failed, although its check had passed.
    #[error("transaction group {txg}: the tree of vdevs")]
    Shape {
        /// The transaction group.
        txg: Txg,
        /// The cause.
        #[source]
        source: vdev::VdevError,
    },
    /// The pool was suspended and then released.
    #[error("transaction group {txg}: given up, as the pool is suspended")]
    LetGo {
        /// The transaction group.
        txg: Txg,
    },
    /// The passes did not converge.
    #[error("transaction group {txg}: no end after {MAX_PASSES} passes")]
    Endless {
        /// The transaction group.
        txg: Txg,
    },
}

/// The state of the pool that a sync changes for readers.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    pub(crate) uberblock: Uberblock,
    pub(crate) config: Arc<PoolConfig>,
    pub(crate) features: Arc<Features>,
}

/// Changes of the config that are not synced yet.
#[derive(Debug, Default)]
pub(crate) struct ChangedConfig {
    /// What the next txg writes.
    pub(crate) next: Option<Arc<PoolConfig>>,
    /// What the txg that is being committed writes. A change of the config meanwhile begins with
    /// this, or these changes would be lost.
    pub(crate) committing: Option<Arc<PoolConfig>>,
}

/// The parts of an engine.
pub(crate) struct Parts {
    pub(crate) tree: Arc<Tree>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) world: Arc<dyn World>,
    /// Salt of the salted checksums.
    pub(crate) salt: [u8; 32],
    pub(crate) scan: crate::scan::Scan,
}

/// A pool that is open for writing.
pub(crate) struct Engine {
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    /// The MOS and the datasets for callers: their reads fail if devices do.
    pub(crate) mos: Mos,
    pub(crate) dsl: Dsl,
    /// The same for the sync of a txg. The sync can't be repeated, so its reads wait for devices
    /// that fail, and for damaged blocks.
    pub(crate) sync_mos: Mos,
    pub(crate) sync_dsl: Dsl,
    /// The same for what a sync can do without if it is damaged, such as the check of an operation.
    pub(crate) check_dsl: Dsl,
    pub(crate) shared: crate::sync::dedup_and_clones::Shared,
    /// The pool as of its last uberblock.
    pub(crate) synced: RwLock<Synced>,
    /// See the module's lock order.
    pub(crate) config: RwLock<()>,
    /// What the next txg writes to the MOS and to all labels.
    pub(crate) changed_config: Mutex<ChangedConfig>,
    /// Each leaf's dirty time log as it is on disk.
    pub(crate) dtls: Mutex<crate::sync::dtl::Written>,
    /// Operations by txg.
    pub(crate) tasks: [Mutex<Vec<crate::sync::tasks::Queued>>; TXG_SIZE],
    /// The list of blocks to free in the next txg (`spa_deferred_bpobj`).
    pub(crate) deferred: ObjNum,
    pub(crate) world: Arc<dyn World>,
    pub(crate) ratios: Mutex<std::collections::BTreeMap<ondisk::VdevId, u64>>,
    pub(crate) heart: mmp::Heart,
    /// When the engine was made.
    pub(crate) began: std::time::Instant,
    /// Destroyed datasets are not all freed yet.
    pub(crate) to_free: std::sync::atomic::AtomicBool,
    /// Operations wait for the next txg and the space that it frees.
    pub(crate) retries: std::sync::atomic::AtomicBool,
    /// Number of batches of operations.
    pub(crate) batches: std::sync::atomic::AtomicU64,
    /// Blocks that claimed logs reference from the next txg on.
    pub(crate) claimed: Mutex<Vec<ondisk::Blkptr>>,
    /// Log blocks to free, by txg.
    pub(crate) log_frees: [Mutex<Vec<ondisk::Blkptr>>; TXG_SIZE],
    /// Commands for the history.
    pub(crate) commands: Mutex<Vec<Command>>,
    /// Events outside of txgs that the next txg writes to the history.
    pub(crate) announced: Mutex<Vec<Event>>,
    /// The history records of operations, for [`PoolWriter::take_recorded`].
    pub(crate) recorded: Mutex<VecDeque<Recorded>>,
    /// Hot spares and cache devices.
    pub(crate) aux: RwLock<crate::vdev_ops::aux_vdevs::Aux>,
    /// The claims on these devices.
    pub(crate) aside: Mutex<Asides>,
    /// The generation of properties from which the cache knows what may go to cache devices.
    pub(crate) seconds_as_of: std::sync::atomic::AtomicU64,
    /// The intent logs of open datasets.
    pub(crate) logs: logs::Logs,
    /// Changes of the pool as a whole, by txg.
    pub(crate) pool_tasks: [Mutex<Vec<crate::vdev_ops::pool_tasks::Queued>>; TXG_SIZE],
    /// Those that come before anything else in their txg.
    pub(crate) early_tasks: [Mutex<Vec<crate::vdev_ops::pool_tasks::Queued>>; TXG_SIZE],
    pub(crate) checkpoint: checkpoint::Checkpoint,
    /// Devices that are offline until the next import (`vdev_tmpoffline`).
    pub(crate) offline_for_now: Mutex<std::collections::HashSet<ondisk::Guid>>,
    /// Held while one tree replaces another.
    pub(crate) placing: Mutex<()>,
    /// Held while closed devices of the tree are opened.
    pub(crate) reopening: Mutex<()>,
    /// Initialization and trim of devices.
    pub(crate) works: crate::initialize_trim::LeafWorks,
    pub(crate) errands: crate::device_monitor::Errands,
    pub(crate) deadman: crate::device_monitor::deadman::Deadman,
    /// The changes that the next txg makes to the error logs.
    pub(crate) errors: crate::sync::error_log::ErrorLogs,
    /// Scrub and resilver.
    pub(crate) scan: crate::scan::Scan,
    /// The clock of scans.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rebuilds: crate::scan::rebuild::Rebuilds,
    /// Held during a change of the vdev tree, from its check until the change is on disk. Taken
    /// before any other lock.
    pub(crate) shape: Mutex<()>,
}

/// History records that are kept until a caller takes them.
pub(crate) const RECORDED: usize = 1024;

/// A history record of an operation (`ESC_ZFS_HISTORY_EVENT`).
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Time of the record.
    pub at: std::time::SystemTime,
    /// The record.
    pub record: Nvlist,
}

/// A user's command.
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
