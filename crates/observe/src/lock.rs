//! A mutex with wait statistics.
//!
//! # Theory
//! A free lock is taken like any other. It counts nothing, and touches no shared cache line but the
//! lock's own. Only a thread that has to wait reads the clock, before and after, and adds the time
//! to the lock's [`Site`]. That time is lost anyway.
//!
//! A site is the place in the source to which a lock belongs, not the lock itself. So the locks of
//! ten thousand logs are one line. A site is listed from its first wait on.
//!
//! # See
//! OpenZFS has no counterpart; `lockstat` measures the same in a kernel.

use crate::work::{self, Wait};
use crate::{Latency, LatencySnapshot};
use parking_lot::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// All sites with at least one wait.
static SITES: parking_lot::Mutex<Vec<&'static Site>> = parking_lot::Mutex::new(Vec::new());

/// The common part of all locks of one kind: their name, and their wait times.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    /// Its place in [`SITES`] and 1; 0 before the first wait.
    number: AtomicU64,
    wait_ns: Latency,
    /// Number of threads that have begun to wait.
    #[cfg(test)]
    waiting: std::sync::atomic::AtomicUsize,
}

/// Statistics of the waits at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStat {
    /// Name of the site.
    pub name: &'static str,
    /// Nanoseconds of each wait.
    pub wait_ns: LatencySnapshot,
    /// Sum of all waits in nanoseconds.
    pub total_ns: u64,
}

impl Site {
    /// A site with this name, for a `static`.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            number: AtomicU64::new(0),
            wait_ns: Latency::new(),
            #[cfg(test)]
            waiting: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Statistics of the waits at this site.
    pub fn stat(&self) -> LockStat {
        let wait_ns = self.wait_ns.snapshot();
        LockStat { name: self.name, total_ns: wait_ns.sum, wait_ns }
    }

    fn waited(&'static self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.record(ns);
    }

    /// Its number, from its first wait on.
    fn number(&'static self) -> u64 {
        match self.number.load(Relaxed) {
            0 => {
                let mut sites = SITES.lock();
                // Another thread may have been here first.
                if self.number.load(Relaxed) == 0 {
                    sites.push(self);
                    self.number.store(sites.len() as u64, Relaxed);
                }
                self.number.load(Relaxed)
            }
            number => number,
        }
    }
}

/// The name of the site with this number: see [`work::wait`].
pub fn site_name(number: u64) -> Option<&'static str> {
    let at = usize::try_from(number.checked_sub(1)?).ok()?;
    SITES.lock().get(at).map(|site| site.name)
}

/// Statistics of all sites with a wait since the program began, sorted by name.
pub fn lock_stats() -> Vec<LockStat> {
    let mut all: Vec<LockStat> = SITES.lock().iter().map(|site| site.stat()).collect();
    all.sort_by_key(|s| s.name);
    all
}

/// A mutex of a [`Site`]. Its guard is `parking_lot`'s, so that its condition variables work with
/// it.
#[derive(Debug)]
pub struct Mutex<T> {
    site: &'static Site,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex over `value` that belongs to `site`.
    pub const fn new(site: &'static Site, value: T) -> Self {
        Self { site, inner: parking_lot::Mutex::new(value) }
    }

    /// Locks the mutex, and waits for its holder first.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let since = Instant::now();
        let _waiting = work::wait_since(Wait::Lock, self.site.number(), since);
        #[cfg(test)]
        self.site.waiting.fetch_add(1, Relaxed);
        let guard = self.inner.lock();
        self.site.waited(since);
        guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a lock of a free mutex counts nothing. A wait counts at the lock's site, with its
    /// time, for each lock of the site.
    #[test]
    fn waits_are_counted_by_site() {
        static HERE: Site = Site::new("observe test");
        let (one, other) = (Mutex::new(&HERE, 0), Mutex::new(&HERE, 0));
        *one.lock() += 1;
        assert_eq!(HERE.stat().wait_ns.count(), 0);
        assert!(lock_stats().iter().all(|s| s.name != "observe test"));
        for lock in [&one, &other] {
            let held = lock.lock();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| *lock.lock() += 1);
                while HERE.waiting.load(Relaxed) == 0 {
                    std::thread::yield_now();
                }
                HERE.waiting.store(0, Relaxed);
                drop(held);
                waiter.join().unwrap();
            });
        }
        let stat = lock_stats().into_iter().find(|s| s.name == "observe test").unwrap();
        assert_eq!((stat.wait_ns.count(), stat.total_ns > 0), (2, true));
        assert_eq!((*one.lock(), *other.lock()), (2, 1));
    }
}
