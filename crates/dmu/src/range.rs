//! Locks of byte ranges of one object (`zfs_rangelock`).
//!
//! # Theory
//! Readers and writers lock the bytes that they use, so that a reader sees each write whole or not
//! at all. A writer has its range alone; readers share. A request never overtakes an earlier one
//! that conflicts with it, so none starves.
//!
//! # Locks
//! One mutex, held while the locked and wanted ranges are compared. A thread locks its range before
//! it takes a transaction.

use observe::lock::{Condvar, Mutex};
use observe::work::{self, Wait};

/// Locked and wanted ranges, in the order of their requests (`zfs_rangelock_t`).
#[derive(Default)]
pub struct RangeLocks {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    claims: Vec<Claim>,
    waiting: usize,
}

struct Claim {
    id: u64,
    start: u64,
    end: u64,
    write: bool,
}

/// A locked range, until it is dropped (`zfs_locked_range_t`).
#[must_use]
pub struct RangeGuard<'a> {
    ranges: &'a RangeLocks,
    id: u64,
}

impl std::fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RangeLocks({})", self.state.lock().claims.len())
    }
}

impl RangeLocks {
    /// Locks `start..end` (`zfs_rangelock_enter`).
    ///
    /// With `write`, the call waits for all earlier requests that overlap. Without, it waits only
    /// for writers.
    pub fn lock(&self, start: u64, end: u64, write: bool) -> RangeGuard<'_> {
        let mut s = self.state.lock();
        let id = s.next;
        s.next += 1;
        s.claims.push(Claim { id, start, end, write });
        let blocked = |s: &State| {
            let meets = |c: &Claim| c.start < end && start < c.end && (c.write || write);
            s.claims.iter().any(|c| c.id < id && meets(c))
        };
        while blocked(&s) {
            s.waiting += 1;
            let _waiting = work::wait(Wait::Lock, 0);
            self.freed.wait(&mut s);
            s.waiting -= 1;
        }
        RangeGuard { ranges: self, id }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut s = self.ranges.state.lock();
        s.claims.retain(|c| c.id != self.id);
        if s.waiting > 0 {
            self.ranges.freed.notify_all();
        }
    }
}
