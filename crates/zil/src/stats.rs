//! What a log counts.

use observe::{Counter, Histogram, HistogramSnapshot};

/// Counters of one log, by OpenZFS's names (`zil_kstats`).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commit_count: Counter,
    pub(crate) commit_writer_count: Counter,
    pub(crate) commit_group_waits: Counter,
    pub(crate) itx_count: Counter,
    pub(crate) itx_copied_count: Counter,
    pub(crate) itx_copied_bytes: Counter,
    pub(crate) itx_needcopy_count: Counter,
    pub(crate) itx_needcopy_bytes: Counter,
    pub(crate) itx_indirect_count: Counter,
    pub(crate) itx_indirect_bytes: Counter,
    pub(crate) block_count: Counter,
    pub(crate) block_bytes: Counter,
    pub(crate) flush_count: Counter,
    pub(crate) commit_ns: Histogram,
}

/// What a log has done since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Commits (`zil_commit_count`).
    pub commit_count: u64,
    /// Of those, times that a committer wrote log blocks, for himself and others (`zil_commit_writer_count`).
    pub commit_writer_count: u64,
    /// Of those, how many waited for a group instead.
    pub commit_group_waits: u64,
    /// Records (`zil_itx_count`).
    pub itx_count: u64,
    /// Writes logged with their data at once (`zil_itx_copied_count`).
    pub itx_copied_count: u64,
    /// Bytes of these (`zil_itx_copied_bytes`).
    pub itx_copied_bytes: u64,
    /// Writes whose data was fetched when they were committed (`zil_itx_needcopy_count`).
    pub itx_needcopy_count: u64,
    /// Bytes of these (`zil_itx_needcopy_bytes`).
    pub itx_needcopy_bytes: u64,
    /// Writes whose blocks went to their places, and were named in the log (`zil_itx_indirect_count`).
    pub itx_indirect_count: u64,
    /// Bytes of these (`zil_itx_indirect_bytes`).
    pub itx_indirect_bytes: u64,
    /// Log blocks written (`zil_itx_metaslab_*_count`).
    pub block_count: u64,
    /// Bytes used in these (`zil_itx_metaslab_*_bytes`).
    pub block_bytes: u64,
    /// Times that devices were flushed.
    pub flush_count: u64,
    /// Nanoseconds that commits took.
    pub commit_ns: HistogramSnapshot,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            commit_count: self.commit_count.get(),
            commit_writer_count: self.commit_writer_count.get(),
            commit_group_waits: self.commit_group_waits.get(),
            itx_count: self.itx_count.get(),
            itx_copied_count: self.itx_copied_count.get(),
            itx_copied_bytes: self.itx_copied_bytes.get(),
            itx_needcopy_count: self.itx_needcopy_count.get(),
            itx_needcopy_bytes: self.itx_needcopy_bytes.get(),
            itx_indirect_count: self.itx_indirect_count.get(),
            itx_indirect_bytes: self.itx_indirect_bytes.get(),
            block_count: self.block_count.get(),
            block_bytes: self.block_bytes.get(),
            flush_count: self.flush_count.get(),
            commit_ns: self.commit_ns.snapshot(),
        }
    }
}

impl Stats {
    /// All counters with their names: OpenZFS's own (`zil_kstats`), where it counts the same.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("zil_commit_count", self.commit_count),
            ("zil_commit_writer_count", self.commit_writer_count),
            ("commit_group_waits", self.commit_group_waits),
            ("commit_ns_p50", self.commit_ns.quantile(0.5)),
            ("commit_ns_p99", self.commit_ns.quantile(0.99)),
            ("zil_itx_count", self.itx_count),
            ("zil_itx_copied_count", self.itx_copied_count),
            ("zil_itx_copied_bytes", self.itx_copied_bytes),
            ("zil_itx_needcopy_count", self.itx_needcopy_count),
            ("zil_itx_needcopy_bytes", self.itx_needcopy_bytes),
            ("zil_itx_indirect_count", self.itx_indirect_count),
            ("zil_itx_indirect_bytes", self.itx_indirect_bytes),
            ("block_count", self.block_count),
            ("block_bytes", self.block_bytes),
            ("flush_count", self.flush_count),
        ]
    }
}
