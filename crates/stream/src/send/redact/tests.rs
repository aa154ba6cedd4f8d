//! Parts of changes.

use super::*;

/// Goal: a change that a list cuts has the bytes of its blocks, and the rest of a hole without an
/// end stays without one.
#[test]
fn parts_of_changes() {
    let object = ObjNum(7);
    let hole = Change::Hole { object, offset: 1024, length: 4096 };
    let endless = Change::Hole { object, offset: 1024, length: u64::MAX - 1024 };
    let redacted = Change::Redacted { object, offset: 0, length: 8192 };
    for (change, blocks, want) in [
        (&hole, (2, 4), (false, 1024, 1024)),
        (&hole, (4, 10), (false, 2048, 3072)),
        (&endless, (4, 10), (false, 2048, 3072)),
        (&endless, (4, u64::MAX), (false, 2048, u64::MAX - 2048)),
        (&redacted, (1, 3), (true, 512, 1024)),
    ] {
        let have = match part(Some(change), 512, blocks) {
            Change::Hole { offset, length, .. } => (false, offset, length),
            Change::Redacted { offset, length, .. } => (true, offset, length),
            other => panic!("{other:?}"),
        };
        assert_eq!(have, want, "{change:?} {blocks:?}");
    }
}

/// Goal: what is before a block of a range is dropped, and nothing stays of what ends there.
#[test]
fn rests_of_ranges() {
    let range = Range { object: 1, from: 3, to: 6, block_size: 512 };
    assert_eq!(range.after(5), Some(Range { from: 5, ..range }));
    assert_eq!(range.after(6), None);
    assert_eq!(range.start(), (1, 3));
}
