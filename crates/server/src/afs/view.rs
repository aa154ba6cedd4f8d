//! What commands show of the AFS server.

use super::running::Running;
use super::{Afs, Entry, Stage, of_afs, settings, within};
use crate::pools::imported::Imported;
use afs::partition::PartitionId;
use afs::server::header::Service;
use afs::server::store::{Found, Partition};
use afs::server::table::Listed;
use afs::server::volume::Volume;
use afs::types::{VolumeId, VolumeType};
use api::{
    AFS_PAGE, AfsClient, AfsLock, AfsPartition, AfsQuery, AfsServer, AfsStatus, AfsTransaction, AfsVolume,
    Error, Reason,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, UNIX_EPOCH};

/// All and free, in KiB.
type Space = (u64, u64);

/// The volumes of a query, in the order of their numbers, at most [`AFS_PAGE`].
///
/// # Errors
/// * [`Reason::BadValue`]: this is no partition.
pub(crate) fn chosen(running: &Running, query: &AfsQuery) -> Result<Vec<Listed>, Error> {
    let wanted = query.partition.as_deref().map(partition).transpose()?;
    let table = &running.server.core().table;
    let ids = match query.volume {
        Some(id) => vec![VolumeId(id)],
        None => table.ids(wanted, query.after),
    };
    let is_chosen = |volume: &Listed| {
        wanted.is_none_or(|id| volume.partition().id == id) && u64::from(volume.id().0) > query.after
    };
    let chosen = ids.into_iter().filter_map(|id| table.look(id)).filter(is_chosen);
    Ok(chosen.take(AFS_PAGE).collect())
}

/// The volumes of a query that are in use, in the order of their numbers.
///
/// # Errors
/// * [`Reason::BadValue`]: this is no partition.
fn used(running: &Running, query: &AfsQuery) -> Result<Vec<Arc<Volume>>, Error> {
    let wanted = query.partition.as_deref().map(partition).transpose()?;
    let mut all = running.server.core().table.all_used();
    all.retain(|volume| {
        let id = volume.id.0;
        wanted.is_none_or(|id| volume.partition.id == id)
            && query.volume.is_none_or(|one| one == id)
            && u64::from(id) > query.after
    });
    all.sort_unstable_by_key(|volume| volume.id);
    Ok(all)
}

fn partition(name: &str) -> Result<PartitionId, Error> {
    let bad = |why| Error::new(name, Reason::BadValue { what: format!("--partition {why}") });
    settings::partition(name).map_err(bad)
}

fn kind(kind: VolumeType) -> &'static str {
    match kind {
        VolumeType::ReadWrite => "RW",
        VolumeType::ReadOnly => "RO",
        VolumeType::Backup => "BK",
    }
}

/// Volumes, as their headers say.
pub(crate) fn listed<'a>(running: &Running, volumes: impl Iterator<Item = &'a Listed>) -> Vec<AfsVolume> {
    volumes.map(|one| volume(running, one)).collect()
}

/// A volume whose header can't be read now, because its pool does not answer.
pub(crate) fn unread(running: &Running, volume: &Listed) -> AfsVolume {
    let core = running.server.core();
    let root = volume.partition().dataset();
    let dataset = match volume.found() {
        Found::Dataset(id) => format!("{root}/{id}"),
        Found::Snapshot { id, head } => format!("{root}/{head}@{id}"),
    };
    let in_transaction = core.transactions.has(volume.id());
    AfsVolume {
        id: volume.id().0,
        partition: volume.partition().id.to_string(),
        dataset,
        state: if in_transaction { "transaction" } else { "waiting" }.to_owned(),
        promises: volume.promises() as u64,
        ..AfsVolume::default()
    }
}

fn volume(running: &Running, volume: &Listed) -> AfsVolume {
    let mut shown = unread(running, volume);
    let in_transaction = shown.state == "transaction";
    match volume.try_peek() {
        // A call has it, and waits itself.
        None => {}
        Some(Ok(stored)) => {
            let header = &stored.header;
            shown.name = String::from_utf8_lossy(&header.name).into_owned();
            shown.kind = kind(header.kind).to_owned();
            shown.size = header.disk_used.into();
            shown.quota = header.quota.into();
            shown.files = header.file_count.into();
            shown.updated = header.update_date.0.into();
            shown.state = volume.try_service_as(&stored).map_or("waiting", state).to_owned();
        }
        // A restore has its files.
        Some(Err(afs::server::Error::Busy { .. })) => shown.state = "offline".to_owned(),
        Some(Err(error)) => {
            shown.state = "damaged".to_owned();
            tracing::warn!(volume = volume.id().0, error = api::chain(&error), "the volume can't be listed");
        }
    }
    if in_transaction {
        shown.state = "transaction".to_owned();
    }
    shown
}

fn state(service: Service) -> &'static str {
    match service {
        Service::Online => "online",
        Service::Busy => "busy",
        Service::Unknown | Service::Offline | Service::Gone => "offline",
    }
}

fn server(running: &Running) -> AfsServer {
    let core = running.server.core();
    let registration = running.registration();
    let address = |address: Option<std::net::SocketAddrV4>| {
        address.map(|address| address.to_string()).unwrap_or_default()
    };
    let transactions = core.transactions.all().into_iter().filter(|found| !found.is_deleted);
    let transactions = transactions.map(|found| AfsTransaction {
        id: found.id,
        volume: found.volume.id.0,
        call: found.last_call.to_owned(),
        running: found.is_running,
        begun: found.begun.0.into(),
    });
    let superusers = running.superusers.now();
    let (traffic, count) = (&core.traffic, |count: &AtomicU64| count.load(Ordering::Relaxed));
    let since_1970 = registration.registered_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    AfsServer {
        cell: running.cell.clone(),
        config: running.config.display().to_string(),
        files: address(running.server.file_address()),
        volumes: address(running.server.volume_address()),
        uuid: running.uuid.to_string(),
        registered: registration.is_registered,
        addresses: registration.addresses.iter().map(ToString::to_string).collect(),
        registered_at: since_1970.map(|time| time.as_secs()),
        registration_problem: registration.problem.map(|(problem, _)| problem.to_string()),
        protection_away: running.protection.is_away(),
        keys: running.keys.all().iter().map(|key| key.kvno).collect(),
        superusers: superusers.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        clients: core.hosts.count() as u64,
        promises: core.callbacks.count() as u64,
        sent: count(&traffic.sent),
        sent_bytes: count(&traffic.sent_bytes),
        unchanged: count(&traffic.same),
        received: count(&traffic.received),
        received_bytes: count(&traffic.received_bytes),
        dumps: count(&traffic.dumps),
        transactions: transactions.collect(),
    }
}

impl Afs {
    /// The server, if it runs.
    pub(crate) fn now(&self) -> Option<Arc<Running>> {
        self.server.lock().clone()
    }

    /// The server, if it runs. `None` also while it starts or ends.
    pub(crate) fn if_free(&self) -> Option<Arc<Running>> {
        self.server.try_lock()?.clone()
    }

    /// A partition as the status shows it.
    pub(super) fn partition(&self, name: &str) -> AfsPartition {
        let entry = self.partitions.lock().get(name).cloned();
        let running = self.now();
        let Some(entry) = entry else { return AfsPartition::default() };
        let mut shown = shown(running.as_deref(), name, &entry);
        let served = running.zip(entry.id).filter(|_| shown.served);
        match served.and_then(|(running, id)| running.server.core().partition(id)).map(|one| space(&one)) {
            Some(Ok(space)) => (shown.total, shown.free) = space,
            Some(Err(reason)) => shown.problem = Some(reason),
            None => {}
        }
        shown
    }

    /// The partitions of the server.
    pub(crate) fn served(&self) -> Vec<Arc<Partition>> {
        self.now().map(|running| running.server.core().partitions()).unwrap_or_default()
    }

    /// The server and its partitions, without their space: no pool is read.
    pub(crate) fn status(&self) -> AfsStatus {
        let partitions = self.partitions.lock().clone();
        let running = self.now();
        let shown = |(name, entry): (&String, &Entry)| shown(running.as_deref(), name, entry);
        let mut partitions: Vec<AfsPartition> = partitions.iter().map(shown).collect();
        partitions.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        AfsStatus { server: running.as_deref().map(server), partitions }
    }

    /// Clients.
    pub(crate) fn clients(&self, query: &AfsQuery) -> Vec<AfsClient> {
        let Some(running) = self.now() else { return Vec::new() };
        let hosts = &running.server.core().hosts;
        let new = hosts.all().into_iter().filter(|host| host.number() > query.after).take(AFS_PAGE);
        let client = |host: Arc<afs::server::hosts::Host>| AfsClient {
            number: host.number(),
            address: host.address().map(|address| address.to_string()).unwrap_or_default(),
            uuid: host.uuid().map(|uuid| uuid.to_string()),
            answers: host.is_ready(),
            promises: host.promises() as u64,
            idle: hosts.idle(&host).as_secs(),
        };
        new.map(client).collect()
    }

    /// Locks of clients.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: this is no partition.
    pub(crate) fn locks(&self, query: &AfsQuery) -> Result<Vec<AfsLock>, Error> {
        let Some(running) = self.now() else { return Ok(Vec::new()) };
        let (mut locks, now) = (Vec::new(), Instant::now());
        // Only a volume in use has locks.
        for volume in used(&running, query)? {
            let mut held = volume.locks().all(now);
            held.sort_unstable();
            locks.extend(held.into_iter().map(|(vnode, count)| AfsLock {
                volume: volume.id.0,
                vnode: vnode.0,
                write: count < 0,
                readers: u32::try_from(count).unwrap_or(0),
            }));
            if locks.len() >= AFS_PAGE {
                break;
            }
        }
        Ok(locks)
    }
}

/// The space of partitions in a pool, in all and free, in KiB. The pool is read.
pub(crate) fn spaces(
    partitions: &[Arc<Partition>],
    pool: &Imported,
) -> HashMap<String, Result<Space, Reason>> {
    let of_it = |one: &&Arc<Partition>| within(pool.pool.name(), one.dataset());
    partitions.iter().filter(of_it).map(|one| (one.dataset().to_owned(), space(one))).collect()
}

fn space(partition: &Partition) -> Result<Space, Reason> {
    let space = partition.space();
    space.map(|space| (space.total, space.free)).map_err(|error| of_afs(partition.dataset(), &error).reason)
}

/// A partition without its space.
fn shown(running: Option<&Running>, name: &str, entry: &Entry) -> AfsPartition {
    let letters = entry.id.map(|id| id.to_string()).unwrap_or_default();
    let mut shown = AfsPartition { name: letters, dataset: name.to_owned(), ..AfsPartition::default() };
    match &entry.stage {
        Stage::Failed(problem) => shown.problem = Some(problem.clone()),
        Stage::Moving => shown.moving = true,
        Stage::Served => {
            shown.served = true;
            let count = |id| running.map(|running| running.server.core().table.count(id) as u64);
            shown.volumes = entry.id.and_then(count).unwrap_or(0);
        }
    }
    shown
}
