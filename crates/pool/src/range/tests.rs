use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: the set and its gaps agree with one boolean for each byte, whatever is added and
    /// removed.
    #[test]
    fn agrees_with_a_bitmap(ops in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..16), 0..80)) {
        let mut set = RangeSet::new();
        let mut bits = [false; 80];
        for (add, start, len) in ops {
            let range = start as usize..(start + len) as usize;
            if add {
                let free = bits[range.clone()].iter().all(|b| !b);
                prop_assert_eq!(set.add(start, start + len), free);
                if free { bits[range].fill(true); }
            } else {
                let full = bits[range.clone()].iter().all(|b| *b);
                prop_assert_eq!(set.remove(start, start + len), full);
                if full { bits[range].fill(false); }
            }
        }
        prop_assert_eq!(set.space(), bits.iter().filter(|b| **b).count() as u64);
        for (i, b) in bits.iter().enumerate() {
            prop_assert_eq!(set.contains(i as u64, i as u64 + 1), *b);
        }
        let gaps = set.gaps(0, 80);
        for (i, b) in bits.iter().enumerate() {
            prop_assert_eq!(gaps.contains(i as u64, i as u64 + 1), !*b);
        }
        for ((_, e), (s, _)) in set.iter().zip(set.iter().skip(1)) {
            prop_assert!(e < s, "ranges that touch are one");
        }
    }
}

/// Goal: bytes that are covered twice count once, and the common part of two sets is what both
/// contain.
#[test]
fn covered_and_common() {
    let mut set = RangeSet::new();
    for (start, end) in [(10, 20), (15, 30), (40, 50), (0, 60), (70, 80)] {
        set.cover(start, end);
    }
    assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 60), (70, 80)]);
    assert_eq!(set.space(), 70);
    let others = [(5, 6), (20, 65), (66, 69), (75, 90)];
    assert_eq!(set.common(&others), [(5, 6), (20, 60), (75, 80)]);
    assert_eq!(set.common(&[(0, 100)]), [(0, 60), (70, 80)]);
    assert_eq!(set.common(&[(60, 70), (80, 90)]), []);
    assert_eq!(RangeSet::new().common(&others), []);
}
