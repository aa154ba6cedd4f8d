//! Counters of a vdev.

mod by_class;
mod shown;

use std::time::Instant;

use observe::Counter;

pub use by_class::{ByClass, ClassSnapshot, IoType};
pub(crate) use by_class::{ClassStats, Turn};
pub(crate) use shown::Io;

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
    /// Operations by class and type.
    pub(crate) by_class: ByClass,
    /// Reads that failed (`vs_read_errors`).
    pub read_errors: Counter,
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
    /// When counting began (`vs_timestamp`).
    pub since: Since,
}

/// The counters of a vdev at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Reads issued to the device (`vs_ops[ZIO_TYPE_READ]`).
    pub read_ops: u64,
    /// Bytes read (`vs_bytes[ZIO_TYPE_READ]`).
    pub read_bytes: u64,
    /// See [`VdevStats::read_errors`].
    pub read_errors: u64,
    /// Writes issued to the device (`vs_ops[ZIO_TYPE_WRITE]`).
    pub write_ops: u64,
    /// Bytes written (`vs_bytes[ZIO_TYPE_WRITE]`).
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
    /// Discards issued to the device (`vs_ops[ZIO_TYPE_TRIM]`).
    pub trim_ops: u64,
    /// Bytes discarded (`vs_bytes[ZIO_TYPE_TRIM]`).
    pub trim_bytes: u64,
    /// Operations by class and type, in the order of both; those that there were.
    pub classes: Vec<ClassSnapshot>,
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
        self.trim_ops += below.trim_ops;
        self.trim_bytes += below.trim_bytes;
        by_class::add(&mut self.classes, &below.classes);
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
        let classes = self.by_class.snapshot();
        // Of the same moment as the classes.
        let sum = |io: IoType| {
            let of = classes.iter().filter(|one| one.io == io);
            of.fold((0, 0), |(ops, bytes), one| (ops + one.ops, bytes + one.bytes))
        };
        let (read_ops, read_bytes) = sum(IoType::Read);
        let (write_ops, write_bytes) = sum(IoType::Write);
        let (trim_ops, trim_bytes) = sum(IoType::Trim);
        StatsSnapshot {
            read_ops,
            read_bytes,
            read_errors: self.read_errors.get(),
            write_ops,
            write_bytes,
            write_errors: self.write_errors.get(),
            checksum_errors: self.checksum_errors.get(),
            self_healed: self.self_healed.get(),
            scan_repaired: self.scan_repaired.get(),
            slow_ios: self.slow_ios.get(),
            trim_ops,
            trim_bytes,
            classes,
            age_ns: self.since.0.elapsed().as_nanos() as u64,
        }
    }

    /// Operations of a type that have ended (`vs_ops`).
    pub fn ops(&self, io: IoType) -> u64 {
        self.by_class.done(io).0
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
