//! Writes and discards within bounds.

use device::{Device, Fault, Op};
use ondisk::Guid;
use ondisk::label::{LABEL_END_SIZE, LABEL_START_SIZE, SPA_MINDEVSIZE};

use super::WipeError;
use crate::tests::{WRITE, open, root, top};
use crate::{VdevKind, VdevState};

const LEAF: Guid = Guid(100);
const SPACE: u64 = SPA_MINDEVSIZE - LABEL_START_SIZE - LABEL_END_SIZE;

/// Goal: the space between the labels is written and discarded to its last byte, and not one byte
/// beyond.
#[test]
fn labels_are_out_of_reach() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    devices[0].write_at(&[7; 4096], SPA_MINDEVSIZE - LABEL_END_SIZE).unwrap();
    tree.fill(LEAF, SPACE - 4096, &[3; 4096], &WRITE).unwrap();
    tree.fill(LEAF, 0, &[3; 4096], &WRITE).unwrap();
    tree.discard(LEAF, SPACE - (1 << 20), 1 << 20).unwrap();
    for (offset, len) in [(SPACE - 512, 1024), (SPACE, 512), (u64::MAX - 511, 512), (u64::MAX, 2)] {
        assert!(matches!(tree.discard(LEAF, offset, len), Err(WipeError::Range { .. })));
        assert!(matches!(tree.fill(LEAF, offset, &[3; 1024], &WRITE), Err(WipeError::Range { .. })));
    }
    let mut label = [0; 4096];
    devices[0].read_at(&mut label, SPA_MINDEVSIZE - LABEL_END_SIZE).unwrap();
    assert_eq!(label, [7; 4096]);
    let stats = tree.stats(LEAF).unwrap().snapshot();
    assert_eq!((stats.trim_ops, stats.trim_bytes, stats.write_bytes), (1, 1 << 20, 8192));
}

/// Goal: a failed range is an error that names the device. A device that fails altogether is given
/// up, and not accessed any more.
#[test]
fn a_device_that_fails_is_given_up() {
    let (tree, devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    let from = LABEL_START_SIZE;
    devices[0].inject(Fault::Error { op: Op::Trim, range: from..from + 4096 });
    assert!(matches!(tree.discard(LEAF, 0, 4096), Err(WipeError::Device { .. })));
    assert!(tree.is_writable(LEAF), "its labels can be written");
    devices[0].inject(Fault::Error { op: Op::Write, range: 0..u64::MAX });
    assert!(matches!(tree.fill(LEAF, 0, &[3; 512], &WRITE), Err(WipeError::Device { .. })));
    assert_eq!(tree.state_of(LEAF).unwrap().0, VdevState::Faulted);
    assert!(matches!(tree.fill(LEAF, 0, &[3; 512], &WRITE), Err(WipeError::Gone { guid: LEAF })));
    assert!(matches!(tree.discard(Guid(9), 0, 512), Err(WipeError::Gone { .. })));
}

/// Goal: an injected fault of discards strikes them, and nothing else.
#[test]
fn discards_fail_when_asked_for() {
    use crate::inject::{self, On, Target, Wrong};
    let (tree, _devices) = open(&root(vec![top(VdevKind::Mirror, 2)]), 2);
    // No other test has a device of this number fail in its pool.
    let leaf = Guid(101);
    let target = Target::Leaf { leaf, on: Some(On::Free), wrong: Wrong::Error(5) };
    let fault = inject::Fault { pool: tree.root_guid(), target, often: inject::ALWAYS };
    let id = inject::add(fault).unwrap();
    assert!(matches!(tree.discard(leaf, 0, 4096), Err(WipeError::Device { guid, .. }) if guid == leaf));
    tree.fill(leaf, 0, &[3; 512], &WRITE).unwrap();
    inject::cancel(Some(id));
    tree.discard(leaf, 0, 4096).unwrap();
}
