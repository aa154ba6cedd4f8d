//! The synced tree of an object without changes, for readers that take no lock.
//!
//! # Theory
//! Readers of such an object write no shared memory. The type that makes this possible must look at
//! every thread of the process when it is changed or dropped. Most objects are opened for a few
//! reads, so it is made only for those that are read often.
//!
//! # Locks
//! The caller of [`Clean::begin`], [`Clean::clear`] and [`Clean::set`] holds the lock of the
//! object's state. A reader that finds the tree began before any change that it does not see.

use arc_swap::ArcSwapOption;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Reads under the lock, before there is a tree without it.
const READS: u32 = 16;

/// The tree, if there are no changes and the object was read often.
pub(super) struct Clean<T> {
    tree: OnceLock<ArcSwapOption<T>>,
    reads: AtomicU32,
}

impl<T> Default for Clean<T> {
    fn default() -> Self {
        Self { tree: OnceLock::new(), reads: AtomicU32::new(0) }
    }
}

impl<T> Clean<T> {
    /// The tree. `None`: the reader needs the lock.
    pub(super) fn get(&self) -> Option<impl Deref<Target = Arc<T>>> {
        Found::of(self.tree.get()?.load())
    }

    /// Notes a read under the lock. Returns whether [`Clean::begin`] is to be called.
    pub(super) fn is_due(&self) -> bool {
        self.tree.get().is_none() && self.reads.fetch_add(1, Ordering::Relaxed) >= READS
    }

    /// Has readers find the tree without the lock from now on. `None`: there are changes.
    pub(super) fn begin(&self, tree: Option<Arc<T>>) {
        self.tree.get_or_init(|| ArcSwapOption::new(tree));
    }

    /// Notes that there are changes.
    pub(super) fn clear(&self) {
        // The store is dear, and the object may have older changes.
        if let Some(shared) = self.tree.get()
            && shared.load().is_some()
        {
            shared.store(None);
        }
    }

    /// Notes that the changes are synced.
    pub(super) fn set(&self, tree: &Option<Arc<T>>) {
        if let Some(shared) = self.tree.get() {
            shared.store(tree.clone());
        }
    }
}

/// A tree that a reader has found.
struct Found<T>(arc_swap::Guard<Option<Arc<T>>>);

impl<T> Found<T> {
    fn of(guard: arc_swap::Guard<Option<Arc<T>>>) -> Option<Self> {
        guard.is_some().then_some(Self(guard))
    }
}

impl<T> Deref for Found<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("it was found")
    }
}
