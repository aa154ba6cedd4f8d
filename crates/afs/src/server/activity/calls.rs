//! Calls of one service, by their names.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use observe::{Counter, Latency, LatencySnapshot};

/// Codes of one call that are counted each. Further ones are counted together.
const CODES: usize = 16;
/// The name under which calls are counted that the service does not have.
const UNKNOWN: &str = "unknown";

/// How often calls failed, by their codes.
#[derive(Debug, Default)]
struct Errors {
    /// A code and its count. Code 0 is a free place.
    places: [(AtomicI32, AtomicU64); CODES],
    others: Counter,
}

impl Errors {
    fn count(&self, code: i32) {
        let (relaxed, free) = (Ordering::Relaxed, 0);
        // No place is of code 0, or of one that a client made up: those would take all places.
        let has_place = code != free && crate::errors::any_name(code).is_some();
        for (known, count) in self.places.iter().filter(|_| has_place) {
            let found = match known.load(relaxed) {
                0 => known.compare_exchange(free, code, relaxed, relaxed).unwrap_or_else(|other| other),
                other => other,
            };
            // The place was free, and is of this code now.
            if found == code || found == free {
                count.fetch_add(1, relaxed);
                return;
            }
        }
        self.others.inc();
    }
}

/// A call of a service.
#[derive(Debug, Default)]
struct One {
    latency: Latency,
    errors: Errors,
}

/// The calls of a service.
#[derive(Debug)]
pub struct Calls {
    /// The numbers of the calls in order, with their places.
    numbers: Box<[(u32, usize)]>,
    names: &'static [(u32, &'static str)],
    /// One for each name, and one for unknown calls.
    all: Box<[One]>,
}

/// What is known of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Its name.
    pub name: &'static str,
    /// How long it took, failed calls included.
    pub latency: LatencySnapshot,
    /// How often it failed, by the code.
    pub errors: Vec<(i32, u64)>,
    /// How often it failed with further codes.
    pub other_errors: u64,
}

impl Calls {
    /// No calls yet of a service that has these.
    pub fn new(names: &'static [(u32, &'static str)]) -> Self {
        let mut numbers: Box<[_]> =
            names.iter().enumerate().map(|(place, (number, _))| (*number, place)).collect();
        numbers.sort_unstable();
        let all = std::iter::repeat_with(One::default).take(names.len() + 1).collect();
        Self { numbers, names, all }
    }

    /// Counts a call that has ended now. `failed`: the code that it ended with, before it is
    /// translated for the client.
    pub fn ended(&self, number: u32, began: Instant, failed: Option<i32>) {
        let known = self.numbers.binary_search_by_key(&number, |(number, _)| *number);
        let place = known.map_or(self.names.len(), |at| self.numbers[at].1);
        let one = &self.all[place];
        one.latency.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if let Some(code) = failed {
            one.errors.count(code);
        }
    }

    /// The calls that were made, in the order of the service's list.
    pub fn snapshot(&self) -> Vec<Called> {
        let names = self.names.iter().map(|(_, name)| *name).chain([UNKNOWN]);
        let all = self.all.iter().zip(names).map(|(one, name)| {
            let places = one.errors.places.iter();
            let counts =
                places.map(|(code, count)| (code.load(Ordering::Relaxed), count.load(Ordering::Relaxed)));
            Called {
                name,
                latency: one.latency.snapshot(),
                errors: counts.filter(|(_, count)| *count > 0).collect(),
                other_errors: one.errors.others.get(),
            }
        });
        all.filter(|called| !called.latency.buckets.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls are counted by name and code, an unknown number as unknown. More codes than
    /// places are counted together, and none is lost, whichever threads count.
    #[test]
    fn counts() {
        let calls = Calls::new(&[(7, "Seven"), (3, "Three"), (5, "Five")]);
        let now = Instant::now();
        // All but the first are known.
        let known = (1..200).filter(|code| crate::errors::any_name(*code).is_some());
        let codes: Vec<i32> = [-123_456].into_iter().chain(known.take(CODES + 2)).collect();
        assert_eq!(codes.len(), CODES + 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    calls.ended(7, now, None);
                    calls.ended(99, now, Some(crate::errors::errno::ENOENT));
                    codes.iter().for_each(|code| calls.ended(3, now, Some(*code)));
                });
            }
        });
        let seen = calls.snapshot();
        let counts = seen.iter().map(|one| (one.name, one.latency.count(), one.errors.len()));
        let each = 4 * (CODES as u64 + 3);
        assert_eq!(counts.collect::<Vec<_>>(), [("Seven", 4, 0), ("Three", each, CODES), ("unknown", 4, 1)]);
        let (three, unknown) = (&seen[1], &seen[2]);
        let in_places: u64 = three.errors.iter().map(|(_, count)| count).sum();
        assert_eq!((in_places + three.other_errors, three.other_errors >= 4), (each, true));
        assert_eq!(unknown.errors, [(crate::errors::errno::ENOENT, 4)]);
        assert!(three.errors.iter().all(|(code, _)| *code > 0), "{:?}", three.errors);
    }
}
