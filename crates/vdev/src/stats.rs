//! Counters of a vdev.

use std::time::Instant;

use observe::{Counter, Histogram, HistogramSnapshot};

/// Time from which an operation counts as slow, in milliseconds (`zio_slow_io_ms`).
pub static SLOW_MS: observe::Tunable = observe::Tunable::new(
    "zio_slow_io_ms",
    30_000,
    1..=1 << 40,
    observe::Unit::Milliseconds,
    "time after which an I/O counts as slow",
);

/// The moment of creation.
#[derive(Debug)]
pub struct Since(Instant);

impl Default for Since {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// What happened on a vdev (`vdev_stat_t`). A leaf counts its device operations. A vdev above
/// counts only errors that its redundancy could not absorb.
#[derive(Debug, Default)]
pub struct VdevStats {
    /// Reads issued to the device (`vs_ops[ZIO_TYPE_READ]`).
    pub read_ops: Counter,
    /// Bytes read (`vs_bytes[ZIO_TYPE_READ]`).
    pub read_bytes: Counter,
    /// Reads that failed (`vs_read_errors`).
    pub read_errors: Counter,
    /// Writes issued to the device (`vs_ops[ZIO_TYPE_WRITE]`).
    pub write_ops: Counter,
    /// Bytes written (`vs_bytes[ZIO_TYPE_WRITE]`).
    pub write_bytes: Counter,
    /// Writes that failed (`vs_write_errors`).
    pub write_errors: Counter,
    /// Reads that returned wrong bytes (`vs_checksum_errors`).
    pub checksum_errors: Counter,
    /// Bytes that were wrong and were rewritten (`vs_self_healed`).
    pub self_healed: Counter,
    /// Bytes that the current or last scan rewrote (`vs_scan_processed`).
    pub scan_repaired: Counter,
    /// Operations that took very long (`vs_slow_ios`).
    pub slow_ios: Counter,
    /// How long device reads took, in nanoseconds (`vsx_disk_histo[ZIO_TYPE_READ]`).
    pub read_ns: Histogram,
    /// How long device writes took, in nanoseconds (`vsx_disk_histo[ZIO_TYPE_WRITE]`).
    pub write_ns: Histogram,
    /// Bytes of single reads (`vsx_ind_histo`).
    pub read_sizes: Histogram,
    /// Bytes of writes of a single block (`vsx_ind_histo`).
    pub write_sizes: Histogram,
    /// Bytes of writes that joined blocks (`vsx_agg_histo`).
    pub run_sizes: Histogram,
    /// Reads that were begun, including those under way.
    pub reads_begun: Counter,
    /// Writes that were begun, including those under way.
    pub writes_begun: Counter,
    /// Discards issued to the device (`vs_ops[ZIO_TYPE_TRIM]`).
    pub trim_ops: Counter,
    /// Bytes discarded (`vs_bytes[ZIO_TYPE_TRIM]`).
    pub trim_bytes: Counter,
    /// How long discards took, in nanoseconds (`vsx_disk_histo[ZIO_TYPE_TRIM]`).
    pub trim_ns: Histogram,
    /// Bytes of single discards (`vsx_ind_histo`).
    pub trim_sizes: Histogram,
    /// Discards that were begun, including those under way.
    pub trims_begun: Counter,
    /// When counting began (`vs_timestamp`).
    pub since: Since,
}

/// The counters of a vdev at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// See [`VdevStats::read_ops`].
    pub read_ops: u64,
    /// See [`VdevStats::read_bytes`].
    pub read_bytes: u64,
    /// See [`VdevStats::read_errors`].
    pub read_errors: u64,
    /// See [`VdevStats::write_ops`].
    pub write_ops: u64,
    /// See [`VdevStats::write_bytes`].
    pub write_bytes: u64,
    /// See [`VdevStats::write_errors`].
    pub write_errors: u64,
    /// See [`VdevStats::checksum_errors`].
    pub checksum_errors: u64,
    /// See [`VdevStats::self_healed`].
    pub self_healed: u64,
    /// See [`VdevStats::scan_repaired`].
    pub scan_repaired: u64,
    /// See [`VdevStats::slow_ios`].
    pub slow_ios: u64,
    /// See [`VdevStats::read_ns`].
    pub read_ns: HistogramSnapshot,
    /// See [`VdevStats::write_ns`].
    pub write_ns: HistogramSnapshot,
    /// See [`VdevStats::read_sizes`].
    pub read_sizes: HistogramSnapshot,
    /// See [`VdevStats::write_sizes`].
    pub write_sizes: HistogramSnapshot,
    /// See [`VdevStats::run_sizes`].
    pub run_sizes: HistogramSnapshot,
    /// Reads under way (`vsx_active_queue`).
    pub reads_active: u64,
    /// Writes under way.
    pub writes_active: u64,
    /// See [`VdevStats::trim_ops`].
    pub trim_ops: u64,
    /// See [`VdevStats::trim_bytes`].
    pub trim_bytes: u64,
    /// See [`VdevStats::trim_ns`].
    pub trim_ns: HistogramSnapshot,
    /// See [`VdevStats::trim_sizes`].
    pub trim_sizes: HistogramSnapshot,
    /// Discards under way.
    pub trims_active: u64,
    /// Nanoseconds since counting began (`vs_timestamp`).
    pub age_ns: u64,
}

impl StatsSnapshot {
    /// Adds the work of a vdev below it.
    pub(crate) fn add(&mut self, below: &Self) {
        self.read_ops += below.read_ops;
        self.read_bytes += below.read_bytes;
        self.write_ops += below.write_ops;
        self.write_bytes += below.write_bytes;
        self.reads_active += below.reads_active;
        self.writes_active += below.writes_active;
        self.read_ns.add(&below.read_ns);
        self.write_ns.add(&below.write_ns);
        self.read_sizes.add(&below.read_sizes);
        self.write_sizes.add(&below.write_sizes);
        self.run_sizes.add(&below.run_sizes);
        self.trim_ops += below.trim_ops;
        self.trim_bytes += below.trim_bytes;
        self.trims_active += below.trims_active;
        self.trim_ns.add(&below.trim_ns);
        self.trim_sizes.add(&below.trim_sizes);
    }
}

/// What the devices have read and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written: u64,
}

impl Moved {
    /// What was moved since `before`. Devices that have left do not count.
    pub fn since(&self, before: &Moved) -> Moved {
        Moved {
            reads: self.reads.saturating_sub(before.reads),
            read: self.read.saturating_sub(before.read),
            writes: self.writes.saturating_sub(before.writes),
            written: self.written.saturating_sub(before.written),
        }
    }
}

impl VdevStats {
    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        // Completed operations are read before begun ones, so that never more are completed than
        // begun.
        let (read_ops, write_ops, trim_ops) =
            (self.read_ops.get(), self.write_ops.get(), self.trim_ops.get());
        StatsSnapshot {
            read_ops,
            read_bytes: self.read_bytes.get(),
            read_errors: self.read_errors.get(),
            write_ops,
            write_bytes: self.write_bytes.get(),
            write_errors: self.write_errors.get(),
            checksum_errors: self.checksum_errors.get(),
            self_healed: self.self_healed.get(),
            scan_repaired: self.scan_repaired.get(),
            slow_ios: self.slow_ios.get(),
            read_ns: self.read_ns.snapshot(),
            write_ns: self.write_ns.snapshot(),
            read_sizes: self.read_sizes.snapshot(),
            write_sizes: self.write_sizes.snapshot(),
            run_sizes: self.run_sizes.snapshot(),
            reads_active: self.reads_begun.get().saturating_sub(read_ops),
            writes_active: self.writes_begun.get().saturating_sub(write_ops),
            trim_ops,
            trim_bytes: self.trim_bytes.get(),
            trim_ns: self.trim_ns.snapshot(),
            trim_sizes: self.trim_sizes.snapshot(),
            trims_active: self.trims_begun.get().saturating_sub(trim_ops),
            age_ns: self.since.0.elapsed().as_nanos() as u64,
        }
    }

    /// Whether an operation of so many nanoseconds was slow (`zio_slow_io_ms`).
    pub(crate) fn is_slow(ns: u64) -> bool {
        ns >= SLOW_MS.get().saturating_mul(1_000_000)
    }

    /// Resets the error counts (`zpool clear`).
    pub fn clear_errors(&self) {
        self.read_errors.clear();
        self.write_errors.clear();
        self.checksum_errors.clear();
        self.slow_ios.clear();
    }
}
