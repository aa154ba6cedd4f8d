//! Looks what threads do, 99 times a second, while a session wants to know.
//!
//! # Theory
//! Threads say what they work on and wait for anyway ([`work`]), so a look at all of them takes
//! microseconds, and no thread notices it. A number that is no divisor of a second does not fall in
//! step with work that repeats each hundredth of one.
//!
//! # See
//! Oracle's active session history; DTrace's `profile-97`.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

use super::expire;
use crate::event::{self, SAMPLE, Sample};
use crate::work;

/// Looks in a second.
pub(super) const RATE: u32 = 99;

/// Whether the thread runs.
static RUNS: Mutex<bool> = Mutex::new(false);

/// Starts the thread, unless it runs.
///
/// # Errors
/// The system has no more threads.
pub(super) fn start() -> std::io::Result<()> {
    let mut runs = RUNS.lock();
    if !*runs {
        std::thread::Builder::new().name("sampler".to_owned()).spawn(run)?;
        *runs = true;
    }
    Ok(())
}

/// Whether the thread runs.
#[cfg(test)]
pub(super) fn is_running() -> bool {
    *RUNS.lock()
}

/// Looks until no session wants it.
fn run() {
    let pause = Duration::from_secs(1) / RATE;
    let mut next = Instant::now();
    for look in 1u32.. {
        if look.is_multiple_of(RATE) {
            // Without a thread at work, no event finds out that a reader is gone.
            expire();
        }
        if !SAMPLE.is_wanted() {
            let mut runs = RUNS.lock();
            if !SAMPLE.is_wanted() {
                *runs = false;
                return;
            }
        }
        work::visit(|seen| {
            let work::Seen { wait, what, ns, tid } = seen;
            event::sample(|| Sample { wait, what, ns, thread: tid.into() });
        });
        next += pause;
        let now = Instant::now();
        // After a stop of the machine, it does not catch up.
        next = next.max(now);
        std::thread::sleep(next - now);
    }
}
