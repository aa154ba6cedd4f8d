//! What clients do with volumes, and how often volumes come into use.
//!
//! # Theory
//! A volume has counters while it is in use. When it comes to rest, what they have moves to a sum
//! of its partition. So a volume that rests takes no memory for them, and no total loses anything.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::OnceLock;

use observe::lock::Mutex;
use observe::{Counter, Latency};

use crate::partition::{MAX_PARTITIONS, PartitionId};
use crate::types::VolumeId;

/// The counters of a volume in use.
#[derive(Debug, Default)]
pub struct Usage {
    /// Calls of clients on its files.
    pub calls: Counter,
    /// Bytes of files that clients read.
    pub read: Counter,
    /// Bytes of files that clients stored.
    pub written: Counter,
}

/// What clients did with volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// See [`Usage::calls`].
    pub calls: u64,
    /// See [`Usage::read`].
    pub read: u64,
    /// See [`Usage::written`].
    pub written: u64,
}

impl Usage {
    /// The counters now.
    pub fn now(&self) -> Used {
        Used { calls: self.calls.get(), read: self.read.get(), written: self.written.get() }
    }

    /// Takes what was counted.
    pub fn take(&self) -> Used {
        Used { calls: self.calls.take(), read: self.read.take(), written: self.written.take() }
    }
}

impl Used {
    /// Whether nothing was done.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Bytes that moved.
    pub fn moved(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.read += other.read;
        self.written += other.written;
    }
}

/// What clients did with a volume in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfVolume {
    /// The volume.
    pub id: VolumeId,
    /// Its number ([`Volume::number`](crate::server::volume::Volume::number)).
    pub number: u64,
    /// Its partition.
    pub partition: PartitionId,
    /// The second of its last use, since the start of the server.
    pub last: u32,
    /// What clients did.
    pub used: Used,
}

/// Which volumes come first in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Those of which most bytes moved.
    Most,
    /// Those that were used last.
    Last,
}

impl Order {
    fn key(self, one: &OfVolume) -> (u32, u64, u64) {
        let last = if self == Self::Last { one.last } else { 0 };
        (last, one.used.moved(), one.used.calls)
    }

    /// Keeps so many, in this order. The others become part of a sum.
    pub(in crate::server) fn keep(self, all: &mut Vec<OfVolume>, most: usize, others: &mut Sums) {
        all.sort_unstable_by_key(|one| (std::cmp::Reverse(self.key(one)), one.id));
        for one in all.drain(most.min(all.len())..) {
            *others.entry(one.partition).or_default() += one.used;
        }
    }
}

/// Sums by partitions.
pub type Sums = BTreeMap<PartitionId, Used>;

/// How often volumes of a partition come into use, and to rest.
#[derive(Debug, Default)]
pub struct Attached {
    /// Volumes that came into use: the first call on each, since the start or since it rested.
    pub attached: Counter,
    /// How long it took to open their files.
    pub opened: Latency,
    /// How often that failed.
    pub failed: Counter,
    /// How often files were closed.
    pub closed: Counter,
    /// Volumes that came to rest.
    pub rested: Counter,
}

/// What is counted by partitions.
#[derive(Debug)]
pub struct Partitions {
    attached: [OnceLock<Box<Attached>>; MAX_PARTITIONS],
    /// What calls did that went on when their volumes were gone.
    late: Mutex<Sums>,
}

impl Default for Partitions {
    fn default() -> Self {
        Self { attached: [const { OnceLock::new() }; MAX_PARTITIONS], late: Mutex::default() }
    }
}

impl Partitions {
    /// The counters of a partition.
    pub fn of(&self, partition: PartitionId) -> &Attached {
        self.attached[usize::from(partition.0)].get_or_init(Box::default)
    }

    /// All partitions that have counters.
    pub fn all(&self) -> impl Iterator<Item = (PartitionId, &Attached)> {
        let each = (0u8..=u8::MAX).zip(&self.attached);
        each.filter_map(|(number, counters)| Some((PartitionId(number), &**counters.get()?)))
    }

    /// Adds what a call did when its volume was gone.
    pub(in crate::server) fn add_late(&self, partition: PartitionId, used: Used) {
        if !used.is_nothing() {
            *self.late.lock().entry(partition).or_default() += used;
        }
    }

    /// What was added so.
    pub(in crate::server) fn late(&self) -> Sums {
        self.late.lock().clone()
    }
}
