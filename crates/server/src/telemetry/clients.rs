//! Clients of the front ends and of the control socket.

use afs::server::activity::clients as calls;
use api::{TopClient, TopClientOp, TopTimes};
use observe::clients::{self, Client, Done, Key, Kind, Who};
use observe::ops::Op;
use std::cmp::Reverse;
use std::sync::Arc;

use super::errnos::errno_name;
use super::times::times;

/// Clients, `limit` at most, and what all others did: those with the most operations, or those
/// that did something last. `is_vms`: those of volumes, with the distributions of their times.
pub(super) fn all(is_vms: bool, last: bool, limit: usize) -> (Vec<TopClient>, TopClient) {
    let (all, mut others) = clients::all();
    let is_shown = |client: &Arc<Client>| !is_vms || matches!(client.key().kind, Kind::Nbd | Kind::Block);
    let done = |client: Arc<Client>| {
        let done = client.done();
        (client, done)
    };
    let mut all: Vec<(Arc<Client>, Done)> = all.into_iter().filter(is_shown).map(done).collect();
    // The keys change meanwhile.
    all.sort_by_cached_key(|(client, done)| {
        Reverse(if last { (client.last(), 0) } else { (done.count(), client.last()) })
    });
    all.drain(limit.min(all.len())..).for_each(|(_, done)| others.merge(&done));
    let shown = all.into_iter().map(|(client, done)| about(&client, row(done, is_vms)));
    (shown.collect(), row(others, false))
}

/// What a client is, beside what it did.
fn about(client: &Client, row: TopClient) -> TopClient {
    let Key { kind, who, export, subject } = client.key();
    let (pid, uid) = match who {
        Who::Process { pid, uid, .. } => (Some(*pid), Some(*uid)),
        Who::User(uid) => (None, Some(*uid)),
        Who::Kernel => (Some(0), None),
        Who::Address(_) => (None, None),
    };
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    TopClient {
        number: client.number(),
        kind: kind.name().to_owned(),
        name: name(client),
        pid,
        uid,
        cgroup: client.cgroup().to_owned(),
        volume: text(export),
        subject: text(subject),
        connections: (*kind == Kind::Nbd).then(|| client.connections() as u64),
        ..row
    }
}

/// The name of a client's process, or its address.
pub(super) fn name(client: &Client) -> String {
    match client.key().who {
        Who::Address(address) => address.to_string(),
        _ => client.name(),
    }
}

fn row(done: Done, has_buckets: bool) -> TopClient {
    let counted = |(op, counted): (Op, clients::Counted)| TopClientOp {
        op: op.name().to_owned(),
        count: counted.count,
    };
    let sums = done.ops.iter().fold((0u64, 0u64), |(failed, ns), (_, of)| {
        (failed.saturating_add(of.errors), ns.saturating_add(of.ns))
    });
    let words = |(op, errno, count): (Op, i32, u64)| match errno {
        // A request of a command, which has no errno.
        0 => ("request".to_owned(), count),
        errno => (format!("{} {}", op.name(), errno_name(errno)), count),
    };
    let of = |seen: observe::LatencySnapshot| match has_buckets {
        true => times(seen),
        false => TopTimes { sum: seen.sum, max: seen.max, buckets: Vec::new() },
    };
    TopClient {
        ops: done.ops.into_iter().map(counted).collect(),
        failed: sums.0,
        ns: sums.1,
        errors: done.codes.into_iter().map(words).collect(),
        other_errors: done.other_codes,
        read: done.read,
        written: done.written,
        reads: of(done.reads),
        writes: of(done.writes),
        ..TopClient::default()
    }
}

/// What a client of the AFS file server did. Its calls have the names of the operations that are
/// most like them.
pub(super) fn of_afs(done: &calls::Done) -> TopClient {
    use calls::Kind;
    let of = |(kind, op): (Kind, Op)| {
        let count = done.kinds[kind as usize];
        (count > 0).then(|| TopClientOp { op: op.name().to_owned(), count })
    };
    let all = [
        (Kind::MakeFile, Op::Mknod),
        (Kind::RemoveFile, Op::Unlink),
        (Kind::MakeDir, Op::Mkdir),
        (Kind::RemoveDir, Op::Rmdir),
        (Kind::Rename, Op::Rename),
        (Kind::Lookup, Op::Lookup),
        (Kind::Link, Op::Link),
        (Kind::Symlink, Op::Symlink),
        (Kind::StoreStatus, Op::Setattr),
        (Kind::StoreData, Op::Write),
        (Kind::Fetch, Op::Read),
        (Kind::Status, Op::Getattr),
        (Kind::Other, Op::Unknown),
    ];
    TopClient {
        kind: "afs".to_owned(),
        ops: all.into_iter().filter_map(of).collect(),
        failed: done.errors,
        ns: done.ns,
        read: done.read,
        written: done.written,
        ..TopClient::default()
    }
}
