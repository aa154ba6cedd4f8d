//! The view `ops`: operations of users by kind, and how long they took.

use api::{Top, TopOp, TopPool};
use std::cmp::Reverse;

use super::datasets::same;
use super::table::{Cell, Column, Distribution, Table, Times, Unit, column, errors};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 11] = [
    column("POOL", "pool", Unit::Text, "the pool"),
    column(
        "VIA",
        "frontend",
        Unit::Text,
        "fuse: mounted file systems; nbd: exported volumes; block: attached ones",
    ),
    column("OP", "op", Unit::Text, "the operation, by the name of its system call or NBD command"),
    column("OPS", "ops", Unit::Rate, "operations that ended, failed ones included"),
    column("DATA", "bytes", Unit::Bytes, "bytes read or written"),
    column("AVG", "mean_ns", Unit::Time, "mean time of an operation"),
    column("p50", "p50_ns", Unit::Time, "half of them took at most this; up to a quarter too large"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; in an interval up to a quarter too large"),
    column("ERRORS", "errors", Unit::Rate, "operations that failed"),
    column("CODES", "codes", Unit::Text, "how often they failed with which errno, the most frequent first"),
];

/// All operations of a reading, with the same in an earlier one.
fn all<'a>(
    before: &'a Top,
    now: &'a Top,
) -> impl Iterator<Item = (&'a TopPool, Option<&'a TopOp>, &'a TopOp)> {
    now.pools.iter().flat_map(move |pool| {
        let old = same(before, pool);
        pool.ops.iter().map(move |op| {
            let is_same = |other: &&TopOp| other.frontend == op.frontend && other.op == op.op;
            (pool, old.and_then(|old| old.ops.iter().find(is_same)), op)
        })
    })
}

/// The table of all operations, the most frequent first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let mut rows = Vec::new();
    for (pool, old, op) in all(before, now) {
        let times = Times::between(old.map(|old| &old.times), &op.times);
        if times.count == 0 {
            continue;
        }
        let (codes, failed) =
            errors(old.map(|old| (&*old.errors, old.other_errors)), (&op.errors, op.other_errors));
        let bytes = op.bytes.saturating_sub(old.map_or(0, |old| old.bytes));
        let names = [&pool.name, &op.frontend, &op.op];
        let mut row: Vec<Cell> = names.into_iter().map(|name| name.as_str().into()).collect();
        row.extend([times.count.into(), bytes.into()]);
        row.extend(times.cells());
        row.extend([failed.into(), codes.as_str().into()]);
        rows.push((times.count, row));
    }
    rows.sort_by_key(|(count, _)| Reverse(*count));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}

/// The times of the operations of this name.
pub(super) fn times_of(before: &Top, now: &Top, name: &str) -> Table {
    let mut sum = Distribution::default();
    for (pool, old, op) in all(before, now).filter(|(.., op)| op.op.eq_ignore_ascii_case(name)) {
        let times = Times::between(old.map(|old| &old.times), &op.times);
        sum.add(&format!("{} of {} through {}", op.op, pool.name, op.frontend), &times);
    }
    sum.table(&format!("operation {name}"))
}
