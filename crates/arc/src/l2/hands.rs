//! Where a cache device is written next.
//!
//! # Theory
//! A device is written round and round. The *hand* is where the next block goes; what lies between it and the *evict* mark has been given up, so that it may be written
//! over, and what lies from the mark on round to the hand is alive, the oldest first. On the first round nothing lies behind the hand, and the mark stays at the start.
//!
//! A place's *age* is how far behind the mark it lies, going round. Log blocks lead from younger to older ones, so a walk along them ends, whatever they say, if
//! each step has to lead to what is older, and no two things that it comes to lie on one another.

use ondisk::l2arc::LogPointer;
use std::ops::Range;

/// See the module. All are bytes from the start of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hands {
    /// First byte for blocks (`l2ad_start`).
    pub(crate) start: u64,
    /// Past the last (`l2ad_end`).
    pub(crate) end: u64,
    /// Where the next block goes (`l2ad_hand`).
    pub(crate) hand: u64,
    /// The evict mark (`l2ad_evict`).
    pub(crate) evict: u64,
    /// Nothing lies behind the hand yet (`l2ad_first`).
    pub(crate) first: bool,
}

impl Hands {
    /// Of a device on which nothing lies.
    pub(crate) fn new(start: u64, end: u64) -> Hands {
        Hands { start, end, hand: start, evict: start, first: true }
    }

    /// Of a device whose header says where its mark is, and where its newest log block ends (`l2arc_dev_hdr_read`); `None` if that can't be.
    pub(crate) fn resumed(self, logged: u64, evict: u64, first: bool) -> Option<Hands> {
        let whole = self.start..=self.end;
        if !(whole.contains(&logged) && whole.contains(&evict)) {
            return None;
        }
        // Behind the mark: a round has begun, in which nothing was logged yet. What was written in it is unknown, and what lies behind the mark is as it was.
        let hand = if first || logged <= evict { logged } else { self.start };
        Some(Hands { hand, evict, first, ..self })
    }

    /// Sees to it that so many bytes, at most a part of the device, can be written from the hand on; what lies in these ranges is given up.
    pub(crate) fn make_way(&mut self, distance: u64) -> Vec<Range<u64>> {
        let mut gone = Vec::new();
        if self.end - self.hand < distance {
            // Too little is left in front of the end: the next round begins.
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

    /// How far behind the mark a place lies.
    fn age(&self, at: u64) -> u64 {
        if self.first {
            return at - self.start;
        }
        if at >= self.evict { at - self.evict } else { (self.end - self.evict) + (at - self.start) }
    }

    /// The ages that are alive are below this.
    fn alive(&self) -> u64 {
        if self.first { self.hand - self.start } else { (self.end - self.evict) + (self.hand - self.start) }
    }

    /// Whether these bytes lie on the device and are alive.
    pub(crate) fn holds(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        if at < self.start || end > self.end || len == 0 {
            return false;
        }
        let (from, to) = (self.age(at), self.age(end - 1));
        from <= to && to < self.alive()
    }

    /// Whether a log block and all that it names can be alive.
    pub(crate) fn valid(&self, log: &LogPointer) -> bool {
        let within = |at: u64| (self.start..self.end).contains(&at);
        self.holds(log.daddr, log.asize)
            && within(log.payload_start)
            && self.age(log.payload_start) < self.age(log.daddr)
    }

    /// The age of bytes that are alive, if they are all older than this bound, which they are the next of then: so that nothing that is come to lies on anything that was come to before.
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
