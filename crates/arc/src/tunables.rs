//! Numbers that can be set while the cache is used, by OpenZFS's names. What the limit is, each store is told ([`crate::Store::set_bounds`]).

use observe::Tunable;

/// Held by tests that set one, or that go by what it is by default.
#[cfg(test)]
pub(crate) static STEERING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Blocks that are taken from a sublist at a time (`zfs_arc_evict_batch_limit`).
pub static ARC_EVICT_BATCH_LIMIT: Tunable = Tunable::new(10);
/// What may be taken while room is made, as a shift of the limit (`zfs_arc_overflow_shift`).
pub static ARC_OVERFLOW_SHIFT: Tunable = Tunable::new(8);
/// Bytes of memory that are left to others; 0 is a thirty-second of all (`zfs_arc_sys_free`).
pub static ARC_SYS_FREE: Tunable = Tunable::new(0);
/// Whether blocks are held packed where that saves room (`zfs_compressed_arc_enabled`). What is held already stays as it is.
pub static COMPRESSED_ARC_ENABLED: Tunable = Tunable::new(1);
/// What of the limit plain forms of blocks that are held packed too may take when room is to be made, as a shift (`dbuf_cache_shift`; 5 in OpenZFS).
pub static DBUF_CACHE_SHIFT: Tunable = Tunable::new(3);
/// What a ghost of metadata counts beside one of data, in percent (`zfs_arc_meta_balance`).
pub static ARC_META_BALANCE: Tunable = Tunable::new(500);
/// Bytes that are written to a cache device at a time (`l2arc_write_max`).
pub static L2ARC_WRITE_MAX: Tunable = Tunable::new(32 << 20);
/// Bytes that are written beyond that until something was evicted (`l2arc_write_boost`).
pub static L2ARC_WRITE_BOOST: Tunable = Tunable::new(32 << 20);
/// How far a list is looked through for what could be written, in units of what is written at a time; 0 is all of it (`l2arc_headroom`).
pub static L2ARC_HEADROOM: Tunable = Tunable::new(8);
/// Seconds between two writes (`l2arc_feed_secs`).
pub static L2ARC_FEED_SECS: Tunable = Tunable::new(1);
/// Milliseconds between two writes when much is to be written (`l2arc_feed_min_ms`).
pub static L2ARC_FEED_MIN_MS: Tunable = Tunable::new(200);
/// Whether to write again sooner when much was written (`l2arc_feed_again`).
pub static L2ARC_FEED_AGAIN: Tunable = Tunable::new(1);
/// Whether nothing is read from a cache device while it is written to (`l2arc_norw`).
pub static L2ARC_NORW: Tunable = Tunable::new(0);
/// Whether only what was used again is written: 1 for all, 2 for data alone (`l2arc_mfuonly`).
pub static L2ARC_MFUONLY: Tunable = Tunable::new(0);
/// Whether what was read ahead, and nobody has asked for, is not written (`l2arc_noprefetch`).
pub static L2ARC_NOPREFETCH: Tunable = Tunable::new(1);
/// How much of the cache may go into knowing what lies on cache devices, in percent (`l2arc_meta_percent`).
pub static L2ARC_META_PERCENT: Tunable = Tunable::new(33);
/// Whether what lies on a cache device is found again when it is added with its pool (`l2arc_rebuild_enabled`).
pub static L2ARC_REBUILD_ENABLED: Tunable = Tunable::new(1);
/// Bytes of a cache device from which it is logged what lies there (`l2arc_rebuild_blocks_min_l2size`).
pub static L2ARC_REBUILD_BLOCKS_MIN_L2SIZE: Tunable = Tunable::new(1 << 30);
/// Sublists of each list; 0 is one for each processor, at least four (`zfs_arc_num_sublists_per_state`).
pub static ARC_NUM_SUBLISTS: Tunable = Tunable::new(0);
/// Bytes of reads that neighbours are joined to in OpenZFS (`zfs_vdev_aggregation_limit`), here the unit of what is read ahead at a time.
pub static VDEV_AGGREGATION_LIMIT: Tunable = Tunable::new(1 << 20);
/// Reads of so many bytes that are read ahead at a time for each device, while nobody waits for one (`zfs_vdev_async_read_max_active`).
pub static VDEV_ASYNC_READ_MAX_ACTIVE: Tunable = Tunable::new(3);
/// The same while somebody does (`zfs_vdev_async_read_min_active`).
pub static VDEV_ASYNC_READ_MIN_ACTIVE: Tunable = Tunable::new(1);
