//! Who reads ahead, on threads of their own, behind those who wait for what they read (`ZIO_PRIORITY_ASYNC_READ`).
//!
//! # Theory
//! Whoever foresees reads ([`Foreseen`]) leaves a run of them here and goes on. The threads take one read of one run after another in turns, so that a long run holds up no other.
//! So many bytes are read ahead at a time as OpenZFS would have under way: [`VDEV_ASYNC_READ_MAX_ACTIVE`] reads of [`VDEV_AGGREGATION_LIMIT`] bytes for each device, since
//! it joins neighbours into reads of that size; while somebody waits for a device, [`VDEV_ASYNC_READ_MIN_ACTIVE`]. Threads are started when there is something to do, and end when there was nothing for long.
//!
//! # Life
//! Closed before its pool gives up its devices ([`Crew::close`]): nothing is read afterwards.
//!
//! # Locks
//! One, held to take a read and to say that it is done, never across a read.

use crate::tunables::{VDEV_AGGREGATION_LIMIT, VDEV_ASYNC_READ_MAX_ACTIVE, VDEV_ASYNC_READ_MIN_ACTIVE};
use observe::Counter;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Threads that read ahead for one pool.
const THREADS_MAX: usize = 32;
/// Runs that may wait.
const RUNS_MAX: usize = 1024;
/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(5);

/// What was foreseen (`zfetchstats`), by all pools that share memory.
#[derive(Debug, Default)]
pub struct Zfetch {
    /// Reads where they were expected (`hits`).
    pub hits: Counter,
    /// Reads ahead of where they were expected, which are kept in mind (`future`).
    pub future: Counter,
    /// Reads that passed over some blocks, or go in steps (`stride`).
    pub stride: Counter,
    /// Reads behind where they were expected (`past`).
    pub past: Counter,
    /// Reads that nobody expected (`misses`).
    pub misses: Counter,
    /// Reads that would have been the beginning of a stream, had there not been so many (`max_streams`).
    pub max_streams: Counter,
    /// Blocks that were asked for ahead (`io_issued`).
    pub io_issued: Counter,
    /// Blocks that were, and are done.
    pub(crate) io_done: Counter,
    /// Those that were not read since there was no room in memory; OpenZFS has no such counter.
    pub throttled: Counter,
}

impl Zfetch {
    /// Blocks that are yet to be read ahead (`io_active`).
    pub fn io_active(&self) -> u64 {
        let done = self.io_done.get();
        self.io_issued.get().saturating_sub(done)
    }
}

/// Reads ahead what somebody has foreseen.
pub trait Foreseen: Send + Sync {
    /// Has a block read into the cache, if it is not there. What fails is left to who asks for the block.
    fn read_ahead(&self, level: u8, blkid: u64);
}

/// Blocks of one level of one object, at even distances.
pub struct Run {
    /// Who reads them.
    pub of: Arc<dyn Foreseen>,
    /// Their level.
    pub level: u8,
    /// The next one.
    pub next: u64,
    /// From one to the next.
    pub step: i64,
    /// How many.
    pub count: u64,
    /// Bytes of one.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    runs: VecDeque<Run>,
    threads: usize,
    idle: usize,
    /// Reads under way, and their bytes.
    active: usize,
    active_bytes: u64,
    closed: bool,
}

struct Inner {
    state: Mutex<State>,
    work: Condvar,
    /// Nothing is under way any more.
    quiet: Condvar,
    /// Devices that share the work; 0 for who reads nothing ahead.
    devices: AtomicU64,
    /// Readers that wait for devices.
    demand: AtomicUsize,
    /// Somebody could go on when no reader waits.
    held_back: AtomicBool,
    counters: Arc<Zfetch>,
    name: u32,
}

/// See the module.
pub(crate) struct Crew(Arc<Inner>);

impl Crew {
    pub(crate) fn new(name: u32, counters: Arc<Zfetch>) -> Crew {
        Crew(Arc::new(Inner {
            state: Mutex::default(),
            work: Condvar::new(),
            quiet: Condvar::new(),
            devices: AtomicU64::new(0),
            demand: AtomicUsize::new(0),
            held_back: AtomicBool::new(false),
            counters,
            name,
        }))
    }

    /// Reads ahead from now on, of so many devices.
    pub(crate) fn begin(&self, devices: u64) {
        self.0.devices.store(devices, Ordering::Relaxed);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.0.devices.load(Ordering::Relaxed) > 0
    }

    /// Has a run read; false if there is too much to do already, or nothing is read ahead.
    pub(crate) fn push(&self, run: Run) -> bool {
        if !self.is_begun() || run.count == 0 {
            return false;
        }
        let mut s = self.0.state.lock();
        if s.closed || s.runs.len() >= RUNS_MAX {
            return false;
        }
        self.0.counters.io_issued.add(run.count);
        s.runs.push_back(run);
        self.0.call(&mut s);
        true
    }

    /// A reader is about to wait for a device, until what is returned is dropped.
    pub(crate) fn demand(&self) -> Demand<'_> {
        self.0.demand.fetch_add(1, Ordering::SeqCst);
        Demand(&self.0)
    }

    /// Reads nothing ahead any more.
    pub(crate) fn shut(&self) {
        let mut s = self.0.state.lock();
        s.closed = true;
        let runs = std::mem::take(&mut s.runs);
        drop(s);
        self.0.work.notify_all();
        self.0.counters.io_done.add(runs.iter().map(|run| run.count).sum());
    }

    /// The same, and what is under way is over when it returns.
    pub(crate) fn close(&self) {
        self.shut();
        let mut s = self.0.state.lock();
        while s.active > 0 {
            self.0.quiet.wait(&mut s);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Perhaps on one of its own threads, which had the last reference to the cache: nobody is waited for.
        self.shut();
    }
}

/// See [`Crew::demand`].
pub(crate) struct Demand<'a>(&'a Arc<Inner>);

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        let last = self.0.demand.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.0.held_back.swap(false, Ordering::SeqCst) {
            // Whoever is called calls the next.
            let mut s = self.0.state.lock();
            self.0.call(&mut s);
        }
    }
}

impl Inner {
    /// Whether so many more bytes may be read.
    fn may_read(&self, s: &State, bytes: u64) -> bool {
        let of = |active: u64| {
            let each = active.saturating_mul(VDEV_AGGREGATION_LIMIT.get());
            each.saturating_mul(self.devices.load(Ordering::Relaxed))
        };
        let fits = |limit: u64| s.active == 0 || s.active_bytes.saturating_add(bytes) <= limit;
        if fits(of(VDEV_ASYNC_READ_MIN_ACTIVE.get())) {
            return true;
        }
        if !fits(of(VDEV_ASYNC_READ_MAX_ACTIVE.get())) {
            return false;
        }
        // Said before it is asked, so that whoever is the last to wait sees it.
        self.held_back.store(true, Ordering::SeqCst);
        self.demand.load(Ordering::SeqCst) == 0
    }

    /// Calls somebody if there is something that may be read.
    fn call(self: &Arc<Self>, s: &mut State) {
        let Some(bytes) = s.runs.front().map(|run| run.bytes) else { return };
        if !self.may_read(s, bytes) {
            return;
        }
        if s.idle > 0 {
            self.work.notify_one();
        } else if s.threads < THREADS_MAX {
            let inner = Arc::clone(self);
            let thread = std::thread::Builder::new().name(format!("zfetch-{}", self.name));
            // Without a thread nothing is read ahead, and nobody misses anything but time.
            if thread.spawn(move || inner.serve()).is_ok() {
                s.threads += 1;
            }
        }
    }

    /// The next read, in turns; `None` if there is none that may be begun.
    fn take(&self, s: &mut State) -> Option<(Arc<dyn Foreseen>, u8, u64, u64)> {
        let bytes = s.runs.front()?.bytes;
        if !self.may_read(s, bytes) {
            return None;
        }
        let mut run = s.runs.pop_front()?;
        let read = (Arc::clone(&run.of), run.level, run.next, run.bytes);
        run.count -= 1;
        // What is in a run was computed without overflow.
        run.next = run.next.wrapping_add_signed(run.step);
        if run.count > 0 {
            s.runs.push_back(run);
        }
        s.active += 1;
        s.active_bytes += read.3;
        Some(read)
    }

    fn serve(self: Arc<Self>) {
        let mut s = self.state.lock();
        loop {
            if let Some((of, level, blkid, bytes)) = self.take(&mut s) {
                self.call(&mut s);
                drop(s);
                // Counted however the read ends, so that nobody waits for one that is over.
                let active = Active { inner: &self, bytes };
                of.read_ahead(level, blkid);
                drop(of);
                drop(active);
                s = self.state.lock();
                continue;
            }
            s.idle += 1;
            let timed_out = !s.closed && self.work.wait_for(&mut s, IDLE).timed_out();
            s.idle -= 1;
            if s.closed || (timed_out && s.runs.is_empty()) {
                s.threads -= 1;
                return;
            }
        }
    }
}

/// A read under way.
struct Active<'a> {
    inner: &'a Inner,
    bytes: u64,
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.inner.counters.io_done.inc();
        let mut s = self.inner.state.lock();
        s.active -= 1;
        s.active_bytes -= self.bytes;
        if s.active == 0 && s.closed {
            self.inner.quiet.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
