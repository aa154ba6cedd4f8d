//! How often something failed, by the code of the failure.

use crate::Counter;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// Codes that are counted each.
const CODES: usize = 16;
/// The code of a place that nothing uses.
const FREE: i32 = 0;

/// Counts of failures by their codes, such as errnos. Codes beyond the first sixteen are counted
/// together.
#[derive(Debug, Default)]
pub struct Codes {
    /// A code and its count. Code 0 is a free place.
    places: [(AtomicI32, AtomicU64); CODES],
    others: Counter,
}

/// The counts of [`Codes`] at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodesSnapshot {
    /// Each code with its count.
    pub codes: Vec<(i32, u64)>,
    /// How many failures had further codes.
    pub others: u64,
}

impl Codes {
    /// Counts a failure. A code of 0 is counted among the others.
    ///
    /// A stranger must not choose the codes: made-up ones would take all places. For such codes
    /// there is [`Codes::count_other`].
    pub fn count(&self, code: i32) {
        for (known, count) in self.places.iter().filter(|_| code != FREE) {
            let found = match known.load(Relaxed) {
                FREE => known.compare_exchange(FREE, code, Relaxed, Relaxed).unwrap_or_else(|other| other),
                other => other,
            };
            // The place was free, and is of this code now.
            if found == code || found == FREE {
                count.fetch_add(1, Relaxed);
                return;
            }
        }
        self.others.inc();
    }

    /// Counts a failure without its code.
    pub fn count_other(&self) {
        self.others.inc();
    }

    /// The counts now.
    pub fn snapshot(&self) -> CodesSnapshot {
        let counts = self.places.iter().map(|(code, count)| (code.load(Relaxed), count.load(Relaxed)));
        CodesSnapshot { codes: counts.filter(|(_, count)| *count > 0).collect(), others: self.others.get() }
    }
}

impl CodesSnapshot {
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (code, more) in &other.codes {
            match self.codes.iter_mut().find(|(known, _)| known == code) {
                Some((_, count)) => *count = count.wrapping_add(*more),
                None => self.codes.push((*code, *more)),
            }
        }
        self.others = self.others.wrapping_add(other.others);
    }

    /// How many failures there were.
    pub fn sum(&self) -> u64 {
        self.codes.iter().fold(self.others, |sum, (_, count)| sum.wrapping_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no failure is lost, whichever threads count. Codes beyond the places are counted
    /// together, and code 0 is no place.
    #[test]
    fn counts() {
        let codes = Codes::default();
        let last = CODES as i32 + 3;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (FREE..last).for_each(|code| codes.count(code));
                    codes.count_other();
                });
            }
        });
        let seen = codes.snapshot();
        assert_eq!(seen.codes.len(), CODES);
        let in_places: u64 = seen.codes.iter().map(|(_, count)| count).sum();
        assert_eq!(in_places + seen.others, 4 * (last as u64 + 1));
        assert!(seen.codes.iter().all(|(code, _)| *code != FREE), "{seen:?}");
        // Code 0, the codes beyond the places, and those without a code.
        assert!(seen.others >= 4 * 4, "{seen:?}");
        let mut both = CodesSnapshot { codes: vec![(1, 5), (99, 1)], others: 2 };
        both.merge(&CodesSnapshot { codes: vec![(2, 7), (1, 1)], others: 3 });
        assert_eq!((&*both.codes, both.others, both.sum()), (&[(1, 6), (99, 1), (2, 7)][..], 5, 19));
    }
}
