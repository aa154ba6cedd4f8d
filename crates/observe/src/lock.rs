//! Locks with wait statistics.
//!
//! # Theory
//! A free lock is taken like any other. It counts nothing, and touches no shared cache line but the
//! lock's own. Only a thread that has to wait reads the clock, before and after, and adds the time
//! to the lock's [`Site`]. That time is lost anyway.
//!
//! A site is the place in the source to which a lock belongs, not the lock itself. So the locks of
//! ten thousand logs are one line. A lock without a named site has that of the code that made it:
//! its file and line; one that the standard library made, as for `Arc::default`, that of its type.
//! A site is listed from its first wait on, with the places where threads waited
//! (*callers*).
//!
//! # Absent
//! Waits in condition variables are no waits for locks, and are not counted here. Who held a lock,
//! and for how long, is not known.
//!
//! # See
//! OpenZFS has no counterpart; `lockstat` measures the same in a kernel.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::work::{self, Wait};
use crate::{Latency, LatencySnapshot};
pub use parking_lot::{Condvar, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// All sites with at least one wait.
static SITES: parking_lot::Mutex<Vec<&'static Site>> = parking_lot::Mutex::new(Vec::new());
/// The sites of locks by the code that made them, file and line. There are as many as the code has.
static MADE: parking_lot::Mutex<Option<HashMap<Place, &'static Site>>> = parking_lot::Mutex::new(None);

/// A place in the source: file and line. Locks that one line makes are of one kind.
type Place = (&'static str, u32);

fn place_of(at: &'static Location<'static>) -> Place {
    (at.file(), at.line())
}

/// A place in words: without the folder of all crates. Types are at line 0.
fn words((file, line): Place) -> String {
    if line == 0 {
        return format!("a lock of {file}");
    }
    format!("{}:{line}", file.strip_prefix("crates/").unwrap_or(file))
}

/// The common part of all locks of one kind: their name, and their wait times.
#[derive(Debug)]
pub struct Site {
    name: &'static str,
    /// Its place in [`SITES`] and 1; 0 before the first wait.
    number: AtomicU64,
    wait_ns: Latency,
    /// The waits by the code that waited.
    callers: parking_lot::Mutex<Vec<(Place, Box<Latency>)>>,
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
    /// The same by the code that waited: file and line.
    pub callers: Vec<(String, LatencySnapshot)>,
}

impl Site {
    /// A site with this name, for a `static`.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            number: AtomicU64::new(0),
            wait_ns: Latency::new(),
            callers: parking_lot::Mutex::new(Vec::new()),
            #[cfg(test)]
            waiting: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Statistics of the waits at this site.
    pub fn stat(&self) -> LockStat {
        let wait_ns = self.wait_ns.snapshot();
        let callers = self.callers.lock();
        let callers = callers.iter().map(|(place, times)| (words(*place), times.snapshot())).collect();
        LockStat { name: self.name, total_ns: wait_ns.sum, wait_ns, callers }
    }

    fn waited(&'static self, since: Instant, caller: Place) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.record(ns);
        let mut callers = self.callers.lock();
        match callers.iter().find(|(place, _)| *place == caller) {
            Some((_, times)) => times.record(ns),
            None => {
                let times = Box::<Latency>::default();
                times.record(ns);
                callers.push((caller, times));
            }
        }
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
    let sites = SITES.lock().clone();
    let mut all: Vec<LockStat> = sites.iter().map(|site| site.stat()).collect();
    all.sort_by_key(|s| s.name);
    all
}

/// To which site a lock belongs.
#[derive(Debug, Clone, Copy)]
enum At {
    Site(&'static Site),
    /// That of the code that made it.
    Made(&'static Location<'static>),
    /// That of its type, whose name this is.
    Typed(fn() -> &'static str),
}

impl At {
    /// That of a lock of this type, which the code at `made` made.
    fn of<T: ?Sized>(made: &'static Location<'static>) -> Self {
        // `/rustc/HASH/library/alloc/src/sync.rs`, or wherever the sources are. Ours are relative.
        let file = made.file();
        let is_of_library = file.starts_with('/') && file.contains("/library/");
        if is_of_library { Self::Typed(std::any::type_name::<T>) } else { Self::Made(made) }
    }

    fn site(self) -> &'static Site {
        let made = match self {
            Self::Site(site) => return site,
            Self::Made(made) => place_of(made),
            Self::Typed(name) => (name(), 0),
        };
        let mut all = MADE.lock();
        all.get_or_insert_default()
            .entry(made)
            .or_insert_with(|| Box::leak(Box::new(Site::new(Box::leak(words(made).into_boxed_str())))))
    }

    /// Waits with `lock`, for the code at `caller`.
    #[cold]
    fn wait<G>(self, caller: &'static Location<'static>, lock: impl FnOnce() -> G) -> G {
        let since = Instant::now();
        let site = self.site();
        let waiting = work::wait_since(Wait::Lock, site.number(), since);
        #[cfg(test)]
        site.waiting.fetch_add(1, Relaxed);
        let guard = lock();
        drop(waiting);
        site.waited(since, place_of(caller));
        guard
    }
}

/// A mutex of a [`Site`]. Its guard is `parking_lot`'s, so that its condition variables work with
/// it.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    at: At,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex over `value` that belongs to the code that makes it.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self { at: At::Made(Location::caller()), inner: parking_lot::Mutex::new(value) }
    }

    /// A mutex over `value` that belongs to `site`.
    pub const fn of(site: &'static Site, value: T) -> Self {
        Self { at: At::Site(site), inner: parking_lot::Mutex::new(value) }
    }

    /// The value, without the mutex.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, and waits for its holder first.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.at.wait(Location::caller(), || self.inner.lock()),
        }
    }

    /// Locks the mutex, unless it is locked.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }

    /// Locks the mutex if it becomes free until this moment. This counts no wait.
    pub fn try_lock_until(&self, until: Instant) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock_until(until)
    }

    /// The value of a mutex that nothing else can lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Self {
        let inner = parking_lot::Mutex::new(T::default());
        Self { at: At::of::<T>(Location::caller()), inner }
    }
}

/// A lock for readers or one writer, as [`Mutex`].
#[derive(Debug)]
pub struct RwLock<T: ?Sized> {
    at: At,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock over `value` that belongs to the code that makes it.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self { at: At::Made(Location::caller()), inner: parking_lot::RwLock::new(value) }
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for a reader, after writers that wait or hold it.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.inner.try_read() {
            Some(guard) => guard,
            None => self.at.wait(Location::caller(), || self.inner.read()),
        }
    }

    /// Locks it for a writer, after all that hold it.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.inner.try_write() {
            Some(guard) => guard,
            None => self.at.wait(Location::caller(), || self.inner.write()),
        }
    }

    /// Locks it for a reader, unless a writer holds it or waits.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.inner.try_read()
    }

    /// Locks it for a reader, unless a writer holds it. Writers that wait don't matter.
    #[inline]
    pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.inner.try_read_recursive()
    }

    /// Locks it for a writer, unless anything holds it.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.inner.try_write()
    }

    /// The value of a lock that nothing else can lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> Self {
        let inner = parking_lot::RwLock::new(T::default());
        Self { at: At::of::<T>(Location::caller()), inner }
    }
}

#[cfg(test)]
mod tests;
