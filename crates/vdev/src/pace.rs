//! Background requests yield to foreground I/O.
//!
//! # Theory
//! A scrub, a resilver or the initialisation of a device keeps devices busy for as long as it
//! takes. A caller that reads meanwhile would wait behind it each time. So each leaf counts the
//! operations of the *foreground*: of requests without a pace. A request of the *background* has
//! one ([`crate::Request::paced`]), and takes its turn for each operation:
//!
//! - While nobody else asks, there is nothing to wait for.
//! - When somebody has asked, it waits until nobody has for as long as its own last operation took: who comes more often would be in its way, and it in his. Then it goes on, with short
//!   operations first.
//! - While somebody asks again and again, it has one part in [`SHARE`] of the device's time, by one operation at a time. So it gets on however busy the device is, and who reads meets it
//!   now and then.
//! - It waits for nothing while somebody waits for itself ([`Pace::new`]).
//!
//! All of this goes by what operations take, and so is the same for a disk with a head and for one without.
//!
//! # Locks
//! Each leaf's one is held for a few instructions, never while anybody waits. The foreground takes none: it counts.
//!
//! # Absent
//! Queues, and an order of what is in them: the system has those. Shares between those in the background.
//!
//! # See
//! OpenZFS `vdev_queue.c` (`zfs_vdev_nia_delay`, `zfs_vdev_nia_credit`, `zfs_vdev_scrub_min_active`), which goes by numbers of operations instead.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use device::Clock;
use observe::Counter;
use parking_lot::Mutex;

/// One part in so many of a device's time is the background's while somebody asks again and again.
const SHARE: u64 = 7;
/// Longest that it is kept waiting by what its own last operation took, nanoseconds: who waits in a device's queue behind others gets on too.
const PATIENCE_NS: u64 = 200_000_000;
/// Least and most time, in nanoseconds, for which nobody has to ask so that it goes on.
const WINDOW_NS: (u64, u64) = (500_000, 20_000_000);
/// Longest that it doesn't notice that it has its turn, or is waited for, nanoseconds.
const STEP_NS: u64 = 5_000_000;
/// Bytes of an operation when somebody has asked of late.
const SHORT: u64 = 1 << 20;
/// How often they are doubled while nobody asks.
const DOUBLINGS: u32 = 2;
/// Nanoseconds within which an operation must be done for the next to be longer, for which whoever comes then waits.
const QUICK_NS: u64 = 10_000_000;

/// How requests of the background yield; clones share it.
#[derive(Clone)]
pub struct Pace(Arc<Manner>);

struct Manner {
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
    /// A pace by this clock. While `hurries` is true, requests yield to nobody: a caller waits for
    /// them, or they are to end. `waited_ns` adds up how long operations waited, in nanoseconds.
    pub fn new(
        clock: Arc<dyn Clock>,
        waited_ns: Arc<Counter>,
        hurries: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Manner { clock, waited_ns, hurries: Box::new(hurries) }))
    }
}

/// Operations of the foreground on a leaf; on a line of its own, since it is written by everybody.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Asked {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What is asked of a leaf, and who goes first.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    asked: Asked,
    background: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Nobody is in the way, nor will have been while this many have begun.
    clear: Option<u64>,
    /// What the last operation took.
    took_ns: u64,
    /// When the next one has its turn, whoever is in the way.
    due_ns: u64,
    /// How often operations were doubled.
    doublings: u32,
}

/// An operation of the foreground, until this is dropped.
struct One<'a>(&'a Asked);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

impl Asked {
    /// How many have begun, and whether all of these have ended.
    fn look(&self) -> (u64, bool) {
        // In this order: who begins in between is seen.
        let ended = self.ended.load(Relaxed);
        let begun = self.begun.load(Relaxed);
        (begun, ended == begun)
    }
}

impl State {
    /// Whether nobody is in the way, and nobody was since that was last known.
    fn is_clear(&self, asked: &Asked) -> bool {
        let (begun, ended) = asked.look();
        ended && self.clear == Some(begun)
    }

    fn disturbed(&mut self) {
        (self.clear, self.doublings) = (None, 0);
    }
}

impl Precedence {
    /// Does an operation: without a pace at once, of the background when it has its turn.
    pub(crate) fn run<T>(&self, pace: Option<&Pace>, work: impl FnOnce() -> T) -> T {
        self.run_part(pace, 0, |_| work())
    }

    /// The same with as many of these bytes as one operation may have: all of them in the foreground. `work` is told how many.
    pub(crate) fn run_part<T>(&self, pace: Option<&Pace>, bytes: u64, work: impl FnOnce(u64) -> T) -> T {
        let Some(Pace(manner)) = pace else {
            self.asked.begun.fetch_add(1, Relaxed);
            let _one = One(&self.asked);
            return work(bytes);
        };
        self.wait(manner);
        let most = self.stride();
        let (begun, ended) = self.asked.look();
        let from = manner.clock.now_ns();
        let out = work(bytes.min(most));
        let now = manner.clock.now_ns();
        let state = &mut *self.background.lock();
        state.took_ns = now.saturating_sub(from);
        state.due_ns = now.saturating_add(state.took_ns.saturating_mul(SHARE - 1).min(PATIENCE_NS));
        if !ended || self.asked.look() != (begun, true) {
            state.disturbed();
        } else if state.clear == Some(begun) || state.took_ns >= WINDOW_NS.0 {
            // It was watched meanwhile for as long as it took.
            state.clear = Some(begun);
            // Shorter ones say nothing of what a longer one would take.
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

    /// Waits for the turn of the background.
    fn wait(&self, manner: &Manner) {
        let clock = &manner.clock;
        // Since when how many had begun, none of which is under way.
        let mut still: Option<(u64, u64)> = None;
        let mut began = None;
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
                // By another clock it might be much later.
                state.due_ns = state.due_ns.min(now.saturating_add(PATIENCE_NS));
                if now >= state.due_ns {
                    // Another one waits until this is over, and then for its turn.
                    state.due_ns = now.saturating_add(PATIENCE_NS);
                    break;
                }
                still.map_or(state.due_ns, |(from, _)| state.due_ns.min(from.saturating_add(window)))
            };
            began.get_or_insert(now);
            clock.sleep_until(until.min(now.saturating_add(STEP_NS)));
        }
        if let Some(began) = began {
            manner.waited_ns.add(clock.now_ns().saturating_sub(began));
        }
    }
}

#[cfg(test)]
mod tests;
