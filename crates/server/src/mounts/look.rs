//! How the files of a dataset and its snapshots are shown at a mount.

use super::replay;
use super::snapshots::Heads;
use crate::faults::{of_dsl, of_library, of_zpl};
use api::Reason;
use api::plan::{Plan, SnapDir};
use fuse::ctldir::WithSnapshots;
use fuse::dataset::{Dataset as Shown, Shown as How};
use fuse::tree::{Statfs, Tree};
use parking_lot::{Mutex, RwLock};
use poolhouse::Pool;
use rustix::io::Errno;
use std::sync::Arc;
use zpl::{FileSystem, Policies};

/// The name of a dataset, which may be renamed while it is mounted; clones share it.
#[derive(Debug, Clone)]
pub(super) struct NameNow(Arc<RwLock<String>>);

impl NameNow {
    /// It is this.
    pub(super) fn new(name: &str) -> Self {
        Self(Arc::new(RwLock::new(name.to_owned())))
    }

    /// What it is.
    pub(super) fn get(&self) -> String {
        self.0.read().clone()
    }

    /// From now on it is this.
    pub(super) fn set(&self, name: String) {
        *self.0.write() = name;
    }
}

/// How `.zfs` shows now (`snapdir`); clones share it.
#[derive(Debug, Clone)]
pub(super) struct SnapDirNow(Arc<RwLock<SnapDir>>);

impl SnapDirNow {
    /// It is so.
    pub(super) fn new(how: SnapDir) -> Self {
        Self(Arc::new(RwLock::new(how)))
    }

    /// How it is.
    pub(super) fn get(&self) -> SnapDir {
        *self.0.read()
    }

    /// From now on it is so; says whether it was otherwise.
    pub(super) fn set(&self, how: SnapDir) -> bool {
        std::mem::replace(&mut *self.0.write(), how) != how
    }
}

/// What is the same for a head and its snapshots.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) posix_acl: bool,
    pub(super) xattrs: bool,
    pub(super) sizes: Statfs,
}

impl Look {
    /// As a plan says.
    pub(super) fn of(plan: &Plan) -> Self {
        Self { posix_acl: plan.options.posix_acl, xattrs: plan.xattrs, sizes: plan.sizes }
    }

    fn how(self, name: String) -> How {
        let Self { posix_acl, xattrs, sizes } = self;
        How { name, posix_acl, xattrs, sizes }
    }

    /// The files of a snapshot.
    pub(super) fn snapshot(self, snapshot: &dsl::Dataset) -> Result<Arc<Shown>, Reason> {
        Ok(Arc::new(Shown::new(to_be_read(snapshot)?, self.how(snapshot.name()))))
    }

    /// The files of a head: to be changed, if its plan and its pool let it.
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
            // The plan's handle is of the time before.
            true => pool.dsl().dataset(&plan.name).map_err(|error| of_dsl(&error))?,
            false => plan.dataset.clone(),
        };
        let writable =
            if alive && !plan.options.read_only { Some(to_be_written(pool, plan, policies)?) } else { None };
        let fs = writable.map_or_else(|| to_be_read(&dataset), Ok)?;
        let shown = Shown::new(fs, self.how(plan.name.clone()));
        if !alive {
            return Ok(Arc::new(shown));
        }
        let sizes = sizes(pool.dsl().clone(), name.clone(), policies.clone(), self.sizes);
        Ok(Arc::new(shown.with_sizes(Box::new(sizes))))
    }
}

/// The files of a head with its snapshots, and without them.
pub(super) fn tree_of(
    pool: &Pool,
    plan: &Plan,
    how: Look,
    name: &NameNow,
    (policies, snapdir): (&Policies, &SnapDirNow),
) -> Result<(Arc<dyn Tree>, Arc<Shown>), Reason> {
    let shown = how.head(pool, plan, name, policies)?;
    let (spa, name, snapdir) = (Arc::clone(pool.spa()), name.clone(), snapdir.clone());
    let snapshots = Heads { head: plan.dataset.closed(), name, how, snapdir, spa };
    let tree = WithSnapshots::new(Arc::clone(&shown) as Arc<dyn Tree>, Box::new(snapshots));
    Ok((Arc::new(tree), shown))
}

pub(super) fn to_be_read(dataset: &dsl::Dataset) -> Result<FileSystem, Reason> {
    let objset = dataset.objset().map_err(|error| of_dsl(&error))?;
    // One that was only just created in a transaction group that never came to be.
    let objset = objset.ok_or(Reason::BadType)?;
    FileSystem::open(&objset).map_err(|error| of_zpl(&error))
}

/// A file system to be changed.
pub(super) fn to_be_written(pool: &Pool, plan: &Plan, policies: &Policies) -> Result<FileSystem, Reason> {
    pool.open_for_writing(&plan.dataset, policies.clone()).map_err(|error| of_library(&error))
}

/// Says what `statfs` shows, each time that somebody asks.
fn sizes(
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
            // It is just being renamed.
            Err(dsl::Error::NoSuchDataset { .. }) => Ok(*last.lock()),
            Err(error) => {
                tracing::warn!(dataset = name, %error, "its sizes are unreadable");
                Err(Errno::IO)
            }
        }
    }
}
