//! The view `calls`: calls of the AFS server by name, and how long they took.

use api::{Top, TopCall};

use super::table::{Column, Distribution, Table, Times, Unit, column, errors};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 9] = [
    column("SERVICE", "service", Unit::Text, "file and volume: calls to these; client: calls to clients"),
    column("CALL", "call", Unit::Text, "the call, by the name that OpenAFS has for it"),
    column("CALLS", "calls", Unit::Rate, "calls that ended, failed ones included"),
    column("AVG", "mean_ns", Unit::Time, "mean time of a call"),
    column("p50", "p50_ns", Unit::Time, "half of the calls took at most this; up to a quarter too large"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 calls took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; in an interval up to a quarter too large"),
    column("ERRORS", "errors", Unit::Rate, "calls that failed"),
    column("CODES", "codes", Unit::Text, "how often calls failed with which code, the most frequent first"),
];

/// The same call in another reading.
fn same<'a>(all: &'a [TopCall], call: &TopCall) -> Option<&'a TopCall> {
    all.iter().find(|other| other.service == call.service && other.call == call.call)
}

/// The table of all calls, the most frequent first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let mut rows = Vec::new();
    for call in &now.calls {
        let old = same(&before.calls, call);
        let times = Times::between(old.map(|old| &old.times), &call.times);
        if times.count == 0 {
            continue;
        }
        let (codes, failed) =
            errors(old.map(|old| (&*old.errors, old.other_errors)), (&call.errors, call.other_errors));
        let mut row = vec![call.service.as_str().into(), call.call.as_str().into(), times.count.into()];
        row.extend(times.cells());
        row.extend([failed.into(), codes.as_str().into()]);
        rows.push((times.count, row));
    }
    rows.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}

/// The times of the calls of this name.
pub(super) fn times_of(before: &Top, now: &Top, name: &str) -> Table {
    let mut sum = Distribution::default();
    for call in now.calls.iter().filter(|call| call.call.eq_ignore_ascii_case(name)) {
        let times = Times::between(same(&before.calls, call).map(|old| &old.times), &call.times);
        sum.add(&format!("{} of service {}", call.call, call.service), &times);
    }
    sum.table(&format!("call {name}"))
}
