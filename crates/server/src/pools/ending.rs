//! The end of the daemon: every pool is let go, each by itself.
//!
//! # Theory
//! Each pool has a thread, which closes its volumes, unmounts its file systems from the leaves, writes what is pending and marks the pool as exported. Pools
//! wait for each other only where a file system of one is mounted inside another's, or a device of one is a file there; what is then still busy is taken out of the tree of names, and its users find it dead.
//!
//! A pool whose devices hang takes its thread with it, so whoever waits for the threads watches whether anything moves: mounts that go, groups that sync, bytes that
//! reach devices. Where nothing has moved for as long as there is patience, the pool is given up: it stays as its last group left it, as after a crash, and what was fsynced is in its intent logs.
//! Pools that are being imported are exported as soon as they are open, or not opened any more, and waited for as long.
//! A pool that is suspended moves for nobody: whoever waits for it is told that it failed, and it is given up too.
//!
//! # Locks
//! [`State`] is held for looking and counting, never while something is unmounted or written.

use super::mounting::{Mounted, threads_for, unmount_all};
use super::{Imported, Pools};
use crate::work::leave;
use api::{Caller, Error, Reason};
use fuse::Detach;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often it is looked whether anything moves.
const LOOK: Duration = Duration::from_millis(100);
/// How long taking the mounts of a pool that was given up out of the tree may take.
const DETACHING: Duration = Duration::from_secs(2);

/// What a pool's thread is at.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// It works.
    Working,
    /// It waits for other pools, for more than these moves.
    Waiting(u64),
    /// The pool is gone, or was left for a reason.
    Over(Result<(), Reason>),
}

/// Whether something of a pool lies below one of these mounts: a mount, or the file of a device.
fn lies_in(other: &Imported, mounts: &[Mounted]) -> bool {
    let inside = |place: &Path| mounts.iter().any(|(_, own)| place.starts_with(own.target()));
    let config = other.pool.spa().config();
    let mut devices =
        config.vdev_tree.iter().flat_map(|root| root.leaves()).filter_map(|leaf| leaf.path.as_deref());
    other.mounts.list().iter().any(|mount| inside(mount.target()))
        || devices.any(|path| inside(Path::new(OsStr::from_bytes(path))))
}

/// How far all of them are.
struct State {
    stages: BTreeMap<String, Stage>,
    /// Grows with everything that somebody may wait for.
    moves: u64,
    /// Nobody is to be waited for any more.
    in_vain: bool,
}

/// What shows that a pool moves.
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
    /// Those that are not gone: while one is in here, its devices are open. Comes after `state`, and is held for looking.
    pools: Mutex<BTreeMap<String, Arc<Imported>>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pools {
    /// Unmounts and lets go of everything, all pools at once; a pool in which nothing moves for `patience` is left. `before` is done first, for each pool
    /// by its own thread. Says which pools were left as their last group left them, and why.
    pub fn close(
        self: &Arc<Self>,
        patience: Duration,
        before: impl Fn(&Pools, &str) + Send + Sync + 'static,
    ) -> Vec<Error> {
        // Connections that are there end with their volumes, and the rest with the server.
        self.closing.store(true, Ordering::SeqCst);
        let server = self.close_doors();
        self.visits().close();
        let pools = self.present();
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
        // Letting go of what is left would wait for its threads, which may wait for its devices.
        std::mem::forget(std::mem::take(&mut *ending.pools.lock()));
        guids.into_iter().for_each(vdev::inject::forget);
        drop(server);
        self.table.write().clear();
        left
    }

    /// Waits for pools that are being imported, which go again; those that don't are left.
    fn wait_for_coming(&self, patience: Duration) -> Vec<Error> {
        let since = Instant::now();
        loop {
            let coming = self.coming();
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

    /// Sees to it that a pool goes, and closes its devices.
    fn end(&self, pools: &Pools, name: &str, before: &dyn Fn(&Pools, &str)) -> Result<(), Reason> {
        // Somebody may be letting it go already.
        let is_going = || matches!(pools.table.read().get(name), Some(super::State::Going(_)));
        while is_going() {
            std::thread::sleep(LOOK);
        }
        if let Ok(imported) = pools.pool(name) {
            before(pools, name);
            self.let_go(pools, &imported)?;
        }
        pools.table.write().remove(name);
        let gone = self.pools.lock().remove(name);
        drop(gone);
        Ok(())
    }

    /// Lets a pool go.
    fn let_go(&self, pools: &Pools, imported: &Arc<Imported>) -> Result<(), Reason> {
        let name = imported.pool.name();
        if !pools.visits().end(name) {
            tracing::error!(pool = name, "commands that use its files don't end");
        }
        if !pools.take_volumes(imported) {
            tracing::error!(pool = name, "clients of its volumes don't let go");
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

    /// Unmounts what is mounted of a pool; in the end whatever it takes, also from those who have
    /// it mounted elsewhere.
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
        // Nobody asks for this: the daemon ends, and its log names who keeps a file system busy.
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

    /// Waits until something has moved since `seen`, if other pools lie in these mounts. False if that is not worth it.
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

    /// Something moved that others may wait for; by how much that was counted.
    fn moved(&self) -> u64 {
        self.state.lock().moves += 1;
        self.changed.notify_all();
        1
    }

    /// What became of a pool. One that was given up stays so.
    fn over(&self, name: &str, done: Result<(), Reason>) {
        let mut state = self.state.lock();
        state.moves += 1;
        let stage = state.stages.get_mut(name).expect("all pools are in it");
        if !matches!(stage, Stage::Over(_)) {
            *stage = Stage::Over(done);
        }
        self.changed.notify_all();
    }

    /// Waits for all of them, and gives up those in which nothing moves; says which were left.
    fn watch(&self, patience: Duration) -> Vec<Error> {
        let mut signs: BTreeMap<String, (Option<Signs>, Instant)> =
            self.names().into_iter().map(|name| (name, (None, Instant::now()))).collect();
        loop {
            {
                let mut state = self.state.lock();
                if state.stages.values().all(|stage| matches!(stage, Stage::Over(_))) {
                    break;
                }
                // All wait for each other, and so for somebody who is none of them. One that is about to be woken does not.
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
                    // Whoever waits for it hears that it failed.
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

/// What becomes of those who wait for a pool that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// What they wait for fails now, if this is root; else with the process.
    Fail,
    /// What they wait for fails when the process ends, which is soon.
    EndWithProcess,
}

/// Leaves a pool to the end of the process: its mounts are taken out of the tree of names, if that can be done without its devices.
pub(super) fn give_up(imported: &Imported, users: Users) {
    let mut mounts = imported.mounts.list();
    mounts.sort_by_key(|live| live.number);
    let (done, wait) = mpsc::channel();
    let detach = move || {
        for live in &mounts {
            if users == Users::Fail {
                // Most are busy and stay until the next line; what is under way fails.
                live.leave_tree(Detach::Force).unwrap_or_default();
            }
            if let Err(error) = live.leave_tree(Detach::Lazy) {
                tracing::debug!(%error, "it goes with the process");
            }
        }
        // Nobody may wait any more.
        done.send(()).unwrap_or_default();
    };
    if std::thread::Builder::new().name("detach".to_owned()).spawn(detach).is_err()
        || wait.recv_timeout(DETACHING).is_err()
    {
        tracing::warn!(pool = imported.pool.name(), "its mounts stay, dead");
    }
}
