//! What the daemon does, in numbers that only grow.
//!
//! # Theory
//! The numbers are in memory. No pool is read and none of its locks is taken, so an answer comes
//! while a pool is suspended.

use super::times::times;
use super::{clients, ops, work};
use crate::pools::Pools;
use afs::partition::PartitionId;
use afs::server::Core;
use afs::server::activity::calls::{Called, Calls};
use afs::server::activity::clients::{Client, Done, Kind};
use afs::server::activity::volumes::{Attached, OfVolume, Order, Used};
use afs::server::callbacks::Held;
use afs::server::table::Listed;
use afs::types::VolumeId;
use api::{
    Caller, Error, TOP_MAX, Top, TopAfsClient, TopAttach, TopCall, TopClient, TopLock, TopPromise, TopQuery,
    TopView, TopVolume,
};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// When the daemon began.
pub(crate) struct Start {
    clock: Instant,
    time: SystemTime,
}

impl Default for Start {
    fn default() -> Self {
        Self { clock: Instant::now(), time: SystemTime::now() }
    }
}

fn ns(between: std::time::Duration) -> u64 {
    u64::try_from(between.as_nanos()).unwrap_or(u64::MAX)
}

impl Start {
    /// The numbers of a view.
    ///
    /// # Errors
    /// See [`api::Service::top`].
    pub(crate) fn read(&self, caller: &Caller, pools: &Pools, query: &TopQuery) -> Result<Top, Error> {
        if query.view == TopView::Promises {
            caller.must_own("the promises to clients of AFS")?;
        }
        if query.view == TopView::Threads {
            caller.must_own("the threads of the daemon")?;
        }
        if matches!(query.view, TopView::Clients | TopView::Vms) {
            caller.must_own("the clients of the daemon")?;
        }
        // The other views must not wait for a server that starts or ends.
        let running = query.view.is_of_afs().then(|| pools.afs.now()).flatten();
        let core = running.as_deref().map(|running| &**running.server.core());
        let process = api::process_id();
        let mut top = Top { afs: core.is_some(), process, ..Top::default() };
        let mut began = self.clock;
        match (query.view, core) {
            (TopView::Locks, _) => (top.run, top.locks) = (process, locks(limit(query))),
            (TopView::Threads, _) => (top.run, top.threads) = (process, work::threads(limit(query))),
            (TopView::Clients | TopView::Vms, _) => {
                (top.run, top.next) = (process, observe::clients::next_number());
                let is_vms = query.view == TopView::Vms;
                let (all, others) = clients::all(is_vms, query.last, limit(query));
                (top.clients, top.other_clients) = (all, vec![others]);
                // This must not wait for a server that starts or ends.
                if let Some(running) = pools.afs.if_free().filter(|_| !is_vms) {
                    all_of_afs(running.server.core(), limit(query), &mut top);
                }
            }
            (TopView::Datasets, _) => {
                // Counters that begin during the reading have a number from here on.
                (top.run, top.next) = (process, observe::ops::next_number());
                top.pools = ops::datasets(&pools.table().present(), query.last, limit(query));
            }
            (TopView::Ops, _) => {
                (top.run, top.next) = (process, observe::ops::next_number());
                top.pools = ops::ops(&pools.table().present(), limit(query));
            }
            (_, Some(core)) => {
                began = core.activity.began.max(self.clock);
                top.run = core.activity.run;
                read(core, query, &mut top);
            }
            (_, None) => {}
        }
        if !caller.owns() {
            // Addresses are no secret: 'rxdebug' gets them from the server.
            top.afs_clients.iter_mut().for_each(|client| client.user = None);
        }
        // Numbers that are counted meanwhile belong to an earlier moment than this one.
        top.clock_ns = ns(self.clock.elapsed());
        top.began_ns = ns(began.duration_since(self.clock));
        let since_1970 = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        top.began = since_1970.as_secs() + top.began_ns / 1_000_000_000;
        Ok(top)
    }
}

/// The most rows that a query wants.
fn limit(query: &TopQuery) -> usize {
    match usize::try_from(query.limit) {
        Ok(limit) if limit > 0 => limit.min(TOP_MAX),
        _ => TOP_MAX,
    }
}

fn read(core: &Core, query: &TopQuery, top: &mut Top) {
    let limit = limit(query);
    match query.view {
        TopView::Calls => top.calls = calls(core, limit),
        TopView::AfsClients => afs_clients(core, query.last, limit, top),
        TopView::Volumes => volumes(core, query.last, limit, top),
        TopView::Attach => top.attach = attach(core, limit),
        TopView::Promises => promises(core, query, limit, top),
        TopView::Datasets
        | TopView::Ops
        | TopView::Clients
        | TopView::Vms
        | TopView::Locks
        | TopView::Threads => {}
    }
}

/// The name of a code of AFS or of the system, or its number.
fn name(code: i32) -> String {
    afs::errors::any_name(code).map_or_else(|| code.to_string(), str::to_owned)
}

fn calls(core: &Core, limit: usize) -> Vec<TopCall> {
    let activity = &core.activity;
    let services =
        [("file", &activity.files), ("volume", &activity.volumes), ("client", &*activity.callbacks)];
    let of = |(service, calls): (&str, &Calls)| {
        let row = |called: Called| TopCall {
            service: service.to_owned(),
            call: called.name.to_owned(),
            times: times(called.latency),
            errors: called.errors.into_iter().map(|(code, count)| (name(code), count)).collect(),
            other_errors: called.other_errors,
        };
        calls.snapshot().into_iter().map(row).collect::<Vec<_>>()
    };
    services.into_iter().flat_map(of).take(limit).collect()
}

fn client(done: &Done) -> TopAfsClient {
    let of = |kind: Kind| done.kinds[kind as usize];
    TopAfsClient {
        make_file: of(Kind::MakeFile),
        remove_file: of(Kind::RemoveFile),
        make_dir: of(Kind::MakeDir),
        remove_dir: of(Kind::RemoveDir),
        rename: of(Kind::Rename),
        lookup: of(Kind::Lookup),
        link: of(Kind::Link),
        symlink: of(Kind::Symlink),
        store_status: of(Kind::StoreStatus),
        store_data: of(Kind::StoreData),
        fetch: of(Kind::Fetch),
        status: of(Kind::Status),
        other: of(Kind::Other),
        errors: done.errors,
        read: done.read,
        written: done.written,
        ..TopAfsClient::default()
    }
}

/// Clients, those with the most calls first, or those that called last.
fn afs_clients(core: &Core, last: bool, limit: usize, top: &mut Top) {
    let (mut all, mut others, next) = core.activity.clients.snapshot();
    // The keys change meanwhile.
    all.sort_by_cached_key(|(client, done)| {
        (Reverse(if last { client.called() } else { 0 }), Reverse(done.calls()))
    });
    all.drain(limit.min(all.len())..).for_each(|(_, done)| others += done);
    let connections = core.connections();
    let shown = |(of, done): (Arc<Client>, Done)| TopAfsClient {
        number: of.number,
        address: of.peer.to_string(),
        user: of.user.as_deref().map(str::to_owned),
        connections: connections.get(&of.number).copied().unwrap_or(0),
        ..client(&done)
    };
    (top.afs_clients, top.other_afs_clients, top.next) =
        (all.into_iter().map(shown).collect(), client(&others), next);
}

/// Adds the clients of the AFS file server to those of other kinds.
fn all_of_afs(core: &Core, limit: usize, top: &mut Top) {
    let (mut all, mut others, next) = core.activity.clients.snapshot();
    all.sort_by_cached_key(|(_, done)| Reverse(done.calls()));
    all.drain(limit.min(all.len())..).for_each(|(_, done)| others += done);
    let connections = core.connections();
    let shown = |(of, done): (Arc<Client>, Done)| TopClient {
        number: of.number,
        name: match of.user.as_deref() {
            Some(user) => format!("{} {user}", of.peer),
            None => of.peer.to_string(),
        },
        connections: Some(connections.get(&of.number).copied().unwrap_or(0)),
        ..clients::of_afs(&done)
    };
    (top.afs_run, top.afs_next) = (core.activity.run, next);
    top.clients.extend(all.into_iter().map(shown));
    top.other_clients.push(clients::of_afs(&others));
}

/// The name of a volume in use, as far as memory has it. `number`: only of this use.
fn name_of(core: &Core, id: VolumeId, number: Option<u64>) -> String {
    match core.table.look(id) {
        Some(Listed::Used(volume)) if number.is_none_or(|number| number == volume.number()) => {
            String::from_utf8_lossy(&volume.known_name()).into_owned()
        }
        _ => String::new(),
    }
}

/// Volumes, those of which most bytes moved first, or those that were used last.
fn volumes(core: &Core, last: bool, limit: usize, top: &mut Top) {
    let order = if last { Order::Last } else { Order::Most };
    let (all, others, next) = core.table.usage(order, limit);
    let row = |partition: String, used: Used| TopVolume {
        partition,
        calls: used.calls,
        read: used.read,
        written: used.written,
        ..TopVolume::default()
    };
    let shown = |of: OfVolume| TopVolume {
        number: of.number,
        id: of.id.0,
        name: name_of(core, of.id, Some(of.number)),
        ..row(of.partition.to_string(), of.used)
    };
    top.volumes = all.into_iter().map(shown).collect();
    top.other_volumes =
        others.into_iter().map(|(partition, used)| row(partition.to_string(), used)).collect();
    top.next = next;
}

fn attach(core: &Core, limit: usize) -> Vec<TopAttach> {
    let row = |(partition, of): (PartitionId, &Attached)| TopAttach {
        partition: partition.to_string(),
        attached: of.attached.get(),
        opened: times(of.opened.snapshot()),
        failed: of.failed.get(),
        closed: of.closed.get(),
        rested: of.rested.get(),
    };
    core.attached().map(row).take(limit).collect()
}

fn locks(limit: usize) -> Vec<TopLock> {
    let row = |stat: observe::LockStat| TopLock {
        name: stat.name.to_owned(),
        waits: times(stat.wait_ns),
        callers: stat.callers.into_iter().map(|(caller, seen)| (caller, times(seen))).collect(),
    };
    observe::lock_stats().into_iter().map(row).take(limit).collect()
}

/// Promises, by volumes and clients, those with the most first.
fn promises(core: &Core, query: &TopQuery, limit: usize, top: &mut Top) {
    let hosts: Option<HashSet<u64>> = query.client.as_deref().map(|wanted| {
        let is_it = |address: std::net::SocketAddrV4| {
            address.to_string() == wanted || address.ip().to_string() == wanted
        };
        let all = core.hosts.all().into_iter();
        all.filter(|host| host.address().is_some_and(is_it)).map(|host| host.number()).collect()
    });
    let (all, others) = core.callbacks.held(query.volume.map(VolumeId), hosts.as_ref(), limit);
    let shown = |held: Held| TopPromise {
        address: held.host.address().map(|address| address.to_string()).unwrap_or_default(),
        uuid: held.host.uuid().map(|uuid| uuid.to_string()),
        volume: held.volume.0,
        name: name_of(core, held.volume, None),
        files: held.files,
        whole: held.whole,
    };
    (top.promises, top.other_promises) = (all.into_iter().map(shown).collect(), others);
}
