//! Sets of block numbers, and blocks that are written early.

#![allow(clippy::unwrap_used)]
use super::{Dirty, Ranges};
use device::Block;
use ondisk::{BlkId, Blkptr, Txg};
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    /// Goal: a set of ranges holds what a set of numbers does, in the fewest ranges.
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

/// Goal: the largest number can be the end of a range.
#[test]
fn ranges_reach_the_end() {
    let mut r = Ranges::default();
    r.insert(5, u64::MAX);
    r.insert(0, u64::MAX);
    r.insert(7, 9);
    assert_eq!(r.iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
}

/// A place that differs from others by its birth.
fn place(birth: u64) -> Blkptr {
    Blkptr { birth: Txg(birth), ..Blkptr::HOLE }
}

/// Goal: an early write counts as long as the object holds the very block that was written. Each
/// place that does not count is reported once, to be freed.
#[test]
fn early_places_go_with_their_blocks() {
    let mut d = Dirty::new(Txg(9), None);
    let blocks: Vec<(BlkId, Block)> = (0..7).map(|n| (BlkId(n), Block::copy_of(&[n as u8; 512]))).collect();
    for (blkid, block) in &blocks {
        assert!(!d.place(*blkid, block, &place(99)), "it is not written yet");
        d.put(*blkid, block.clone());
        assert!(d.place(*blkid, block, &place(blkid.0 + 10)));
    }
    assert!(blocks.iter().all(|(blkid, _)| d.placed(*blkid) == Some(&place(blkid.0 + 10))));
    assert_eq!(d.superseded().count(), 0);
    // In turn: changed in place, written with the same bytes, cloned, freed, withdrawn, placed
    // anew.
    d.written_mut(BlkId(0)).unwrap().make_mut()[0] = 1;
    d.put(BlkId(1), Block::copy_of(&[1; 512]));
    d.put_clone(BlkId(2), place(50));
    d.free(BlkId(3), BlkId(3));
    d.displace(BlkId(4), &place(14));
    assert!(d.place(BlkId(5), &blocks[5].1, &place(60)));
    d.displace(BlkId(5), &place(15));
    let counts: Vec<Option<u64>> = (0..7).map(|n| d.placed(BlkId(n)).map(|bp| bp.birth.0)).collect();
    assert_eq!(counts, [None, None, None, None, None, Some(60), Some(16)]);
    let told = |d: &Dirty| {
        let mut all: Vec<u64> = d.superseded().map(|bp| bp.birth.0).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(told(&d), [10, 11, 12, 13, 14, 15]);
    assert_eq!(d.early.len(), 2, "nothing is kept of what does not count");
    d.clear();
    assert_eq!(told(&d), [10, 11, 12, 13, 14, 15, 16, 60]);
}
