//! The imported pools: import, export, mounts, keys.
//!
//! # Theory
//! Each pool has its own mounts, threads and locks. So one whose devices hang affects no other. A
//! request about several pools (mounting everything) goes through one forest (`mounting`), since
//! a pool's file system may be mounted inside another's.
//!
//! What only looks pools up, such as the rights of callers and the served volumes, is below this
//! module and gets the [`PoolTable`]. [`Pools`] is above all of them, and composes them.
//!
//! # Life
//! A pool is *coming* while an import works on it, then *here*, and *going* while an export does.
//! While it is coming or going, another import or export of that name is refused at once. An export
//! that fails leaves it *here*. While an export waits for devices, the pool can be cleared.
//!
//! # Locks
//! The table of pools is held for look-ups and inserts, never while a device is read.

mod asking;
mod change;
mod datasets;
mod ending;
mod export;
pub(crate) mod halts;
mod holders;
pub(crate) mod imported;
pub(crate) mod keys;
mod mounting;
mod progress;
mod receiving;
mod requests;
mod serving;
pub(crate) mod table;
mod unmounting;

pub use imported::Imported;
pub use table::PoolTable;

use crate::afs::Afs;
use crate::commands::pool::cachefile::{self, Memory};
use crate::commands::pool::{inject, leave};
use crate::control::files::visits::Visits;
use crate::mounts::journal::Journal;
use crate::mounts::{Mounts, Server};
use crate::query;
use crate::replies::of_fuse;
use crate::sync_all::Syncs;
use crate::telemetry::tunables::Tunables;
use crate::view::PoolFacts;
use crate::volumes::attach::Attachments;
use crate::volumes::exports::Doors;
use api::{Error, Mount};
use fuse::Nesting;
use ondisk::Guid;
use poolhouse::Pool;
use progress::Watched;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use table::ending;

/// All imported pools, and what belongs to all of them.
#[derive(Default)]
pub struct Pools {
    table: Arc<PoolTable>,
    memory: Memory,
    /// The record of the mounts, for the next daemon.
    journal: Arc<Journal>,
    pub(crate) tunables: Tunables,
    pub(crate) doors: Doors,
    pub(crate) attachments: Attachments,
    /// The AFS server and its partitions.
    pub(crate) afs: Arc<Afs>,
    /// Commands that use files of the pools without a mount.
    pub(crate) visits: Arc<Visits>,
    /// The notification of `sync(2)`.
    pub(crate) syncs: Syncs,
    watched: Watched,
    /// Whether other users may use the mounts.
    others: AtomicBool,
    /// Whether to nest all file systems that can be nested.
    nest: AtomicBool,
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get() * 2).clamp(4, 32)
}

impl Pools {
    /// The table of the pools.
    pub fn table(&self) -> &Arc<PoolTable> {
        &self.table
    }

    /// Allows other users to use the mounts of pools that are imported later.
    pub(crate) fn let_others_in(&self) {
        self.others.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lets_others_in(&self) -> bool {
        self.others.load(Ordering::Relaxed)
    }

    /// Nests file systems, where possible, of pools that are imported later.
    pub(crate) fn nest_always(&self) {
        self.nest.store(true, Ordering::Relaxed);
    }

    /// Imports the pool `guid`, which `open` opens, under `name`.
    ///
    /// # Errors
    /// * [`Reason::PoolExists`](api::Reason::PoolExists),
    ///   [`Reason::DevicesInUse`](api::Reason::DevicesInUse): the name or the pool is in use.
    /// * [`Reason::Daemon`](api::Reason::Daemon): the daemon is ending, or worker threads can't be
    ///   started.
    /// * All others: those of `open`.
    pub fn import<T>(
        &self,
        name: &str,
        guid: Guid,
        open: impl FnOnce() -> Result<(Pool, PoolFacts, T), Error>,
    ) -> Result<T, Error> {
        self.table.announce(name, guid)?;
        inject::pass(name, true, self.table.closing());
        self.syncs.wait();
        // The daemon may have begun to end: then nothing more is opened.
        let refused = self.table.is_closing().then(|| Error::new(name, ending()));
        let opened = refused.map_or_else(open, Err).and_then(|(pool, facts, told)| {
            let imported = Imported::new(pool, self.mounts_of(name)?, facts);
            query::first(&imported);
            Ok((imported, told))
        });
        let (imported, told) = opened.inspect_err(|_| self.table.remove(name))?;
        if !self.table.enter(name, &imported) {
            // The end of the daemon waits for this pool.
            let left = imported.pool.spa().writer().map_or(Ok(()), |live| leave(live, false));
            drop(imported);
            self.table.remove(name);
            tracing::info!(pool = name, left = left.is_err(), "not imported: the daemon ends");
            return Err(Error::new(name, left.err().unwrap_or_else(ending)));
        }
        self.tunables.tell(&self.table.present());
        self.remember(&imported);
        tracing::info!(pool = name, "imported");
        Ok(told)
    }

    /// The mounts of a new pool, none yet.
    fn mounts_of(&self, name: &str) -> Result<Arc<Mounts>, Error> {
        let nesting = Nesting::of_this_process(self.nest.load(Ordering::Relaxed));
        let how = (self.lets_others_in(), nesting);
        let afs = Arc::clone(&self.afs) as Arc<dyn Server>;
        let mounts = Mounts::new(name, threads(), how, (Arc::clone(&self.journal), afs));
        mounts.map(Arc::new).map_err(|error| Error::new(name, of_fuse(&error)))
    }

    pub(crate) fn journal_in(&self, folder: &std::path::Path) {
        self.journal.open(folder);
    }

    /// Sets the default cache file. The pools that it lists are imported at the daemon's start.
    pub fn remember_in(&self, cachefile: &std::path::Path) {
        self.memory.set_usual(cachefile);
        self.afs.expect(cachefile::pools_of(cachefile));
    }

    /// Updates the cache file that lists a pool, if one does.
    fn remember(&self, imported: &Imported) {
        let file = self.memory.file_of(&imported.facts.read());
        if let Some(file) = file.filter(|_| imported.pool.spa().writer().is_some()) {
            self.memory.write(&file, &self.table.present(), None);
        }
    }

    /// The mounts, pool by pool, in the order of mounting.
    pub fn mounts(&self) -> Vec<Mount> {
        self.table.all().iter().flat_map(|pool| pool.mounts.list()).map(|live| live.describe()).collect()
    }
}
