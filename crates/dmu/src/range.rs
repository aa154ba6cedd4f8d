//! Locks of byte ranges of one object (`zfs_rangelock`).
//!
//! # Theory
//! Whoever reads or writes bytes locks them first, so that each write is seen whole or not at all: writers alone, readers together. Nobody
//! overtakes whom he meets, so nobody starves.
//!
//! # Locks
//! One mutex, held for a look at the ranges that are locked or wanted. A range is locked before a transaction is taken.

use parking_lot::{Condvar, Mutex};

/// Locked and wanted ranges, in the order in which they were asked for.
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

/// A locked range, until it is dropped.
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
    /// Locks `start..end`, and waits for those who locked any of it before: with `write` for all, else for writers.
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
