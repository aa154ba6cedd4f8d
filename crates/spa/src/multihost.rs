//! Multihost protection (MMP): showing other hosts that the pool is in use.
//!
//! # Theory
//! Before a host imports a pool with `multihost=on`, it watches the pool, and leaves it alone if
//! its uberblocks change ([`crate::import::mmp`]). So the owner writes the last uberblock again and
//! again, with a new time or sequence number. It goes into a reserved slot at the end of a random
//! label's ring. An owner whose writes fail for too long must stop, because another host may have
//! taken the pool by then. The pool is suspended.
//!
//! # Life
//! Two threads. One writes, which may take as long as the device does. The other is the timer: it
//! requests a write at each interval, and suspends the pool if none succeeded for too long. While
//! `multihost` is off both sleep.
//!
//! # Locks
//! One mutex, held for a few instructions, never during a write.
//!
//! # Absent
//! Parallel writes: a hung device prevents writes to the others, and so a pool may be suspended
//! that could go on.
//!
//! # See
//! OpenZFS `module/zfs/mmp.c`.

use std::time::Duration;

use observe::lock::{Condvar, Mutex};
use ondisk::Uberblock;
use ondisk::uberblock::Mmp;

/// Time between the writes of one leaf (`zfs_multihost_interval`).
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals without a write after which the pool is suspended (`zfs_multihost_fail_intervals`).
const FAIL_INTERVALS: u16 = 10;

/// The next write, and the results of earlier ones.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) on: bool,
    suspended: bool,
    /// That of the last txg, with the time and sequence number of the last write.
    uberblock: Uberblock,
    seq: u16,
    /// Average time between two writes (`mmp_delay`).
    delay: Duration,
    last_write: Duration,
    /// A write is requested or under way.
    pub(crate) asked: bool,
    pub(crate) closing: bool,
}

/// The state of the heartbeat (`mmp_thread_t`). Times are since a fixed moment.
#[derive(Debug)]
pub(crate) struct Heart {
    pub(crate) state: Mutex<State>,
    pub(crate) wake: Condvar,
}

/// What the timer must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Sleep until something changes.
    Idle,
    /// Request a write.
    Write,
    /// Suspend the pool.
    Suspend,
}

impl Heart {
    pub(crate) fn new(uberblock: Uberblock) -> Heart {
        let state = State {
            on: false,
            suspended: false,
            uberblock,
            seq: 1,
            delay: Duration::ZERO,
            last_write: Duration::ZERO,
            asked: false,
            closing: false,
        };
        Heart { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Turns protection on or off, and gives the MMP fields of the next uberblock.
    pub(crate) fn fields(&self, on: bool, now: Duration) -> Mmp {
        let mut s = self.state.lock();
        if on && !s.on {
            // No write can have succeeded yet.
            (s.last_write, s.delay) = (now, INTERVAL);
        }
        if on != s.on {
            s.on = on;
            self.wake.notify_all();
        }
        if on { fields(0, s.delay) } else { Mmp { delay_ns: 0, config: 0 } }
    }

    /// Notes that a txg has synced, which counts as a write (`mmp_update_uberblock`).
    pub(crate) fn synced(&self, uberblock: &Uberblock, leaves: usize, now: Duration) {
        let mut s = self.state.lock();
        (s.uberblock, s.seq) = (uberblock.clone(), 1);
        s.written(leaves, now);
    }

    /// What the timer must do `now`.
    pub(crate) fn tick(&self, suspended: bool, now: Duration) -> Tick {
        let mut s = self.state.lock();
        if s.suspended && !suspended {
            (s.last_write, s.delay) = (now, INTERVAL);
        }
        s.suspended = suspended;
        if !s.on || suspended {
            return Tick::Idle;
        }
        if now.saturating_sub(s.last_write) > INTERVAL * u32::from(FAIL_INTERVALS) {
            return Tick::Suspend;
        }
        Tick::Write
    }

    /// The uberblock to write at calendar time `time`.
    pub(crate) fn next(&self, time: u64) -> Uberblock {
        let mut s = self.state.lock();
        if s.uberblock.timestamp != time {
            // Sequence numbers distinguish writes of one second, and would otherwise wrap.
            (s.uberblock.timestamp, s.seq) = (time, 1);
        }
        let mmp = Some(fields(s.seq, s.delay));
        s.seq = s.seq.wrapping_add(1);
        s.uberblock.mmp = mmp;
        s.uberblock.clone()
    }

    /// Notes the end of a write.
    pub(crate) fn done(&self, good: bool, leaves: usize, now: Duration) {
        let mut s = self.state.lock();
        let delay = now.saturating_sub(s.last_write);
        s.delay = s.delay.max(delay);
        if good {
            s.written(leaves, now);
        }
    }

    /// The uberblock that was written last, if protection is on.
    pub(crate) fn last(&self) -> Option<Uberblock> {
        let s = self.state.lock();
        s.on.then(|| s.uberblock.clone())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.lock().on
    }
}

impl State {
    /// Notes a successful write (`mmp_delay_update`). A sudden delay counts at once, and decays
    /// slowly.
    fn written(&mut self, leaves: usize, now: Duration) {
        let delay = now.saturating_sub(self.last_write);
        self.last_write = now;
        if !self.on {
            self.delay = Duration::ZERO;
        } else if delay < self.delay {
            self.delay = ((delay + self.delay * 127) / 128).max(INTERVAL / leaves.max(1) as u32);
        } else {
            self.delay = delay;
        }
    }
}

/// The MMP fields of an uberblock: sequence number, interval and limit.
fn fields(seq: u16, delay: Duration) -> Mmp {
    let (interval, fails) = (INTERVAL.as_millis() as u64, u64::from(FAIL_INTERVALS));
    // All three fields are valid (the low bits).
    let config = 7 | interval << 8 | u64::from(seq) << 32 | fails << 48;
    // Zero means that protection is off.
    Mmp { delay_ns: (delay.as_nanos() as u64).max(1), config }
}

#[cfg(test)]
mod tests;
