//! Background requests yield to foreground I/O.
//!
//! # Theory
//! A scrub, a resilver or the initialisation of a device keeps devices busy for a long time. A
//! caller that reads meanwhile would wait behind it each time. So each leaf counts the operations
//! of the *foreground*: of requests without a pace. A request of the *background* has a pace
//! ([`crate::Request::paced`]), and each of its operations waits for its turn:
//!
//! - While there are no foreground operations, it does not wait.
//! - After foreground operations, it waits until there have been none for as long as its own last
//!   operation took. More frequent ones would conflict with it. Then it continues, with short
//!   operations first.
//! - While foreground operations keep coming, it has one part in [`SHARE`] of the device's time,
//!   one operation at a time. So it makes progress however busy the device is, and a reader meets
//!   it only now and then.
//! - It does not wait while a caller waits for it ([`Pace::new`]).
//!
//! All of this is measured by the time that operations take. So it suits disks with and without a
//! seek time.
//!
//! # Locks
//! Each leaf's lock is held for a few instructions, never while a thread waits. The foreground
//! takes no lock: it counts.
//!
//! # Absent
//! Queues, and an order within them: the system has those. Shares among background requests.
//!
//! # See
//! OpenZFS `vdev_queue.c` (`zfs_vdev_nia_delay`, `zfs_vdev_nia_credit`,
//! `zfs_vdev_scrub_min_active`), which counts operations instead of time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use device::Clock;
use observe::Counter;
use observe::lock::Mutex;
use observe::work::{self, Wait};

use crate::stats::Turn;

/// The background has one part in so many of a device's time while foreground operations keep
/// coming.
const SHARE: u64 = 7;
/// Longest wait, in nanoseconds, that follows from the last operation's time. So the background
/// also makes progress where operations wait long in a device's queue.
const PATIENCE_NS: u64 = 200_000_000;
/// Least and most time, in nanoseconds, without foreground operations before the background
/// continues.
const WINDOW_NS: (u64, u64) = (500_000, 20_000_000);
/// Longest time, in nanoseconds, until the background notices that it has its turn, or that a
/// caller waits for it.
const STEP_NS: u64 = 5_000_000;
/// Bytes of an operation after recent foreground operations.
const SHORT: u64 = 1 << 20;
/// How often this size doubles while there are no foreground operations.
const DOUBLINGS: u32 = 2;
/// An operation must end within so many nanoseconds for the next to be longer. A foreground
/// operation that comes meanwhile waits for that long.
const QUICK_NS: u64 = 10_000_000;

/// How requests of the background yield; clones share it.
#[derive(Clone)]
pub struct Pace(Arc<Rules>);

struct Rules {
    clock: Arc<dyn Clock>,
    hurries: Box<dyn Fn() -> bool + Send + Sync>,
    waited_ns: Arc<Counter>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("waited_ns", &self.0.waited_ns).finish_non_exhaustive()
    }
}

impl Pace {
    /// A pace by this clock. While `hurries` returns true, requests do not yield: a caller waits
    /// for them, or they are to end.
    ///
    /// `waited_ns` adds up how long operations waited, in nanoseconds.
    pub fn new(
        clock: Arc<dyn Clock>,
        waited_ns: Arc<Counter>,
        hurries: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Rules { clock, waited_ns, hurries: Box::new(hurries) }))
    }

    /// The same pace, which also hurries while `hurries` returns true.
    #[must_use]
    pub(crate) fn hurried_by(&self, hurries: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let Rules { clock, waited_ns, .. } = &*self.0;
        let before = self.clone();
        Self::new(Arc::clone(clock), Arc::clone(waited_ns), move || (before.0.hurries)() || hurries())
    }
}

/// Operations of the foreground on a leaf; on a cache line of its own, since all threads write it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ForegroundOps {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The operations of a leaf, and which of them go first.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    asked: ForegroundOps,
    background: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// No foreground operation is in the way, nor was while this many have begun.
    clear: Option<u64>,
    /// Time of the last operation.
    took_ns: u64,
    /// When the next operation has its turn, whatever else is under way.
    due_ns: u64,
    /// How often the size of operations was doubled.
    doublings: u32,
}

/// An operation of the foreground, until this is dropped.
struct ForegroundOp<'a>(&'a ForegroundOps);

impl Drop for ForegroundOp<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

impl ForegroundOps {
    /// How many have begun, and whether all of these have ended.
    fn look(&self) -> (u64, bool) {
        // In this order: an operation that begins in between is seen.
        let ended = self.ended.load(Relaxed);
        let begun = self.begun.load(Relaxed);
        (begun, ended == begun)
    }
}

impl State {
    /// Whether no foreground operation is in the way, and none was since that was last known.
    fn is_clear(&self, asked: &ForegroundOps) -> bool {
        let (begun, ended) = asked.look();
        ended && self.clear == Some(begun)
    }

    fn disturbed(&mut self) {
        (self.clear, self.doublings) = (None, 0);
    }
}

impl Precedence {
    /// Does an operation of the foreground, at once.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        self.run_part(None, 0, |_| work())
    }

    /// Does an operation: without a pace at once, of the background when it has its turn. It gets
    /// as many of these bytes as it may have: all of them in the foreground.
    pub(crate) fn run_part<T>(&self, pace: Option<&Pace>, bytes: u64, work: impl FnOnce(Turn) -> T) -> T {
        let Some(Pace(manner)) = pace else {
            self.asked.begun.fetch_add(1, Relaxed);
            let _one = ForegroundOp(&self.asked);
            return work(Turn { bytes, waited_ns: None });
        };
        let waited_ns = Some(self.wait(manner));
        let most = self.stride();
        let (begun, ended) = self.asked.look();
        let from = manner.clock.now_ns();
        let out = work(Turn { bytes: bytes.min(most), waited_ns });
        let now = manner.clock.now_ns();
        let state = &mut *self.background.lock();
        state.took_ns = now.saturating_sub(from);
        state.due_ns = now.saturating_add(state.took_ns.saturating_mul(SHARE - 1).min(PATIENCE_NS));
        if !ended || self.asked.look() != (begun, true) {
            state.disturbed();
        } else if state.clear == Some(begun) || state.took_ns >= WINDOW_NS.0 {
            // The device was observed for as long as the operation took.
            state.clear = Some(begun);
            // Shorter operations say nothing about the time of a longer one.
            if bytes >= most && state.took_ns < QUICK_NS {
                state.doublings = (state.doublings + 1).min(DOUBLINGS);
            }
        }
        out
    }

    /// Most bytes of the next operation of the background.
    fn stride(&self) -> u64 {
        let state = self.background.lock();
        SHORT << if state.is_clear(&self.asked) { state.doublings } else { 0 }
    }

    /// Waits for the turn of the background. Returns for how many nanoseconds.
    fn wait(&self, manner: &Rules) -> u64 {
        let clock = &manner.clock;
        // Since when there is no operation under way, and how many had begun by then.
        let mut still: Option<(u64, u64)> = None;
        let mut began = None;
        let mut waiting = None;
        while !(manner.hurries)() {
            let now = clock.now_ns();
            let until = {
                let state = &mut *self.background.lock();
                if state.is_clear(&self.asked) {
                    break;
                }
                let (begun, ended) = self.asked.look();
                let window = state.took_ns.clamp(WINDOW_NS.0, WINDOW_NS.1);
                still = match still {
                    _ if !ended => None,
                    Some((from, was)) if was == begun => Some((from, was)),
                    _ => Some((now, begun)),
                };
                if still.is_some_and(|(from, _)| now >= from.saturating_add(window)) {
                    state.clear = Some(begun);
                    break;
                }
                state.disturbed();
                // The clock may have changed: with another one `due_ns` might be far ahead.
                state.due_ns = state.due_ns.min(now.saturating_add(PATIENCE_NS));
                if now >= state.due_ns {
                    // Another background request waits until this is over, and then for its turn.
                    state.due_ns = now.saturating_add(PATIENCE_NS);
                    break;
                }
                still.map_or(state.due_ns, |(from, _)| state.due_ns.min(from.saturating_add(window)))
            };
            began.get_or_insert(now);
            waiting.get_or_insert_with(|| work::wait(Wait::Pace, 0));
            clock.sleep_until(until.min(now.saturating_add(STEP_NS)));
        }
        let waited_ns = began.map_or(0, |began| clock.now_ns().saturating_sub(began));
        manner.waited_ns.add(waited_ns);
        waited_ns
    }
}

#[cfg(test)]
mod tests;
