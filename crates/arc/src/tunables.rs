//! Numbers that can be set while the cache is used, by OpenZFS's names. What the limit is, each store is told ([`crate::Store::set_max`]).

use observe::Tunable;

/// Blocks that are taken from a sublist at a time (`zfs_arc_evict_batch_limit`).
pub static ARC_EVICT_BATCH_LIMIT: Tunable = Tunable::new(10);
/// What may be taken while room is made, as a shift of the limit (`zfs_arc_overflow_shift`).
pub static ARC_OVERFLOW_SHIFT: Tunable = Tunable::new(8);
/// What a ghost of metadata counts beside one of data, in percent (`zfs_arc_meta_balance`).
pub static ARC_META_BALANCE: Tunable = Tunable::new(500);
/// Sublists of each list; 0 is one for each processor, at least four (`zfs_arc_num_sublists_per_state`).
pub static ARC_NUM_SUBLISTS: Tunable = Tunable::new(0);
