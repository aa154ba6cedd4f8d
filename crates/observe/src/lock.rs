//! A mutex that knows who waited for it.
//!
//! # Theory
//! A lock that nobody else holds is taken as any other: nothing is counted, and no shared line is touched beyond the lock's own. Only who has to wait
//! looks at the clock, before and after, and counts that at the lock's [`Site`]: the time is lost anyhow. A site is the place in the source that a
//! lock belongs to, not the lock itself, so that the locks of ten thousand logs are one line; a site is listed from the first wait on.
//!
//! # See
//! OpenZFS has none; `lockstat` asks the same of a kernel.

use crate::{Counter, Histogram, HistogramSnapshot};
use parking_lot::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Every site at which somebody has waited.
static SITES: parking_lot::Mutex<Vec<&'static Site>> = parking_lot::Mutex::new(Vec::new());

/// What locks of one kind have in common: their name, and how long they were waited for.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    listed: AtomicBool,
    wait_ns: Histogram,
    total_ns: Counter,
    /// Those who have begun to wait.
    #[cfg(test)]
    waiting: std::sync::atomic::AtomicUsize,
}

/// What waiting there was at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStat {
    /// The site.
    pub name: &'static str,
    /// Nanoseconds that each waited.
    pub wait_ns: HistogramSnapshot,
    /// All of them together.
    pub total_ns: u64,
}

impl Site {
    /// A site of that name, which is to be a `static`.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            listed: AtomicBool::new(false),
            wait_ns: Histogram::new(),
            total_ns: Counter::new(),
            #[cfg(test)]
            waiting: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// What waiting there was here.
    pub fn stat(&self) -> LockStat {
        LockStat { name: self.name, wait_ns: self.wait_ns.snapshot(), total_ns: self.total_ns.get() }
    }

    fn waited(&'static self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.record(ns);
        self.total_ns.add(ns);
        if !self.listed.load(Relaxed) && !self.listed.swap(true, Relaxed) {
            SITES.lock().push(self);
        }
    }
}

/// The sites at which somebody has waited since the program began, in the order of their names.
pub fn lock_stats() -> Vec<LockStat> {
    let mut all: Vec<LockStat> = SITES.lock().iter().map(|site| site.stat()).collect();
    all.sort_by_key(|s| s.name);
    all
}

/// A mutex of a [`Site`]. Its guard is `parking_lot`'s, so that its condition variables go with it.
#[derive(Debug)]
pub struct Mutex<T> {
    site: &'static Site,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex over `value`, which belongs to a site.
    pub const fn new(site: &'static Site, value: T) -> Self {
        Self { site, inner: parking_lot::Mutex::new(value) }
    }

    /// Takes it, after waiting for whoever has it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let since = Instant::now();
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

    /// Goal: who takes a free lock counts nothing; who waits is counted at the lock's site, with the time, whichever lock of the site it was.
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
