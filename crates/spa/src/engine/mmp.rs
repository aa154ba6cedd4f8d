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

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::Device;
use ondisk::label::{LABELS, MMP_BLOCKS_PER_LABEL, uberblock_count, uberblock_shift};
use ondisk::uberblock::Mmp;
use ondisk::{Ashift, Guid, Txg, Uberblock, VdevConfig};
use parking_lot::{Condvar, Mutex};
use vdev::label::LabelWriter;
use zio::Reason;

use crate::engine::Engine;

/// Time between the writes of one leaf (`zfs_multihost_interval`).
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals without a write after which the pool is suspended (`zfs_multihost_fail_intervals`).
const FAIL_INTERVALS: u16 = 10;

/// The next write, and the results of earlier ones.
#[derive(Debug)]
struct State {
    on: bool,
    suspended: bool,
    /// That of the last txg, with the time and sequence number of the last write.
    uberblock: Uberblock,
    seq: u16,
    /// Average time between two writes (`mmp_delay`).
    delay: Duration,
    last_write: Duration,
    /// A write is requested or under way.
    asked: bool,
    closing: bool,
}

/// The state of the heartbeat (`mmp_thread_t`). Times are since a fixed moment.
#[derive(Debug)]
pub(crate) struct Heart {
    state: Mutex<State>,
    wake: Condvar,
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

/// The threads of a pool's heartbeat; dropping it stops them.
pub(crate) struct Beating {
    engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Beating {
    pub(crate) fn start(pool: &str, engine: &Arc<Engine>) -> Beating {
        let thread = |name: &str, body: fn(&Engine)| {
            let engine = engine.clone();
            let builder = std::thread::Builder::new().name(format!("{name}/{pool}"));
            builder.spawn(move || body(&engine)).expect("a process that imports a pool can start a thread")
        };
        let threads =
            Mutex::new(vec![thread("mmp", Engine::keep_time), thread("mmp_write", Engine::write_beats)]);
        Beating { engine: engine.clone(), threads }
    }

    /// Stops the threads once the write under way has ended: other hosts may take the pool then.
    pub(crate) fn stop(&self) {
        self.engine.heart.state.lock().closing = true;
        self.engine.heart.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread that shows the pool to be in use has panicked");
            }
        }
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Engine {
    /// Time since a fixed moment, for the heartbeat.
    pub(crate) fn uptime(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    fn keep_time(&self) {
        loop {
            let suspension = self.cache.zio().suspension();
            let tick = self.heart.tick(suspension.reason().is_some(), self.uptime());
            if tick == Tick::Suspend {
                suspension.suspend(Reason::Mmp);
            }
            let leaves = self.beaten().len().max(1) as u32;
            let mut s = self.heart.state.lock();
            if s.closing {
                return;
            }
            if tick == Tick::Write && !s.asked {
                s.asked = true;
                self.heart.wake.notify_all();
            }
            match s.on {
                true => drop(self.heart.wake.wait_for(&mut s, INTERVAL / leaves)),
                false => self.heart.wake.wait(&mut s),
            }
        }
    }

    fn write_beats(&self) {
        let mut s = self.heart.state.lock();
        loop {
            if s.closing {
                return;
            }
            if !s.asked {
                self.heart.wake.wait(&mut s);
                continue;
            }
            drop(s);
            let good = self.beat();
            self.heart.done(good, self.beaten().len(), self.uptime());
            s = self.heart.state.lock();
            s.asked = false;
        }
    }

    /// The writable leaves, with their sector sizes.
    fn beaten(&self) -> Vec<(Guid, Arc<dyn Device>, Ashift)> {
        let config = self.synced.read().config.clone();
        let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
        let all = |top: &VdevConfig| {
            let shift = top.ashift.unwrap_or_default();
            self.leaves(top).into_iter().map(|(leaf, device)| (leaf.guid, device, shift)).collect::<Vec<_>>()
        };
        tops.flat_map(all).collect()
    }

    /// Writes to a random label of a random leaf; false if that failed (`mmp_write_uberblock`).
    pub(crate) fn beat(&self) -> bool {
        let leaves = self.beaten();
        if leaves.is_empty() {
            return false;
        }
        let (guid, device, ashift) = &leaves[(self.world.random() % leaves.len() as u64) as usize];
        let shift = uberblock_shift(*ashift);
        // The first of the slots that are reserved for MMP; there is one.
        let slot = uberblock_count(shift) - MMP_BLOCKS_PER_LABEL;
        let label = self.world.random() as usize % LABELS;
        let uberblock = self.heart.next(self.world.now());
        if LabelWriter::of(&**device, *guid).uberblock(label, shift, slot, &uberblock).is_err() {
            return false;
        }
        // Other hosts read what is on the device, so a failed flush counts as a failure of the
        // write too.
        let txg = Txg(uberblock.txg.0 + 1);
        self.tree().flush_leaf(*guid, txg).is_ok()
    }
}

#[cfg(test)]
mod tests;
