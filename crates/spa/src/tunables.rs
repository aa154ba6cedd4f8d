//! The numbers that steer this room, one for all pools of a process, as OpenZFS's module parameters: each is a static beside what it steers.

pub use crate::ask::PROBE_TIMEOUT;
pub use crate::create::geometry::{
    DEFAULT_MS_COUNT, DEFAULT_MS_SHIFT, FILE_LOGICAL, FILE_PHYSICAL, MAX_AUTO, MAX_MS_SHIFT, MIN_AUTO,
    MIN_MS_COUNT, MS_COUNT_LIMIT,
};
pub use crate::engine::{
    CHUNK, DISCARD_MEMORY, FREE_BUDGET, TRIM_BATCH, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE,
};
pub use crate::engine::{
    DEADMAN_CHECK_MS, DEADMAN_ENABLED, DEADMAN_FAILMODE, DEADMAN_HANGS_MS, DEADMAN_SYNC_MS,
};
pub use crate::engine::{REBUILD_MAX_SEGMENT, REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT};
pub use crate::engine::{SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT};
pub use crate::import::{MISSING_TOPS, VERIFY_DATA, VERIFY_METADATA};
