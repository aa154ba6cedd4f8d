use std::collections::HashSet;

use ondisk::config::VdevKind;
use ondisk::{Ashift, Guid};
use proptest::prelude::*;

use super::*;

fn raidz(children: u64, nparity: u64, txgs: &[u64], expanding: bool) -> Result<Raidz> {
    let spec = VdevConfig {
        nparity: Some(nparity),
        raidz_expand_txgs: txgs.iter().copied().map(Txg).collect(),
        raidz_expanding: expanding,
        children: (0..children).map(|i| VdevConfig::new(VdevKind::File, Guid(i))).collect(),
        ..VdevConfig::new(VdevKind::Raidz, Guid(1))
    };
    Raidz::new(&spec, Ashift(9))
}

/// Goal: a small block has OpenZFS's layout: columns, heights, and the place of the short columns.
#[test]
fn known_map() {
    let r = raidz(5, 1, &[], false).unwrap();
    let map = r.map(3 << 9, 6 << 9, Txg(1));
    let cols: Vec<_> = map.cols.iter().map(|c| (c.child, c.offset >> 9, c.size >> 9, c.at >> 9)).collect();
    assert_eq!(cols, [(3, 0, 2, 0), (4, 0, 2, 0), (0, 1, 2, 2), (1, 1, 1, 4), (2, 1, 1, 5)]);
    assert_eq!(r.asize(6 << 9, Txg(1)), 8 << 9);
    // Where bit 20 of the offset is set, single parity and the first data column change places.
    let map = r.map((3 << 9) + (5 << 20), 1 << 9, Txg(1));
    let first = (((5 << 20) >> 9) + 3) % 5;
    assert_eq!([map.cols[0].child, map.cols[1].child], [(first + 1) % 5, first]);
}

/// Goal: widths follow the birth: before the first expansion the original one, from each on one
/// more.
#[test]
fn widths_by_birth() {
    let r = raidz(6, 2, &[100, 200], false).unwrap();
    let widths: Vec<_> = [1, 99, 100, 199, 200, 999].map(|t| r.logical_width(Txg(t))).into();
    assert_eq!(widths, [4, 4, 5, 5, 6, 6]);
    let r = raidz(6, 2, &[100], true).unwrap();
    assert_eq!([99, 100, 999].map(|t| r.logical_width(Txg(t))), [4, 5, 5]);
}

/// Goal: while an expansion copies, rows before its mark are at the new place, the others at the
/// old. From the scratch area, the first rows come just below the vdev's space.
#[test]
fn reflow_in_progress() {
    let r = raidz(4, 1, &[], true).unwrap();
    let place = |offset: u64, reflow| {
        r.set_reflow(reflow);
        let map = r.map(offset << 9, 2 << 9, Txg(5));
        map.cols.iter().map(|c| (c.child, c.offset)).collect::<Vec<_>>()
    };
    let none = Reflow { offset: 0, in_scratch: false };
    let some = Reflow { offset: 9 << 9, in_scratch: false };
    let scratch = Reflow { offset: 9 << 9, in_scratch: true };
    assert_eq!(place(6, none), [(0, 2 << 9), (1, 2 << 9), (2, 2 << 9)]);
    assert_eq!(place(6, some), [(2, 1 << 9), (3, 1 << 9), (0, 2 << 9)]);
    assert_eq!(place(7, some), [(1, 2 << 9), (2, 2 << 9), (0, 3 << 9)]);
    let low = 0u64.wrapping_sub(BOOT_SIZE);
    assert_eq!(place(0, scratch), [(0, low), (1, low), (2, low)]);
}

/// Goal: invalid configurations are errors.
#[test]
fn bad_configurations() {
    assert!(raidz(3, 0, &[], false).is_err());
    assert!(raidz(3, 4, &[], false).is_err());
    assert!(raidz(3, u64::MAX, &[], false).is_err());
    assert!(raidz(3, 3, &[], false).is_err());
    assert!(raidz(256, 1, &[], false).is_err());
    assert!(raidz(4, 1, &[5, 5], false).is_err());
    assert!(raidz(4, 1, &[1, 2, 3], false).is_err());
    assert!(raidz(2, 1, &[], true).is_err());
    assert!(raidz(255, 3, &[], false).is_ok());
}

proptest! {
    /// Goal: maps are sound, for every width that a block can have. A block's columns cover it
    /// exactly once, lie within its allocation, and share no sector. No two sectors of a row are on
    /// one child.
    #[test]
    fn maps_are_sound(
        nparity in 1..=3u64,
        ndata in 1..9u64,
        grown in 0..3usize,
        birth in 0..40u64,
        first in 0..100_000u64,
        sectors in 1..200u64,
    ) {
        let txgs: Vec<u64> = (1..=grown as u64).map(|i| i * 10).collect();
        let r = raidz(nparity + ndata + grown as u64, nparity, &txgs, false).unwrap();
        let map = r.map(first << 9, sectors << 9, Txg(birth));
        let end = first + (r.asize(sectors << 9, Txg(birth)) >> 9);
        let (mut data, mut places) = (HashSet::new(), HashSet::new());
        for row in map.rows() {
            let children: HashSet<_> = row.iter().filter(|c| c.size > 0).map(|c| c.child).collect();
            prop_assert_eq!(children.len(), row.iter().filter(|c| c.size > 0).count());
            let height = row[0].size;
            for (i, col) in row.iter().enumerate() {
                prop_assert!(col.size <= height && (i >= r.nparity || col.size == height));
                for s in 0..(col.size >> 9) as u64 {
                    let sector = ((col.offset >> 9) + s) * r.width + col.child as u64;
                    prop_assert!((first..end).contains(&sector));
                    prop_assert!(places.insert(sector));
                    if i >= r.nparity {
                        prop_assert!(data.insert((col.at >> 9) as u64 + s));
                    }
                }
            }
        }
        prop_assert_eq!(data.len() as u64, sectors);
        prop_assert!(data.iter().all(|s| *s < sectors));
    }
}

proptest! {
    /// Goal: a block's columns and the sectors behind it are all of its own sectors, each once, and
    /// no others.
    #[test]
    fn skipped_sectors_are_its_own(
        children in 2u64..12, nparity in 1u64..4, first in 0u64..5000, sectors in 1u64..300, far in any::<bool>(),
    ) {
        prop_assume!(children > nparity);
        let r = raidz(children, nparity, &[], false).unwrap();
        let first = first + if far { 1 << 11 } else { 0 };
        let (offset, size) = (first << 9, sectors << 9);
        let mut held = Vec::new();
        for col in r.map(offset, size, Txg(1)).cols {
            held.extend((0..col.size as u64 >> 9).map(|n| (col.child, (col.offset >> 9) + n)));
        }
        held.extend(r.skipped(offset, size, Txg(1)).map(|(child, at)| (child, at >> 9)));
        held.sort_unstable();
        let end = first + (r.asize(size, Txg(1)) >> 9);
        let mut own: Vec<(usize, u64)> =
            (first..end).map(|s| ((s % children) as usize, s / children)).collect();
        own.sort_unstable();
        prop_assert_eq!(held, own);
    }
}
