//! Metaslabs that are disabled: nothing is allocated from them, so that their free space can be
//! written or discarded.
//!
//! # Theory
//! Only space that was free when the metaslab was disabled may be touched. This excludes:
//!
//! * space that a txg has allocated, synced or not;
//! * space that was freed lately, so that the last uberblocks stay valid;
//! * space that a checkpoint holds back, which is still allocated.
//!
//! No allocation gets any of the free space before the metaslab is given back. Space that becomes
//! free meanwhile is not touched.
//!
//! Initialize and TRIM must not make a pool run out of space. So an allocation that finds none
//! while metaslabs are disabled waits until all are given back. Their holders give them back soon
//! when they are wanted ([`DisabledMetaslab::is_wanted`]). No metaslab is disabled again before the
//! txg has synced.
//!
//! # Locks
//! The holder of a metaslab waits for nothing but its device. Above all it waits for no txg,
//! because the sync of a txg may be what waits for space.
//!
//! # See
//! OpenZFS `metaslab_disable`, `metaslab_enable`.

use super::Allocator;
use super::state::{MetaslabKey, State};
use crate::Result;
use crate::range::RangeSet;
use ondisk::VdevId;
use std::collections::BTreeMap;
use std::time::Duration;
use zio::{IoFlags, NoSpace, Want};

/// Most metaslabs of one vdev that are disabled at once (`max_disabled_ms`).
const DISABLED_MAX: usize = 3;
/// At most one of so many metaslabs of a small vdev may be disabled, so that most stay in use.
const DISABLED_PART: usize = 4;
/// How often a thread that waits for a metaslab checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

/// The metaslabs that are disabled, and the allocations that wait for them.
#[derive(Debug, Default)]
pub(super) struct DisabledMetaslabs {
    /// The number of holders of each metaslab.
    holders: BTreeMap<MetaslabKey, usize>,
    /// The number of allocations that found no space.
    starving: usize,
    /// True if an allocation found none since the last txg. Others of this txg may find none
    /// either, and each would wait for a metaslab.
    starved: bool,
}

impl DisabledMetaslabs {
    /// True if any metaslab is disabled. An allocation that fails now may succeed afterwards.
    pub(super) fn any(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Notes that a txg has synced.
    pub(super) fn eat(&mut self) {
        self.starved = false;
    }

    /// True if nothing may be allocated from a metaslab.
    pub(super) fn holds(&self, place: MetaslabKey) -> bool {
        self.holders.contains_key(&place)
    }
}

/// A metaslab that is disabled until this is dropped.
#[derive(Debug)]
pub struct DisabledMetaslab<'a> {
    allocator: &'a Allocator,
    place: MetaslabKey,
    free: Vec<(u64, u64)>,
    never_used: bool,
    /// True if its map was read only for this.
    loaded_here: bool,
}

/// The result of [`Allocator::disable_metaslab`].
#[derive(Debug)]
pub enum DisableOutcome<'a> {
    /// The metaslab is disabled.
    Disabled(DisabledMetaslab<'a>),
    /// Not now: the wait was stopped, or the map could not be read a moment ago.
    Later,
    /// Never: there is no such metaslab, or its map contradicts itself.
    Never,
}

/// The figures of a metaslab that are known without its map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaslabFigures {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its allocated bytes.
    pub allocated: u64,
}

impl DisabledMetaslab<'_> {
    /// The starts and ends of what was free when the metaslab was disabled, in order.
    pub fn free(&self) -> &[(u64, u64)] {
        &self.free
    }

    /// The starts and ends of the part of it that was freed since the last call, in order
    /// ([`Allocator::note_frees`]).
    pub fn take_freed(&self) -> Vec<(u64, u64)> {
        let freed = std::mem::take(&mut self.allocator.state.lock().metaslab(self.place).freed_lately);
        freed.common(&self.free)
    }

    /// True if it has no space map, so that nothing was ever written to it.
    pub fn never_used(&self) -> bool {
        self.never_used
    }

    /// True if an allocation waits for space, so that the metaslab should be given back
    /// ([`Allocator::is_room_wanted`]).
    pub fn is_wanted(&self) -> bool {
        self.allocator.is_room_wanted()
    }
}

impl Drop for DisabledMetaslab<'_> {
    fn drop(&mut self) {
        let mut state = self.allocator.state.lock();
        let count = state.disabled.holders.get_mut(&self.place).expect("it was disabled");
        *count -= 1;
        if *count == 0 {
            state.disabled.holders.remove(&self.place);
            if self.loaded_here {
                state.unload(self.place);
            }
        }
        self.allocator.given_back.notify_all();
    }
}

impl State {
    /// Drops the map of a metaslab, if everything known of it is on disk.
    ///
    /// Space that was allocated in a txg which has not synced would be free by the map that is read
    /// next.
    fn unload(&mut self, place: MetaslabKey) {
        let changes = self.pending.contains(&place) || self.dirty.iter().any(|d| d.contains(&place));
        let ms = self.metaslab(place);
        if !changes && ms.activated.is_none() && ms.allocating.iter().all(|set| set.is_empty()) {
            ms.free = None;
            self.reweigh(place);
        }
    }

    /// Marks a loaded metaslab. `None` if it has no usable map.
    fn mark_disabled(&mut self, place: MetaslabKey) -> Option<(Vec<(u64, u64)>, bool)> {
        let ms = self.metaslab(place);
        if ms.broken || ms.resting {
            return None;
        }
        let free: Vec<(u64, u64)> = ms.free.as_ref()?.iter().collect();
        let (never_used, group) = (ms.object.is_none(), ms.group);
        *self.disabled.holders.entry(place).or_default() += 1;
        let ms = &mut self.vdevs.get_mut(&place.0).expect("it was there").metaslabs[place.1 as usize];
        self.groups[group.0].passivate(place.1, ms);
        Some((free, never_used))
    }

    fn may_disable(&self, place: MetaslabKey) -> bool {
        let mine = self.disabled.holders.keys().filter(|p| p.0 == place.0 && **p != place).count();
        let all = self.vdevs.get(&place.0).map_or(0, |v| v.metaslabs.len());
        self.disabled.starving == 0
            && !self.disabled.starved
            && mine < (all / DISABLED_PART).clamp(1, DISABLED_MAX)
    }
}

impl Allocator {
    /// True if an allocation waits for space that is disabled.
    ///
    /// A holder of a metaslab must then give it back, and wait for nothing meanwhile.
    pub fn is_room_wanted(&self) -> bool {
        self.state.lock().disabled.starving > 0
    }

    /// Starts or stops recording space that becomes free, for [`DisabledMetaslab::take_freed`]. A
    /// stop drops the record.
    pub fn note_frees(&self, note: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.notes_frees, note) && !note {
            let metaslabs = state.vdevs.values_mut().flat_map(|vdev| &mut vdev.metaslabs);
            metaslabs.for_each(|ms| ms.freed_lately = RangeSet::new());
        }
    }

    /// The metaslabs of a vdev with at least `least` recorded bytes.
    pub fn freed_lately(&self, vdev: VdevId, least: u64) -> Vec<u32> {
        let state = self.state.lock();
        let metaslabs = state.vdevs.get(&vdev).map(|v| v.metaslabs.iter()).into_iter().flatten();
        (0..)
            .zip(metaslabs)
            .filter(|(_, ms)| ms.freed_lately.space() >= least.max(1))
            .map(|(id, _)| id)
            .collect()
    }

    /// The figures of each metaslab of a vdev.
    pub fn metaslab_figures(&self, vdev: VdevId) -> Vec<MetaslabFigures> {
        let state = self.state.lock();
        let metaslabs = state.vdevs.get(&vdev).map(|v| v.metaslabs.iter()).into_iter().flatten();
        metaslabs
            .map(|ms| MetaslabFigures {
                start: ms.start,
                size: ms.size,
                allocated: ms.allocated.min(ms.size),
            })
            .collect()
    }

    /// Disables a metaslab (`metaslab_disable`).
    ///
    /// Waits while an allocation starves or has starved in this txg, and while too many metaslabs
    /// of the vdev are disabled. Gives up when `stop` returns true.
    ///
    /// # Errors
    /// * [`crate::Error::Object`]: the space map can't be read now, because devices fail or the
    ///   pool is suspended.
    pub fn disable_metaslab(
        &self,
        vdev: VdevId,
        id: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<DisableOutcome<'_>> {
        let place = (vdev, id);
        loop {
            let loaded = {
                let mut state = self.state.lock();
                let there = state.vdevs.get(&vdev).is_some_and(|v| (id as usize) < v.metaslabs.len());
                if !there {
                    return Ok(DisableOutcome::Never);
                }
                while !state.may_disable(place) {
                    if stop() {
                        return Ok(DisableOutcome::Later);
                    }
                    self.given_back.wait_for(&mut state, LOOK);
                }
                state.metaslab(place).free.is_some()
            };
            // The map is read before the metaslab is disabled, so that no allocation waits for
            // this read.
            self.load(place, IoFlags::NONE)?;
            let mut state = self.state.lock();
            if !state.may_disable(place) {
                continue;
            }
            if let Some((free, never_used)) = state.mark_disabled(place) {
                let loaded_here = !loaded;
                return Ok(DisableOutcome::Disabled(DisabledMetaslab {
                    allocator: self,
                    place,
                    free,
                    never_used,
                    loaded_here,
                }));
            }
            let ms = state.metaslab(place);
            if ms.broken {
                return Ok(DisableOutcome::Never);
            }
            if ms.resting {
                return Ok(DisableOutcome::Later);
            }
            // Another holder dropped the map in between.
        }
    }

    /// Repeats an allocation that found no space, when no metaslab is disabled. Loads the metaslabs
    /// that it needs.
    pub(super) fn allocate_starving(
        &self,
        want: &Want,
    ) -> std::result::Result<[Option<ondisk::Dva>; 3], NoSpace> {
        let tree = self.tree.get();
        self.state.lock().disabled.starving += 1;
        let done = loop {
            let place = {
                let mut state = self.state.lock();
                while state.disabled.any() {
                    self.given_back.wait(&mut state);
                }
                let done = state.allocate(&tree, want);
                match state.wanted.take() {
                    None => break done,
                    Some(place) => place,
                }
            };
            // The next attempt shows whether the load succeeded.
            let _ = self.load(place, want.flags);
        };
        let mut state = self.state.lock();
        state.disabled.starving -= 1;
        state.disabled.starved = true;
        drop(state);
        self.given_back.notify_all();
        done
    }
}
