//! Prefetch threads: they read blocks ahead, and yield to readers that wait for devices
//! (`ZIO_PRIORITY_ASYNC_READ`).
//!
//! # Theory
//! A predictor of reads ([`PrefetchTarget`]) hands in a run of blocks and continues. The threads
//! take one read of one run after another in turns, so that a long run holds up no other.
//!
//! The bytes that are read ahead at a time are those that OpenZFS would have under way. That is
//! [`VDEV_ASYNC_READ_MAX_ACTIVE`] reads of [`VDEV_AGGREGATION_LIMIT`] bytes for each device, since
//! OpenZFS joins neighbours into reads of that size. While a reader waits for a device, it is
//! [`VDEV_ASYNC_READ_MIN_ACTIVE`] reads.
//!
//! Threads are started when there is work, and end after an idle time.
//!
//! # Life
//! Closed before its pool releases its devices ([`PrefetchWorkers::close`]): nothing is read
//! afterwards.
//!
//! # Locks
//! One, held to take a read and to record its end, never across a read.

use crate::tunables::{VDEV_AGGREGATION_LIMIT, VDEV_ASYNC_READ_MAX_ACTIVE, VDEV_ASYNC_READ_MIN_ACTIVE};
use observe::Counter;
use observe::lock::{Condvar, Mutex};
use observe::work::{self, Job, Task};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Most threads that read ahead for one pool.
const THREADS_MAX: usize = 32;
/// Most runs that may wait.
const RUNS_MAX: usize = 1024;
/// How long a thread waits for work.
const IDLE: Duration = Duration::from_secs(5);

/// Counters of prefetch (`zfetchstats`), of all pools that share memory.
#[derive(Debug, Default)]
pub struct Zfetch {
    /// Reads at an expected place (`hits`).
    pub hits: Counter,
    /// Reads ahead of an expected place, which are remembered (`future`).
    pub future: Counter,
    /// Reads that skipped some blocks, or go in steps (`stride`).
    pub stride: Counter,
    /// Reads behind an expected place (`past`).
    pub past: Counter,
    /// Reads at an unexpected place (`misses`).
    pub misses: Counter,
    /// Reads that would have begun a stream, had there not been too many (`max_streams`).
    pub max_streams: Counter,
    /// Blocks that were requested ahead (`io_issued`).
    pub io_issued: Counter,
    /// Of these, the blocks whose reads have ended.
    pub(crate) io_done: Counter,
    /// Of these, the blocks that were not read for lack of memory; OpenZFS has no such counter.
    pub throttled: Counter,
}

impl Zfetch {
    /// Blocks that are still to be read ahead (`io_active`).
    pub fn io_active(&self) -> u64 {
        let done = self.io_done.get();
        self.io_issued.get().saturating_sub(done)
    }
}

/// Reads blocks ahead that a predictor expects (`zfetch_t`).
pub trait PrefetchTarget: Send + Sync {
    /// Reads a block into the cache, if it is not there. A failure is ignored: the reader that
    /// needs the block meets it again.
    fn read_ahead(&self, level: u8, blkid: u64);
}

/// Blocks of one level of one object, at even distances.
pub struct Run {
    /// Reads them.
    pub of: Arc<dyn PrefetchTarget>,
    /// Their level.
    pub level: u8,
    /// Number of the next one.
    pub next: u64,
    /// Distance from one to the next.
    pub step: i64,
    /// Number of blocks.
    pub count: u64,
    /// Bytes of one block.
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
    /// No read is under way any more.
    quiet: Condvar,
    /// Devices that share the work; 0 if nothing is read ahead.
    devices: AtomicU64,
    /// Readers that wait for devices.
    demand: AtomicUsize,
    /// A read could begin once no reader waits.
    held_back: AtomicBool,
    counters: Arc<Zfetch>,
    name: u32,
}

/// The prefetch threads of a pool; see the module.
pub(crate) struct PrefetchWorkers(Arc<Inner>);

impl PrefetchWorkers {
    pub(crate) fn new(name: u32, counters: Arc<Zfetch>) -> PrefetchWorkers {
        PrefetchWorkers(Arc::new(Inner {
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

    /// Reads ahead from now on, from so many devices.
    pub(crate) fn begin(&self, devices: u64) {
        self.0.devices.store(devices, Ordering::Relaxed);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.0.devices.load(Ordering::Relaxed) > 0
    }

    /// Queues a run; returns false if there is too much work already, or nothing is read ahead.
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

    /// Marks a reader as waiting for a device, until the returned value is dropped.
    pub(crate) fn demand(&self) -> Demand<'_> {
        self.0.demand.fetch_add(1, Ordering::SeqCst);
        Demand(&self.0)
    }

    /// Stops reading ahead.
    pub(crate) fn shut(&self) {
        let mut s = self.0.state.lock();
        s.closed = true;
        let runs = std::mem::take(&mut s.runs);
        drop(s);
        self.0.work.notify_all();
        self.0.counters.io_done.add(runs.iter().map(|run| run.count).sum());
    }

    /// Stops reading ahead, and waits for the reads under way.
    pub(crate) fn close(&self) {
        self.shut();
        let mut s = self.0.state.lock();
        while s.active > 0 {
            self.0.quiet.wait(&mut s);
        }
    }
}

impl Drop for PrefetchWorkers {
    fn drop(&mut self) {
        // This may run on one of its own threads, with the last reference to the cache. So it waits
        // for no thread.
        self.shut();
    }
}

/// See [`PrefetchWorkers::demand`].
pub(crate) struct Demand<'a>(&'a Arc<Inner>);

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        let last = self.0.demand.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.0.held_back.swap(false, Ordering::SeqCst) {
            // A thread that is woken wakes the next.
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
        // Set before the check, so that the last waiting reader sees it.
        self.held_back.store(true, Ordering::SeqCst);
        self.demand.load(Ordering::SeqCst) == 0
    }

    /// Wakes or starts a thread if there is a read that may begin.
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
            // If no thread can be started nothing is read ahead, which costs only time.
            if thread.spawn(move || inner.serve()).is_ok() {
                s.threads += 1;
            }
        }
    }

    /// The next read, in turns; `None` if none may begin.
    fn take(&self, s: &mut State) -> Option<(Arc<dyn PrefetchTarget>, u8, u64, u64)> {
        let bytes = s.runs.front()?.bytes;
        if !self.may_read(s, bytes) {
            return None;
        }
        let mut run = s.runs.pop_front()?;
        let read = (Arc::clone(&run.of), run.level, run.next, run.bytes);
        run.count -= 1;
        // The positions of a run were computed without overflow.
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
                // Counted however the read ends, so that no thread waits for a read that is over.
                let active = Active { inner: &self, bytes };
                let _running = work::begin(Job::task(Task::Prefetch, 0));
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
