//! Where a cache device is written next.
//!
//! # Theory
//! A device is written in rounds from start to end. The *hand* is where the next block goes. The
//! bytes from the hand to the *evict* mark have been given up, and may be overwritten. The bytes
//! from the mark round to the hand are valid, the oldest first. On the first round nothing is
//! behind the hand, and the mark stays at the start.
//!
//! The *age* of a place is its distance behind the mark, going round. Log blocks point from younger
//! to older ones. A walk along them ends, whatever they say, if each step has to lead to something
//! older. No two things that the walk reaches may overlap.

use ondisk::l2arc::LogPointer;
use std::ops::Range;

/// Positions on a device, in bytes from its start; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteHand {
    /// First byte for blocks (`l2ad_start`).
    pub(crate) start: u64,
    /// The end of the space for blocks (`l2ad_end`).
    pub(crate) end: u64,
    /// Where the next block goes (`l2ad_hand`).
    pub(crate) hand: u64,
    /// The evict mark (`l2ad_evict`).
    pub(crate) evict: u64,
    /// Nothing is behind the hand yet (`l2ad_first`).
    pub(crate) first: bool,
}

impl WriteHand {
    /// Those of an empty device.
    pub(crate) fn new(start: u64, end: u64) -> WriteHand {
        WriteHand { start, end, hand: start, evict: start, first: true }
    }

    /// Those of a device whose header has its mark and the end of its newest log block
    /// (`l2arc_dev_hdr_read`). `None` if they are invalid.
    pub(crate) fn resumed(self, logged: u64, evict: u64, first: bool) -> Option<WriteHand> {
        let whole = self.start..=self.end;
        if !(whole.contains(&logged) && whole.contains(&evict)) {
            return None;
        }
        // The hand is behind the mark: a round has begun in which nothing was logged yet. What was
        // written in it is unknown, and what is behind the mark is unchanged.
        let hand = if first || logged <= evict { logged } else { self.start };
        Some(WriteHand { hand, evict, first, ..self })
    }

    /// Makes sure that `distance` bytes, at most a part of the device, can be written from the hand
    /// on. Returns the ranges that were given up for it.
    pub(crate) fn make_way(&mut self, distance: u64) -> Vec<Range<u64>> {
        let mut gone = Vec::new();
        if self.end - self.hand < distance {
            // Too little is left before the end: the next round begins.
            if !self.first {
                gone.push(self.hand..self.end);
            }
            (self.hand, self.evict, self.first) = (self.start, self.start, false);
        }
        if !self.first {
            self.evict = self.evict.max(self.hand + distance);
            gone.push(self.hand..self.evict);
        }
        gone
    }

    /// How far behind the mark a place is.
    fn age(&self, at: u64) -> u64 {
        if self.first {
            return at - self.start;
        }
        if at >= self.evict { at - self.evict } else { (self.end - self.evict) + (at - self.start) }
    }

    /// Valid ages are below this.
    fn alive(&self) -> u64 {
        if self.first { self.hand - self.start } else { (self.end - self.evict) + (self.hand - self.start) }
    }

    /// Whether these bytes are on the device and valid.
    pub(crate) fn holds(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        if at < self.start || end > self.end || len == 0 {
            return false;
        }
        let (from, to) = (self.age(at), self.age(end - 1));
        from <= to && to < self.alive()
    }

    /// Whether a log block and all that it names can be valid.
    pub(crate) fn valid(&self, log: &LogPointer) -> bool {
        let within = |at: u64| (self.start..self.end).contains(&at);
        self.holds(log.daddr, log.asize)
            && within(log.payload_start)
            && self.age(log.payload_start) < self.age(log.daddr)
    }

    /// Whether these bytes are valid and older than `bound`. If so, their age becomes the new
    /// bound, so that nothing found later overlaps what was found before.
    pub(crate) fn older(&self, at: u64, len: u64, bound: &mut u64) -> bool {
        let older = self.holds(at, len) && self.age(at + (len - 1)) < *bound;
        if older {
            *bound = self.age(at);
        }
        older
    }

    /// Whether a block can be one that this log block names.
    pub(crate) fn named_by(&self, log: &LogPointer, at: u64, len: u64) -> bool {
        self.holds(at, len)
            && self.age(log.payload_start) <= self.age(at)
            && self.age(at + (len - 1)) < self.age(log.daddr)
    }
}

#[cfg(test)]
mod tests;
