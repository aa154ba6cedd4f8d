//! Rolling back a file system while it is mounted and files of it are open (`zfs_suspend_fs`, `zfs_resume_fs`).
//!
//! # Theory
//! The mount is suspended: what the kernel asks waits. Its file system is let go, with its log, and synced; then it is rolled back, and opened anew. Files that are
//! in the snapshot go on with what they were then; others are gone for who has them open (`ESTALE`), also where their numbers are others' now. The kernel keeps what it was
//! told for good, so that it is told what is no longer so: all that differs between the two, which is found before the one is freed.
//!
//! If it can't be rolled back, everything is as before, also removed files that are open.
//!
//! If what differs can't be found ([`Unmounts`]), the file system is unmounted for the rollback,
//! with all file systems of the pool that are mounted in it. Then all are mounted again where they
//! were.
//! Programs must not be using them: the rollback is refused, and says which one is used by what.
//!
//! A mountpoint that is gone with the rollback is made again. Where it can't be, the caller is told
//! which file systems are mounted no more.
//!
//! # Locks
//! Who takes the file system of a mount, or its head, for something else has its turn ([`Live::with_files`]): so nobody has it while it is rolled back.

use super::look::{to_be_read, to_be_written};
use super::{Live, Mounts};
use crate::faults::{of_dsl, of_fuse, of_library};
use api::chain;
use api::plan::Plan;
use api::{Caller, DatasetChange, Error, MountFailure, Reason, Refusal, Unmounts};
use fuse::Detach;
use fuse::dataset::{Dataset as Shown, Stale};
use poolhouse::Pool;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use zpl::{Differences, FileSystem, Orphans};

/// How long, and how often, it is waited for who has the head for a moment, before its mount is given up.
const PATIENCE: (Duration, u32) = (Duration::from_millis(20), 500);

/// How many files and names that are different the kernel is told: a hundred megabytes or so.
const MOST: usize = 1 << 20;

/// Of how many file systems that were unmounted by force the users are looked for.
const NAMED_MAX: usize = 4;

/// What an operation of a rollback comes to.
type Results<E> = Result<Vec<Result<(), E>>, Error>;

impl Mounts {
    /// Does a change of datasets, around what must become of mounts for a rollback. `lost` gets the
    /// file systems that are mounted no more.
    ///
    /// # Errors
    /// As [`Mounts::roll_back`].
    pub fn run<E>(
        &self,
        caller: &Caller,
        pool: &Pool,
        change: &DatasetChange,
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        match change {
            DatasetChange::Rollback { snapshot, .. } => self.roll_back(caller, pool, snapshot, lost, work),
            _ => work(),
        }
    }

    /// Has `work` roll back the file system of a snapshot, which may be mounted.
    ///
    /// # Errors
    /// Those of `work`; as opening it again fails; [`Reason::Busy`] if a command has it without a
    /// mount; [`Reason::InTheWay`] if it has to be unmounted, and is in use.
    fn roll_back<E>(
        &self,
        caller: &Caller,
        pool: &Pool,
        to: &str,
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        let head = to.split('@').next().unwrap_or(to);
        let live = self.served().into_iter().find(|live| live.name() == head);
        let Some(live) = live else { return work() };
        let (turn, shown) = live.opened();
        let Some(shown) = shown else {
            drop(turn);
            // What can't be opened is kept by its mount alone.
            return match live.is_closed() {
                true => self.unmounted(caller, pool, (&live, Unmounts::Closed), lost, work),
                false => work(),
            };
        };
        let (work, why) = match shown.may_roll_back() {
            false => (work, Unmounts::Often),
            true => {
                // Before: whoever looks for one afterwards may have the kernel take it away.
                let own = self.list().into_iter().filter(|one| !one.mount.is_nested() && one.is_below(&live));
                let own: Vec<_> = own.filter(|one| one.is_attached()).collect();
                match live.mount.suspended(|| live.exchange(pool, &shown, (head, to), work)) {
                    Exchange::Done(done, stale) => {
                        live.mount.tell(&stale);
                        self.settle(caller, &live, lost);
                        self.mount_lost(pool, &own, lost);
                        return done;
                    }
                    Exchange::Unknown(work, why) => (work, why),
                }
            }
        };
        drop((turn, shown));
        self.unmounted(caller, pool, (&live, why), lost, work)
    }

    /// Has what is nested in a file system that was rolled back lie where it is mounted: its
    /// mountpoint may be gone, or another folder by now.
    fn settle(&self, caller: &Caller, parent: &Live, lost: &mut Vec<MountFailure>) {
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

    /// Mounts again what the kernel has unmounted, since the folder that it was mounted on is gone.
    fn mount_lost(&self, pool: &Pool, own: &[Arc<Live>], lost: &mut Vec<MountFailure>) {
        for live in own.iter().filter(|live| !live.is_attached()) {
            if let Err(error) = self.restore(pool, live, true) {
                tracing::warn!(dataset = live.name(), %error, "unmounted: its mountpoint was rolled back");
                lost.push(live.lost(error.reason, None));
            }
        }
    }

    /// Does that while the file system is not mounted, nor any of the pool in it.
    fn unmounted<E>(
        &self,
        caller: &Caller,
        pool: &Pool,
        (live, why): (&Arc<Live>, Unmounts),
        lost: &mut Vec<MountFailure>,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        let below = self.list().into_iter().filter(|one| one.is_below(live));
        let all: Vec<_> = std::iter::once(Arc::clone(live)).chain(below).collect();
        if all.len() > 1 {
            let names: Vec<String> = all.iter().map(|one| one.name()).collect();
            crate::grants::may_unmount(caller, &names)?;
        }
        // One that only lingers gets no place again.
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
        again(0, lost);
        done
    }
}

/// What came of rolling back under a mount.
enum Exchange<E, W> {
    /// This, and what the kernel is to be told.
    Done(Results<E>, Vec<Stale>),
    /// Nothing: what would be different can't be told, for this reason. It is still to be done.
    Unknown(W, Unmounts),
}

impl Live {
    /// That it is mounted no more after a rollback.
    fn lost(&self, reason: Reason, by: Option<String>) -> MountFailure {
        let reason = match reason {
            Reason::System { errno } | Reason::MountpointNotMade { errno } => {
                Reason::MountpointLost { at: self.target().to_string_lossy().into_owned(), errno, by }
            }
            reason => reason,
        };
        MountFailure { name: self.name(), error: Error::new(self.name(), reason) }
    }

    /// Does something with its files, if they can be changed, while nobody takes them away.
    ///
    /// # Errors
    /// [`Reason::Busy`] if they could not be opened again after a rollback; those of `work`.
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

    /// Does that while the kernel waits.
    fn exchange<E, W: FnOnce() -> Results<E>>(
        &self,
        pool: &Pool,
        shown: &Shown,
        (head, to): (&str, &str),
        work: W,
    ) -> Exchange<E, W> {
        let refused = |reason| Exchange::Done(Err(Error::new(head, reason)), Vec::new());
        let before = shown.suspend();
        let writable = before.as_ref().is_none_or(FileSystem::is_writable);
        let users = before.as_ref().map(FileSystem::orphans).unwrap_or_default();
        // Whoever has it would keep the head from being rolled back, and from being opened again.
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
        let by = match differences(pool, head, to) {
            Ok(by) => by,
            Err(why) => {
                return match self.resumed(pool, shown, writable, Some(&users)) {
                    Ok(()) => Exchange::Unknown(work, why),
                    Err(reason) => refused(reason),
                };
            }
        };
        let done = work();
        // What is destroyed before may be gone already.
        let rolled = done.as_ref().is_ok_and(|results| results.last().is_some_and(Result::is_ok));
        let stale = if rolled { shown.rolled_back(&by) } else { Vec::new() };
        let again = self.resumed(pool, shown, writable, (!rolled).then_some(&users));
        let done = done.and_then(|done| again.map(|()| done).map_err(|reason| Error::new(head, reason)));
        Exchange::Done(done, stale)
    }

    /// Has it go on with its file system; `users` have removed files open, if nothing was done to it.
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

/// What a head, of which nobody has anything open, has not as its snapshot has it.
///
/// # Errors
/// Why that can't be told.
fn differences(pool: &Pool, head: &str, snapshot: &str) -> Result<Differences, Unmounts> {
    let open = |name| to_be_read(&pool.dsl().dataset(name).map_err(|error| of_dsl(&error))?);
    let unreadable = |error: &dyn std::fmt::Debug| {
        tracing::warn!(dataset = head, ?error, "to be unmounted for its rollback");
        Err(Unmounts::Unreadable)
    };
    let (now, then) = match (open(head), open(snapshot)) {
        (Ok(now), Ok(then)) => (now, then),
        // The rollback itself says what is wrong.
        (_, Err(Reason::NoSuchDataset)) => return Ok(Differences::default()),
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
