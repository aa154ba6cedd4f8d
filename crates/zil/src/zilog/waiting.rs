//! Those who wait for a chain: each for his own take, and one at most for his turn to fill blocks.
//!
//! A thousand may wait for one device. All of them asking again with every block that comes down would cost more than the writing, so each is woken
//! when his take is durable or can't be any more, and of those whose take is still to be written one: the leader, who fills blocks for all.

use super::chain::Chain;
use parking_lot::MutexGuard;
use std::thread::{self, Thread};
use std::time::Duration;

/// See the module. A thread that is woken too often asks again, so that one too many does no harm.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Who waits for which take.
    threads: Vec<(u64, Thread)>,
    /// Somebody fills blocks, or is about to.
    led: bool,
    /// He waits until it is time.
    leader: Option<Thread>,
}

impl Waiting {
    /// Whether somebody fills blocks, or is about to: what was logged before he takes it will be written by him.
    pub(super) fn is_led(&self) -> bool {
        self.led
    }

    /// The caller is the one now.
    pub(super) fn lead(&mut self) {
        self.led = true;
    }

    /// He is no more, and with the next [`Chain::wake`] it is another's turn.
    pub(super) fn follow(&mut self) {
        self.led = false;
    }

    /// Waits until a take may be durable, or it may be the caller's turn.
    pub(super) fn wait(chain: &mut MutexGuard<'_, Chain>, take: u64) {
        let this = thread::current();
        let id = this.id();
        chain.waiting.threads.push((take, this));
        MutexGuard::unlocked(chain, thread::park);
        chain.waiting.threads.retain(|(_, thread)| thread.id() != id);
    }

    /// The leader waits: at most as long as is said, or else until blocks come down.
    pub(super) fn wait_to_lead(chain: &mut MutexGuard<'_, Chain>, most: Option<Duration>) {
        chain.waiting.leader = Some(thread::current());
        MutexGuard::unlocked(chain, || match most {
            Some(time) => thread::park_timeout(time),
            None => thread::park(),
        });
        chain.waiting.leader = None;
    }

    /// Takes those out who are to be woken: who waits for takes up to `done`, the leader, and while there is none one of those whose take is behind `taken`.
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
