//! I/O of a vdev by class.

use serde::{Deserialize, Serialize};

/// The detailed I/O statistics of a vdev (`vdev_stat_ex_t`), with those of all vdevs below it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IoStat {
    /// The operations by class and type, those that there were.
    pub classes: Vec<ClassIo>,
}

/// Operations of one class and one type.
///
/// Histograms are by powers of two: number `n` counts the values from `2^n` to `2^(n+1) - 1`, and
/// number 0 also zeros. They end with the last number that is not 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassIo {
    /// `sync_read`, `sync_write`, `async_read`, `async_write`, `scrub`, `resilver`, `rebuild`,
    /// `trim`, `initialize`, `prefetch` or `log`.
    pub class: String,
    /// `read`, `write` or `trim`. A scrub, resilver or rebuild both reads and writes.
    pub io: String,
    /// How many have ended.
    pub ops: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// How many the device has now.
    pub active: u64,
    /// How many wait for their turn now.
    pub waiting: u64,
    /// How long the device took in all, in nanoseconds.
    pub disk_sum_ns: u64,
    /// How long they waited before the device got them, in nanoseconds. Only operations of the
    /// background wait; the others count as 0.
    pub wait: Vec<u64>,
    /// How long the device took, in nanoseconds.
    pub disk: Vec<u64>,
    /// Both together.
    pub total: Vec<u64>,
    /// Bytes of operations on one range.
    pub single: Vec<u64>,
    /// Bytes of operations that join several.
    pub joined: Vec<u64>,
}

/// Adds a histogram to another one.
pub fn add_histogram(to: &mut Vec<u64>, more: &[u64]) {
    to.resize(to.len().max(more.len()), 0);
    to.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}

impl IoStat {
    /// The operations of a type: `read`, `write` or `trim`.
    pub fn of_type<'a>(&'a self, io: &'a str) -> impl Iterator<Item = &'a ClassIo> {
        self.classes.iter().filter(move |one| one.io == io)
    }

    /// A histogram of all operations of a type.
    pub fn histogram(&self, io: &str, of: fn(&ClassIo) -> &[u64]) -> Vec<u64> {
        let mut sum = Vec::new();
        self.of_type(io).for_each(|one| add_histogram(&mut sum, of(one)));
        sum
    }

    /// How many operations of a type the device has now.
    pub fn active(&self, io: &str) -> u64 {
        self.of_type(io).map(|one| one.active).sum()
    }

    /// What happened since an earlier moment. What is under way stays as it is now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |new: &[u64], old: &[u64]| -> Vec<u64> {
            let old = |n: usize| old.get(n).copied().unwrap_or(0);
            new.iter().enumerate().map(|(n, count)| count.saturating_sub(old(n))).collect()
        };
        let none = ClassIo::default();
        let classes = self.classes.iter().map(|new| {
            let same = |old: &&ClassIo| old.class == new.class && old.io == new.io;
            let old = before.classes.iter().find(same).unwrap_or(&none);
            ClassIo {
                class: new.class.clone(),
                io: new.io.clone(),
                ops: new.ops.saturating_sub(old.ops),
                bytes: new.bytes.saturating_sub(old.bytes),
                active: new.active,
                waiting: new.waiting,
                disk_sum_ns: new.disk_sum_ns.saturating_sub(old.disk_sum_ns),
                wait: less(&new.wait, &old.wait),
                disk: less(&new.disk, &old.disk),
                total: less(&new.total, &old.total),
                single: less(&new.single, &old.single),
                joined: less(&new.joined, &old.joined),
            }
        });
        Self { classes: classes.collect() }
    }
}
