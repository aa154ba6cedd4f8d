//! Counters that need no lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A number that only grows, or is cleared, without a lock.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the counter to zero, and returns what it had. Each addition is in exactly one of the
    /// values that this returns, or still in the counter.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Relaxed)
    }

    /// Sets the counter to zero, as `zpool clear` does (`vdev_clear_stats`).
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

const SHARDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

/// A counter for code that many cores run at once (`wmsum_t`).
///
/// Each thread adds to one of a few shards, each on a cache line of its own.
#[derive(Debug, Default)]
pub struct Sharded([Shard; SHARDS]);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MY_SHARD: usize = NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS;
}

impl Sharded {
    /// A counter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // A thread that is ending has lost its shard number. Any shard will do.
        let shard = MY_SHARD.try_with(|s| *s).unwrap_or(0);
        self.0[shard].0.fetch_add(n, Relaxed);
    }

    /// The sum of the shards now (`wmsum_value`).
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, s| sum.wrapping_add(s.0.load(Relaxed)))
    }
}
