//! Rolling back a file system while it is mounted and files of it are open (`zfs_suspend_fs`, `zfs_resume_fs`).
//!
//! # Theory
//! The mount is suspended: what the kernel asks waits. Its file system is let go, with its log, and synced; then it is rolled back, and opened anew. Files that are
//! in the snapshot go on with what they were then; others are gone for who has them open (`ESTALE`), also where their numbers are others' now. The kernel keeps what it was
//! told for good, so that it is told what is no longer so: all that differs between the two, which is found before the one is freed.
//!
//! If it can't be rolled back, everything is as before, also removed files that are open.

use super::look::{to_be_read, to_be_written};
use super::{Live, Mounts};
use crate::api::{DatasetChange, Error, Reason};
use crate::faults::{chain, of_dsl, of_library, of_zpl};
use crate::plan::Plan;
use fuse::dataset::{Dataset as Shown, Stale};
use poolhouse::Pool;
use zpl::{Differences, Orphans};

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
    /// Those of `work`; as reading fails; [`Reason::Busy`] if it was rolled back hundreds of times since it was mounted.
    fn roll_back<E>(&self, pool: &Pool, to: &str, work: impl FnOnce() -> Results<E>) -> Results<E> {
        let head = to.split('@').next().unwrap_or(to);
        let live = self.list().into_iter().find(|live| live.name() == head);
        let Some((live, shown)) = live.and_then(|live| live.shown.upgrade().map(|shown| (live, shown)))
        else {
            return work();
        };
        let _turn = live.turn.lock();
        if !shown.may_roll_back() {
            return Err(Error::new(head, Reason::Busy));
        }
        let (done, stale) = live.mount.suspended(|| live.exchange(pool, &shown, (head, to), work));
        live.mount.tell(&stale);
        done
    }
}

impl Live {
    /// Does that while the kernel waits, and returns what it is to be told.
    fn exchange<E>(
        &self,
        pool: &Pool,
        shown: &Shown,
        (head, to): (&str, &str),
        work: impl FnOnce() -> Results<E>,
    ) -> (Results<E>, Vec<Stale>) {
        let before = shown.suspend();
        let writable = before.as_ref().is_none_or(zpl::FileSystem::is_writable);
        let users = before.as_ref().map(zpl::FileSystem::orphans).unwrap_or_default();
        drop(before);
        let gone = differences(pool, head, to).map_err(|reason| Error::new(to, reason));
        let (done, gone) = match gone {
            Ok(gone) => (work(), gone),
            Err(error) => (Err(error), Differences::default()),
        };
        let rolled = done.as_ref().is_ok_and(|results| results.iter().all(Result::is_ok));
        // The group of the rollback is on disk.
        let end = pool.spa().last_synced_txg().0;
        let stale = if rolled { shown.rolled_back(end, &gone) } else { Vec::new() };
        match self.reopen(pool, writable, (!rolled).then_some(users)) {
            Ok(fs) => {
                shown.resume(fs);
                (done, stale)
            }
            Err(reason) => {
                tracing::error!(dataset = head, ?reason, "it can't be used until it is mounted again");
                (done.and(Err(Error::new(head, reason))), stale)
            }
        }
    }

    /// Opens the file system again; `users` have removed files open, if nothing was done to it.
    fn reopen(&self, pool: &Pool, writable: bool, users: Option<Orphans>) -> Result<zpl::FileSystem, Reason> {
        let plan = pool.dsl().dataset(&self.name()).and_then(Plan::of).map_err(|error| of_dsl(&error))?;
        let plan = plan.ok_or(Reason::BadType)?;
        let fs = match users {
            _ if !writable => None,
            None => to_be_written(pool, &plan, &self.policies)?,
            Some(users) => {
                let again = pool.reopen_for_writing(&plan.dataset, self.policies.clone(), users);
                Some(again.map_err(|error| of_library(&error))?)
            }
        };
        fs.map_or_else(|| to_be_read(&plan.dataset), Ok)
    }
}

/// What a head, of which nobody has anything open, has not as its snapshot has it.
fn differences(pool: &Pool, head: &str, snapshot: &str) -> Result<Differences, Reason> {
    if let Some(live) = pool.spa().writer() {
        live.sync_all().map_err(|_| Reason::Suspended)?;
    }
    let then = match pool.dsl().dataset(snapshot) {
        Ok(snapshot) => to_be_read(&snapshot)?,
        // The rollback itself says what is wrong.
        Err(dsl::Error::NoSuchDataset { .. }) => return Ok(Differences::default()),
        Err(error) => return Err(of_dsl(&error)),
    };
    let now = to_be_read(&pool.dsl().dataset(head).map_err(|error| of_dsl(&error))?)?;
    zpl::compare(&now, &then).map_err(|error| {
        tracing::warn!(dataset = head, error = chain(&error), "not rolled back");
        of_zpl(&error)
    })
}
