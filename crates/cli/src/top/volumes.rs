//! The view `volumes`: what clients do with each volume of the AFS server.

use api::{TOP_MAX, Top, TopVolume};
use std::collections::HashMap;

use super::table::{Cell, Column, Table, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 6] = [
    column("PARTITION", "partition", Unit::Text, "the partition"),
    column("VOLUME", "volume", Unit::Number, "the volume's number"),
    column("NAME", "name", Unit::Text, "its name, if memory has it"),
    column(
        "OPS",
        "operations",
        Unit::Rate,
        "calls of clients on its files; a bulk call counts once for each run of its files",
    ),
    column("READ", "bytes_read", Unit::Bytes, "bytes of files and directories that clients read"),
    column("WROTE", "bytes_written", Unit::Bytes, "bytes of files that clients sent to be stored"),
];

type Numbers = [u64; 3];

fn numbers(of: &TopVolume) -> Numbers {
    [of.calls, of.read, of.written]
}

fn minus(now: Numbers, before: &Numbers) -> Numbers {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}

/// The sum over all volumes of a reading, listed or not.
fn sum(top: &Top) -> Numbers {
    let all = top.volumes.iter().chain(&top.other_volumes).map(numbers);
    all.fold([0; 3], |sum, more| std::array::from_fn(|at| sum[at].saturating_add(more[at])))
}

/// The table of all volumes, those of which most bytes moved first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let old: HashMap<(u32, u64), Numbers> =
        before.volumes.iter().map(|volume| ((volume.id, volume.number), numbers(volume))).collect();
    let mut rows = Vec::new();
    for volume in &now.volumes {
        let base = match old.get(&(volume.id, volume.number)) {
            Some(known) => *known,
            // A list that was not cut lacks only those that had done nothing.
            None if volume.number >= before.next || before.volumes.len() < TOP_MAX => [0; 3],
            // It was in use, and not in the list: what was done since is in the sum alone.
            None => continue,
        };
        let added = minus(numbers(volume), &base);
        if added != [0; 3] {
            let name = if volume.name.is_empty() { Cell::Nothing } else { volume.name.as_str().into() };
            let head = [volume.partition.as_str().into(), u64::from(volume.id).into(), name];
            let order = (added[1].saturating_add(added[2]), added[0]);
            rows.push((order, head.into_iter().chain(added.map(Cell::Number)).collect()));
        }
    }
    rows.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
    let head = ["total".into(), Cell::Nothing, Cell::Nothing];
    let total = head.into_iter().chain(minus(sum(now), &sum(before)).map(Cell::Number)).collect();
    Table { sum: Some(total), ..Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect()) }
}
