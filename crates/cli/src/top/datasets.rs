//! The view `datasets`: what users do with each dataset.

use api::{Top, TopClass, TopDataset, TopPool, TopTimes};
use std::cmp::Reverse;
use std::collections::HashMap;

use super::table::{Cell, Column, Table, Times, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 15] = [
    column("DATASET", "dataset", Unit::Text, "a file system, volume or snapshot that was used"),
    column("OPS", "ops", Unit::Rate, "operations that ended, failed ones included"),
    column("READ", "reads", Unit::Rate, "reads of data"),
    column("WRITE", "writes", Unit::Rate, "writes of data"),
    column("SYNC", "syncs", Unit::Rate, "fsync, syncfs, and flushes of volumes"),
    column("LOOKUP", "lookups", Unit::Rate, "look-ups of names, also of those that don't exist"),
    column("NAMES", "names", Unit::Rate, "names listed, created, removed, renamed"),
    column("ATTR", "attributes", Unit::Rate, "attributes read or changed"),
    column("OTHER", "others", Unit::Rate, "all other operations"),
    column("ERRORS", "errors", Unit::Rate, "operations that failed"),
    column("OUT", "bytes_read", Unit::Bytes, "bytes read"),
    column("IN", "bytes_written", Unit::Bytes, "bytes written"),
    column("AVG", "mean_ns", Unit::Time, "mean time of an operation"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; in an interval up to a quarter too large"),
];

/// The classes, in the order of the columns behind OPS.
const CLASSES: [&str; 7] = ["read", "write", "sync", "lookup", "names", "attributes", "other"];

/// The operations of a class that were added to a sum.
#[derive(Debug, Default, Clone, Copy)]
struct Class {
    ops: u64,
    errors: u64,
    bytes: u64,
}

/// What was added.
#[derive(Debug, Default)]
struct Added {
    classes: [Class; CLASSES.len()],
    times: TopTimes,
}

impl Added {
    /// Counts what a class has in `now` beyond `before`.
    fn class(&mut self, before: Option<&TopClass>, now: &TopClass) {
        let Some(at) = CLASSES.iter().position(|class| *class == now.class) else { return };
        let times = Times::between(before.map(|class| &class.times), &now.times);
        let of = &mut self.classes[at];
        of.ops = of.ops.saturating_add(times.count);
        of.errors =
            of.errors.saturating_add(now.errors.saturating_sub(before.map_or(0, |class| class.errors)));
        of.bytes = of.bytes.saturating_add(now.bytes.saturating_sub(before.map_or(0, |class| class.bytes)));
        self.times.sum = self.times.sum.saturating_add(times.sum);
        self.times.max = self.times.max.max(times.max);
        for (top, count) in times.buckets {
            match self.times.buckets.binary_search_by_key(&top, |(top, _)| *top) {
                Ok(at) => self.times.buckets[at].1 += count,
                Err(at) => self.times.buckets.insert(at, (top, count)),
            }
        }
    }

    fn classes(before: &[TopClass], now: &[TopClass]) -> Self {
        let mut added = Self::default();
        for class in now {
            added.class(before.iter().find(|other| other.class == class.class), class);
        }
        added
    }

    fn ops(&self) -> u64 {
        self.classes.iter().fold(0, |sum, class| sum.saturating_add(class.ops))
    }

    /// The row with this name.
    fn row(&self, name: &str) -> Vec<Cell> {
        let errors = self.classes.iter().fold(0u64, |sum, class| sum.saturating_add(class.errors));
        let [mean, _, p99, max] = Times::between(None, &self.times).cells();
        let numbers = [self.ops()].into_iter().chain(self.classes.map(|class| class.ops)).chain([
            errors,
            self.classes[0].bytes,
            self.classes[1].bytes,
        ]);
        [name.into()].into_iter().chain(numbers.map(Cell::Number)).chain([mean, p99, max]).collect()
    }
}

/// The operations on all datasets of a pool, in the list or not.
fn all_of(pool: &TopPool) -> Vec<TopClass> {
    let mut all: Vec<TopClass> = Vec::new();
    let listed = pool.datasets.iter().flat_map(|dataset| &dataset.classes);
    for class in listed.chain(&pool.other_datasets) {
        let Some(sum) = all.iter_mut().find(|sum| sum.class == class.class) else {
            all.push(class.clone());
            continue;
        };
        sum.bytes = sum.bytes.saturating_add(class.bytes);
        sum.errors = sum.errors.saturating_add(class.errors);
        sum.times.sum = sum.times.sum.saturating_add(class.times.sum);
        sum.times.max = sum.times.max.max(class.times.max);
        for (top, count) in &class.times.buckets {
            match sum.times.buckets.binary_search_by_key(top, |(top, _)| *top) {
                Ok(at) => sum.times.buckets[at].1 = sum.times.buckets[at].1.saturating_add(*count),
                Err(at) => sum.times.buckets.insert(at, (*top, *count)),
            }
        }
    }
    all
}

/// The same pool in another reading.
pub(super) fn same<'a>(all: &'a Top, pool: &TopPool) -> Option<&'a TopPool> {
    all.pools.iter().find(|other| other.number == pool.number)
}

/// The table of all datasets, those with the most operations first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let datasets = before.pools.iter().flat_map(|pool| &pool.datasets);
    let old: HashMap<u64, &TopDataset> = datasets.map(|dataset| (dataset.number, dataset)).collect();
    let mut rows = Vec::new();
    let datasets = now.pools.iter().flat_map(|pool| pool.datasets.iter().map(move |of| (pool, of)));
    for (pool, dataset) in datasets {
        let base: &[TopClass] = match old.get(&dataset.number) {
            Some(known) => &known.classes,
            None if dataset.number >= before.next || same(before, pool).is_none() => &[],
            // It was there, and not in the list: what was done since is in the sum alone.
            None => continue,
        };
        let added = Added::classes(base, &dataset.classes);
        if added.ops() > 0 {
            rows.push((added.ops(), added.row(&dataset.name)));
        }
    }
    rows.sort_by_key(|(ops, _)| Reverse(*ops));
    let mut sum = Added::default();
    for pool in &now.pools {
        let base = same(before, pool).map(all_of).unwrap_or_default();
        for class in all_of(pool) {
            sum.class(base.iter().find(|other| other.class == class.class), &class);
        }
    }
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Table { sum: Some(sum.row("total")), ..Table::new(&COLUMNS, rows) }
}
