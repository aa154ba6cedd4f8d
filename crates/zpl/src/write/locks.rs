//! The locks of nodes: created on first use, removed with their last holder.
//!
//! # Locks
//! A shard of the table is locked for one lookup. [`crate::write`] has the order of the other
//! locks.

use dmu::{RangeGuard, RangeLocks};
use observe::lock::{Mutex, MutexGuard};
use ondisk::ObjNum;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Shards of the table, so that threads seldom contend.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<ObjNum, Arc<NodeLocks>>>;

/// All locks of a file system.
#[derive(Default)]
pub(super) struct Locks {
    /// Allocated with the first lock: thousands of file systems may be mounted without being used.
    shards: OnceLock<Box<[Shard; SHARDS]>>,
}

/// The locks of one node.
#[derive(Default)]
pub(super) struct NodeLocks {
    names: Mutex<()>,
    attrs: Mutex<()>,
    ranges: RangeLocks,
}

/// Keeps the locks of a node in the table.
pub(super) struct Held<'a> {
    table: &'a Locks,
    object: ObjNum,
    locks: Arc<NodeLocks>,
}

impl Locks {
    fn shard(&self, object: ObjNum) -> &Shard {
        let shards = self.shards.get_or_init(|| Box::new(std::array::from_fn(|_| Mutex::default())));
        // Adjacent objects share a block of dnodes, and are used together. The hash spreads them.
        &shards[(object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
    }

    pub(super) fn hold(&self, object: ObjNum) -> Held<'_> {
        let locks = self.shard(object).lock().entry(object).or_default().clone();
        Held { table: self, object, locks }
    }

    /// Holds several nodes, each once, in the order in which their names must be locked.
    pub(super) fn hold_all(&self, objects: &[ObjNum]) -> Vec<Held<'_>> {
        let mut all = objects.to_vec();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|o| self.hold(o)).collect()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shards.get().map_or(0, |all| all.iter().map(|s| s.lock().len()).sum())
    }
}

impl Held<'_> {
    /// Locks the names in a directory.
    pub(super) fn names(&self) -> MutexGuard<'_, ()> {
        self.locks.names.lock()
    }

    /// Locks the attributes.
    pub(super) fn attrs(&self) -> MutexGuard<'_, ()> {
        self.locks.attrs.lock()
    }

    /// Locks the bytes `start..end` of the contents: exclusively for writing, shared for reading.
    pub(super) fn range(&self, start: u64, end: u64, write: bool) -> RangeGuard<'_> {
        self.locks.ranges.lock(start, end, write)
    }

    /// Locks all of the contents exclusively.
    pub(super) fn whole(&self) -> RangeGuard<'_> {
        self.range(0, u64::MAX, true)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.object).lock();
        // One reference is the table's, the other is ours. No thread can get another while the
        // shard is locked.
        if Arc::strong_count(&self.locks) == 2 {
            shard.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests;
