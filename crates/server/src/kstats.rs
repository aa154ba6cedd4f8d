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
use std::collections::BTreeMap;

/// All that is counted now.
pub(crate) fn all(pools: &Pools) -> Vec<Kstat> {
    let pools = pools.all();
    let mut out = vec![arc(&pools)];
    let mut logs: BTreeMap<String, u64> = BTreeMap::new();
    for pool in &pools {
        let name = pool.pool.name();
        let state = match pool.pool.spa().writer().and_then(|live| live.suspended()) {
            Some(_) => "SUSPENDED",
            None => "ONLINE",
        };
        out.push(Kstat {
            pool: Some(name.to_owned()),
            name: "state".into(),
            values: Vec::new(),
            text: Some(state.into()),
        });
        let guid = pool.pool.spa().guid().0;
        out.push(Kstat {
            pool: Some(name.to_owned()),
            name: "guid".into(),
            values: Vec::new(),
            text: Some(guid.to_string()),
        });
        for (object, counters) in pool.pool.spa().writer().map(|live| live.log_stats()).unwrap_or_default() {
            let counters = counters.named();
            for (counter, n) in &counters {
                *logs.entry((*counter).to_owned()).or_default() += n;
            }
            // One whose dataset is gone is about to go too.
            let Ok(dataset) = pool.pool.dsl().by_object(ObjNum(object)) else { continue };
            let mut values = vec![("dataset_name".to_owned(), KstatValue::Text(dataset.name()))];
            values.extend(counters.into_iter().map(|(name, n)| (name.to_owned(), KstatValue::Number(n))));
            out.push(Kstat {
                pool: Some(name.to_owned()),
                name: format!("objset-0x{object:x}"),
                values,
                text: None,
            });
        }
    }
    let values = logs.into_iter().map(|(name, n)| (name, KstatValue::Number(n))).collect();
    out.push(Kstat { pool: None, name: "zil".into(), values, text: None });
    out
}

/// The caches of all pools, as one.
fn arc(pools: &[std::sync::Arc<Imported>]) -> Kstat {
    let (mut hits, mut misses, mut size, mut c_max) = (0u64, 0u64, 0u64, 0u64);
    for pool in pools {
        let stats = pool.pool.spa().cache().stats();
        hits = hits.saturating_add(stats.hits);
        misses = misses.saturating_add(stats.misses);
        size = size.saturating_add(stats.size);
        c_max = c_max.saturating_add(stats.c_max);
    }
    // A cache here aims at what it may be at most.
    let values = [("hits", hits), ("misses", misses), ("size", size), ("c", c_max), ("c_max", c_max)];
    let values = values.map(|(name, n)| (name.to_owned(), KstatValue::Number(n))).to_vec();
    Kstat { pool: None, name: "arcstats".into(), values, text: None }
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
