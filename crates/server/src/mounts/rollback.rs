//! The rollback of a file system while it is mounted and has open files (`zfs_suspend_fs`,
//! `zfs_resume_fs`). A received stream takes the same way.
//!
//! # Theory
//! 1. The mount is suspended: the kernel's requests wait.
//! 2. Its file system is closed, with its log, and synced.
//! 3. All differences from the snapshot are found, before the newer state is freed.
//! 4. It is rolled back, and opened again.
//! 5. The kernel, which caches without a time limit, is notified of the differences.
//!
//! Open files that are in the snapshot continue with their old contents. Others have disappeared
//! for their users (`ESTALE`), even if a different file has their number now. If the rollback
//! fails, everything is as before, also removed files that are open.
//!
//! If the differences can't be found ([`Unmounts`]), the file system is unmounted for the rollback.
//! So are all file systems of the pool that are mounted in it. Then all are mounted again at their
//! old places. If a program uses one of them, the rollback is refused with the program's name.
//!
//! An incremental stream is a rollback to the snapshot that it builds on, and then a change from
//! that to the new one. The second differences are found afterwards, when the new snapshot is
//! there. If they can't be, the file system is unmounted by force, and mounted again.
//!
//! A mountpoint that disappears with the rollback is created again. If that fails, the caller
//! learns which file systems are no longer mounted.
//!
//! # Locks
//! A thread that uses the file system of a mount, or its head, in any other way holds its turn
//! ([`MountedFs::with_files`]). So no thread has it while it is rolled back.

use crate::mounts::look::{to_be_read, to_be_written};
use crate::mounts::{MountedFs, Mounts};
use crate::replies::{of_dsl, of_fuse, of_library};
use api::chain;
use api::{Caller, DatasetChange, Error, MountFailure, Reason, Refusal, Unmounts};
use fuse::Detach;
use fuse::dataset::{Dataset as Shown, Stale};
use mount_rules::Plan;
use poolhouse::Pool;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use zpl::{FileSystem, Orphans, RollbackDiff};

/// The pause and the number of attempts while another thread holds the head for a moment, or the
/// kernel unmounts.
const PATIENCE: (Duration, u32) = (Duration::from_millis(20), 500);

/// Most different files and names that the kernel is notified of: about a hundred megabytes.
const MOST: usize = 1 << 20;

/// Most file systems, unmounted by force, whose users are looked up.
const NAMED_MAX: usize = 4;

/// The results of a rollback's operations.
type Results<E> = Result<Vec<Result<(), E>>, Error>;

/// How the contents of a file system change.
#[derive(Clone, Copy)]
enum Swap<'a> {
    /// Back to its snapshot (`zfs rollback`).
    Back {
        /// The snapshot.
        to: &'a str,
    },
    /// Back to a snapshot, and on to a new one (`zfs receive`).
    On {
        /// The snapshot, if it is known.
        from: Option<&'a str>,
        /// The new one, which appears meanwhile.
        to: &'a str,
    },
}

impl Swap<'_> {
    /// The differences that can be found before the change.
    ///
    /// # Errors
    /// As [`differences`].
    fn before(self, pool: &Pool, head: &str) -> Result<RollbackDiff, Unmounts> {
        match self {
            Self::Back { to } | Self::On { from: Some(to), .. } => differences(pool, head, to),
            Self::On { from: None, .. } => Err(Unmounts::Unreadable),
        }
    }

    /// The differences that can be found only after the change.
    ///
    /// # Errors
    /// As [`differences`].
    fn after(self, pool: &Pool) -> Result<RollbackDiff, Unmounts> {
        match self {
            Self::On { from: Some(from), to } => differences(pool, from, to),
            Self::Back { .. } | Self::On { from: None, .. } => Ok(RollbackDiff::default()),
        }
    }
}

impl Mounts {
    /// Changes datasets. For a rollback, it also adapts the mounts.
    ///
    /// `lost` receives the file systems that are no longer mounted.
    ///
    /// # Errors
    /// Those of `work`. A rollback adds these:
    ///
    /// * [`Reason::Busy`]: a command uses the file system without a mount.
    /// * [`Reason::InTheWay`]: it has to be unmounted, and is in use.
    /// * [`Reason::Suspended`]: what is pending can't be written.
    /// * [`Reason::Io`], [`Reason::Corrupt`] and others: it can't be opened again.
    pub fn run<E>(
        &self,
        caller: &Caller,
        pool: &Pool,
        change: &DatasetChange,
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        match change {
            DatasetChange::Rollback { snapshot, .. } => {
                let head = snapshot.split('@').next().unwrap_or(snapshot);
                self.exchange(caller, pool, (head, Swap::Back { to: snapshot }), lost, work)
            }
            _ => work(),
        }
    }

    /// Gives a file system that exists the contents of a received stream, with `finish`. It may be
    /// mounted, and stays so.
    ///
    /// `from` is its snapshot that the stream builds on, and `to` the new one. `lost` receives the
    /// file systems that are no longer mounted.
    ///
    /// # Errors
    /// Those of `finish`, and those of [`Mounts::run`].
    pub(crate) fn received(
        &self,
        caller: &Caller,
        pool: &Pool,
        (head, from, to): (&str, Option<&str>, &str),
        lost: &mut Vec<MountFailure>,
        finish: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let work = || finish().map(|()| vec![Ok::<(), ()>(())]);
        self.exchange(caller, pool, (head, Swap::On { from, to }), lost, work).map(drop)
    }

    /// Runs `work` while a file system that it replaces, and those mounted in it, are unmounted.
    /// With `again`, they are mounted again at their old places.
    ///
    /// # Errors
    /// Those of `work`, and [`Reason::InTheWay`]: one of them is in use.
    pub(crate) fn replaced<R>(
        &self,
        caller: &Caller,
        pool: &Pool,
        (head, again): (&str, bool),
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let live = self.served().into_iter().find(|live| live.name() == head);
        let Some(live) = live else { return work() };
        self.unmounted(caller, pool, (&live, Unmounts::Replaced, again), lost, work)
    }

    /// Exchanges the contents of a file system with `work`. It may be mounted.
    ///
    /// # Errors
    /// As [`Mounts::run`].
    fn exchange<E>(
        &self,
        caller: &Caller,
        pool: &Pool,
        (head, swap): (&str, Swap<'_>),
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        let live = self.served().into_iter().find(|live| live.name() == head);
        let Some(live) = live else { return work() };
        let (turn, shown) = live.opened();
        let Some(shown) = shown else {
            drop(turn);
            // A file system that can't be opened is held only by its mount.
            return match live.is_closed() {
                true => self.unmounted(caller, pool, (&live, Unmounts::Closed, true), lost, work),
                false => work(),
            };
        };
        let (work, why) = match shown.may_roll_back() {
            false => (work, Unmounts::Often),
            true => {
                // This comes before the rollback: a later path look-up may make the kernel unmount
                // one.
                let own = self.list().into_iter().filter(|one| !one.mount.is_nested() && one.is_below(&live));
                let own = own.filter(|one| one.is_attached());
                let own: Vec<_> = own.map(|one| (one.mount.is_at(one.target()), one)).collect();
                match live.mount.suspended(|| live.exchange(pool, &shown, (head, swap), work)) {
                    Exchange::Done(done, stale) => {
                        live.mount.tell(&stale);
                        self.settle(caller, &live, lost);
                        self.mount_lost(pool, &own, lost);
                        return done;
                    }
                    Exchange::Unnotified(done) => {
                        drop((turn, shown));
                        self.renew(pool, &live, lost);
                        return done;
                    }
                    Exchange::Unknown(work, why) => (work, why),
                }
            }
        };
        drop((turn, shown));
        self.unmounted(caller, pool, (&live, why, true), lost, work)
    }

    /// Mounts a file system again after the kernel could not be notified of its new contents, and
    /// those mounted in it. Programs lose their open files.
    fn renew(&self, pool: &Pool, live: &Arc<MountedFs>, lost: &mut Vec<MountFailure>) {
        let below = self.list().into_iter().filter(|one| one.is_below(live));
        let all: Vec<_> = std::iter::once(Arc::clone(live)).chain(below).collect();
        for one in all.iter().rev() {
            if let Err(error) = self.unmount(one, Detach::Force) {
                tracing::error!(dataset = one.name(), %error, "it may show old contents");
            }
        }
        for one in &all {
            if let Err(error) = self.restore(pool, one, one.object != live.object) {
                tracing::error!(dataset = one.name(), %error, "it is not mounted again");
                lost.push(one.lost(error.reason, None));
            }
        }
    }

    /// Moves the nested file systems back to their mountpoints after a rollback. A mountpoint may
    /// have disappeared, or be a different directory.
    fn settle(&self, caller: &Caller, parent: &MountedFs, lost: &mut Vec<MountFailure>) {
        for live in self.served() {
            let Err(error) = live.mount.settle(&parent.mount) else { continue };
            tracing::warn!(dataset = live.name(), %error, "unmounted: its mountpoint was rolled back");
            let reason = of_fuse(&error);
            let mut gone: Vec<_> =
                self.served().into_iter().filter(|other| other.mount.lies_in(&live.mount)).collect();
            gone.sort_by_key(|other| std::cmp::Reverse(other.number));
            gone.push(live);
            for live in gone {
                let named = caller.owns() && lost.len() < NAMED_MAX;
                let users = if named { live.mount.in_use_by(caller.peer().pid) } else { Vec::new() };
                let by = (!users.is_empty()).then(|| users.join(", "));
                lost.push(live.lost(reason.clone(), by));
                if let Err(error) = self.unmount(&live, Detach::Force) {
                    tracing::error!(dataset = live.name(), %error, "it stays, and no path leads to it");
                }
            }
        }
    }

    /// Mounts again what the kernel unmounted because its mountpoint disappeared. `own` are the
    /// mounts in the file system, each with whether its path led to it.
    fn mount_lost(&self, pool: &Pool, own: &[(bool, Arc<MountedFs>)], lost: &mut Vec<MountFailure>) {
        for (led, live) in own {
            if *led {
                until_settled(live);
            }
            if live.is_attached() {
                continue;
            }
            if let Err(error) = self.restore(pool, live, true) {
                tracing::warn!(dataset = live.name(), %error, "unmounted: its mountpoint was rolled back");
                lost.push(live.lost(error.reason, None));
            }
        }
    }

    /// Runs `work` while the file system, and the pool's file systems mounted in it, are unmounted.
    /// After a success they are mounted again if the flag says so.
    fn unmounted<R>(
        &self,
        caller: &Caller,
        pool: &Pool,
        (live, why, mounts): (&Arc<MountedFs>, Unmounts, bool),
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let below = self.list().into_iter().filter(|one| one.is_below(live));
        let all: Vec<_> = std::iter::once(Arc::clone(live)).chain(below).collect();
        // One that is replaced stays unmounted as long as its stream takes.
        if all.len() > 1 || matches!(why, Unmounts::Replaced) {
            let names: Vec<String> = all.iter().map(|one| one.name()).collect();
            crate::control::grants::may_unmount(caller, &names)?;
        }
        // A file system that only lingered gets no place.
        let lingered = !live.is_attached();
        let again = |from: usize, lost: &mut Vec<MountFailure>| {
            for one in all[from..].iter().filter(|one| one.object != live.object || !lingered) {
                if let Err(error) = self.restore(pool, one, one.object != live.object) {
                    tracing::error!(dataset = one.name(), %error, "it is not mounted again");
                    lost.push(one.lost(error.reason, None));
                }
            }
        };
        for (at, one) in all.iter().enumerate().rev() {
            let Err(error) = self.unmount(one, Detach::Normal) else { continue };
            let by = self.held_by(caller, one);
            again(at + 1, lost);
            return Err(match error.reason {
                Reason::Busy => Error::new(live.name(), Reason::InTheWay { dataset: one.name(), by, why }),
                _ => error,
            });
        }
        let done = work();
        if mounts || done.is_err() {
            again(0, lost);
        }
        done
    }
}

/// Waits until the kernel has unmounted a file system whose path no longer leads to it.
///
/// While it does, the table of mounts may still have the mount.
fn until_settled(live: &MountedFs) {
    let (pause, tries) = PATIENCE;
    for _ in 0..tries {
        if live.mount.is_at(live.target()) || !live.is_attached() {
            return;
        }
        sleep(pause);
    }
    tracing::warn!(dataset = live.name(), "another mount hides it since a rollback");
}

/// The result of a rollback under a mount.
enum Exchange<E, W> {
    /// The results of the operations, and what the kernel must be notified of.
    Done(Results<E>, Vec<Stale>),
    /// The results of the operations. The kernel can't be notified of all differences.
    Unnotified(Results<E>),
    /// Nothing was done, since the differences can't be found, for this reason.
    Unknown(W, Unmounts),
}

impl MountedFs {
    /// The failure for a file system that is no longer mounted after a rollback.
    fn lost(&self, reason: Reason, by: Option<String>) -> MountFailure {
        let reason = match reason {
            Reason::System { errno } | Reason::MountpointNotMade { errno } => {
                Reason::MountpointLost { at: self.target().to_string_lossy().into_owned(), errno, by }
            }
            reason => reason,
        };
        MountFailure { name: self.name(), error: Error::new(self.name(), reason) }
    }

    /// Runs `work` with its files, if they are writable. They can't be closed meanwhile.
    ///
    /// # Errors
    /// * [`Reason::Busy`]: they could not be opened again after a rollback.
    /// * All others: those of `work`.
    pub fn with_files<R>(
        &self,
        work: impl FnOnce(Option<FileSystem>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (_turn, shown) = self.opened();
        let Some(shown) = shown else { return work(None) };
        let files = shown.fs().ok_or_else(|| Error::new(self.name(), Reason::Busy))?;
        drop(shown);
        work(Some(files).filter(FileSystem::is_writable))
    }

    /// The exchange of the file system, while the kernel waits.
    fn exchange<E, W: FnOnce() -> Results<E>>(
        &self,
        pool: &Pool,
        shown: &Shown,
        (head, swap): (&str, Swap<'_>),
        work: W,
    ) -> Exchange<E, W> {
        let refused = |reason| Exchange::Done(Err(Error::new(head, reason)), Vec::new());
        let before = shown.suspend();
        let writable = before.as_ref().is_none_or(FileSystem::is_writable);
        let users = before.as_ref().map(FileSystem::orphans).unwrap_or_default();
        // Another user would keep the head from being rolled back and opened again.
        match before {
            Some(before) if writable && before.is_shared() => {
                shown.resume(before);
                return refused(Reason::Busy);
            }
            before => drop(before),
        }
        if pool.spa().writer().is_some_and(|live| live.sync_all().is_err()) {
            let again = self.resumed(pool, shown, writable, Some(&users));
            return refused(again.err().unwrap_or(Reason::Suspended));
        }
        let mut by = match swap.before(pool, head) {
            Ok(by) => by,
            Err(why) => {
                return match self.resumed(pool, shown, writable, Some(&users)) {
                    Ok(()) => Exchange::Unknown(work, why),
                    Err(reason) => refused(reason),
                };
            }
        };
        let done = work();
        // Snapshots that are destroyed first may be gone already.
        let rolled = done.as_ref().is_ok_and(|results| results.last().is_some_and(Result::is_ok));
        let mut all_known = true;
        if rolled {
            match swap.after(pool) {
                Ok(more) => {
                    by.files.extend(more.files);
                    by.gone.extend(more.gone);
                    by.names.extend(more.names);
                }
                Err(_) => all_known = false,
            }
        }
        let stale = if rolled { shown.rolled_back(&by) } else { Vec::new() };
        let again = self.resumed(pool, shown, writable, (!rolled).then_some(&users));
        let done = done.and_then(|done| again.map(|()| done).map_err(|reason| Error::new(head, reason)));
        if all_known { Exchange::Done(done, stale) } else { Exchange::Unnotified(done) }
    }

    /// Continues with its file system. If nothing was changed, `users` have removed files open.
    fn resumed(
        &self,
        pool: &Pool,
        shown: &Shown,
        writable: bool,
        users: Option<&Orphans>,
    ) -> Result<(), Reason> {
        let (pause, mut times) = PATIENCE;
        loop {
            match self.reopen(pool, writable, users) {
                Ok(fs) => {
                    shown.resume(fs);
                    return Ok(());
                }
                Err(Reason::Refused { why: Refusal::Busy }) if times > 0 => {
                    times -= 1;
                    sleep(pause);
                }
                Err(reason) => {
                    tracing::error!(
                        dataset = self.name(),
                        ?reason,
                        "it can't be used until it is mounted again"
                    );
                    return Err(reason);
                }
            }
        }
    }

    /// Opens the file system again.
    fn reopen(&self, pool: &Pool, writable: bool, users: Option<&Orphans>) -> Result<FileSystem, Reason> {
        let plan = pool.dsl().dataset(&self.name()).and_then(Plan::of).map_err(|error| of_dsl(&error))?;
        let plan = plan.ok_or(Reason::BadType)?;
        let fs = match users {
            _ if !writable => None,
            None => Some(to_be_written(pool, &plan, &self.policies)?),
            Some(users) => {
                let again = pool.reopen_for_writing(&plan.dataset, self.policies.clone(), users.clone());
                Some(again.map_err(|error| of_library(&error))?)
            }
        };
        fs.map_or_else(|| to_be_read(&plan.dataset), Ok)
    }
}

/// The differences between a head without open files and its snapshot.
///
/// # Errors
/// * [`Unmounts::Unreadable`]: one of them can't be read.
/// * [`Unmounts::Differences`]: there are too many.
fn differences(pool: &Pool, head: &str, snapshot: &str) -> Result<RollbackDiff, Unmounts> {
    let open = |name| to_be_read(&pool.dsl().dataset(name).map_err(|error| of_dsl(&error))?);
    let unreadable = |error: &dyn std::fmt::Debug| {
        tracing::warn!(dataset = head, ?error, "to be unmounted for its rollback");
        Err(Unmounts::Unreadable)
    };
    let (now, then) = match (open(head), open(snapshot)) {
        (Ok(now), Ok(then)) => (now, then),
        // The rollback itself reports the error.
        (_, Err(Reason::NoSuchDataset)) => return Ok(RollbackDiff::default()),
        (Err(error), _) | (_, Err(error)) => return unreadable(&error),
    };
    match zpl::compare(&now, &then, MOST) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => {
            tracing::warn!(
                dataset = head,
                most = MOST,
                "to be unmounted for its rollback: more files differ"
            );
            Err(Unmounts::Differences)
        }
        Err(error) => unreadable(&chain(&error)),
    }
}
