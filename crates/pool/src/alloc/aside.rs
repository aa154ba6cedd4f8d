//! Metaslabs set aside: nothing is allocated from them, so that what is free there can be written or discarded.
//!
//! # Theory
//! What may be touched of a metaslab is what was free when it was set aside: not allocated as far as any group knows that has synced or is on the
//! way, not freed lately, so that the last uberblocks stay good, and not held back for a checkpoint, which is allocated still. Nobody is given any of that before
//! the metaslab is given back; what becomes free meanwhile is not touched.
//!
//! A pool must not fail for want of room because somebody cleans up in it. So who finds no room while metaslabs are aside waits until they are all given
//! back, which whoever has one does soon when it is wanted ([`Aside::is_wanted`]), and none is set aside before the group has synced.
//!
//! # Locks
//! Who has a metaslab aside waits for nothing but the device that he works on: above all for no transaction group, whose sync may be what waits for
//! room.
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

/// Metaslabs of one vdev that are aside at once (`max_disabled_ms`).
const ASIDE_MAX: usize = 3;
/// Of a vdev with few of them most stay in use: one in so many may be aside.
const ASIDE_PART: usize = 4;
/// How often who waits for a metaslab looks whether he is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What is aside, and who waits for that to end.
#[derive(Debug, Default)]
pub(super) struct AsideBook {
    /// How many have a metaslab aside.
    aside: BTreeMap<MetaslabKey, usize>,
    /// Who found no room.
    starving: usize,
    /// Somebody found none since the last group: others of it may, too, and would wait each for a metaslab of his own.
    starved: bool,
}

impl AsideBook {
    /// Whether one is aside at all: what can't be found now may be found then.
    pub(super) fn any(&self) -> bool {
        !self.aside.is_empty()
    }

    /// A group has synced.
    pub(super) fn eat(&mut self) {
        self.starved = false;
    }

    /// Whether nothing may be taken from a metaslab.
    pub(super) fn holds(&self, place: MetaslabKey) -> bool {
        self.aside.contains_key(&place)
    }
}

/// A metaslab from which nothing is allocated until this is dropped.
#[derive(Debug)]
pub struct Aside<'a> {
    allocator: &'a Allocator,
    place: MetaslabKey,
    free: Vec<(u64, u64)>,
    never_used: bool,
    /// Its map was read for this alone.
    loaded_here: bool,
}

/// What came of wanting a metaslab aside.
#[derive(Debug)]
pub enum Chance<'a> {
    /// It is.
    Aside(Aside<'a>),
    /// It is not now: it was not to be waited for, or its map could not be read a moment ago.
    Later,
    /// There is no such metaslab, or its map contradicts itself.
    Never,
}

/// What is known of a metaslab without its map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaslabFigures {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes allocated.
    pub allocated: u64,
}

impl Aside<'_> {
    /// What was free when it was set aside: starts and ends, in order.
    pub fn free(&self) -> &[(u64, u64)] {
        &self.free
    }

    /// What of that has been freed since this was last asked: starts and ends, in order ([`Allocator::note_frees`]).
    pub fn take_freed(&self) -> Vec<(u64, u64)> {
        let freed = std::mem::take(&mut self.allocator.state.lock().metaslab(self.place).freed_lately);
        freed.common(&self.free)
    }

    /// It has no space map: nothing was ever written to it.
    pub fn never_used(&self) -> bool {
        self.never_used
    }

    /// Somebody waits for room: it is to be given back ([`Allocator::is_room_wanted`]).
    pub fn is_wanted(&self) -> bool {
        self.allocator.is_room_wanted()
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        let mut state = self.allocator.state.lock();
        let count = state.aside.aside.get_mut(&self.place).expect("it was set aside");
        *count -= 1;
        if *count == 0 {
            state.aside.aside.remove(&self.place);
            if self.loaded_here {
                state.unload(self.place);
            }
        }
        self.allocator.given_back.notify_all();
    }
}

impl State {
    /// Forgets the map of a metaslab, if all that is known of it is on disk: what was allocated in a group that has not synced
    /// would be free by the map that is read next.
    fn unload(&mut self, place: MetaslabKey) {
        let changes = self.pending.contains(&place) || self.dirty.iter().any(|d| d.contains(&place));
        let ms = self.metaslab(place);
        if !changes && ms.activated.is_none() && ms.allocating.iter().all(|set| set.is_empty()) {
            ms.free = None;
            self.reweigh(place);
        }
    }

    /// Marks a loaded metaslab; `None` where it has no map that can be gone by.
    fn mark_aside(&mut self, place: MetaslabKey) -> Option<(Vec<(u64, u64)>, bool)> {
        let ms = self.metaslab(place);
        if ms.broken || ms.resting {
            return None;
        }
        let free: Vec<(u64, u64)> = ms.free.as_ref()?.iter().collect();
        let (never_used, group) = (ms.object.is_none(), ms.group);
        *self.aside.aside.entry(place).or_default() += 1;
        let ms = &mut self.vdevs.get_mut(&place.0).expect("it was there").metaslabs[place.1 as usize];
        self.groups[group.0].passivate(place.1, ms);
        Some((free, never_used))
    }

    fn may_set_aside(&self, place: MetaslabKey) -> bool {
        let mine = self.aside.aside.keys().filter(|p| p.0 == place.0 && **p != place).count();
        let all = self.vdevs.get(&place.0).map_or(0, |v| v.metaslabs.len());
        self.aside.starving == 0 && !self.aside.starved && mine < (all / ASIDE_PART).clamp(1, ASIDE_MAX)
    }
}

impl Allocator {
    /// Somebody waits for room that is set aside: whoever has a metaslab aside is to give it back, and to wait for nothing meanwhile.
    pub fn is_room_wanted(&self) -> bool {
        self.state.lock().aside.starving > 0
    }

    /// Has what may be used again noted from now on, for [`Aside::take_freed`], or not any more, and forgotten.
    pub fn note_frees(&self, note: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.notes_frees, note) && !note {
            let metaslabs = state.vdevs.values_mut().flat_map(|vdev| &mut vdev.metaslabs);
            metaslabs.for_each(|ms| ms.freed_lately = RangeSet::new());
        }
    }

    /// The metaslabs of a vdev of which so many bytes are noted.
    pub fn freed_lately(&self, vdev: VdevId, least: u64) -> Vec<u32> {
        let state = self.state.lock();
        let metaslabs = state.vdevs.get(&vdev).map(|v| v.metaslabs.iter()).into_iter().flatten();
        (0..)
            .zip(metaslabs)
            .filter(|(_, ms)| ms.freed_lately.space() >= least.max(1))
            .map(|(id, _)| id)
            .collect()
    }

    /// What is known of each metaslab of a vdev; none where the vdev has none.
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

    /// Sets a metaslab aside, when nobody waits for room or has in this group, and not too many of its vdev are; waits for that until `stop`.
    ///
    /// # Errors
    /// As reading its map fails, if that may pass.
    pub fn set_aside(&self, vdev: VdevId, id: u32, stop: &dyn Fn() -> bool) -> Result<Chance<'_>> {
        let place = (vdev, id);
        loop {
            let loaded = {
                let mut state = self.state.lock();
                let there = state.vdevs.get(&vdev).is_some_and(|v| (id as usize) < v.metaslabs.len());
                if !there {
                    return Ok(Chance::Never);
                }
                while !state.may_set_aside(place) {
                    if stop() {
                        return Ok(Chance::Later);
                    }
                    self.given_back.wait_for(&mut state, LOOK);
                }
                state.metaslab(place).free.is_some()
            };
            // Read before it is set aside: who waits for room is not to wait for that.
            self.load(place, IoFlags::NONE)?;
            let mut state = self.state.lock();
            if !state.may_set_aside(place) {
                continue;
            }
            if let Some((free, never_used)) = state.mark_aside(place) {
                let loaded_here = !loaded;
                return Ok(Chance::Aside(Aside { allocator: self, place, free, never_used, loaded_here }));
            }
            let ms = state.metaslab(place);
            if ms.broken {
                return Ok(Chance::Never);
            }
            if ms.resting {
                return Ok(Chance::Later);
            }
            // Somebody else who had it aside has forgotten its map in between.
        }
    }

    /// Allocates where nothing was found: once more, when nothing is aside. Loads what has to be known for it.
    pub(super) fn allocate_starving(
        &self,
        want: &Want,
    ) -> std::result::Result<[Option<ondisk::Dva>; 3], NoSpace> {
        let tree = self.tree.get();
        self.state.lock().aside.starving += 1;
        let done = loop {
            let place = {
                let mut state = self.state.lock();
                while state.aside.any() {
                    self.given_back.wait(&mut state);
                }
                let done = state.allocate(&tree, want);
                match state.wanted.take() {
                    None => break done,
                    Some(place) => place,
                }
            };
            // Whether that went well shows when it is tried again.
            let _ = self.load(place, want.flags);
        };
        let mut state = self.state.lock();
        state.aside.starving -= 1;
        state.aside.starved = true;
        drop(state);
        self.given_back.notify_all();
        done
    }
}
