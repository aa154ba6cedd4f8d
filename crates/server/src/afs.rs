//! The AFS server of the daemon, and the partitions of its pools.
//!
//! # Theory
//! The daemon has one server of the crate [`afs`]. It starts with the first partition, and ends
//! with the last one. A partition is a file system with properties ([`settings`]). So a pool that
//! is imported brings its partitions along, and how the server is to be started.
//!
//! A partition that can't be served never fails the import of its pool. The reason is logged, and
//! [`Afs::status`] shows it.
//!
//! # Life
//! A partition is *moving* while a thread adds it to the server or removes it. Then it is *served*,
//! or *failed* for a reason. It is forgotten with the export of its pool.
//!
//! # Locks
//! The table of partitions is held for look-ups and inserts, never while a device is read. The
//! server's lock is held while it starts and ends, which waits for no pool. Lock order: the server,
//! then the table.

mod adopting;
mod changes;
mod expected;
mod running;
mod settings;
mod view;

use crate::mounts::{BesideAfs, Place, Server};
use crate::pools::imported::Imported;
use crate::replies::of_library;
use afs::partition::PartitionId;
use afs::server::Withheld;
use afs::server::store::{PARTITION, Partition};
use afs::server::volserver::transactions::Transaction;
use afs::types::VolumeId;
use api::{AfsDisable, AfsEnable, AfsPartition, Caller, Error, Reason};
use dsl::keys::KeyStatus;
use expected::Expected;
use observe::lock::Mutex;
use ondisk::Guid;
use running::Running;
use settings::{Settings, Stored};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use view::{chosen, listed, spaces, unread};

/// Whether a partition is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// A thread adds or removes it.
    Moving,
    /// It is served.
    Served,
    /// It is not, for this reason.
    Failed(Reason),
}

/// A partition of an imported pool.
#[derive(Debug, Clone)]
struct Entry {
    /// Its number. `None`: its letters make no sense.
    id: Option<PartitionId>,
    stage: Stage,
    /// Its volumes, if it is not served.
    withheld: Option<Arc<Withheld>>,
}

impl Entry {
    /// Whether it is served, or a command works on it.
    fn is_in_use(&self) -> bool {
        !matches!(self.stage, Stage::Failed(_))
    }
}

/// The AFS server, and the partitions of all pools by their file systems.
#[derive(Default)]
pub(crate) struct Afs {
    server: Mutex<Option<Arc<Running>>>,
    partitions: Mutex<BTreeMap<String, Entry>>,
    /// Pools that are to be imported at the daemon's start.
    expected: Expected,
}

/// The reply for a failure of the server.
fn of_afs(about: &str, error: &afs::server::Error) -> Error {
    use afs::server::Error as Failure;
    let reason = match error {
        Failure::Pool(error) => of_library(error),
        Failure::Files(error) => crate::replies::of_zpl(error),
        Failure::Busy { .. } => Reason::Busy,
        Failure::InTransaction { volume, transaction, call } => {
            let (volume, call) = (volume.0, (*call).to_owned());
            Reason::InTransaction { volume, transaction: *transaction, call }
        }
        Failure::Taken { .. }
        | Failure::Format(_)
        | Failure::Malformed
        | Failure::Header { .. }
        | Failure::Exists { .. }
        | Failure::Ended { .. }
        | Failure::Random
        | Failure::Base { .. }
        | Failure::Rx(_)
        | Failure::Config { .. } => Reason::Afs { what: api::chain(error) },
    };
    Error::new(about, reason)
}

/// The words of a reason for the log.
fn words(reason: &Reason) -> String {
    match reason {
        Reason::Afs { what } | Reason::BadValue { what } => what.clone(),
        reason => format!("{reason:?}"),
    }
}

/// Why the files of a dataset can't be used: the server has it. Snapshots can.
pub(crate) fn obstacle_to_files(imported: &Imported, name: &str) -> Option<Reason> {
    let partitions = imported.partitions.read();
    let partition = partitions.iter().find(|root| within(root, name)).filter(|_| !name.contains('@'))?;
    Some(Reason::ServedOverAfs { partition: partition.clone(), volume: volume_of(partition, name) })
}

/// Whether `name` is this dataset, below it, or a snapshot of either.
pub(crate) fn within(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@', '#']))
}

/// The volume that a dataset or snapshot of this partition is or has.
fn volume_of(partition: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(partition)?.strip_prefix('/')?;
    rest.split(['@', '#', '.', '/']).next()?.parse().ok()
}

impl Afs {
    /// Serves a file system as a partition.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * All others: see [`api::Service::afs_enable`].
    pub(crate) fn enable(
        &self,
        caller: &Caller,
        imported: &Imported,
        request: &AfsEnable,
    ) -> Result<AfsPartition, Error> {
        let name = request.dataset.as_str();
        caller.must_own(name)?;
        imported.writer(name)?;
        let bad = |what: String| Error::new(name, Reason::BadValue { what });
        let stored = settings::stored(imported, name)?;
        let (letters, settings) = self.wanted(stored.as_ref(), request).map_err(bad)?;
        if self.is_served_as(name, letters, &settings).map_err(bad)? {
            return Ok(self.partition(name));
        }
        check_mounts(imported, name)?;
        if !self.reserve(name, letters).map_err(bad)? {
            return Err(bad("another command works on it".to_owned()));
        }
        // The files of the cell come first: nothing is stored that they refuse.
        let checked = self.running(&settings, false).map(drop);
        let done = checked
            .map_err(|what| Error::new(name, Reason::Afs { what }))
            // Once more: since it is reserved, nothing can be mounted beside the server.
            .and_then(|()| check_mounts(imported, name))
            .and_then(|()| settings::store(imported, name, letters, &settings))
            .and_then(|()| self.serve(imported, name, letters, &settings));
        match done {
            Ok(()) => {
                self.set(name, Stage::Served);
                self.list_in(imported);
                tracing::info!(dataset = name, partition = %letters, "a partition is served over AFS");
                Ok(self.partition(name))
            }
            Err(error) => {
                // A partition of before stays one, which can't be served.
                if stored.is_none() {
                    self.partitions.lock().remove(name);
                    if let Err(error) = settings::forget(imported, name) {
                        tracing::warn!(dataset = name, %error, "its properties of a partition stay");
                    }
                } else {
                    self.fail(imported, name, Some(letters), (true, error.reason.clone()));
                }
                self.list_in(imported);
                self.stop_unused();
                Err(error)
            }
        }
    }

    /// Checks a request for a file system that does not exist yet.
    ///
    /// # Errors
    /// * [`Reason::BadValue`], [`Reason::Afs`]: it would be refused afterwards.
    pub(crate) fn check_new(&self, request: &AfsEnable) -> Result<(), Error> {
        let name = request.dataset.as_str();
        let bad = |what: String| Error::new(name, Reason::BadValue { what });
        let (letters, settings) = self.wanted(None, request).map_err(bad)?;
        self.check_free(name, letters).map_err(bad)?;
        let checked = self.running(&settings, false).map(drop);
        self.stop_unused();
        checked.map_err(|what| Error::new(name, Reason::Afs { what }))
    }

    /// The number and settings for a request: its options, else the stored ones, else those of the
    /// server that runs.
    fn wanted(
        &self,
        stored: Option<&Stored>,
        request: &AfsEnable,
    ) -> Result<(PartitionId, Settings), String> {
        let letters = match (&request.partition, stored) {
            (Some(wanted), _) => settings::partition(wanted).map_err(|why| format!("--partition {why}"))?,
            (None, Some(stored)) => settings::partition(&stored.letters)
                .map_err(|why| format!("the property {PARTITION} {why}"))?,
            (None, None) => return Err("--partition is missing: choose a to z, or aa to iv".to_owned()),
        };
        let running = self.server.lock().as_ref().map(|running| running.settings.clone());
        let base = match stored {
            // Options that replace wrong ones.
            Some(stored) => stored.settings.clone().unwrap_or_default(),
            None => Settings::default(),
        };
        let has_none = base == Settings::default();
        let base = running.filter(|_| has_none).unwrap_or(base);
        Ok((letters, base.with(request)?))
    }

    /// Whether a partition is served in this way.
    ///
    /// # Errors
    /// It is served in another way.
    fn is_served_as(&self, name: &str, id: PartitionId, wanted: &Settings) -> Result<bool, String> {
        let entry = self.partitions.lock().get(name).cloned();
        match entry {
            Some(Entry { stage: Stage::Served, id: now, .. }) => {
                let running = self.server.lock().clone();
                let same = running.is_some_and(|running| running.settings.agrees(wanted));
                if now == Some(id) && same {
                    return Ok(true);
                }
                Err(format!("it is served in another way; 'poolhouse afs disable {name}' first"))
            }
            Some(Entry { stage: Stage::Moving, .. }) => Err("another command works on it".to_owned()),
            Some(Entry { stage: Stage::Failed(_), .. }) | None => Ok(false),
        }
    }

    /// Refuses a number that another partition has.
    fn check_free(&self, name: &str, id: PartitionId) -> Result<(), String> {
        free(&self.partitions.lock(), name, id)
    }

    /// Whether a partition is served, or another command works on it.
    fn is_in_use(&self, name: &str) -> bool {
        in_use(&self.partitions.lock(), name)
    }

    /// Reserves a partition and its number. Returns whether no other command did.
    ///
    /// # Errors
    /// The number is taken.
    fn reserve(&self, name: &str, id: PartitionId) -> Result<bool, String> {
        let mut partitions = self.partitions.lock();
        if in_use(&partitions, name) {
            return Ok(false);
        }
        free(&partitions, name, id)?;
        let withheld = partitions.get(name).and_then(|entry| entry.withheld.clone());
        partitions.insert(name.to_owned(), Entry { id: Some(id), stage: Stage::Moving, withheld });
        Ok(true)
    }

    fn set(&self, name: &str, stage: Stage) {
        if let Some(entry) = self.partitions.lock().get_mut(name) {
            (entry.stage, entry.withheld) = (stage, None);
        }
    }

    /// Notes that a partition can't be served. `is_reserved`: the caller has reserved it. If not,
    /// nothing is noted while it is served, or another command works on it.
    fn fail(
        &self,
        imported: &Imported,
        name: &str,
        id: Option<PartitionId>,
        (is_reserved, reason): (bool, Reason),
    ) {
        let read = |id| {
            Withheld::read(id, &imported.pool, name).inspect_err(|error| {
                tracing::error!(dataset = name, error = api::chain(error), "its volumes are not known");
            })
        };
        let withheld = id.and_then(|id| read(id).ok()).map(Arc::new);
        let entry = Entry { id, stage: Stage::Failed(reason), withheld };
        let mut partitions = self.partitions.lock();
        if is_reserved || !in_use(&partitions, name) {
            partitions.insert(name.to_owned(), entry);
        }
    }

    /// The volumes of partitions that are not served.
    fn withheld(&self) -> Vec<Arc<Withheld>> {
        self.partitions.lock().values().filter_map(|entry| entry.withheld.clone()).collect()
    }

    /// The server, which is started if it does not run. `early`: the host may get its address
    /// later.
    ///
    /// # Errors
    /// It can't be started, or runs with other settings. The words say what to do.
    fn running(&self, settings: &Settings, early: bool) -> Result<Arc<Running>, String> {
        let mut server = self.server.lock();
        if let Some(running) = &*server {
            if running.settings.agrees(settings) {
                return Ok(Arc::clone(running));
            }
            return Err(format!(
                "the AFS server of this daemon runs with {}, and can't have {}; leave the options out, \
                 or disable its partitions first",
                running.settings.options(),
                settings.options()
            ));
        }
        let running = Arc::new(Running::start(settings, early)?);
        if let Some(until) = self.expected.until() {
            running.server.expect_more(until);
        }
        running.server.withhold(self.withheld());
        *server = Some(Arc::clone(&running));
        Ok(running)
    }

    /// Adds a partition to the server.
    fn serve(
        &self,
        imported: &Imported,
        name: &str,
        id: PartitionId,
        settings: &Settings,
    ) -> Result<(), Error> {
        // No server is started for it.
        if !has_key(imported, name) {
            return Err(Error::new(name, Reason::KeyNotLoaded));
        }
        // At the start of the host, pools may come before addresses.
        let running = self.running(settings, true);
        let running = running.map_err(|what| Error::new(name, Reason::Afs { what }))?;
        let bad = |error: afs::server::Error| of_afs(name, &error);
        let partition = Partition::begin(id, imported.pool.clone(), name).map_err(bad)?;
        partition.tell(Box::new(BesideAfs(Arc::downgrade(&imported.mounts))));
        running.server.add(Arc::clone(&partition)).map_err(|error| {
            // It was not served, so its next start is not one after a crash.
            if let Err(error) = partition.end() {
                tracing::warn!(dataset = name, error = api::chain(&error), "its next start raises versions");
            }
            bad(error)
        })
    }

    /// Ends the server if it has no partition.
    fn stop_unused(&self) {
        let mut server = self.server.lock();
        let is_used = self.partitions.lock().values().any(Entry::is_in_use);
        if !is_used && let Some(running) = server.take() {
            end(running);
        }
    }

    /// Notes which pools are to be imported at the daemon's start.
    pub(crate) fn expect(&self, pools: Vec<Guid>) {
        self.expected.begin(pools, Instant::now());
    }

    /// Notes that the import of a pool failed, or that it succeeded and its partitions are served.
    pub(crate) fn tried(&self, pool: Guid, is_imported: bool) {
        if self.expected.tried(pool, is_imported)
            && let Some(running) = &*self.server.lock()
        {
            running.server.expect_no_more();
        }
    }

    /// Serves the partitions of a pool that was imported, or whose key was loaded.
    pub(crate) fn adopt(&self, imported: &Imported) {
        if imported.pool.spa().writer().is_none() {
            return;
        }
        let found = match settings::partitions(imported) {
            Ok(found) => found,
            Err(error) => {
                let (pool, error) = (imported.pool.name(), words(&error.reason));
                tracing::error!(pool, error, "it can't be searched for partitions of AFS");
                return;
            }
        };
        for stored in found {
            let (name, id) = (&stored.dataset, settings::partition(&stored.letters).ok());
            while let Err((is_reserved, reason)) = self.adopt_one(imported, &stored) {
                let problem = words(&reason);
                tracing::error!(dataset = name, problem, "the partition is not served over AFS");
                let needs_key = reason == Reason::KeyNotLoaded;
                self.fail(imported, name, id, (is_reserved, reason));
                // A command that has loaded the key meanwhile left it to this one.
                if !(needs_key && has_key(imported, name)) {
                    break;
                }
            }
        }
        self.list_in(imported);
        self.stop_unused();
    }

    /// Serves a partition, unless it is served or another command works on it.
    ///
    /// # Errors
    /// The reason, and whether this has reserved the partition.
    fn adopt_one(&self, imported: &Imported, stored: &Stored) -> Result<(), (bool, Reason)> {
        let name = stored.dataset.as_str();
        if self.is_in_use(name) {
            return Ok(());
        }
        let bad = |what| (false, Reason::BadValue { what });
        let (id, settings) = stored.checked().map_err(bad)?;
        if !self.reserve(name, id).map_err(bad)? {
            return Ok(());
        }
        let served = check_mounts(imported, name).and_then(|()| self.serve(imported, name, id, &settings));
        served.map_err(|error| (true, error.reason))?;
        self.set(name, Stage::Served);
        tracing::info!(dataset = name, partition = %id, "a partition is served over AFS");
        Ok(())
    }

    /// Serves a partition no more, and forgets that it was one.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * All others: see [`api::Service::afs_disable`].
    pub(crate) fn disable(
        &self,
        caller: &Caller,
        imported: &Imported,
        request: &AfsDisable,
    ) -> Result<(), Error> {
        let name = request.dataset.as_str();
        caller.must_own(name)?;
        imported.writer(name)?;
        if settings::stored(imported, name)?.is_none() {
            return Err(Error::new(name, Reason::NotAfs));
        }
        // What prevents it is reported before anything is unmounted.
        if !request.force
            && let Some(error) = self.in_transaction_of(name)
        {
            return Err(error);
        }
        let (mounts, pool) = (&imported.mounts, &imported.pool);
        let unmounted = mounts.release(caller, pool, name, request.force)?;
        self.remove(name, Parting::of(request.force)).inspect_err(|_| mounts.take_back(pool, &unmounted))?;
        let forgotten = settings::forget(imported, name);
        match &forgotten {
            Ok(()) => {
                self.partitions.lock().remove(name);
                tracing::info!(dataset = name, "a partition is served over AFS no more");
            }
            // It is served no more, but the next import will serve it.
            Err(error) => {
                let id = self.partitions.lock().get(name).and_then(|entry| entry.id);
                self.fail(imported, name, id, (true, error.reason.clone()));
            }
        }
        self.list_in(imported);
        self.stop_unused();
        forgotten
    }

    /// Removes a partition from the server, if it is served. The table keeps it as moving.
    fn remove(&self, name: &str, parting: Parting) -> Result<(), Error> {
        let id = {
            let mut partitions = self.partitions.lock();
            match partitions.get_mut(name) {
                Some(entry) if entry.stage == Stage::Served => {
                    entry.stage = Stage::Moving;
                    entry.id
                }
                Some(entry) if entry.stage == Stage::Moving => {
                    return Err(Error::new(name, Reason::Busy));
                }
                Some(_) | None => None,
            }
        };
        let running = self.server.lock().clone();
        let (Some(id), Some(running)) = (id, running) else { return Ok(()) };
        let removed = match parting {
            Parting::Asked => running.server.remove(id),
            Parting::Forced => running.server.force_out(id),
            Parting::Ending => running.server.end(id),
        };
        match removed {
            Err(error) if parting != Parting::Asked => {
                tracing::error!(
                    dataset = name,
                    error = api::chain(&error),
                    "not all of its volumes are closed"
                );
                Ok(())
            }
            removed => removed.map_err(|error| {
                self.set(name, Stage::Served);
                of_afs(name, &error)
            }),
        }
    }

    /// The partitions of a pool. Its name stays while it is imported; its GUID may not.
    fn names_of(&self, pool: &str) -> Vec<String> {
        self.partitions.lock().keys().filter(|name| within(pool, name)).cloned().collect()
    }

    /// A transaction that is in the way of an export of this pool.
    pub(crate) fn in_transaction(&self, imported: &Imported) -> Option<Error> {
        self.names_of(imported.pool.name()).iter().find_map(|name| self.in_transaction_of(name))
    }

    /// A transaction of a volume of this partition.
    fn in_transaction_of(&self, name: &str) -> Option<Error> {
        let running = self.server.lock().clone()?;
        let of_it = |found: &Transaction| !found.is_deleted && found.volume.partition.dataset() == name;
        let found = running.server.core().transactions.all().into_iter().find(of_it)?;
        let (volume, call) = (found.volume.id.0, found.last_call.to_owned());
        Some(Error::new(name, Reason::InTransaction { volume, transaction: found.id, call }))
    }

    /// Removes the partitions of a pool that is exported. Unless it is only asked for, whatever
    /// uses them.
    ///
    /// # Errors
    /// * [`Reason::InTransaction`], [`Reason::Busy`]: one of them is in use. Then
    ///   [`Self::adopt`] serves the others again.
    /// * [`Reason::Suspended`]: the pool has stopped.
    pub(crate) fn release(&self, imported: &Imported, parting: Parting) -> Result<(), Error> {
        let mut refused = Ok(());
        for name in self.names_of(imported.pool.name()) {
            match self.remove(&name, parting) {
                Ok(()) => drop(self.partitions.lock().remove(&name)),
                // The others are closed all the same: a pool goes whose export is forced.
                Err(error) if parting != Parting::Asked => {
                    tracing::error!(dataset = name, %error, "the partition is not closed");
                    refused = Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.list_in(imported);
        self.stop_unused();
        refused
    }

    /// Forgets the partitions of a pool that does not answer.
    pub(crate) fn abandon(&self, pool: &str) {
        let Some(running) = self.server.lock().clone() else { return };
        for name in self.names_of(pool) {
            // The number of one that could not be served may be that of another one.
            let entry = self.partitions.lock().remove(&name).filter(Entry::is_in_use);
            if let Some(id) = entry.and_then(|entry| entry.id) {
                running.server.abandon(id);
            }
        }
        if let Some(running) = &*self.server.lock() {
            running.server.withhold(self.withheld());
        }
        // Its threads may wait for the pool, so nothing waits for the server's end.
        let is_unused = self.partitions.lock().is_empty();
        if is_unused && let Some(last) = self.server.lock().take() {
            std::mem::forget((last, running));
        }
    }

    /// Leaves the server to the end of the process, if pools that don't answer have partitions.
    pub(crate) fn leave(&self) {
        std::mem::forget(self.server.lock().take());
    }

    /// The partition that has a dataset, and the volume that it is, if the server has it.
    fn server_of(&self, name: &str) -> Option<(String, Option<u32>)> {
        let partitions = self.partitions.lock();
        let found = partitions.iter().find(|(root, entry)| entry.is_in_use() && within(root, name))?.0;
        Some((found.clone(), volume_of(found, name)))
    }

    /// Why a file system can't be used: the server has it. Snapshots can.
    pub(crate) fn obstacle(&self, name: &str) -> Option<Reason> {
        if name.contains('@') {
            return None;
        }
        let (partition, volume) = self.server_of(name)?;
        Some(Reason::ServedOverAfs { partition, volume })
    }

    /// Refuses to replace the files of a file system that the server has.
    ///
    /// # Errors
    /// * [`Reason::ServedOverAfs`]
    pub(crate) fn check_files(&self, name: &str) -> Result<(), Error> {
        self.obstacle(name).map_or(Ok(()), |reason| Err(Error::new(name, reason)))
    }

    /// Notes in a pool which of its file systems are partitions, for what does not know the server.
    /// The server gets the ones that can't be served.
    fn list_in(&self, imported: &Imported) {
        *imported.partitions.write() = self.served_of(imported);
        let running = self.server.lock();
        if let Some(running) = &*running {
            running.server.withhold(self.withheld());
        }
    }

    /// The partitions of a pool that are served.
    pub(crate) fn served_of(&self, imported: &Imported) -> Vec<String> {
        let partitions = self.partitions.lock();
        let served =
            |(name, entry): &(&String, &Entry)| within(imported.pool.name(), name) && entry.is_in_use();
        partitions.iter().filter(served).map(|(name, _)| name.clone()).collect()
    }
}

impl Server for Afs {
    fn has(&self, name: &str) -> bool {
        self.server_of(name).is_some()
    }

    fn volume_at(&self, name: &str) -> Result<Option<Place>, Reason> {
        if name.contains('@') {
            return Ok(None);
        }
        let Some((partition, number)) = self.server_of(name) else { return Ok(None) };
        let refused = Reason::ServedOverAfs { partition: partition.clone(), volume: number };
        let stage = self.partitions.lock().get(&partition).map(|entry| entry.stage.clone());
        let running = self.server.lock().clone().filter(|_| stage == Some(Stage::Served));
        let (Some(running), Some(number)) = (running, number) else { return Err(refused) };
        let place = Place::new(running.server.core(), &partition, VolumeId(number));
        let is_itself = name == format!("{partition}/{number}");
        if is_itself && place.volume().is_some() { Ok(Some(place)) } else { Err(refused) }
    }
}

fn in_use(partitions: &BTreeMap<String, Entry>, name: &str) -> bool {
    partitions.get(name).is_some_and(Entry::is_in_use)
}

/// Refuses a number that another partition has.
fn free(partitions: &BTreeMap<String, Entry>, name: &str, id: PartitionId) -> Result<(), String> {
    let has_it = |(other, entry): &(&String, &Entry)| {
        other.as_str() != name && entry.id == Some(id) && entry.is_in_use()
    };
    match partitions.iter().find(has_it) {
        Some((other, _)) => Err(format!("'{other}' is {id} already; choose another letter")),
        None => Ok(()),
    }
}

/// Why a partition is served no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    /// A command asks for it. What uses the partition may prevent it.
    Asked,
    /// A command forces it.
    Forced,
    /// The daemon ends. Clients keep their promises until its next start.
    Ending,
}

impl Parting {
    fn of(force: bool) -> Self {
        if force { Self::Forced } else { Self::Asked }
    }
}

/// Ends the server. Its addresses are free afterwards, unless a query of its status takes long.
fn end(mut running: Arc<Running>) {
    for _ in 0..1_000 {
        match Arc::try_unwrap(running) {
            Ok(last) => {
                drop(last);
                tracing::info!("the AFS server has ended");
                return;
            }
            Err(shared) => running = shared,
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    tracing::warn!("the AFS server ends later: a query of its status still runs");
}

/// Whether the key of a partition is loaded, if it needs one.
fn has_key(imported: &Imported, name: &str) -> bool {
    let dsl = imported.pool.dsl();
    let read = || dsl.keys().status(&dsl.dir(name)?);
    // What can't be read is found when the partition is opened.
    imported.pool.spa().read(read).map_or(true, |status| status != KeyStatus::Unavailable)
}

/// Refuses a partition that is mounted, or has something mounted below. Snapshots may be.
///
/// # Errors
/// * [`Reason::HeldOpen`], [`Reason::Busy`]
fn check_mounts(imported: &Imported, name: &str) -> Result<(), Error> {
    let is_mounted = |(mounted, _): &(String, _)| !mounted.contains('@') && within(name, mounted);
    match imported.mounts.present().into_iter().find(is_mounted) {
        None => Ok(()),
        Some((mounted, None)) => Err(Error::new(mounted, Reason::Busy)),
        Some((mounted, Some(target))) => {
            let by = format!("its mount on {}; 'zfs unmount {mounted}' ends it", target.display());
            Err(Error::new(mounted, Reason::HeldOpen { by }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::DatasetChange;

    /// Goal: datasets are found in their partition, with their volumes, and others are not.
    #[test]
    fn datasets_of_a_partition() {
        assert!(within("p/vicepa", "p/vicepa") && within("p/vicepa", "p/vicepa@s"));
        assert!(within("p/vicepa", "p/vicepa/7@8") && !within("p/vicepa", "p/vicepab"));
        assert_eq!(volume_of("p/vicepa", "p/vicepa/7"), Some(7));
        assert_eq!(volume_of("p/vicepa", "p/vicepa/7@9"), Some(7));
        assert_eq!(volume_of("p/vicepa", "p/vicepa/7.clones-1"), Some(7));
        assert_eq!(volume_of("p/vicepa", "p/vicepa"), None);
        assert_eq!(volume_of("p/vicepa", "p/vicepa/x"), None);
    }

    /// Goal: what ends or moves a served partition or volume is refused, and the rest is not.
    #[test]
    fn changes_of_what_is_served() {
        let afs = Afs::default();
        let entry = |stage| Entry { id: Some(PartitionId(0)), stage, withheld: None };
        afs.partitions.lock().insert("p/a/vicepa".to_owned(), entry(Stage::Served));
        let failed = Stage::Failed(Reason::KeyNotLoaded);
        afs.partitions.lock().insert("p/vicepb".to_owned(), entry(failed));
        for name in ["p", "p/a", "p/a/vicepa", "p/a/vicepa/7", "p/a/vicepa/7@9"] {
            let error = afs.check_end_of(name).unwrap_err();
            assert!(matches!(error.reason, Reason::ServedOverAfs { .. }), "{error}");
        }
        for name in ["p/vicepb", "p/b", "p/a/vicepa@daily", "p/a/vicepa/7@daily", "p/a/vicepab"] {
            assert_eq!(afs.check_end_of(name), Ok(()), "{name}");
        }
        let snapshot =
            |name: &str| DatasetChange::Snapshot { names: vec![name.to_owned()], props: Vec::new() };
        assert!(afs.check_change(&snapshot("p/a/vicepa/7@20261129")).is_err());
        for name in ["p/a/vicepa/7@daily", "p/a/vicepa@20261129", "p/b@20261129", "p/vicepb/7@1"] {
            assert_eq!(afs.check_change(&snapshot(name)), Ok(()), "{name}");
        }
        let partition = "p/a/vicepa".to_owned();
        let volume = Some(Reason::ServedOverAfs { partition, volume: Some(7) });
        assert_eq!(afs.obstacle("p/a/vicepa/7"), volume);
        assert_eq!((afs.obstacle("p/a/vicepa/7@9"), afs.obstacle("p/vicepb/7")), (None, None));
    }
}
