//! The view `clients`: what each client does.

use api::{Top, TopClient};
use std::cmp::Reverse;
use std::collections::HashMap;

use super::table::{Cell, Column, Table, Unit, column, errors};
use crate::ops::text;

/// The columns of the view.
pub(super) const COLUMNS: [Column; 26] = [
    column(
        "CLIENT",
        "client",
        Unit::Text,
        "a process with its number and user, an address, or a user of the control socket; of AFS: both",
    ),
    column(
        "KIND",
        "kind",
        Unit::Text,
        "fuse: uses mounts; nbd: a volume; block: an attached one; control; afs",
    ),
    column("CONN", "connections", Unit::Number, "connections to a volume, or of AFS"),
    column("OPS", "ops", Unit::Rate, "operations that ended, failed ones included"),
    column("LOOKUP", "lookups", Unit::Rate, "look-ups of names, also of those that don't exist"),
    column("READ", "reads", Unit::Rate, "reads of data"),
    column("WRITE", "writes", Unit::Rate, "writes of data"),
    column("FSYNC", "fsyncs", Unit::Rate, "fsync, syncfs, and flushes of volumes"),
    column("MKFILE", "mkfile", Unit::Rate, "files created"),
    column("RMFILE", "rmfile", Unit::Rate, "files removed"),
    column("MKDIR", "mkdir", Unit::Rate, "directories created"),
    column("RMDIR", "rmdir", Unit::Rate, "directories removed"),
    column("RENAME", "rename", Unit::Rate, "renames"),
    column("OTHER", "others", Unit::Rate, "all other operations, and requests of commands"),
    column("ERRORS", "errors", Unit::Rate, "operations that failed"),
    column("OUT", "bytes_read", Unit::Bytes, "bytes that it read"),
    column("IN", "bytes_written", Unit::Bytes, "bytes that it wrote"),
    column("AVG", "mean_ns", Unit::Time, "mean time of an operation"),
    column("VOLUME", "volume", Unit::Text, "the volume, by the name under which the client opened it"),
    column("MOST ERRORS", "most_errors", Unit::Text, "the operation and error of most failures"),
    column("PROCESS", "process", Unit::Detail, "the name of its process"),
    column("PID", "pid", Unit::Detail, "the number of its process"),
    column("UID", "uid", Unit::Detail, "its user"),
    column("CGROUP", "cgroup", Unit::Detail, "the control group of its process at its first operation"),
    column("SUBJECT", "subject", Unit::Detail, "the subject of its certificate"),
    column("NUMBER", "number", Unit::Detail, "the number of its counters, another one after it was evicted"),
];

/// The operations of each column behind OPS but the last, which has all others.
const OPS: [&[&str]; 9] = [
    &["lookup"],
    &["read"],
    &["write"],
    &["fsync", "syncfs", "flush"],
    &["mknod", "tmpfile"],
    &["unlink"],
    &["mkdir"],
    &["rmdir"],
    &["rename"],
];

/// What was added.
#[derive(Debug, Default)]
struct Added {
    ops: u64,
    columns: [u64; OPS.len() + 1],
    errors: u64,
    most: String,
    read: u64,
    written: u64,
    ns: u64,
}

impl Added {
    fn between(before: &TopClient, now: &TopClient) -> Self {
        let mut added = Self {
            read: now.read.saturating_sub(before.read),
            written: now.written.saturating_sub(before.written),
            errors: now.failed.saturating_sub(before.failed),
            ns: now.ns.saturating_sub(before.ns),
            ..Self::default()
        };
        for op in &now.ops {
            let old = before.ops.iter().find(|old| old.op == op.op).map_or(0, |old| old.count);
            let count = op.count.saturating_sub(old);
            let at = OPS.iter().position(|names| names.contains(&&*op.op)).unwrap_or(OPS.len());
            added.ops = added.ops.saturating_add(count);
            added.columns[at] = added.columns[at].saturating_add(count);
        }
        let old = (before.errors.as_slice(), before.other_errors);
        let (words, _) = errors(Some(old), (&now.errors, now.other_errors));
        let most = words.split(", ").next().and_then(|most| most.rsplit_once(' '));
        added.most = most.map_or_else(String::new, |(name, _)| name.to_owned());
        added
    }

    /// The cells from OPS on to AVG.
    fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![self.ops.into()];
        cells.extend(self.columns.map(Cell::Number));
        cells.extend([self.errors, self.read, self.written].map(Cell::Number));
        cells.push(self.ns.checked_div(self.ops).map_or(Cell::Nothing, Cell::Number));
        cells
    }
}

/// A client in words.
pub(super) fn name(client: &TopClient) -> String {
    let user = client.uid.map(|uid| format!("u:{uid}"));
    match (client.pid, user) {
        // The kernel writes pages back for no process.
        (Some(0), None) => "kernel".to_owned(),
        (Some(0), Some(user)) => format!("[0] {user}"),
        (Some(pid), user) => format!("{}[{pid}] {}", client.name, user.unwrap_or_default()),
        (None, Some(user)) => user,
        (None, None) => client.name.clone(),
    }
}

/// Whether a client is one of AFS, which have their own numbers.
fn is_of_afs(client: &TopClient) -> bool {
    client.kind == "afs"
}

/// An earlier reading.
pub(super) struct Before<'a> {
    clients: HashMap<(bool, u64), &'a TopClient>,
    /// Clients with these numbers and greater ones are new: others, and those of AFS.
    next: (u64, u64),
    none: TopClient,
    /// What all did, listed or not.
    all: TopClient,
    /// The reading did not wait for the server of AFS, so it says nothing of its clients.
    lacks_afs: bool,
}

impl<'a> Before<'a> {
    pub(super) fn new(before: &'a Top, now: &Top) -> Self {
        // Another server of AFS counts from zero.
        let is_same = before.afs_run == now.afs_run;
        let counts = |client: &&TopClient| is_same || !is_of_afs(client);
        let clients = before.clients.iter().filter(counts);
        let clients = clients.map(|client| ((is_of_afs(client), client.number), client)).collect();
        let afs_next = if is_same { before.afs_next } else { 0 };
        Self {
            clients,
            next: (before.next, afs_next),
            none: TopClient::default(),
            all: sum(all(before).filter(counts)),
            lacks_afs: before.next > 0 && before.afs_run == 0,
        }
    }

    /// What was added since, by clients of which this reading knows.
    fn added(&self, now: &Top) -> Added {
        let known = all(now).filter(|client| !self.lacks_afs || !is_of_afs(client));
        Added::between(&self.all, &sum(known))
    }

    /// What a client had done. `None`: it was not in the list, and what it did since is in the sum
    /// alone.
    pub(super) fn of(&self, client: &TopClient) -> Option<&TopClient> {
        let is_of_afs = is_of_afs(client);
        let next = match is_of_afs {
            true if self.lacks_afs => return None,
            true => self.next.1,
            false => self.next.0,
        };
        let known = self.clients.get(&(is_of_afs, client.number)).copied();
        known.or_else(|| (client.number >= next).then_some(&self.none))
    }
}

fn row(client: &TopClient, added: &Added) -> Vec<Cell> {
    let number = |number: Option<u64>| number.map_or(Cell::Nothing, Cell::Number);
    let words = |words: &Option<String>| words.as_deref().map_or(Cell::Nothing, Cell::from);
    let mut row = vec![name(client).as_str().into(), client.kind.as_str().into(), number(client.connections)];
    row.extend(added.cells());
    row.extend([words(&client.volume), text(&added.most)]);
    row.extend([
        if client.pid.is_some() { text(&client.name) } else { Cell::Nothing },
        number(client.pid.map(u64::from)),
        number(client.uid.map(u64::from)),
        text(&client.cgroup),
        words(&client.subject),
        client.number.into(),
    ]);
    row
}

/// All clients of a reading, listed or not.
fn all(top: &Top) -> impl Iterator<Item = &TopClient> {
    top.clients.iter().chain(&top.other_clients)
}

/// What these clients have done.
fn sum<'a>(clients: impl Iterator<Item = &'a TopClient>) -> TopClient {
    let mut sum = TopClient::default();
    for client in clients {
        sum.failed = sum.failed.saturating_add(client.failed);
        sum.ns = sum.ns.saturating_add(client.ns);
        sum.read = sum.read.saturating_add(client.read);
        sum.written = sum.written.saturating_add(client.written);
        for op in &client.ops {
            match sum.ops.iter_mut().find(|known| known.op == op.op) {
                Some(known) => known.count = known.count.saturating_add(op.count),
                None => sum.ops.push(op.clone()),
            }
        }
    }
    sum
}

/// The table of all clients, those with the most operations first.
pub(super) fn table(before: &Top, now: &Top) -> Table {
    let before = Before::new(before, now);
    let mut rows = Vec::new();
    for client in &now.clients {
        let Some(base) = before.of(client) else { continue };
        let added = Added::between(base, client);
        if added.ops > 0 {
            rows.push((added.ops, row(client, &added)));
        }
    }
    rows.sort_by_key(|(ops, _)| Reverse(*ops));
    let mut total: Vec<Cell> = vec!["total".into(), Cell::Nothing, Cell::Nothing];
    total.extend(before.added(now).cells());
    total.resize(COLUMNS.len(), Cell::Nothing);
    Table { sum: Some(total), ..Table::new(&COLUMNS, rows.into_iter().map(|(_, row)| row).collect()) }
}
