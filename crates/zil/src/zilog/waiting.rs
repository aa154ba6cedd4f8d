//! The threads that wait for a chain: each for its own take, and at most one for its turn to fill
//! blocks.
//!
//! A thousand threads may wait for one device. If each block woke all of them, that would cost more
//! than the writing. So a thread wakes when its take is durable or is lost. Of the threads whose
//! take is still unwritten, one wakes: the leader, which fills blocks for all.

use super::chain::Chain;
use observe::lock::MutexGuard;
use observe::work::{self, Wait};
use std::thread::{self, Thread};
use std::time::Duration;

/// The waiting threads. A spurious wake-up is harmless, because a woken thread checks again.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The waiting threads, each with its take.
    threads: Vec<(u64, Thread)>,
    /// A thread fills blocks, or is about to.
    led: bool,
    /// The leader, while it waits for the right time.
    leader: Option<Thread>,
}

impl Waiting {
    /// True if a leader fills blocks, or is about to: it will write the records that were logged
    /// before it takes them.
    pub(super) fn is_led(&self) -> bool {
        self.led
    }

    /// Makes the caller the leader.
    pub(super) fn lead(&mut self) {
        self.led = true;
    }

    /// Ends the leader's turn. The next [`Chain::wake`] picks another.
    pub(super) fn follow(&mut self) {
        self.led = false;
    }

    /// Waits until a take may be durable, or the caller's turn may have come.
    pub(super) fn wait(chain: &mut MutexGuard<'_, Chain>, take: u64) {
        let this = thread::current();
        let id = this.id();
        chain.waiting.threads.push((take, this));
        let _waiting = work::wait(Wait::Log, 0);
        MutexGuard::unlocked(chain, thread::park);
        chain.waiting.threads.retain(|(_, thread)| thread.id() != id);
    }

    /// Makes the leader wait: at most for `most`, or until blocks land.
    pub(super) fn wait_to_lead(chain: &mut MutexGuard<'_, Chain>, most: Option<Duration>) {
        chain.waiting.leader = Some(thread::current());
        let _waiting = work::wait(Wait::Log, 0);
        MutexGuard::unlocked(chain, || match most {
            Some(time) => thread::park_timeout(time),
            None => thread::park(),
        });
        chain.waiting.leader = None;
    }

    /// Removes and returns the threads to wake: those that wait for takes up to `done`, and the
    /// leader. Without a leader, one thread whose take is after `taken`.
    pub(super) fn woken(&mut self, done: u64, taken: u64) -> Vec<Thread> {
        let mut woken: Vec<Thread> =
            self.threads.extract_if(.., |(take, _)| *take <= done).map(|(_, thread)| thread).collect();
        woken.extend(self.leader.take());
        if !self.led
            && let Some(at) = self.threads.iter().position(|(take, _)| *take > taken)
        {
            woken.push(self.threads.swap_remove(at).1);
        }
        woken
    }
}
