//! Calls of one service, by their names.

use std::time::Instant;

use observe::{Codes, Latency, LatencySnapshot};

/// The name under which calls are counted that the service does not have.
const UNKNOWN: &str = "unknown";

/// A call of a service.
#[derive(Debug, Default)]
struct One {
    latency: Latency,
    errors: Codes,
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
            // A client can make up the code of a reply.
            match crate::errors::any_name(code) {
                Some(_) => one.errors.count(code),
                None => one.errors.count_other(),
            }
        }
    }

    /// The calls that were made, in the order of the service's list.
    pub fn snapshot(&self) -> Vec<Called> {
        let names = self.names.iter().map(|(_, name)| *name).chain([UNKNOWN]);
        let all = self.all.iter().zip(names).map(|(one, name)| {
            let errors = one.errors.snapshot();
            Called {
                name,
                latency: one.latency.snapshot(),
                errors: errors.codes,
                other_errors: errors.others,
            }
        });
        all.filter(|called| !called.latency.buckets.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls are counted by name and code, an unknown number as unknown. A code that a client
    /// made up has no count of its own.
    #[test]
    fn counts() {
        use crate::errors::errno::ENOENT;
        let calls = Calls::new(&[(7, "Seven"), (3, "Three"), (5, "Five")]);
        let now = Instant::now();
        calls.ended(7, now, None);
        calls.ended(99, now, Some(ENOENT));
        [-123_456, ENOENT, ENOENT].into_iter().for_each(|code| calls.ended(3, now, Some(code)));
        let seen = calls.snapshot();
        let counts: Vec<_> = seen.iter().map(|one| (one.name, one.latency.count())).collect();
        assert_eq!(counts, [("Seven", 1), ("Three", 3), ("unknown", 1)]);
        let errors: Vec<_> = seen.iter().map(|one| (one.errors.clone(), one.other_errors)).collect();
        assert_eq!(errors, [(vec![], 0), (vec![(ENOENT, 2)], 1), (vec![(ENOENT, 1)], 0)]);
    }
}
