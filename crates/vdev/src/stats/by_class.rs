//! Device operations by class.
//!
//! # Theory
//! Each operation has a class ([`Priority`]) and a type ([`IoType`]). A scrub reads and repairs,
//! so a class alone does not say whether bytes were read or written. Each pair has its own
//! counters, which are made when its first operation begins: a leaf that is only read has no
//! counters of writes. The sums over all classes are those of the device, so nothing counts twice.
//!
//! | time | from | until |
//! |---|---|---|
//! | wait | the operation wants to begin | the device gets it |
//! | disk | the device gets it | the device has answered |
//! | total | the operation wants to begin | the device has answered |
//!
//! Only background operations wait: for their turn, see [`crate::Pace`]. Poolhouse has no other
//! queues. An operation that does not wait counts as one that waits for 0 ns.
//!
//! # Locks
//! None after the first operation of a pair. Each update is a relaxed atomic addition.
//!
//! # Absent
//! * Flushes: they have no class.
//! * Labels: they are read and written outside of the classes, and count nowhere.
//! * The comparison before a repair: see [`crate::Tree::repair`].
//!
//! # See
//! OpenZFS `vdev_stat_ex_t`, `vdev_stat_update`.

use std::sync::OnceLock;
use std::time::Instant;

use observe::{Counter, Histogram, HistogramSnapshot};

use crate::hung::nanos;
use crate::request::Priority;

/// What an operation does (`zio_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoType {
    /// It reads (`ZIO_TYPE_READ`).
    Read,
    /// It writes (`ZIO_TYPE_WRITE`).
    Write,
    /// It discards (`ZIO_TYPE_TRIM`).
    Trim,
}

impl IoType {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Its name: `read`, `write` or `trim`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

/// The turn of an operation: what it may do, and how long it waited for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Bytes that it may have at most.
    pub(crate) bytes: u64,
    /// How long it waited, in nanoseconds. `None`: it is of the foreground, which does not wait.
    pub(crate) waited_ns: Option<u64>,
}

/// The operations of one device by class and type.
#[derive(Debug, Default)]
pub struct ByClass([[OnceLock<Box<ClassStats>>; IoType::ALL.len()]; Priority::ALL.len()]);

impl ByClass {
    /// The counters of a class and type, made now if there are none.
    ///
    /// # Panics
    /// In debug builds, if a class has no operations of this type: the caller has the wrong class.
    pub(crate) fn of(&self, priority: Priority, io: IoType) -> &ClassStats {
        debug_assert!(priority.has(io), "{priority:?} does not {}", io.name());
        self.0[priority as usize][io as usize].get_or_init(Box::default)
    }

    /// All that have had an operation.
    fn all(&self) -> impl Iterator<Item = (Priority, IoType, &ClassStats)> {
        let pairs = Priority::ALL.into_iter().flat_map(|class| IoType::ALL.map(|io| (class, io)));
        pairs.filter_map(|(class, io)| Some((class, io, &**self.0[class as usize][io as usize].get()?)))
    }

    /// Does an operation of the foreground of so many bytes, and counts it. With `joined` it is on
    /// several ranges.
    ///
    /// # Errors
    /// Those of `work`.
    ///
    /// # Panics
    /// In debug builds, if a class has no operations of this type.
    pub fn count<T, E>(
        &self,
        (priority, io): (Priority, IoType),
        bytes: u64,
        joined: bool,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (stats, turn) = (self.of(priority, io), Turn { bytes, waited_ns: None });
        stats.begin(bytes, joined, turn);
        let from = Instant::now();
        let done = work();
        stats.end(nanos(from.elapsed()), done.is_ok().then_some(bytes), turn);
        done
    }

    /// Operations that have ended, and the bytes of those that succeeded.
    pub fn done(&self, io: IoType) -> (u64, u64) {
        let of = self.all().filter(|(_, its, _)| *its == io);
        of.fold((0, 0), |(ops, bytes), (.., stats)| (ops + stats.ended.get(), bytes + stats.bytes.get()))
    }

    /// The counters now, in the order of classes and types.
    pub fn snapshot(&self) -> Vec<ClassSnapshot> {
        self.all().map(|(class, io, stats)| stats.snapshot(class, io)).collect()
    }
}

/// The operations of one class and type on a leaf.
#[derive(Debug, Default)]
pub(crate) struct ClassStats {
    begun: Counter,
    ended: Counter,
    /// Bytes of those that succeeded.
    bytes: Counter,
    /// The sum of the disk times, in nanoseconds.
    disk_sum_ns: Counter,
    /// Disk times of the foreground. The total times are the same.
    disk_ns: Histogram,
    /// Bytes of operations on one range.
    single: Histogram,
    /// Bytes of operations that join several.
    joined: OnceLock<Box<Histogram>>,
    /// Those of the background.
    paced: OnceLock<Box<Paced>>,
}

/// The operations of the background.
#[derive(Debug, Default)]
struct Paced {
    /// Those that began to wait, and those that have had their turn.
    came: Counter,
    went: Counter,
    wait_ns: Histogram,
    disk_ns: Histogram,
    total_ns: Histogram,
}

impl ClassStats {
    fn paced(&self) -> &Paced {
        self.paced.get_or_init(Box::default)
    }

    /// Counts a background operation that waits for its turn from now on. It is to begin.
    pub(crate) fn wait(&self) {
        self.paced().came.inc();
    }

    /// Counts an operation of this size that begins. With `joined` it is on several ranges.
    pub(crate) fn begin(&self, bytes: u64, joined: bool, turn: Turn) {
        if turn.waited_ns.is_some() {
            self.paced().went.inc();
        }
        self.begun.inc();
        match joined {
            true => self.joined.get_or_init(Box::default).record(bytes),
            false => self.single.record(bytes),
        }
    }

    /// Counts the end of an operation that took so long: `bytes` if it succeeded.
    pub(crate) fn end(&self, disk_ns: u64, bytes: Option<u64>, turn: Turn) {
        self.disk_sum_ns.add(disk_ns);
        match turn.waited_ns {
            None => self.disk_ns.record(disk_ns),
            Some(waited_ns) => {
                let paced = self.paced();
                paced.wait_ns.record(waited_ns);
                paced.disk_ns.record(disk_ns);
                paced.total_ns.record(waited_ns.saturating_add(disk_ns));
            }
        }
        self.ended.inc();
        self.bytes.add(bytes.unwrap_or(0));
    }

    fn snapshot(&self, class: Priority, io: IoType) -> ClassSnapshot {
        // What has ended is read before what has begun, so that never more has ended than begun.
        let ops = self.ended.get();
        let foreground = self.disk_ns.snapshot();
        let mut wait_ns = HistogramSnapshot::default();
        wait_ns.add_values(0, foreground.count());
        let (mut disk_ns, mut total_ns, mut waiting) = (foreground.clone(), foreground, 0);
        if let Some(paced) = self.paced.get() {
            let went = paced.went.get();
            waiting = paced.came.get().saturating_sub(went);
            wait_ns.add(&paced.wait_ns.snapshot());
            disk_ns.add(&paced.disk_ns.snapshot());
            total_ns.add(&paced.total_ns.snapshot());
        }
        ClassSnapshot {
            class,
            io,
            ops,
            bytes: self.bytes.get(),
            active: self.begun.get().saturating_sub(ops),
            waiting,
            disk_sum_ns: self.disk_sum_ns.get(),
            wait_ns,
            disk_ns,
            total_ns,
            single: self.single.snapshot(),
            joined: self.joined.get().map(|joined| joined.snapshot()).unwrap_or_default(),
        }
    }
}

/// The operations of one class and type at one moment. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSnapshot {
    /// Their class.
    pub class: Priority,
    /// Their type.
    pub io: IoType,
    /// Those that have ended (`vs_ops`).
    pub ops: u64,
    /// Bytes of those that succeeded (`vs_bytes`).
    pub bytes: u64,
    /// Those that the device has now (`vsx_active_queue`).
    pub active: u64,
    /// Those that wait for their turn now (`vsx_pend_queue`).
    pub waiting: u64,
    /// The sum of the disk times.
    pub disk_sum_ns: u64,
    /// How long they waited before the device got them (`vsx_queue_histo`).
    pub wait_ns: HistogramSnapshot,
    /// How long the device took (`vsx_disk_histo`).
    pub disk_ns: HistogramSnapshot,
    /// Both together (`vsx_total_histo`).
    pub total_ns: HistogramSnapshot,
    /// Bytes of operations on one range (`vsx_ind_histo`).
    pub single: HistogramSnapshot,
    /// Bytes of operations that join several ranges (`vsx_agg_histo`).
    pub joined: HistogramSnapshot,
}

impl ClassSnapshot {
    fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.active += other.active;
        self.waiting += other.waiting;
        self.disk_sum_ns = self.disk_sum_ns.wrapping_add(other.disk_sum_ns);
        self.wait_ns.add(&other.wait_ns);
        self.disk_ns.add(&other.disk_ns);
        self.total_ns.add(&other.total_ns);
        self.single.add(&other.single);
        self.joined.add(&other.joined);
    }
}

/// Adds the operations of another vdev to those of the same class and type, and keeps the order.
pub(crate) fn add(to: &mut Vec<ClassSnapshot>, others: &[ClassSnapshot]) {
    for other in others {
        match to.binary_search_by_key(&(other.class, other.io), |one| (one.class, one.io)) {
            Ok(at) => to[at].add(other),
            Err(at) => to.insert(at, other.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
