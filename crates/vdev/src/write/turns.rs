//! Flushes of one device, which many may want at once.
//!
//! # Theory
//! A flush makes durable whatever was written before it began. So who wants one while another is under way is served by the next, together with all
//! who have come by then: however many wait, each waits for one flush at most besides the one under way. They are one after another, since a system
//! tells of what it could not write once, and whoever asks later is told that all is well: what follows from a flush is over before the next begins,
//! and everybody whom it served hears of it.
//!
//! # Locks
//! The one mutex is not held while the device is flushed.

use parking_lot::{Condvar, Mutex};

use super::flush::FlushError;

/// What came of a flush.
#[derive(Debug, Clone)]
pub(crate) enum Flushed {
    /// All is durable.
    Durable,
    /// The device failed, and was faulted for it: the pool can do without.
    Faulted,
    /// The device failed, and the pool can't do without it.
    Lost(FlushError),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Flushes that have begun; one of them may be under way.
    begun: u64,
    /// Whether one is.
    busy: bool,
    /// The last one that did not make everything durable, and what came of it.
    bad: Option<(u64, Flushed)>,
    /// Those who wait for the next.
    #[cfg(test)]
    waiting: usize,
}

impl Turns {
    /// Has everything flushed that was written before the call: by `flush`, or by somebody else's that begins after it.
    pub(crate) fn take(&self, flush: impl FnOnce() -> Flushed) -> Flushed {
        let mut state = self.state.lock();
        let mine = state.begun + 1;
        while state.busy {
            #[cfg(test)]
            {
                state.waiting += 1;
            }
            self.over.wait(&mut state);
            #[cfg(test)]
            {
                state.waiting -= 1;
            }
            let over = state.begun - u64::from(state.busy);
            if over >= mine {
                // A later one that failed proves nothing for what this one served.
                return match &state.bad {
                    Some((at, bad)) if *at >= mine => bad.clone(),
                    _ => Flushed::Durable,
                };
            }
        }
        state.begun += 1;
        state.busy = true;
        let this = state.begun;
        drop(state);
        let done = flush();
        let mut state = self.state.lock();
        state.busy = false;
        if !matches!(done, Flushed::Durable) {
            state.bad = Some((this, done.clone()));
        }
        drop(state);
        self.over.notify_all();
        done
    }

    /// How many wait for a flush that has not begun.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

#[cfg(test)]
mod tests;
