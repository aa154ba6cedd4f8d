//! Counters, by OpenZFS's names (`arcstats`).

use super::{Inner, Store};
use crate::header::{BOTH_OVERHEAD, GHOST_OVERHEAD, HELD_OVERHEAD, State};
use crate::l2::index::PLACE_OVERHEAD;
use crate::multilist::SublistSpread;
use crate::recipe::RECIPE_OVERHEAD;
use observe::Counter;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The counters for callers inside the process; [`Store::named`] has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reads that found their block, or another reader of it (`hits`, `iohits`).
    pub hits: u64,
    /// Reads that did not (`misses`).
    pub misses: u64,
    /// Hits without the table ([`crate::BlockRef`]); `hits` includes them.
    pub by_ref: u64,
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
    /// How evenly they are filled.
    pub evenness: SublistSpread,
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
        for (kind, by_ref) in self.counters.by_ref.iter().enumerate() {
            sum.kinds[kind] += by_ref.get();
            sum.states[1] += by_ref.get();
        }
        sum
    }
}

impl Store {
    /// The counters that are used most.
    pub fn stats(&self) -> Stats {
        let (inner, hits) = (&*self.inner, self.inner.hits());
        let sum = |of: &[observe::Sharded; 2]| of[0].get() + of[1].get();
        Stats {
            hits: hits.kinds[0] + hits.kinds[1] + sum(&inner.counters.iohits),
            misses: sum(&inner.counters.misses),
            by_ref: sum(&inner.counters.by_ref),
            size: inner.pressure.size(),
            c_max: inner.most(),
        }
    }

    /// All counters by OpenZFS's names.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut out = self.named_accesses();
        out.extend(self.named_evictions());
        out.extend(self.named_sizes());
        out.extend(self.named_limits());
        out.extend(self.second_named());
        out
    }

    /// Accesses and prefetches, by where they found their block.
    fn named_accesses(&self) -> Vec<(&'static str, u64)> {
        let (c, hits) = (&self.inner.counters, self.inner.hits());
        let [iohit_data, iohit_metadata] = [0, 1].map(|n| c.iohits[n].get());
        let [miss_data, miss_metadata] = [0, 1].map(|n| c.misses[n].get());
        let [ahead_data, ahead_metadata] = [0, 1].map(|n| &c.ahead[n]);
        let ahead =
            |of: fn(&super::AheadCounters) -> &Counter| of(ahead_data).get() + of(ahead_metadata).get();
        let (ahead_hits, ahead_iohits) = (ahead(|a| &a.hits), ahead(|a| &a.iohits));
        let ahead_misses = ahead(|a| &a.misses);
        vec![
            ("hits", hits.kinds[0] + hits.kinds[1] + ahead_hits),
            ("iohits", iohit_data + iohit_metadata + ahead_iohits),
            ("misses", miss_data + miss_metadata + ahead_misses),
            ("prefetch_data_hits", ahead_data.hits.get()),
            ("prefetch_data_iohits", ahead_data.iohits.get()),
            ("prefetch_data_misses", ahead_data.misses.get()),
            ("prefetch_metadata_hits", ahead_metadata.hits.get()),
            ("prefetch_metadata_iohits", ahead_metadata.iohits.get()),
            ("prefetch_metadata_misses", ahead_metadata.misses.get()),
            // Only reads ahead that need a device, as in OpenZFS.
            ("predictive_prefetch", ahead_misses),
            ("demand_hit_predictive_prefetch", c.ahead_wanted.get()),
            ("demand_iohit_predictive_prefetch", c.ahead_joined.get()),
            ("evict_skip", c.evict_skip.get()),
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
        ]
    }

    /// Evictions, and why some were not possible.
    fn named_evictions(&self) -> Vec<(&'static str, u64)> {
        let c = &self.inner.counters;
        vec![
            ("deleted", c.deleted.get()),
            ("mutex_miss", c.mutex_miss.get()),
            ("evict_l2_cached", c.evicted.l2_cached.get()),
            ("evict_l2_eligible", c.evicted.l2_eligible.iter().map(Counter::get).sum()),
            ("evict_l2_eligible_mru", c.evicted.l2_eligible[0].get()),
            ("evict_l2_eligible_mfu", c.evicted.l2_eligible[1].get()),
            ("evict_l2_ineligible", c.evicted.l2_ineligible.get()),
            ("evict_not_enough", c.evict_not_enough.get()),
        ]
    }

    /// Blocks and bytes in the cache, and the shares that the balance aims for.
    fn named_sizes(&self) -> Vec<(&'static str, u64)> {
        let inner = &*self.inner;
        let bytes = |list: usize| inner.sums[list].bytes.load(Relaxed);
        let count = |list: usize| inner.sums[list].count.load(Relaxed);
        let held = (0..4).map(count).sum::<u64>();
        let (data, metadata) = (bytes(0) + bytes(2), bytes(1) + bytes(3));
        let packed = &inner.packed;
        let overhead = packed.overhead.load(Relaxed);
        // Other threads change these meanwhile.
        let compressed = (data + metadata).saturating_sub(overhead);
        let unpacked = packed.lsize.load(Relaxed).saturating_sub(packed.bytes.load(Relaxed));
        let headers = held * HELD_OVERHEAD
            + packed.both_count.load(Relaxed) * BOTH_OVERHEAD
            + inner.l2.recipes.load(Relaxed) * RECIPE_OVERHEAD
            + (4..8).map(count).sum::<u64>() * GHOST_OVERHEAD;
        let (meta, pd, pm) = inner.balance.shares();
        let mut out = vec![
            ("hash_elements", inner.elements()),
            ("hash_elements_max", inner.counters.elements_max.load(Relaxed)),
            ("meta", meta),
            ("pd", pd),
            ("pm", pm),
            ("size", inner.pressure.size()),
            // As in OpenZFS: all blocks in the form in which they would stay, the same
            // uncompressed, and the plain forms beside compressed ones.
            ("compressed_size", compressed),
            ("uncompressed_size", compressed + unpacked),
            ("overhead_size", overhead),
            ("hdr_size", headers),
            ("data_size", data),
            ("metadata_size", metadata),
            ("arc_meta_used", metadata + headers),
        ];
        let states = ["mru_size", "mfu_size", "mru_ghost_size", "mfu_ghost_size"];
        out.extend((0..).step_by(2).zip(states).map(|(list, name)| (name, bytes(list) + bytes(list + 1))));
        out.extend(LISTS.iter().enumerate().map(|(list, name)| (*name, bytes(list))));
        // Any held block can be evicted.
        let evictable =
            ["mru_evictable_data", "mru_evictable_metadata", "mfu_evictable_data", "mfu_evictable_metadata"];
        out.extend(evictable.iter().enumerate().map(|(list, name)| (*name, bytes(list))));
        out
    }

    /// The counters of cache devices.
    fn second_named(&self) -> Vec<(&'static str, u64)> {
        let (l2, load) = (&self.inner.l2, |n: &AtomicU64| n.load(Relaxed));
        let (c, sums) = (&l2.counters, &l2.index.sums);
        let (log_asize, log_count) = (load(&c.log_blk_asize), load(&c.log_blk_count));
        let (asize, hdr_size) = (load(&sums.asize), load(&sums.count) * PLACE_OVERHEAD);
        vec![
            ("evict_l2_skip", c.evict_skip.get()),
            ("l2_hits", c.hits.get()),
            ("l2_misses", c.misses.get()),
            ("l2_feeds", c.feeds.get()),
            ("l2_rw_clash", c.rw_clash.get()),
            ("l2_read_bytes", c.read_bytes.get()),
            ("l2_write_bytes", c.write_bytes.get()),
            ("l2_writes_sent", c.writes_sent.get()),
            ("l2_writes_done", c.writes_done.get()),
            ("l2_writes_error", c.writes_error.get()),
            ("l2_writes_lock_retry", c.writes_lock_retry.get()),
            ("l2_evict_reading", c.evict_reading.get()),
            ("l2_abort_lowmem", c.abort_lowmem.get()),
            ("l2_cksum_bad", c.cksum_bad.get()),
            ("l2_io_error", c.io_error.get()),
            ("l2_size", load(&sums.lsize)),
            ("l2_asize", asize),
            ("l2_hdr_size", hdr_size),
            ("l2_bufc_data_asize", load(&sums.kinds[0])),
            ("l2_bufc_metadata_asize", load(&sums.kinds[1])),
            ("l2_mru_asize", load(&sums.states[0])),
            ("l2_mfu_asize", load(&sums.states[1])),
            ("l2_prefetch_asize", load(&sums.states[2])),
            ("l2_log_blk_writes", c.log_blk_writes.get()),
            ("l2_log_blk_avg_asize", log_asize.checked_div(log_count).unwrap_or(0)),
            ("l2_log_blk_asize", log_asize),
            ("l2_log_blk_count", log_count),
            ("l2_data_to_meta_ratio", asize.checked_div(log_asize).unwrap_or(0)),
            ("l2_rebuild_success", c.rebuild_success.get()),
            ("l2_rebuild_unsupported", c.rebuild_unsupported.get()),
            ("l2_rebuild_io_errors", c.rebuild_io_errors.get()),
            ("l2_rebuild_dh_errors", c.rebuild_dh_errors.get()),
            ("l2_rebuild_cksum_lb_errors", c.rebuild_cksum_lb_errors.get()),
            ("l2_rebuild_lowmem", c.rebuild_lowmem.get()),
            ("l2_rebuild_size", c.rebuild_size.get()),
            ("l2_rebuild_asize", c.rebuild_asize.get()),
            ("l2_rebuild_bufs", c.rebuild_bufs.get()),
            ("l2_rebuild_bufs_precached", c.rebuild_bufs_precached.get()),
            ("l2_rebuild_log_blks", c.rebuild_log_blks.get()),
        ]
    }

    /// Blocks that were entered after a wait for memory, and blocks that were not entered for lack
    /// of it.
    pub fn waits(&self) -> (u64, u64) {
        (self.inner.counters.waited.get(), self.inner.counters.refused.get())
    }

    /// Hits that decompressed their block, and plain forms of compressed blocks that were released
    /// under pressure.
    pub fn unpacked(&self) -> (u64, u64) {
        (self.inner.packed.unpacked.get(), self.inner.packed.cooled.get())
    }

    /// How evenly the sublists of each list are filled.
    pub fn sublists(&self) -> impl Iterator<Item = Sublists> + '_ {
        let lists = LISTS.iter().zip(&self.inner.lists);
        lists.map(|(list, m)| Sublists { list, evenness: m.evenness() })
    }
}
