//! Addresses as bytes of devices, against where blocks are laid out.

use device::Block;
use ondisk::config::DraidShape;
use ondisk::{Guid, Psize, Txg, VdevId};
use proptest::prelude::*;

use crate::tests::{open, root, top};
use crate::{Tree, VdevConfig, VdevError, VdevKind};

const TOP: VdevId = VdevId(0);

fn raidz(children: u64, nparity: u64) -> VdevConfig {
    VdevConfig { nparity: Some(nparity), ..top(VdevKind::Raidz, children) }
}

fn draid(children: u64, nparity: u64, shape: DraidShape) -> VdevConfig {
    VdevConfig { nparity: Some(nparity), draid: Some(shape), ..top(VdevKind::Draid, children) }
}

/// Shapes with their number of devices, and the unit of allocation in bytes.
fn shapes() -> Vec<(VdevConfig, u64, u64)> {
    let small = DraidShape { ndata: 2, nspares: 1, ngroups: 4 };
    let large = DraidShape { ndata: 4, nspares: 2, ngroups: 3 };
    vec![
        (top(VdevKind::Mirror, 3), 3, 512),
        (raidz(3, 1), 3, 1024),
        (raidz(5, 1), 5, 1024),
        (raidz(5, 2), 5, 1536),
        (raidz(7, 3), 7, 2048),
        (draid(5, 1, small), 5, 3 * 512),
        (draid(11, 2, large), 11, 6 * 512),
    ]
}

/// Runs of a device, by device.
type Runs = Vec<(u64, u64, u64)>;

fn translated(tree: &Tree, leaves: u64, start: u64, end: u64) -> Runs {
    let mut all = Runs::new();
    for leaf in 0..leaves {
        let mut last = 0;
        let mut each = |start: u64, end: u64| {
            assert!(last <= start && start < end, "runs are in order");
            last = end;
            all.push((leaf, start, end));
        };
        tree.translate(Guid(100 + leaf), start, end, &mut each).unwrap();
    }
    all
}

fn overlap(a: &Runs, b: &Runs) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.0 == y.0 && x.1 < y.2 && y.1 < x.2))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Goal: bytes of free addresses belong to no block, bytes of two ranges differ, and a block
    /// lies in the bytes of its own addresses.
    #[test]
    fn free_addresses_are_nobodys_bytes(
        start in 0u64..200_000,
        blocks in prop::collection::vec((1u64..100_000, 0u64..6_000), 1..14),
    ) {
        for (spec, leaves, unit) in shapes() {
            let (tree, _) = open(&root(vec![spec]), leaves);
            let (mut taken, mut free) = (Vec::new(), Vec::new());
            let mut at = start * unit;
            prop_assert!(translated(&tree, leaves, at, at).is_empty(), "nothing covers nothing");
            for (size, gap) in &blocks {
                let asize = tree.psize_to_asize(TOP, Psize(*size), Txg(5)).unwrap().0;
                let laid = tree.lay_out(TOP, at, &Block::zeroed(*size as usize), Txg(5)).unwrap();
                let own = translated(&tree, leaves, at, at + asize);
                for p in &laid.pieces {
                    let leaf = (0..leaves).find(|n| tree.by_guid[&Guid(100 + n)] == p.leaf).unwrap();
                    let (from, to) = (p.offset, p.offset + p.range.len() as u64);
                    prop_assert!(own.iter().any(|r| r.0 == leaf && r.1 <= from && to <= r.2));
                    taken.push((leaf, from, to));
                }
                at += asize;
                free.push(translated(&tree, leaves, at, at + gap * unit));
                at += gap * unit;
            }
            for (i, runs) in free.iter().enumerate() {
                prop_assert!(!overlap(runs, &taken));
                prop_assert!(free[..i].iter().all(|before| !overlap(runs, before)));
            }
        }
    }
}

/// Goal: a sector that is free in part is left out, and a vdev whose sectors are moving is refused.
#[test]
fn what_is_not_whole_is_left_alone() {
    let (tree, _) = open(&root(vec![raidz(3, 1)]), 3);
    assert_eq!(translated(&tree, 3, 1, 3 * 512 + 511), [(1, 0, 512), (2, 0, 512)]);
    assert_eq!(translated(&tree, 3, 1, 512), []);
    let expanding = VdevConfig { raidz_expanding: true, ..raidz(4, 1) };
    let (tree, _) = open(&root(vec![expanding]), 4);
    let none = tree.translate(Guid(100), 0, 4096, &mut |_, _| unreachable!("it has no place"));
    assert_eq!(none, Err(VdevError::Expanding { vdev: TOP }));
    assert!(tree.translate(Guid(10), 0, 4096, &mut |_, _| ()).is_err(), "it is no device");
}
