//! Numbers that can be set while the daemon runs, by the names of OpenZFS's module parameters. Those that would do nothing are not here, or say so.
//!
//! # Theory
//! What was set is kept here and told to every pool, also to those that are imported later; nothing outlives the daemon, as nothing outlives a module. A value is taken
//! or refused as a whole. Some are told to pools; others are statics beside what they steer, and every pool of the process sees those. 0 gives the default back where OpenZFS's parameter is 0 by default.
//!
//! # Absent
//! Parameters of parts that don't exist here, and those whose part takes them for granted: they are not listed, so that nobody believes to have set one;
//! but for a few that scripts set on their way, which say that they are without effect.

use crate::api::{self, Error, Reason};
use crate::events::LEN_MAX;
use crate::pools::{Imported, MOUNT_THREADS_DEFAULT, set_mount_threads};
use arc::tunables::{
    ARC_EVICT_BATCH_LIMIT, ARC_META_BALANCE, ARC_NUM_SUBLISTS, ARC_OVERFLOW_SHIFT, ARC_SYS_FREE,
    COMPRESSED_ARC_ENABLED, DBUF_CACHE_SHIFT, L2ARC_FEED_AGAIN, L2ARC_FEED_MIN_MS, L2ARC_FEED_SECS,
    L2ARC_HEADROOM, L2ARC_META_PERCENT, L2ARC_MFUONLY, L2ARC_NOPREFETCH, L2ARC_NORW,
    L2ARC_REBUILD_BLOCKS_MIN_L2SIZE, L2ARC_REBUILD_ENABLED, L2ARC_WRITE_BOOST, L2ARC_WRITE_MAX,
    VDEV_AGGREGATION_LIMIT, VDEV_ASYNC_READ_MAX_ACTIVE, VDEV_ASYNC_READ_MIN_ACTIVE,
};
use dmu::zfetch::{
    PREFETCH_DISABLE, ZFETCH_HOLE_SHIFT, ZFETCH_MAX_DISTANCE, ZFETCH_MAX_IDISTANCE, ZFETCH_MAX_REORDER,
    ZFETCH_MAX_SEC_REAP, ZFETCH_MAX_STREAMS, ZFETCH_MIN_DISTANCE, ZFETCH_MIN_SEC_REAP,
};
use dsl::ops::create::MAX_NESTING;
use observe::Tunable;
use parking_lot::Mutex;
use spa::tunables::{
    CHUNK, DEADMAN_CHECK_MS, DEADMAN_ENABLED, DEADMAN_FAILMODE, DEADMAN_HANGS_MS, DEADMAN_SYNC_MS,
    DEFAULT_MS_COUNT, DEFAULT_MS_SHIFT, DISCARD_MEMORY, FILE_LOGICAL, FILE_PHYSICAL, FREE_BUDGET, MAX_AUTO,
    MAX_MS_SHIFT, MIN_AUTO, MIN_MS_COUNT, MISSING_TOPS, MS_COUNT_LIMIT, PROBE_TIMEOUT, REBUILD_MAX_SEGMENT,
    REBUILD_SCRUB_ENABLED, REBUILD_VDEV_LIMIT, SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT, TRIM_BATCH,
    TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE, VERIFY_DATA, VERIFY_METADATA,
};
use spa::txg;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use vdev::{CHECKSUM_EVENTS, DEADMAN_EVENTS, SLOW_EVENTS, SLOW_MS};
use zil::tunables::{COMMIT_TIMEOUT_PCT, IMMEDIATE_WRITE_SZ, MAXBLOCKSIZE, MAXCOPIED};

/// A number that can be set.
struct Knob {
    name: &'static str,
    what: &'static str,
    least: u64,
    most: u64,
}

/// No cache has to be smaller (`2 << SPA_MAXBLOCKSHIFT`).
const ARC_LEAST: u64 = 32 << 20;

/// All that pools are told of.
const KNOBS: [Knob; 12] = [
    Knob { name: "mount_tp_nthr", what: "threads that mount and unmount at a time", least: 1, most: 4096 },
    Knob {
        name: "zfs_arc_max",
        what: "bytes that the block caches of all pools may take",
        least: 64 << 20,
        most: u64::MAX,
    },
    Knob {
        name: "zfs_arc_min",
        what: "bytes that the block caches of all pools may take however little memory is left; zfs_arc_max goes before it",
        least: ARC_LEAST,
        most: u64::MAX,
    },
    Knob {
        name: "zfs_delay_min_dirty_percent",
        what: "percent of zfs_dirty_data_max from which writers are delayed",
        least: 0,
        most: 100,
    },
    Knob {
        name: "zfs_delay_scale",
        what: "nanoseconds of delay at the middle of its curve",
        least: 0,
        most: 1_000_000_000,
    },
    Knob {
        name: "zfs_dirty_data_max",
        what: "most bytes of a pool that are changed and not yet written",
        least: 1 << 20,
        most: 1 << 40,
    },
    Knob {
        name: "zfs_dirty_data_sync_percent",
        what: "percent of zfs_dirty_data_max at which a group is written",
        least: 1,
        most: 99,
    },
    Knob {
        name: "zfs_resilver_min_time_ms",
        what: "milliseconds that a resilver takes before each group that nobody waits for",
        least: 1,
        most: 60_000,
    },
    Knob {
        name: "zfs_scan_suspend_progress",
        what: "1 to let scrubs and resilvers stand still, as if they went on",
        least: 0,
        most: 1,
    },
    Knob {
        name: "zfs_scan_vdev_limit",
        what: "bytes for each device that a scrub or resilver reads at a time",
        least: 1 << 10,
        most: 1 << 30,
    },
    Knob {
        name: "zfs_scrub_min_time_ms",
        what: "milliseconds that a scrub takes before each group that nobody waits for",
        least: 1,
        most: 60_000,
    },
    Knob {
        name: "zfs_txg_timeout",
        what: "seconds after which a group with changes is written",
        least: 1,
        most: 86_400,
    },
];

/// A number that is read where it steers something, by whoever passes there.
struct Steered {
    name: &'static str,
    what: &'static str,
    least: u64,
    most: u64,
    at: &'static Tunable,
    /// What its values are called, from the least on, if it is told and set in words.
    words: &'static [&'static str],
}

/// All of those.
const STEERED: [Steered; 74] = [
    steered(
        "dbuf_cache_shift",
        "what of the cache unpacked forms of packed blocks may take when room is made, as a shift",
        1,
        63,
        &DBUF_CACHE_SHIFT,
    ),
    steered(
        "l2arc_feed_again",
        "1: write to cache devices again sooner when much was written",
        0,
        1,
        &L2ARC_FEED_AGAIN,
    ),
    steered(
        "l2arc_feed_min_ms",
        "milliseconds between two writes to cache devices when much is to be written",
        1,
        1 << 32,
        &L2ARC_FEED_MIN_MS,
    ),
    steered("l2arc_feed_secs", "seconds between two writes to cache devices", 1, 1 << 32, &L2ARC_FEED_SECS),
    steered(
        "l2arc_headroom",
        "how far a list is looked through for what to write, in writes; 0: all of it",
        0,
        1 << 20,
        &L2ARC_HEADROOM,
    ),
    steered(
        "l2arc_meta_percent",
        "percent of the cache that may know what lies on cache devices",
        0,
        100,
        &L2ARC_META_PERCENT,
    ),
    steered(
        "l2arc_mfuonly",
        "1: write only what was used again to cache devices; 2: of data only that",
        0,
        2,
        &L2ARC_MFUONLY,
    ),
    steered(
        "l2arc_noprefetch",
        "1: what was read ahead is not written to cache devices before it was asked for",
        0,
        1,
        &L2ARC_NOPREFETCH,
    ),
    steered("l2arc_norw", "1: read nothing from a cache device while it is written to", 0, 1, &L2ARC_NORW),
    steered(
        "l2arc_rebuild_blocks_min_l2size",
        "bytes of a cache device from which it is logged what lies there",
        0,
        1 << 62,
        &L2ARC_REBUILD_BLOCKS_MIN_L2SIZE,
    ),
    steered(
        "l2arc_rebuild_enabled",
        "1: what lies on a cache device is found again at import",
        0,
        1,
        &L2ARC_REBUILD_ENABLED,
    ),
    steered(
        "l2arc_write_boost",
        "bytes beyond l2arc_write_max until something was evicted",
        0,
        1 << 40,
        &L2ARC_WRITE_BOOST,
    ),
    steered(
        "l2arc_write_max",
        "bytes that are written to a cache device at a time",
        1,
        1 << 40,
        &L2ARC_WRITE_MAX,
    ),
    steered(
        "spa_load_verify_data",
        "1: a rewind reads data to see whether a state is whole",
        0,
        1,
        &VERIFY_DATA,
    ),
    steered(
        "spa_load_verify_metadata",
        "1: a rewind reads metadata to see whether a state is whole",
        0,
        1,
        &VERIFY_METADATA,
    ),
    steered(
        "zfs_arc_evict_batch_limit",
        "blocks that are taken from a sublist of the cache at a time",
        1,
        1 << 16,
        &ARC_EVICT_BATCH_LIMIT,
    ),
    steered(
        "zfs_arc_meta_balance",
        "percent that a ghost of metadata counts beside one of data",
        1,
        100_000,
        &ARC_META_BALANCE,
    ),
    steered(
        "zfs_arc_num_sublists_per_state",
        "sublists of each list of the cache, at most 64; 0: one for each processor, at least 4",
        0,
        64,
        &ARC_NUM_SUBLISTS,
    ),
    steered(
        "zfs_arc_overflow_shift",
        "what of zfs_arc_max is kept free for who comes while blocks are evicted, as a shift",
        1,
        63,
        &ARC_OVERFLOW_SHIFT,
    ),
    steered(
        "zfs_arc_sys_free",
        "bytes of memory that the cache leaves to others; 0: a thirty-second of all",
        0,
        u64::MAX,
        &ARC_SYS_FREE,
    ),
    steered(
        "zfs_compressed_arc_enabled",
        "1: blocks are held packed in the cache where that saves room",
        0,
        1,
        &COMPRESSED_ARC_ENABLED,
    ),
    steered(
        "vdev_file_logical_ashift",
        "sector size that files need at least, as a shift",
        9,
        16,
        &FILE_LOGICAL,
    ),
    steered(
        "vdev_file_physical_ashift",
        "sector size that files like best, as a shift",
        9,
        16,
        &FILE_PHYSICAL,
    ),
    steered(
        "zfs_async_block_max_blocks",
        "blocks of destroyed datasets that a group frees",
        1,
        u64::MAX,
        &FREE_BUDGET,
    ),
    steered(
        "zfs_checksum_events_per_second",
        "events of wrong checksums of a device in a second",
        0,
        u32::MAX as u64,
        &CHECKSUM_EVENTS,
    ),
    steered(
        "zfs_deadman_checktime_ms",
        "milliseconds after which an operation or group that does not end is told again",
        1,
        u32::MAX as u64,
        &DEADMAN_CHECK_MS,
    ),
    steered(
        "zfs_deadman_enabled",
        "1: operations of devices that do not end are told",
        0,
        1,
        &DEADMAN_ENABLED,
    ),
    steered(
        "zfs_deadman_events_per_second",
        "events of a device's operations that do not end in a second",
        0,
        u32::MAX as u64,
        &DEADMAN_EVENTS,
    ),
    in_words(
        "zfs_deadman_failmode",
        "wait: what does not end is told; continue: its device is given up too; panic: the daemon ends",
        &["wait", "continue", "panic"],
        &DEADMAN_FAILMODE,
    ),
    steered(
        "zfs_deadman_synctime_ms",
        "milliseconds from which a group is told not to end, with what devices have not done for as long",
        1,
        u32::MAX as u64,
        &DEADMAN_SYNC_MS,
    ),
    steered(
        "zfs_deadman_ziotime_ms",
        "milliseconds from which an operation of a device is told not to end",
        1,
        u32::MAX as u64,
        &DEADMAN_HANGS_MS,
    ),
    steered("zfs_initialize_chunk_size", "bytes that zpool initialize writes at once", 512, 16 << 20, &CHUNK),
    steered("zfs_initialize_value", "what zpool initialize writes", 0, u64::MAX, &VALUE),
    steered(
        "zfs_max_missing_tvds",
        "top-level vdevs without which a pool is imported to be read",
        0,
        u32::MAX as u64,
        &MISSING_TOPS,
    ),
    steered(
        "zfetch_hole_shift",
        "part of a stream that may be passed over, as a shift",
        0,
        63,
        &ZFETCH_HOLE_SHIFT,
    ),
    steered("zfetch_max_distance", "most bytes read ahead of a stream", 0, 1 << 40, &ZFETCH_MAX_DISTANCE),
    steered(
        "zfetch_max_idistance",
        "most bytes ahead of a stream whose indirect blocks are read",
        0,
        1 << 40,
        &ZFETCH_MAX_IDISTANCE,
    ),
    steered(
        "zfetch_max_reorder",
        "bytes from its place at which a read is still of a stream",
        0,
        1 << 40,
        &ZFETCH_MAX_REORDER,
    ),
    steered(
        "zfetch_max_sec_reap",
        "seconds after which an unused stream is forgotten",
        0,
        1 << 20,
        &ZFETCH_MAX_SEC_REAP,
    ),
    steered("zfetch_max_streams", "streams of an object", 1, 1 << 10, &ZFETCH_MAX_STREAMS),
    steered(
        "zfetch_min_distance",
        "bytes that are soon read ahead of a stream",
        0,
        1 << 40,
        &ZFETCH_MIN_DISTANCE,
    ),
    steered(
        "zfetch_min_sec_reap",
        "seconds for which a stream keeps its place from another",
        0,
        1 << 20,
        &ZFETCH_MIN_SEC_REAP,
    ),
    steered("zfs_prefetch_disable", "1: nothing is read ahead", 0, 1, &PREFETCH_DISABLE),
    steered(
        "zfs_vdev_aggregation_limit",
        "bytes of a read ahead, of which each device has zfs_vdev_async_read_max_active",
        1 << 9,
        1 << 30,
        &VDEV_AGGREGATION_LIMIT,
    ),
    steered(
        "zfs_vdev_async_read_max_active",
        "reads ahead of each device at a time while nobody waits for one",
        1,
        1 << 10,
        &VDEV_ASYNC_READ_MAX_ACTIVE,
    ),
    steered(
        "zfs_vdev_async_read_min_active",
        "reads ahead of each device at a time while somebody waits for one",
        0,
        1 << 10,
        &VDEV_ASYNC_READ_MIN_ACTIVE,
    ),
    steered("zfs_max_dataset_nesting", "levels that a dataset's name stays below", 2, 255, &MAX_NESTING),
    steered(
        "zfs_probe_timeout_ms",
        "milliseconds that a device may take to answer a search for pools, or an import that opens it",
        100,
        3_600_000,
        &PROBE_TIMEOUT,
    ),
    steered(
        "zfs_rebuild_max_segment",
        "bytes of each device that a sequential resilver reads at once",
        4096,
        16 << 20,
        &REBUILD_MAX_SEGMENT,
    ),
    steered(
        "zfs_rebuild_scrub_enabled",
        "1: a scrub follows a sequential resilver",
        0,
        1,
        &REBUILD_SCRUB_ENABLED,
    ),
    steered(
        "zfs_rebuild_vdev_limit",
        "bytes of each device that a sequential resilver reads ahead of what it writes",
        1 << 20,
        1 << 30,
        &REBUILD_VDEV_LIMIT,
    ),
    steered(
        "zfs_scan_checkpoint_intval",
        "seconds after which a scrub or resilver looks at all that it has met, so that an import can go on there",
        1,
        1 << 32,
        &SCAN_CHECKPOINT_INTVAL,
    ),
    steered(
        "zfs_scan_mem_lim_fact",
        "divisor: a part of the memory that blocks may take which scrubs and resilvers have met and not looked at",
        1,
        1 << 20,
        &SCAN_MEM_LIM_FACT,
    ),
    steered(
        "zfs_spa_discard_memory_limit",
        "bytes of a checkpoint that a group looks at to free them",
        0,
        1 << 40,
        &DISCARD_MEMORY,
    ),
    steered(
        "zfs_trim_extent_bytes_max",
        "bytes that zpool trim discards at once",
        1 << 16,
        1 << 30,
        &TRIM_MAX,
    ),
    steered("zfs_trim_extent_bytes_min", "bytes of a range that is worth a discard", 0, 1 << 30, &TRIM_MIN),
    steered(
        "zfs_trim_metaslab_skip",
        "1: zpool trim passes over metaslabs never written to",
        0,
        1,
        &TRIM_SKIP,
    ),
    steered(
        "zfs_trim_txg_batch",
        "rounds in which autotrim comes to every metaslab",
        1,
        1 << 20,
        &TRIM_BATCH,
    ),
    steered(
        "zfs_vdev_default_ms_count",
        "metaslabs that a large new vdev has",
        2,
        1 << 17,
        &DEFAULT_MS_COUNT,
    ),
    steered(
        "zfs_vdev_default_ms_shift",
        "size of a new vdev's metaslabs, as a shift",
        24,
        40,
        &DEFAULT_MS_SHIFT,
    ),
    steered(
        "zfs_vdev_max_auto_ashift",
        "largest sector size chosen for a vdev, as a shift",
        9,
        16,
        &MAX_AUTO,
    ),
    steered(
        "zfs_slow_io_events_per_second",
        "events of slow operations of a device in a second",
        0,
        u32::MAX as u64,
        &SLOW_EVENTS,
    ),
    steered(
        "zfs_vdev_max_ms_shift",
        "largest size of a new vdev's metaslabs, as a shift",
        24,
        40,
        &MAX_MS_SHIFT,
    ),
    steered(
        "zfs_vdev_min_auto_ashift",
        "smallest sector size chosen for a vdev, as a shift",
        9,
        16,
        &MIN_AUTO,
    ),
    steered("zfs_vdev_min_ms_count", "fewest metaslabs of a new vdev", 2, 1 << 17, &MIN_MS_COUNT),
    steered("zfs_vdev_ms_count_limit", "most metaslabs of a new vdev", 2, 1 << 24, &MS_COUNT_LIMIT),
    steered(
        "zfs_resilver_defer_percent",
        "percent of a resilver that must be done for another to wait for its end, not have it begin anew",
        0,
        100,
        &spa::engine::DEFER_PERCENT,
    ),
    steered("zfs_txg_history", "transaction groups that are remembered", 0, 1 << 20, &txg::HISTORY),
    steered("zfs_zevent_len_max", "events that are kept", 1, 1 << 20, &LEN_MAX),
    steered(
        "zfs_commit_timeout_pct",
        "percent of a log write's time that the next waits for others to join it",
        0,
        10_000,
        &COMMIT_TIMEOUT_PCT,
    ),
    steered(
        "zfs_immediate_write_sz",
        "bytes from which a synchronous write is not copied into the log, where no device is for logs",
        0,
        u64::MAX,
        &IMMEDIATE_WRITE_SZ,
    ),
    steered("zil_maxblocksize", "bytes of the largest log block", 4096, 128 << 10, &MAXBLOCKSIZE),
    steered(
        "zil_maxcopied",
        "bytes of a synchronous write up to which it is copied into its record at once",
        0,
        64 << 10,
        &MAXCOPIED,
    ),
    steered("zio_slow_io_ms", "milliseconds from which an I/O counts as slow", 1, 1 << 40, &SLOW_MS),
];

/// What is kept since scripts set it before they ask for something else: it is told as it was set, and nothing here depends on it.
const KEPT: [Steered; 6] = {
    static DEBUG_LOAD: Tunable = Tunable::new(0);
    static KEEP_LOGS: Tunable = Tunable::new(0);
    static LIVELIST_ENTRIES: Tunable = Tunable::new(500_000);
    static LIVELIST_SHARED: Tunable = Tunable::new(75);
    static LEGACY: Tunable = Tunable::new(0);
    static RETAIN: Tunable = Tunable::new(2000);
    const fn kept(name: &'static str, what: &'static str, at: &'static Tunable) -> Steered {
        steered(name, what, 0, u64::MAX, at)
    }
    [
        kept("metaslab_debug_load", "without effect: metaslabs are read as they are needed", &DEBUG_LOAD),
        kept("zfs_keep_log_spacemaps_at_export", "without effect: export decides by itself", &KEEP_LOGS),
        kept("zfs_livelist_max_entries", "without effect: clones get no livelists", &LIVELIST_ENTRIES),
        kept("zfs_livelist_min_percent_shared", "without effect: clones get no livelists", &LIVELIST_SHARED),
        kept("zfs_scan_legacy", "without effect: scans have one way through a pool", &LEGACY),
        kept("zfs_zevent_retain_max", "without effect: events are told as often as they happen", &RETAIN),
    ]
};

const fn steered(
    name: &'static str,
    what: &'static str,
    least: u64,
    most: u64,
    at: &'static Tunable,
) -> Steered {
    Steered { name, what, least, most, at, words: &[] }
}

const fn in_words(
    name: &'static str,
    what: &'static str,
    words: &'static [&'static str],
    at: &'static Tunable,
) -> Steered {
    Steered { name, what, least: 0, most: words.len() as u64 - 1, at, words }
}

impl Steered {
    fn set(&self, value: u64) -> Result<(), Error> {
        within(self.name, value, self.least, self.most)?;
        self.at.set(value);
        Ok(())
    }
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let what = format!("'{value}' is not between {least} and {most}");
    Err(Error::new(name, Reason::BadValue { what }))
}

/// What was set, and the memory that all caches share.
pub(crate) struct Tunables {
    set: Mutex<BTreeMap<&'static str, u64>>,
    store: Arc<arc::Store>,
    /// While it is there, somebody tells the store what memory is left.
    watch: Mutex<Option<Sender<()>>>,
}

impl Default for Tunables {
    fn default() -> Self {
        let tunables = Self {
            set: Mutex::default(),
            store: arc::Store::new(default("zfs_arc_max")),
            watch: Mutex::default(),
        };
        tunables.tell(&[]);
        tunables
    }
}

impl Tunables {
    /// The memory that the caches of all pools share.
    pub(crate) fn store(&self) -> &Arc<arc::Store> {
        &self.store
    }

    /// Lets the cache give way, from now on, where others lack memory.
    pub(crate) fn watch_memory(&self) {
        let mut watch = self.watch.lock();
        if watch.is_none() {
            *watch = crate::memory::watch(Arc::downgrade(&self.store));
        }
    }

    /// The same, for a pool that is opened.
    pub(crate) fn room(&self) -> arc::Room {
        Arc::clone(&self.store).into()
    }

    /// Whether scans stand still, as a pool that is imported has to know before it begins with any.
    pub(crate) fn hold_scans(&self) -> bool {
        self.set.lock().get("zfs_scan_suspend_progress").is_some_and(|value| *value != 0)
    }

    /// All numbers as they are now.
    pub(crate) fn list(&self) -> Vec<api::Tunable> {
        let set = self.set.lock().clone();
        let row = |knob: &Knob| api::Tunable {
            name: knob.name.to_owned(),
            value: set.get(knob.name).copied().unwrap_or_else(|| default(knob.name)),
            default: default(knob.name),
            what: knob.what.to_owned(),
            words: Vec::new(),
        };
        let steered = |one: &Steered| api::Tunable {
            name: one.name.to_owned(),
            value: one.at.get(),
            default: one.at.default(),
            what: one.what.to_owned(),
            words: one.words.iter().map(|&word| word.to_owned()).collect(),
        };
        let mut all: Vec<_> = KNOBS.iter().map(row).chain(STEERED.iter().chain(&KEPT).map(steered)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Sets one, and tells these pools.
    ///
    /// # Errors
    /// [`Reason::BadProperty`] where there is none of that name, [`Reason::BadValue`].
    pub(crate) fn set(&self, name: &str, value: u64, pools: &[Arc<Imported>]) -> Result<(), Error> {
        let unknown = || Error::new(name, Reason::BadProperty { property: name.to_owned() });
        if let Some(one) = STEERED.iter().chain(&KEPT).find(|one| one.name == name) {
            one.set(value)?;
            if name.starts_with("zfs_arc_") {
                self.tell(&[]);
            }
            return Ok(());
        }
        let knob = KNOBS.iter().find(|knob| knob.name == name).ok_or_else(unknown)?;
        let back = value == 0
            && knob.least > 0
            && matches!(name, "zfs_arc_max" | "zfs_arc_min" | "zfs_dirty_data_max");
        if !back {
            within(name, value, knob.least, knob.most)?;
        }
        if back {
            self.set.lock().remove(knob.name);
        } else {
            self.set.lock().insert(knob.name, value);
        }
        self.tell(pools);
        Ok(())
    }

    /// Tells pools what was set, and the memory that their caches share.
    pub(crate) fn tell(&self, pools: &[Arc<Imported>]) {
        let set = self.set.lock().clone();
        let value = |name: &str| set.get(name).copied().unwrap_or_else(|| default(name));
        self.store.set_bounds(value("zfs_arc_min"), value("zfs_arc_max"));
        let of_groups = txg::Tunables {
            timeout: Duration::from_secs(value("zfs_txg_timeout")),
            dirty_max: value("zfs_dirty_data_max"),
            sync_percent: value("zfs_dirty_data_sync_percent"),
            delay_min_percent: value("zfs_delay_min_dirty_percent"),
            delay_scale_ns: value("zfs_delay_scale"),
        };
        set_mount_threads(u32::try_from(value("mount_tp_nthr")).expect("no more than 4096"));
        for pool in pools {
            let spa = pool.pool.spa();
            if let Some(live) = spa.writer() {
                live.set_tunables(of_groups);
                live.set_scan_slices(value("zfs_scrub_min_time_ms"), value("zfs_resilver_min_time_ms"));
                live.limit_scan_bytes(value("zfs_scan_vdev_limit"));
                live.hold_scans(value("zfs_scan_suspend_progress") != 0);
            }
        }
    }
}

/// What holds if nobody sets it.
fn default(name: &str) -> u64 {
    let of_groups = txg::Tunables::for_memory(spa::host::memory());
    match name {
        "mount_tp_nthr" => MOUNT_THREADS_DEFAULT.into(),
        "zfs_arc_max" => poolhouse::default_cache_bytes(),
        "zfs_arc_min" => (spa::host::memory() / 32).max(ARC_LEAST),
        "zfs_txg_timeout" => of_groups.timeout.as_secs(),
        "zfs_dirty_data_max" => of_groups.dirty_max,
        "zfs_dirty_data_sync_percent" => of_groups.sync_percent,
        "zfs_delay_min_dirty_percent" => of_groups.delay_min_percent,
        "zfs_delay_scale" => of_groups.delay_scale_ns,
        "zfs_scan_suspend_progress" => 0,
        "zfs_scan_vdev_limit" => spa::engine::SCAN_VDEV_LIMIT,
        "zfs_scrub_min_time_ms" => spa::engine::SCRUB_MS,
        "zfs_resilver_min_time_ms" => spa::engine::RESILVER_MS,
        _ => unreachable!("every knob has a default"),
    }
}

/// Sets a number that is read where it steers something, in this process alone: for commands that read pools without a daemon.
///
/// # Errors
/// [`Reason::BadProperty`] where there is none of that name that steers anything, [`Reason::BadValue`].
pub fn steer(name: &str, value: u64) -> Result<(), Error> {
    let unknown = || Error::new(name, Reason::BadProperty { property: name.to_owned() });
    let one = STEERED.iter().find(|one| one.name == name).ok_or_else(unknown)?;
    one.set(value)
}

#[cfg(test)]
mod tests;
