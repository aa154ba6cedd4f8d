//! Ranges of space that are closed for a moment to writers of log blocks.
//!
//! # Theory
//! A rebuild copies a range of a vdev: it reads from one device and writes to another a moment
//! later. A block that is written to both devices in between would be lost from the second again.
//!
//! The thread that copies also writes most blocks, so for these the conflict can't occur. But
//! blocks of intent logs are written at any commit. So the copying thread *closes* a range before
//! it reads it, until it has written it. The writer of a log block *passes* with all its places.
//!
//! * A writer waits until none of its places is closed.
//! * The copying thread waits until no writer passes in its range.
//!
//! # Locks
//! The one mutex is held for a few instructions. A writer that waits to pass holds no place
//! meanwhile. A writer that passes waits only for its devices. So there is no circle of waiters.

use std::ops::Range;

use observe::lock::{Condvar, Mutex};
use observe::work::{self, Wait};
use ondisk::VdevId;

/// A range of a top-level vdev's space.
pub type VdevRange = (VdevId, Range<u64>);

/// The closed ranges of a pool, and the writers that pass; see the module.
#[derive(Debug, Default)]
pub struct ClosedRanges {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    closed: Vec<(u64, VdevRange)>,
    passing: Vec<(u64, Vec<VdevRange>)>,
    /// How many writers wait to pass.
    waiting: usize,
}

/// A range that is closed until this is dropped.
#[derive(Debug)]
pub struct ClosedRange<'a> {
    closed_ranges: &'a ClosedRanges,
    id: u64,
}

/// Places that a writer writes to until this is dropped.
#[derive(Debug)]
pub struct WriterPass<'a> {
    closed_ranges: &'a ClosedRanges,
    id: u64,
}

fn touch(a: &VdevRange, b: &VdevRange) -> bool {
    a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl ClosedRanges {
    /// Closes a range, and waits until no writer passes there.
    pub fn close(&self, vdev: VdevId, range: Range<u64>) -> ClosedRange<'_> {
        let place = (vdev, range);
        let mut state = self.state.lock();
        let id = state.number();
        // This comes first, so that no further writer passes meanwhile.
        state.closed.push((id, place.clone()));
        while state.passing.iter().any(|(_, places)| places.iter().any(|p| touch(p, &place))) {
            let _waiting = work::wait(Wait::Lock, 0);
            self.moved.wait(&mut state);
        }
        ClosedRange { closed_ranges: self, id }
    }

    /// Waits until none of these places is closed. None can be closed while the returned value
    /// lives.
    pub fn pass(&self, places: Vec<VdevRange>) -> WriterPass<'_> {
        let mut state = self.state.lock();
        while state.closed.iter().any(|(_, closed)| places.iter().any(|p| touch(p, closed))) {
            state.waiting += 1;
            let _waiting = work::wait(Wait::Lock, 0);
            self.moved.wait(&mut state);
            state.waiting -= 1;
        }
        let id = state.number();
        state.passing.push((id, places));
        WriterPass { closed_ranges: self, id }
    }

    /// Whether a writer waits to pass.
    pub fn is_awaited(&self) -> bool {
        self.state.lock().waiting > 0
    }
}

impl Drop for ClosedRange<'_> {
    fn drop(&mut self) {
        self.closed_ranges.state.lock().closed.retain(|(id, _)| *id != self.id);
        self.closed_ranges.moved.notify_all();
    }
}

impl Drop for WriterPass<'_> {
    fn drop(&mut self) {
        let mut state = self.closed_ranges.state.lock();
        state.passing.retain(|(id, _)| *id != self.id);
        // Only a thread that closes a range waits for this.
        let waited_for = !state.closed.is_empty();
        drop(state);
        if waited_for {
            self.closed_ranges.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
