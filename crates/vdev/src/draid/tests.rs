use std::collections::HashMap;

use ondisk::config::{DraidShape, VdevKind};
use ondisk::{Ashift, Guid};

use super::*;

fn draid(children: u64, nparity: u64, ndata: u64, nspares: u64, ngroups: u64) -> Result<Draid> {
    Draid::new(&VdevConfig {
        nparity: Some(nparity),
        draid: Some(DraidShape { ndata, nspares, ngroups }),
        ashift: Some(Ashift(12)),
        children: (0..children).map(|i| VdevConfig::new(VdevKind::File, Guid(i))).collect(),
        ..VdevConfig::new(VdevKind::Draid, Guid(1))
    })
}

/// Goal: the permutations of every number of children have OpenZFS's sum, and each is a
/// permutation.
#[test]
fn permutations_are_the_formats() {
    for children in MIN_CHILDREN..=MAX_CHILDREN {
        for row in permutations(children).chunks(children) {
            let mut sorted = row.to_vec();
            sorted.sort_unstable();
            assert!(sorted.iter().enumerate().all(|(i, c)| usize::from(*c) == i));
        }
    }
}

/// Goal: no two sectors of the space share a place, none is where a distributed spare is, and all
/// of a slice is used.
#[test]
fn space_and_spares_are_disjoint() {
    let d = draid(11, 2, 4, 2, 3).unwrap();
    let stripe = d.group_width() << d.ashift;
    let slice = d.group_size() * d.ngroups;
    let mut used: HashMap<(usize, u64), u64> = HashMap::new();
    // Every 64th stripe of two slices is enough to reach each row and group.
    for offset in (slice..3 * slice).step_by((stripe * 64) as usize) {
        let map = d.map(offset, d.ndata << d.ashift);
        for col in &map.cols {
            assert!(used.insert((col.child, col.offset), offset).is_none());
            for spare in 0..d.nspares {
                assert_ne!(d.spare_child(spare, col.offset), col.child);
            }
        }
    }
}

/// Goal: a block at the end of a group continues in the next, and its data are in order.
#[test]
fn blocks_cross_groups() {
    let d = draid(5, 1, 2, 1, 4).unwrap();
    let stripe = d.group_width() << d.ashift;
    let map = d.map(d.group_size() - stripe, 5 << 12);
    assert_eq!(map.cols.len(), 6);
    let data: Vec<_> = map.rows().flat_map(|row| &row[1..]).map(|c| (c.at >> 12, c.size >> 12)).collect();
    assert_eq!(data, [(0, 1), (1, 1), (2, 2), (4, 1)]);
    assert_eq!(d.asize(5 << 12), 3 * stripe);
}

/// Goal: invalid shapes are errors.
#[test]
fn bad_shapes() {
    for (children, nparity, ndata, nspares, ngroups) in [
        (1, 1, 1, 0, 1),
        (256, 1, 2, 0, 1),
        (5, 0, 2, 1, 4),
        (5, 4, 1, 0, 1),
        (5, 1, 0, 1, 4),
        (5, 1, u64::MAX, 1, 4),
        (5, 1, 2, u64::MAX, 4),
        (5, 1, 2, 3, 4),
        (5, 1, 2, 1, 0),
        (5, 1, 2, 1, 3),
        (5, 1, 2, 1, 1 << 40),
        (5, 1, 2, 1, u64::MAX),
    ] {
        assert!(draid(children, nparity, ndata, nspares, ngroups).is_err());
    }
}
