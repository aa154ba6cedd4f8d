//! A trimmed block of dnodes reads as the whole block does.

use super::*;
use device::{AlignedBuf, Block};
use ondisk::dnode::{DNODE_BLOCK_SIZE, DnodeFlags};
use ondisk::{Blkptr, DmuType};

fn dnode(extra_slots: u8, bonus: usize) -> DnodePhys {
    DnodePhys {
        kind: DmuType::PLAIN_FILE_CONTENTS,
        indblkshift: 17,
        nlevels: 1,
        bonus_kind: DmuType::SA,
        checksum: 0,
        compress: 0,
        flags: DnodeFlags(DnodeFlags::USED_BYTES),
        datablksz: 512,
        extra_slots,
        maxblkid: BlkId(0),
        used_bytes: 512,
        blkptrs: vec![Blkptr::HOLE],
        bonus: vec![7; bonus],
        spill: None,
    }
}

fn block(at: &[(usize, DnodePhys)]) -> Block {
    let mut buf = AlignedBuf::zeroed(DNODE_BLOCK_SIZE);
    for (slot, phys) in at {
        let raw = phys.encode();
        buf[slot * DNODE_MIN_SIZE..][..raw.len()].copy_from_slice(&raw);
    }
    buf.freeze()
}

fn of(held: Sparse) -> DnodeBlock {
    DnodeBlock { held, locked: None }
}

/// Goal: each slot reads the same in a trimmed block as in the whole block. This includes a large
/// dnode that ends in zeros which are not held, and slots after everything that is held.
#[test]
fn trimmed_blocks_say_the_same() {
    let small = dnode(0, 64);
    let cases = [
        vec![],
        vec![(0, small.clone())],
        vec![(1, small.clone()), (5, small.clone())],
        vec![(2, dnode(3, 8))],
        vec![(0, small.clone()), (4, dnode(3, 600))],
        vec![(0, small.clone()), (4, dnode(7, 3000)), (14, dnode(1, 0))],
        vec![(31, small.clone())],
    ];
    for case in cases {
        let block = block(&case);
        let (whole, trimmed) = (of(block.clone().into()), of(Sparse::trimmed(&block)));
        let last = case.last().map_or(0, |(slot, phys)| slot + phys.num_slots());
        assert_eq!(trimmed.held.is_whole(), last > 16, "{last} slots");
        for slot in 0..DNODE_BLOCK_SIZE / DNODE_MIN_SIZE {
            assert_eq!(trimmed.is_used(slot), whole.is_used(slot), "{slot}");
            assert_eq!(trimmed.taken(slot), whole.taken(slot), "{slot}");
            assert_eq!(trimmed.decode(slot), whole.decode(slot), "{slot}");
        }
        for (slot, phys) in case {
            assert_eq!(trimmed.decode(slot), Ok(Some(phys)), "{slot}");
        }
    }
}

/// Goal: a dnode that claims slots beyond its block is as corrupt in a trimmed block as in a whole
/// one.
#[test]
fn a_dnode_beyond_the_block_is_corrupt() {
    let mut buf = AlignedBuf::zeroed(4 * DNODE_MIN_SIZE);
    buf[..DNODE_MIN_SIZE].copy_from_slice(&dnode(0, 8).encode());
    buf[12] = 9;
    let block = buf.freeze();
    let (whole, trimmed) = (of(block.clone().into()), of(Sparse::trimmed(&block)));
    assert!(!trimmed.held.is_whole());
    assert!(whole.taken(0).is_err());
    assert_eq!(trimmed.taken(0), whole.taken(0));
    assert_eq!(trimmed.decode(0), whole.decode(0));
}
