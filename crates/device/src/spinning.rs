//! A disk with one head, on which a seek has a cost.

use std::sync::Arc;

use observe::lock::Mutex;

use crate::wrapper::Wrapper;
use crate::{Clock, Device, Result};

/// Position of the head, and the time until which it is busy.
#[derive(Debug, Default)]
struct Head {
    at: u64,
    free_ns: u64,
    /// Totals of reads, and of writes.
    efforts: [Effort; 2],
}

/// Totals of a disk's reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Nanoseconds for which the disk was busy.
    pub busy_ns: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Number of operations that did not begin at the end of the previous one.
    pub seeks: u64,
}

/// A device that does one operation after another, in the order of their arrival.
///
/// An operation takes the time of its bytes. It also takes a seek if it does not begin at the end
/// of the previous one.
pub struct Spinning {
    inner: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
    bytes_per_second: u64,
    seek_ns: u64,
    head: Mutex<Head>,
}

impl Spinning {
    /// Gives `inner` a head that transfers `bytes_per_second` bytes (at least one) and seeks in
    /// `seek_ns`.
    pub fn new(inner: Arc<dyn Device>, clock: Arc<dyn Clock>, bytes_per_second: u64, seek_ns: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self { inner, clock, bytes_per_second, seek_ns, head: Mutex::default() }
    }

    /// Totals since the last call: of reads, and of writes.
    pub fn take_efforts(&self) -> [Effort; 2] {
        std::mem::take(&mut self.head.lock().efforts)
    }

    /// Nanoseconds that a transfer of `bytes` bytes takes without a seek.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second))
            .unwrap_or(u64::MAX)
    }

    /// Uses the head for an operation, and returns when the operation is done.
    fn wait<T>(&self, offset: u64, bytes: u64, writes: bool, work: impl FnOnce() -> T) -> T {
        let until = {
            let mut head = self.head.lock();
            let seeks = head.at != offset;
            let cost = self.transfer_ns(bytes) + if seeks { self.seek_ns } else { 0 };
            head.at = offset.saturating_add(bytes);
            head.free_ns = head.free_ns.max(self.clock.now_ns()).saturating_add(cost);
            let effort = &mut head.efforts[usize::from(writes)];
            effort.busy_ns = effort.busy_ns.saturating_add(cost);
            effort.bytes += bytes;
            effort.seeks += u64::from(seeks);
            head.free_ns
        };
        let out = work();
        self.clock.sleep_until(until);
        out
    }
}

impl Wrapper for Spinning {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.wait(offset, buf.len() as u64, false, || self.inner.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.wait(offset, buf.len() as u64, true, || self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = bufs.iter().map(|b| b.len() as u64).sum();
        self.wait(offset, bytes, true, || self.inner.write_vectored_at(bufs, offset))
    }

    fn flush(&self) -> Result<()> {
        let free = self.head.lock().free_ns;
        let out = self.inner.flush();
        self.clock.sleep_until(free);
        out
    }
}
