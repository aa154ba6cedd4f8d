//! The tunables of this crate, from the modules that they steer.

use observe::Tunable;

pub use crate::create::geometry::{
    DEFAULT_MS_COUNT, DEFAULT_MS_SHIFT, FILE_LOGICAL, FILE_PHYSICAL, MAX_AUTO, MAX_MS_SHIFT, MIN_AUTO,
    MIN_MS_COUNT, MS_COUNT_LIMIT,
};
pub use crate::discovery::probe::PROBE_TIMEOUT;
pub use crate::engine::{
    CHUNK, DISCARD_MEMORY, FREE_BUDGET, TRIM_BATCH, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE,
};
pub use crate::engine::{
    DEADMAN_CHECK_MS, DEADMAN_ENABLED, DEADMAN_FAILMODE, DEADMAN_HANGS_MS, DEADMAN_SYNC_MS,
};
pub use crate::engine::{DEFER_PERCENT, SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT};
pub use crate::engine::{REBUILD_MAX_SEGMENT, REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT};
pub use crate::import::{MISSING_TOPS, VERIFY_DATA, VERIFY_METADATA};
pub use crate::txg::HISTORY;

/// All tunables of this crate.
pub static ALL: &[&Tunable] = &[
    &CHUNK,
    &DEADMAN_CHECK_MS,
    &DEADMAN_ENABLED,
    &DEADMAN_FAILMODE,
    &DEADMAN_HANGS_MS,
    &DEADMAN_SYNC_MS,
    &DEFAULT_MS_COUNT,
    &DEFAULT_MS_SHIFT,
    &DEFER_PERCENT,
    &DISCARD_MEMORY,
    &FILE_LOGICAL,
    &FILE_PHYSICAL,
    &FREE_BUDGET,
    &HISTORY,
    &MAX_AUTO,
    &MAX_MS_SHIFT,
    &MIN_AUTO,
    &MIN_MS_COUNT,
    &MISSING_TOPS,
    &MS_COUNT_LIMIT,
    &PROBE_TIMEOUT,
    &REBUILD_MAX_SEGMENT,
    &REBUILD_SCRUB_ENABLED,
    &REBUILD_VDEV_LIMIT,
    &SCAN_CHECKPOINT_INTVAL,
    &SCAN_MEM_LIM_FACT,
    &TRIM_BATCH,
    &TRIM_MAX,
    &TRIM_MIN,
    &TRIM_SKIP,
    &VALUE,
    &VERIFY_DATA,
    &VERIFY_METADATA,
];
