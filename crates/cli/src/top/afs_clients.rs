//! The view `afs-clients`: what each client of the AFS file server does.

use api::{Top, TopAfsClient};
use std::collections::HashMap;

use super::table::{Cell, Column, Table, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 20] = [
    column("CLIENT", "client", Unit::Text, "the address and port that the calls come from"),
    column(
        "USER",
        "user",
        Unit::Text,
        "the user that the calls prove; only root and the daemon's user see it",
    ),
    column("CONN", "connections", Unit::Number, "connections with a call of the last minute or two"),
    column("CALLS", "calls", Unit::Rate, "all calls that ended"),
    column("MKFILE", "mkfile", Unit::Rate, "CreateFile"),
    column("RMFILE", "rmfile", Unit::Rate, "RemoveFile"),
    column("MKDIR", "mkdir", Unit::Rate, "MakeDir"),
    column("RMDIR", "rmdir", Unit::Rate, "RemoveDir"),
    column("RENAME", "rename", Unit::Rate, "Rename"),
    column("LOOKUP", "lookup", Unit::Rate, "Lookup, which clients of today don't send: see STATUS"),
    column("LINK", "link", Unit::Rate, "Link"),
    column("SYMLNK", "symlink", Unit::Rate, "Symlink"),
    column("SSTORE", "sstore", Unit::Rate, "StoreStatus"),
    column("DSTORE", "dstore", Unit::Rate, "StoreData, StoreData64"),
    column("FETCH", "fetch", Unit::Rate, "FetchData, FetchData64"),
    column("STATUS", "status", Unit::Rate, "FetchStatus, BulkStatus, InlineBulkStatus"),
    column("OTHER", "other", Unit::Rate, "all other calls"),
    column("ERRORS", "errors", Unit::Rate, "calls that failed"),
    column("IN", "bytes_in", Unit::Bytes, "bytes of files that it stored"),
    column("OUT", "bytes_out", Unit::Bytes, "bytes of files and directories that it read"),
];

/// How many numbers a client has.
const NUMBERS: usize = 16;
type Numbers = [u64; NUMBERS];

/// The numbers in the order of the columns behind CALLS.
fn numbers(of: &TopAfsClient) -> Numbers {
    [
        of.make_file,
        of.remove_file,
        of.make_dir,
        of.remove_dir,
        of.rename,
        of.lookup,
        of.link,
        of.symlink,
        of.store_status,
        of.store_data,
        of.fetch,
        of.status,
        of.other,
        of.errors,
        of.written,
        of.read,
    ]
}

/// All calls among these numbers: those before ERRORS.
fn calls(numbers: &Numbers) -> u64 {
    numbers[..NUMBERS - 3].iter().fold(0, |sum, n| sum.saturating_add(*n))
}

fn minus(now: Numbers, before: &Numbers) -> Numbers {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}

/// The sum over all clients of a reading, listed or not.
fn sum(top: &Top) -> Numbers {
    let all = top.afs_clients.iter().chain([&top.other_afs_clients]).map(numbers);
    all.fold([0; NUMBERS], |sum, more| std::array::from_fn(|at| sum[at].saturating_add(more[at])))
}

/// The row of these numbers.
fn row(head: [Cell; 3], numbers: &Numbers) -> Vec<Cell> {
    let calls = Cell::Number(calls(numbers));
    head.into_iter().chain([calls]).chain(numbers.map(Cell::Number)).collect()
}

/// The table of all clients, those with the most calls first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let old: HashMap<u64, Numbers> =
        before.afs_clients.iter().map(|client| (client.number, numbers(client))).collect();
    let (mut rows, mut connections) = (Vec::new(), 0u64);
    for client in &now.afs_clients {
        connections += client.connections;
        let base = match old.get(&client.number) {
            Some(known) => *known,
            None if client.number >= before.next => [0; NUMBERS],
            // It was there, and not in the list: what it did since is in the sum alone.
            None => continue,
        };
        let added = minus(numbers(client), &base);
        if added != [0; NUMBERS] {
            let user = client.user.as_deref().map_or(Cell::Nothing, Cell::from);
            let head = [client.address.as_str().into(), user, client.connections.into()];
            rows.push((calls(&added), row(head, &added)));
        }
    }
    rows.sort_by_key(|(calls, _)| std::cmp::Reverse(*calls));
    let all = minus(sum(now), &sum(before));
    let total = row(["total".into(), Cell::Nothing, connections.into()], &all);
    Table { sum: Some(total), ..Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect()) }
}
