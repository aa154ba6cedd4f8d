//! The control protocol over the pools of this process.
//!
//! # Theory
//! Each method finds its pool, reads what it needs through [`crate::view`], and answers. Changes go
//! through [`Pools`]. It serves in the daemon. It also serves in a command that finds no daemon,
//! where nothing is imported.

use crate::commands::pool::{self, create_pool};
use crate::control::{files, grants};
use crate::daemon;
use crate::events::zedlets::{Terms, ZedletError, Zedlets};
use crate::events::{Context, Events};
use crate::pools::{Imported, Pools};
use crate::query;
use crate::replies::of_library;
use crate::telemetry::{txgs, work};
use crate::temporary_snapshots::Leases;
use crate::view;
use api::run_dir::RunDir;
use api::{
    AfsAdopt, AfsClient, AfsDisable, AfsEnable, AfsLock, AfsPartition, AfsQuery, AfsStatus, AfsVolume,
    AllUnderWay, AttachRequest, Budget, Caller, Changed, CreatePool, DatasetChange, DatasetList,
    DatasetQuery, DetachRequest, DiffPart, DiffRequest, Error, EventPage, EventQuery, ExportList,
    ExportRequest, Found, Granted, HistoryPage, Hold, ImportOutcome, ImportRequest, InProcess, InjectRequest,
    Injected, Kstat, LoadKeyRequest, LogStats, Mount, MountProgress, MountReport, MountRequest, ObjectPath,
    OfferRequest, Offered, Pool, PoolChange, PoolQuery, Reason, ReceiveRequest, RedactRequest, Requests,
    ScanRequest, SendRequest, Service, Settings, SlowOps, SlowQuery, SpaceClass, SpaceEntry, SplParameter,
    Top, TopQuery, TraceQuery, Traced, Tunable, Txgs, UnmountRequest, WithdrawRequest,
};
use device::Layer;
use ondisk::{Guid, ObjNum};
use spa::Host;
use spa::import::{Clock, SystemClock};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// The service: pools, and this machine as they see it.
pub struct LocalService {
    pools: Arc<Pools>,
    leases: Arc<Leases>,
    events: Arc<Events>,
    /// The identity of this host. It is read each time, as the kernel module does, since the hostid
    /// may change while a daemon runs.
    host: Box<dyn Fn() -> Host + Send + Sync>,
    clock: Box<dyn Clock + Send>,
    tickets: Arc<grants::Tickets>,
    layer: Layer,
    /// Constant files that the tree shows: paths and texts.
    facts: Vec<(String, String)>,
    top: crate::telemetry::top::Start,
    paths: work::Paths,
}

impl Default for LocalService {
    fn default() -> Self {
        Self::asking(Box::new(Host::of_system), Box::new(SystemClock))
    }
}

impl LocalService {
    /// A service with nothing imported.
    pub fn new() -> Self {
        Self::default()
    }

    /// A service with nothing imported, on this host and by this clock.
    pub fn on(host: Host, clock: Box<dyn Clock + Send>) -> Self {
        Self::asking(Box::new(move || host.clone()), clock)
    }

    /// The same, with a function that gives the host's identity when it matters.
    pub fn asking(host: Box<dyn Fn() -> Host + Send + Sync>, clock: Box<dyn Clock + Send>) -> Self {
        Self {
            pools: Arc::default(),
            leases: Arc::default(),
            events: Arc::default(),
            host,
            clock,
            tickets: Arc::default(),
            layer: Layer::default(),
            facts: Vec::new(),
            top: crate::telemetry::top::Start::default(),
            paths: work::Paths::default(),
        }
    }

    /// Wraps the devices of imported pools in this layer.
    #[must_use]
    pub fn with_layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Requests of this process to this service, without a daemon.
    pub fn in_process(self) -> InProcess<Arc<Self>> {
        InProcess::new(Arc::new(self))
    }

    fn datasets_of(pool: &Imported, query: &DatasetQuery, budget: &Budget) -> Result<DatasetList, Error> {
        let listed = pool.pool.spa().mos().pool_props();
        let listed = listed.map_err(|error| Error::new(pool.pool.name(), of_library(&error.into())))?;
        let listsnapshots =
            listed.get("listsnapshots").and_then(|value| value.first()).is_some_and(|n| n != 0);
        let mounted = |dataset: &dsl::Dataset| pool.mounts.mounted_as(dataset.object().0);
        pool.pool.spa().read(|| view::datasets(pool.pool.dsl(), query, listsnapshots, &mounted, budget))
    }

    /// Imports a pool, and serves what is in it.
    fn import_and_serve(&self, caller: &Caller, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        let host = (self.host)();
        let how = pool::import::How { host: &host, clock: &*self.clock, layer: &self.layer };
        let outcome = pool::import::import(caller, &self.pools, &how, request)?;
        self.pools.attachments.devices_after(self.pools.table(), &outcome.name);
        if let Ok(imported) = self.pools.table().pool(&outcome.name) {
            self.pools.adopt_afs(&imported);
        }
        if let Ok(imported) = self.pools.table().pool(&outcome.name) {
            self.events.ask(&imported, Context::Import);
            self.events.post(&imported, "config_sync", Context::None);
            self.events.post(&imported, "pool_import", Context::None);
        }
        Ok(outcome)
    }
}

impl Service for LocalService {
    fn pool_names(&self, _: &Caller) -> Result<Vec<String>, Error> {
        Ok(self.pools.table().present().iter().map(|pool| pool.pool.name().to_owned()).collect())
    }

    fn pool(&self, caller: &Caller, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        let pool = self.pools.table().pool_or_going(name)?;
        // Names of damaged files are shown only to the owners.
        let errors = query.errors && caller.owns();
        let mut told = query::pool(&pool, PoolQuery { errors, ..*query })?;
        let others: Vec<_> =
            self.pools.table().present().into_iter().filter(|other| other.pool.name() != name).collect();
        query::shared_spares(&mut told, &others);
        self.events.nameless(&pool, &told.nameless);
        Ok(Pool { errors_withheld: query.errors && !errors, ..told })
    }

    fn history(&self, caller: &Caller, name: &str, from: &u64) -> Result<HistoryPage, Error> {
        // Command lines are written with the next transaction group. The answer must have those of
        // completed commands.
        let pool = self.pools.table().pool(name)?;
        let spa = pool.pool.spa();
        if *from == 0 && spa.writer().is_some() {
            self.pools.change_pool(caller, name, &PoolChange::Sync, &(self.host)())?;
        }
        spa.read(|| view::history(name, spa.mos(), *from, view::HISTORY_PART))
    }

    fn datasets(&self, caller: &Caller, query: &DatasetQuery) -> Result<DatasetList, Error> {
        let query = &grants::visible(self.pools.table(), caller, &query.distinct()?);
        if let Some(root) = &query.root {
            let mut list = Self::datasets_of(&*self.pools.table().pool_of(root)?, query, caller.budget())?;
            grants::hide(self.pools.table(), caller, query, &mut list);
            return Ok(list);
        }
        let (mut all, pools) = (DatasetList::default(), self.pools.table().all());
        let (asked, budget) = (query.clone(), Arc::clone(caller.budget()));
        let lists = query::each(&pools, move |pool| Self::datasets_of(pool, &asked, &budget));
        for (pool, list) in pools.iter().zip(lists) {
            match list.unwrap_or_else(|| Err(query::silent(pool))) {
                Ok(list) => {
                    all.datasets.extend(list.datasets);
                    all.failures.extend(list.failures);
                }
                Err(error) if error.reason == Reason::TooMuch => return Err(error),
                // The answer has the datasets of the other pools.
                Err(error) => all.failures.push(error),
            }
        }
        Ok(all)
    }

    fn space(&self, _: &Caller, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
        let pool = self.pools.table().pool_of(dataset)?;
        pool.pool.spa().read(|| view::space(pool.pool.dsl(), dataset, classes))
    }

    fn holds(&self, _: &Caller, snapshot: &str) -> Result<Vec<Hold>, Error> {
        let pool = self.pools.table().pool_of(snapshot)?;
        pool.pool.spa().read(|| view::holds(pool.pool.dsl(), snapshot))
    }

    fn diff(&self, caller: &Caller, request: &DiffRequest) -> Result<DiffPart, Error> {
        self.leases.diff(caller, &self.pools, request)
    }

    fn send_size(&self, caller: &Caller, request: &SendRequest) -> Result<u64, Error> {
        let pool = self.pools.table().pool_of(&request.dataset)?;
        view::send_size(caller, &pool, request)
    }

    fn redact(&self, _: &Caller, request: &RedactRequest) -> Result<(), Error> {
        self.pools.redact(request)
    }

    fn receive_abort(&self, caller: &Caller, dataset: &str) -> Result<(), Error> {
        self.pools.receive_abort(dataset)?;
        if !caller.owns() {
            self.tickets.give(caller, dataset);
        }
        Ok(())
    }

    fn unlinked(&self, _: &Caller, dataset: &str) -> Result<u64, Error> {
        let pool = self.pools.table().pool_of(dataset)?;
        pool.pool.spa().read(|| view::unlinked(pool.pool.dsl(), dataset))
    }

    fn draft(&self, _: &Caller, change: &DatasetChange) -> Result<Settings, Error> {
        self.pools.draft(change)
    }

    fn object_path(&self, _: &Caller, pool: &str, objset: &u64, object: &u64) -> Result<ObjectPath, Error> {
        self.pools.object_path(pool, ObjNum(*objset), ObjNum(*object))
    }

    fn events(&self, _: &Caller, query: &EventQuery) -> Result<EventPage, Error> {
        Ok(self.events.tell(query, &self.pools.table().present()))
    }

    fn prefetch(&self, _: &Caller, pool: &str) -> Result<u64, Error> {
        let pool = self.pools.table().pool(pool)?;
        pool.pool.spa().read(|| view::prefetch(pool.pool.spa()))
    }

    fn grants(&self, _: &Caller, dataset: &str) -> Result<Vec<Granted>, Error> {
        let pool = self.pools.table().pool_of(dataset)?;
        pool.pool.spa().read(|| view::grants(pool.pool.dsl(), dataset))
    }

    fn scan(&self, _: &Caller, request: &ScanRequest) -> Result<Found, Error> {
        // An imported pool can't be imported again.
        let here: Vec<Guid> =
            self.pools.table().present().iter().map(|pool| pool.pool.spa().guid()).collect();
        let pool::import::Found { mut pools, mut lost, mut silent } = pool::import::find(request)?;
        pools.retain(|candidate| !here.contains(&candidate.guid));
        lost.retain(|one| !here.contains(&Guid(one.guid)));
        let examined = pool::import::examine(&pools, &(self.host)(), &*self.clock);
        // Some devices answer at first, and then no more.
        let members = pools.iter().flat_map(|pool| &pool.members).map(|member| member.place.path.as_path());
        silent.extend(spa::silent(members));
        silent.sort();
        silent.dedup();
        Ok(Found { pools: examined, lost, silent })
    }

    fn import(&self, caller: &Caller, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        let outcome = self.import_and_serve(caller, request);
        if !request.rewind.dry_run {
            self.pools.afs.tried(Guid(request.guid), outcome.is_ok());
        }
        outcome
    }

    fn export(&self, caller: &Caller, request: &ExportRequest) -> Result<(), Error> {
        self.leases.end(caller, &self.pools, &request.name);
        let guid = self.pools.table().pool(&request.name).map(|pool| pool.pool.spa().guid().0);
        self.pools.export(caller, request)?;
        self.events.gone(&request.name, guid?, false);
        Ok(())
    }

    fn logs(&self, _: &Caller) -> Result<Vec<LogStats>, Error> {
        let mut out = Vec::new();
        for pool in self.pools.table().all() {
            let logs = pool.pool.spa().writer().map(|live| live.logs().stats()).unwrap_or_default();
            for (object, stats) in logs {
                // A log without a dataset is about to disappear too.
                let Ok(dataset) = pool.pool.dsl().by_object(ObjNum(object)) else { continue };
                let counters = stats.named().into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
                out.push(LogStats { dataset: dataset.name(), counters });
            }
        }
        Ok(out)
    }

    fn kstats(&self, _: &Caller) -> Result<Vec<Kstat>, Error> {
        Ok(crate::telemetry::kstats::all(&self.pools))
    }

    fn tunables(&self, _: &Caller) -> Result<Vec<Tunable>, Error> {
        Ok(self.pools.tunables.list())
    }

    fn spl(&self, _: &Caller) -> Result<Vec<SplParameter>, Error> {
        Ok(crate::telemetry::spl::parameters(&(self.host)()))
    }

    fn set_tunable(&self, caller: &Caller, name: &str, value: &u64) -> Result<(), Error> {
        self.pools.tunables.set(caller, name, *value, &self.pools.table().present())
    }

    fn inject(&self, caller: &Caller, request: &InjectRequest) -> Result<Vec<Injected>, Error> {
        crate::commands::pool::inject::ask(caller, self.pools.table(), request)
    }

    fn mounts(&self, _: &Caller) -> Result<Vec<Mount>, Error> {
        Ok(self.pools.mounts())
    }

    fn mount(&self, caller: &Caller, request: &MountRequest) -> Result<MountReport, Error> {
        self.pools.mount(caller, request)
    }

    fn mount_progress(&self, _: &Caller, watch: &u64) -> Result<Option<MountProgress>, Error> {
        Ok(self.pools.mount_progress(*watch))
    }

    fn unmount(&self, caller: &Caller, request: &UnmountRequest) -> Result<MountReport, Error> {
        self.pools.unmount(caller, request)
    }

    fn load_key(&self, caller: &Caller, request: &LoadKeyRequest) -> Result<(), Error> {
        self.pools.load_key(caller, request)?;
        self.pools.attachments.devices_after(self.pools.table(), &request.dataset);
        if let Ok(imported) = self.pools.table().pool_of(&request.dataset) {
            self.pools.adopt_afs(&imported);
        }
        Ok(())
    }

    fn unload_key(&self, caller: &Caller, dataset: &str) -> Result<(), Error> {
        let taken = self.pools.attachments.devices_before_unloading(dataset);
        let unloaded = self.pools.unload_key(caller, dataset);
        if unloaded.is_err() {
            self.pools.attachments.devices_back(self.pools.table(), taken);
        }
        unloaded
    }

    fn reclaimed(&self, _: &Caller, first: &str, last: &str) -> Result<u64, Error> {
        let pool = self.pools.table().pool_of(first)?;
        pool.pool.spa().read(|| view::reclaimed(pool.pool.dsl(), first, last))
    }

    fn create_pool(&self, caller: &Caller, request: &CreatePool) -> Result<(), Error> {
        let name = request.temporary_name.as_deref().unwrap_or(&request.name);
        // The guid of a new pool is not known yet.
        let guid = Guid(RandomState::new().hash_one(name));
        self.pools.import(name, guid, || {
            let (pool, mut facts) = create_pool(caller, request, &(self.host)(), self.pools.tunables.room())?;
            facts.load_guid = RandomState::new().hash_one(name);
            Ok((pool, facts, ()))
        })?;
        let imported = self.pools.table().pool(name)?;
        self.events.post(&imported, "pool_create", Context::Create);
        self.events.ask(&imported, Context::Create);
        self.events.post(&imported, "config_sync", Context::None);
        Ok(())
    }

    fn change_pool(&self, caller: &Caller, name: &str, change: &PoolChange) -> Result<(), Error> {
        let guid = self.pools.table().pool_or_going(name).map(|pool| pool.pool.spa().guid().0);
        self.pools.change_pool(caller, name, change, &(self.host)())?;
        let what = match change {
            PoolChange::Destroy { .. } => {
                self.events.gone(name, guid?, true);
                return Ok(());
            }
            // Nothing changed, or nothing that is on disk already.
            PoolChange::Sync
            | PoolChange::SyncAnew
            | PoolChange::Log { .. }
            | PoolChange::PruneDdt { .. } => return Ok(()),
            PoolChange::Work { .. } | PoolChange::Scan { .. } => {
                self.events.ask(&*self.pools.table().pool_or_going(name)?, Context::None);
                return Ok(());
            }
            PoolChange::Add { .. } => Some("vdev_add"),
            PoolChange::Clear { .. } => Some("vdev_clear"),
            PoolChange::Online { .. } => Some("vdev_online"),
            PoolChange::Attach { .. } => Some("vdev_attach"),
            PoolChange::Reguid { .. } => Some("pool_reguid"),
            // The engine reports devices that leave, since it also removes devices by itself.
            PoolChange::Detach { .. }
            | PoolChange::Remove { .. }
            | PoolChange::Split { .. }
            | PoolChange::Set { .. }
            | PoolChange::SetVdev { .. }
            | PoolChange::Upgrade { .. }
            | PoolChange::Checkpoint
            | PoolChange::Offline { .. }
            | PoolChange::DiscardCheckpoint { .. }
            | PoolChange::Reopen => None,
        };
        let imported = self.pools.table().pool_or_going(name)?;
        self.events.ask(&imported, Context::None);
        what.iter().for_each(|what| self.events.post(&imported, what, Context::None));
        if !matches!(change, PoolChange::Clear { .. }) {
            self.events.post(&imported, "config_sync", Context::None);
        }
        Ok(())
    }

    fn change(&self, caller: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        let taken = self.pools.attachments.devices_before(change);
        let changed = self.pools.change(caller, change);
        // Also after a failure: then the volumes still exist.
        self.pools.attachments.devices_back(self.pools.table(), taken);
        self.pools.attachments.devices_after(self.pools.table(), change.subject());
        let changed = changed?;
        if let Ok(imported) = self.pools.table().pool_of(change.subject()) {
            self.events.ask(&imported, Context::None);
        }
        if !caller.owns() {
            self.tickets.give(caller, change.subject());
        }
        Ok(changed)
    }

    fn offer(&self, caller: &Caller, request: &OfferRequest) -> Result<Vec<Offered>, Error> {
        self.pools.doors.offer(caller, self.pools.table(), request)
    }

    fn withdraw(&self, caller: &Caller, request: &WithdrawRequest) -> Result<(), Error> {
        self.pools.doors.withdraw(caller, request)
    }

    fn exports(&self, _: &Caller) -> Result<ExportList, Error> {
        Ok(self.pools.doors.exports(self.pools.table()))
    }

    fn attach(&self, caller: &Caller, request: &AttachRequest) -> Result<String, Error> {
        self.pools.attachments.attach(caller, self.pools.table(), &request.dataset, request.read_only)
    }

    fn detach(&self, caller: &Caller, request: &DetachRequest) -> Result<(), Error> {
        self.pools.attachments.detach(caller, self.pools.table(), &request.dataset, request.force)
    }

    fn afs_enable(&self, caller: &Caller, request: &AfsEnable) -> Result<AfsPartition, Error> {
        caller.must_own(&request.dataset)?;
        self.pools.afs_enable(caller, request)
    }

    fn afs_disable(&self, caller: &Caller, request: &AfsDisable) -> Result<(), Error> {
        let imported = self.pools.table().pool_of(&request.dataset)?;
        self.pools.afs.disable(caller, &imported, request)
    }

    fn afs_status(&self, caller: &Caller) -> Result<AfsStatus, Error> {
        caller.must_own("the AFS server")?;
        Ok(self.pools.afs_status())
    }

    fn afs_volumes(&self, caller: &Caller, query: &AfsQuery) -> Result<Vec<AfsVolume>, Error> {
        caller.must_own("the volumes of AFS")?;
        self.pools.afs_volumes(query)
    }

    fn afs_clients(&self, caller: &Caller, query: &AfsQuery) -> Result<Vec<AfsClient>, Error> {
        caller.must_own("the clients of AFS")?;
        Ok(self.pools.afs.clients(query))
    }

    fn afs_locks(&self, caller: &Caller, query: &AfsQuery) -> Result<Vec<AfsLock>, Error> {
        caller.must_own("the locks of AFS")?;
        self.pools.afs.locks(query)
    }

    fn top(&self, caller: &Caller, query: &TopQuery) -> Result<Top, Error> {
        self.top.read(caller, &self.pools, query)
    }

    fn under_way(&self, caller: &Caller) -> Result<AllUnderWay, Error> {
        work::under_way(caller, &self.pools, &self.paths)
    }

    fn txgs(&self, _: &Caller, pool: &Option<String>) -> Result<Txgs, Error> {
        txgs::txgs(&self.pools, pool.as_deref())
    }

    fn trace(&self, caller: &Caller, query: &TraceQuery) -> Result<Traced, Error> {
        crate::telemetry::trace::trace(caller, &self.pools, query, &self.paths)
    }

    fn slow(&self, caller: &Caller, query: &SlowQuery) -> Result<SlowOps, Error> {
        work::slow(caller, &self.pools, query, &self.paths)
    }
}

impl crate::telemetry::tree::Counters for LocalService {
    fn facts(&self) -> &[(String, String)] {
        &self.facts
    }

    fn kstat_names(&self) -> Vec<crate::telemetry::kstats::Name> {
        crate::telemetry::kstats::names(&self.pools)
    }

    fn kstat(&self, pool: Option<&str>, name: &str) -> Option<Kstat> {
        crate::telemetry::kstats::one(&self.pools, pool, name)
    }
}

impl daemon::DaemonService for LocalService {
    fn stats(self: Arc<Self>, at: &std::path::Path) -> Result<fuse::Mount, fuse::Error> {
        let others = self.pools.lets_others_in();
        crate::telemetry::tree::mount(self, at, others)
    }

    fn let_others_in(&self) {
        self.pools.let_others_in();
    }

    fn nest_always(&self) {
        self.pools.nest_always();
    }

    fn is_empty(&self) -> bool {
        self.pools.table().is_empty()
    }

    fn allows(&self, caller: &Caller, method: &str, body: &[u8]) -> Result<(), Error> {
        grants::authorize(self.pools.table(), &self.tickets, caller, method, body)
    }

    fn remember_in(&self, cachefile: &std::path::Path) {
        self.pools.remember_in(cachefile);
    }

    fn open_doors(&self, place: &RunDir) {
        self.pools.tunables.watch_memory();
        self.pools.journal_in(place.dir());
        self.pools.doors.open(self.pools.table(), &place.volumes());
        // The threads of visits keep neither the pools nor the events.
        let (pools, events) = (Arc::downgrade(&self.pools), Arc::downgrade(&self.events));
        let tickets = Arc::clone(&self.tickets);
        let receive = move |caller: &Caller, request: &ReceiveRequest, begin: &[u8], rest: &mut dyn Read| {
            let (Some(pools), Some(events)) = (pools.upgrade(), events.upgrade()) else {
                let what = "the daemon is ending".to_owned();
                return Err(Error::new(&request.target, Reason::Daemon { what }));
            };
            let received = pools.receive(caller, request, begin, rest)?;
            if !caller.owns() {
                tickets.give(caller, &request.target);
            }
            if let Ok(imported) = pools.table().pool_of(&request.target) {
                events.ask(&imported, Context::None);
            }
            Ok(received)
        };
        let pools = Arc::downgrade(&self.pools);
        let adopt = move |caller: &Caller, request: &AfsAdopt, from: &mut dyn Read| {
            let what = || Reason::Daemon { what: "the daemon is ending".to_owned() };
            let pools = pools.upgrade().ok_or_else(|| Error::new(&request.dataset, what()))?;
            let imported = pools.table().pool_of(&request.dataset)?;
            pools.afs.take_in(caller, &imported, request, from)
        };
        files::open(self.pools.table(), &self.pools.visits, place, receive, adopt);
        self.pools.attachments.attach_in(&place.attached());
        self.pools.syncs.begin(self.pools.table());
    }

    fn attach_every(&self) {
        self.pools.attachments.want_every();
    }

    fn run_at_events(&self, terms: Terms) -> Result<(), ZedletError> {
        let zedlets = Zedlets::start(terms)?;
        self.events.run(Arc::clone(&zedlets));
        let (events, pools) = (Arc::clone(&self.events), Arc::clone(&self.pools));
        zedlets.gather(move || events.gather(&pools.table().present()))
    }

    fn close(&self, patience: Duration) -> Vec<Error> {
        // Zedlets end while they can still query pools, and before the file systems that they use
        // are unmounted.
        if let Some(zedlets) = self.events.zedlets() {
            zedlets.end();
        }
        let leases = Arc::clone(&self.leases);
        // The daemon's own end is not a request of a caller.
        let end = move |pools: &Pools, pool: &str| leases.end(&Caller::this_process(), pools, pool);
        self.pools.close(patience, end)
    }
}

/// Requests to this user's daemon, which starts when it is needed. Without one, this process
/// answers with nothing imported.
pub fn connect() -> impl Requests {
    api::client::Socket::new(Box::new(LocalService::new())).client()
}

/// Sends a request, whose arguments are JSON already, to the same service as [`connect`]. Returns
/// the reply, which may be an error of the method.
///
/// # Errors
/// Those of [`Transport::post`](api::Transport::post).
pub fn forward(method: &str, arguments: &[u8]) -> Result<Vec<u8>, api::TransportError> {
    api::Transport::post(&api::client::Socket::new(Box::new(LocalService::new())), method, arguments)
}

/// A service for a daemon. Its tree of files also shows `facts`: paths and texts.
pub fn shared(facts: Vec<(String, String)>) -> Arc<dyn daemon::DaemonService> {
    Arc::new(LocalService { facts, ..LocalService::new() })
}

#[cfg(test)]
mod tests;
