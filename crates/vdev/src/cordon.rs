//! Stretches of space that are closed for a moment to whoever writes blocks there at any time.
//!
//! # Theory
//! Whoever copies a stretch of a vdev from one device to another reads here and writes there a moment later. A block that is written to both in between would be gone from
//! the second again. Most blocks are written by the thread that copies, so that can't be; but blocks of intent logs are written whenever somebody commits. So a stretch is
//! *closed* before it is read, until it has been written, and who writes a log block *passes* with all the places that it has: he waits until none of them is closed, and who
//! closes a stretch waits until nobody passes there.
//!
//! # Locks
//! The one mutex is held for a few instructions. Who waits to pass holds no place meanwhile, and who passes waits for nothing but his devices, so nobody waits in a circle.

use std::ops::Range;

use ondisk::VdevId;
use parking_lot::{Condvar, Mutex};

/// A range of a top-level vdev's space.
pub type VdevRange = (VdevId, Range<u64>);

/// See the module.
#[derive(Debug, Default)]
pub struct Cordon {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    closed: Vec<(u64, VdevRange)>,
    passing: Vec<(u64, Vec<VdevRange>)>,
    /// How many wait to pass.
    waiting: usize,
}

/// A stretch that is closed until this is dropped.
#[derive(Debug)]
pub struct Closed<'a> {
    cordon: &'a Cordon,
    id: u64,
}

/// Places at which somebody writes until this is dropped.
#[derive(Debug)]
pub struct Pass<'a> {
    cordon: &'a Cordon,
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

impl Cordon {
    /// Closes a stretch, and waits until nobody writes there any more.
    pub fn close(&self, vdev: VdevId, range: Range<u64>) -> Closed<'_> {
        let place = (vdev, range);
        let mut state = self.state.lock();
        let id = state.number();
        // First this, so that nobody else comes in meanwhile.
        state.closed.push((id, place.clone()));
        while state.passing.iter().any(|(_, places)| places.iter().any(|p| touch(p, &place))) {
            self.moved.wait(&mut state);
        }
        Closed { cordon: self, id }
    }

    /// Waits until none of these places is closed; none is while what this gives lives.
    pub fn pass(&self, places: Vec<VdevRange>) -> Pass<'_> {
        let mut state = self.state.lock();
        while state.closed.iter().any(|(_, closed)| places.iter().any(|p| touch(p, closed))) {
            state.waiting += 1;
            self.moved.wait(&mut state);
            state.waiting -= 1;
        }
        let id = state.number();
        state.passing.push((id, places));
        Pass { cordon: self, id }
    }

    /// Whether somebody waits to pass.
    pub fn is_awaited(&self) -> bool {
        self.state.lock().waiting > 0
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.cordon.state.lock().closed.retain(|(id, _)| *id != self.id);
        self.cordon.moved.notify_all();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.cordon.state.lock();
        state.passing.retain(|(id, _)| *id != self.id);
        // Nobody but who closes waits for this.
        let waited_for = !state.closed.is_empty();
        drop(state);
        if waited_for {
            self.cordon.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
