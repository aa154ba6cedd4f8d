//! The kstats of the pools, as the files below `/proc/spl/kstat/zfs` show them.
//!
//! # Theory
//! A kstat is a name, perhaps within a pool, and named values. As a file it has two more lines at
//! the top. Values are read on request. Only what this engine counts is shown. A missing name of
//! OpenZFS's is not counted, and one that exists means the same as there.
//!
//! | kstat | note |
//! |---|---|
//! | `arcstats` | has each name that OpenZFS's programs query; what can't occur here is 0 |
//! | `arc_sublists` | not in OpenZFS: balance of the cache's sublists, and use of packed blocks |
//! | `zil_commit` of a pool | not in OpenZFS: a histogram of the durations of all commits |
//! | `zil_commit-0x...` | not in OpenZFS: the same for one dataset (`objset-0x...`) |
//! | `scans` of a pool | not in OpenZFS: how long scan and rebuild I/O yielded to other I/O |
//!
//! A commit is an fsync, a flush or a synchronous write. The rows of its histogram are those of
//! OpenZFS's `dmu_tx_assign`. The times of `scans` are in nanoseconds, all devices together.
//!
//! # Absent
//! Times of reads and of creation: those in the header are 0.

use crate::pools::Pools;
use crate::pools::imported::Imported;
use api::{Kstat, KstatValue};
use observe::HistogramSnapshot;
use observe::ops::Op;
use ondisk::ObjNum;
use spa::Spa;
use spa::engine::IntentLogs;
use spa::txg::{Group, Stage, TxCounts};
use std::time::Duration;
use vdev::{VdevAux, VdevState};

/// A kstat's name, with its pool if it belongs to one.
pub type Name = (Option<String>, String);

/// The names of all present kstats. Reads no device.
pub(crate) fn names(pools: &Pools) -> Vec<Name> {
    let mut out: Vec<Name> =
        ["arcstats", "arc_sublists", "zfetchstats", "dmu_tx"].map(|n| (None, n.to_owned())).into();
    for pool in pools.table().present() {
        let of = |name: &str| (Some(pool.pool.name().to_owned()), name.to_owned());
        out.extend(["state", "guid", "iostats"].map(of));
        out.extend(
            pool.pool.spa().writer().into_iter().flat_map(|_| [COMMITS, SCANS, "txgs", ASSIGN].map(of)),
        );
        let logs = pool.pool.spa().writer().map(|live| live.logs().stats()).unwrap_or_default();
        out.extend(logs.iter().flat_map(|(object, _)| {
            [of(&format!("objset-0x{object:x}")), of(&format!("{COMMITS}-0x{object:x}"))]
        }));
    }
    out.push((None, "zil".to_owned()));
    out
}

/// One kstat by its name; `None` if there is none. A kstat of a pool needs only that pool.
pub(crate) fn one(pools: &Pools, pool: Option<&str>, name: &str) -> Option<Kstat> {
    let values = match (pool, name) {
        (None, "arcstats") => arc(pools.tunables.store()),
        (None, "arc_sublists") => sublists(pools.tunables.store()),
        (None, "zfetchstats") => prefetches(pools.tunables.store()),
        (None, "dmu_tx") => changes(),
        (None, "zil") => numbers(IntentLogs::sum_of_process().named()),
        (None, _) => return None,
        (Some(of), _) => {
            let imported = pools.table().pool_or_going(of).ok()?;
            let text = |text: String| {
                Some(Kstat { pool: Some(of.into()), name: name.into(), values: Vec::new(), text: Some(text) })
            };
            match name {
                "state" => return text(state(imported.pool.spa()).to_owned()),
                "guid" => return text(imported.pool.spa().guid().0.to_string()),
                "txgs" => return text(groups(&imported.pool.spa().writer()?.txgs().groups())),
                "iostats" => trims(imported.pool.spa()),
                ASSIGN => assignments(&imported.pool.spa().writer()?.txgs().delays()),
                SCANS => scans(imported.pool.spa())?,
                COMMITS => times(&imported.pool.spa().writer()?.logs().sum().commit_ns),
                _ if name.starts_with(COMMITS) => commits_of(&imported, name)?,
                _ => objset(&imported, name)?,
            }
        }
    };
    Some(Kstat { pool: pool.map(str::to_owned), name: name.to_owned(), values, text: None })
}

/// All present kstats.
pub(crate) fn all(pools: &Pools) -> Vec<Kstat> {
    names(pools).iter().filter_map(|(pool, name)| one(pools, pool.as_deref(), name)).collect()
}

type Values = Vec<(String, KstatValue)>;

fn numbers<'a>(values: impl IntoIterator<Item = (&'a str, u64)>) -> Values {
    values.into_iter().map(|(name, n)| (name.to_owned(), KstatValue::Number(n))).collect()
}

/// The state of a pool in one word (`spa_state_to_name`).
fn state(spa: &Spa) -> &'static str {
    if spa.writer().is_some_and(|live| live.suspended().is_some()) {
        return "SUSPENDED";
    }
    match spa.tree().state() {
        (VdevState::Closed | VdevState::Offline, _) => "OFFLINE",
        (VdevState::Removed, _) => "REMOVED",
        (VdevState::CantOpen, VdevAux::CorruptData | VdevAux::BadLog) => "FAULTED",
        (VdevState::CantOpen, VdevAux::SplitPool) => "SPLIT",
        (VdevState::CantOpen, _) => "UNAVAIL",
        (VdevState::Faulted, _) => "FAULTED",
        (VdevState::Degraded, _) => "DEGRADED",
        (VdevState::Healthy, _) => "ONLINE",
        (VdevState::Unknown, _) => "UNKNOWN",
    }
}

/// The newest transaction groups, one in a line, below the column names (`spa_txg_history_show`).
///
/// Times are in nanoseconds. Births are by the clock that starts with the system.
fn groups(groups: &[Group]) -> String {
    let row = |cells: [String; 12]| -> String {
        const WIDTHS: [usize; 12] = [8, 16, 5, 12, 12, 12, 8, 8, 12, 12, 12, 12];
        let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join(" ")
    };
    let head = [
        "txg", "birth", "state", "ndirty", "nread", "nwritten", "reads", "writes", "otime", "qtime", "wtime",
        "stime",
    ];
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    let mut rows = vec![row(head.map(str::to_owned))];
    for group in groups {
        let stage = match group.stage {
            Stage::Open => "O",
            Stage::Quiescing => "Q",
            Stage::Waiting => "W",
            Stage::Syncing => "S",
            Stage::Committed => "C",
        };
        let birth = now.saturating_sub(group.opened.elapsed()).as_nanos();
        let took = group.took.map(|time| time.as_nanos().to_string());
        let [open, quiesce, wait, sync] = took;
        let moved = &group.moved;
        let counts =
            [group.dirty, moved.read, moved.written, moved.reads, moved.writes].map(|n| n.to_string());
        let [dirty, read, written, reads, writes] = counts;
        let (txg, birth) = (group.txg.0.to_string(), birth.to_string());
        rows.push(row([
            txg,
            birth,
            stage.to_owned(),
            dirty,
            read,
            written,
            reads,
            writes,
            open,
            quiesce,
            wait,
            sync,
        ]));
    }
    rows.join("\n")
}

/// The TRIM statistics of a pool's devices (`spa_iostats_t`, in part).
fn trims(spa: &Spa) -> Values {
    let stats = spa.tree().describe().stats;
    numbers([("trim_extents_written", stats.trim_ops), ("trim_bytes_written", stats.trim_bytes)])
}

/// The kstat of scans and rebuilds since the pool's import.
const SCANS: &str = "scans";

fn scans(spa: &Spa) -> Option<Values> {
    Some(numbers([("waited_ns", spa.writer()?.scans().waited_ns())]))
}

/// What users do with a dataset, and the statistics of its intent log. The dataset's name comes
/// from the pool's metadata.
fn objset(imported: &Imported, name: &str) -> Option<Values> {
    let object = u64::from_str_radix(name.strip_prefix("objset-0x")?, 16).ok()?;
    let counters = imported.pool.spa().writer()?.logs().stats_of(object)?;
    // A log without a dataset is about to disappear too.
    let dataset = imported.pool.dsl().by_object(ObjNum(object)).ok()?;
    let mut values = vec![("dataset_name".to_owned(), KstatValue::Text(dataset.name()))];
    values.extend(numbers(files(imported, &dataset, &counters).into_iter().chain(counters.named())));
    Some(values)
}

/// Reads and writes of a dataset that succeeded, and the files that lost their last name
/// (`dataset_kstat_values_t`).
fn files(imported: &Imported, dataset: &dsl::Dataset, log: &zil::Stats) -> [(&'static str, u64); 6] {
    let key = (dataset.object().0, dataset.phys().creation_txg.0);
    let seen = imported.pool.ops().of(key).map(|ops| ops.snapshot()).unwrap_or_default();
    let of = |op: Op| {
        let all = seen.iter().filter(|one| one.op == op);
        all.fold((0, 0), |(ops, bytes), one| {
            (ops + one.times.count().saturating_sub(one.codes.sum()), bytes + one.bytes)
        })
    };
    let ((writes, nwritten), (reads, nread)) = (of(Op::Write), of(Op::Read));
    [
        ("writes", writes),
        ("nwritten", nwritten),
        ("reads", reads),
        ("nread", nread),
        ("nunlinks", log.unlinks),
        ("nunlinked", log.unlinked),
    ]
}

/// The kstat of commit durations: of a pool, and with a dataset's object as suffix, of one log.
pub(crate) const COMMITS: &str = "zil_commit";
/// The rows of that histogram: up to 2^40 ns, and all longer durations.
const COMMIT_ROWS: usize = 40;

/// A histogram of durations by powers of two, as OpenZFS's `dmu_tx_assign` shows its times. Each
/// row counts the durations from half of its power up to it.
fn times(of: &HistogramSnapshot) -> Values {
    let rows = of.powers(COMMIT_ROWS).into_iter().enumerate();
    rows.map(|(power, n)| (format!("{} ns", 2_u64 << power), KstatValue::Number(n))).collect()
}

/// How long changes were delayed before they got their transaction group.
const ASSIGN: &str = "dmu_tx_assign";

/// The rows of [`ASSIGN`], up to the last one that is not 0 (`spa_tx_assign_update`).
fn assignments(of: &HistogramSnapshot) -> Values {
    let mut rows = times(of);
    let last = rows.iter().rposition(|(_, value)| *value != KstatValue::Number(0));
    rows.truncate(last.map_or(0, |last| last + 1));
    if !rows.is_empty() {
        // Nothing takes a nanosecond, but OpenZFS's first row is this.
        rows.insert(0, ("1 ns".to_owned(), KstatValue::Number(0)));
    }
    rows
}

fn commits_of(imported: &Imported, name: &str) -> Option<Values> {
    let object = u64::from_str_radix(name.strip_prefix(COMMITS)?.strip_prefix("-0x")?, 16).ok()?;
    Some(times(&imported.pool.spa().writer()?.logs().stats_of(object)?.commit_ns))
}

/// Names that programs query, for what this cache never has or does. They are 0.
const NEVER: [&str; 36] = [
    "uncached_hits",
    "prescient_prefetch",
    "demand_hit_prescient_prefetch",
    "demand_iohit_prescient_prefetch",
    "arc_dnode_limit",
    "async_upgrade_sync",
    "hash_collisions",
    "hash_chains",
    "hash_chain_max",
    "dbuf_size",
    "dnode_size",
    "bonus_size",
    "anon_size",
    "anon_data",
    "anon_metadata",
    "anon_evictable_data",
    "anon_evictable_metadata",
    "mru_ghost_evictable_data",
    "mru_ghost_evictable_metadata",
    "mfu_ghost_evictable_data",
    "mfu_ghost_evictable_metadata",
    "uncached_size",
    "uncached_data",
    "uncached_metadata",
    "uncached_evictable_data",
    "uncached_evictable_metadata",
    "l2_evict_lock_retry",
    "l2_evict_l1cached",
    "l2_free_on_write",
    "memory_throttle_count",
    "memory_direct_count",
    "arc_tempreserve",
    "arc_loaned_bytes",
    "arc_prune",
    "arc_raw_size",
    "abd_chunk_waste_size",
];

/// Reasons of OpenZFS's that never delay a change here, so they are 0.
///
/// Memory is only short for dirty data. A free is no larger than what it frees. The committing
/// thread writes the log.
const NEVER_IN_THE_WAY: [&str; 6] = [
    "dmu_tx_delay",
    "dmu_tx_memory_reserve",
    "dmu_tx_memory_reclaim",
    "dmu_tx_dirty_throttle",
    "dmu_tx_dirty_frees_delay",
    "dmu_tx_wrlog_delay",
];

/// How changes of all pools got into their transaction groups, since the daemon began
/// (`dmu_tx_stats`).
fn changes() -> Values {
    let own = TxCounts::of_process().named();
    numbers(own.into_iter().chain(NEVER_IN_THE_WAY.map(|name| (name, 0))))
}

/// The cache of all pools (`arc_stats`).
pub(crate) fn arc(store: &arc::Store) -> Values {
    let own = store.named();
    let memory = crate::telemetry::memory::now();
    let told = [
        ("memory_all_bytes", memory.all),
        ("memory_free_bytes", memory.free),
        ("arc_sys_free", memory.sys_free()),
    ];
    let mut values = numbers(own.into_iter().chain(told).chain(NEVER.map(|name| (name, 0))));
    values.push(("memory_available_bytes".to_owned(), KstatValue::Signed(memory.available())));
    values
}

/// The prefetches (`zfetch_stats`).
fn prefetches(store: &arc::Store) -> Values {
    let z = store.zfetch();
    numbers([
        ("hits", z.hits.get()),
        ("future", z.future.get()),
        ("stride", z.stride.get()),
        ("past", z.past.get()),
        ("misses", z.misses.get()),
        ("max_streams", z.max_streams.get()),
        ("io_issued", z.io_issued.get()),
        ("io_active", z.io_active()),
    ])
}

/// The balance of the sublists, and how many blocks waited for free memory.
fn sublists(store: &arc::Store) -> Values {
    let mut values = Values::new();
    for of in store.sublists() {
        let e = of.evenness;
        let rows = [
            ("sublists", e.sublists),
            ("entries", e.all),
            ("most", e.most),
            ("least", e.least),
            ("evenness_percent", e.percent()),
        ];
        values.extend(rows.map(|(name, n)| (format!("{}_{name}", of.list), KstatValue::Number(n))));
    }
    let (waited, refused) = store.waits();
    let throttled = store.zfetch().throttled.get();
    let (packed_hits, packed_cooled) = store.unpacked();
    values.extend(numbers([
        ("room_waited", waited),
        ("room_refused", refused),
        ("packed_hits", packed_hits),
        ("packed_cooled", packed_cooled),
        ("ahead_throttled", throttled),
    ]));
    values
}
