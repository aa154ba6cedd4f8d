//! Reports of what went wrong on a vdev (`zfs_ereport_post`).
//!
//! # Theory
//! Counters say how often; a report says when, where and what. Each vdev keeps its newest reports
//! until they are taken, and counts those that were lost unread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::Guid;

use crate::tree::{Node, Tree};
use crate::{VdevAux, VdevState, VdevStats};

/// Most reports that a vdev keeps.
const KEPT: usize = 4096;
/// Most reports of wrong checksums that a vdev enters within a second; further ones are only
/// counted (`zfs_checksum_events_per_second`).
pub static CHECKSUM_EVENTS: Tunable = Tunable::new(
    "zfs_checksum_events_per_second",
    20,
    0..=u32::MAX as u64,
    Unit::Count,
    "most checksum events of a device in a second",
);

/// Most reports of slow operations within a second (`zfs_slow_io_events_per_second`).
pub static SLOW_EVENTS: Tunable = Tunable::new(
    "zfs_slow_io_events_per_second",
    20,
    0..=u32::MAX as u64,
    Unit::Count,
    "most slow I/O events of a device in a second",
);
/// Most reports of operations that do not end within a second (`zfs_deadman_events_per_second`).
pub static DEADMAN_EVENTS: Tunable = Tunable::new(
    "zfs_deadman_events_per_second",
    1,
    0..=u32::MAX as u64,
    Unit::Count,
    "most deadman events of a device in a second",
);

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A read failed (`ereport.fs.zfs.io`).
    Read,
    /// A write failed.
    Write,
    /// A flush failed.
    Flush,
    /// The bytes that were read are not those that were written (`ereport.fs.zfs.checksum`).
    Checksum,
    /// An operation took very long, nanoseconds (`ereport.fs.zfs.delay`).
    Delay {
        /// Its time in nanoseconds.
        took_ns: u64,
    },
    /// An operation has not ended (`ereport.fs.zfs.deadman`).
    Deadman {
        /// How long it has been under way, in nanoseconds.
        for_ns: u64,
    },
    /// Its state changed (`resource.fs.zfs.statechange`).
    State {
        /// The state before.
        before: VdevState,
        /// The state now.
        now: VdevState,
        /// The reason.
        aux: VdevAux,
    },
}

/// One thing that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// When it happened.
    pub at: Instant,
    /// What happened.
    pub what: Trouble,
    /// Offset and size on the device in bytes, if it was an operation on a range.
    pub range: Option<(u64, u64)>,
    /// The system's error (`errno`), if it failed with one.
    pub errno: Option<i32>,
    /// The vdev's error counts by then, this one included.
    pub charged: ErrorCounts,
}

/// Error counts of a vdev at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub reads: u64,
    /// Writes that failed.
    pub writes: u64,
    /// Wrong checksums.
    pub checksums: u64,
    /// Slow operations.
    pub slow: u64,
}

impl ErrorCounts {
    fn of(stats: &VdevStats) -> Self {
        Self {
            reads: stats.read_errors.get(),
            writes: stats.write_errors.get(),
            checksums: stats.checksum_errors.get(),
            slow: stats.slow_ios.get(),
        }
    }
}

/// The newest reports of a vdev.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    reports: VecDeque<Report>,
    lost: u64,
    checksums: Rate,
    delays: Rate,
    deadmen: Rate,
}

/// When a second began, and how many reports of a kind it has had.
#[derive(Debug, Default)]
struct Rate(Option<(Instant, u64)>);

impl Rate {
    /// Whether one more report is entered, of at most so many within a second.
    fn allows(&mut self, now: Instant, most: u64) -> bool {
        let fresh = self.0.filter(|(since, _)| now.duration_since(*since) < Duration::from_secs(1));
        let (since, count) = fresh.unwrap_or((now, 0));
        self.0 = Some((since, count.saturating_add(1)));
        count < most
    }
}

impl Kept {
    fn allows(&mut self, what: Trouble, now: Instant) -> bool {
        match what {
            Trouble::Checksum => self.checksums.allows(now, CHECKSUM_EVENTS.get()),
            Trouble::Delay { .. } => self.delays.allows(now, SLOW_EVENTS.get()),
            Trouble::Deadman { .. } => self.deadmen.allows(now, DEADMAN_EVENTS.get()),
            Trouble::Read | Trouble::Write | Trouble::Flush | Trouble::State { .. } => true,
        }
    }
}

impl Reports {
    fn note(&self, what: Trouble, range: Option<(u64, u64)>, errno: Option<i32>, stats: &VdevStats) -> bool {
        let (at, charged) = (Instant::now(), ErrorCounts::of(stats));
        let kept = &mut *self.0.lock();
        if !kept.allows(what, at) {
            return false;
        }
        if kept.reports.len() == KEPT {
            kept.reports.pop_front();
            kept.lost += 1;
        }
        kept.reports.push_back(Report { at, what, range, errno, charged });
        true
    }

    fn take(&self) -> (VecDeque<Report>, u64) {
        let kept = &mut *self.0.lock();
        (std::mem::take(&mut kept.reports), std::mem::take(&mut kept.lost))
    }
}

impl Node {
    /// Enters a report; returns false if there were too many of its kind in this second.
    pub(crate) fn report(&self, what: Trouble, range: Option<(u64, u64)>) -> bool {
        self.report_why(what, range, None)
    }

    /// Enters a report of a failure with this error of the system.
    pub(crate) fn report_why(&self, what: Trouble, range: Option<(u64, u64)>, errno: Option<i32>) -> bool {
        self.reports.note(what, range, errno, &self.stats)
    }
}

impl Tree {
    /// Takes the reports since the last call, in order, each with its vdev; and the number of
    /// reports that were lost.
    pub fn take_reports(&self) -> (Vec<(Guid, Report)>, u64) {
        let (mut all, mut lost) = (Vec::new(), 0);
        for node in self.nodes() {
            let (kept, gone) = node.reports.take();
            all.extend(kept.into_iter().map(|r| (node.guid, r)));
            lost += gone;
        }
        all.sort_by_key(|(_, r)| r.at);
        (all, lost)
    }
}
