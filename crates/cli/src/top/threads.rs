//! The view `threads`: what each thread of the daemon does, as `prstat -m` shows it.

use api::{Top, TopThread};
use std::cmp::Reverse;

use super::table::{Cell, Column, Table, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 14] = [
    column("THREAD", "thread", Unit::Text, "the thread's name"),
    column("TID", "tid", Unit::Number, "its number in the system"),
    column("USR", "user", Unit::Share, "of the time: it computes"),
    column("SYS", "system", Unit::Share, "the kernel computes for it"),
    column("LAT", "latency", Unit::Share, "it waits for a processor"),
    column("LCK", "lock", Unit::Share, "it waits for a lock, or a range of an object"),
    column("TXG", "txg", Unit::Share, "it waits for room in a transaction group, or for the end of one"),
    column("LOG", "log", Unit::Share, "another thread writes the intent log for it"),
    column("READ", "read", Unit::Share, "a device reads; SYS has the kernel's part of that, too"),
    column("WRITE", "write", Unit::Share, "a device writes"),
    column("FLUSH", "flush", Unit::Share, "a device makes writes durable"),
    column(
        "OTHER",
        "other",
        Unit::Share,
        "cache, turns of background I/O, threads that work for it, and so on",
    ),
    column("IDLE", "idle", Unit::Share, "the rest"),
    column("DOING", "doing", Unit::Text, "what it does now"),
];

/// The kinds of waits that have a column. The time in the queue is that of no thread.
const WAITS: [&str; 6] = ["lock", "txg", "log", "read", "write", "flush"];

/// The waits of a thread by column, and all others.
fn waits(thread: &TopThread) -> [u64; WAITS.len() + 1] {
    let mut sums = [0u64; WAITS.len() + 1];
    for (kind, ns) in thread.waits.iter().filter(|(kind, _)| kind != "queue") {
        let at = WAITS.iter().position(|known| known == kind).unwrap_or(WAITS.len());
        sums[at] = sums[at].saturating_add(*ns);
    }
    sums
}

/// The table of all threads, the busiest first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let span = now.clock_ns.saturating_sub(before.clock_ns).max(1);
    let mut rows = Vec::new();
    for thread in &now.threads {
        let is_same = |old: &&TopThread| (old.tid, old.began) == (thread.tid, thread.began);
        let none = TopThread::default();
        let old = before.threads.iter().find(is_same).unwrap_or(&none);
        let computed = [
            thread.user_ns.saturating_sub(old.user_ns),
            thread.system_ns.saturating_sub(old.system_ns),
            thread.latency_ns.saturating_sub(old.latency_ns),
        ];
        let waited = waits(thread).into_iter().zip(waits(old)).map(|(now, old)| now.saturating_sub(old));
        let times: Vec<u64> = computed.into_iter().chain(waited).collect();
        let busy = times.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        let share = |ns: u64| u64::try_from(u128::from(ns) * 10_000 / u128::from(span)).unwrap_or(u64::MAX);
        let mut row: Vec<Cell> = vec![thread.name.as_str().into(), u64::from(thread.tid).into()];
        row.extend(times.iter().map(|ns| Cell::Number(share(*ns))));
        row.extend([share(span.saturating_sub(busy)).into(), thread.doing.as_str().into()]);
        rows.push((busy, row));
    }
    rows.sort_by_key(|(busy, _)| Reverse(*busy));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}
