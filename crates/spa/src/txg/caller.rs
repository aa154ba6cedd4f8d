//! The program that a thread works for, and whether that is being killed.
//!
//! # Theory
//! A program that writes to a suspended pool waits for its answer in the kernel, and cannot die
//! before that comes. All threads that could read the kernel's message about it may wait too. So
//! the thread that waits for the pool polls whether its caller has been killed, and then gives up.
//! A fatal signal is pending as `SIGKILL` for each thread of a program, whatever the signal was.

use std::cell::Cell;
use std::time::Duration;

/// Interval at which a waiting thread polls.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// The bit of `SIGKILL` in a mask of signals.
const SIGKILL: u64 = 1 << 8;

thread_local! {
    static CALLER: Cell<u32> = const { Cell::new(0) };
}

/// The calling program is being killed, and waits only for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the program that asked is being killed")]
pub struct CallerKilled;

/// From now on this thread works for that thread of a program, by the system's number; 0 for none.
pub fn work_for(thread: u32) {
    CALLER.set(thread);
}

/// Whether this thread works for a program.
pub(super) fn is_known() -> bool {
    CALLER.get() != 0
}

/// Whether the thread that this one works for is being killed.
pub(super) fn is_killed() -> bool {
    let thread = CALLER.get();
    let status = (thread != 0).then(|| std::fs::read_to_string(format!("/proc/{thread}/status")));
    status.is_some_and(|status| status.is_ok_and(|text| has_kill(&text)))
}

/// Whether a thread's status shows the signal.
fn has_kill(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let mask = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use super::has_kill;

    /// Goal: the signal is read from its own line.
    #[test]
    fn a_pending_kill_is_read() {
        let status =
            |own: &str| format!("Name:\tcat\nSigQ:\t0/7\nSigPnd:\t{own}\nShdPnd:\t0000000000000100\n");
        assert!(has_kill(&status("0000000000000100")) && has_kill(&status("0000000000004102")));
        assert!(!has_kill(&status("0000000000004002")) && !has_kill("") && !has_kill("SigPnd:\tx\n"));
    }
}
