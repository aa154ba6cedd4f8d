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

mod attach;
mod aux;
mod books;
mod checkpoint;
mod claim;
mod deadman;
mod dtl;
mod errands;
mod errlog;
mod familiar;
pub(crate) mod growth;
mod identity;
mod labels;
mod leaf_work;
mod life;
mod live;
mod log_removal;
mod logs;
mod mmp;
mod open;
mod policy;
mod props;
mod prune;
mod rebuild;
mod reopen;
mod replicas;
mod retire;
mod returns;
mod scan;
mod shape;
mod shared;
mod split;
mod sync;
mod tasks;
mod vdev_props;

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

use crate::aside::Asides;
use crate::txg::TXG_SIZE;

pub use attach::AttachTerms;
pub(crate) use aux::Aux;
pub(crate) use books::add_vdevs;
pub(crate) use checkpoint::decode as decode_checkpoint;
pub use checkpoint::{CheckpointError, DISCARD_MEMORY};
pub use deadman::{
    CHECK_MS as DEADMAN_CHECK_MS, ENABLED as DEADMAN_ENABLED, FAILMODE as DEADMAN_FAILMODE,
    HANGS_MS as DEADMAN_HANGS_MS, SYNC_MS as DEADMAN_SYNC_MS,
};
pub(crate) use labels::SPA_VERSION;
pub use leaf_work::{CHUNK, TRIM_BATCH, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE};
pub use leaf_work::{WorkCommand, WorkKind, WorkNotice, WorkRefusal, WorkStat, WorkState};
pub use life::{LifeError, Verdict};
pub(crate) use live::without_room;
pub use live::{ClearError, Live, TaskError};
pub use logs::LogHandle;
pub use open::WriteRefusal;
pub use props::PoolProp;
pub use prune::Prune;
pub use rebuild::{REBUILD_MAX_SEGMENT, REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT, RebuildStat};
pub(crate) use replicas::can_spare;
pub use scan::{
    DEFER_PERCENT, RESILVER_MIN_TIME, RESILVER_MS, SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT,
    SCAN_SUSPEND_PROGRESS, SCAN_VDEV_BYTES, SCAN_VDEV_LIMIT, SCRUB_MIN_TIME, SCRUB_MS, ScanCommand, ScanDone,
    ScanNotice, ScanRefusal, ScanStat,
};
use shape::PoolTask;
pub use shape::{AddTerms, ShapeError};
pub use split::{SplitError, SplitTerms};
pub use sync::FREE_BUDGET;
pub use tasks::Ticket;
pub use vdev_props::VdevValue;
pub use zio::{FailMode, Reason};

/// More passes than any group needs: it is a defect of ours not to converge (`zfs_sync_pass_*` are single digits).
const MAX_PASSES: u32 = 64;
/// From this pass on what the MOS frees is put off to the next group (`zfs_sync_pass_deferred_free`).
const DEFERRED_FREE_PASS: u32 = 2;

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
    next: Option<Arc<PoolConfig>>,
    /// What the group that is just being committed writes: who changes the config meanwhile begins with this, or its changes were lost.
    committing: Option<Arc<PoolConfig>>,
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) tree: Arc<Tree>,
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) world: Arc<dyn World>,
    /// Salt of the salted checksums.
    pub(crate) salt: [u8; 32],
    scan: scan::Scan,
}

/// A pool being written.
pub(crate) struct Engine {
    pub(crate) cache: Arc<arc::Cache>,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) mos: Mos,
    pub(crate) dsl: Dsl,
    shared: shared::Shared,
    /// The pool as its last uberblock has it.
    pub(crate) synced: RwLock<Synced>,
    /// See the module's lock order.
    pub(crate) config: RwLock<()>,
    /// What the next group writes to the MOS and to all labels.
    pub(crate) changed_config: Mutex<ChangedConfig>,
    /// What each leaf's dirty time log says on disk.
    dtls: Mutex<dtl::Written>,
    /// Operations by group.
    pub(crate) tasks: [Mutex<Vec<tasks::Queued>>; TXG_SIZE],
    /// The list of blocks that are freed in the next group (`spa_deferred_bpobj`).
    deferred: ObjNum,
    world: Arc<dyn World>,
    ratios: Mutex<std::collections::BTreeMap<ondisk::VdevId, u64>>,
    heart: mmp::Heart,
    /// When it was made.
    began: std::time::Instant,
    /// Destroyed datasets are not all freed yet.
    to_free: std::sync::atomic::AtomicBool,
    /// Operations wait for the next group, and for space that becomes free with it.
    retries: std::sync::atomic::AtomicBool,
    /// How many batches of operations there were.
    batches: std::sync::atomic::AtomicU64,
    /// Blocks that claimed logs refer to from the next group on.
    claimed: Mutex<Vec<ondisk::Blkptr>>,
    /// Blocks of logs that are freed with a group.
    log_frees: [Mutex<Vec<ondisk::Blkptr>>; TXG_SIZE],
    /// Commands that the history is to tell of.
    commands: Mutex<Vec<Command>>,
    /// What the history is to tell with the next group, of what was done outside of groups.
    announced: Mutex<Vec<Event>>,
    /// What the history was told of operations, for whoever wants to know.
    recorded: Mutex<VecDeque<Recorded>>,
    /// Hot spares and cache devices.
    pub(crate) aux: RwLock<aux::Aux>,
    /// What is held of them.
    pub(crate) aside: Mutex<Asides>,
    /// The generation of properties of which the cache was told what goes to cache devices.
    seconds_as_of: std::sync::atomic::AtomicU64,
    /// The logs of datasets that are changed.
    logs: logs::Logs,
    /// Changes of the pool as a whole, by group.
    pool_tasks: [Mutex<Vec<shape::Queued>>; TXG_SIZE],
    /// Those that are done before anything else in their group.
    early_tasks: [Mutex<Vec<shape::Queued>>; TXG_SIZE],
    checkpoint: checkpoint::Checkpoint,
    /// Devices that are offline until the next import (`vdev_tmpoffline`).
    offline_for_now: Mutex<std::collections::HashSet<ondisk::Guid>>,
    /// Held while a tree takes the place of another.
    placing: Mutex<()>,
    /// Held while devices that are in the tree, but not open, are opened.
    reopening: Mutex<()>,
    /// What is done to what is free on devices.
    works: leaf_work::LeafWorks,
    errands: errands::Errands,
    deadman: deadman::Deadman,
    /// What the next group does to the logs of damaged blocks.
    errors: errlog::ErrorLogs,
    /// Scrub and resilver.
    scan: scan::Scan,
    /// What scans measure time by.
    clock: Arc<dyn Clock>,
    rebuilds: rebuild::Rebuilds,
    /// Held by whoever changes the pool's shape, from its look at the pool until the change is on disk: taken before anything else.
    shape: Mutex<()>,
}

/// Records that are kept until somebody takes them.
const RECORDED: usize = 1024;

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
    line: String,
    uid: u32,
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
        crate::host::memory()
    }
}
