//! A metaslab of a pool that is written: where each of its bytes is on the way between free and allocated.
//!
//! # Life
//! A byte is *free* (in the range tree of a loaded metaslab), *allocating* (handed out in a group that has not synced), allocated (on
//! the space map and nowhere else), *freeing* (freed in the group that syncs, not on the space map yet), *freed* (the same, on it) or *deferred*
//! (freed in one of the last two groups: an older uberblock may still refer to it). [`LiveMetaslab::done`] moves it on.
//!
//! An unloaded metaslab has none that is free or allocating: it must be loaded to allocate from, and not to free into.

use super::free_space::FreeSpace;
use super::group::GroupId;
use super::state::Changes;
use crate::range::RangeSet;
use ondisk::spacemap::{SPACE_MAP_HISTOGRAM_SIZE, SpaceMapPhys};
use ondisk::{ObjNum, Txg, VdevId};

/// Transaction groups that can be open, quiescing, syncing and done at once (`TXG_SIZE`).
pub(super) const TXG_SIZE: usize = 4;
/// Groups for which what was freed is not used again (`TXG_DEFER_SIZE`).
pub(super) const TXG_DEFER_SIZE: usize = 2;

/// The slot of a group.
pub(super) fn slot(txg: Txg) -> usize {
    (txg.0 % TXG_SIZE as u64) as usize
}

/// How good a metaslab is to allocate from (`ms_weight`, by segments): the size class of its largest free ranges, and how many
/// there are. All zero: nothing is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Weight {
    /// log2 of their size.
    pub(super) index: u8,
    /// How many.
    pub(super) count: u64,
}

impl Weight {
    pub(super) const NONE: Weight = Weight { index: 0, count: 0 };
}

/// A metaslab (`metaslab_t`).
#[derive(Debug)]
pub(super) struct LiveMetaslab {
    /// First byte.
    pub(super) start: u64,
    /// Size in bytes.
    pub(super) size: u64,
    /// log2 of the vdev's sector size.
    pub(super) shift: u8,
    /// The group that it is in.
    pub(super) group: GroupId,
    /// Its space map, once it has one.
    pub(super) object: Option<ObjNum>,
    /// Header of that, as last written.
    pub(super) phys: Option<SpaceMapPhys>,
    /// Bytes allocated: on the space map, with what logs of an imported pool say (`ms_allocated_space`).
    pub(super) allocated: u64,
    /// What is free, when loaded.
    pub(super) free: Option<FreeSpace>,
    pub(super) allocating: [RangeSet; TXG_SIZE],
    pub(super) freeing: [RangeSet; TXG_SIZE],
    pub(super) freed: RangeSet,
    pub(super) defer: [RangeSet; TXG_DEFER_SIZE],
    /// What may be used again since it was last asked for, as far as that is noted: parts of it may have been allocated since (`ms_trim`).
    pub(super) freed_lately: RangeSet,
    /// Net changes that are in logs only, of an imported pool: allocations and frees.
    pub(super) unflushed: (RangeSet, RangeSet),
    /// Whether these have been handed out to be put on the space map.
    pub(super) folded: bool,
    /// What of it is in its group's sum.
    pub(super) counted: u64,
    pub(super) weight: Weight,
    /// The weight index at which it was made active.
    pub(super) activated: Option<u8>,
    /// Its space map can't be read or contradicts itself: nothing is allocated from it.
    pub(super) broken: bool,
    /// Its space map could not be read just now: nothing is allocated from it before the next group.
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

    /// Bytes that are not to be had, those included that are freed but not to be used yet.
    pub(super) fn taken(&self) -> u64 {
        self.allocated.saturating_add(self.freed.space()).saturating_add(self.deferred())
    }

    /// Bytes freed that can't be used yet (`ms_deferspace`).
    pub(super) fn deferred(&self) -> u64 {
        self.defer.iter().map(RangeSet::space).sum()
    }

    /// Sets what is free: what `allocated` leaves, but for what was freed lately.
    ///
    /// # Errors
    /// False, with nothing changed, when the map contradicts what is known of the metaslab.
    #[must_use]
    pub(super) fn load(&mut self, mut allocated: RangeSet) -> bool {
        let (added, removed) = (&self.unflushed.0, &self.unflushed.1);
        let fits = added.iter().all(|(s, e)| allocated.add(s, e))
            && removed.iter().all(|(s, e)| allocated.remove(s, e));
        let lately = self.defer.iter().chain([&self.freed]);
        // Of the frees of the group that syncs the map that was read may know nothing: those are allocated in it.
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

    /// Whether an allocation of `asize` bytes can succeed (`metaslab_should_allocate`): surely not, if false.
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
            // Of a map without a histogram only the sum is known; loading tells more.
            Some(_) => whole(self.size.saturating_sub(self.allocated)),
        }
    }

    /// Why `start..end` can't be freed, if it can't: it is not allocated, as far as is known.
    pub(super) fn refuses_free(&self, start: u64, end: u64) -> bool {
        let lately = self.freeing.iter().chain(&self.defer).chain([&self.freed]);
        self.free.as_ref().is_some_and(|f| f.overlaps(start, end))
            || lately.into_iter().any(|set| set.overlaps(start, end))
    }

    /// Hands out what the group `txg` has changed, as [`State::take`](super::state::State::take) says.
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

    /// What was allocated before the group whose changes these are, with what other groups have not synced left out: what a map
    /// written anew should say before them. `None` if the metaslab is not loaded.
    pub(super) fn allocated_before(&self, changes: &Changes) -> Option<RangeSet> {
        let free = self.free.as_ref()?;
        let mut all = RangeSet::new();
        let mut add = |(s, e)| assert!(all.add(s, e), "a byte is in one state");
        free.iter().for_each(&mut add);
        let unsynced = self.allocating.iter().chain(&self.defer).chain([&changes.allocs]);
        unsynced.flat_map(RangeSet::iter).for_each(&mut add);
        // What this group frees is still allocated before it.
        Some(all.gaps(self.start, self.end()))
    }

    /// Free ranges by size, those included that can't be used yet: as a space map's header has them. Of an unloaded metaslab
    /// only `frees` are added to what it had.
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

    /// The group `txg` has synced: what it freed is deferred, what was freed two groups before is free
    /// (`metaslab_sync_done`). Without `defer` everything is free at once. With `note` that is noted.
    pub(super) fn done(&mut self, txg: Txg, defer: bool, note: bool) {
        debug_assert!(self.allocating[slot(txg)].is_empty() && self.freeing[slot(txg)].is_empty());
        let freed = std::mem::take(&mut self.freed);
        let old = std::mem::take(&mut self.defer[txg.0 as usize % TXG_DEFER_SIZE]);
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
            self.defer[txg.0 as usize % TXG_DEFER_SIZE] = freed;
        }
        if self.folded {
            self.unflushed = Default::default();
        }
    }

    /// What was freed in the last two groups is free at once.
    pub(super) fn release(&mut self) {
        let lately = std::mem::take(&mut self.defer);
        if let Some(free) = &mut self.free {
            lately.iter().flat_map(RangeSet::iter).for_each(|(s, e)| free.add(s, e));
        }
    }

    /// Whether [`LiveMetaslab::done`] must see it again though nothing changes.
    pub(super) fn waits(&self) -> bool {
        self.deferred() > 0
    }
}

/// Adds a histogram of bytes to one of units of `1 << shift` bytes (`space_map_histogram_add`): ranges too large for its
/// last bucket count there as several.
fn scale(out: &mut [u64; SPACE_MAP_HISTOGRAM_SIZE], bytes: &[u64; 64], shift: u8) {
    for (i, n) in bytes.iter().enumerate().skip(shift.into()) {
        let unit = i - usize::from(shift);
        let index = unit.min(SPACE_MAP_HISTOGRAM_SIZE - 1);
        out[index] = out[index].saturating_add(n << (unit - index));
    }
}

/// The weight of a histogram of free ranges; ranges beyond `top` count as several of that size.
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
