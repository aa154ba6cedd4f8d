//! A device that fails on purpose.
//!
//! # Theory
//! An injected fault stays until the device is healed: errors, wrong bytes, or operations that do
//! not return. A *volatile* device keeps the old bytes of each write until the next flush. So it
//! can lose unflushed writes, as a disk does in a power failure.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use observe::lock::{Condvar, Mutex};

use crate::wrapper::Wrapper;
use crate::{Device, DeviceError, Op, Result};

/// A kind of failure of a [`Faulty`] device (`zinject_type_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Every operation of this kind that touches the range is an error.
    Error {
        /// The kind of operation.
        op: Op,
        /// The affected bytes.
        range: Range<u64>,
    },
    /// Reads of the range return wrong bytes and no error. The wrong bytes depend on the position
    /// alone.
    Corrupt {
        /// The affected bytes.
        range: Range<u64>,
    },
    /// One in `one_in` operations of this kind is an error, by the device's own random sequence.
    Rate {
        /// The kind of operation.
        op: Op,
        /// Reciprocal of the error rate.
        one_in: u32,
    },
    /// Writes and flushes with these numbers are errors; [`Faulty::count`] counts from the first.
    Numbered {
        /// The numbers.
        range: Range<u64>,
    },
    /// Every operation is an error.
    Gone,
    /// Every operation is an error, and the system no longer has the device.
    Pulled,
    /// No operation returns before the device is healed.
    Stalled,
}

#[derive(Debug)]
struct State {
    faults: Vec<Fault>,
    rng: u64,
    /// Number of writes and flushes so far, failed ones included.
    count: u64,
    /// Number of operations that are stalled.
    waiting: usize,
    /// Of a volatile device: offset and old bytes of each write since the last flush.
    undo: Option<Vec<(u64, Vec<u8>)>>,
}

/// A device that fails as requested, repeatably: with one thread, the same seed gives the same
/// failures.
pub struct Faulty {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
    healed: Condvar,
}

impl Faulty {
    /// Wraps `inner`, with no faults yet.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Self {
        let state = State { faults: Vec::new(), rng: seed, count: 0, waiting: 0, undo: None };
        Self { inner, state: Mutex::new(state), healed: Condvar::new() }
    }

    /// The same, but the device can lose unflushed writes ([`Faulty::lose`]).
    pub fn volatile(inner: Arc<dyn Device>, seed: u64) -> Self {
        let faulty = Self::new(inner, seed);
        faulty.state.lock().undo = Some(Vec::new());
        faulty
    }

    /// Number of writes and flushes so far, failed ones included.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Number of operations that wait until the device is healed.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Loses all writes since the last successful flush, as in a power failure.
    ///
    /// # Errors
    /// * [`DeviceError::ReadOnly`], [`DeviceError::Range`], [`DeviceError::Io`]: the wrapped device
    ///   does not take the old bytes.
    pub fn lose(&self) -> Result<()> {
        let lost = self.state.lock().undo.as_mut().map(std::mem::take).unwrap_or_default();
        lost.into_iter().rev().try_for_each(|(offset, bytes)| self.inner.write_at(&bytes, offset))
    }

    /// Adds a fault (`zinject`).
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all faults, and lets stalled operations continue.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
        self.healed.notify_all();
    }

    fn gate(&self, asked: Op, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.count;
        let counts = matches!(asked, Op::Write | Op::Flush);
        state.count += u64::from(counts);
        while state.faults.contains(&Fault::Stalled) {
            state.waiting += 1;
            self.healed.wait(&mut state);
            state.waiting -= 1;
        }
        let State { faults, rng, .. } = &mut *state;
        let hit = faults.iter().any(|fault| match fault {
            Fault::Error { op, range } => {
                *op == asked && (asked == Op::Flush || (offset < range.end && range.start < offset + len))
            }
            Fault::Rate { op, one_in } => *op == asked && split_mix(rng).is_multiple_of(u64::from(*one_in)),
            Fault::Numbered { range } => counts && range.contains(&number),
            Fault::Gone | Fault::Pulled => true,
            Fault::Corrupt { .. } | Fault::Stalled => false,
        });
        if hit {
            let device = self.inner.name().to_owned();
            let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            return Err(DeviceError::Io { op: asked, device, offset, len, source });
        }
        Ok(())
    }
}

/// The next number of the SplitMix64 sequence.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Wrapper for Faulty {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.gate(Op::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, offset)?;
        for fault in &self.state.lock().faults {
            if let Fault::Corrupt { range } = fault {
                let end = range.end.min(offset + buf.len() as u64);
                for pos in range.start.max(offset)..end {
                    let mut seed = pos;
                    // Never zero, so that each byte in the range is wrong.
                    buf[(pos - offset) as usize] ^= split_mix(&mut seed) as u8 | 1;
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.gate(Op::Write, offset, buf.len() as u64)?;
        let mut state = self.state.lock();
        let Some(undo) = &mut state.undo else {
            drop(state);
            return self.inner.write_at(buf, offset);
        };
        // The lock is held during I/O, so that the old bytes are recorded in the order of the
        // writes.
        let mut before = vec![0; buf.len()];
        self.inner.read_at(&mut before, offset)?;
        undo.push((offset, before));
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.gate(Op::Flush, 0, 0)?;
        self.inner.flush()?;
        if let Some(undo) = &mut self.state.lock().undo {
            undo.clear();
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.gate(Op::Trim, offset, len)?;
        self.inner.trim(offset, len)
    }

    fn is_gone(&self) -> bool {
        self.state.lock().faults.contains(&Fault::Pulled) || self.inner.is_gone()
    }
}
