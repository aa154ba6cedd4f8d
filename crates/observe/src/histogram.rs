//! Histograms by powers of two.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a [`Histogram`]: one for zero, and one for each possible highest bit.
const BUCKETS: usize = 65;

/// Counts of values by magnitude. Latencies are in nanoseconds.
///
/// Bucket 0 counts zeros, and bucket `n` counts the values from `2^(n-1)` to `2^n - 1`.
#[derive(Debug)]
pub struct Histogram([AtomicU64; BUCKETS]);

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }

    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.0[bucket(value)].fetch_add(1, Relaxed);
    }

    /// The counts now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot(std::array::from_fn(|i| self.0[i].load(Relaxed)))
    }
}

/// The counts of a [`Histogram`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot([u64; BUCKETS]);

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl HistogramSnapshot {
    /// Number of counted values.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each bucket that is not empty, as (largest value, count), in rising order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let top = |i: usize| if i == 0 { 0 } else { u64::MAX >> (64 - i) };
        self.0.iter().enumerate().filter(|(_, n)| **n != 0).map(move |(i, n)| (top(i), *n))
    }

    /// Counts `n` more of one value.
    pub fn add_values(&mut self, value: u64, n: u64) {
        let bucket = &mut self.0[bucket(value)];
        *bucket = bucket.wrapping_add(n);
    }

    /// Counts by powers of two in `n` buckets, as OpenZFS has them (`L_HISTO`, `RQ_HISTO`).
    ///
    /// Bucket `i` counts the values from `2^i` to `2^(i+1) - 1`. The first bucket also counts
    /// zeros, and the last also counts larger values.
    pub fn powers(&self, n: usize) -> Vec<u64> {
        let mut out = vec![0u64; n];
        for (bits, count) in self.0.iter().enumerate() {
            if let Some(slot) = out.get_mut(bits.saturating_sub(1).min(n.saturating_sub(1))) {
                *slot = slot.wrapping_add(*count);
            }
        }
        out
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.wrapping_add(theirs);
        }
    }

    /// The largest value of the bucket that the fraction `q` (0 to 1) of all values reaches.
    ///
    /// Zero if no values were counted.
    pub fn quantile(&self, q: f64) -> u64 {
        let goal = (self.count() as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (top, n) in self.buckets() {
            seen += n;
            if seen >= goal {
                return top;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a value is in the bucket whose bound is the next power of two less one.
    #[test]
    fn buckets_are_powers_of_two() {
        let h = Histogram::new();
        for v in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            h.record(v);
        }
        let got: Vec<_> = h.snapshot().buckets().collect();
        assert_eq!(got, [(0, 1), (1, 1), (3, 2), (7, 1), (1023, 1), (2047, 1), (u64::MAX, 1)]);
        assert_eq!(h.snapshot().quantile(0.5), 3);
        assert_eq!(h.snapshot().quantile(1.0), u64::MAX);
        assert_eq!(Histogram::new().snapshot().quantile(0.5), 0);
        let mut twice = h.snapshot();
        twice.add(&h.snapshot());
        assert_eq!(twice.powers(11), [4, 4, 2, 0, 0, 0, 0, 0, 0, 2, 4]);
        let mut more = HistogramSnapshot::default();
        more.add_values(0, 3);
        more.add_values(5, 2);
        assert_eq!(more.buckets().collect::<Vec<_>>(), [(0, 3), (7, 2)]);
    }
}
