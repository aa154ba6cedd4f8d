//! Trees over devices in memory.

use std::sync::Arc;

use device::{Device, Fault, Faulty, MemDevice, Op};
use ondisk::label::{LABEL_START_SIZE, SPA_MINDEVSIZE};
use ondisk::{Ashift, Guid, Psize, Txg, VdevId};

use super::*;

const SIZE: u64 = SPA_MINDEVSIZE;
/// Requests of tests that examine other things.
pub(crate) static READ: Request = Request::new(Priority::SyncRead);
pub(crate) static WRITE: Request = Request::new(Priority::SyncWrite);

pub(crate) fn leaf(id: u64) -> VdevConfig {
    VdevConfig {
        id,
        path: Some(format!("/d{id}").into_bytes()),
        ..VdevConfig::new(VdevKind::File, Guid(100 + id))
    }
}

pub(crate) fn top(kind: VdevKind, children: u64) -> VdevConfig {
    let children = (0..children).map(leaf).collect();
    VdevConfig { ashift: Some(Ashift(9)), children, ..VdevConfig::new(kind, Guid(10)) }
}

pub(crate) fn root(tops: Vec<VdevConfig>) -> VdevConfig {
    VdevConfig { children: tops, ..VdevConfig::new(VdevKind::Root, Guid(1)) }
}

/// Devices that can fail, and a tree over them; the leaf with guid 100 + n gets device n.
pub(crate) fn open(spec: &VdevConfig, devices: u64) -> (Tree, Vec<Arc<Faulty>>) {
    let devices: Vec<_> = (0..devices)
        .map(|n| Arc::new(Faulty::new(Arc::new(MemDevice::new(&format!("d{n}"), SIZE)), n)))
        .collect();
    let tree = Tree::open(spec, &mut |leaf| {
        devices
            .get((leaf.guid.0 - 100) as usize)
            .map(|d| d.clone() as Arc<dyn Device>)
            .ok_or(VdevAux::OpenFailed)
    });
    (tree.unwrap(), devices)
}

pub(crate) fn sums(tree: &Tree) -> Vec<u64> {
    tree.devices().map(|(g, _)| tree.stats(g).unwrap().checksum_errors.get()).collect()
}

/// Goal: a mirror's candidates are its children in turn. Children that gave wrong bytes count an
/// error, and no others.
#[test]
fn mirror_tries_and_charges() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 3)]), 3);
    for d in &devices {
        d.write_at(&[7; 4096], LABEL_START_SIZE + 8192).unwrap();
        d.inject(Fault::Corrupt { range: LABEL_START_SIZE + 8192..LABEL_START_SIZE + 8193 });
    }
    devices[1].heal();
    let read = || tree.attempts(VdevId(0), 8192, Psize(4096), Txg(5), &READ).unwrap();
    let mut attempts = read();
    let good = attempts.find(|c| c[..] == [7; 4096]).unwrap();
    attempts.settle(Some(&good));
    assert_eq!(sums(&tree)[1], 0);
    assert!(sums(&tree).iter().sum::<u64>() <= 2);
    devices[1].inject(Fault::Error { op: Op::Read, range: 0..SIZE });
    let mut attempts = read();
    assert!(attempts.find(|c| c[..] == [7; 4096]).is_none());
    assert!(attempts.failure().io.is_some());
    let before: u64 = sums(&tree).iter().sum();
    attempts.settle(None);
    assert_eq!(sums(&tree).iter().sum::<u64>(), before + 2);
    assert_eq!(tree.stats(Guid(101)).unwrap().read_errors.get(), 1);
}

/// Goal: a child that missed the block's txg is read last, and its old bytes count no error.
#[test]
fn stale_children_come_last() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    devices[1].write_at(&[1; 512], LABEL_START_SIZE).unwrap();
    tree.set_dtl(Guid(100), TxgRanges::new([(50, 60)])).unwrap();
    let all: Vec<_> =
        tree.attempts(VdevId(0), 0, Psize(512), Txg(55), &READ).unwrap().map(|c| c[0]).collect();
    assert_eq!(all, [1, 0]);
    devices[1].inject(Fault::Error { op: Op::Read, range: 0..SIZE });
    let mut attempts = tree.attempts(VdevId(0), 0, Psize(512), Txg(55), &READ).unwrap();
    assert_eq!(attempts.next().unwrap()[0], 0);
    attempts.settle(None);
    assert_eq!(sums(&tree), [0, 0]);
}

/// Goal: states follow the children as in OpenZFS, when opened and when they change.
#[test]
fn states_propagate() {
    let (tree, _) = open(&root(vec![top(VdevKind::Mirror, 3)]), 2);
    assert_eq!(tree.state(), (VdevState::Degraded, VdevAux::None));
    let info = tree.describe();
    assert_eq!(info.children[0].name, "mirror-0");
    let lost = &info.children[0].children[2];
    assert_eq!((lost.state.name(lost.aux), lost.aux.note()), ("UNAVAIL", "cannot open"));
    tree.set_state(Guid(100), VdevState::Offline, VdevAux::None).unwrap();
    tree.set_state(Guid(101), VdevState::Faulted, VdevAux::ErrExceeded).unwrap();
    assert_eq!(tree.state(), (VdevState::CantOpen, VdevAux::NoReplicas));
    tree.set_state(Guid(101), VdevState::Healthy, VdevAux::None).unwrap();
    assert_eq!(tree.state(), (VdevState::Degraded, VdevAux::None));
}

/// Goal: addresses that no block can have are refused before a device is accessed.
#[test]
fn bad_addresses_are_refused() {
    let mut mirror = top(VdevKind::Mirror, 2);
    mirror.asize = Some(1 << 20);
    let hole = VdevConfig { id: 1, ..VdevConfig::new(VdevKind::Hole, Guid(0)) };
    let (tree, _) = open(&root(vec![mirror, hole]), 2);
    let ask =
        |vdev, offset, psize| tree.attempts(VdevId(vdev), offset, Psize(psize), Txg(1), &READ).map(|_| ());
    assert_eq!(ask(0, 0, 512), Ok(()));
    assert!(matches!(ask(2, 0, 512), Err(VdevError::NoSuchVdev { .. })));
    assert!(matches!(ask(1, 0, 512), Err(VdevError::Absent { .. })));
    assert!(matches!(ask(0, 1 << 20, 512), Err(VdevError::Range { .. })));
    assert!(matches!(ask(0, u64::MAX, 512), Err(VdevError::Range { .. })));
    assert!(matches!(ask(0, 0, 0), Err(VdevError::Size { .. })));
    assert!(matches!(ask(0, 0, 1 << 30), Err(VdevError::Size { .. })));
}
