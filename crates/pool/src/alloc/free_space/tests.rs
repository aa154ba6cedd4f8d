use super::*;
use proptest::prelude::*;

const WHOLE: u64 = 1 << 20;

/// Goal: for any sequence of allocations and frees, a range that is given out was free, and is
/// given out once. The index by size and the histogram match the ranges. A request fails only if no
/// range is large enough.
#[test]
fn free_space_agrees_with_a_bitmap() {
    let op = prop_oneof![
        (1u64..40).prop_map(|n| (true, n, 0)),
        (0u64..64, 1u64..20).prop_map(|(at, n)| (false, n, at)),
    ];
    proptest!(|(ops in prop::collection::vec(op, 1..200))| {
        let units = (WHOLE >> 9) as usize;
        let mut model = vec![true; units];
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut free = FreeSpace::new();
        free.add(0, WHOLE);
        for (take, n, at) in ops {
            if take {
                let size = n << 9;
                let longest = model.split(|f| !f).map(<[bool]>::len).max().unwrap_or(0) as u64;
                let got = free.allocate(size, WHOLE);
                prop_assert_eq!(got.is_some(), longest >= n);
                if let Some(start) = got {
                    let part = &mut model[(start >> 9) as usize..][..n as usize];
                    prop_assert!(part.iter().all(|f| *f));
                    part.fill(false);
                    held.push((start, start + size));
                }
            } else if !held.is_empty() {
                let (start, end) = held.swap_remove(at as usize % held.len());
                free.add(start, end);
                model[(start >> 9) as usize..(end >> 9) as usize].fill(true);
            }
            prop_assert_eq!(free.space(), model.iter().filter(|f| **f).count() as u64 * 512);
        }
        let runs: Vec<u64> = model.split(|f| !f).map(|r| r.len() as u64 * 512).filter(|n| *n > 0).collect();
        let mut histogram = [0; 64];
        runs.iter().for_each(|r| histogram[r.ilog2() as usize] += 1);
        prop_assert_eq!(&histogram, free.histogram());
        prop_assert_eq!(free.largest(), runs.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(free.iter().count(), runs.len());
    });
}
