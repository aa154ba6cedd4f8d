//! Reads the blocks of changes ahead, and keeps their order.
//!
//! # Theory
//! The walk queues changes. Threads read the blocks of several changes at a time. The writer takes
//! the changes in their order, each with its block. So devices, checksums and the stream's reader
//! work at the same time.
//!
//! To wake a thread costs as much as to read a block that the system has in memory. So few readers
//! work as long as they keep up ([`BACKLOG`]), and they hand over several blocks at a time. The
//! walk waits until half of the queue is free.
//!
//! # Life
//! A stage that fails or stops tells the others through the queue, and no stage waits any more.
//!
//! # Locks
//! One, for the queue. No block is read and no record written under it.
//!
//! # See
//! OpenZFS `send_reader_thread`, `bqueue.c`.

use std::collections::VecDeque;

use observe::lock::{Condvar, Mutex};

use super::records::Payload;
use super::walk::{Change, Stop};

/// Most changes that a reader takes at a time, and about how many bytes of their blocks.
const AT_ONCE: (usize, usize) = (16, 512 << 10);

/// Changes without a reader, for each reader that works, from which on another one is woken. As
/// many bytes as a reader takes are enough, too.
const BACKLOG: usize = 4;
/// With fewer changes than this, the walk goes on as soon as there is room.
const FEW: usize = 8;

/// A change with the block that it needs, if any.
pub(super) type Ready = (Change, Option<zio::Result<Payload>>);

enum Slot {
    Waiting(Change),
    Reading,
    Ready(Ready),
}

#[derive(Default)]
struct State {
    slots: VecDeque<Slot>,
    /// How many slots were taken from the front so far.
    taken: u64,
    /// The first slot that may still wait for a reader, counted like `taken`.
    unread: u64,
    /// How many slots wait for a reader, and about how many bytes of their blocks.
    waiting: usize,
    waiting_bytes: usize,
    /// How many readers work.
    working: usize,
    bytes: usize,
    /// The walk is over, and why, if it failed.
    end: Option<Option<dmu::Error>>,
    /// The writer takes no more changes.
    cancelled: bool,
}

impl State {
    /// Whether another reader is worth its wake-up.
    fn is_behind(&self) -> bool {
        self.waiting > self.working * BACKLOG || self.waiting_bytes > self.working * AT_ONCE.1
    }
}

/// Changes between the stages of a send.
pub(super) struct Queue {
    state: Mutex<State>,
    limit: usize,
    room: Condvar,
    work: Condvar,
    ready: Condvar,
}

impl Queue {
    /// A queue of changes whose blocks have at most about `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            limit,
            room: Condvar::new(),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// Adds a change. `needs_block` says whether its block is to be read. Waits for room. False if
    /// the other stages have ended.
    pub(super) fn push(&self, change: Change, needs_block: bool) -> bool {
        let mut state = self.state.lock();
        while state.bytes >= self.limit && !state.cancelled {
            self.room.wait(&mut state);
        }
        if state.cancelled {
            return false;
        }
        state.bytes += cost(&change);
        if needs_block {
            state.waiting += 1;
            state.waiting_bytes += cost(&change);
            state.slots.push_back(Slot::Waiting(change));
            if state.is_behind() {
                self.work.notify_one();
            }
        } else {
            let first = state.slots.is_empty();
            state.slots.push_back(Slot::Ready((change, None)));
            if first {
                self.ready.notify_one();
            }
        }
        true
    }

    /// Notes that the walk is over.
    pub(super) fn end(&self, stop: Result<(), Stop>) {
        let mut state = self.state.lock();
        state.end = Some(stop.err().flatten());
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Ends all stages.
    pub(super) fn cancel(&self) {
        let mut state = self.state.lock();
        state.cancelled = true;
        self.room.notify_all();
        self.work.notify_all();
    }

    /// Reads blocks until there are no more.
    pub(super) fn serve(&self, read: impl Fn(&Change) -> zio::Result<Payload>) {
        while let Some(batch) = self.take_unread() {
            let read = |(number, change): (u64, Change)| {
                let block = read(&change);
                (number, (change, Some(block)))
            };
            let batch: Vec<(u64, Ready)> = batch.into_iter().map(read).collect();
            let mut state = self.state.lock();
            state.working -= 1;
            let mut first = false;
            for (number, ready) in batch {
                let at = (number - state.taken) as usize;
                state.slots[at] = Slot::Ready(ready);
                first |= at == 0;
            }
            if first {
                self.ready.notify_one();
            }
        }
    }

    /// Some changes whose blocks no reader has, with their numbers.
    fn take_unread(&self) -> Option<Vec<(u64, Change)>> {
        let mut state = self.state.lock();
        loop {
            if state.cancelled {
                return None;
            }
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < AT_ONCE.0 && bytes < AT_ONCE.1 {
                let number = state.unread.max(state.taken);
                let at = (number - state.taken) as usize;
                let Some(slot) = state.slots.get_mut(at) else { break };
                if matches!(slot, Slot::Waiting(_))
                    && let Slot::Waiting(change) = std::mem::replace(slot, Slot::Reading)
                {
                    bytes += cost(&change);
                    batch.push((number, change));
                }
                state.unread = number + 1;
            }
            if !batch.is_empty() {
                state.waiting -= batch.len();
                state.waiting_bytes -= bytes;
                state.working += 1;
                return Some(batch);
            }
            if state.end.is_some() {
                return None;
            }
            self.work.wait(&mut state);
        }
    }

    /// The next changes, in order. Waits for the first; none after the last.
    ///
    /// # Errors
    /// The error that ended the walk, after the changes before it.
    pub(super) fn next(&self) -> Result<Vec<Ready>, dmu::Error> {
        let mut state = self.state.lock();
        loop {
            let mut out = Vec::new();
            while let Some(Slot::Ready(_)) = state.slots.front()
                && let Some(Slot::Ready(ready)) = state.slots.pop_front()
            {
                state.taken += 1;
                state.bytes -= cost(&ready.0);
                out.push(ready);
            }
            if !out.is_empty() {
                // Few blocks may be all of the limit.
                if state.bytes <= self.limit / 2 || state.slots.len() < FEW {
                    self.room.notify_one();
                }
                return Ok(out);
            }
            if state.slots.is_empty()
                && let Some(end) = &mut state.end
            {
                return end.take().map_or(Ok(Vec::new()), Err);
            }
            self.ready.wait(&mut state);
        }
    }
}

/// The memory that a change takes, about.
fn cost(change: &Change) -> usize {
    match change {
        Change::Data { size, .. } => *size as usize + size_of::<Change>(),
        Change::Spill { bp, .. } => bp.lsize.0 as usize + size_of::<Change>(),
        _ => size_of::<Change>(),
    }
}
