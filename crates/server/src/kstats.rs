//! What the pools count, as the files below `/proc/spl/kstat/zfs` tell it.
//!
//! # Theory
//! A kstat is a name, perhaps within a pool, and named values; as a file it has two lines of head. Only what is counted here is told: a name of OpenZFS's
//! that is missing is not counted, and one that is there means what it means there. Values are read when they are asked for.
//!
//! # Absent
//! Times of reads and of creation: the head's are 0.

use crate::api::{Kstat, KstatValue};
use crate::pools::{Imported, Pools};
use ondisk::ObjNum;
use spa::Spa;
use std::collections::BTreeMap;
use std::sync::Arc;
use vdev::{VdevAux, VdevState};

/// A kstat's name, within the pool that it is of.
pub type Name = (Option<String>, String);

/// The names of all that is counted now. No device is asked for anything.
pub(crate) fn names(pools: &Pools) -> Vec<Name> {
    let mut out = vec![(None, "arcstats".to_owned())];
    for pool in pools.present() {
        let of = |name: &str| (Some(pool.pool.name().to_owned()), name.to_owned());
        out.extend(["state", "guid", "iostats"].map(of));
        let logs = pool.pool.spa().writer().map(|live| live.log_stats()).unwrap_or_default();
        out.extend(logs.iter().map(|(object, _)| of(&format!("objset-0x{object:x}"))));
    }
    out.push((None, "zil".to_owned()));
    out
}

/// One of them, by its name: of one that is of a pool that pool alone is asked. `None` if there is none.
pub(crate) fn one(pools: &Pools, pool: Option<&str>, name: &str) -> Option<Kstat> {
    let values = match (pool, name) {
        (None, "arcstats") => arc(&pools.present()),
        (None, "zil") => logs(&pools.present()),
        (None, _) => return None,
        (Some(of), _) => {
            let imported = pools.pool_or_going(of).ok()?;
            let text = |text: String| {
                Some(Kstat { pool: Some(of.into()), name: name.into(), values: Vec::new(), text: Some(text) })
            };
            match name {
                "state" => return text(state(imported.pool.spa()).to_owned()),
                "guid" => return text(imported.pool.spa().guid().0.to_string()),
                "iostats" => trims(imported.pool.spa()),
                _ => objset(&imported, name)?,
            }
        }
    };
    Some(Kstat { pool: pool.map(str::to_owned), name: name.to_owned(), values, text: None })
}

/// All that is counted now.
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

/// What `zpool trim` did to a pool's devices (`spa_iostats_t`, in part).
fn trims(spa: &Spa) -> Values {
    let stats = spa.tree().describe().stats;
    numbers([("trim_extents_written", stats.trim_ops), ("trim_bytes_written", stats.trim_bytes)])
}

/// What the log of a dataset has done. Whose it is, the pool's books are asked.
fn objset(imported: &Imported, name: &str) -> Option<Values> {
    let object = u64::from_str_radix(name.strip_prefix("objset-0x")?, 16).ok()?;
    let counters = imported.pool.spa().writer()?.log_stats_of(object)?;
    // One whose dataset is gone is about to go too.
    let dataset = imported.pool.dsl().by_object(ObjNum(object)).ok()?;
    let mut values = vec![("dataset_name".to_owned(), KstatValue::Text(dataset.name()))];
    values.extend(numbers(counters.named()));
    Some(values)
}

/// The logs of all pools, in sum.
fn logs(pools: &[Arc<Imported>]) -> Values {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for live in pools.iter().filter_map(|pool| pool.pool.spa().writer()) {
        for (counter, n) in live.log_stats().into_iter().flat_map(|(_, counters)| counters.named()) {
            *sums.entry(counter).or_default() += n;
        }
    }
    numbers(sums)
}

/// The caches of all pools, as one.
fn arc(pools: &[Arc<Imported>]) -> Values {
    let (mut hits, mut misses, mut size, mut c_max) = (0u64, 0u64, 0u64, 0u64);
    for pool in pools {
        let stats = pool.pool.spa().cache().stats();
        hits = hits.saturating_add(stats.hits);
        misses = misses.saturating_add(stats.misses);
        size = size.saturating_add(stats.size);
        c_max = c_max.saturating_add(stats.c_max);
    }
    // A cache here aims at what it may be at most.
    numbers([("hits", hits), ("misses", misses), ("size", size), ("c", c_max), ("c_max", c_max)])
}

/// A kstat as its file tells it (`kstat_seq_show`).
pub fn text(kstat: &Kstat) -> String {
    if let Some(text) = &kstat.text {
        return format!("{text}\n");
    }
    let rows = kstat.values.len();
    let mut s = format!("1 1 0x01 {rows} {} 0 0\n{:<31} {:<4} data\n", rows * 48, "name", "type");
    for (name, value) in &kstat.values {
        match value {
            KstatValue::Number(n) => s += &format!("{name:<31} {:<4} {n}\n", 4),
            KstatValue::Text(text) => s += &format!("{name:<31} {:<4} {text}\n", 7),
        }
    }
    s
}
