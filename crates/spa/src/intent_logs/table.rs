//! The table of open logs, and what logs did that are gone.
//!
//! # Theory
//! Sums over logs only grow. When a log leaves its table, its counters are added to those of the
//! table. When a pool is released, the counters of its table are added to those of the process. So
//! a reader that compares two moments sees no step back.
//!
//! # Locks
//! The list of tables comes before each table.
//!
//! # See
//! OpenZFS `zil_sums_global` of `zil.c`.

use observe::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use zil::{Stats, Zilog};

/// The open logs by dataset object.
#[derive(Default)]
pub(super) struct Table {
    open: BTreeMap<u64, Arc<Zilog>>,
    /// What those did that were here.
    ended: Stats,
}

impl std::ops::Deref for Table {
    type Target = BTreeMap<u64, Arc<Zilog>>;

    fn deref(&self) -> &BTreeMap<u64, Arc<Zilog>> {
        &self.open
    }
}

impl Table {
    pub(super) fn insert(&mut self, id: u64, log: Arc<Zilog>) {
        // The one before is gone, but no txg has removed it yet.
        self.remove(id);
        self.open.insert(id, log);
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(log) = self.open.remove(&id) {
            self.ended = Stats::sum([&self.ended, &log.stats()]);
        }
    }

    /// What all logs did, also those that are gone.
    pub(super) fn sum(&self) -> Stats {
        let open: Vec<Stats> = self.open.values().map(|log| log.stats()).collect();
        Stats::sum(open.iter().chain([&self.ended]))
    }
}

/// The tables of all pools.
#[derive(Default)]
struct Tables {
    present: Vec<Arc<Mutex<Table>>>,
    /// What the logs of released pools did.
    ended: Option<Stats>,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables { present: Vec::new(), ended: None });

/// The table of a pool, which counts for the process while it exists and afterwards.
pub(super) struct Listed(Arc<Mutex<Table>>);

impl Listed {
    pub(super) fn new() -> Listed {
        let table = Arc::<Mutex<Table>>::default();
        TABLES.lock().present.push(Arc::clone(&table));
        Listed(table)
    }
}

impl std::ops::Deref for Listed {
    type Target = Mutex<Table>;

    fn deref(&self) -> &Mutex<Table> {
        &self.0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut tables = TABLES.lock();
        tables.present.retain(|table| !Arc::ptr_eq(table, &self.0));
        let sum = self.0.lock().sum();
        tables.ended = Some(Stats::sum(tables.ended.iter().chain([&sum])));
    }
}

/// What the logs of all pools of this process did, also of released ones.
pub(super) fn sum_of_process() -> Stats {
    let tables = TABLES.lock();
    let present: Vec<Stats> = tables.present.iter().map(|table| table.lock().sum()).collect();
    Stats::sum(present.iter().chain(&tables.ended))
}
