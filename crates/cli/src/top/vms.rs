//! The view `vms`: what each client of a volume reads and writes.

use api::{Top, TopClient};
use std::cmp::Reverse;

use super::clients::{Before, name};
use super::table::{Cell, Column, Table, Times, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 14] = [
    column("VOLUME", "volume", Unit::Text, "the volume, by the name under which the client opened it"),
    column("CLIENT", "client", Unit::Text, "an address, a process, or the kernel for an attached volume"),
    column("READ", "reads", Unit::Rate, "reads"),
    column("WRITE", "writes", Unit::Rate, "writes"),
    column("OUT", "bytes_read", Unit::Bytes, "bytes read"),
    column("IN", "bytes_written", Unit::Bytes, "bytes written"),
    column("R SIZE", "read_size", Unit::Size, "mean size of a read"),
    column("W SIZE", "write_size", Unit::Size, "mean size of a write"),
    column("R AVG", "read_mean_ns", Unit::Time, "mean time of a read"),
    column("W AVG", "write_mean_ns", Unit::Time, "mean time of a write"),
    column(
        "R p99",
        "read_p99_ns",
        Unit::Time,
        "99 of 100 reads took at most this; up to a quarter too large",
    ),
    column("W p99", "write_p99_ns", Unit::Time, "the same for writes"),
    column("R MAX", "read_max_ns", Unit::Time, "the longest read; in an interval up to a quarter too large"),
    column("W MAX", "write_max_ns", Unit::Time, "the same for writes"),
];

fn row(before: &TopClient, now: &TopClient) -> Option<(u64, Vec<Cell>)> {
    let times = [(&before.reads, &now.reads), (&before.writes, &now.writes)]
        .map(|(before, now)| Times::between(Some(before), now));
    let bytes = [now.read.saturating_sub(before.read), now.written.saturating_sub(before.written)];
    let counts = [times[0].count, times[1].count];
    let sum = counts[0].saturating_add(counts[1]);
    let size = |at: usize| bytes[at].checked_div(counts[at]).map_or(Cell::Nothing, Cell::Number);
    let [reads, writes] = times.map(|times| times.cells());
    let ([read_mean, _, read_p99, read_max], [write_mean, _, write_p99, write_max]) = (reads, writes);
    let volume = now.volume.as_deref().map_or(Cell::Nothing, Cell::from);
    let mut row = vec![volume, name(now).as_str().into()];
    row.extend(counts.into_iter().chain(bytes).map(Cell::Number));
    row.extend([size(0), size(1), read_mean, write_mean, read_p99, write_p99, read_max, write_max]);
    (sum > 0).then_some((sum, row))
}

/// The table of all volumes and their clients, those with the most reads and writes first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let before = Before::new(before, now);
    let shown = now.clients.iter().filter_map(|client| row(before.of(client)?, client));
    let mut rows: Vec<(u64, Vec<Cell>)> = shown.collect();
    rows.sort_by_key(|(sum, _)| Reverse(*sum));
    Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect())
}
