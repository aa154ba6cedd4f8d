//! Which devices are given up, and why.

use device::{Fault, Op};
use ondisk::{Guid, Txg, VdevId};

use crate::tests::{WRITE, open, root, top};
use crate::{VdevAux, VdevKind, VdevState};

const TOP: VdevId = VdevId(0);
const DEAD: Fault = Fault::Error { op: Op::Write, range: 0..u64::MAX };

/// Goal: a device of a mirror that fails altogether is faulted, is not accessed any more, and
/// serves again once it is cleared. A device with a bad sector only counts errors.
#[test]
fn a_dead_side_is_faulted() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let state = |n: usize| tree.describe().children[0].children[n].state;
    devices[1].inject(Fault::Error { op: Op::Write, range: 6 << 20..7 << 20 });
    tree.write(TOP, 2 << 20, &[1; 4096], Txg(9), &WRITE).unwrap();
    assert_eq!((state(0), state(1)), (VdevState::Healthy, VdevState::Healthy));
    devices[1].inject(DEAD);
    tree.write(TOP, 3 << 20, &[1; 4096], Txg(10), &WRITE).unwrap();
    assert_eq!((state(1), tree.state().0), (VdevState::Faulted, VdevState::Degraded));
    let errors = || tree.stats(Guid(101)).unwrap().write_errors.get();
    let before = errors();
    tree.write(TOP, 3 << 20, &[1; 4096], Txg(11), &WRITE).unwrap();
    assert_eq!((errors(), tree.takes_blocks(TOP), tree.is_whole()), (before, true, true));
    assert!((9..12).all(|txg| tree.dtl(Guid(101)).unwrap().contains(txg)));
    devices[1].heal();
    tree.clear(None).unwrap();
    assert_eq!((errors(), state(1)), (0, VdevState::Healthy));
    assert_eq!(tree.write(TOP, 3 << 20, &[1; 4096], Txg(12), &WRITE).unwrap().missed, 0);
}

/// Goal: a device that the pool needs stays readable when its writes fail. Its vdev takes no more
/// blocks. A clear of the device or of the pool makes it serve again.
#[test]
fn the_last_side_is_kept() {
    let tops = vec![top(VdevKind::Mirror, 1)];
    for guid in [None, Some(Guid(100))] {
        let (tree, devices) = open(&root(tops.clone()), 1);
        tree.write(TOP, 2 << 20, &[1; 4096], Txg(8), &WRITE).unwrap();
        devices[0].inject(DEAD);
        assert!(tree.write(TOP, 3 << 20, &[1; 4096], Txg(9), &WRITE).is_err());
        assert_eq!(tree.state(), (VdevState::Healthy, VdevAux::None));
        assert!(!tree.takes_blocks(TOP) && !tree.is_whole() && !tree.is_writable(Guid(100)));
        assert!(tree.write(TOP, 3 << 20, &[1; 4096], Txg(9), &WRITE).is_err());
        assert_eq!(tree.stats(Guid(100)).unwrap().write_errors.get(), 1, "it is not asked again");
        devices[0].heal();
        tree.clear(guid).unwrap();
        assert!(tree.takes_blocks(TOP) && tree.is_whole());
        tree.write(TOP, 3 << 20, &[1; 4096], Txg(9), &WRITE).unwrap();
    }
    let (tree, _) = open(&root(tops), 1);
    assert!(tree.clear(Some(Guid(5))).is_err());
}
