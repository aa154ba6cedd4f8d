//! Distributions of times.
//!
//! # Theory
//! A [`Histogram`](crate::Histogram) has one bucket for each power of two, which is too coarse for
//! a quantile. Here each power of two has four buckets, so a quantile is at most a quarter too
//! large. Sum and maximum are exact.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Counter;

/// Bits of a value behind its highest one that choose the bucket.
const STEPS: u32 = 2;
/// Buckets: one for each value below 4, and four for each higher power of two.
const BUCKETS: usize = 4 + (62 << STEPS);

/// Times of one kind, in nanoseconds.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum: Counter,
    max: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let octave = u64::BITS - 1 - value.leading_zeros();
    let step = (value >> (octave - STEPS)) & ((1 << STEPS) - 1);
    4 + ((octave as usize - STEPS as usize) << STEPS) + step as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(4) else { return bucket as u64 };
    let (octave, step) = ((above >> STEPS) as u32 + STEPS, (above & ((1 << STEPS) - 1)) as u64);
    let width = 1u64 << (octave - STEPS);
    (1u64 << octave) + step * width + (width - 1)
}

impl Latency {
    /// No times yet.
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: Counter::new(), max: AtomicU64::new(0) }
    }

    /// Counts one time.
    pub fn record(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.sum.add(ns);
        // Most times are shorter, and then no thread writes the cache line.
        if self.max.load(Relaxed) < ns {
            self.max.fetch_max(ns, Relaxed);
        }
    }

    /// The times so far.
    pub fn snapshot(&self) -> LatencySnapshot {
        let counts = self.buckets.iter().map(|count| count.load(Relaxed)).enumerate();
        let buckets = counts.filter(|(_, count)| *count > 0).map(|(at, count)| (top(at), count)).collect();
        LatencySnapshot { buckets, sum: self.sum.get(), max: self.max.load(Relaxed) }
    }
}

/// The times of a [`Latency`] at one moment, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatencySnapshot {
    /// Each bucket that is not empty, as (largest value, count), in rising order.
    pub buckets: Vec<(u64, u64)>,
    /// The sum of all times.
    pub sum: u64,
    /// The longest time.
    pub max: u64,
}

impl LatencySnapshot {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each value is in a bucket whose bounds hold it, and the bucket is at most a quarter
    /// wider than its smallest value.
    #[test]
    fn buckets_are_narrow() {
        let mut values: Vec<u64> = (0..64).flat_map(|n| [0, 1, 3].map(|add| (1u64 << n) + add)).collect();
        values.extend([0, 5, 7, 1_000_000, 999_999_999, u64::MAX, u64::MAX - 1]);
        for value in values {
            let at = bucket(value);
            let below = at.checked_sub(1).map(top);
            assert!(value <= top(at) && below.is_none_or(|below| below < value), "{value}");
            assert!(at < 4 || top(at) - value <= value / 4, "{value}");
        }
        assert_eq!((bucket(u64::MAX), top(BUCKETS - 1)), (BUCKETS - 1, u64::MAX));
    }

    /// Goal: count, sum and maximum are exact.
    #[test]
    fn sums_are_exact() {
        let times = Latency::new();
        for ns in [100, 101, 5_000, 7] {
            times.record(ns);
        }
        let seen = times.snapshot();
        assert_eq!((seen.count(), seen.sum, seen.max), (4, 5_208, 5_000));
        // 100 and 101 share a bucket: 96 to 111.
        assert_eq!(seen.buckets, [(7, 1), (111, 2), (5_119, 1)]);
    }
}
