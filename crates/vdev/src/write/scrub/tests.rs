use device::Block;
use ondisk::config::DraidShape;
use ondisk::{Guid, Psize, Txg, VdevId};

use crate::tests::{open, root, top};
use crate::{Extent, Tree, TxgRanges, VdevAux, VdevConfig, VdevKind, VdevState};

const TOP: VdevId = VdevId(0);
const TXG: Txg = Txg(9);
const SPARE: Guid = Guid(77);

/// Five children: each group of columns has three, and the columns of one are spare.
fn draid() -> VdevConfig {
    let shape = DraidShape { ndata: 2, nspares: 1, ngroups: 4 };
    VdevConfig { nparity: Some(1), draid: Some(shape), ..top(VdevKind::Draid, 5) }
}

/// The same with its spare beside the third child.
fn spared() -> VdevConfig {
    let mut spec = draid();
    let spare =
        VdevConfig { draid_spare: Some((spec.guid, 0)), ..VdevConfig::new(VdevKind::DraidSpare, SPARE) };
    let children = vec![spec.children[2].clone(), spare];
    spec.children[2] = VdevConfig { id: 2, children, ..VdevConfig::new(VdevKind::Spare, Guid(78)) };
    spec
}

fn raidz(children: u64, nparity: u64) -> VdevConfig {
    VdevConfig { nparity: Some(nparity), ..top(VdevKind::Raidz, children) }
}

fn miss(tree: &Tree, guid: Guid) {
    tree.set_dtl(guid, TxgRanges::new([(9, 10)])).unwrap();
}

/// Of blocks all over a vdev, how many an open device lacks a part of, and of how many. Agrees with
/// what is laid out for them, or named as on a missing device.
fn lacking(tree: &Tree, behind: Guid, places: impl Iterator<Item = u64>) -> (usize, usize) {
    let (mut lack, mut all) = (0, 0);
    for offset in places {
        for size in [512u64, 1024, 2560, 8192] {
            let copy = Extent { vdev: TOP, offset, psize: Psize(size), birth: TXG };
            let block = Block::zeroed(size as usize);
            let (laid, known) = tree.lay_out_missed(TOP, offset, &block, TXG).unwrap();
            let expected = laid.iter().any(|l| l.bytes() > 0) || known.behind.contains(&behind);
            assert_eq!(tree.lacks(&copy), expected, "{size} at {offset:#x}");
            assert!(!tree.lacks(&Extent { birth: Txg(8), ..copy }), "no device lacks anything of that group");
            (lack, all) = (lack + usize::from(expected), all + 1);
        }
    }
    (lack, all)
}

/// Offsets in two slices of the dRAID, at the ends of groups too.
fn in_groups() -> impl Iterator<Item = u64> {
    const GROUP: u64 = 48 << 20;
    (0..8).flat_map(|group| [0, 3, 4096, GROUP / 1536 - 1].map(|stripe| group * GROUP + stripe * 1536))
}

/// Goal: a copy is lacking where a part of it has to be written, and nowhere else. A small block of
/// a raidz is on few of its devices, one of a dRAID on those of its group.
#[test]
fn who_has_no_part_lacks_none() {
    for (spec, share) in
        [(top(VdevKind::Mirror, 3), 1.0), (raidz(3, 1), 1.0), (raidz(7, 2), 0.9), (draid(), 0.8)]
    {
        let spec = root(vec![spec]);
        let children = spec.children[0].children.len() as u64;
        for child in 0..children {
            let (tree, _) = open(&spec, children);
            miss(&tree, Guid(100 + child));
            let (lack, all) = match spec.children[0].kind {
                VdevKind::Draid => lacking(&tree, Guid(0), in_groups()),
                _ => lacking(&tree, Guid(0), (16..60).map(|sector| sector * 512)),
            };
            let found = lack as f64 / all as f64;
            assert!(lack > 0 && found <= share, "child {child} of {children}: {found}");
        }
    }
}

/// Goal: a distributed spare that is behind lacks what it holds for its child, and so does the
/// device that stands in for it there. While that device is missing, the spare still lacks it.
#[test]
fn what_a_distributed_spare_lacks() {
    let spec = root(vec![spared()]);
    let fresh = || {
        let (tree, _) = open(&spec, 5);
        tree.set_state(Guid(102), VdevState::Offline, VdevAux::None).unwrap();
        tree
    };
    let tree = fresh();
    miss(&tree, SPARE);
    let (lack, all) = lacking(&tree, SPARE, in_groups());
    assert!(lack > 0 && lack < all, "{lack} of {all}");
    let tree = fresh();
    miss(&tree, SPARE);
    tree.set_state(Guid(100), VdevState::Offline, VdevAux::None).unwrap();
    assert_eq!(lacking(&tree, SPARE, in_groups()), (lack, all));
    // Its own columns, and those of the third child where it stands in.
    let tree = fresh();
    miss(&tree, Guid(100));
    let (with_spare, _) = lacking(&tree, Guid(0), in_groups());
    let (tree, _) = open(&root(vec![draid()]), 5);
    miss(&tree, Guid(100));
    let (alone, _) = lacking(&tree, Guid(0), in_groups());
    assert!(with_spare > alone, "{with_spare}, {alone}");
}

/// Goal: a missing device lacks nothing that could be written to it. Where columns are not known,
/// all devices of the vdev count.
#[test]
fn who_is_away_and_who_can_not_tell() {
    let (tree, _) = open(&root(vec![draid()]), 5);
    let copy = |offset, size| Extent { vdev: TOP, offset, psize: Psize(size), birth: TXG };
    for child in 0..5 {
        miss(&tree, Guid(100 + child));
    }
    assert!(tree.lacks(&copy(0, 512)));
    // No block begins there, is so large, or lies beyond all.
    assert!(
        tree.lacks(&copy(512, 512))
            && tree.lacks(&copy(0, u64::MAX))
            && tree.lacks(&copy(u64::MAX - 511, 512))
    );
    let (tree, _) = open(&root(vec![draid()]), 0);
    for child in 0..5 {
        miss(&tree, Guid(100 + child));
    }
    assert!(!tree.lacks(&copy(0, 512)));
}

/// Goal: blocks can be at multiples of a vdev's unit, and nowhere else.
#[test]
fn blocks_begin_at_units() {
    for (spec, unit) in [(top(VdevKind::Mirror, 2), 512), (raidz(3, 1), 512), (draid(), 1536)] {
        let children = spec.children.len() as u64;
        let (tree, _) = open(&root(vec![spec]), children);
        assert_eq!(tree.unit_of(TOP), unit);
        for at in (0..64).map(|n| n * 256) {
            let can = tree.pieces_of(TOP, at, Psize(2048), TXG).is_ok();
            assert_eq!(can, at % unit == 0, "{at}");
        }
    }
    let (tree, _) = open(&root(vec![draid()]), 5);
    assert_eq!(tree.unit_of(VdevId(7)), 1);
}
