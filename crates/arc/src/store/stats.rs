//! What is counted, by OpenZFS's names (`arcstats`).

use super::{Inner, Store};
use crate::header::{GHOST_OVERHEAD, HELD_OVERHEAD, State};
use crate::multilist::Evenness;
use std::sync::atomic::Ordering::Relaxed;

/// The counters that a caller inside the process asks for; [`Store::named`] has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reads that found their block, or somebody who was reading it (`hits`, `iohits`).
    pub hits: u64,
    /// Reads that did not (`misses`).
    pub misses: u64,
    /// Hits that needed no table ([`crate::Hand`]); they are among the hits.
    pub at_hand: u64,
    /// Bytes held (`size`).
    pub size: u64,
    /// Bytes that may be held (`c_max`).
    pub c_max: u64,
}

/// How evenly the sublists of a state's list are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sublists {
    /// The list, as its sizes are named in `arcstats`.
    pub list: &'static str,
    /// How evenly.
    pub evenness: Evenness,
}

/// The lists, in the order of their numbers.
const LISTS: [&str; State::LISTS] = [
    "mru_data",
    "mru_metadata",
    "mfu_data",
    "mfu_metadata",
    "mru_ghost_data",
    "mru_ghost_metadata",
    "mfu_ghost_data",
    "mfu_ghost_metadata",
];

impl Inner {
    /// Hits by type and by state.
    fn hits(&self) -> super::Hits {
        let mut sum = super::Hits::default();
        for bucket in &self.buckets {
            let hits = bucket.lock().hits;
            for n in 0..2 {
                sum.kinds[n] += hits.kinds[n];
                sum.states[n] += hits.states[n];
            }
        }
        for (kind, at_hand) in self.counters.at_hand.iter().enumerate() {
            sum.kinds[kind] += at_hand.get();
            sum.states[1] += at_hand.get();
        }
        sum
    }
}

impl Store {
    /// The counters that are asked for most.
    pub fn stats(&self) -> Stats {
        let (inner, hits) = (&*self.inner, self.inner.hits());
        let sum = |of: &[observe::Sharded; 2]| of[0].get() + of[1].get();
        Stats {
            hits: hits.kinds[0] + hits.kinds[1] + sum(&inner.counters.iohits),
            misses: sum(&inner.counters.misses),
            at_hand: sum(&inner.counters.at_hand),
            size: inner.pressure.size(),
            c_max: inner.pressure.max(),
        }
    }

    /// All counters by OpenZFS's names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let (inner, hits) = (&*self.inner, self.inner.hits());
        let c = &inner.counters;
        let bytes = |list: usize| inner.sums[list].bytes.load(Relaxed);
        let count = |list: usize| inner.sums[list].count.load(Relaxed);
        let held = (0..4).map(count).sum::<u64>();
        let (data, metadata) = (bytes(0) + bytes(2), bytes(1) + bytes(3));
        let headers = held * HELD_OVERHEAD + (4..8).map(count).sum::<u64>() * GHOST_OVERHEAD;
        let (meta, pd, pm) = inner.balance.shares();
        let [iohit_data, iohit_metadata] = [0, 1].map(|n| c.iohits[n].get());
        let [miss_data, miss_metadata] = [0, 1].map(|n| c.misses[n].get());
        let mut out = vec![
            ("hits", hits.kinds[0] + hits.kinds[1]),
            ("iohits", iohit_data + iohit_metadata),
            ("misses", miss_data + miss_metadata),
            ("demand_data_hits", hits.kinds[0]),
            ("demand_data_iohits", iohit_data),
            ("demand_data_misses", miss_data),
            ("demand_metadata_hits", hits.kinds[1]),
            ("demand_metadata_iohits", iohit_metadata),
            ("demand_metadata_misses", miss_metadata),
            ("mru_hits", hits.states[0]),
            ("mru_ghost_hits", c.ghost_hits[0].get()),
            ("mfu_hits", hits.states[1]),
            ("mfu_ghost_hits", c.ghost_hits[1].get()),
            ("deleted", c.deleted.get()),
            ("mutex_miss", c.mutex_miss.get()),
            ("evict_not_enough", c.evict_not_enough.get()),
            ("hash_elements", inner.elements()),
            ("hash_elements_max", c.elements_max.load(Relaxed)),
            ("meta", meta),
            ("pd", pd),
            ("pm", pm),
            ("c", inner.pressure.low()),
            ("c_max", inner.pressure.max()),
            ("size", inner.pressure.size()),
            // Blocks are held as they are read, as OpenZFS counts them with `zfs_compressed_arc_enabled=0`.
            ("compressed_size", data + metadata),
            ("uncompressed_size", data + metadata),
            ("overhead_size", 0),
            ("hdr_size", headers),
            ("data_size", data),
            ("metadata_size", metadata),
            ("arc_meta_used", metadata + headers),
        ];
        let states = ["mru_size", "mfu_size", "mru_ghost_size", "mfu_ghost_size"];
        out.extend((0..).step_by(2).zip(states).map(|(list, name)| (name, bytes(list) + bytes(list + 1))));
        out.extend(LISTS.iter().enumerate().map(|(list, name)| (*name, bytes(list))));
        // Nothing keeps a block that is held from being evicted.
        let evictable =
            ["mru_evictable_data", "mru_evictable_metadata", "mfu_evictable_data", "mfu_evictable_metadata"];
        out.extend(evictable.iter().enumerate().map(|(list, name)| (*name, bytes(list))));
        out
    }

    /// Blocks that were entered after waiting for room, and those that were not entered since there was none.
    pub fn waits(&self) -> (u64, u64) {
        (self.inner.counters.waited.get(), self.inner.counters.refused.get())
    }

    /// How evenly the sublists are filled, list by list.
    pub fn sublists(&self) -> impl Iterator<Item = Sublists> + '_ {
        let lists = LISTS.iter().zip(&self.inner.lists);
        lists.map(|(list, m)| Sublists { list, evenness: m.evenness() })
    }
}
