//! An imported pool, and what the daemon keeps beside it.

use crate::mounts::{MountedFs, Mounts};
use crate::pools::halts::{self, Halts};
use crate::query::known::Known;
use crate::view::PoolFacts;
use crate::volumes::attach::device::Taken;
use api::{Error, Reason};
use observe::lock::{Mutex, RwLock};
use poolhouse::Pool;
use spa::engine::PoolWriter;
use std::sync::Arc;

/// An imported pool.
pub struct Imported {
    /// The pool.
    pub pool: Pool,
    /// Its mounts.
    pub mounts: Arc<Mounts>,
    /// Its file systems that are partitions of the AFS server.
    pub(crate) partitions: RwLock<Vec<String>>,
    /// Its volumes that are served over NBD.
    pub volumes: Arc<nbd::Volumes>,
    /// Its properties that are not on disk.
    pub facts: RwLock<PoolFacts>,
    /// The last status.
    pub(crate) known: Known,
    /// When and why it stopped writing, until an event reports that.
    pub(crate) halts: Halts,
    /// What refused exports have unmounted. It is mounted again when the last export is refused.
    pub(crate) parted: Mutex<Parted>,
}

/// What refused exports have taken from a pool.
#[derive(Default)]
pub(crate) struct Parted {
    pub(crate) mounts: Vec<Arc<MountedFs>>,
    /// Block devices of volumes.
    pub(crate) devices: Taken,
}

/// A mount with the pool that it belongs to.
pub(crate) type Mounted = (Arc<Imported>, Arc<MountedFs>);

impl Imported {
    /// An opened pool. Its halts are recorded from now on.
    pub(crate) fn new(pool: Pool, mounts: Arc<Mounts>, facts: PoolFacts) -> Arc<Self> {
        let volumes = nbd::Volumes::new(pool.clone());
        let halts = Halts::default();
        halts::watch(&pool, &halts);
        let (facts, known, parted) = (RwLock::new(facts), Known::default(), Mutex::default());
        let partitions = RwLock::default();
        Arc::new(Self { pool, mounts, partitions, volumes, facts, known, halts, parted })
    }

    /// The pool for changes. An error is about `about`.
    ///
    /// # Errors
    /// * [`Reason::PoolReadonly`]: it was imported read-only.
    pub(crate) fn writer(&self, about: &str) -> Result<&PoolWriter, Error> {
        self.pool.spa().writer().ok_or_else(|| Error::new(about, Reason::PoolReadonly))
    }

    /// Its mounts, each with the pool.
    pub(crate) fn mounted(self: &Arc<Self>) -> Vec<Mounted> {
        self.mounts.list().into_iter().map(|live| (Arc::clone(self), live)).collect()
    }
}
