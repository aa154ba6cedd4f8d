//! How a mount shows the files of a dataset and its snapshots.

use crate::mounts::replay;
use crate::mounts::snapshots::Heads;
use crate::replies::{of_dsl, of_library, of_zpl};
use api::Reason;
use fuse::ctldir::WithSnapshots;
use fuse::dataset::{Dataset as Shown, Shown as How};
use fuse::tree::{FileTree, Statfs};
use mount_rules::{Plan, SnapDir};
use observe::lock::{Mutex, RwLock};
use observe::ops::{DatasetUse, OpTable};
use poolhouse::Pool;
use rustix::io::Errno;
use std::sync::Arc;
use zpl::{FileSystem, Policies};

/// The present name of a mounted dataset, which may be renamed. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct NameNow(Arc<RwLock<String>>);

impl NameNow {
    /// A name that starts with this value.
    pub(super) fn new(name: &str) -> Self {
        Self(Arc::new(RwLock::new(name.to_owned())))
    }

    /// The present name.
    pub(super) fn get(&self) -> String {
        self.0.read().clone()
    }

    /// Changes the name.
    pub(super) fn set(&self, name: String) {
        *self.0.write() = name;
    }
}

/// The present visibility of `.zfs` (`snapdir`). Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SnapDirNow(Arc<RwLock<SnapDir>>);

impl SnapDirNow {
    /// A visibility that starts with this value.
    pub(super) fn new(how: SnapDir) -> Self {
        Self(Arc::new(RwLock::new(how)))
    }

    /// The present visibility.
    pub(super) fn get(&self) -> SnapDir {
        *self.0.read()
    }

    /// Changes the visibility. Returns whether it was different.
    pub(super) fn set(&self, how: SnapDir) -> bool {
        std::mem::replace(&mut *self.0.write(), how) != how
    }
}

/// What a head and its snapshots have in common.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) posix_acl: bool,
    pub(super) xattrs: bool,
    pub(super) sizes: Statfs,
}

impl Look {
    /// The values of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        Self { posix_acl: plan.options.posix_acl, xattrs: plan.xattrs, sizes: plan.sizes }
    }

    pub(super) fn how(self, name: String) -> How {
        let Self { posix_acl, xattrs, sizes } = self;
        How { name, posix_acl, xattrs, sizes }
    }

    /// The files of a snapshot.
    ///
    /// # Errors
    /// * [`Reason::BadType`]: it has no contents, or is not a file system.
    /// * [`Reason::Io`], [`Reason::Corrupt`], [`Reason::NotSupported`]: it can't be opened.
    pub(super) fn snapshot(self, snapshot: &dsl::Dataset, ops: &Arc<OpTable>) -> Result<Arc<Shown>, Reason> {
        let shown = Shown::new(to_be_read(snapshot)?, self.how(snapshot.name()));
        Ok(Arc::new(shown.with_ops(counted(ops, snapshot))))
    }

    /// The files of a head. They are writable if its plan and its pool permit that.
    ///
    /// # Errors
    /// * [`Reason::BadType`]: it has no contents, or is not a file system.
    /// * [`Reason::Io`], [`Reason::Corrupt`], [`Reason::NotSupported`]: it can't be opened or
    ///   replayed.
    pub(super) fn head(
        self,
        pool: &Pool,
        plan: &Plan,
        name: &NameNow,
        policies: &Policies,
    ) -> Result<Arc<Shown>, Reason> {
        let alive = pool.spa().writer().is_some();
        let replayed = alive && replay(pool, plan)?;
        let dataset = match replayed {
            // The plan's handle is older than the replay.
            true => pool.dsl().dataset(&plan.name).map_err(|error| of_dsl(&error))?,
            false => plan.dataset.clone(),
        };
        let writable =
            if alive && !plan.options.read_only { Some(to_be_written(pool, plan, policies)?) } else { None };
        let fs = writable.map_or_else(|| to_be_read(&dataset), Ok)?;
        let shown = Shown::new(fs, self.how(plan.name.clone())).with_ops(counted(pool.ops(), &dataset));
        if !alive {
            return Ok(Arc::new(shown));
        }
        let sizes = sizes(pool.dsl().clone(), name.clone(), policies.clone(), self.sizes);
        Ok(Arc::new(shown.with_sizes(Box::new(sizes))))
    }
}

/// The tree of a head with its snapshots, and the one without them.
///
/// # Errors
/// Those of [`Look::head`].
pub(super) fn tree_of(
    pool: &Pool,
    plan: &Plan,
    how: Look,
    name: &NameNow,
    (policies, snapdir): (&Policies, &SnapDirNow),
) -> Result<(Arc<dyn FileTree>, Arc<Shown>), Reason> {
    let shown = how.head(pool, plan, name, policies)?;
    Ok((with_snapshots(pool, plan, how, name, snapdir, Arc::clone(&shown) as Arc<dyn FileTree>), shown))
}

/// The tree of a head with its snapshots.
pub(super) fn with_snapshots(
    pool: &Pool,
    plan: &Plan,
    how: Look,
    name: &NameNow,
    snapdir: &SnapDirNow,
    files: Arc<dyn FileTree>,
) -> Arc<dyn FileTree> {
    let (spa, name, snapdir) = (Arc::clone(pool.spa()), name.clone(), snapdir.clone());
    let ops = Arc::clone(pool.ops());
    let snapshots = Heads { head: plan.dataset.closed(), name, how, snapdir, spa, ops };
    Arc::new(WithSnapshots::new(files, Box::new(snapshots)))
}

/// Where operations on a dataset are counted.
pub(super) fn counted(ops: &Arc<OpTable>, dataset: &dsl::Dataset) -> DatasetUse {
    ops.dataset((dataset.object().0, dataset.phys().creation_txg.0))
}

pub(super) fn to_be_read(dataset: &dsl::Dataset) -> Result<FileSystem, Reason> {
    let objset = dataset.objset().map_err(|error| of_dsl(&error))?;
    // The dataset was created in a transaction group that was lost.
    let objset = objset.ok_or(Reason::BadType)?;
    FileSystem::open(&objset).map_err(|error| of_zpl(&error))
}

/// Opens a file system for writing.
///
/// # Errors
/// * [`Reason::Refused`] with [`api::Refusal::Busy`]: another operation has the head.
/// * [`Reason::Io`], [`Reason::Corrupt`], [`Reason::NotSupported`]: it can't be opened.
pub(super) fn to_be_written(pool: &Pool, plan: &Plan, policies: &Policies) -> Result<FileSystem, Reason> {
    pool.open_for_writing(&plan.dataset, policies.clone()).map_err(|error| of_library(&error))
}

/// The function behind `statfs`, which reads the sizes each time.
pub(super) fn sizes(
    dsl: dsl::Dsl,
    name: NameNow,
    policies: Policies,
    first: Statfs,
) -> impl Fn() -> Result<Statfs, Errno> {
    let last = Mutex::new(first);
    move || {
        let policy = policies.get();
        let name_max = u32::try_from(policy.name_max).expect("names are no longer than 1023 bytes");
        let name = name.get();
        let found = dsl.dataset(&name).and_then(|d| Plan::sizes_of(&d, policy.recordsize, name_max));
        match found {
            Ok(sizes) => {
                *last.lock() = sizes;
                Ok(sizes)
            }
            // A rename is in progress.
            Err(dsl::Error::NoSuchDataset { .. }) => Ok(*last.lock()),
            Err(error) => {
                tracing::warn!(dataset = name, %error, "its sizes are unreadable");
                Err(Errno::IO)
            }
        }
    }
}
