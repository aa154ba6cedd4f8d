//! Counts of events by their keys.

use std::collections::{BTreeMap, HashMap};

use super::plan::{Buckets, KEYS};

/// The most groups of a session. Further ones count together.
pub const GROUPS: usize = 10_000;
/// The most groups of a thread until its next collection.
const OF_THREAD: usize = 1024;

/// The keys of a group.
pub type Keys = [u64; KEYS];

/// What is known of the events of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many there were. If only a part was seen, this is an estimate, as all other numbers.
    pub count: u64,
    /// The sum of what was measured.
    pub sum: u128,
    /// The least that was measured.
    pub min: u64,
    /// The most that was measured.
    pub max: u64,
    /// The sums of further numbers, in the order of the plan.
    pub sums: Vec<u64>,
    /// How many there were by bucket, each named by its least value.
    pub buckets: BTreeMap<u64, u64>,
}

impl Counted {
    fn add(&mut self, event: &Measured, buckets: Buckets) {
        let Measured { value, weight, sums } = *event;
        self.sums.resize(sums.len(), 0);
        for (sum, more) in self.sums.iter_mut().zip(sums) {
            *sum = sum.saturating_add(more.saturating_mul(weight));
        }
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += weight;
        self.sum += u128::from(value) * u128::from(weight);
        if buckets != Buckets::None {
            *self.buckets.entry(buckets.of(value)).or_default() += weight;
        }
    }

    fn merge(&mut self, other: Self) {
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        self.sums.resize(self.sums.len().max(other.sums.len()), 0);
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.saturating_add(more);
        }
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
    }
}

/// What is counted of an event.
pub(super) struct Measured<'a> {
    pub(super) value: u64,
    /// For how many it counts.
    pub(super) weight: u64,
    pub(super) sums: &'a [u64],
}

/// Groups of events.
#[derive(Debug, Default)]
pub struct Groups {
    /// The groups.
    pub groups: HashMap<Keys, Counted>,
    /// Events that found no room in a group.
    pub others: Counted,
}

impl Groups {
    /// Counts an event. Returns whether a thread's groups have to be collected.
    pub(super) fn add(&mut self, keys: Keys, event: &Measured, buckets: Buckets) -> bool {
        self.groups.entry(keys).or_default().add(event, buckets);
        self.groups.len() >= OF_THREAD
    }

    /// Gives groups other keys. Those with the same ones become one.
    pub(super) fn rename(&mut self, new: impl Fn(Keys) -> Keys) {
        for (keys, counted) in std::mem::take(&mut self.groups) {
            self.groups.entry(new(keys)).or_default().merge(counted);
        }
    }

    /// Adds the groups of a thread.
    pub(super) fn collect(&mut self, from: &mut Self) {
        for (keys, counted) in from.groups.drain() {
            match self.groups.len() < GROUPS || self.groups.contains_key(&keys) {
                true => self.groups.entry(keys).or_default().merge(counted),
                false => self.others.merge(counted),
            }
        }
    }
}
