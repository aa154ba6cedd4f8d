//! A device with a latency.

use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};

use crate::wrapper::Wrapper;
use crate::{Device, Result};

/// The time of a [`Slow`] device. The caller passes it, so that a test need not wait.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;
    /// Returns when [`now_ns`](Self::now_ns) has reached `deadline_ns`.
    fn sleep_until(&self, deadline_ns: u64);
}

/// The system's time: a waiting thread sleeps.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, deadline_ns: u64) {
        let left = deadline_ns.saturating_sub(self.now_ns());
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left));
        }
    }
}

/// A device whose operations each take a fixed time, several at once, as on a remote disk.
pub struct Slow {
    inner: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    latency_ns: u64,
    reads_only: bool,
    free: Mutex<u32>,
    freed: Condvar,
}

impl Slow {
    /// Makes each operation on `inner` take `latency_ns`, with at most `in_flight` (at least one)
    /// at once.
    pub fn new(inner: Arc<dyn Device>, clock: Arc<dyn Clock>, latency_ns: u64, in_flight: u32) -> Self {
        let free = Mutex::new(in_flight.max(1));
        Self { inner, clock, latency_ns, reads_only: false, free, freed: Condvar::new() }
    }

    /// The same, but only reads wait: the device has a write cache.
    #[must_use]
    pub fn with_quick_writes(mut self) -> Self {
        self.reads_only = true;
        self
    }

    fn wait_to_write<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.reads_only { work() } else { self.wait(work) }
    }

    fn wait<T>(&self, work: impl FnOnce() -> T) -> T {
        {
            let mut free = self.free.lock();
            while *free == 0 {
                self.freed.wait(&mut free);
            }
            *free -= 1;
        }
        // The latency begins when the operation gets a slot, so that a full device queues.
        let deadline = self.clock.now_ns().saturating_add(self.latency_ns);
        let out = work();
        self.clock.sleep_until(deadline);
        *self.free.lock() += 1;
        self.freed.notify_one();
        out
    }
}

impl Wrapper for Slow {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.wait(|| self.inner.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.wait_to_write(|| self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        self.wait_to_write(|| self.inner.write_vectored_at(bufs, offset))
    }

    fn flush(&self) -> Result<()> {
        self.wait_to_write(|| self.inner.flush())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.wait_to_write(|| self.inner.trim(offset, len))
    }
}
