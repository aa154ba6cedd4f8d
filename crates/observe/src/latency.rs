//! Distributions of times.
//!
//! # Theory
//! A [`Histogram`](crate::Histogram) has one bucket for each power of two, which is too coarse for
//! a quantile. Here each power of two has four buckets, so a quantile is at most a quarter too
//! large. Sum and maximum are exact.
//!
//! All times below 64 ns share a bucket, and so do all from 2^42 ns (73 minutes) on: nothing that
//! is measured is so short, or comes so often. So a distribution takes 1.2 KB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Counter;

/// Bits of a value behind its highest one that choose the bucket.
const STEPS: u32 = 2;
/// The powers of two that have buckets of their own.
const OCTAVES: std::ops::Range<u32> = 6..42;
/// Buckets: four for each of these powers, one for what is below, and one for what is above.
const BUCKETS: usize = (((OCTAVES.end - OCTAVES.start) as usize) << STEPS) + 2;

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
    let octave = u64::BITS - 1 - (value | 1).leading_zeros();
    if octave < OCTAVES.start {
        return 0;
    }
    if octave >= OCTAVES.end {
        return BUCKETS - 1;
    }
    let step = (value >> (octave - STEPS)) & ((1 << STEPS) - 1);
    1 + (((octave - OCTAVES.start) as usize) << STEPS) + step as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(1) else { return (1 << OCTAVES.start) - 1 };
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (octave, step) = ((above >> STEPS) as u32 + OCTAVES.start, (above & ((1 << STEPS) - 1)) as u64);
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

    /// Adds the times of another.
    pub fn merge(&mut self, other: &Self) {
        for (top, more) in &other.buckets {
            match self.buckets.binary_search_by_key(top, |(top, _)| *top) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.wrapping_add(*more),
                Err(at) => self.buckets.insert(at, (*top, *more)),
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each value is in a bucket whose bounds hold it. Between the first and the last, a
    /// bucket is at most a quarter wider than its smallest value.
    #[test]
    fn buckets_are_narrow() {
        let mut values: Vec<u64> = (0..64).flat_map(|n| [0, 1, 3].map(|add| (1u64 << n) + add)).collect();
        values.extend([0, 5, 7, 1_000_000, 999_999_999, u64::MAX, u64::MAX - 1]);
        for value in values {
            let at = bucket(value);
            let below = at.checked_sub(1).map(top);
            assert!(value <= top(at) && below.is_none_or(|below| below < value), "{value}");
            let is_narrow = at > 0 && at < BUCKETS - 1;
            assert_eq!(is_narrow, (64..1 << 42).contains(&value), "{value}");
            assert!(!is_narrow || top(at) - value <= value / 4, "{value}");
        }
        assert_eq!((top(0), top(BUCKETS - 2), top(BUCKETS - 1)), (63, (1 << 42) - 1, u64::MAX));
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
        assert_eq!(seen.buckets, [(63, 1), (111, 2), (5_119, 1)]);
    }

    /// Goal: merged times are those of both, in rising order.
    #[test]
    fn merges() {
        let (one, other, both) = (Latency::new(), Latency::new(), Latency::new());
        for (times, all) in [(&one, [100, 5_000, 7]), (&other, [101, 1, 9_000])] {
            all.into_iter().for_each(|ns| [times, &both].into_iter().for_each(|times| times.record(ns)));
        }
        let mut merged = one.snapshot();
        merged.merge(&other.snapshot());
        assert_eq!(merged, both.snapshot());
        merged.merge(&LatencySnapshot::default());
        assert_eq!(merged, both.snapshot());
    }
}
