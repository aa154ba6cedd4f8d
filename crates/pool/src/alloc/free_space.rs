//! The free space of a loaded metaslab: ranges by place and by size.

use std::collections::{BTreeMap, BTreeSet};

/// Least number of ranges that a first-fit search visits (`metaslab_min_search_count`).
const MIN_SEARCH_COUNT: usize = 100;
/// Bytes after which a first-fit search gives up (`metaslab_df_max_search`).
const MAX_SEARCH: u64 = 16 << 20;
/// If the largest range is smaller than this, ranges are chosen by size
/// (`metaslab_df_alloc_threshold`).
const BY_SIZE_BELOW: u64 = 128 << 10;
/// If less of the metaslab is free than this, in percent, ranges are chosen by size
/// (`metaslab_df_free_pct`).
const BY_SIZE_BELOW_PERCENT: u64 = 4;

/// Disjoint, coalesced free ranges with an index by size (`ms_allocatable`).
#[derive(Debug, Clone)]
pub(super) struct FreeSpace {
    ranges: BTreeMap<u64, u64>,
    /// Size and start.
    by_size: BTreeSet<(u64, u64)>,
    histogram: [u64; 64],
    space: u64,
    /// Where the search for a block of alignment `2^i` continues (`ms_lbas`).
    cursors: [u64; 64],
}

impl FreeSpace {
    pub(super) fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
            by_size: BTreeSet::new(),
            histogram: [0; 64],
            space: 0,
            cursors: [0; 64],
        }
    }

    /// Free bytes.
    #[cfg(test)]
    pub(super) fn space(&self) -> u64 {
        self.space
    }

    /// Number of ranges by size. Bucket `i` counts those of at least `2^i` bytes and less than
    /// twice that.
    pub(super) fn histogram(&self) -> &[u64; 64] {
        &self.histogram
    }

    /// The size of the largest range.
    pub(super) fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |(size, _)| *size)
    }

    /// The number of free ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(s, e)| (*s, *e))
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.ranges.insert(start, end);
        self.by_size.insert((end - start, start));
        self.histogram[(end - start).ilog2() as usize] += 1;
    }

    fn take(&mut self, start: u64, end: u64) {
        self.ranges.remove(&start);
        self.by_size.remove(&(end - start, start));
        self.histogram[(end - start).ilog2() as usize] -= 1;
    }

    /// The last range that begins at or before `at`.
    fn before(&self, at: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=at).next_back().map(|(s, e)| (*s, *e))
    }

    /// True if any byte of `start..end` is free.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.before(start).is_some_and(|(_, e)| e > start) || self.ranges.range(start..end).next().is_some()
    }

    /// Adds `start..end`.
    ///
    /// # Panics
    /// If part of it is free already. The caller has checked that.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        assert!(start < end && !self.overlaps(start, end), "space is freed once: {start:#x}..{end:#x}");
        let (mut from, mut to) = (start, end);
        if let Some((s, e)) = self.before(start).filter(|(_, e)| *e == start) {
            self.take(s, e);
            from = s;
        }
        if let Some(e) = self.ranges.get(&end).copied() {
            self.take(end, e);
            to = e;
        }
        self.insert(from, to);
        self.space += end - start;
    }

    /// Removes `start..end`. False, with nothing changed, if part of it is not free.
    #[must_use]
    pub(super) fn remove(&mut self, start: u64, end: u64) -> bool {
        let Some((s, e)) = self.before(start).filter(|(_, e)| *e >= end && start < end) else { return false };
        self.take(s, e);
        if s < start {
            self.insert(s, start);
        }
        if end < e {
            self.insert(end, e);
        }
        self.space -= end - start;
        true
    }

    /// Finds and removes `size` bytes of a metaslab of `whole` bytes (`metaslab_df_alloc`).
    ///
    /// It takes the first fit after the last block of this alignment. If that search goes too far,
    /// it takes the smallest range that fits.
    pub(super) fn allocate(&mut self, size: u64, whole: u64) -> Option<u64> {
        let cursor = size.trailing_zeros() as usize;
        let scarce = self.largest() < BY_SIZE_BELOW
            || u128::from(self.space) * 100 < u128::from(whole) * u128::from(BY_SIZE_BELOW_PERCENT);
        let found = if scarce { None } else { self.first_fit(self.cursors[cursor], size) };
        let Some(start) = found.or_else(|| self.best_fit(size)) else {
            self.cursors[cursor] = 0;
            return None;
        };
        self.cursors[cursor] = start + size;
        let was_free = self.remove(start, start + size);
        assert!(was_free, "a fit is free");
        Some(start)
    }

    fn first_fit(&self, from: u64, size: u64) -> Option<u64> {
        let from = self.before(from).filter(|(_, e)| *e > from).map_or(from, |(s, _)| s);
        let mut origin = None;
        for (n, (&start, &end)) in self.ranges.range(from..).enumerate() {
            let origin = *origin.get_or_insert(start);
            if start - origin > MAX_SEARCH && n >= MIN_SEARCH_COUNT {
                return None;
            }
            if end - start >= size {
                return Some(start);
            }
        }
        None
    }

    fn best_fit(&self, size: u64) -> Option<u64> {
        self.by_size.range((size, 0)..).next().map(|(_, start)| *start)
    }
}

#[cfg(test)]
mod tests;
