//! The view `attach`: how often volumes come into use, by partitions.

use api::Top;

use super::table::{Column, Table, Times, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 9] = [
    column("PARTITION", "partition", Unit::Text, "the partition"),
    column(
        "ATTACHED",
        "attached",
        Unit::Rate,
        "volumes that came into use: a first call since the start or a rest",
    ),
    column("OPENS", "opens", Unit::Rate, "how often the files of a volume were opened"),
    column("AVG", "mean_ns", Unit::Time, "mean time to open them"),
    column("p50", "p50_ns", Unit::Time, "half of them took at most this; up to a quarter too large"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; in an interval up to a quarter too large"),
    column("FAILED", "failed", Unit::Rate, "how often they could not be opened"),
    column("CLOSES", "closes", Unit::Rate, "how often the files of a volume were closed"),
];

/// The table of all partitions, by their names.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let mut rows = Vec::new();
    for of in &now.attach {
        let old = before.attach.iter().find(|old| old.partition == of.partition);
        let times = Times::between(old.map(|old| &old.opened), &of.opened);
        let added = |get: fn(&api::TopAttach) -> u64| get(of).saturating_sub(old.map_or(0, get));
        let mut row = vec![of.partition.as_str().into(), added(|of| of.attached).into(), times.count.into()];
        row.extend(times.cells());
        row.extend([added(|of| of.failed).into(), added(|of| of.closed).into()]);
        rows.push(row);
    }
    Table::new(&COLUMNS, rows)
}
