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
//! So it runs on the requested number of threads, or else on the number of
//! [`mount_threads`](crate::mounts::threads::mount_threads). With one thread, everything happens in
//! order.
//!
//! Failures are collected and reported at the end. What is below a failed file system is neither
//! tried nor reported.
//!
//! # See
//! OpenZFS's `lib/libzfs/libzfs_mount.c`: `zfs_foreach_mountpoint`.

use crate::mounts::forest::{Fate, Forest, Way};
use crate::mounts::restore::Left;
use crate::mounts::threads::threads_for;
use crate::mounts::{How, Plans, Server, plans};
use crate::pools::Pools;
use crate::pools::holders::with_user;
use crate::pools::imported::{Imported, Mounted};
use crate::pools::progress::Progress;
use crate::pools::unmounting::{at_path, keys_are_free, restore_all, unmount_all};
use crate::query;
use crate::replies::of_dsl;
use afs::server::store::NAME;
use api::{Caller, Error, MountFailure, MountProgress, MountReport, MountRequest, Reason, UnmountRequest};
use dsl::redact::ALLOW_REDACTED_MOUNT;
use fuse::Detach;
use mount_rules::{CanMount, Plan, Where};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

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
    /// * [`Reason::Permission`]: the caller may not mount.
    /// * All others: see [`api::Service::mount`].
    pub fn mount(&self, caller: &Caller, request: &MountRequest) -> Result<MountReport, Error> {
        if !caller.mounts() {
            let about = request.datasets.first().map_or("mount", String::as_str);
            return Err(Error::new(about, Reason::Permission));
        }
        let threads = threads_for(request.threads);
        let watch = self.watched.begin(request.watch);
        let mut report = MountReport::default();
        let begun = Instant::now();
        let mut chosen = self.load(request, threads, &watch.progress, &mut report)?;
        let left = Left::of(request, &self.table, &self.journal);
        left.add_others(&self.table, &mut chosen);
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
                    let error = with_user(caller, &self.visits, &self.attachments, pool, error);
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
            wanted.extend(self.table.all().into_iter().map(|pool| (pool, None, true)));
        }
        // If there are several, one failure does not affect the others.
        let several = request.datasets.len() != 1;
        let failure = |error: Error| match several {
            true => Ok(MountFailure { name: error.about.clone(), error }),
            false => Err(error),
        };
        for dataset in &request.datasets {
            match self.table.pool_of(dataset) {
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
            if left.apply(&self.journal, &mut plan, holds) {
                back.insert(plan.name.clone());
            }
            plan.place_at(request.at.as_deref());
            plan.apply(&request.options)
                .map_err(|option| Error::new(&plan.name, Reason::BadMountOption { option }))?;
            if remount {
                if is_volume(&pool, &plan)? && request.options.iter().any(|option| option == "rw") {
                    return Err(Error::new(&plan.name, Reason::PoolReadonly));
                }
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
            let kept = plan.redacted && ALLOW_REDACTED_MOUNT.get() == 0;
            let obstacle = plan.obstacle(named, request.force).or(mounted);
            let obstacle = obstacle.or(kept.then_some(Reason::Busy));
            let obstacle = self.afs.volume_at(&plan.name).err().or(obstacle);
            if obstacle.is_none() {
                read_only_if_volume(&pool, &mut plan)?;
            }
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
        let pools = self.table.all();
        let mounted: Vec<Mounted> = pools.iter().flat_map(Imported::mounted).collect();
        let mut chosen: Vec<Mounted> = Vec::new();
        for name in &request.names {
            let found = if name.starts_with('/') {
                at_path(&mounted, name)?
            } else {
                // A dataset is unmounted with those below it.
                self.table.pool_of(name)?;
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

/// Has a volume of AFS mounted read-only: files that change outside of its server would be other
/// files for clients.
fn read_only_if_volume(imported: &Imported, plan: &mut Plan) -> Result<(), Error> {
    if is_volume(imported, plan)? {
        plan.apply(&["ro".to_owned()])
            .map_err(|option| Error::new(&plan.name, Reason::BadMountOption { option }))?;
    }
    Ok(())
}

/// Whether it is a volume of AFS.
fn is_volume(imported: &Imported, plan: &Plan) -> Result<bool, Error> {
    // Other file systems are spared the look.
    if plan.can_mount != CanMount::NoAuto || plan.dataset.is_snapshot() {
        return Ok(false);
    }
    let read = || plan.dataset.user_property(NAME);
    let property = imported.pool.spa().read(read);
    let property = property.map_err(|error| Error::new(&plan.name, of_dsl(&error)))?;
    Ok(property.is_some_and(|property| property.source == dsl::Source::Local))
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
    let partitions = pool.partitions.read().clone();
    plans(pool.pool.dsl(), start, below, &partitions, threads, &count)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
