//! File systems that are opened at their first use.
//!
//! # Theory
//! An open file system takes tens of KiB: its object set, its first dnodes, its attributes'
//! registry. Of thousands that are nested in one mount, few are used. So a request that mounts many
//! only records where the nested ones are. The first request that leads into one opens it
//! ([`fuse::Content`]). Its intent log is replayed when it is mounted, since a snapshot of it must
//! have all that was durable.
//!
//! Mounting a file system in another opens the other for its mountpoint. When all are mounted,
//! those that were opened for nothing else are closed again ([`Mounts::rest`]).
//!
//! While it is closed, a hold keeps the dataset from being destroyed or rolled back under the
//! mount. Its properties are read when it is opened. If it can't be opened, the request gets an I/O
//! error, and the log a line. The next request tries again.
//!
//! # Locks
//! Opening holds the mount's turn ([`MountedFs::turn`]), so that no property changes meanwhile. A
//! thread that holds the turn must not wait for a request that opens it: see [`MountedFs::opened`].

use crate::mounts::look::{Look, NameNow, SnapDirNow, tree_of};
use crate::mounts::{MountedFs, Mounts};
use crate::replies::of_dsl;
use api::Reason;
use dsl::LongHold;
use fuse::dataset::Dataset as Shown;
use fuse::tree::FileTree;
use mount_rules::Plan;
use observe::lock::{Mutex, MutexGuard};
use ondisk::ObjNum;
use poolhouse::Pool;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use zpl::Policies;

/// The files of a mount, while they are served. Clones share them.
#[derive(Clone)]
pub(super) struct Files(Arc<Mutex<State>>);

/// The hold that keeps a mounted dataset from being destroyed while it is not open.
pub(super) type Hold = Arc<Mutex<Option<LongHold>>>;

enum State {
    /// They were not opened yet.
    Closed {
        /// Whether they will be read-only.
        read_only: bool,
        /// Why the last attempt to open them failed.
        failed: Option<Reason>,
    },
    Open(Weak<Shown>),
    /// The AFS server has them. The flag ends the mount's use of them.
    Served(Arc<AtomicBool>),
}

impl Files {
    /// Files that are open.
    pub(super) fn open(shown: &Arc<Shown>) -> Self {
        Self(Arc::new(Mutex::new(State::Open(Arc::downgrade(shown)))))
    }

    /// Files of a volume that the AFS server has. The flag ends the use of them.
    pub(super) fn served(ended: Arc<AtomicBool>) -> Self {
        Self(Arc::new(Mutex::new(State::Served(ended))))
    }

    /// Whether the AFS server has them.
    pub(super) fn are_served(&self) -> bool {
        matches!(&*self.0.lock(), State::Served(_))
    }

    /// Has all requests fail from now on.
    pub(super) fn end(&self) {
        if let State::Served(ended) = &*self.0.lock() {
            ended.store(true, Ordering::Release);
        }
    }

    fn closed(read_only: bool) -> Self {
        Self(Arc::new(Mutex::new(State::Closed { read_only, failed: None })))
    }

    fn set(&self, state: State) {
        *self.0.lock() = state;
    }

    /// The files, if they are open.
    pub(super) fn get(&self) -> Option<Arc<Shown>> {
        match &*self.0.lock() {
            State::Open(shown) => shown.upgrade(),
            State::Closed { .. } | State::Served(_) => None,
        }
    }

    /// Records why they could not be opened.
    fn fail(&self, reason: Reason) {
        if let State::Closed { failed, .. } = &mut *self.0.lock() {
            *failed = Some(reason);
        }
    }

    /// Why they can't be used.
    pub(super) fn failure(&self) -> Reason {
        match &*self.0.lock() {
            State::Closed { failed: Some(reason), .. } => reason.clone(),
            // This is also the state of a mount that is about to end.
            State::Closed { failed: None, .. } => Reason::Busy,
            // The command should have been refused before.
            State::Served(_) => Reason::Busy,
            State::Open(_) => {
                let what = "is mounted, and its files are not served: a rollback could not open it \
                            again, or it is being unmounted; unmount and mount it";
                Reason::Daemon { what: what.to_owned() }
            }
        }
    }

    /// Whether they can't be changed, whatever the mount's options say.
    pub(super) fn is_read_only(&self) -> bool {
        match &*self.0.lock() {
            State::Open(shown) => shown.upgrade().is_none_or(|shown| !shown.writable()),
            State::Closed { read_only, .. } => *read_only,
            State::Served(_) => true,
        }
    }
}

/// Opens a file system that is mounted already.
pub(super) struct Later {
    pool: Pool,
    object: u64,
    name: NameNow,
    posix_acl: bool,
    policies: Policies,
    snapdir: SnapDirNow,
    given: Arc<Mutex<Vec<String>>>,
    turn: Arc<Mutex<()>>,
    files: Files,
    /// Set while it is closed.
    hold: Hold,
}

impl Later {
    /// Prepares to open a plan's dataset, and holds it from now on.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`]: it was destroyed meanwhile.
    /// * [`Reason::Busy`]: it is open elsewhere.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: it can't be read.
    pub(super) fn new(
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        (policies, snapdir): (Policies, SnapDirNow),
        (given, turn): (Arc<Mutex<Vec<String>>>, Arc<Mutex<()>>),
    ) -> Result<Self, Reason> {
        let (dsl, object) = (pool.dsl(), plan.dataset.object());
        // Under this lock, no dataset is destroyed between the check and the hold.
        let held = || {
            let now = dsl.by_object(object).map_err(|error| of_dsl(&error))?;
            if now.phys().creation_txg != plan.dataset.phys().creation_txg {
                return Err(Reason::NoSuchDataset);
            }
            // A dataset that is open elsewhere could not be opened later.
            if dsl.heads().is_busy(object.0) {
                return Err(Reason::Busy);
            }
            Ok(dsl.heads().long_hold(object.0))
        };
        Ok(Self {
            pool: pool.clone(),
            object: object.0,
            name: name.clone(),
            posix_acl: plan.options.posix_acl,
            policies,
            snapdir,
            given,
            turn,
            files: Files::closed(pool.spa().writer().is_none()),
            hold: Arc::new(Mutex::new(Some(pool.spa().read(held)?))),
        })
    }

    /// Its files and its hold, for the mount.
    pub(super) fn shared(&self) -> (Files, Hold) {
        (self.files.clone(), Arc::clone(&self.hold))
    }

    /// Opens it, for a request that leads into it.
    ///
    /// # Errors
    /// * `EIO`: it can't be opened. The log has the reason.
    pub(super) fn open(&self) -> Result<Arc<dyn FileTree>, Errno> {
        let _turn = self.turn.lock();
        let (tree, shown) = self.tree().map_err(|reason| {
            tracing::error!(dataset = self.name.get(), ?reason, "mounted, and can't be opened");
            self.files.fail(reason);
            Errno::IO
        })?;
        tree.attr(tree.root())?;
        self.files.set(State::Open(Arc::downgrade(&shown)));
        drop(self.hold.lock().take());
        Ok(tree)
    }

    fn tree(&self) -> Result<(Arc<dyn FileTree>, Arc<Shown>), Reason> {
        // The look-up is by object, since a rename may be in progress.
        let dataset = self.pool.dsl().by_object(ObjNum(self.object)).map_err(|error| of_dsl(&error))?;
        let plan = Plan::of(dataset).map_err(|error| of_dsl(&error))?;
        let mut plan = plan.ok_or(Reason::BadType)?;
        let given = self.given.lock().clone();
        plan.apply(&given).map_err(|option| Reason::BadMountOption { option })?;
        // The kernel learned this when it was mounted.
        plan.options.posix_acl = self.posix_acl;
        plan.policy.posix_acl = self.posix_acl;
        self.policies.set(plan.policy);
        self.snapdir.set(plan.snapdir);
        self.pool.spa().cache().set_policy(self.object, plan.cache);
        tree_of(&self.pool, &plan, Look::of(&plan), &self.name, (&self.policies, &self.snapdir))
    }
}

impl Mounts {
    /// Closes unused file systems, until their next use.
    pub(crate) fn rest(&self, pool: &Pool) {
        let read_only = pool.spa().writer().is_none();
        for live in self.served() {
            // A thread that opens it takes the turn after the lock that [`fuse::Served::rest`]
            // takes.
            let Some(_turn) = live.turn.try_lock() else { continue };
            live.mount.rest(|| {
                if live.files.get().is_none_or(|shown| !shown.may_rest()) {
                    return false;
                }
                *live.hold.lock() = Some(pool.dsl().heads().long_hold(live.object));
                live.files.set(State::Closed { read_only, failed: None });
                true
            });
        }
    }
}

impl MountedFs {
    /// Whether its files were not opened yet.
    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.files.0.lock(), State::Closed { .. })
    }

    /// Opens its files if needed, and returns them with its turn. The caller must not hold the
    /// turn.
    pub(super) fn opened(&self) -> (MutexGuard<'_, ()>, Option<Arc<Shown>>) {
        loop {
            // This comes before taking the turn, which opening takes too.
            let opened = self.mount.open();
            let turn = self.turn.lock();
            match opened {
                Err(error) => {
                    tracing::debug!(dataset = self.name(), %error, "it is not opened");
                    return (turn, self.files.get());
                }
                // It was closed meanwhile ([`Mounts::rest`]).
                Ok(()) if self.is_closed() => drop(turn),
                Ok(()) => return (turn, self.files.get()),
            }
        }
    }
}
