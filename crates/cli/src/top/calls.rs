//! The view `calls`: calls of the AFS server by name, and how long they took.

use api::{Top, TopCall};
use console::escaped;

use super::table::{Cell, Column, Table, Times, Unit, column};

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

/// The columns of one call's times.
const OF_ONE: [Column; 4] = [
    column("FROM", "from_ns", Unit::Time, "times above this"),
    column("TO", "to_ns", Unit::Time, "and up to this"),
    column("CALLS", "calls", Unit::Number, "calls that took so long"),
    column("", "bar", Unit::Text, "a bar of that length"),
];
/// The longest bar.
const BAR: u64 = 40;

/// The same call in another reading.
fn same<'a>(all: &'a [TopCall], call: &TopCall) -> Option<&'a TopCall> {
    all.iter().find(|other| other.service == call.service && other.call == call.call)
}

/// What was added to the errors of a call: by code, the most frequent first, and in all.
fn errors(before: Option<&TopCall>, now: &TopCall) -> (Vec<(String, u64)>, u64) {
    let old = |code: &String| {
        let known = before.and_then(|call| call.errors.iter().find(|(known, _)| known == code));
        known.map_or(0, |(_, count)| *count)
    };
    let mut all: Vec<(String, u64)> =
        now.errors.iter().map(|(code, count)| (code.clone(), count.saturating_sub(old(code)))).collect();
    all.retain(|(_, count)| *count > 0);
    all.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    let others = now.other_errors.saturating_sub(before.map_or(0, |call| call.other_errors));
    let sum = all.iter().map(|(_, count)| count).sum::<u64>() + others;
    if others > 0 {
        all.push(("others".to_owned(), others));
    }
    (all, sum)
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
        let (codes, failed) = errors(old, call);
        let words = codes.iter().map(|(code, count)| format!("{code} {count}"));
        let words: Vec<String> = words.collect();
        let mut row = vec![call.service.as_str().into(), call.call.as_str().into(), times.count.into()];
        row.extend(times.cells());
        row.extend([failed.into(), words.join(", ").as_str().into()]);
        rows.push((times.count, row));
    }
    rows.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}

/// The times of the calls of this name.
pub(super) fn times_of(before: &Top, now: &Top, name: &str) -> Table {
    let (mut octaves, mut about) = ([0u64; 65], Vec::new());
    for call in now.calls.iter().filter(|call| call.call.eq_ignore_ascii_case(name)) {
        let times = Times::between(same(&before.calls, call).map(|old| &old.times), &call.times);
        for (top, count) in &times.buckets {
            octaves[(u64::BITS - top.leading_zeros()) as usize] += count;
        }
        about.push(format!("{} of service {}: {} calls", call.call, escaped(&call.service), times.count));
    }
    let used = |n: &u64| *n > 0;
    let (first, last) = (octaves.iter().position(used), octaves.iter().rposition(used));
    let most = octaves.iter().copied().max().unwrap_or(0).max(1);
    let row = |octave: usize| {
        let below = |octave: usize| if octave == 0 { 0 } else { u64::MAX >> (64 - octave) };
        let count = octaves[octave];
        let length = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        let from = octave.checked_sub(1).map_or(0, below);
        vec![from.into(), below(octave).into(), count.into(), Cell::Text("@".repeat(length))]
    };
    let rows = first.zip(last).map(|(first, last)| (first..=last).map(row).collect());
    let about = match about.is_empty() {
        true => format!("no call {} was counted", escaped(name)),
        false => about.join(", "),
    };
    Table { about: Some(about), ..Table::new(&OF_ONE, rows.unwrap_or_default()) }
}
