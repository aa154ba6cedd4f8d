//! One dump for several receivers.
//!
//! # Theory
//! One thread makes the dump. Each receiver has a thread and a short queue of its parts, which all
//! receivers share. The maker waits while a queue is full, so the slowest receiver has the others
//! wait.
//!
//! Each receiver may do so for a limited time, which begins anew when it takes a part. Only the
//! time counts in which another one has an empty queue: if all are equally slow, none is to blame.
//! A receiver that takes nothing for the whole time is left behind. It still takes what is in its
//! queue, and then makes the rest of the dump by itself.
//!
//! So short delays do not add up in a long dump. In exchange, a receiver that is always slow, but
//! takes parts, sets the pace of all.
//!
//! # Life
//! The dump begins when a receiver takes its first part. A receiver that needs no dump leaves
//! before that, and it may be the last one.
//!
//! A receiver follows the dump until it is left behind, or gone. It never follows again.
//!
//! # Locks
//! One lock, which no thread holds while it reads or sends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};
use rx::Slice;

#[cfg(test)]
mod tests;

/// Bytes in a queue that is full.
const FULL: usize = 2 << 20;
/// Bytes that a part takes beside its content, about.
const PART: usize = 128;

/// A dump and its receivers.
pub(super) struct Fan {
    state: Mutex<State>,
    changed: Condvar,
    /// How long a receiver that takes nothing may have others wait. `None`: none is left behind.
    lag: Option<Duration>,
}

struct State {
    lanes: Vec<Lane>,
    /// A receiver waits for the dump, or has taken parts of it.
    has_begun: bool,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Complete,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Follows,
    Behind,
    Gone,
}

struct Lane {
    queue: VecDeque<Slice>,
    /// Bytes of the queue.
    queued: usize,
    stage: Stage,
    /// Since when others wait for this one. `None`: it took a part since, or none waits.
    blocks: Option<Instant>,
}

impl Lane {
    fn is_full(&self) -> bool {
        self.stage == Stage::Follows && self.queued >= FULL
    }

    fn is_idle(&self) -> bool {
        self.stage == Stage::Follows && self.queue.is_empty()
    }

    fn push(&mut self, part: Slice) {
        self.queued += part.len() + PART;
        self.queue.push_back(part);
    }

    fn pop(&mut self) -> Option<Slice> {
        let part = self.queue.pop_front()?;
        self.queued -= part.len() + PART;
        Some(part)
    }
}

/// What comes next for a receiver.
#[derive(Debug)]
pub(super) enum Next {
    Part(Slice),
    /// The dump is complete.
    End,
    /// The receiver is left behind. The parts so far are the beginning of the dump.
    Behind,
    /// The rest of the dump can't be made.
    Failed,
}

impl Fan {
    pub(super) fn new(receivers: usize, lag: Option<Duration>) -> Self {
        let lane = || Lane { queue: VecDeque::new(), queued: 0, stage: Stage::Follows, blocks: None };
        let lanes = std::iter::repeat_with(lane).take(receivers).collect();
        Self { state: Mutex::new(State { lanes, has_begun: false, end: None }), changed: Condvar::new(), lag }
    }

    /// The side of a receiver, which takes it once.
    pub(super) fn receiver(&self, lane: usize) -> Receiver<'_> {
        Receiver { fan: self, lane }
    }

    /// The side of the maker.
    pub(super) fn maker(&self) -> Maker<'_> {
        Maker { fan: self }
    }
}

/// The maker's side. If it is dropped before [`Maker::end`], the dump has failed.
pub(super) struct Maker<'a> {
    fan: &'a Fan,
}

impl Maker<'_> {
    /// Waits until a receiver needs the dump. False if none is left.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.fan.state.lock();
        while !state.has_begun {
            if state.lanes.iter().all(|lane| lane.stage == Stage::Gone) {
                return false;
            }
            self.fan.changed.wait(&mut state);
        }
        true
    }

    /// Gives a part to all receivers that follow. False if none does.
    pub(super) fn push(&self, part: &Slice) -> bool {
        let mut state = self.fan.state.lock();
        while state.lanes.iter().any(Lane::is_full) {
            self.wait(&mut state);
        }
        let following = state.lanes.iter_mut().filter(|lane| lane.stage == Stage::Follows);
        let count = following.map(|lane| lane.push(part.clone())).count();
        self.fan.changed.notify_all();
        count > 0
    }

    /// Waits for a change, for as long as the receivers with full queues may have others wait.
    /// Those that took nothing for that time are left behind.
    fn wait(&self, state: &mut observe::lock::MutexGuard<'_, State>) {
        let Some(lag) = self.fan.lag.filter(|_| state.lanes.iter().any(Lane::is_idle)) else {
            state.lanes.iter_mut().for_each(|lane| lane.blocks = None);
            return self.fan.changed.wait(state);
        };
        let now = Instant::now();
        let full = state.lanes.iter_mut().filter(|lane| lane.is_full());
        let longest = full.map(|lane| now - *lane.blocks.get_or_insert(now)).max();
        self.fan.changed.wait_for(state, lag.saturating_sub(longest.unwrap_or_default()));
        for lane in state.lanes.iter_mut().filter(|lane| lane.is_full()) {
            if lane.blocks.is_some_and(|since| since.elapsed() >= lag) {
                lane.stage = Stage::Behind;
                self.fan.changed.notify_all();
            }
        }
    }

    /// The dump is complete.
    pub(super) fn end(self) {
        self.fan.end(End::Complete);
    }
}

impl Fan {
    fn end(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
        self.changed.notify_all();
    }
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        self.fan.end(End::Failed);
    }
}

/// A receiver's side. If it is dropped, the others no longer wait for it.
pub(super) struct Receiver<'a> {
    fan: &'a Fan,
    lane: usize,
}

impl Receiver<'_> {
    /// Waits for what comes next.
    pub(super) fn next(&self) -> Next {
        let mut state = self.fan.state.lock();
        if !std::mem::replace(&mut state.has_begun, true) {
            self.fan.changed.notify_all();
        }
        loop {
            let end = state.end;
            let lane = &mut state.lanes[self.lane];
            if let Some(part) = lane.pop() {
                lane.blocks = None;
                self.fan.changed.notify_all();
                return Next::Part(part);
            }
            match (lane.stage, end) {
                (Stage::Behind | Stage::Gone, _) => return Next::Behind,
                (Stage::Follows, Some(End::Complete)) => return Next::End,
                (Stage::Follows, Some(End::Failed)) => return Next::Failed,
                (Stage::Follows, None) => self.fan.changed.wait(&mut state),
            }
        }
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        let lane = &mut self.fan.state.lock().lanes[self.lane];
        lane.stage = Stage::Gone;
        lane.queue.clear();
        lane.queued = 0;
        self.fan.changed.notify_all();
    }
}
