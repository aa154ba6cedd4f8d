//! Counters of a log.

use observe::{Counter, Histogram, HistogramSnapshot};

/// Counters of one log, by OpenZFS's names (`zil_sums_t`).
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
    /// Log blocks on data devices.
    pub(crate) normal: BlockCounters,
    /// Log blocks on log devices.
    pub(crate) slog: BlockCounters,
    pub(crate) flush_count: Counter,
    pub(crate) commit_ns: Histogram,
    pub(crate) unlinks: Counter,
    pub(crate) unlinked: Counter,
}

/// Counters of log blocks on one class of devices.
#[derive(Debug, Default)]
pub(crate) struct BlockCounters {
    count: Counter,
    bytes: Counter,
    alloc: Counter,
}

impl BlockCounters {
    /// Counts a written block of `alloc` bytes, `used` of them in use.
    pub(crate) fn wrote(&self, used: u64, alloc: u64) {
        self.count.inc();
        self.bytes.add(used);
        self.alloc.add(alloc);
    }

    fn snapshot(&self) -> LogBlocks {
        LogBlocks { count: self.count.get(), bytes: self.bytes.get(), alloc: self.alloc.get() }
    }
}

/// Log blocks written to one class of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBlocks {
    /// Number of blocks (`zil_itx_metaslab_*_count`).
    pub count: u64,
    /// Bytes in use in them (`zil_itx_metaslab_*_bytes`).
    pub bytes: u64,
    /// Size of the blocks in bytes, all of which is written (`zil_itx_metaslab_*_write`,
    /// `zil_itx_metaslab_*_alloc`).
    pub alloc: u64,
}

/// What a log has done since it was opened (`zil_kstat_values_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Commits (`zil_commit_count`).
    pub commit_count: u64,
    /// Times that a committer wrote log blocks, for itself and others (`zil_commit_writer_count`).
    pub commit_writer_count: u64,
    /// Commits that waited for a transaction group instead.
    pub commit_group_waits: u64,
    /// Records (`zil_itx_count`).
    pub itx_count: u64,
    /// Writes whose data was copied when they were logged (`zil_itx_copied_count`).
    pub itx_copied_count: u64,
    /// Bytes of those writes (`zil_itx_copied_bytes`).
    pub itx_copied_bytes: u64,
    /// Writes whose data was fetched when they were committed (`zil_itx_needcopy_count`).
    pub itx_needcopy_count: u64,
    /// Bytes of those writes (`zil_itx_needcopy_bytes`).
    pub itx_needcopy_bytes: u64,
    /// Writes whose blocks went to their final location, and were named in the log
    /// (`zil_itx_indirect_count`).
    pub itx_indirect_count: u64,
    /// Bytes of those writes (`zil_itx_indirect_bytes`).
    pub itx_indirect_bytes: u64,
    /// Log blocks written.
    pub block_count: u64,
    /// Bytes in use in them.
    pub block_bytes: u64,
    /// Log blocks on data devices (`zil_itx_metaslab_normal_*`).
    pub normal: LogBlocks,
    /// Log blocks on log devices (`zil_itx_metaslab_slog_*`).
    pub slog: LogBlocks,
    /// Device flushes.
    pub flush_count: u64,
    /// Nanoseconds that commits took.
    pub commit_ns: HistogramSnapshot,
    /// Files of the dataset that lost their last name (`nunlinks`).
    pub unlinks: u64,
    /// Those that were freed (`nunlinked`).
    pub unlinked: u64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        let (normal, slog) = (self.normal.snapshot(), self.slog.snapshot());
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
            block_count: normal.count + slog.count,
            block_bytes: normal.bytes + slog.bytes,
            normal,
            slog,
            flush_count: self.flush_count.get(),
            commit_ns: self.commit_ns.snapshot(),
            unlinks: self.unlinks.get(),
            unlinked: self.unlinked.get(),
        }
    }
}

impl Default for Stats {
    /// The counts of a log that has done nothing.
    fn default() -> Self {
        Counters::default().snapshot()
    }
}

impl Stats {
    /// The sum over several logs.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Stats>) -> Stats {
        let mut sum = Stats::default();
        for one in all {
            sum.add(one);
        }
        sum
    }

    fn add(&mut self, other: &Stats) {
        let blocks = |mine: &mut LogBlocks, theirs: &LogBlocks| {
            mine.count += theirs.count;
            mine.bytes += theirs.bytes;
            mine.alloc += theirs.alloc;
        };
        self.commit_count += other.commit_count;
        self.commit_writer_count += other.commit_writer_count;
        self.commit_group_waits += other.commit_group_waits;
        self.itx_count += other.itx_count;
        self.itx_copied_count += other.itx_copied_count;
        self.itx_copied_bytes += other.itx_copied_bytes;
        self.itx_needcopy_count += other.itx_needcopy_count;
        self.itx_needcopy_bytes += other.itx_needcopy_bytes;
        self.itx_indirect_count += other.itx_indirect_count;
        self.itx_indirect_bytes += other.itx_indirect_bytes;
        self.block_count += other.block_count;
        self.block_bytes += other.block_bytes;
        blocks(&mut self.normal, &other.normal);
        blocks(&mut self.slog, &other.slog);
        self.flush_count += other.flush_count;
        self.commit_ns.add(&other.commit_ns);
        self.unlinks += other.unlinks;
        self.unlinked += other.unlinked;
    }

    /// All counters of the log with their names.
    ///
    /// The names are OpenZFS's where it counts the same (`zil_stats_t`).
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
            ("zil_itx_metaslab_normal_count", self.normal.count),
            ("zil_itx_metaslab_normal_bytes", self.normal.bytes),
            ("zil_itx_metaslab_normal_write", self.normal.alloc),
            ("zil_itx_metaslab_normal_alloc", self.normal.alloc),
            ("zil_itx_metaslab_slog_count", self.slog.count),
            ("zil_itx_metaslab_slog_bytes", self.slog.bytes),
            ("zil_itx_metaslab_slog_write", self.slog.alloc),
            ("zil_itx_metaslab_slog_alloc", self.slog.alloc),
            ("flush_count", self.flush_count),
        ]
    }
}
