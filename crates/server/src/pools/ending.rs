//! The end of the daemon: each pool is exported by its own thread.
//!
//! # Theory
//! A pool's thread closes its volumes, unmounts its file systems from the leaves, writes what is
//! pending, and marks the pool as exported. A pool waits only for pools that depend on its
//! mounts: a file system is mounted there, or the file of a device is there. What is still busy
//! then is removed from the tree of names, and its users find it dead.
//!
//! A pool whose devices hang blocks its thread. So the waiting thread watches for progress: mounts
//! that end, transaction groups that sync, bytes that reach devices. A pool without progress for
//! `patience` is given up. It stays as its last transaction group left it, as after a crash. What
//! was fsynced is in its intent logs.
//!
//! Pools that are being imported are exported once they are open, or are not opened at all. The
//! daemon waits for them just as long. A suspended pool makes no progress: its waiting threads get
//! an error, and it is given up too.
//!
//! # Locks
//! [`State`] is held for reading and counting, never while something is unmounted or written.

use crate::afs::Parting;
use crate::commands::pool::leave;
use crate::mounts::threads::threads_for;
use crate::pools::Pools;
use crate::pools::imported::{Imported, Mounted};
use crate::pools::unmounting::unmount_all;
use api::{Caller, Error, Reason};
use fuse::Detach;
use observe::lock::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The interval between two checks for progress.
const LOOK: Duration = Duration::from_millis(100);
/// How long removing the mounts of a given-up pool from the tree may take.
const DETACHING: Duration = Duration::from_secs(2);

/// The stage of a pool's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// It works.
    Working,
    /// It waits for other pools, for more progress than this count.
    Waiting(u64),
    /// The pool is exported, or was left for a reason.
    Over(Result<(), Reason>),
}

/// Whether a mount or a device's file of a pool is below one of these mounts.
fn lies_in(other: &Imported, mounts: &[Mounted]) -> bool {
    let inside = |place: &Path| mounts.iter().any(|(_, own)| place.starts_with(own.target()));
    let config = other.pool.spa().config();
    let mut devices =
        config.vdev_tree.iter().flat_map(|root| root.leaves()).filter_map(|leaf| leaf.path.as_deref());
    other.mounts.list().iter().any(|mount| inside(mount.target()))
        || devices.any(|path| inside(Path::new(OsStr::from_bytes(path))))
}

/// The stages of all pools.
struct State {
    stages: BTreeMap<String, Stage>,
    /// Grows with all progress that another thread may wait for.
    moves: u64,
    /// Set when waiting is pointless.
    in_vain: bool,
}

/// The signs of a pool's progress.
#[derive(PartialEq, Eq)]
pub(super) struct Signs([u64; 7]);

impl Signs {
    pub(super) fn of(imported: &Imported) -> Self {
        let stats = imported.pool.spa().tree().describe().stats;
        let synced = imported.pool.spa().writer().map_or(0, |live| live.txgs().synced().0);
        let (mounts, volumes) = (imported.mounts.list().len(), imported.volumes.users().len());
        Self([
            mounts as u64,
            volumes as u64,
            synced,
            stats.read_ops,
            stats.write_ops,
            stats.read_bytes,
            stats.write_bytes,
        ])
    }
}

struct Ending {
    /// The pools that are not exported yet: while one is in here, its devices are open.
    ///
    /// Lock order: after `state`. Held only for reading.
    pools: Mutex<BTreeMap<String, Arc<Imported>>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pools {
    /// Unmounts and exports all pools at once. Leaves a pool that makes no progress for `patience`.
    ///
    /// Each pool's thread calls `before` first. Returns the pools that were left as their last
    /// transaction group left them, and why.
    pub fn close(
        self: &Arc<Self>,
        patience: Duration,
        before: impl Fn(&Pools, &str) + Send + Sync + 'static,
    ) -> Vec<Error> {
        // Present connections end with their volumes, and all others with the server.
        self.table.close();
        let server = self.doors.close();
        self.visits.close();
        let pools = self.table.present();
        let stages = pools.iter().map(|pool| (pool.pool.name().to_owned(), Stage::Working)).collect();
        let guids: Vec<_> = pools.iter().map(|pool| pool.pool.spa().guid()).collect();
        let pools = pools.into_iter().map(|pool| (pool.pool.name().to_owned(), pool)).collect();
        let state = Mutex::new(State { stages, moves: 0, in_vain: false });
        let ending = Arc::new(Ending { pools: Mutex::new(pools), state, changed: Condvar::new() });
        let before = Arc::new(before);
        for name in ending.names() {
            let (all, pools, own) = (Arc::clone(&ending), Arc::clone(self), name.clone());
            let before = Arc::clone(&before);
            let work = move || {
                let done = all.end(&pools, &own, &*before);
                // Nothing waits for this thread from then on. If it held the pools last, it would
                // unmount the device that reports `sync(2)` while the process exits. The kernel
                // would wait for an answer of this process, and each `sync` on the machine with it.
                drop((pools, before));
                all.over(&own, done);
            };
            let thread = std::thread::Builder::new().name(format!("end-{name}"));
            if let Err(error) = thread.spawn(work) {
                tracing::error!(pool = name, %error, "it is left: there is no thread to let it go");
                ending.over(&name, Err(Reason::Busy));
            }
        }
        let mut left = ending.watch(patience);
        left.extend(self.wait_for_coming(patience));
        // Dropping what is left would wait for its threads, which may wait for its devices.
        std::mem::forget(std::mem::take(&mut *ending.pools.lock()));
        self.afs.leave();
        guids.into_iter().for_each(vdev::inject::forget);
        drop(server);
        self.table.clear();
        left
    }

    /// Waits for pools that are being imported to end again. Returns those that do not.
    fn wait_for_coming(&self, patience: Duration) -> Vec<Error> {
        let since = Instant::now();
        loop {
            let coming = self.table.coming();
            if coming.is_empty() || since.elapsed() >= patience {
                return coming.into_iter().map(|name| Error::new(name, Reason::Silent)).collect();
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Ending {
    fn names(&self) -> Vec<String> {
        self.pools.lock().keys().cloned().collect()
    }

    /// Exports a pool and closes its devices.
    fn end(&self, pools: &Pools, name: &str, before: &dyn Fn(&Pools, &str)) -> Result<(), Reason> {
        // An export may be running already.
        while pools.table.is_going(name) {
            std::thread::sleep(LOOK);
        }
        if let Ok(imported) = pools.table.pool(name) {
            before(pools, name);
            self.let_go(pools, &imported)?;
        }
        pools.table.remove(name);
        let gone = self.pools.lock().remove(name);
        drop(gone);
        Ok(())
    }

    /// Exports a pool.
    fn let_go(&self, pools: &Pools, imported: &Arc<Imported>) -> Result<(), Reason> {
        let name = imported.pool.name();
        if !pools.visits.end(name) {
            tracing::error!(pool = name, "commands that use its files don't end");
        }
        if !pools.attachments.take_volumes(imported) {
            tracing::error!(pool = name, "clients of its volumes don't let go");
        }
        if let Err(error) = pools.afs.release(imported, Parting::Ending) {
            tracing::error!(pool = name, %error, "its partitions of AFS don't end");
        }
        self.unmount(imported);
        for file in crate::view::nameless(imported.pool.spa()) {
            tracing::error!(
                pool = name,
                file = file.path,
                "removed while it was used: it is gone with the daemon"
            );
        }
        if let Some(live) = imported.pool.spa().writer() {
            leave(live, false)?;
        }
        tracing::info!(pool = name, "gone");
        Ok(())
    }

    /// Unmounts a pool's file systems, at last by force, and also for users that have them mounted
    /// elsewhere.
    fn unmount(&self, imported: &Arc<Imported>) {
        self.unmount_here(imported);
        for live in imported.mounts.lingering() {
            let (dataset, users) = (live.name(), live.users());
            tracing::warn!(dataset, ?users, "in use where it is mounted elsewhere: its users lose it");
            if let Err(error) = imported.mounts.unmount(&live, Detach::Lazy) {
                tracing::error!(dataset, %error, "it stays mounted, dead");
            }
        }
    }

    fn unmount_here(&self, imported: &Arc<Imported>) {
        // The daemon ends by itself, without a caller. Its log names the users of a busy file
        // system.
        let daemon = Caller::this_process();
        let mut seen = self.state.lock().moves;
        loop {
            let mounted = imported.mounted();
            let count = mounted.len();
            let failures = unmount_all(&daemon, &mounted, Detach::Normal, threads_for(None));
            drop(mounted);
            let left = imported.mounted();
            if left.len() < count {
                seen += self.moved();
            }
            if left.is_empty() {
                return;
            }
            if !self.wait(imported, &left, &mut seen) {
                for failure in failures {
                    tracing::warn!(target = failure.name, "in use: unmounted lazily, its users lose it");
                }
                break;
            }
        }
        for failure in unmount_all(&daemon, &imported.mounted(), Detach::Lazy, threads_for(None)) {
            tracing::error!(target = failure.name, error = %failure.error, "it stays mounted, dead");
        }
        self.moved();
    }

    /// Waits for progress beyond `seen`, if other pools depend on these mounts. Returns false if
    /// waiting is pointless.
    fn wait(&self, imported: &Arc<Imported>, left: &[Mounted], seen: &mut u64) -> bool {
        let name = imported.pool.name();
        let mut state = self.state.lock();
        loop {
            if state.in_vain {
                return false;
            }
            if state.moves != *seen {
                *seen = state.moves;
                return true;
            }
            let goes = |other: &&Arc<Imported>| {
                let other = other.pool.name();
                other != name && !matches!(state.stages[other], Stage::Over(_))
            };
            if !self.pools.lock().values().filter(goes).any(|other| lies_in(other, left)) {
                return false;
            }
            state.stages.insert(name.to_owned(), Stage::Waiting(*seen));
            self.changed.wait(&mut state);
            state.stages.insert(name.to_owned(), Stage::Working);
        }
    }

    /// Records progress that other threads may wait for. Returns the count.
    fn moved(&self) -> u64 {
        self.state.lock().moves += 1;
        self.changed.notify_all();
        1
    }

    /// Records the end of a pool. One that was given up stays so.
    fn over(&self, name: &str, done: Result<(), Reason>) {
        let mut state = self.state.lock();
        state.moves += 1;
        let stage = state.stages.get_mut(name).expect("all pools are in it");
        if !matches!(stage, Stage::Over(_)) {
            *stage = Stage::Over(done);
        }
        self.changed.notify_all();
    }

    /// Waits for all pools, and gives up those without progress. Returns those that were left.
    fn watch(&self, patience: Duration) -> Vec<Error> {
        let mut signs: BTreeMap<String, (Option<Signs>, Instant)> =
            self.names().into_iter().map(|name| (name, (None, Instant::now()))).collect();
        loop {
            {
                let mut state = self.state.lock();
                if state.stages.values().all(|stage| matches!(stage, Stage::Over(_))) {
                    break;
                }
                // All wait for each other, so for something outside. A thread that is about to wake
                // up does not count.
                let moves = state.moves;
                let waits =
                    |stage: &Stage| matches!(stage, Stage::Over(_)) || *stage == Stage::Waiting(moves);
                if state.stages.values().all(waits) {
                    state.in_vain = true;
                    self.changed.notify_all();
                }
                self.changed.wait_for(&mut state, LOOK);
            }
            for (name, (before, since)) in &mut signs {
                let stage = self.state.lock().stages[name].clone();
                if matches!(stage, Stage::Over(_)) {
                    continue;
                }
                let now = self.pools.lock().get(name).map(|imported| {
                    // The threads that wait for it get an error.
                    let live = imported.pool.spa().writer();
                    if let Some(live) = live.filter(|live| live.suspended().is_some()) {
                        live.txgs().abandon();
                    }
                    Signs::of(imported)
                });
                if now != *before || matches!(stage, Stage::Waiting(_)) {
                    (*before, *since) = (now, Instant::now());
                } else if since.elapsed() >= patience {
                    self.over(name, Err(Reason::Silent));
                    let left = self.pools.lock().get(name).cloned();
                    left.iter().for_each(|imported| give_up(imported, Users::EndWithProcess));
                }
            }
        }
        let stages = std::mem::take(&mut self.state.lock().stages);
        let left = stages.into_iter().filter_map(|(name, stage)| match stage {
            Stage::Over(Err(reason)) => Some(Error::new(name, reason)),
            _ => None,
        });
        left.collect()
    }
}

/// What happens to threads that wait for a given-up pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// They get an error now if the daemon is root's, or else when the process ends.
    Fail,
    /// They get an error when the process ends, which is soon.
    EndWithProcess,
}

/// Leaves a pool to the end of the process. Removes its mounts from the tree of names, if that
/// needs no devices.
pub(super) fn give_up(imported: &Imported, users: Users) {
    let mut mounts = imported.mounts.list();
    mounts.sort_by_key(|live| live.number);
    let (done, wait) = mpsc::channel();
    let detach = move || {
        for live in &mounts {
            if users == Users::Fail {
                // Most are busy and stay until the next call. Requests in progress fail.
                live.leave_tree(Detach::Force).unwrap_or_default();
            }
            if let Err(error) = live.leave_tree(Detach::Lazy) {
                tracing::debug!(%error, "it goes with the process");
            }
        }
        // The receiver may have given up.
        done.send(()).unwrap_or_default();
    };
    if std::thread::Builder::new().name("detach".to_owned()).spawn(detach).is_err()
        || wait.recv_timeout(DETACHING).is_err()
    {
        tracing::warn!(pool = imported.pool.name(), "its mounts stay, dead");
    }
}
