//! The engine: a pool that is open for writing, and its operations.
//!
//! [`PoolWriter`] puts the parts of such a pool together: its vdevs, scans, intent logs, checkpoint
//! and the device monitor. They share `crate::pool_core`, and `crate::sync` syncs its transaction
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
//! See `crate::pool_core`.
//!
//! # See
//! OpenZFS `spa_sync`, `spa_sync_iterate_to_convergence`, `dsl_pool_sync`.

mod identity;
pub(crate) mod parts;
pub(crate) mod pool_writer;
mod props;
mod prune;

pub use pool_writer::{ClearError, Pending, PoolWriter, TaskError};
pub use props::PoolProp;
pub use prune::Prune;
pub use zio::{FailMode, Reason};

pub use crate::checkpoint::{CheckpointError, Checkpoints, DISCARD_MEMORY};
pub use crate::device_monitor::DeviceMonitor;
pub use crate::device_monitor::deadman::{
    CHECK_MS as DEADMAN_CHECK_MS, Deadman, ENABLED as DEADMAN_ENABLED, FAILMODE as DEADMAN_FAILMODE,
    HANGS_MS as DEADMAN_HANGS_MS, SYNC_MS as DEADMAN_SYNC_MS,
};
pub use crate::initialize_trim::{CHUNK, TRIM_BATCH, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE};
pub use crate::initialize_trim::{
    InitializeTrim, WorkCommand, WorkKind, WorkNotice, WorkRefusal, WorkStat, WorkState,
};
pub use crate::intent_logs::{IntentLogs, LogHandle};
pub use crate::pool_core::errors::{LifeError, ShapeError, SyncError};
pub use crate::pool_core::state::Recorded;
pub use crate::pool_core::world::{SystemWorld, World};
pub use crate::scan::rebuild::{REBUILD_MAX_SEGMENT, REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT, RebuildStat};
pub use crate::scan::{
    DEFER_PERCENT, RESILVER_MIN_TIME, RESILVER_MS, SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT,
    SCAN_SUSPEND_PROGRESS, SCAN_VDEV_BYTES, SCAN_VDEV_LIMIT, SCRUB_MIN_TIME, SCRUB_MS, ScanCommand, ScanDone,
    ScanNotice, ScanRefusal, ScanStat, Scans,
};
pub use crate::sync::FREE_BUDGET;
pub use crate::sync::tasks::Ticket;
pub use crate::vdev_ops::Vdevs;
pub use crate::vdev_ops::add::AddTerms;
pub use crate::vdev_ops::attach::AttachTerms;
pub use crate::vdev_ops::online_offline::Verdict;
pub use crate::vdev_ops::vdev_props::VdevValue;
