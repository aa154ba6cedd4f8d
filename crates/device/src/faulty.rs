//! A device that fails on purpose.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Device, DeviceError, Op, Result};

/// One way in which a [`Faulty`] device fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Every operation of this kind that touches the range is an error.
    Error {
        /// The kind of operation.
        op: Op,
        /// The bytes affected.
        range: Range<u64>,
    },
    /// Reads of the range return wrong bytes and no error; which, follows from the position alone.
    Corrupt {
        /// The bytes affected.
        range: Range<u64>,
    },
    /// One in `one_in` operations of this kind is an error, by the device's own random sequence.
    Rate {
        /// The kind of operation.
        op: Op,
        /// How rare.
        one_in: u32,
    },
}

#[derive(Debug)]
struct State {
    faults: Vec<Fault>,
    rng: u64,
}

/// A device that fails where and when it is told to, repeatably: with one thread, the same seed gives the
/// same failures.
pub struct Faulty {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

impl Faulty {
    /// Wraps `inner`, healthy so far.
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Self {
        Self { inner, state: Mutex::new(State { faults: Vec::new(), rng: seed }) }
    }

    /// Adds a way to fail.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Healthy again.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    fn gate(&self, asked: Op, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let State { faults, rng } = &mut *state;
        let hit = faults.iter().any(|fault| match fault {
            Fault::Error { op, range } => {
                *op == asked && (asked == Op::Flush || (offset < range.end && range.start < offset + len))
            }
            Fault::Rate { op, one_in } => *op == asked && split_mix(rng).is_multiple_of(u64::from(*one_in)),
            Fault::Corrupt { .. } => false,
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

impl Device for Faulty {
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
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.gate(Op::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.gate(Op::Trim, offset, len)?;
        self.inner.trim(offset, len)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn logical_sector(&self) -> u32 {
        self.inner.logical_sector()
    }

    fn physical_sector(&self) -> u32 {
        self.inner.physical_sector()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}
