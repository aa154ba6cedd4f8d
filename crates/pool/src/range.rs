//! Sets of byte ranges.

use std::collections::BTreeMap;

/// A set of disjoint, coalesced ranges (`zfs_range_tree_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// From the start of each range to its end.
    ranges: BTreeMap<u64, u64>,
    space: u64,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes in the set (`zfs_range_tree_space`).
    pub fn space(&self) -> u64 {
        self.space
    }

    /// The number of ranges (`zfs_range_tree_numsegs`).
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if there is no range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The start and end of each range, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(s, e)| (*s, *e))
    }

    /// The last range that begins at or before `at`.
    fn before(&self, at: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=at).next_back().map(|(s, e)| (*s, *e))
    }

    /// True if any byte of `start..end` is in the set.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        end > start
            && (self.before(start).is_some_and(|(_, e)| e > start)
                || self.ranges.range(start..end).next().is_some())
    }

    /// True if all of `start..end` is in the set (`zfs_range_tree_contains`).
    pub fn contains(&self, start: u64, end: u64) -> bool {
        self.before(start).is_some_and(|(_, e)| e >= end)
    }

    /// Adds `start..end` (`zfs_range_tree_add`). False, with nothing changed, if part of it is in
    /// the set already.
    #[must_use]
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        if end <= start || self.overlaps(start, end) {
            return end == start;
        }
        let mut new = (start, end);
        if let Some((s, e)) = self.before(start).filter(|(_, e)| *e == start) {
            self.ranges.remove(&s);
            new = (s, new.1.max(e));
        }
        if let Some(e) = self.ranges.remove(&end) {
            new.1 = e;
        }
        self.ranges.insert(new.0, new.1);
        self.space += end - start;
        true
    }

    /// Adds the parts of `start..end` that are not in the set.
    pub fn cover(&mut self, start: u64, end: u64) {
        for (start, end) in self.gaps(start, end).iter() {
            let fresh = self.add(start, end);
            debug_assert!(fresh, "gaps are not there");
        }
    }

    /// The parts that are both in this set and in `others`, which are disjoint and in order.
    pub fn common(&self, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (mut out, mut others) = (Vec::new(), others.iter().copied().peekable());
        for (start, end) in self.iter() {
            while let Some((s, e)) = others.peek().copied().filter(|(s, _)| *s < end) {
                if e > start {
                    out.push((s.max(start), e.min(end)));
                }
                // A range that continues after this one may overlap the next.
                if e > end {
                    break;
                }
                others.next();
            }
        }
        out
    }

    /// Removes `start..end` (`zfs_range_tree_remove`). False, with nothing changed, if part of it
    /// is not in the set.
    #[must_use]
    pub fn remove(&mut self, start: u64, end: u64) -> bool {
        if end <= start {
            return end == start;
        }
        let Some((s, e)) = self.before(start).filter(|(_, e)| *e >= end) else { return false };
        self.ranges.remove(&s);
        if s < start {
            self.ranges.insert(s, start);
        }
        if end < e {
            self.ranges.insert(end, e);
        }
        self.space -= end - start;
        true
    }

    /// The parts of `start..end` that are not in the set.
    pub fn gaps(&self, start: u64, end: u64) -> RangeSet {
        let mut out = RangeSet::new();
        let mut at = start;
        let first = self.before(start).map_or(start, |(s, _)| s);
        for (&s, &e) in self.ranges.range(first..end.max(first)) {
            if s > at {
                let fresh = out.add(at, s.min(end));
                debug_assert!(fresh, "gaps of disjoint ranges are disjoint");
            }
            at = at.max(e);
        }
        if at < end {
            let fresh = out.add(at, end);
            debug_assert!(fresh, "gaps of disjoint ranges are disjoint");
        }
        out
    }

    /// Removes `start..end` from this set, and adds the parts that were absent to `other`
    /// (`zfs_range_tree_remove_xor_add`).
    ///
    /// False if one of these parts is in `other` already.
    #[must_use]
    pub fn undo_or_add(&mut self, other: &mut RangeSet, start: u64, end: u64) -> bool {
        let rest = self.gaps(start, end);
        let undone = rest.gaps(start, end);
        let removed = undone.iter().all(|(s, e)| self.remove(s, e));
        debug_assert!(removed, "what is not absent is there");
        rest.iter().all(|(s, e)| other.add(s, e))
    }

    /// The number of ranges by size. Bucket `i` counts those of at least `2^i` bytes and less than
    /// twice that.
    pub fn histogram(&self) -> [u64; 64] {
        let mut out = [0; 64];
        for (s, e) in self.iter() {
            out[(e - s).ilog2() as usize] += 1;
        }
        out
    }
}

#[cfg(test)]
mod tests;
