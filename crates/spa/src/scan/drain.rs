//! Verifying the queued blocks, from one end of the devices to the other.
//!
//! # Theory
//! Once draining has begun, nothing is added until every queued block has been verified or freed.
//! So each top-level vdev is passed over once, over as many slices as that takes. Verified blocks
//! leave the queue, so a slice may end anywhere. Blocks that could not be verified because too many
//! devices are absent stay until these are available again.
//!
//! # See
//! OpenZFS `scan_io_queues_run`.

use crate::scan::issue::{Issuer, Looked};
use crate::scan::queue::asize;
use crate::scan::slice::{GATHER, GATHER_HURRIED, Slice};

impl Slice<'_> {
    /// Verifies queued blocks until the slice is over; true if none is left. It always makes
    /// progress, however slow.
    pub(crate) fn drain(&mut self) -> bool {
        loop {
            // At the end of a batch reader and writer wait for each other. When the slice is over
            // it stops before that.
            let most = if self.is_waited_for() { GATHER_HURRIED } else { u64::MAX };
            let items = self.queue.first(GATHER.0, most);
            if items.is_empty() {
                return true;
            }
            let whole = self.whole;
            let stops = || !whole && self.is_over();
            let (cache, workers) = (&self.scans.core.cache, self.workers);
            let (look, most, windows) = (self.look, self.at_a_time, &self.windows);
            let memory = self.room.memory;
            let request = &self.request;
            let looked =
                Issuer { cache, workers, look, request, most, memory, windows, stops: &stops }.run(items);
            if !self.conclude(looked) {
                return false;
            }
            if !self.whole && self.is_over() {
                return self.queue.is_empty();
            }
        }
    }

    /// Counts the results, and removes the verified blocks from the queue. Gives whether there were
    /// any, and whether that was all.
    fn conclude(&mut self, looked: Vec<Looked>) -> bool {
        // Failures while too many devices are absent mean nothing.
        let believed = looked.iter().all(|l| l.done.is_ok()) || self.scans.core.tree().is_whole();
        let mut seen = Vec::with_capacity(looked.len());
        for Looked { bp, entry, done } in looked {
            match done {
                Ok(done) => self.note_repair(bp.stored().map_or(bp.birth, |s| s.phys_birth), done),
                Err(_) if believed => self.failed(&bp),
                Err(_) => continue,
            }
            self.found.issued = self.found.issued.saturating_add(asize(&bp));
            seen.push(entry);
        }
        self.queue.remove(&seen);
        believed && !seen.is_empty()
    }
}
