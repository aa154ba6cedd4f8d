//! Flushes of one device, shared by many callers.
//!
//! # Theory
//! A flush makes durable whatever was written before it began. So callers that come while one is
//! under way are all served by the next. However many callers wait, each waits for one flush at
//! most besides the one under way.
//!
//! Flushes run one after another. A system reports a failed write once, and later flushes succeed.
//! So the consequences of a flush are complete before the next begins, and every caller that it
//! served gets its result.
//!
//! # Locks
//! The one mutex is not held while the device is flushed.

use observe::lock::{Condvar, Mutex};

use super::flush::FlushError;

/// The outcome of a flush.
#[derive(Debug, Clone)]
pub(crate) enum FlushOutcome {
    /// All is durable.
    Durable,
    /// The device failed and was faulted: the pool can do without it.
    Faulted,
    /// The device failed, and the pool can't do without it.
    Lost(FlushError),
}

/// The flushes of a device; see the module.
#[derive(Debug, Default)]
pub(crate) struct SharedFlush {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Flushes that have begun; one of them may be under way.
    begun: u64,
    /// Whether a flush is under way.
    busy: bool,
    /// The last flush that failed, and its outcome.
    bad: Option<(u64, FlushOutcome)>,
    /// The callers that wait for the next.
    #[cfg(test)]
    waiting: usize,
}

impl SharedFlush {
    /// Flushes everything that was written before the call: with `flush`, or by the flush of
    /// another caller that begins later.
    pub(crate) fn take(&self, flush: impl FnOnce() -> FlushOutcome) -> FlushOutcome {
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
                // A later failure says nothing about what this flush served.
                return match &state.bad {
                    Some((at, bad)) if *at >= mine => bad.clone(),
                    _ => FlushOutcome::Durable,
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
        if !matches!(done, FlushOutcome::Durable) {
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
