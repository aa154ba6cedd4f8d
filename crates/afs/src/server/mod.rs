//! The file server and the volume server of a cell.
//!
//! # Theory
//! A server has partitions ([`store`]), and a table of their volumes ([`table`]). The file server
//! ([`fileserver`]) serves the calls of clients on files. The volume server ([`volserver`]) serves
//! those of administrators on volumes. Both are in one process, so what takes two processes of
//! OpenAFS a protocol is a lock here.
//!
//! | module | content |
//! |---|---|
//! | [`store`] | partitions and volumes as datasets of a pool |
//! | [`table`] | all volumes: where each is, and those in use |
//! | [`header`] | the stored header of a volume |
//! | [`volume`] | a volume in service: its files, locks, uniques, quota |
//! | [`vnode`], [`access`] | a file, its status, and who may do what |
//! | [`hosts`], [`callbacks`], [`clients`] | clients, and the promises to them |
//! | `partitions`, `remembered` | partitions that come and go; promises that outlive the server |
//! | [`locks`], [`blobs`] | locks of files; directories as clients fetch them |
//! | [`known`] | statuses of files that were used lately |
//! | [`activity`] | what all of them do, in numbers |
//!
//! # See
//! OpenAFS: `src/viced`, `src/volser`, `src/vol`.

pub mod access;
pub mod activity;
pub mod adopt;
pub mod blobs;
pub mod callbacks;
pub mod clients;
mod error;
pub mod fileserver;
pub mod header;
pub mod hosts;
mod instance;
pub mod known;
pub mod locks;
pub mod open;
mod partitions;
mod remembered;
pub mod shared;
pub mod store;
pub mod table;
#[cfg(test)]
mod tests;
pub mod vnode;
pub mod volserver;
pub mod volume;
mod withheld;

pub use error::{Error, Result, chain};
pub use withheld::Withheld;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use observe::lock::{Condvar, Mutex, RwLock};
use rx::Endpoint;
use rx::engine::Info;
use rx::security::rxkad::{self, Keys, SUPERUSER};
use rx::security::{Class, Level, Null};

use crate::cell::protection::Protection;
use crate::config::{Realms, Superusers};
use crate::errors;
use crate::partition::PartitionId;
use crate::types::{Date, PrincipalId, VolumeId};
use crate::wire::Uuid;
use access::{Caller, Callers};
use activity::Activity;
use activity::volumes::Attached;
use callbacks::CallBacks;
use clients::RxClients;
use fileserver::FileServer;
use hosts::Hosts;
use partitions::Promises;
use remembered::Remembered;
use store::{Found, Partition};
use table::Table;
use volserver::VolumeServer;
use volserver::blocks::Deaf;
pub use volserver::blocks::{AFS_SEND_BLOCKS, Traffic};
pub use volserver::forward::Limits as ForwardLimits;
use volserver::transactions::Transactions;
use volume::Volume;

/// The service of the file server (RXAFS).
const FILE_SERVICE: u16 = 1;
/// The service of the volume server (AFSVol).
const VOLUME_SERVICE: u16 = 4;
/// How often headers are written and transactions checked.
const TICK: Duration = Duration::from_secs(1);

/// The default of [`Options::patience`].
const PATIENCE: Duration = Duration::from_secs(600);
/// The default of [`Options::most_open`].
const MOST_OPEN: usize = 8192;
/// So many ticks after the last partition came, clients of others are reset.
const LATEST: u32 = 10;
/// How often partitions bring their lists of volumes up to date.
const KEEP: Duration = Duration::from_secs(60);

/// Seconds since 1970.
pub(crate) fn now() -> Date {
    Date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32)
}

/// How a server is started.
pub struct Options {
    /// The address of both services.
    pub address: Ipv4Addr,
    /// Whether the host may get the address later.
    pub early: bool,
    /// The port of the file server. Default: 7000.
    pub file_port: u16,
    /// The port of the volume server. Default: 7005.
    pub volume_port: u16,
    /// Sockets of the file server, each with a thread.
    pub shards: usize,
    /// Threads for calls that may block, of each service.
    pub workers: usize,
    /// The keys of the cell.
    pub keys: Arc<Keys>,
    /// The realms that are the cell's own.
    pub realms: Realms,
    /// Who may call the volume server, beside the cell's own key.
    pub superusers: Superusers,
    /// The number by which the cell knows the server.
    pub uuid: Uuid,
    /// Bounds of the table of clients.
    pub hosts: hosts::Options,
    /// Bounds of promises.
    pub promises: callbacks::Limits,
    /// When a transaction that no call uses ends. Default: 10 minutes.
    pub transactions: Duration,
    /// When the files of a volume that no call uses are closed, in whole seconds. Default: 10
    /// minutes.
    pub patience: Duration,
    /// Most volumes with open files. Beyond it, those used least lately are closed. Default: 8,192.
    pub most_open: usize,
    /// How volumes are sent to other servers, and how long these may take.
    pub forwards: ForwardLimits,
    /// The file that keeps clients and promises until the next start. `None`, the default: clients
    /// are reset.
    pub promises_file: Option<PathBuf>,
}

impl Options {
    /// The defaults, for a cell with these keys.
    pub fn new(address: Ipv4Addr, keys: Arc<Keys>, cell: String, uuid: Uuid) -> Self {
        Self {
            address,
            early: false,
            file_port: 7000,
            volume_port: 7005,
            shards: 1,
            workers: 16,
            keys,
            realms: Realms::parse(&cell, &[], &[]),
            superusers: Superusers::default(),
            uuid,
            hosts: hosts::Options::default(),
            promises: callbacks::Limits::default(),
            transactions: volserver::transactions::IDLE,
            patience: PATIENCE,
            most_open: MOST_OPEN,
            forwards: ForwardLimits::default(),
            promises_file: None,
        }
    }
}

/// What both services share.
pub struct Core {
    /// All volumes.
    pub table: Table,
    /// All partitions.
    partitions: RwLock<Vec<Arc<Partition>>>,
    /// The promises to clients.
    pub callbacks: Arc<CallBacks>,
    /// The clients.
    pub hosts: Arc<Hosts>,
    /// What the server does.
    pub activity: Activity,
    remembered: Remembered,
    /// Users and groups.
    pub protection: Arc<dyn Protection>,
    /// The transactions of the volume server.
    pub transactions: Transactions,
    shared: Arc<shared::Shared>,
    idle: Duration,
    patience: u32,
    most_open: usize,
    forwards: ForwardLimits,
    /// How volumes travelled to and from other servers.
    pub traffic: Traffic,
    deaf: Deaf,
    realms: Realms,
    keys: Arc<Keys>,
    uuid: Uuid,
    superusers: Superusers,
    callers: Callers,
    /// The ticks since the last partition came, while no more are expected.
    waited: AtomicU32,
    /// Partitions whose volumes are being found.
    loading: AtomicUsize,
    /// Until when more partitions are expected.
    expected: Mutex<Option<Instant>>,
    /// Partitions that can't be served for now.
    withheld: RwLock<Vec<Arc<Withheld>>>,
    /// The endpoint of the volume server, for calls to others.
    outward: OnceLock<Weak<Endpoint>>,
}

impl Core {
    /// Who makes a call of the file server, if that needs no call of the server itself.
    pub fn known_caller(&self, info: &Info) -> Option<Arc<Caller>> {
        let host = self.hosts.known(info.peer, info.connection.epoch)?;
        self.callers.get(info, &host)
    }

    /// Who makes a call of the file server.
    ///
    /// # Errors
    /// The code of [`Protection`]: the user is new, and no protection server answers.
    pub fn caller(&self, info: &Info) -> std::result::Result<Arc<Caller>, i32> {
        let host = self.hosts.of(info.peer, info.connection.epoch, info.proved);
        if let Some(caller) = self.callers.get(info, &host) {
            return Ok(caller);
        }
        let anyone = self.protection.anonymous()?;
        let user = match &info.identity {
            None => Arc::clone(&anyone),
            // In access lists, the cell's own key is an anonymous user.
            Some(identity) if identity.name == SUPERUSER && identity.cell.is_empty() => Arc::clone(&anyone),
            Some(identity) => match self.realms.name_of(identity) {
                Some(name) => self.protection.user(&name)?,
                None => Arc::clone(&anyone),
            },
        };
        // Without its groups, a host gives no rights.
        let host_groups = self.protection.host(*info.peer.ip()).unwrap_or_default();
        let usage = self.activity.clients.of(info, self.shared.seconds());
        let caller = Arc::new(Caller { user, anyone, host_groups, host, usage });
        self.callers.put(info, Arc::clone(&caller));
        Ok(caller)
    }

    /// [`Callers::connections`].
    pub fn connections(&self) -> HashMap<u64, u64> {
        self.callers.connections()
    }

    /// What happens to volumes of each partition that has some.
    pub fn attached(&self) -> impl Iterator<Item = (PartitionId, &Attached)> {
        self.shared.partitions.all()
    }

    /// Has users and hosts looked up again.
    pub fn flush(&self, users: &[PrincipalId], addresses: &[u32]) {
        self.protection.flush(users, addresses);
        self.callers.clear();
    }

    /// Whether volumes may still come: a partition is not complete yet, or one is expected
    /// ([`Server::expect_more`]).
    pub fn is_starting(&self) -> bool {
        self.loading.load(Ordering::Acquire) > 0
            || self.partitions.read().is_empty()
            || self.expected.lock().is_some_and(|until| Instant::now() < until)
    }

    /// The code for a volume that is not here. If it may still come, callers should wait: with any
    /// other code, clients turn to the database, and `vos syncserv` deletes what is not here from
    /// it.
    fn no_volume(&self, id: VolumeId) -> i32 {
        let is_withheld = || self.withheld.read().iter().any(|partition| partition.has(id));
        if self.is_starting() || is_withheld() { errors::rx::RX_RESTARTING } else { errors::volume::VNOVOL }
    }

    /// The code for a partition that is not here, as for a volume.
    fn no_partition(&self, id: PartitionId) -> i32 {
        let is_withheld = || self.withheld.read().iter().any(|partition| partition.is(id));
        match self.is_starting() || is_withheld() {
            true => errors::rx::RX_RESTARTING,
            false => errors::volser::VOLSERILLEGAL_PARTITION,
        }
    }

    /// Whether the caller may change volumes.
    pub fn is_superuser(&self, info: &Info) -> bool {
        let identity = info.identity.as_ref();
        identity.is_some_and(|identity| self.realms.is_superuser(identity, &self.superusers))
    }

    /// All partitions, by their numbers.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().clone()
    }

    /// The partition of this number.
    pub fn partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().iter().find(|partition| partition.id == id).cloned()
    }

    fn load_promises(&self, file: Option<&Path>) {
        if let Some(path) = file
            && let Err(error) = self.remembered.load(path, self.uuid, &self.hosts)
        {
            tracing::warn!(?path, %error, "promises of before can't be read: clients are reset");
        }
    }

    fn save_promises(&self, file: Option<&Path>) {
        if let Some(path) = file
            && let Err(error) = self.remembered.save(path, self.uuid, &self.hosts)
        {
            tracing::warn!(?path, %error, "promises can't be kept: clients are reset at the next start");
        }
    }

    /// Notes that a file system has another name, for its clones.
    fn move_clones(&self, partition: &Partition, was: store::Head, head: store::Head) {
        match partition.clones(head) {
            Ok(clones) => {
                clones.into_iter().for_each(|id| self.table.move_clone(partition.id, id, was, head));
            }
            Err(error) => {
                let (partition, error) = (partition.id, chain(&error));
                tracing::error!(%partition, ?head, error, "its clones are found again at the next start");
            }
        }
    }

    /// Destroys a volume or clone.
    ///
    /// # Errors
    /// [`Error::Pool`]: its dataset is in use elsewhere. It then is served again.
    pub fn destroy(&self, volume: &Volume) -> Result<()> {
        volume.set_service(header::Service::Gone);
        let destroyed = volume.destroy(|| match volume.found() {
            Found::Dataset(id) => volume.partition.destroy(id),
            Found::Snapshot { head, id } => volume.partition.destroy_clone(head, id).map(|()| None),
        });
        let clones = destroyed.inspect_err(|_| volume.set_service(header::Service::Unknown))?;
        if let Some(head) = clones {
            self.move_clones(&volume.partition, store::Head::of(volume.id), head);
        }
        self.table.remove(volume.id);
        volume.callbacks.volume_changed();
        Ok(())
    }

    fn tick(&self, seconds: u32) {
        self.shared.set_seconds(seconds);
        let mut reserved = Vec::new();
        for id in self.shared.take_changed() {
            let Some(volume) = self.table.get(id) else { continue };
            match volume.flush() {
                Ok(None) => {}
                Ok(Some(open)) => reserved.push((volume, open)),
                Err(error) => {
                    tracing::error!(
                        volume = volume.id.0,
                        error = chain(&error),
                        "the header can't be written"
                    );
                }
            }
        }
        // One sync of each pool makes all reservations durable.
        for partition in self.partitions() {
            if !partition.is_stuck() {
                partition.note_settled();
            }
            let here = |volume: &Volume| volume.partition.id == partition.id;
            if reserved.iter().any(|(volume, _)| here(volume)) && partition.pool().sync().is_ok() {
                reserved.iter().filter(|(volume, _)| here(volume)).for_each(|(_, open)| open.reserved());
            }
        }
        drop(reserved);
        for lease in self.transactions.expired(self.idle) {
            match lease.unmade {
                _ if lease.is_deleted => {}
                Some(_) => {
                    self.table.remove_this(&lease.volume);
                    // No other call may make it now.
                    self.transactions.deleted(lease.id);
                }
                None => self.end_of(&lease.volume),
            }
            lease.end_of_former();
            let id = lease.id;
            drop(lease);
            let _ = self.transactions.end(id);
        }
        for partition in self.partitions() {
            if !partition.is_stuck() {
                partition.queue_drop_formers(self.idle, |id| self.transactions.has(id));
            }
        }
        self.table.rest(self.patience, self.most_open);
        // Partitions of one pool come one after another.
        let waited = if self.is_starting() { 0 } else { self.waited.load(Ordering::Relaxed) + 1 };
        self.waited.store(waited, Ordering::Relaxed);
        if waited >= LATEST {
            self.remembered.forsake();
        }
    }

    /// After the transaction of a volume: clients may use it as its header says. A volume whose
    /// transaction timed out before it was complete is destroyed.
    fn end_of(&self, volume: &Volume) {
        let half_made = volume.open().is_ok_and(|open| open.stored().destroy_me);
        if half_made {
            tracing::warn!(volume = volume.id.0, "a volume was not completed, and is destroyed");
            if let Err(error) = self.destroy(volume) {
                tracing::error!(volume = volume.id.0, error = chain(&error), "the volume can't be destroyed");
            }
            return;
        }
        if let Err(error) = volume.write_out(false) {
            tracing::error!(volume = volume.id.0, error = chain(&error), "the header can't be written");
        }
        volume.set_service(header::Service::Unknown);
    }
}

/// A running server. Dropping it closes all volumes.
pub struct Server {
    core: Arc<Core>,
    clients: Arc<RxClients>,
    files: Option<Arc<Endpoint>>,
    volumes: Option<Arc<Endpoint>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
    promises_file: Option<PathBuf>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
    /// Wakes the keeper: there are promises to check, or the server ends.
    check: Condvar,
}

impl Server {
    /// Starts a server, which has no partition yet.
    ///
    /// # Errors
    /// [`Error::Rx`]: an address can't be bound, or a thread not started.
    pub fn start(options: Options, protection: Arc<dyn Protection>) -> Result<Self> {
        let clients = Arc::new(RxClients::new(options.uuid));
        let hosts = Arc::new(Hosts::new(Arc::clone(&clients) as Arc<_>, options.hosts));
        let system = |source| Error::Rx(rx::Error::Socket { source });
        let callbacks = Arc::new(CallBacks::start(Arc::clone(&hosts), options.promises).map_err(system)?);
        let shared = Arc::new(shared::Shared::default());
        let activity = Activity::new(Arc::clone(clients.calls()));
        let core = Arc::new(Core {
            table: Table::new(Arc::clone(&callbacks), Arc::clone(&shared)),
            partitions: RwLock::default(),
            callbacks,
            hosts,
            activity,
            remembered: Remembered::default(),
            protection,
            transactions: Transactions::default(),
            shared,
            patience: u32::try_from(options.patience.as_secs()).unwrap_or(u32::MAX),
            most_open: options.most_open,
            callers: Callers::default(),
            waited: AtomicU32::new(0),
            loading: AtomicUsize::new(0),
            expected: Mutex::default(),
            withheld: RwLock::default(),
            idle: options.transactions,
            forwards: options.forwards,
            traffic: Traffic::default(),
            deaf: Deaf::default(),
            realms: options.realms,
            keys: Arc::clone(&options.keys),
            uuid: options.uuid,
            superusers: options.superusers,
            outward: OnceLock::new(),
        });
        let classes: Vec<Arc<dyn Class>> =
            vec![Arc::new(Null), Arc::new(rxkad::Server::new(options.keys, Level::Clear))];
        let endpoint = |port, shards, service: (u16, Arc<dyn rx::Service>)| {
            let services = vec![service];
            let (workers, early, classes) = (options.workers, options.early, classes.clone());
            let bound = rx::Options { shards, early, workers, classes, services, ..rx::Options::default() };
            Endpoint::bind(SocketAddrV4::new(options.address, port), bound).map(Arc::new)
        };
        let files: Arc<dyn rx::Service> = Arc::new(FileServer::new(Arc::clone(&core)));
        let volumes: Arc<dyn rx::Service> = Arc::new(VolumeServer::new(Arc::clone(&core)));
        let volumes = endpoint(options.volume_port, 1, (VOLUME_SERVICE, volumes))?;
        let promises_file = options.promises_file;
        // The first client may call as soon as the address is bound.
        core.load_promises(promises_file.as_deref());
        let files = endpoint(options.file_port, options.shards, (FILE_SERVICE, files))
            .inspect_err(|_| core.save_promises(promises_file.as_deref()))?;
        clients.attach(&files);
        let _ = core.outward.set(Arc::downgrade(&volumes));
        let stop = Arc::new(Stop::default());
        let ticker = {
            let (core, stop) = (Arc::clone(&core), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("afs-ticker".into());
            thread.spawn(move || run_ticker(&core, &stop)).map_err(system)?
        };
        let keeper = {
            let (core, stop) = (Arc::clone(&core), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("afs-keeper".into());
            thread.spawn(move || run_keeper(&core, &stop)).map_err(system)?
        };
        let threads = vec![ticker, keeper];
        Ok(Self { core, clients, files: Some(files), volumes: Some(volumes), threads, stop, promises_file })
    }

    /// Serves a partition too.
    ///
    /// # Errors
    /// * [`Error::Exists`]: the server has a partition of this number.
    /// * [`Error::Pool`]: the partition can't be read.
    pub fn add(&self, partition: Arc<Partition>) -> Result<()> {
        if !self.list(&partition) {
            return Err(Error::Exists { partition: partition.id });
        }
        self.core.loading.fetch_add(1, Ordering::AcqRel);
        let loaded = self.core.load(&partition);
        self.core.loading.fetch_sub(1, Ordering::AcqRel);
        // The keeper checks the promises that were taken back.
        drop(self.stop.stopped.lock());
        self.stop.check.notify_all();
        loaded.inspect_err(|_| self.forget(partition.id))
    }

    /// Notes that more partitions follow, until [`Self::expect_no_more`], but at the latest until
    /// this moment. A volume that is not here may be in one of them, so callers wait for it.
    pub fn expect_more(&self, until: Instant) {
        *self.core.expected.lock() = Some(until);
    }

    /// Notes that no more partitions follow.
    pub fn expect_no_more(&self) {
        *self.core.expected.lock() = None;
    }

    /// Notes which partitions can't be served for now, in the place of those of before.
    pub fn withhold(&self, partitions: Vec<Arc<Withheld>>) {
        *self.core.withheld.write() = partitions;
    }

    /// Serves a partition no more. Its volumes are closed, so that its pool can be exported. After
    /// an error, the partition is served as before.
    ///
    /// # Errors
    /// * [`Error::InTransaction`]: a transaction has a volume.
    /// * [`Error::Busy`]: a call does not release a volume.
    /// * [`Error::Pool`]: the state of the partition can't be stored.
    pub fn remove(&self, id: PartitionId) -> Result<()> {
        let Some(partition) = self.core.partition(id) else { return Ok(()) };
        // No transaction begins on a partition that is not listed.
        self.forget(id);
        let checked = self.core.check_transactions(id);
        let close = || self.core.close(&partition, Promises::Break);
        let removed = checked.and_then(|()| close().inspect_err(|_| self.core.reopen(&partition)));
        removed.inspect_err(|_| _ = self.list(&partition))
    }

    /// Serves a partition no more, whatever uses it: its transactions end. Volumes that calls don't
    /// release are not closed, as after a crash.
    ///
    /// # Errors
    /// Those of [`Self::remove`] but for transactions. The partition is not served after them
    /// either.
    pub fn force_out(&self, id: PartitionId) -> Result<()> {
        self.part_with(id, Promises::Break)
    }

    /// As [`Self::force_out`], because the server ends: clients keep their promises until its next
    /// start.
    ///
    /// # Errors
    /// Those of [`Self::force_out`].
    pub fn end(&self, id: PartitionId) -> Result<()> {
        self.part_with(id, Promises::Keep)
    }

    fn part_with(&self, id: PartitionId, promises: Promises) -> Result<()> {
        let Some(partition) = self.core.partition(id) else { return Ok(()) };
        self.forget(id);
        for found in self.core.transactions.end_all(|volume| volume.partition.id == id) {
            let (volume, call) = (found.volume.id.0, found.last_call);
            tracing::warn!(transaction = found.id, volume, call, "a transaction ends with its partition");
        }
        self.core.close(&partition, promises)
    }

    /// Forgets a partition whose pool does not answer. Its volumes are not closed, and calls that
    /// use them are not waited for.
    pub fn abandon(&self, id: PartitionId) {
        if let Some(partition) = self.core.partition(id) {
            self.core.table.close(&partition);
        }
        self.forget(id);
        for volume in self.core.table.used(id) {
            self.core.table.remove(volume.id);
            volume.forget();
            // Clients must not believe in what may come back as another.
            volume.callbacks.forsake();
        }
        drop(self.core.transactions.end_all(|volume| volume.partition.id == id));
    }

    /// Lists a partition, unless there is one of its number.
    fn list(&self, partition: &Arc<Partition>) -> bool {
        let mut partitions = self.core.partitions.write();
        let is_new = partitions.iter().all(|other| other.id != partition.id);
        if is_new {
            partitions.push(Arc::clone(partition));
            partitions.sort_unstable_by_key(|partition| partition.id);
        }
        is_new
    }

    fn forget(&self, id: PartitionId) {
        self.core.partitions.write().retain(|partition| partition.id != id);
    }

    /// What the services share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The address of the file server.
    pub fn file_address(&self) -> Option<SocketAddrV4> {
        self.files.as_ref().map(|endpoint| endpoint.address())
    }

    /// The address of the volume server.
    pub fn volume_address(&self) -> Option<SocketAddrV4> {
        self.volumes.as_ref().map(|endpoint| endpoint.address())
    }
}

fn run_ticker(core: &Core, stop: &Stop) {
    let begun = Instant::now();
    let mut stopped = stop.stopped.lock();
    while !*stopped {
        stop.wake.wait_for(&mut stopped, TICK);
        if !*stopped {
            observe::lock::MutexGuard::unlocked(&mut stopped, || core.tick(begun.elapsed().as_secs() as u32));
        }
    }
}

/// Keeps the lists of the partitions on disk, which may take longer than a tick.
fn run_keeper(core: &Core, stop: &Stop) {
    let mut stopped = stop.stopped.lock();
    while !*stopped {
        while !*stopped && observe::lock::MutexGuard::unlocked(&mut stopped, || core.check_next()) {}
        if *stopped {
            return;
        }
        let waited = stop.check.wait_for(&mut stopped, KEEP);
        if *stopped || !waited.timed_out() {
            continue;
        }
        observe::lock::MutexGuard::unlocked(&mut stopped, || {
            // Their pools are not held meanwhile: one of them may be exported.
            let ids: Vec<PartitionId> = core.partitions().iter().map(|partition| partition.id).collect();
            for id in ids {
                if !*stop.stopped.lock()
                    && let Some(partition) = core.partition(id)
                {
                    partition.keep_all(&core.table.with_headers(id));
                }
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.stop.wake.notify_all();
        self.stop.check.notify_all();
        self.core.partitions().iter().for_each(|partition| partition.end_listings());
        for thread in self.threads.drain(..) {
            // Its panic was reported where it happened.
            let _ = thread.join();
        }
        // No call runs after this.
        drop(self.files.take());
        drop(self.volumes.take());
        self.clients.close();
        self.core.callbacks.stop();
        drop(self.core.transactions.end_all(|_| true));
        for partition in self.core.partitions() {
            if let Err(error) = self.core.close(&partition, Promises::Keep) {
                let error = chain(&error);
                tracing::error!(partition = %partition.id, error, "the partition can't be closed");
            }
        }
        self.core.save_promises(self.promises_file.as_deref());
    }
}
