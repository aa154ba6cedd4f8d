//! A metaslab of a pool that is written, and the state of each of its bytes.
//!
//! # Life
//! A byte is in one of these states. [`LiveMetaslab::done`] moves it on.
//!
//! | state | meaning |
//! |---|---|
//! | *free* | in the range tree of a loaded metaslab |
//! | *allocating* | given out in a txg that has not synced |
//! | allocated | on the space map, and in no other set |
//! | *freeing* | freed in a txg that has not synced, and not on the space map yet |
//! | *freed* | freed in the syncing txg, and on the space map |
//! | *deferred* | freed in one of the last two txgs, so that an older uberblock may refer to it |
//!
//! An unloaded metaslab has no byte that is free or allocating. It must be loaded for allocations,
//! but not for frees.

use super::free_space::FreeSpace;
use super::group::GroupId;
use super::state::Changes;
use crate::range::RangeSet;
use ondisk::spacemap::{SPACE_MAP_HISTOGRAM_SIZE, SpaceMapPhys};
use ondisk::{ObjNum, Txg, VdevId};

/// Transaction groups that can be open, quiescing, syncing and done at once (`TXG_SIZE`).
pub(super) const TXG_SIZE: usize = 4;
/// Txgs for which freed space is not used again (`TXG_DEFER_SIZE`).
pub const TXG_DEFER_SIZE: u64 = 2;
/// The number of slots of [`LiveMetaslab::defer`].
const DEFER_SLOTS: usize = TXG_DEFER_SIZE as usize;

/// The slot of a txg.
pub(super) fn slot(txg: Txg) -> usize {
    (txg.0 % TXG_SIZE as u64) as usize
}

/// How good a metaslab is for allocation (`ms_weight`, by segments).
///
/// It consists of the size class of its largest free ranges, and their number. Both are zero if
/// nothing is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Weight {
    /// log2 of their size.
    pub(super) index: u8,
    /// The number of ranges.
    pub(super) count: u64,
}

impl Weight {
    pub(super) const NONE: Weight = Weight { index: 0, count: 0 };
}

/// A metaslab (`metaslab_t`).
#[derive(Debug)]
pub(super) struct LiveMetaslab {
    /// Its first byte.
    pub(super) start: u64,
    /// Its size in bytes.
    pub(super) size: u64,
    /// log2 of the vdev's sector size.
    pub(super) shift: u8,
    /// Its metaslab group.
    pub(super) group: GroupId,
    /// The object of its space map, if it has one.
    pub(super) object: Option<ObjNum>,
    /// The header of the space map, as written last.
    pub(super) phys: Option<SpaceMapPhys>,
    /// Bytes that are allocated by the space map and by the logs of an imported pool
    /// (`ms_allocated_space`).
    pub(super) allocated: u64,
    /// The free space, if the metaslab is loaded.
    pub(super) free: Option<FreeSpace>,
    pub(super) allocating: [RangeSet; TXG_SIZE],
    pub(super) freeing: [RangeSet; TXG_SIZE],
    pub(super) freed: RangeSet,
    pub(super) defer: [RangeSet; DEFER_SLOTS],
    /// Recorded space that became usable since the last request (`ms_trim`). Parts of it may have
    /// been allocated since.
    pub(super) freed_lately: RangeSet,
    /// Net changes that only the logs of an imported pool hold: allocations and frees.
    pub(super) unflushed: (RangeSet, RangeSet),
    /// True if these were passed on to be written to the space map.
    pub(super) folded: bool,
    /// Its part of the sum of its metaslab group.
    pub(super) counted: u64,
    pub(super) weight: Weight,
    /// The weight index at which it became active.
    pub(super) activated: Option<u8>,
    /// True if its space map can't be read or contradicts itself. Nothing is allocated from it.
    pub(super) broken: bool,
    /// True if its space map could not be read for now. Nothing is allocated from it before the
    /// next txg.
    pub(super) resting: bool,
}

impl LiveMetaslab {
    /// A metaslab that was never used.
    pub(super) fn new(start: u64, size: u64, shift: u8, group: GroupId) -> Self {
        let mut ms = Self {
            start,
            size,
            shift,
            group,
            object: None,
            phys: None,
            allocated: 0,
            free: None,
            allocating: Default::default(),
            freeing: Default::default(),
            freed: RangeSet::new(),
            defer: Default::default(),
            freed_lately: RangeSet::new(),
            unflushed: Default::default(),
            folded: true,
            counted: 0,
            weight: Weight::NONE,
            activated: None,
            broken: false,
            resting: false,
        };
        ms.weight = ms.reckon_weight();
        ms
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Bytes that are not available, including freed bytes that can't be used yet.
    pub(super) fn taken(&self) -> u64 {
        self.allocated.saturating_add(self.freed.space()).saturating_add(self.deferred())
    }

    /// Freed bytes that can't be used yet (`ms_deferspace`).
    pub(super) fn deferred(&self) -> u64 {
        self.defer.iter().map(RangeSet::space).sum()
    }

    /// Sets the free space: everything that is neither in `allocated` nor freed lately.
    ///
    /// Returns false, with nothing changed, if the map contradicts what is known of the metaslab.
    #[must_use]
    pub(super) fn load(&mut self, mut allocated: RangeSet) -> bool {
        let (added, removed) = (&self.unflushed.0, &self.unflushed.1);
        let fits = added.iter().all(|(s, e)| allocated.add(s, e))
            && removed.iter().all(|(s, e)| allocated.remove(s, e));
        let lately = self.defer.iter().chain([&self.freed]);
        // The map that was read may not show the frees of the syncing txg. Then they are still
        // allocated in it.
        let fits = fits
            && lately.flat_map(RangeSet::iter).all(|(s, e)| allocated.contains(s, e) || allocated.add(s, e));
        if !fits {
            return false;
        }
        let mut free = FreeSpace::new();
        allocated.gaps(self.start, self.end()).iter().for_each(|(s, e)| free.add(s, e));
        self.free = Some(free);
        true
    }

    /// Whether an allocation of `asize` bytes can succeed (`metaslab_should_allocate`). False is
    /// certain, true is not.
    pub(super) fn may_hold(&self, asize: u64) -> bool {
        match &self.free {
            Some(free) => free.largest() >= asize,
            None => {
                self.weight != Weight::NONE && u128::from(asize) < 1u128 << (u32::from(self.weight.index) + 1)
            }
        }
    }

    /// The best weight by what is known now (`metaslab_weight`).
    pub(super) fn reckon_weight(&self) -> Weight {
        if self.broken || self.resting {
            return Weight::NONE;
        }
        let top = self.shift as usize + SPACE_MAP_HISTOGRAM_SIZE - 1;
        if let Some(free) = &self.free {
            return heaviest(free.histogram(), top);
        }
        let whole = |space: u64| match space.checked_ilog2() {
            Some(i) => {
                let index = (i as usize).min(top);
                Weight { index: index as u8, count: 1 << (i as usize - index) }
            }
            None => Weight::NONE,
        };
        match &self.phys {
            None => whole(self.size),
            Some(phys) if phys.have_histogram => {
                let mut histogram = [0u64; 64];
                for (i, n) in phys.histogram.iter().enumerate() {
                    histogram[(i + self.shift as usize).min(63)] = *n;
                }
                for set in self.defer.iter().chain([&self.freed]) {
                    for (mine, n) in histogram.iter_mut().zip(set.histogram()) {
                        *mine = mine.saturating_sub(n);
                    }
                }
                heaviest(&histogram, top)
            }
            // A map without a histogram shows only the sum. A load gives more.
            Some(_) => whole(self.size.saturating_sub(self.allocated)),
        }
    }

    /// True if `start..end` can't be freed, because it is not allocated as far as known.
    pub(super) fn refuses_free(&self, start: u64, end: u64) -> bool {
        let lately = self.freeing.iter().chain(&self.defer).chain([&self.freed]);
        self.free.as_ref().is_some_and(|f| f.overlaps(start, end))
            || lately.into_iter().any(|set| set.overlaps(start, end))
    }

    /// Takes the changes of `txg`, as [`State::take`](super::state::State::take) describes.
    pub(super) fn take(&mut self, txg: Txg) -> Changes {
        let allocs = std::mem::take(&mut self.allocating[slot(txg)]);
        let frees = std::mem::take(&mut self.freeing[slot(txg)]);
        self.allocated = (self.allocated + allocs.space()).saturating_sub(frees.space());
        for (s, e) in frees.iter() {
            let fresh = self.freed.add(s, e);
            assert!(fresh, "a range that has been freed was refused");
        }
        let histogram = self.map_histogram(&frees);
        let unflushed = if self.folded { Default::default() } else { self.unflushed.clone() };
        self.folded = true;
        let place = (VdevId(0), 0);
        Changes { place, unflushed, allocs, frees, histogram }
    }

    /// The largest number of ranges that [`LiveMetaslab::allocated_before`] can return. `None` if
    /// the metaslab is not loaded.
    pub(super) fn most_segments_before(&self, changes: &Changes) -> Option<usize> {
        let unsynced = self.allocating.iter().chain(&self.defer).chain([&changes.allocs]);
        let more: usize = unsynced.map(RangeSet::len).sum();
        Some(self.free.as_ref()?.len() + more + 1)
    }

    /// The ranges that a rewritten map should list before the given changes. `None` if the metaslab
    /// is not loaded.
    ///
    /// They are what was allocated before the txg of the changes. Unsynced changes of other txgs
    /// are left out.
    pub(super) fn allocated_before(&self, changes: &Changes) -> Option<RangeSet> {
        let free = self.free.as_ref()?;
        let mut all = RangeSet::new();
        let mut add = |(s, e)| assert!(all.add(s, e), "a byte is in one state");
        free.iter().for_each(&mut add);
        let unsynced = self.allocating.iter().chain(&self.defer).chain([&changes.allocs]);
        unsynced.flat_map(RangeSet::iter).for_each(&mut add);
        // What this txg frees was still allocated before it.
        Some(all.gaps(self.start, self.end()))
    }

    /// The histogram of free ranges for the header of the space map, including ranges that can't be
    /// used yet.
    ///
    /// For an unloaded metaslab, only `frees` are added to the previous histogram.
    fn map_histogram(&self, frees: &RangeSet) -> [u64; SPACE_MAP_HISTOGRAM_SIZE] {
        let mut out = [0; SPACE_MAP_HISTOGRAM_SIZE];
        match &self.free {
            Some(free) => {
                scale(&mut out, free.histogram(), self.shift);
                self.defer
                    .iter()
                    .chain([&self.freed])
                    .for_each(|s| scale(&mut out, &s.histogram(), self.shift));
            }
            None => {
                out = self.phys.as_ref().map_or(out, |p| p.histogram);
                scale(&mut out, &frees.histogram(), self.shift);
            }
        }
        out
    }

    /// Ends the txg `txg`, which has synced (`metaslab_sync_done`).
    ///
    /// What it freed is deferred, and what was freed two txgs before is free. Without `defer`,
    /// everything is free at once. With `note`, space that becomes free is recorded.
    pub(super) fn done(&mut self, txg: Txg, defer: bool, note: bool) {
        debug_assert!(self.allocating[slot(txg)].is_empty() && self.freeing[slot(txg)].is_empty());
        let freed = std::mem::take(&mut self.freed);
        let old = std::mem::take(&mut self.defer[txg.0 as usize % DEFER_SLOTS]);
        let now = if defer { None } else { Some(&freed) };
        if note {
            let usable = [Some(&old), now].into_iter().flatten();
            usable.flat_map(RangeSet::iter).for_each(|(s, e)| self.freed_lately.cover(s, e));
        }
        if let Some(free) = &mut self.free {
            for (s, e) in [Some(&old), now].into_iter().flatten().flat_map(RangeSet::iter) {
                free.add(s, e);
            }
        }
        if defer {
            self.defer[txg.0 as usize % DEFER_SLOTS] = freed;
        }
        if self.folded {
            self.unflushed = Default::default();
        }
    }

    /// Makes the space free at once that was freed in the last two txgs.
    pub(super) fn release(&mut self) {
        let lately = std::mem::take(&mut self.defer);
        if let Some(free) = &mut self.free {
            lately.iter().flat_map(RangeSet::iter).for_each(|(s, e)| free.add(s, e));
        }
    }

    /// True if [`LiveMetaslab::done`] must handle it again even without new changes.
    pub(super) fn waits(&self) -> bool {
        self.deferred() > 0
    }
}

/// Adds a histogram of bytes to one of units of `1 << shift` bytes (`space_map_histogram_add`).
///
/// A range too large for the last bucket counts there several times.
fn scale(out: &mut [u64; SPACE_MAP_HISTOGRAM_SIZE], bytes: &[u64; 64], shift: u8) {
    for (i, n) in bytes.iter().enumerate().skip(shift.into()) {
        let unit = i - usize::from(shift);
        let index = unit.min(SPACE_MAP_HISTOGRAM_SIZE - 1);
        out[index] = out[index].saturating_add(n << (unit - index));
    }
}

/// The weight of a histogram of free ranges. A range beyond `top` counts as several of that size.
fn heaviest(histogram: &[u64; 64], top: usize) -> Weight {
    let mut count = 0u64;
    for (i, n) in histogram.iter().enumerate().rev() {
        count = count.saturating_mul(2).saturating_add(*n);
        if i <= top && count > 0 {
            return Weight { index: i as u8, count };
        }
    }
    Weight::NONE
}
