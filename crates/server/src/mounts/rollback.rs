//! Rolling back a file system while it is mounted and files of it are open (`zfs_suspend_fs`, `zfs_resume_fs`).
//!
//! # Theory
//! The mount is suspended: what the kernel asks waits. Its file system is let go, with its log, and synced; then it is rolled back, and opened anew. Files that are
//! in the snapshot go on with what they were then; others are gone for who has them open (`ESTALE`), also where their numbers are others' now. The kernel keeps what it was
//! told for good, so that it is told what is no longer so: all that differs between the two, which is found before the one is freed.
//!
//! If it can't be rolled back, everything is as before, also removed files that are open. If what differs can't be found, because what is there now is damaged, or is too
//! much, the file system is unmounted for it and mounted again where it was, which nobody may be using then.
//!
//! # Locks
//! Who takes the file system of a mount, or its head, for something else has its turn ([`Live::with_files`]): so nobody has it while it is rolled back.

use super::look::{to_be_read, to_be_written};
use super::{Live, Mounts};
use crate::api::{DatasetChange, Error, Reason, Refusal};
use crate::faults::{chain, of_dsl, of_library};
use crate::plan::Plan;
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

/// What an operation of a rollback comes to.
type Results<E> = Result<Vec<Result<(), E>>, Error>;

impl Mounts {
    /// Does a change of datasets, around what must become of mounts for a rollback.
    ///
    /// # Errors
    /// As [`Mounts::roll_back`].
    pub fn run<E>(
        &self,
        pool: &Pool,
        change: &DatasetChange,
        work: impl FnOnce() -> Results<E>,
    ) -> Results<E> {
        match change {
            DatasetChange::Rollback { snapshot, .. } => self.roll_back(pool, snapshot, work),
            _ => work(),
        }
    }

    /// Has `work` roll back the file system of a snapshot, which may be mounted.
    ///
    /// # Errors
    /// Those of `work`; as opening it again fails; [`Reason::Busy`] if somebody has it who doesn't ask through the kernel, and if it would have to be unmounted and is in use.
    fn roll_back<E>(&self, pool: &Pool, to: &str, work: impl FnOnce() -> Results<E>) -> Results<E> {
        let head = to.split('@').next().unwrap_or(to);
        let live = self.served().into_iter().find(|live| live.name() == head);
        let Some(live) = live else { return work() };
        let (turn, shown) = live.opened();
        let Some(shown) = shown else {
            drop(turn);
            // What can't be opened is kept by its mount alone.
            return if live.is_closed() { self.unmounted(pool, &live, work) } else { work() };
        };
        let work = match shown.may_roll_back() {
            false => work,
            true => match live.mount.suspended(|| live.exchange(pool, &shown, (head, to), work)) {
                Exchange::Done(done, stale) => {
                    live.mount.tell(&stale);
                    self.settle(&live);
                    return done;
                }
                Exchange::Unknown(work) => work,
            },
        };
        drop(shown);
        self.unmounted(pool, &live, work)
    }

    /// Has what is nested in a file system that was rolled back lie where it is mounted: its
    /// mountpoint may be gone, or another folder by now.
    fn settle(&self, parent: &Live) {
        for live in self.served() {
            let Err(error) = live.mount.settle(&parent.mount) else { continue };
            let (dataset, users) = (live.name(), live.mount.users());
            tracing::warn!(dataset, %error, ?users, "unmounted: its mountpoint was rolled back");
            let mut gone: Vec<_> =
                self.served().into_iter().filter(|other| other.mount.lies_in(&live.mount)).collect();
            gone.sort_by_key(|other| std::cmp::Reverse(other.number));
            gone.push(live);
            for live in gone {
                if let Err(error) = self.unmount(&live, Detach::Force) {
                    tracing::error!(dataset = live.name(), %error, "it stays, and no path leads to it");
                }
            }
        }
    }

    /// Does that while the file system is not mounted.
    fn unmounted<E>(&self, pool: &Pool, live: &Arc<Live>, work: impl FnOnce() -> Results<E>) -> Results<E> {
        self.unmount(live, Detach::Normal)?;
        let done = work();
        let mounted = self.restore(pool, live, false);
        done.and_then(|done| mounted.map(|()| done))
    }
}

/// What came of rolling back under a mount.
enum Exchange<E, W> {
    /// This, and what the kernel is to be told.
    Done(Results<E>, Vec<Stale>),
    /// Nothing: what would be different can't be told. It is still to be done.
    Unknown(W),
}

impl Live {
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
            Some(by) => by,
            None => {
                return match self.resumed(pool, shown, writable, Some(&users)) {
                    Ok(()) => Exchange::Unknown(work),
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

/// What a head, of which nobody has anything open, has not as its snapshot has it; `None` if that can't be told.
fn differences(pool: &Pool, head: &str, snapshot: &str) -> Option<Differences> {
    let open = |name| to_be_read(&pool.dsl().dataset(name).map_err(|error| of_dsl(&error))?);
    let unknown =
        |error: &dyn std::fmt::Debug| tracing::warn!(dataset = head, ?error, "unmounted to be rolled back");
    let (now, then) = match (open(head), open(snapshot)) {
        (Ok(now), Ok(then)) => (now, then),
        // The rollback itself says what is wrong.
        (_, Err(Reason::NoSuchDataset)) => return Some(Differences::default()),
        (Err(error), _) | (_, Err(error)) => {
            unknown(&error);
            return None;
        }
    };
    match zpl::compare(&now, &then, MOST) {
        Ok(Some(found)) => Some(found),
        Ok(None) => {
            unknown(&"more than a million differences");
            None
        }
        Err(error) => {
            unknown(&chain(&error));
            None
        }
    }
}
