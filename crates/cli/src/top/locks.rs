//! The view `locks`: waits for locks of the daemon.

use api::Top;

use super::table::{Column, Table, Times, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 8] = [
    column("LOCK", "lock", Unit::Text, "what the locks of this kind protect; all of a kind are one row"),
    column("WAITS", "waits", Unit::Rate, "how often a thread waited for one"),
    column("WAITED", "waited_ns", Unit::Time, "how long threads waited in all"),
    column("SHARE", "share", Unit::Share, "of the time; more than 100 if several threads waited at once"),
    column("AVG", "mean_ns", Unit::Time, "mean time of a wait"),
    column("p50", "p50_ns", Unit::Time, "half of the waits took at most this; up to a quarter too large"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 waits took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; in an interval up to a quarter too large"),
];

/// The table of all kinds, those with the longest waits first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let span = u128::from(now.clock_ns.saturating_sub(before.clock_ns)).max(1);
    let mut rows = Vec::new();
    for lock in &now.locks {
        let old = before.locks.iter().find(|old| old.name == lock.name);
        let times = Times::between(old.map(|old| &old.waits), &lock.waits);
        if times.count > 0 {
            let share = u64::try_from(u128::from(times.sum) * 10_000 / span).unwrap_or(u64::MAX);
            let head = [lock.name.as_str().into(), times.count.into(), times.sum.into(), share.into()];
            rows.push((times.sum, head.into_iter().chain(times.cells()).collect()));
        }
    }
    rows.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}
