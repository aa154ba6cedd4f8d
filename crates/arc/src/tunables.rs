//! Tunables of the cache, by OpenZFS's names. The limit is set for each store
//! ([`crate::Store::set_bounds`]).

use observe::{Parameter, Tunable, Unit};

/// Held by tests that set a tunable, or rely on its default.
#[cfg(test)]
pub(crate) static STEERING: observe::lock::Mutex<()> = observe::lock::Mutex::new(());

/// Blocks that are taken from a sublist at a time (`zfs_arc_evict_batch_limit`).
pub static ARC_EVICT_BATCH_LIMIT: Tunable = Tunable::new(
    "zfs_arc_evict_batch_limit",
    10,
    1..=1 << 16,
    Unit::Count,
    "blocks that the evict thread takes from one sublist at a time",
);
/// Share of the limit that may be reserved during eviction, as a shift (`zfs_arc_overflow_shift`).
pub static ARC_OVERFLOW_SHIFT: Tunable = Tunable::new(
    "zfs_arc_overflow_shift",
    8,
    1..=63,
    Unit::Shift,
    "share of zfs_arc_max by which the cache may overflow before readers wait for eviction",
);
/// Bytes of memory that are left to others; 0 is a thirty-second of all (`zfs_arc_sys_free`).
pub static ARC_SYS_FREE: Tunable = Tunable::new(
    "zfs_arc_sys_free",
    0,
    0..=u64::MAX,
    Unit::Bytes,
    "memory that the cache leaves free; 0: a thirty-second of all memory",
);
/// Whether blocks are held compressed where that saves memory (`zfs_compressed_arc_enabled`). Held
/// blocks stay as they are.
pub static COMPRESSED_ARC_ENABLED: Tunable = Tunable::new(
    "zfs_compressed_arc_enabled",
    1,
    0..=1,
    Unit::Flag,
    "1: keep blocks compressed in the cache where that saves memory",
);
/// Under pressure, the share of the limit for plain forms of blocks that are also held compressed,
/// as a shift (`dbuf_cache_shift`; 5 in OpenZFS).
pub static DBUF_CACHE_SHIFT: Tunable = Tunable::new(
    "dbuf_cache_shift",
    3,
    1..=63,
    Unit::Shift,
    "share of the cache that uncompressed copies of compressed blocks may take",
);
/// Weight of a ghost of metadata beside one of data, in percent (`zfs_arc_meta_balance`).
pub static ARC_META_BALANCE: Tunable = Tunable::new(
    "zfs_arc_meta_balance",
    500,
    1..=100_000,
    Unit::Percent,
    "weight of a ghost hit of metadata, compared with one of data",
);
/// Bytes that are written to a cache device at a time (`l2arc_write_max`).
pub static L2ARC_WRITE_MAX: Tunable = Tunable::new(
    "l2arc_write_max",
    32 << 20,
    1..=1 << 40,
    Unit::Bytes,
    "largest write to a cache device in one interval",
);
/// Bytes that are written in addition until something was evicted (`l2arc_write_boost`).
pub static L2ARC_WRITE_BOOST: Tunable = Tunable::new(
    "l2arc_write_boost",
    32 << 20,
    0..=1 << 40,
    Unit::Bytes,
    "added to l2arc_write_max until the cache first evicts a block",
);
/// How far a list is searched for blocks to write, as a multiple of one write; 0 is all of it
/// (`l2arc_headroom`).
pub static L2ARC_HEADROOM: Tunable = Tunable::new(
    "l2arc_headroom",
    8,
    0..=1 << 20,
    Unit::Count,
    "how many writes' worth of each list the feed thread scans; 0: the whole list",
);
/// Seconds between two writes (`l2arc_feed_secs`).
pub static L2ARC_FEED_SECS: Tunable = Tunable::new(
    "l2arc_feed_secs",
    1,
    1..=1 << 32,
    Unit::Seconds,
    "time between two writes to a cache device",
);
/// Milliseconds between two writes while many blocks are eligible (`l2arc_feed_min_ms`).
pub static L2ARC_FEED_MIN_MS: Tunable = Tunable::new(
    "l2arc_feed_min_ms",
    200,
    1..=1 << 32,
    Unit::Milliseconds,
    "shortest time between two writes to a cache device while much is eligible",
);
/// Whether the next write comes sooner after a large one (`l2arc_feed_again`).
pub static L2ARC_FEED_AGAIN: Tunable = Tunable::new(
    "l2arc_feed_again",
    1,
    0..=1,
    Unit::Flag,
    "1: write to cache devices again sooner after a large write",
);
/// Whether nothing is read from a cache device while it is written to (`l2arc_norw`).
pub static L2ARC_NORW: Tunable = Tunable::new(
    "l2arc_norw",
    0,
    0..=1,
    Unit::Flag,
    "1: do not read from a cache device while a write to it is in progress",
);
/// Whether only blocks that were used again are written: 1 for all, 2 for data alone
/// (`l2arc_mfuonly`).
pub static L2ARC_MFUONLY: Tunable = Tunable::new(
    "l2arc_mfuonly",
    0,
    0..=2,
    Unit::Count,
    "1: write only frequently used blocks to cache devices; 2: of data only those",
);
/// Whether blocks that were read ahead and not used are not written (`l2arc_noprefetch`).
pub static L2ARC_NOPREFETCH: Tunable = Tunable::new(
    "l2arc_noprefetch",
    1,
    0..=1,
    Unit::Flag,
    "1: do not write prefetched blocks to cache devices before their first use",
);
/// Share of the cache for the places of blocks on cache devices, in percent (`l2arc_meta_percent`).
pub static L2ARC_META_PERCENT: Tunable = Tunable::new(
    "l2arc_meta_percent",
    33,
    0..=100,
    Unit::Percent,
    "share of the cache that headers of blocks on cache devices may take",
);
/// Whether the contents of a cache device are restored when it is added with its pool
/// (`l2arc_rebuild_enabled`).
pub static L2ARC_REBUILD_ENABLED: Tunable = Tunable::new(
    "l2arc_rebuild_enabled",
    1,
    0..=1,
    Unit::Flag,
    "1: an import restores the contents of cache devices",
);
/// Size from which a cache device has log blocks, in bytes (`l2arc_rebuild_blocks_min_l2size`).
pub static L2ARC_REBUILD_BLOCKS_MIN_L2SIZE: Tunable = Tunable::new(
    "l2arc_rebuild_blocks_min_l2size",
    1 << 30,
    0..=1 << 62,
    Unit::Bytes,
    "smallest cache device on which log blocks are written",
);
/// Sublists of each list; 0 is one for each processor, at least four
/// (`zfs_arc_num_sublists_per_state`).
pub static ARC_NUM_SUBLISTS: Tunable = Tunable::new(
    "zfs_arc_num_sublists_per_state",
    0,
    0..=64,
    Unit::Count,
    "sublists of each list of the cache; 0: one for each processor, at least 4",
);
/// Unit of prefetch, in bytes. OpenZFS joins reads of neighbours up to this size
/// (`zfs_vdev_aggregation_limit`).
pub static VDEV_AGGREGATION_LIMIT: Tunable = Tunable::new(
    "zfs_vdev_aggregation_limit",
    1 << 20,
    1 << 9..=1 << 30,
    Unit::Bytes,
    "largest single prefetch read of a device",
);
/// Prefetch reads at a time for each device while no reader waits for one
/// (`zfs_vdev_async_read_max_active`).
pub static VDEV_ASYNC_READ_MAX_ACTIVE: Tunable = Tunable::new(
    "zfs_vdev_async_read_max_active",
    3,
    1..=1 << 10,
    Unit::Count,
    "concurrent prefetch reads of a device while no reader waits for one",
);
/// Prefetch reads at a time for each device while a reader waits for one
/// (`zfs_vdev_async_read_min_active`).
pub static VDEV_ASYNC_READ_MIN_ACTIVE: Tunable = Tunable::new(
    "zfs_vdev_async_read_min_active",
    1,
    0..=1 << 10,
    Unit::Count,
    "concurrent prefetch reads of a device while a reader waits for one",
);

/// Least value of [`ARC_MIN`] (`2 << SPA_MAXBLOCKSHIFT`).
pub const ARC_LEAST: u64 = 32 << 20;
/// Largest size of the cache (`zfs_arc_max`).
pub const ARC_MAX: Parameter = Parameter {
    name: "zfs_arc_max",
    range: 64 << 20..=u64::MAX,
    unit: Unit::Bytes,
    text: "largest size of the block cache that all pools share; 0: the default",
};
/// Least size of the cache (`zfs_arc_min`).
pub const ARC_MIN: Parameter = Parameter {
    name: "zfs_arc_min",
    range: ARC_LEAST..=u64::MAX,
    unit: Unit::Bytes,
    text: "size down to which the cache shrinks when memory is short; zfs_arc_max limits it; 0: the default",
};

/// All tunables of this crate.
pub static ALL: &[&Tunable] = &[
    &ARC_EVICT_BATCH_LIMIT,
    &ARC_OVERFLOW_SHIFT,
    &ARC_SYS_FREE,
    &COMPRESSED_ARC_ENABLED,
    &DBUF_CACHE_SHIFT,
    &ARC_META_BALANCE,
    &L2ARC_WRITE_MAX,
    &L2ARC_WRITE_BOOST,
    &L2ARC_HEADROOM,
    &L2ARC_FEED_SECS,
    &L2ARC_FEED_MIN_MS,
    &L2ARC_FEED_AGAIN,
    &L2ARC_NORW,
    &L2ARC_MFUONLY,
    &L2ARC_NOPREFETCH,
    &L2ARC_META_PERCENT,
    &L2ARC_REBUILD_ENABLED,
    &L2ARC_REBUILD_BLOCKS_MIN_L2SIZE,
    &ARC_NUM_SUBLISTS,
    &VDEV_AGGREGATION_LIMIT,
    &VDEV_ASYNC_READ_MAX_ACTIVE,
    &VDEV_ASYNC_READ_MIN_ACTIVE,
];
