//! Eviction (`arc_evict`).
//!
//! # Theory
//! The list furthest above its target is evicted from: a few of the oldest headers of one sublist
//! after another, from a random one on. A block that was used since the last look is skipped once,
//! since a hit leaves a mark and moves nothing.
//!
//! An evicted block leaves a ghost, a header without a block. The blocks of all ghosts together are
//! as large as the cache may be. The ghosts themselves take at most a sixteenth of it.
//!
//! # Locks
//! A sublist's lock while some headers are taken out, then the bucket of each, one at a time.
//! Blocks are released without a lock.

use super::{Bucket, Inner};
use crate::forms::Held;
use crate::header::{GHOST_OVERHEAD, Header, State};
use crate::l2::index::Name;
use crate::tunables::ARC_EVICT_BATCH_LIMIT;
use device::Block;
use observe::event::{self, ArcEvict};
use observe::lock::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What has been taken from one list.
#[derive(Default)]
struct Progress {
    looked_at: u64,
    freed: u64,
}

impl Inner {
    /// Evicts until the held bytes are below the low mark, or nothing can be evicted.
    pub(super) fn make_room(&self) {
        let mut empty = [[false; 2]; 2];
        while self.pressure.size() > self.pressure.low() {
            self.trim_ghosts();
            let goal = self.pressure.size().saturating_sub(self.pressure.low()).min(1 << 20);
            if self.cool(goal) > 0 {
                self.pressure.hint();
                continue;
            }
            let fattest = self.balance.fattest(self.sizes(), |kind, again| !empty[kind][again]);
            let Some((kind, again)) = fattest else {
                if !self.trim_a_ghost() {
                    self.counters.evict_not_enough.inc();
                    return;
                }
                continue;
            };
            let state = if again == 1 { State::Mfu } else { State::Mru };
            if self.evict_from(state, kind, goal) == 0 {
                empty[kind][again] = true;
            } else {
                empty = Default::default();
                self.pressure.hint();
            }
        }
    }

    /// Evicts blocks of a list, about `goal` bytes; returns how many.
    fn evict_from(&self, state: State, kind: usize, goal: u64) -> u64 {
        let list = &self.lists[state.list(kind)];
        let batch = usize::try_from(ARC_EVICT_BATCH_LIMIT.get()).unwrap_or(usize::MAX).clamp(1, 1 << 16);
        let there = self.sums[state.list(kind)].count.load(Ordering::Relaxed);
        let (sublists, first) = (list.sublists(), self.roll());
        let (mut taken, mut blocks) = (Vec::with_capacity(batch.min(256)), Vec::new());
        let (mut done, mut n, mut idle) = (Progress::default(), 0, 0);
        // A block that is being written to a cache device stays, however often it is examined.
        while done.freed < goal && idle < sublists && done.looked_at <= 2 * there {
            let sublist = (first + n) % sublists;
            n += 1;
            list.take(sublist, batch, &mut taken);
            idle = if taken.is_empty() { idle + 1 } else { 0 };
            let mut stale = 0;
            for header in taken.drain(..) {
                match self.evict(&header, state, done.looked_at > there) {
                    None => stale += 1,
                    Some(gone) => {
                        done.looked_at += 1;
                        if let Some((held, room)) = gone {
                            done.freed += room;
                            blocks.push(held);
                        }
                    }
                }
            }
            if stale > 0 {
                list.met_stale(sublist, stale);
            }
            blocks.clear();
        }
        done.freed
    }

    /// Evicts a block that was in a list of this state; returns it with its memory.
    ///
    /// `Some(None)` if it was used since the last look. `None` if it is no longer in this state.
    fn evict(
        &self,
        header: &Arc<Header>,
        state: State,
        regardless: bool,
    ) -> Option<Option<(Held<Block>, u64)>> {
        let mut bucket = self.lock(header);
        if header.state() != state {
            return None;
        }
        self.uncount(header);
        if header.unmark() && !regardless {
            if header.is_ahead() {
                self.counters.evict_skip.inc();
            }
            self.put(header, state);
            return Some(None);
        }
        if header.is_writing() {
            self.l2.counters.evict_skip.inc();
            self.put(header, state);
            return Some(None);
        }
        self.l2.warm.store(true, Ordering::Relaxed);
        self.asked_for(header);
        let room = header.room();
        self.count_evicted(header, state);
        let held = self.give_up(&mut bucket.recipes, header);
        // The ghost keeps its part of the block's memory.
        self.pressure.give(room - GHOST_OVERHEAD);
        self.put(header, if state == State::Mru { State::MruGhost } else { State::MfuGhost });
        self.counters.deleted.inc();
        Some(Some((held, room)))
    }

    /// Counts an evicted block by whether a cache device has it. Counts as OpenZFS does, also
    /// without such devices. Its bucket is locked.
    fn count_evicted(&self, header: &Header, state: State) {
        let evicted = &self.counters.evicted;
        let of = if self.l2.any() && self.l2.index.has(&Name::of(&header.key)) {
            &evicted.l2_cached
        } else if header.for_l2() {
            &evicted.l2_eligible[usize::from(state == State::Mfu)]
        } else {
            &evicted.l2_ineligible
        };
        let bytes = header.key.lsize() as u64;
        of.add(bytes);
        event::arc_evict(|| ArcEvict { bytes });
    }

    pub(super) fn lock(&self, header: &Header) -> MutexGuard<'_, Bucket> {
        let bucket = self.bucket(&header.key);
        bucket.try_lock().unwrap_or_else(|| {
            self.counters.mutex_miss.inc();
            bucket.lock()
        })
    }

    /// Drops ghosts while there are too many.
    fn trim_ghosts(&self) {
        let sum = |get: fn(&super::Sum) -> u64| -> u64 {
            let of = |state: State| [0, 1].map(|kind| get(&self.sums[state.list(kind)]));
            of(State::MruGhost).iter().chain(&of(State::MfuGhost)).sum()
        };
        let max = self.pressure.max();
        while sum(|s| s.bytes.load(Ordering::Relaxed)) > max
            || sum(|s| s.count.load(Ordering::Relaxed)) * GHOST_OVERHEAD > max / 16
        {
            if !self.trim_a_ghost() {
                return;
            }
        }
    }

    /// Drops an old ghost of the largest list of ghosts; returns false if there is none.
    fn trim_a_ghost(&self) -> bool {
        let lists = [State::MruGhost, State::MfuGhost].map(|state| [(state, 0), (state, 1)]);
        let count = |state: State, kind| self.sums[state.list(kind)].count.load(Ordering::Relaxed);
        let largest = lists.into_iter().flatten().filter(|(s, k)| count(*s, *k) > 0);
        let Some((state, kind)) =
            largest.max_by_key(|(s, k)| self.sums[s.list(*k)].bytes.load(Ordering::Relaxed))
        else {
            return false;
        };
        let list = &self.lists[state.list(kind)];
        let (sublists, first) = (list.sublists(), self.roll());
        let mut taken = Vec::new();
        for sublist in (0..sublists).map(|n| (first + n) % sublists) {
            list.take(sublist, 1, &mut taken);
            while let Some(header) = taken.pop() {
                let mut bucket = self.lock(&header);
                if header.state() == state {
                    bucket.entries.remove(&header.key);
                    self.uncount(&header);
                    header.set_state(State::Gone);
                    self.pressure.give(GHOST_OVERHEAD);
                    return true;
                }
                drop(bucket);
                list.met_stale(sublist, 1);
                list.take(sublist, 1, &mut taken);
            }
        }
        false
    }

    /// A random number.
    pub(super) fn roll(&self) -> usize {
        let next = |x: u64| {
            let x = x ^ x << 13;
            let x = x ^ x >> 7;
            x ^ x << 17
        };
        let x = next(self.dice.load(Ordering::Relaxed));
        self.dice.store(x, Ordering::Relaxed);
        (x >> 16) as usize
    }
}
