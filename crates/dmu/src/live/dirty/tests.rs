//! Sets of block numbers.

#![allow(clippy::unwrap_used)]
use super::Ranges;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    /// A set of ranges holds what a set of numbers does, in the fewest ranges.
    #[test]
    fn ranges_are_sets(ops in prop::collection::vec((0u64..100, 0u64..12), 0..40)) {
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        for (first, len) in ops {
            ranges.insert(first, first + len);
            model.extend(first..=first + len);
        }
        for n in 0..130 {
            prop_assert_eq!(ranges.has(n), model.contains(&n));
        }
        let all: Vec<_> = ranges.iter().collect();
        prop_assert!(all.windows(2).all(|w| w[0].1 + 1 < w[1].0));
    }
}

/// The last number there is can be the end of a range.
#[test]
fn ranges_reach_the_end() {
    let mut r = Ranges::default();
    r.insert(5, u64::MAX);
    r.insert(0, u64::MAX);
    r.insert(7, 9);
    assert_eq!(r.iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
}
