//! How trees grow.

#![allow(clippy::unwrap_used)]
use super::Header;
use crate::NewObject;
use ondisk::objset::ObjsetKind;
use ondisk::{BlkId, DmuType};

/// Goal: a tree gets levels when a block needs them, and never loses any.
#[test]
fn levels_follow_the_last_block() {
    let mut h = Header::new(ObjsetKind::Zfs, &NewObject::new(DmuType::PLAIN_FILE_CONTENTS));
    for (blkid, levels) in [(2, 1), (3, 2), (3 << 10, 3), (5, 3), ((3 << 10) - 1, 3), (u64::MAX - 1, 8)] {
        h.reach(BlkId(blkid)).unwrap();
        assert_eq!(h.nlevels, levels, "block {blkid}");
    }
    assert_eq!(h.maxblkid, BlkId(u64::MAX - 1));
}

/// Goal: a dnode from a bad disk that claims absurd indirect blocks, which it does not have, can't
/// grow. Nothing else breaks.
#[test]
fn absurd_indirect_blocks() {
    for shift in [0, 7, 9, 25, 255] {
        let mut h = Header::new(ObjsetKind::Zfs, &NewObject::new(DmuType::PLAIN_FILE_CONTENTS));
        h.indblkshift = shift;
        h.reach(BlkId(2)).unwrap();
        h.reach(BlkId(3)).unwrap_err();
        assert_eq!((h.maxblkid, h.nlevels), (BlkId(2), 1));
    }
    let mut h = Header::new(ObjsetKind::Zfs, &NewObject::new(DmuType::PLAIN_FILE_CONTENTS));
    (h.indblkshift, h.nlevels) = (10, 2);
    h.reach(BlkId(3 << 45)).unwrap_err();
    assert_eq!(h.nlevels, 2);
}
