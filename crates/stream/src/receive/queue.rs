//! The records between the reader and the writer of a receive.
//!
//! # Theory
//! To wake a thread costs as much as to read a record. So the writer waits until there is a batch,
//! or for [`LINGER`] after the first record, in case the sender is slow. The reader waits until
//! half of the queue is free.
//!
//! # Locks
//! One, for the queue. No record is read or written under it.

use std::collections::VecDeque;
use std::time::Duration;

use device::Block;
use observe::lock::{Condvar, Mutex};
use ondisk::ByteOrder;
use ondisk::replay::Record;

/// Most records of a batch.
const AT_ONCE: usize = 128;
/// How long records wait for more of a batch.
const LINGER: Duration = Duration::from_millis(20);
/// What a record without its payload counts.
const RECORD: usize = 512;

/// A record with its payload.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Record,
    /// The sender's byte order.
    pub(super) order: ByteOrder,
    pub(super) payload: Block,
    /// Its number, from 0.
    pub(super) number: u64,
    /// Where it begins.
    pub(super) at: u64,
    /// Where it ends, without BEGIN.
    pub(super) end: u64,
}

impl Item {
    fn size(&self) -> usize {
        RECORD + self.payload.len()
    }

    /// What it may dirty of an object whose blocks have the record's size.
    pub(super) fn dirties(&self) -> u64 {
        match &self.record {
            Record::Write(r) => r.logical_size.max(self.payload.len() as u64),
            Record::WriteEmbedded(r) => r.logical_size.into(),
            _ => self.payload.len() as u64,
        }
    }
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    pushed: u64,
    /// No more records follow.
    ended: bool,
    /// The writer takes no more records.
    cancelled: bool,
}

/// Records that wait to be written.
pub(super) struct Queue {
    state: Mutex<State>,
    limit: usize,
    batch: usize,
    room: Condvar,
    ready: Condvar,
}

impl Queue {
    /// A queue of about `limit` bytes, from which batches of about `batch` bytes are taken.
    pub(super) fn new(limit: usize, batch: usize) -> Self {
        Self { state: Mutex::default(), limit, batch, room: Condvar::new(), ready: Condvar::new() }
    }

    /// How many records were pushed.
    pub(super) fn taken_in(&self) -> u64 {
        self.state.lock().pushed
    }

    /// Adds a record, and waits for space. False if the writer takes no more.
    pub(super) fn push(&self, item: Item) -> bool {
        let mut state = self.state.lock();
        while state.bytes >= self.limit && !state.cancelled {
            self.room.wait(&mut state);
        }
        if state.cancelled {
            return false;
        }
        state.bytes += item.size();
        state.pushed += 1;
        state.items.push_back(item);
        // The first begins the time of waiting for more.
        if state.items.len() == 1 || self.is_batch(&state) {
            self.ready.notify_one();
        }
        true
    }

    /// Notes that no record follows.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.ready.notify_one();
    }

    /// Whether there is enough for the writer.
    fn is_batch(&self, state: &State) -> bool {
        state.items.len() >= AT_ONCE || state.bytes >= self.batch.min(self.limit / 2)
    }

    /// The next records that are there, as many as dirty about a batch. Waits for the first, and a
    /// moment for others. `None` behind the last.
    pub(super) fn take(&self) -> Option<Vec<Item>> {
        let bytes = self.batch as u64;
        let mut state = self.state.lock();
        while !self.is_batch(&state) && !state.ended && !state.cancelled {
            if state.items.is_empty() {
                self.ready.wait(&mut state);
            } else if self.ready.wait_for(&mut state, LINGER).timed_out() {
                break;
            }
        }
        if state.items.is_empty() {
            return None;
        }
        let (mut batch, mut taken, mut dirties) = (Vec::new(), 0, 0);
        while batch.len() < AT_ONCE
            && let Some(item) =
                state.items.pop_front_if(|item| batch.is_empty() || dirties + item.dirties() <= bytes)
        {
            dirties += item.dirties();
            taken += item.size();
            batch.push(item);
        }
        state.bytes -= taken;
        if state.bytes <= self.limit / 2 {
            self.room.notify_one();
        }
        Some(batch)
    }

    /// Takes no more records.
    pub(super) fn cancel(&self) {
        self.state.lock().cancelled = true;
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests;
