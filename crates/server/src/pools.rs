//! The imported pools: import, export, mounts, keys.
//!
//! # Theory
//! Each pool has its own mounts, threads and locks. So one whose devices hang affects no other. A
//! request about several pools (mounting everything) goes through one forest (`mounting`), since
//! a pool's file system may be mounted inside another's.
//!
//! # Life
//! A pool is *coming* while an import works on it, then *here*, and *going* while an export does.
//! While it is coming or going, another import or export of that name is refused at once. An export
//! that fails leaves it *here*. While an export waits for devices, the pool can be cleared.
//!
//! # Locks
//! The table of pools is held for look-ups and inserts, never while a device is read.

mod asking;
mod ending;
mod export;
pub(crate) mod halts;
mod keys;
mod mounting;

pub(crate) use mounting::threads_for;
pub use mounting::{MOUNT_TP_NTHR, mount_threads};

use crate::commands::dataset::quotas;
use crate::commands::dataset::tasks::plan;
use crate::commands::pool::cachefile::Memory;
use crate::commands::pool::split::{Split, split};
use crate::commands::pool::{leave, log};
use crate::control::files::Visits;
use crate::mounts::changelist;
use crate::mounts::journal::Journal;
use crate::mounts::{MountedFs, Mounts};
use crate::query::Looks;
use crate::replies::{error_of, of_checkpoint, of_fuse, of_shape};
use crate::sync_all::Syncs;
use crate::telemetry::tunables::Tunables;
use crate::view::PoolFacts;
use crate::volumes::attach::Attachments;
use crate::volumes::exports::{Doors, split_resize};
use api::plan::Plan;
use api::{
    Caller, Changed, DatasetChange, Error, ExportRequest, Mount, MountFailure, MountRequest, PoolChange,
    Reason,
};
use dsl::Name;
use dsl::ops::destroy::DestroyHead;
use fuse::{Detach, Nesting};
use halts::Halts;
use mounting::{Folder, Mounted, Watched, folders_of, remove_folders, restore_all, unmount_all};
use ondisk::{Guid, Psize, Txg, VdevId, VdevKind};
use parking_lot::{Mutex, RwLock};
use poolhouse::Pool;
use spa::Host;
use spa::engine::{PoolProp, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An imported pool.
pub struct Imported {
    /// The pool.
    pub pool: Pool,
    /// Its mounts.
    pub mounts: Arc<Mounts>,
    /// Its served volumes.
    pub volumes: Arc<nbd::Volumes>,
    /// Its properties that are not on disk.
    pub facts: RwLock<PoolFacts>,
    /// The last status.
    pub(crate) looks: Looks,
    /// When and why it stopped writing, until an event reports that.
    pub(crate) halts: Halts,
    /// What refused exports have unmounted. It is mounted again when the last export is refused.
    parted: Mutex<export::Parted>,
}

impl Imported {
    fn mounted(self: &Arc<Self>) -> Vec<Mounted> {
        self.mounts.list().into_iter().map(|live| (Arc::clone(self), live)).collect()
    }
}

enum State {
    Coming(Guid),
    Here(Arc<Imported>),
    Going(Arc<Imported>),
}

impl State {
    /// Whether this very pool is being exported. A pool that was given up meanwhile is not.
    fn is_going(&self, pool: &Arc<Imported>) -> bool {
        matches!(self, Self::Going(going) if Arc::ptr_eq(going, pool))
    }

    fn guid(&self) -> Guid {
        match self {
            Self::Coming(guid) => *guid,
            Self::Here(imported) | Self::Going(imported) => imported.pool.spa().guid(),
        }
    }
}

/// All imported pools.
#[derive(Default)]
pub struct Pools {
    table: RwLock<BTreeMap<String, State>>,
    memory: Memory,
    /// The record of the mounts, for the next daemon.
    pub(crate) journal: Arc<Journal>,
    pub(crate) tunables: Tunables,
    pub(crate) doors: Doors,
    pub(crate) attachments: Attachments,
    /// Commands that use files of the pools without a mount.
    visits: Visits,
    /// The notification of `sync(2)`.
    pub(crate) syncs: Syncs,
    watched: Watched,
    /// Whether other users may use the mounts.
    others: AtomicBool,
    /// Whether to nest all file systems that can be nested.
    nest: AtomicBool,
    /// Set when all pools are closed. No injected delay holds them up then.
    closing: AtomicBool,
}

fn ending() -> Reason {
    Reason::Daemon { what: "the daemon is ending".to_owned() }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get() * 2).clamp(4, 32)
}

impl Pools {
    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// The imported pools, by name; not those that are being exported.
    pub fn all(&self) -> Vec<Arc<Imported>> {
        let table = self.table.read();
        let here = table.values().filter_map(|state| match state {
            State::Here(pool) => Some(Arc::clone(pool)),
            State::Coming(_) | State::Going(_) => None,
        });
        here.collect()
    }

    /// The imported pools, with those that are being exported.
    pub(crate) fn present(&self) -> Vec<Arc<Imported>> {
        let table = self.table.read();
        let present = table.values().filter_map(|state| match state {
            State::Here(pool) | State::Going(pool) => Some(Arc::clone(pool)),
            State::Coming(_) => None,
        });
        present.collect()
    }

    /// Whether no pool is imported, coming or going.
    pub fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }

    /// The pool of this name.
    ///
    /// # Errors
    /// [`Reason::NoSuchPool`], or [`Reason::Busy`] while it is being exported.
    pub fn pool(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.table.read().get(name) {
            Some(State::Here(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
            Some(State::Going(_)) => Err(Error::new(name, Reason::Busy)),
        }
    }

    /// The pool of this name, even while it is being exported.
    ///
    /// # Errors
    /// [`Reason::NoSuchPool`]: it is not imported.
    pub fn pool_or_going(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.table.read().get(name) {
            Some(State::Here(pool) | State::Going(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
        }
    }

    /// The pool of a dataset. An error is about the dataset.
    ///
    /// # Errors
    /// [`Reason::InvalidName`], [`Reason::NoSuchDataset`], or [`Reason::Busy`] ([`Pools::pool`]).
    pub fn pool_of(&self, dataset: &str) -> Result<Arc<Imported>, Error> {
        let name = Name::parse(dataset).map_err(|_| Error::new(dataset, Reason::InvalidName))?;
        self.pool(name.pool()).map_err(|error| match error.reason {
            Reason::NoSuchPool => Error::new(dataset, Reason::NoSuchDataset),
            reason => Error::new(dataset, reason),
        })
    }

    /// Allows other users to use the mounts of pools that are imported later.
    pub(crate) fn let_others_in(&self) {
        self.others.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lets_others_in(&self) -> bool {
        self.others.load(Ordering::Relaxed)
    }

    /// Nests file systems, where possible, of pools that are imported later.
    pub(crate) fn nest_always(&self) {
        self.nest.store(true, Ordering::Relaxed);
    }

    /// Imports the pool `guid`, which `open` opens, under `name`.
    ///
    /// # Errors
    /// * [`Reason::PoolExists`], [`Reason::DevicesInUse`]: the name or the pool is in use.
    /// * [`Reason::Daemon`]: the daemon is ending, or worker threads can't be started.
    /// * All others: those of `open`.
    pub fn import<T>(
        &self,
        name: &str,
        guid: Guid,
        open: impl FnOnce() -> Result<(Pool, PoolFacts, T), Error>,
    ) -> Result<T, Error> {
        {
            let mut table = self.table.write();
            if self.closing.load(Ordering::SeqCst) {
                return Err(Error::new(name, ending()));
            }
            if table.contains_key(name) {
                return Err(Error::new(name, Reason::PoolExists));
            }
            // It is the same pool on the same devices, even under another name.
            if table.values().any(|state| state.guid() == guid) {
                return Err(Error::new(name, Reason::DevicesInUse));
            }
            table.insert(name.to_owned(), State::Coming(guid));
        }
        crate::commands::pool::inject::pass(name, true, &self.closing);
        self.syncs.wait();
        // The daemon may have begun to end: then nothing more is opened.
        let refused = self.closing.load(Ordering::SeqCst).then(|| Error::new(name, ending()));
        let opened = refused.map_or_else(open, Err).and_then(|(pool, facts, told)| {
            let nesting = Nesting::of_this_process(self.nest.load(Ordering::Relaxed));
            let how = (self.lets_others_in(), nesting);
            let mounts = Mounts::new(name, threads(), how, Arc::clone(&self.journal))
                .map_err(|error| Error::new(name, of_fuse(&error)))?;
            let (mounts, volumes) = (Arc::new(mounts), nbd::Volumes::new(pool.clone()));
            let (facts, looks) = (RwLock::new(facts), Looks::default());
            let parted = Mutex::default();
            let halts = Halts::default();
            let imported = Arc::new(Imported { pool, mounts, volumes, facts, looks, halts, parted });
            halts::watch(&imported);
            crate::query::first(&imported);
            Ok((imported, told))
        });
        match opened {
            Ok((imported, told)) => {
                if !self.enter(name, &imported) {
                    // The end of the daemon waits for this pool.
                    let left = imported.pool.spa().writer().map_or(Ok(()), |live| leave(live, false));
                    drop(imported);
                    self.table.write().remove(name);
                    tracing::info!(pool = name, left = left.is_err(), "not imported: the daemon ends");
                    return Err(Error::new(name, left.err().unwrap_or_else(ending)));
                }
                self.tunables.tell(&self.present());
                self.remember(&imported);
                tracing::info!(pool = name, "imported");
                Ok(told)
            }
            Err(error) => {
                self.table.write().remove(name);
                Err(error)
            }
        }
    }

    /// Adds an opened pool, unless the daemon is ending.
    fn enter(&self, name: &str, imported: &Arc<Imported>) -> bool {
        let mut table = self.table.write();
        // The check needs the table: the end of the daemon reads the table after setting the flag.
        let enters = !self.closing.load(Ordering::SeqCst);
        if enters {
            table.insert(name.to_owned(), State::Here(Arc::clone(imported)));
        }
        enters
    }

    fn coming(&self) -> Vec<String> {
        let table = self.table.read();
        let coming = table.iter().filter(|(_, state)| matches!(state, State::Coming(_)));
        coming.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn journal_in(&self, folder: &std::path::Path) {
        self.journal.open(folder);
    }

    /// Sets the default cache file.
    pub fn remember_in(&self, cachefile: &std::path::Path) {
        self.memory.set_usual(cachefile);
    }

    /// Updates the cache file that lists a pool, if one does.
    fn remember(&self, imported: &Imported) {
        let file = self.memory.file_of(&imported.facts.read());
        if let Some(file) = file.filter(|_| imported.pool.spa().writer().is_some()) {
            self.memory.write(&file, &self.present(), None);
        }
    }

    /// Changes a pool as a whole.
    ///
    /// # Errors
    /// See [`api::Service::change_pool`].
    pub fn change_pool(
        &self,
        caller: &Caller,
        name: &str,
        change: &PoolChange,
        host: &Host,
    ) -> Result<(), Error> {
        let imported = match change {
            PoolChange::Clear { .. } => self.pool_or_going(name)?,
            _ => self.pool(name)?,
        };
        let done = self.change_one(caller, &imported, change, host);
        if matches!(change, PoolChange::Clear { .. }) && done.is_ok() {
            self.restore_cleared(&imported);
        }
        let config = !matches!(
            change,
            PoolChange::Destroy { .. }
                | PoolChange::Sync
                | PoolChange::SyncAnew
                | PoolChange::Log { .. }
                | PoolChange::Clear { .. }
                | PoolChange::Work { .. }
                | PoolChange::PruneDdt { .. }
                | PoolChange::Scan { .. }
        );
        if done.is_ok() && config {
            self.remember(&imported);
        }
        done
    }

    fn change_one(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        change: &PoolChange,
        host: &Host,
    ) -> Result<(), Error> {
        let name = imported.pool.name();
        if let PoolChange::Destroy { force, command } = change {
            // A read-only pool is closed without a write, and can be imported again.
            if let Some(live) = imported.pool.spa().writer() {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))?;
            }
            let request = ExportRequest { name: name.to_owned(), force: *force, ..ExportRequest::default() };
            return self.let_go(caller, &request, true);
        }
        let live = writer(imported, name)?;
        match change {
            PoolChange::Destroy { .. } => Ok(()),
            PoolChange::SyncAnew => live.sync_anew().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Sync => live.sync_all().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Set { props } => {
                let props = crate::commands::vdev::props(imported, props, host)?;
                if let Some(file) = props.cachefile {
                    let before = self.memory.file_of(&imported.facts.read());
                    imported.facts.write().cachefile = file;
                    if let Some(before) = before {
                        self.memory.write(&before, &self.present(), None);
                    }
                }
                if props.kept.is_empty() {
                    return Ok(());
                }
                live.set(props.kept).map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::SetVdev { guid, property, value } => {
                let value = crate::commands::vdev::properties::check(property, value)
                    .map_err(|what| Error::new(name, Reason::BadValue { what }))?;
                let done = live.set_vdev(Guid(*guid), property, value);
                done.map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::Reguid { guid } => {
                let taken = |g: u64| self.present().iter().any(|other| other.pool.spa().guid().0 == g);
                if guid.is_some_and(taken) {
                    return Err(Error::new(name, Reason::BadGuid));
                }
                let done = live.reguid(guid.map(Guid));
                done.map(drop).map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::Reopen => {
                let done = live.reopen(None);
                done.map(drop).map_err(|e| Error::new(name, of_shape(&e.into())))
            }
            PoolChange::Add { .. } | PoolChange::Remove { .. } | PoolChange::Clear { .. } => {
                crate::commands::vdev::change(imported, live, change)
            }
            PoolChange::Offline { .. }
            | PoolChange::Online { .. }
            | PoolChange::Attach { .. }
            | PoolChange::Detach { .. } => {
                crate::commands::vdev::online_offline::change(imported, live, change)
            }
            PoolChange::Work { .. } => crate::commands::vdev::initialize_trim::work(imported, live, change),
            PoolChange::Scan { command } => crate::commands::pool::scan::scan(name, live, *command),
            PoolChange::PruneDdt { older, percent } => {
                crate::commands::vdev::initialize_trim::prune(name, live, *older, *percent)
            }
            PoolChange::Split { name, devices, props, import } => {
                let how = Split { name, devices, props, import: *import };
                split(caller, self, imported, live, host, &how)
            }
            PoolChange::Upgrade { version } => {
                let done = live.set(vec![PoolProp::Version(*version)]);
                done.map_err(|e| Error::new(name, of_shape(&e)))
            }
            PoolChange::Checkpoint => live.checkpoint().map_err(|e| Error::new(name, of_checkpoint(&e))),
            PoolChange::DiscardCheckpoint { wait } => {
                live.discard_checkpoint(*wait).map_err(|e| Error::new(name, of_checkpoint(&e)))
            }
            PoolChange::Log { command } => {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))
            }
        }
    }

    /// Changes datasets, and adapts their mounts.
    ///
    /// # Errors
    /// See [`api::Service::change`].
    pub fn change(&self, caller: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        let about = change.subject();
        let imported = self.pool_of(about)?;
        let live = writer(&imported, about)?;
        let (change, limits) = &quotas::split(change)?;
        let room = |blocks, block| data_room(&imported.pool, blocks, block);
        let (change, resize) = &imported.pool.spa().read(|| split_resize(&imported, &room, change))?;
        let planned = imported.pool.spa().read(|| plan(caller, imported.pool.dsl(), &room, change))?;
        let followers = imported.pool.spa().read(|| changelist::of(&imported, change))?;
        let (moved, folders) = self.make_way(caller, &imported, change, &followers)?;
        let run = || live.run_all(planned.tasks).map_err(|_| Error::new(about, Reason::Suspended));
        let mut lost = Vec::new();
        let results = imported.mounts.run(caller, &imported.pool, change, &mut lost, run);
        let results = results.map_err(|error| export::with_user(caller, self, &imported, error));
        let mut errors: Vec<Error> = Vec::new();
        let results = match results {
            Err(error) if !lost.is_empty() => {
                let errors = std::iter::once(error).chain(lost.into_iter().map(|lost| lost.error)).collect();
                return Err(Error::new(about, Reason::Several { errors }));
            }
            results => results?,
        };
        for (about, result) in planned.about.iter().zip(results) {
            if let Err(e) = result {
                errors.push(export::with_user(caller, self, &imported, error_of(about, &e)));
            }
        }
        if errors.is_empty() && !limits.is_empty() {
            let mounted = imported.mounts.served().into_iter().find(|live| live.name() == about);
            let set = |open| quotas::set(&imported.pool, about, open, limits);
            let set = mounted.map_or_else(|| set(None), |live| live.with_files(set));
            if set.is_err() && matches!(change, DatasetChange::Create { .. } | DatasetChange::Clone { .. }) {
                // It is created with all of its properties, or not at all.
                match live.run(Box::new(DestroyHead { name: about.to_owned() })) {
                    Ok(()) => {}
                    Err(TaskError::Refused(e)) => errors.push(error_of(about, &e)),
                    Err(TaskError::Stopped(_)) => errors.push(Error::new(about, Reason::Suspended)),
                }
            }
            errors.extend(set.err());
        }
        if let (DatasetChange::Rename { from, to, .. }, true) = (change, errors.is_empty()) {
            imported.mounts.renamed(from, to);
            self.devices_renamed(imported.pool.name(), from, to);
        }
        if let (DatasetChange::RenameSnapshot { dataset, from, to, .. }, true) = (change, errors.is_empty()) {
            let [from, to] = [from, to].map(|snap| format!("{dataset}@{snap}"));
            self.devices_renamed(imported.pool.name(), &from, &to);
        }
        if errors.is_empty()
            && let Some(resize) = resize
        {
            errors.extend(resize.run(&imported, about).err());
            self.resized(imported.pool.name(), resize.object);
        }
        self.follow_exports(&imported, change);
        let stale = self.follow(&imported, change);
        // If one of many can't be destroyed, the others still are.
        let alone = !matches!(change, DatasetChange::Destroy { .. });
        let mut changed = Changed { failures: stale, unmounted: lost };
        let failed = !errors.is_empty();
        // What remains is mounted again at its place.
        let gone = |name: &str| {
            let found = imported.pool.dsl().dataset(name);
            matches!(found, Err(dsl::Error::NoSuchDataset { .. }))
        };
        remove_folders(folders.into_iter().filter(|(name, _)| !failed || gone(name)).collect());
        let moved: Vec<String> = match change {
            DatasetChange::Rename { from, to, .. } if !failed => {
                let named = |old: &String| old.strip_prefix(from.as_str()).map(|tail| format!("{to}{tail}"));
                moved.iter().filter_map(named).collect()
            }
            _ => moved,
        };
        let before = moved.clone();
        let wanted: Vec<String> = match change {
            DatasetChange::Create { mount: true, .. } | DatasetChange::Clone { .. } if !failed => {
                planned.made
            }
            // A new mountpoint mounts the file system, whether it was mounted before or not.
            DatasetChange::Set { name, props, keep_mounted: false }
                if !failed && props.iter().any(|(p, _)| p == "mountpoint") =>
            {
                with(moved, name, followers)
            }
            DatasetChange::Inherit { name, prop, .. } if !failed && prop == "mountpoint" => {
                with(moved, name, followers)
            }
            _ => moved,
        };
        let is_file_system = |name: &String| {
            let kind = imported.pool.dsl().dataset(name).and_then(|dataset| dataset.head_kind());
            matches!(kind, Ok(Some(dsl::Kind::Filesystem)))
        };
        let wanted: Vec<String> = wanted.into_iter().filter(is_file_system).collect();
        let request = MountRequest { datasets: wanted, before, ..MountRequest::default() };
        if let Some(left) = crate::control::grants::left_unmounted(caller, &imported, &request.datasets) {
            changed.unmounted.extend(left);
        } else if !request.datasets.is_empty() {
            changed.unmounted.extend(self.mount(&request)?.failures);
        }
        match errors.len() {
            0 => Ok(changed),
            1 if alone => Err(errors.remove(0)),
            _ if alone => Err(Error::new(about, Reason::Several { errors })),
            _ => {
                changed.failures = errors
                    .into_iter()
                    .flat_map(each)
                    .map(|error| MountFailure { name: error.about.clone(), error })
                    .collect();
                Ok(changed)
            }
        }
    }

    /// Makes mounted file systems follow their properties. Returns those that could not.
    fn follow(&self, imported: &Arc<Imported>, change: &DatasetChange) -> Vec<MountFailure> {
        let (root, changed): (_, Vec<&str>) = match change {
            DatasetChange::Set { name, props, .. } => (name, props.iter().map(|(p, _)| p.as_str()).collect()),
            DatasetChange::Inherit { name, prop, .. } => (name, vec![prop]),
            // It inherits from another dataset now.
            DatasetChange::Rename { to, .. } => (to, MOUNT_OPTIONS.to_vec()),
            _ => return Vec::new(),
        };
        // Whether the change is about a property or, if that is unknown, about any mount option.
        let told = |about: &str| {
            changed.iter().any(|prop| if about.is_empty() { is_mount_option(prop) } else { *prop == about })
        };
        let mut failures: Vec<(Arc<MountedFs>, Error)> = Vec::new();
        // Other file systems may still wait for an earlier change. A mount and its nested file
        // systems share options, so one of them may have to follow first.
        let follow = |(_, live): &Mounted| {
            imported.mounts.follow(&imported.pool, live).err().map(|_| Arc::clone(live))
        };
        let again: Vec<Arc<MountedFs>> = imported.mounted().iter().filter_map(follow).collect();
        for live in again {
            let Err(error) = imported.mounts.follow(&imported.pool, &live) else { continue };
            let name = live.name();
            let told = match &error.reason {
                Reason::NotInEffect { setting, .. } => props_of(setting).any(&told),
                _ => told(""),
            };
            if told && within(root, &name) {
                failures.push((live, error));
            } else {
                tracing::warn!(dataset = name, %error, "its properties are not followed");
            }
        }
        // A nested file system waits for the mount around it, if that waits for the same.
        let outer: Vec<(Arc<MountedFs>, String)> = (failures.iter())
            .filter_map(|(live, error)| match &error.reason {
                Reason::NotInEffect { setting, .. } => Some((Arc::clone(live), setting.clone())),
                _ => None,
            })
            .collect();
        let mut acls = BTreeMap::new();
        let mounted = imported.mounted();
        let mut comes = |live: &MountedFs, setting: &str| {
            let waits = |(outer, its): &(Arc<MountedFs>, String)| {
                live.is_within(outer) && props_of(setting).all(|prop| props_of(its).any(|own| own == prop))
            };
            if outer.iter().any(waits) {
                return true;
            }
            // What the mount around it has too comes with its next mount.
            let Some((_, around)) =
                mounted.iter().find(|(_, outer)| setting == "acltype=posix" && live.is_within(outer))
            else {
                return false;
            };
            *acls.entry(around.object()).or_insert_with(|| wants_acls(imported, &around.name()))
        };
        failures.retain(|(live, error)| match &error.reason {
            Reason::NotInEffect { setting, .. } => !comes(live, setting),
            _ => true,
        });
        failures.into_iter().map(|(live, error)| MountFailure { name: live.name(), error }).collect()
    }

    /// Unmounts what a change removes or moves. Returns it, and the folders to remove later.
    fn make_way(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        change: &DatasetChange,
        followers: &[String],
    ) -> Result<(Vec<String>, Vec<Folder>), Error> {
        type Chosen<'a> = Box<dyn Fn(&str) -> bool + 'a>;
        let chosen: Chosen<'_> = match change {
            DatasetChange::Destroy { names, .. } => Box::new(move |name| names.iter().any(|n| n == name)),
            DatasetChange::Rename { from, keep_mounted, .. }
                if *keep_mounted || stays_put(imported, from) =>
            {
                return Ok((Vec::new(), Vec::new()));
            }
            DatasetChange::Rename { from, .. } => Box::new(move |name| within(from, name)),
            DatasetChange::Rollback { destroy, .. } => {
                Box::new(move |name| destroy.iter().any(|n| n == name))
            }
            DatasetChange::Set { name: root, props, keep_mounted: false } => {
                let place = props.iter().any(|(p, _)| p == "mountpoint");
                let off = props.iter().any(|(p, v)| p == "canmount" && v == "off");
                let off = off && imported.mounted().iter().any(|(_, live)| live.name() == *root);
                // What is nested in it is mounted again in the folder beneath.
                let lies_in =
                    move |name: &str| name == root || followers.iter().any(|follower| follower == name);
                Box::new(move |name| (place && within(root, name)) || (off && lies_in(name)))
            }
            DatasetChange::Inherit { name: root, prop, .. } if prop == "mountpoint" => {
                Box::new(move |name| within(root, name))
            }
            _ => return Ok((Vec::new(), Vec::new())),
        };
        let mounted: Vec<Mounted> =
            imported.mounted().into_iter().filter(|(_, live)| chosen(&live.name())).collect();
        let names: Vec<String> = mounted.iter().map(|(_, live)| live.name()).collect();
        crate::control::grants::may_unmount(caller, &names)?;
        // A visit's open files would prevent mounting again.
        for (object, by) in self.visits.users(imported.pool.name()) {
            if let Some((_, live)) = mounted.iter().find(|(_, live)| live.object() == object) {
                return Err(Error::new(live.name(), Reason::HeldOpen { by }));
            }
        }
        if let Some(failure) =
            unmount_all(caller, &mounted, Detach::Normal, threads_for(None)).into_iter().next()
        {
            restore_all(&mounted);
            return Err(failure.error);
        }
        Ok((names, folders_of(&mounted)))
    }

    /// The mounts, pool by pool, in the order of mounting.
    pub fn mounts(&self) -> Vec<Mount> {
        self.all().iter().flat_map(|pool| pool.mounts.list()).map(|live| live.describe()).collect()
    }
}

/// The separate errors of one error.
fn each(error: Error) -> Vec<Error> {
    match error.reason {
        Reason::Several { errors } => errors,
        _ => vec![error],
    }
}

fn writer<'p>(imported: &'p Imported, about: &str) -> Result<&'p spa::engine::PoolWriter, Error> {
    imported.pool.spa().writer().ok_or_else(|| Error::new(about, Reason::PoolReadonly))
}

/// The bytes that blocks take on the raidz or draid with the most parity and padding, relative to
/// a 128 KiB block (`volsize_from_vdevs`).
fn data_room(pool: &Pool, blocks: u64, block: u64) -> u64 {
    const USUAL: u64 = 128 << 10;
    let (tree, config) = (pool.spa().tree(), pool.spa().config());
    let taken = |id: u64, size: u64| {
        let asize = tree.psize_to_asize(VdevId(u32::try_from(id).ok()?), Psize(size), Txg(u64::MAX)).ok()?;
        Some(u128::from(asize.0)).filter(|n| *n > 0)
    };
    let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
    let striped = tops.filter(|top| matches!(top.kind, VdevKind::Raidz | VdevKind::Draid));
    let sizes = striped.filter_map(|top| {
        let (own, usual) = (taken(top.id, block)?, taken(top.id, USUAL)?);
        Some(
            u64::try_from(u128::from(blocks) * own / (usual >> 9) * u128::from(USUAL >> 9))
                .unwrap_or(u64::MAX),
        )
    });
    sizes.max().unwrap_or(blocks.saturating_mul(block))
}

/// The datasets to mount again, with one more and its dependents.
fn with(mut moved: Vec<String>, name: &str, followers: Vec<String>) -> Vec<String> {
    for one in std::iter::once(name.to_owned()).chain(followers) {
        if !moved.contains(&one) {
            moved.push(one);
        }
    }
    moved
}

pub(crate) fn within(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Whether a file system's mountpoint is independent of its name, so that a rename keeps it.
fn stays_put(imported: &Imported, name: &str) -> bool {
    let place = imported.pool.dsl().dataset(name).and_then(|d| d.property(dsl::Prop::Mountpoint));
    let Ok(Some(place)) = place else { return false };
    matches!(&place.value, dsl::prop::Value::Text(word) if word == "legacy" || word == "none")
}

fn props_of(settings: &str) -> impl Iterator<Item = &str> {
    settings.split(", ").map(|setting| setting.split('=').next().unwrap_or_default())
}

fn wants_acls(imported: &Imported, name: &str) -> bool {
    let found = imported.pool.dsl().dataset(name).and_then(Plan::of);
    found.is_ok_and(|plan| plan.is_some_and(|plan| plan.options.posix_acl))
}

/// The properties that are mount options (`zfs_is_namespace_prop`).
const MOUNT_OPTIONS: [&str; 8] =
    ["atime", "relatime", "devices", "exec", "setuid", "readonly", "xattr", "nbmand"];

fn is_mount_option(prop: &str) -> bool {
    MOUNT_OPTIONS.contains(&prop)
}
