//! The imported pools: import, export, mounts, keys.
//!
//! # Theory
//! Each pool has its own mounts, threads and locks, so that one whose devices hang takes nothing else down with it. What a
//! request does to several pools at once (mounting everything) goes through one forest ([`mounting`]), since a pool's file system may
//! be mounted inside another's.
//!
//! # Life
//! A pool is *coming* while an import works on it, *here*, or *going* while an export does. In between its name is taken:
//! a second import or export of it is refused at once rather than made to wait. An export that fails leaves it *here*; while one
//! waits for devices, the pool can be cleared.
//!
//! # Locks
//! The table of pools is held for looking up and entering, never while a device is read.

mod asking;
mod ending;
mod export;
pub(crate) mod halts;
mod heirs;
mod left;
mod mounting;

pub(crate) use mounting::threads_for;
pub use mounting::{MOUNT_TP_NTHR, mount_threads};

use crate::attach::Attachments;
use crate::cachefile::Memory;
use crate::change::tasks::plan;
use crate::change::{error_of, quotas};
use crate::exports::{Doors, split_resize};
use crate::faults::{of_dsl, of_fuse, of_key};
use crate::journal::Journal;
use crate::looks::Looks;
use crate::mounts::{Live, Mounts};
use crate::split::{Split, split};
use crate::syncs::Syncs;
use crate::tunables::Tunables;
use crate::view::PoolFacts;
use crate::visits::Visits;
use crate::work::{leave, log};
use api::plan::Plan;
use api::{
    Caller, Changed, DatasetChange, Error, ExportRequest, KeyMaterial, LoadKeyRequest, Mount, MountFailure,
    MountRequest, PoolChange, Reason,
};
use dsl::Name;
use dsl::ops::destroy::DestroyHead;
use fuse::{Detach, Nesting};
use halts::Halts;
use mounting::{Folder, Mounted, Watched, folders_of, remove_folders, restore_all, unmount_all};
use ondisk::{Guid, ObjNum, Psize, Txg, VdevId, VdevKind};
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
    /// What is mounted of it.
    pub mounts: Arc<Mounts>,
    /// Its volumes, as they are served.
    pub volumes: Arc<nbd::Volumes>,
    /// What only its holder knows of it.
    pub facts: RwLock<PoolFacts>,
    /// What it was seen to be.
    pub(crate) looks: Looks,
    /// When and why it stopped writing, until an event tells of it.
    pub(crate) halts: Halts,
    /// What exports that were refused have unmounted, to be mounted again when the last of them is.
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
    /// Whether this very pool is being let go: one that was given up meanwhile is not.
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
    /// What is mounted, for the next daemon.
    journal: Arc<Journal>,
    pub(crate) tunables: Tunables,
    pub(crate) doors: Doors,
    pub(crate) attachments: Attachments,
    /// Commands that use files of its pools without a mount.
    visits: Visits,
    /// By which it hears of `sync(2)`.
    pub(crate) syncs: Syncs,
    watched: Watched,
    /// Other users are let into what is mounted.
    others: AtomicBool,
    /// What can be nested is.
    nest: AtomicBool,
    /// Everything is let go: nobody is held up for the sake of a trial.
    closing: AtomicBool,
}

/// Why no pool is imported any more.
fn ending() -> Reason {
    Reason::Daemon { what: "the daemon is ending".to_owned() }
}

/// How many threads serve the mounts of a pool.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get() * 2).clamp(4, 32)
}

impl Pools {
    /// Commands that use files without a mount.
    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// The pools that are here, by name; not those that are about to be let go.
    pub fn all(&self) -> Vec<Arc<Imported>> {
        let table = self.table.read();
        let here = table.values().filter_map(|state| match state {
            State::Here(pool) => Some(Arc::clone(pool)),
            State::Coming(_) | State::Going(_) => None,
        });
        here.collect()
    }

    /// The pools that are here, and those that are about to be let go: until then they are.
    pub(crate) fn present(&self) -> Vec<Arc<Imported>> {
        let table = self.table.read();
        let present = table.values().filter_map(|state| match state {
            State::Here(pool) | State::Going(pool) => Some(Arc::clone(pool)),
            State::Coming(_) => None,
        });
        present.collect()
    }

    /// Whether there are none, nor about to be.
    pub fn is_empty(&self) -> bool {
        self.table.read().is_empty()
    }

    /// The pool of this name.
    pub fn pool(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.table.read().get(name) {
            Some(State::Here(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
            Some(State::Going(_)) => Err(Error::new(name, Reason::Busy)),
        }
    }

    /// The same for who may look at it, or see to its devices, while it goes.
    pub fn pool_or_going(&self, name: &str) -> Result<Arc<Imported>, Error> {
        match self.table.read().get(name) {
            Some(State::Here(pool) | State::Going(pool)) => Ok(Arc::clone(pool)),
            Some(State::Coming(_)) | None => Err(Error::new(name, Reason::NoSuchPool)),
        }
    }

    /// The pool that a dataset's name begins with. What is wrong is said about the dataset.
    pub fn pool_of(&self, dataset: &str) -> Result<Arc<Imported>, Error> {
        let name = Name::parse(dataset).map_err(|_| Error::new(dataset, Reason::InvalidName))?;
        self.pool(name.pool()).map_err(|error| match error.reason {
            Reason::NoSuchPool => Error::new(dataset, Reason::NoSuchDataset),
            reason => Error::new(dataset, reason),
        })
    }

    /// Lets other users into what is mounted of pools that come from now on.
    pub(crate) fn let_others_in(&self) {
        self.others.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn lets_others_in(&self) -> bool {
        self.others.load(Ordering::Relaxed)
    }

    /// Nests file systems of pools that come from now on wherever that is possible.
    pub(crate) fn nest_always(&self) {
        self.nest.store(true, Ordering::Relaxed);
    }

    /// Takes in the pool `guid` that `open` opens, under `name`.
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
            // Under another name it is still the same pool on the same devices.
            if table.values().any(|state| state.guid() == guid) {
                return Err(Error::new(name, Reason::DevicesInUse));
            }
            table.insert(name.to_owned(), State::Coming(guid));
        }
        crate::inject::pass(name, true, &self.closing);
        self.syncs.wait();
        // What was not opened yet is not opened any more.
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
            crate::looks::first(&imported);
            Ok((imported, told))
        });
        match opened {
            Ok((imported, told)) => {
                if !self.enter(name, &imported) {
                    // Who ends the daemon waits for this.
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

    /// Takes in a pool that has come, unless everything is let go.
    fn enter(&self, name: &str, imported: &Arc<Imported>) -> bool {
        let mut table = self.table.write();
        // Looked at with the table in hand: who ends the daemon looks there after this was set.
        let enters = !self.closing.load(Ordering::SeqCst);
        if enters {
            table.insert(name.to_owned(), State::Here(Arc::clone(imported)));
        }
        enters
    }

    /// Pools that are about to come.
    fn coming(&self) -> Vec<String> {
        let table = self.table.read();
        let coming = table.iter().filter(|(_, state)| matches!(state, State::Coming(_)));
        coming.map(|(name, _)| name.clone()).collect()
    }

    /// Writes down in this folder what is mounted.
    pub(crate) fn journal_in(&self, folder: &std::path::Path) {
        self.journal.open(folder);
    }

    /// Remembers pools in this file that name none.
    pub fn remember_in(&self, cachefile: &std::path::Path) {
        self.memory.set_usual(cachefile);
    }

    /// Brings the file that remembers a pool up to date, if one does.
    fn remember(&self, imported: &Imported) {
        let file = self.memory.file_of(&imported.facts.read());
        if let Some(file) = file.filter(|_| imported.pool.spa().writer().is_some()) {
            self.memory.write(&file, &self.present(), None);
        }
    }

    /// Changes a pool as a whole.
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
            // One that is only read is let go as it is: nothing is written, and it can be imported again.
            if let Some(live) = imported.pool.spa().writer() {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))?;
            }
            let request = ExportRequest { name: name.to_owned(), force: *force, ..ExportRequest::default() };
            return self.let_go(caller, &request, true);
        }
        let live = writer(imported, name)?;
        match change {
            // Done above.
            PoolChange::Destroy { .. } => Ok(()),
            PoolChange::SyncAnew => live.sync_anew().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Sync => live.sync_all().map_err(|_| Error::new(name, Reason::Suspended)),
            PoolChange::Set { props } => {
                let props = crate::shape::props(imported, props, host)?;
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
                live.set(props.kept).map_err(|e| Error::new(name, crate::shape::of_shape(&e)))
            }
            PoolChange::SetVdev { guid, property, value } => {
                let value = crate::vdev_settings::check(property, value)
                    .map_err(|what| Error::new(name, Reason::BadValue { what }))?;
                let done = live.set_vdev(Guid(*guid), property, value);
                done.map_err(|e| Error::new(name, crate::shape::of_shape(&e)))
            }
            PoolChange::Reguid { guid } => {
                let taken = |g: u64| self.present().iter().any(|other| other.pool.spa().guid().0 == g);
                if guid.is_some_and(taken) {
                    return Err(Error::new(name, Reason::BadGuid));
                }
                let done = live.reguid(guid.map(Guid));
                done.map(drop).map_err(|e| Error::new(name, crate::shape::of_shape(&e)))
            }
            PoolChange::Reopen => {
                let done = live.reopen(None);
                done.map(drop).map_err(|e| Error::new(name, crate::shape::of_shape(&e.into())))
            }
            PoolChange::Add { .. } | PoolChange::Remove { .. } | PoolChange::Clear { .. } => {
                crate::shape::change(imported, live, change)
            }
            PoolChange::Offline { .. }
            | PoolChange::Online { .. }
            | PoolChange::Attach { .. }
            | PoolChange::Detach { .. } => crate::device_life::change(imported, live, change),
            PoolChange::Work { .. } => crate::leaf_work::work(imported, live, change),
            PoolChange::Scan { command } => crate::scan::scan(name, live, *command),
            PoolChange::PruneDdt { older, percent } => crate::leaf_work::prune(name, live, *older, *percent),
            PoolChange::Split { name, devices, props, import } => {
                let how = Split { name, devices, props, import: *import };
                split(caller, self, imported, live, host, &how)
            }
            PoolChange::Upgrade { version } => {
                let done = live.set(vec![PoolProp::Version(*version)]);
                done.map_err(|e| Error::new(name, crate::shape::of_shape(&e)))
            }
            PoolChange::Checkpoint => {
                live.checkpoint().map_err(|e| Error::new(name, crate::shape::of_checkpoint(&e)))
            }
            PoolChange::DiscardCheckpoint { wait } => {
                live.discard_checkpoint(*wait).map_err(|e| Error::new(name, crate::shape::of_checkpoint(&e)))
            }
            PoolChange::Log { command } => {
                log(caller, live, command).map_err(|reason| Error::new(name, reason))
            }
        }
    }

    /// Changes datasets, and mounts and unmounts what that asks for.
    pub fn change(&self, caller: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        let about = change.subject();
        let imported = self.pool_of(about)?;
        let live = writer(&imported, about)?;
        let (change, limits) = &quotas::split(change)?;
        let room = |blocks, block| data_room(&imported.pool, blocks, block);
        let (change, resize) = &imported.pool.spa().read(|| split_resize(&imported, &room, change))?;
        let planned = imported.pool.spa().read(|| plan(caller, imported.pool.dsl(), &room, change))?;
        let heirs = imported.pool.spa().read(|| heirs::of(&imported, change))?;
        let (moved, folders) = self.make_way(caller, &imported, change, &heirs)?;
        let run = || live.run_all(planned.tasks).map_err(|_| Error::new(about, Reason::Suspended));
        let mut lost = Vec::new();
        let results = imported.mounts.run(caller, &imported.pool, change, &mut lost, run);
        let results = results.map_err(|error| export::with_user(self, &imported, error));
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
                errors.push(export::with_user(self, &imported, error_of(about, &e)));
            }
        }
        if errors.is_empty() && !limits.is_empty() {
            let mounted = imported.mounts.served().into_iter().find(|live| live.name() == about);
            let set = |open| quotas::set(&imported.pool, about, open, limits);
            let set = mounted.map_or_else(|| set(None), |live| live.with_files(set));
            if set.is_err() && matches!(change, DatasetChange::Create { .. } | DatasetChange::Clone { .. }) {
                // It is made with all that it was to have, or not at all.
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
        // Where many things are destroyed, one that stays does not keep the others.
        let alone = !matches!(change, DatasetChange::Destroy { .. });
        let mut changed = Changed { failures: stale, unmounted: lost };
        let failed = !errors.is_empty();
        // What stays is mounted again, where it was.
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
            // What a new mountpoint is good for is mounted, whether it was before or not.
            DatasetChange::Set { name, props, keep_mounted: false }
                if !failed && props.iter().any(|(p, _)| p == "mountpoint") =>
            {
                with(moved, name, heirs)
            }
            DatasetChange::Inherit { name, prop, .. } if !failed && prop == "mountpoint" => {
                with(moved, name, heirs)
            }
            _ => moved,
        };
        // Volumes are not mounted, nor are clones of them.
        let is_file_system = |name: &String| {
            let kind = imported.pool.dsl().dataset(name).and_then(|dataset| dataset.head_kind());
            matches!(kind, Ok(Some(dsl::Kind::Filesystem)))
        };
        let wanted: Vec<String> = wanted.into_iter().filter(is_file_system).collect();
        let request = MountRequest { datasets: wanted, before, ..MountRequest::default() };
        if let Some(left) = crate::grants::left_unmounted(caller, &imported, &request.datasets) {
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

    /// Tells mounted file systems what their properties say now. What comes back could not be told what this change says.
    fn follow(&self, imported: &Arc<Imported>, change: &DatasetChange) -> Vec<MountFailure> {
        let (root, changed): (_, Vec<&str>) = match change {
            DatasetChange::Set { name, props, .. } => (name, props.iter().map(|(p, _)| p.as_str()).collect()),
            DatasetChange::Inherit { name, prop, .. } => (name, vec![prop]),
            // What it inherits is another's now.
            DatasetChange::Rename { to, .. } => (to, MOUNT_OPTIONS.to_vec()),
            _ => return Vec::new(),
        };
        // Whether the change is about a property, or, if that is not known, about any that the
        // kernel is told.
        let told = |about: &str| {
            changed.iter().any(|prop| if about.is_empty() { is_mount_option(prop) } else { *prop == about })
        };
        let mut failures: Vec<(Arc<Live>, Error)> = Vec::new();
        // Others may still wait for what an earlier change said. A mount and what is nested in it
        // have to say the same, so that one of them may have to be the first.
        let follow = |(_, live): &Mounted| {
            imported.mounts.follow(&imported.pool, live).err().map(|_| Arc::clone(live))
        };
        let again: Vec<Arc<Live>> = imported.mounted().iter().filter_map(follow).collect();
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
        // What is nested waits for the mount that it lies in, if that waits for the same.
        let outer: Vec<(Arc<Live>, String)> = (failures.iter())
            .filter_map(|(live, error)| match &error.reason {
                Reason::NotInEffect { setting, .. } => Some((Arc::clone(live), setting.clone())),
                _ => None,
            })
            .collect();
        let mut acls = BTreeMap::new();
        let mounted = imported.mounted();
        let mut comes = |live: &Live, setting: &str| {
            let waits = |(outer, its): &(Arc<Live>, String)| {
                live.is_within(outer) && props_of(setting).all(|prop| props_of(its).any(|own| own == prop))
            };
            if outer.iter().any(waits) {
                return true;
            }
            // What the mount around says, too, comes with its next mount.
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

    /// Unmounts what a change is about to take away or move; what was mounted, and the folders that go when the change is made.
    fn make_way(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        change: &DatasetChange,
        heirs: &[String],
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
                // What lies in its mount comes back in the folder beneath.
                let lies_in = move |name: &str| name == root || heirs.iter().any(|heir| heir == name);
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
        crate::grants::may_unmount(caller, &names)?;
        // A visit's files would keep what is unmounted from being mounted again.
        for (object, by) in self.visits.users(imported.pool.name()) {
            if let Some((_, live)) = mounted.iter().find(|(_, live)| live.object() == object) {
                return Err(Error::new(live.name(), Reason::HeldOpen { by }));
            }
        }
        if let Some(failure) =
            unmount_all(caller, &mounted, Detach::Normal, threads_for(None)).into_iter().next()
        {
            // What could be unmounted before that one goes back.
            restore_all(&mounted);
            return Err(failure.error);
        }
        Ok((names, folders_of(&mounted)))
    }

    /// What is mounted, pool by pool, in the order of mounting.
    pub fn mounts(&self) -> Vec<Mount> {
        self.all().iter().flat_map(|pool| pool.mounts.list()).map(|live| live.describe()).collect()
    }

    /// Loads the key of an encryption root, or checks it.
    pub fn load_key(&self, request: &LoadKeyRequest) -> Result<(), Error> {
        let about = request.dataset.as_str();
        let pool = self.pool_of(about)?;
        let dsl = pool.pool.dsl();
        let dir = dsl.dir(about).map_err(|error| Error::new(about, of_dsl(&error)))?;
        let bytes = match &request.key {
            KeyMaterial::Passphrase(bytes) | KeyMaterial::Hex(bytes) | KeyMaterial::Raw(bytes) => bytes,
        };
        dsl.keys().load(&dir, bytes, request.noop).map_err(|error| Error::new(about, of_key(&error)))
    }

    /// Forgets a key, unless something that needs it is mounted.
    pub fn unload_key(&self, dataset: &str) -> Result<(), Error> {
        let pool = self.pool_of(dataset)?;
        let fail = |error: dsl::Error| Error::new(dataset, of_dsl(&error));
        let root = pool.pool.dsl().dir(dataset).map_err(fail)?;
        for live in pool.mounts.served() {
            let name = live.name();
            // A snapshot has the key of its head.
            let head = name.split('@').next().unwrap_or(&name);
            let dir = pool.pool.dsl().dir(head).map_err(fail)?;
            let needs = dir.encryption_root().map_err(fail)?;
            if needs.is_some_and(|needed| needed.object() == root.object()) {
                return Err(Error::new(dataset, Reason::Busy));
            }
        }
        for object in pool.volumes.objects() {
            let needs = pool.pool.dsl().by_object(ObjNum(object)).and_then(|d| d.dir().encryption_root());
            if needs.map_err(fail)?.is_some_and(|needed| needed.object() == root.object()) {
                return Err(Error::new(dataset, Reason::Busy));
            }
        }
        // Visits have no mount.
        for (object, who) in self.visits.users(pool.pool.name()) {
            let needs = pool.pool.dsl().by_object(ObjNum(object)).and_then(|d| d.dir().encryption_root());
            if needs.map_err(fail)?.is_some_and(|needed| needed.object() == root.object()) {
                return Err(Error::new(dataset, Reason::HeldOpen { by: who }));
            }
        }
        // What was written before it was unmounted may still need the key on its way to the disk (`spa_keystore_unload_wkey`).
        if let Some(live) = pool.pool.spa().writer() {
            live.sync_all().map_err(|_| Error::new(dataset, Reason::Suspended))?;
        }
        match pool.pool.unload_key(dataset) {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::new(dataset, crate::faults::of_library(&error))),
        }
    }
}

/// The failures of which one is made of, or that one.
fn each(error: Error) -> Vec<Error> {
    match error.reason {
        Reason::Several { errors } => errors,
        _ => vec![error],
    }
}

/// What changes a pool, if it may be changed.
fn writer<'p>(imported: &'p Imported, about: &str) -> Result<&'p spa::engine::Live, Error> {
    imported.pool.spa().writer().ok_or_else(|| Error::new(about, Reason::PoolReadonly))
}

/// Bytes, as a pool counts them, that so many blocks of this size take where they take most: on the raidz or draid whose parity and padding
/// weigh most beside those of a 128 KiB block (`volsize_from_vdevs`).
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

/// What is to be mounted again, with a dataset and what moved with it.
fn with(mut moved: Vec<String>, name: &str, heirs: Vec<String>) -> Vec<String> {
    for one in std::iter::once(name.to_owned()).chain(heirs) {
        if !moved.contains(&one) {
            moved.push(one);
        }
    }
    moved
}

/// Whether a dataset is this one or one below it.
fn within(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Whether a file system is not mounted by its name, so that its mounts stay where they are when it is renamed.
fn stays_put(imported: &Imported, name: &str) -> bool {
    let place = imported.pool.dsl().dataset(name).and_then(|d| d.property(dsl::Prop::Mountpoint));
    let Ok(Some(place)) = place else { return false };
    matches!(&place.value, dsl::prop::Value::Text(word) if word == "legacy" || word == "none")
}

/// The names in a list of settings (`exec=off, setuid=off`).
fn props_of(settings: &str) -> impl Iterator<Item = &str> {
    settings.split(", ").map(|setting| setting.split('=').next().unwrap_or_default())
}

/// Whether a file system is to have POSIX ACLs.
fn wants_acls(imported: &Imported, name: &str) -> bool {
    let found = imported.pool.dsl().dataset(name).and_then(Plan::of);
    found.is_ok_and(|plan| plan.is_some_and(|plan| plan.options.posix_acl))
}

/// The properties that the kernel is told (`zfs_is_namespace_prop`).
const MOUNT_OPTIONS: [&str; 8] =
    ["atime", "relatime", "devices", "exec", "setuid", "readonly", "xattr", "nbmand"];

/// Whether a property is one of these.
fn is_mount_option(prop: &str) -> bool {
    MOUNT_OPTIONS.contains(&prop)
}
