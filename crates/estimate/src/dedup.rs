//! Equal records.
//!
//! # Theory
//! A record is kept by its hash alone, so all of its copies are kept or none. Its size is the same
//! wherever it is. The share that remains is the sum of the sizes of different records, over the
//! sum of the sizes of all. Its error is that of a ratio of two sums over a random choice of
//! hashes.
//!
//! Records of zeros are counted apart: one hash would stand for very many.

use crate::unit::Kept;
use std::collections::HashMap;

/// Most hashes that are kept for one record size.
const KEPT_MAX: usize = 1 << 18;

/// The hashes of records.
#[derive(Debug)]
pub(crate) struct Table {
    sizes: Vec<Size>,
}

/// The hashes of records of one size.
#[derive(Debug)]
struct Size {
    /// Prefixes of hashes up to this number are kept.
    most: u64,
    kept: HashMap<u128, Entry>,
    /// Bytes that records of zeros take without compression, and a record.
    zeros: u64,
    record: u64,
}

#[derive(Debug)]
struct Entry {
    copies: u64,
    sizes: Box<[u32]>,
}

/// What equal records save for one record size and compressor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Saving {
    /// The share of the space that remains, for records other than zeros.
    pub(crate) share: f64,
    /// Half of the interval of the share, at 95 %.
    pub(crate) error: f64,
    /// Bytes of zeros that are stored without compression, and what remains of them.
    pub(crate) zeros: (u64, u64),
    /// Different records.
    pub(crate) unique: f64,
}

impl Table {
    /// A table that begins with this share of all hashes.
    pub(crate) fn new(records: &[u32], share: f64) -> Table {
        let most = if share >= 1.0 { u64::MAX } else { (share.max(0.0) * 2f64.powi(64)) as u64 };
        let size = |record: &u32| Size { most, kept: HashMap::new(), zeros: 0, record: (*record).into() };
        Table { sizes: records.iter().map(size).collect() }
    }

    /// The largest prefix to keep, for each record size.
    pub(crate) fn most(&self) -> Vec<u64> {
        self.sizes.iter().map(|size| size.most).collect()
    }

    /// Adds the records of a unit, and the bytes of zeros for each record size.
    pub(crate) fn add(&mut self, kept: Vec<Kept>, zeros: &[u64]) {
        for (size, zeros) in self.sizes.iter_mut().zip(zeros) {
            size.zeros += zeros;
        }
        for Kept { record, hash, sizes } in kept {
            let size = &mut self.sizes[record];
            if prefix(hash) > size.most {
                continue;
            }
            size.kept.entry(hash).or_insert(Entry { copies: 0, sizes }).copies += 1;
            if size.kept.len() > KEPT_MAX {
                size.most /= 2;
                let most = size.most;
                size.kept.retain(|hash, _| prefix(*hash) <= most);
            }
        }
    }

    /// The savings by record size and compressor.
    pub(crate) fn savings(&self, compressors: usize) -> Vec<Saving> {
        let of = |size: &Size| (0..compressors).map(|c| size.saving(c)).collect::<Vec<_>>();
        self.sizes.iter().flat_map(of).collect()
    }
}

fn prefix(hash: u128) -> u64 {
    (hash >> 64) as u64
}

impl Size {
    fn saving(&self, compressor: usize) -> Saving {
        let part = (self.most as f64 + 1.0) / 2f64.powi(64);
        let pairs = || {
            self.kept.values().map(|e| {
                let size = f64::from(e.sizes[compressor]);
                (size, size * e.copies as f64)
            })
        };
        let (one, all) = pairs().fold((0.0, 0.0), |(one, all), (a, b)| (one + a, all + b));
        let share = if all > 0.0 { one / all } else { 1.0 };
        let squares: f64 = pairs().map(|(a, b)| (a - share * b).powi(2)).sum();
        let error = if all > 0.0 { 1.96 * ((1.0 - part).max(0.0) * squares).sqrt() / all } else { 0.0 };
        let zeros = (self.zeros, self.zeros.min(self.record));
        Saving { share, error, zeros, unique: self.kept.len() as f64 / part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointers::Noise;

    /// Goal: with part of the hashes, the interval of the share has the true share, which all
    /// hashes give.
    #[test]
    fn part_of_the_hashes() {
        let whole = |share: f64| {
            let (mut table, mut noise) = (Table::new(&[4096], share), Noise(7));
            for _ in 0..20_000 {
                let hash = u128::from(noise.next()) << 64 | 1;
                let copies = 1 + noise.next() % 3;
                let sizes: Box<[u32]> = Box::new([4096 * (1 + (noise.next() % 4) as u32)]);
                for _ in 0..copies {
                    if prefix(hash) <= table.most()[0] {
                        table.add(vec![Kept { record: 0, hash, sizes: sizes.clone() }], &[0]);
                    }
                }
            }
            table.savings(1)[0]
        };
        let (all, some) = (whole(1.0), whole(0.1));
        assert_eq!((all.error, all.unique), (0.0, 20_000.0));
        assert!(some.error > 0.0 && some.error < 0.05, "{some:?}");
        assert!((some.share - all.share).abs() <= some.error, "{some:?}, all: {all:?}");
    }

    /// Goal: the number of hashes has a limit.
    #[test]
    fn bounded() {
        let (mut table, mut noise) = (Table::new(&[4096], 1.0), Noise(7));
        for _ in 0..KEPT_MAX + 1000 {
            let hash = u128::from(noise.next()) << 64;
            table.add(vec![Kept { record: 0, hash, sizes: Box::new([512]) }], &[0]);
        }
        assert!(table.sizes[0].kept.len() < KEPT_MAX && table.most()[0] < u64::MAX);
        let unique = table.savings(1)[0].unique;
        assert!((unique / KEPT_MAX as f64 - 1.0).abs() < 0.02, "{unique}");
    }
}
