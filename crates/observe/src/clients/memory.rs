//! The clients that a thread of this program served last.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Client;

/// How many clients a thread remembers.
pub const REMEMBERED: usize = 32;
/// So many nanoseconds after the begin of a client's thread was read, its number is still its own.
const VALID_NS: u64 = 1_000_000_000;

/// A thread of a client, as it was looked up.
#[derive(Debug)]
pub(super) struct Seen {
    client: Arc<Client>,
    /// When the thread began, in clock ticks after the system. 0: unknown.
    start: u64,
    /// When that was read last, by [`crate::op::BEGAN`].
    verified: AtomicU64,
}

impl Seen {
    pub(super) fn new(client: Arc<Client>, start: u64, now: u64) -> Self {
        Self { client, start, verified: AtomicU64::new(now) }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether an operation that began at this time is one of this client, which has counters.
    pub(super) fn is_still(&self, began: u64) -> bool {
        began <= self.verified.load(Relaxed).saturating_add(VALID_NS) && !self.client.is_retired()
    }

    /// Notes that the thread with the same number began at `start`. Returns whether it is this one.
    pub(super) fn again(&self, start: u64, now: u64) -> bool {
        let is_same = self.start == start;
        if is_same {
            self.verified.store(now, Relaxed);
        }
        is_same
    }
}

/// A thread of a client with its user, and what was seen of it.
type Slot = RefCell<Option<((u32, u32), Arc<Seen>)>>;

/// What a thread remembers.
#[derive(Default)]
pub(super) struct Memory([Slot; REMEMBERED]);

impl Memory {
    /// Calls `work` with what is remembered of a client's thread, and remembers what it returns.
    pub(super) fn with(&self, of: (u32, u32), work: impl FnOnce(Option<&Seen>) -> Option<Arc<Seen>>) {
        let mut slot = self.0[of.0 as usize % REMEMBERED].borrow_mut();
        let known = slot.as_ref().filter(|(known, _)| *known == of);
        if let Some(seen) = work(known.map(|(_, seen)| &**seen)) {
            *slot = Some((of, seen));
        }
    }
}

thread_local! {
    static MINE: Memory = Memory::default();
}

/// Calls `work` with the memory of this thread; with an empty one if it ends.
pub(super) fn mine(work: impl Fn(&Memory)) {
    if MINE.try_with(&work).is_err() {
        work(&Memory::default());
    }
}
