//! Mounting and unmounting for all users: commands, imports, exports, changes, the daemon's end.
//!
//! # Theory
//! A request names datasets, or means all. It has three phases, which its report times:
//!
//! * *load*: one parallel pass reads the mount plan of each dataset;
//! * *mount*: a walk of the [`Forest`] of their mountpoints, across pools;
//! * *other*: sorting between these two.
//!
//! Unmounting walks the same forest from its leaves. All of this waits for devices and the system.
//! So it runs on the requested number of threads, or else [`mount_threads`]. With one thread,
//! everything happens in order.
//!
//! Failures are collected and reported at the end. What is below a failed file system is neither
//! tried nor reported.
//!
//! # See
//! OpenZFS's `lib/libzfs/libzfs_mount.c`: `zfs_foreach_mountpoint`.

use crate::mounts::forest::{Fate, Forest, Way};
use crate::mounts::restore::Left;
use crate::mounts::{How, MountedFs, Plans, plans};
use crate::pools::{Imported, Pools};
use crate::query;
use crate::replies::of_dsl;
use api::plan::{Plan, Where};
use api::{
    Caller, Error, MountFailure, MountPhase, MountProgress, MountReport, MountRequest, Reason, UnmountRequest,
};
use fuse::Detach;
use observe::{Tunable, Unit};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A mount with the pool that it belongs to.
pub(super) type Mounted = (Arc<Imported>, Arc<MountedFs>);

/// Most threads of one request: each needs a stack.
const MOUNT_THREADS_MAX: u32 = 4096;
/// The number of threads that read plans, mount and unmount, unless a request has a number
/// (`mount_tp_nthr`).
///
/// They wait for devices most of the time, so there are more of them than processors.
pub static MOUNT_TP_NTHR: Tunable = Tunable::new(
    "mount_tp_nthr",
    128,
    1..=MOUNT_THREADS_MAX as u64,
    Unit::Count,
    "number of threads that mount and unmount at a time",
);

/// The value of [`MOUNT_TP_NTHR`].
pub fn mount_threads() -> u32 {
    u32::try_from(MOUNT_TP_NTHR.get()).unwrap_or(MOUNT_THREADS_MAX)
}

/// The number of threads for a request, within the limits.
pub(crate) fn threads_for(asked: Option<u32>) -> usize {
    asked.unwrap_or_else(mount_threads).clamp(1, MOUNT_THREADS_MAX) as usize
}

/// The progress of watched requests, by the number that their watcher chose.
#[derive(Default)]
pub(super) struct Watched(Mutex<BTreeMap<u64, Arc<Progress>>>);

/// The progress of a request.
#[derive(Default)]
struct Progress {
    loaded: AtomicU64,
    total: AtomicU64,
    done: AtomicU64,
}

/// A request that can be watched until this is dropped.
struct Watch<'a> {
    watched: &'a Watched,
    number: Option<u64>,
    progress: Arc<Progress>,
}

impl Watched {
    fn begin(&self, number: Option<u64>) -> Watch<'_> {
        let progress = Arc::new(Progress::default());
        if let Some(number) = number {
            self.0.lock().insert(number, Arc::clone(&progress));
        }
        Watch { watched: self, number, progress }
    }

    fn ask(&self, number: u64) -> Option<MountProgress> {
        let progress = Arc::clone(self.0.lock().get(&number)?);
        let total = progress.total.load(Ordering::Acquire);
        let phase = if total == 0 { MountPhase::Load } else { MountPhase::Mount };
        let loaded = progress.loaded.load(Ordering::Relaxed);
        Some(MountProgress { phase, loaded, total, done: progress.done.load(Ordering::Relaxed) })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.watched.0.lock().remove(&number);
        }
    }
}

/// Most busy file systems whose users are looked up. Each needs a pass over all processes.
const NAMED_MAX: usize = 4;

/// What to mount: the pool, the plan and the path.
type Ready = (Arc<Imported>, Plan, PathBuf);

impl Pools {
    /// The progress of the request with this number; `None` if there is none.
    pub fn mount_progress(&self, number: u64) -> Option<MountProgress> {
        self.watched.ask(number)
    }

    /// Mounts file systems (`zfs_foreach_mountpoint`).
    ///
    /// # Errors
    /// See [`api::Service::mount`].
    pub fn mount(&self, request: &MountRequest) -> Result<MountReport, Error> {
        let threads = threads_for(request.threads);
        let watch = self.watched.begin(request.watch);
        let mut report = MountReport::default();
        let begun = Instant::now();
        let mut chosen = self.load(request, threads, &watch.progress, &mut report)?;
        let left = self.left_for(request);
        left.add_snapshots(self, &mut chosen);
        report.load_ms = millis(begun);
        let begun = Instant::now();
        let (ready, back) = self.sort_out(chosen, request, left, &mut report)?;
        report.total += ready.len() as u64 + report.failures.len() as u64;
        watch.progress.total.store(report.total, Ordering::Release);
        report.other_ms = millis(begun);
        let begun = Instant::now();
        let paths: Vec<&PathBuf> = ready.iter().map(|(_, _, path)| path).collect();
        let fates = Forest::new(&paths).walk(Way::Down, threads, |at| {
            let (pool, plan, _) = &ready[at];
            // If the user named one, a failure to open it is reported at once.
            let how = How { cover: request.overlay, later: !request.explicit };
            let mounted = pool.mounts.mount(&pool.pool, plan, how);
            watch.progress.done.fetch_add(1, Ordering::Relaxed);
            mounted
        });
        for (fate, (pool, plan, _)) in fates.into_iter().zip(&ready) {
            match fate {
                Fate::Done => report.mounted += 1,
                // Another request was faster, with the same result.
                Fate::Failed(error) if !request.explicit && error.reason == Reason::AlreadyMounted => {
                    report.total -= 1;
                }
                Fate::Failed(error) if back.contains(&plan.name) => {
                    tracing::warn!(dataset = plan.name, %error, "it is not mounted as it was before the last daemon died");
                    report.total -= 1;
                }
                Fate::Failed(error) => {
                    // Only callers who own the daemon mount.
                    let own = Caller::this_process();
                    let error = crate::pools::export::with_user(&own, self, pool, error);
                    report.failures.push(MountFailure { name: plan.name.clone(), error });
                }
                // The failure of its parent is reported.
                Fate::Skipped => {}
            }
        }
        let pools: BTreeMap<_, _> = ready.iter().map(|(pool, ..)| (Arc::as_ptr(pool), pool)).collect();
        if !request.explicit {
            pools.values().for_each(|pool| pool.mounts.rest(&pool.pool));
        }
        report.mount_ms = millis(begun);
        Ok(report)
    }

    /// Reads the mount plans of a request's datasets. With several datasets, those that can't be
    /// read are in the report.
    fn load(
        &self,
        request: &MountRequest,
        threads: usize,
        progress: &Arc<Progress>,
        report: &mut MountReport,
    ) -> Result<Vec<(Arc<Imported>, Plan)>, Error> {
        let mut wanted: Vec<(Arc<Imported>, Option<&str>, bool)> = Vec::new();
        if request.datasets.is_empty() {
            wanted.extend(self.all().into_iter().map(|pool| (pool, None, true)));
        }
        // If there are several, one failure does not affect the others.
        let several = request.datasets.len() != 1;
        let failure = |error: Error| match several {
            true => Ok(MountFailure { name: error.about.clone(), error }),
            false => Err(error),
        };
        for dataset in &request.datasets {
            match self.pool_of(dataset) {
                Ok(pool) => wanted.push((pool, Some(dataset), request.recursive)),
                Err(error) => report.failures.push(failure(error)?),
            }
        }
        let mut chosen = Vec::new();
        let mut seen = BTreeSet::new();
        let all: Vec<_> = wanted.iter().map(|(pool, ..)| Arc::clone(pool)).collect();
        let counted = Arc::clone(progress);
        let found: Vec<_> = if request.datasets.is_empty() {
            // With all pools, one that does not answer must not delay the others.
            let looked = query::each(&all, move |pool| pass(pool, None, true, threads, &counted));
            let failed = |error: Error| {
                let failures = vec![MountFailure { name: error.about.clone(), error }];
                Plans { failures, ..Plans::default() }
            };
            let found = |(found, pool): (Option<Result<_, _>>, &Arc<Imported>)| {
                Ok(found.unwrap_or_else(|| Err(query::silent(pool))).unwrap_or_else(failed))
            };
            looked.into_iter().zip(&all).map(found).collect()
        } else {
            wanted.iter().map(|(pool, start, below)| pass(pool, *start, *below, threads, &counted)).collect()
        };
        for (pool, found) in all.into_iter().zip(found) {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    report.failures.push(failure(error)?);
                    continue;
                }
            };
            report.failures.extend(found.failures);
            for plan in found.plans {
                // A dataset may be named twice, or be below another named one.
                if seen.insert((pool.pool.spa().guid(), plan.dataset.object())) {
                    chosen.push((Arc::clone(&pool), plan));
                }
            }
        }
        Ok(chosen)
    }

    /// Selects what to mount now, and which of these only because a dead daemon left them. Remounts
    /// what is mounted already.
    fn sort_out(
        &self,
        chosen: Vec<(Arc<Imported>, Plan)>,
        request: &MountRequest,
        mut left: Left,
        report: &mut MountReport,
    ) -> Result<(Vec<Ready>, BTreeSet<String>), Error> {
        let by_name = request.explicit;
        let remount = request.options.iter().any(|option| option == "remount");
        let (mut ready, mut back) = (Vec::new(), BTreeSet::new());
        for (pool, mut plan) in chosen {
            let holds = pool.mounts.holds(plan.dataset.object().0);
            if left.apply(self, &mut plan, holds) {
                back.insert(plan.name.clone());
            }
            plan.place_at(request.at.as_deref());
            plan.apply(&request.options)
                .map_err(|option| Error::new(&plan.name, Reason::BadMountOption { option }))?;
            if remount {
                match pool.mounts.list().into_iter().find(|live| live.name() == plan.name) {
                    Some(live) => pool.mounts.remount(&pool.pool, &live, plan, &request.options)?,
                    None => return Err(Error::new(&plan.name, Reason::NotMounted)),
                }
                report.total += 1;
                report.mounted += 1;
                continue;
            }
            let mounted = holds.then_some(Reason::AlreadyMounted);
            let named = by_name || request.before.contains(&plan.name) || back.contains(&plan.name);
            let obstacle = plan.obstacle(named, request.force).or(mounted);
            match (obstacle, &plan.place) {
                (Some(reason), place) if by_name => {
                    let about = match place {
                        // OpenZFS reports a missing key by the mountpoint.
                        Where::Path(path) if reason == Reason::KeyNotLoaded => path.to_string_lossy(),
                        _ => plan.name.as_str().into(),
                    };
                    let error = Error::new(about, reason);
                    report.failures.push(MountFailure { name: plan.name.clone(), error });
                }
                (None, Where::Path(path)) => {
                    let path = path.clone();
                    ready.push((pool, plan, path));
                }
                (Some(Reason::KeyNotLoaded), _) => {
                    tracing::info!(dataset = plan.name, "not mounted: its key is not loaded");
                }
                (Some(_), _) | (None, Where::Legacy | Where::None) => {}
            }
        }
        left.tell_gone();
        Ok((ready, back))
    }

    /// Unmounts file systems, or all (`zfs_unmount`).
    ///
    /// # Errors
    /// See [`api::Service::unmount`].
    pub fn unmount(&self, caller: &Caller, request: &UnmountRequest) -> Result<MountReport, Error> {
        let threads = threads_for(request.threads);
        let begun = Instant::now();
        let pools = self.all();
        let mounted: Vec<Mounted> = pools.iter().flat_map(Imported::mounted).collect();
        let mut chosen: Vec<Mounted> = Vec::new();
        for name in &request.names {
            let found = if name.starts_with('/') {
                at_path(&mounted, name)?
            } else {
                // A dataset is unmounted with those below it.
                self.pool_of(name)?;
                let below = format!("{name}/");
                let own = |live: &str| live == name || live.starts_with(&below);
                mounted.iter().filter(|(_, live)| own(&live.name())).cloned().collect()
            };
            if !found.iter().any(|(_, live)| name.starts_with('/') || live.name() == *name) {
                return Err(Error::new(name, Reason::NotMounted));
            }
            chosen.extend(found);
        }
        if request.names.is_empty() {
            chosen = mounted;
        }
        if request.unload_keys {
            keys_are_free(&pools, &chosen)?;
        }
        let total = chosen.len() as u64;
        // As on Linux, force unmounts nothing that is in use.
        let failures = unmount_all(caller, &chosen, Detach::Normal, threads);
        let mut unmounted = total - failures.len() as u64;
        if !request.names.is_empty() && !failures.is_empty() {
            // Nothing stays half unmounted (`changelist_prefix`). Otherwise a program would write
            // to the folder of an unmounted file system, and so to the one around it.
            restore_all(&chosen);
            unmounted = 0;
        }
        let mut report = MountReport {
            total,
            mounted: unmounted,
            failures,
            mount_ms: millis(begun),
            ..MountReport::default()
        };
        if request.unload_keys {
            self.unload_keys(caller, &chosen, &mut report);
        }
        Ok(report)
    }

    fn unload_keys(&self, caller: &Caller, chosen: &[Mounted], report: &mut MountReport) {
        let mut roots = BTreeSet::new();
        for (pool, live) in chosen {
            let name = live.name();
            let head = name.split('@').next().unwrap_or(&name);
            match pool.pool.dsl().dir(head).and_then(|dir| dir.encryption_root()) {
                Ok(Some(root)) => {
                    roots.insert(root.name().to_owned());
                }
                Ok(None) => {}
                Err(error) => {
                    let error = Error::new(&name, of_dsl(&error));
                    report.failures.push(MountFailure { name, error });
                }
            }
        }
        for name in roots {
            if let Err(error) = self.unload_key(caller, &name) {
                report.failures.push(MountFailure { name, error });
            }
        }
    }
}

/// Refuses to unload keys that a remaining mount needs. Nothing is unmounted then.
fn keys_are_free(pools: &[Arc<Imported>], chosen: &[Mounted]) -> Result<(), Error> {
    let root_of = |pool: &Arc<Imported>, name: &str| {
        let head = name.split('@').next().unwrap_or(name);
        let root = pool.pool.dsl().dir(head).and_then(|dir| dir.encryption_root()).ok().flatten();
        root.map(|root| (pool.pool.spa().guid(), root.object(), root.name().to_owned()))
    };
    let goes: BTreeSet<String> = chosen.iter().map(|(_, live)| live.name()).collect();
    let needed: Vec<_> = chosen.iter().filter_map(|(pool, live)| root_of(pool, &live.name())).collect();
    for (pool, live) in pools.iter().flat_map(Imported::mounted) {
        let name = live.name();
        if goes.contains(&name) {
            continue;
        }
        if let Some((guid, object, _)) = root_of(&pool, &name)
            && let Some((.., root)) = needed.iter().find(|n| (n.0, n.1) == (guid, object))
        {
            return Err(Error::new(root, Reason::Busy));
        }
    }
    Ok(())
}

/// Reads the mount plan of a pool's dataset, and of those below it.
fn pass(
    pool: &Imported,
    start: Option<&str>,
    below: bool,
    threads: usize,
    progress: &Progress,
) -> Result<Plans, Error> {
    let count = || {
        progress.loaded.fetch_add(1, Ordering::Relaxed);
    };
    plans(pool.pool.dsl(), start, below, threads, &count)
}

/// The mount at a path.
fn at_path(mounted: &[Mounted], name: &str) -> Result<Vec<Mounted>, Error> {
    let path = PathBuf::from(name);
    // The path as given, or as it resolves: a link may lead there.
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let found = mounted
        .iter()
        .rfind(|(_, live)| live.is_at(&path))
        .or_else(|| mounted.iter().rfind(|(_, live)| live.target() == path || live.target() == real));
    found.cloned().map(|one| vec![one]).ok_or_else(|| Error::new(name, Reason::NotAMountpoint))
}

/// Unmounts from the leaves, later mounts at one place first. Returns the failures.
pub(super) fn unmount_all(
    caller: &Caller,
    mounted: &[Mounted],
    how: Detach,
    threads: usize,
) -> Vec<MountFailure> {
    let mut order: Vec<&Mounted> = mounted.iter().collect();
    order.sort_by_key(|(_, live)| std::cmp::Reverse(live.number));
    let (mut failures, mut from) = (Vec::new(), 0);
    while from < order.len() {
        // A parent that was mounted after its child hides the child. So what is below comes after
        // it.
        let mut seen: BTreeSet<&Path> = BTreeSet::new();
        let hidden = order[from..].iter().position(|(_, live)| {
            let above = live.target().ancestors().skip(1).any(|path| seen.contains(path));
            seen.insert(live.target());
            above
        });
        let to = hidden.map_or(order.len(), |at| from + at);
        // A mount that covers another is unmounted first, since it was mounted later.
        let batch: Vec<&Mounted> = order[from..to].iter().rev().copied().collect();
        failures.extend(unmount_forest(caller, &batch, how, threads));
        from = to;
    }
    failures
}

/// Unmounts as a forest what was mounted from the roots.
fn unmount_forest(caller: &Caller, order: &[&Mounted], how: Detach, threads: usize) -> Vec<MountFailure> {
    let paths: Vec<_> = order.iter().map(|(_, live)| live.target().to_owned()).collect();
    let fates = Forest::new(&paths).walk(Way::Up, threads, |at| {
        let (pool, live) = order[at];
        pool.mounts.unmount(live, how)
    });
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for (fate, (pool, live)) in fates.into_iter().zip(order) {
        match fate {
            Fate::Done => {}
            Fate::Failed(error) => {
                let named = failures.len() < NAMED_MAX;
                let error = if named { pool.mounts.with_holders(caller, live, error) } else { error };
                failures.push(MountFailure { name: error.about.clone(), error });
            }
            // Something is still mounted in it, which is reported first.
            Fate::Skipped => {
                let target = live.target().to_string_lossy().into_owned();
                let error = Error::new(&target, Reason::Busy);
                let named = skipped.len() < NAMED_MAX;
                let error = if named { pool.mounts.with_holders(caller, live, error) } else { error };
                skipped.push(MountFailure { name: target, error });
            }
        }
    }
    failures.append(&mut skipped);
    failures
}

/// Mounts again, parents first, what was unmounted for a change that failed.
pub(super) fn restore_all(mounted: &[Mounted]) {
    let mut order: Vec<&Mounted> = mounted.iter().collect();
    order.sort_by_key(|(_, live)| live.number);
    for (imported, live) in order {
        match imported.mounts.restore(&imported.pool, live, true) {
            Ok(()) => {}
            // It could not be unmounted.
            Err(error) if error.reason == Reason::AlreadyMounted => {}
            Err(error) => tracing::error!(%error, "it is not mounted again"),
        }
    }
}

/// A dataset, and the folder where it is mounted.
pub(super) type Folder = (String, PathBuf);

/// The mountpoint folders that come from the dataset's name: no property or option names them.
pub(super) fn folders_of(mounted: &[Mounted]) -> Vec<Folder> {
    let mut folders = Vec::new();
    for (imported, live) in mounted {
        let name = live.name();
        let dataset = imported.pool.dsl().dataset(&name);
        let Ok(Some(place)) = dataset.and_then(|d| d.property(dsl::Prop::Mountpoint)) else { continue };
        let usual = matches!(place.source, dsl::Source::Default | dsl::Source::Inherited(_));
        let there = matches!(&place.value, dsl::prop::Value::Text(path) if live.target() == Path::new(path));
        if usual && there {
            folders.push((name, live.target().to_owned()));
        }
    }
    folders
}

/// Removes folders where nothing is mounted any more, if they are empty (`remove_mountpoint`).
pub(super) fn remove_folders(folders: Vec<Folder>) {
    let mut folders: Vec<PathBuf> = folders.into_iter().map(|(_, path)| path).collect();
    folders.sort();
    for folder in folders.iter().rev() {
        if let Err(error) = std::fs::remove_dir(folder) {
            tracing::debug!(folder = %folder.display(), %error, "it stays");
        }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
