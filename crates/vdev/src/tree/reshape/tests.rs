//! Trees that replace one another.

use ondisk::{Guid, Psize, Txg, VdevId};

use crate::tests::{READ, leaf, open, root, top};
use crate::{Tree, TreeCell, VdevAux, VdevConfig, VdevKind, VdevState};

/// A mirror of leaves 0 and 1, and beside it a vdev of leaf 2.
fn wider() -> VdevConfig {
    let mirror = top(VdevKind::Mirror, 2);
    let beside = VdevConfig { id: 1, ashift: mirror.ashift, ..leaf(2) };
    root(vec![mirror, VdevConfig { guid: Guid(102), ..beside }])
}

/// Goal: what both trees have stays one vdev: counters, states and missed txgs are shared, and no
/// device is opened again.
#[test]
fn what_stays_is_shared() {
    let (old, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 3);
    old.stats(Guid(100)).unwrap().checksum_errors.inc();
    old.set_dtl(Guid(101), crate::TxgRanges::new([(5, 6)])).unwrap();
    let mut asked = Vec::new();
    let new = old.reshape(&wider(), &mut |leaf| {
        asked.push(leaf.guid);
        Ok(devices[2].clone() as _)
    });
    let new = new.unwrap();
    assert_eq!(asked, [Guid(102)]);
    assert_eq!((old.top_count(), new.top_count()), (1, 2));
    assert_eq!(new.stats(Guid(100)).unwrap().checksum_errors.get(), 1);
    assert!(new.dtl(Guid(101)).unwrap().contains(5));
    assert!(new.attempts(VdevId(1), 0, Psize(512), Txg(1), &READ).unwrap().next().is_some());
    // The new tree sees what the last users of the old one find out.
    old.set_state(Guid(100), VdevState::Faulted, VdevAux::ErrExceeded).unwrap();
    let cell = TreeCell::from(std::sync::Arc::new(old));
    cell.set(std::sync::Arc::new(new));
    assert_eq!(cell.get().state().0, VdevState::Degraded);
    assert_eq!(cell.get().describe().children[0].children[0].state, VdevState::Faulted);
}

/// Goal: a device that could not be opened stays unopened, and an invalid configuration changes
/// nothing.
#[test]
fn failures_change_nothing() {
    let mut spec = root(vec![top(VdevKind::Mirror, 2)]);
    let (old, _) = open(&spec, 1);
    let mut none = |_: &VdevConfig| unreachable!("both leaves are known");
    let same: Tree = old.reshape(&spec, &mut none).unwrap();
    let leaf = &same.describe().children[0].children[1];
    assert_eq!((leaf.state, leaf.aux), (VdevState::CantOpen, VdevAux::OpenFailed));
    spec.children[0].children[1].guid = Guid(100);
    assert!(old.reshape(&spec, &mut none).is_err());
    assert_eq!(old.state().0, VdevState::Degraded);
}
