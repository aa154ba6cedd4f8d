use super::*;
use crate::zap::{FatHeader, Leaf, MicroZap, ZBT_HEADER};
use proptest::prelude::*;

/// Goal: a micro ZAP of a big-endian machine reads as a little-endian one after the swap; names are
/// bytes.
#[test]
fn micro_zaps() {
    let mut b = vec![0u8; 512];
    b[..8].copy_from_slice(&ZBT_MICRO.to_be_bytes());
    b[8..16].copy_from_slice(&5u64.to_be_bytes());
    b[64..72].copy_from_slice(&42u64.to_be_bytes());
    b[72..76].copy_from_slice(&3u32.to_be_bytes());
    b[78..82].copy_from_slice(b"ROOT");
    block(DmuType::MASTER_NODE, Level(0), &mut b).unwrap();
    let z = MicroZap::parse(&b).unwrap();
    let e = z.entry(0).unwrap().unwrap();
    assert_eq!((z.salt, e.name, e.value, e.cd), (5, &b"ROOT"[..], 42, 3));
}

/// Goal: in a leaf, chunk numbers and hashes are swapped; the bytes of names and values are not.
#[test]
fn leaves() {
    let mut b = vec![0u8; 512];
    b[..8].copy_from_slice(&ZBT_LEAF.to_be_bytes());
    b[24..28].copy_from_slice(&0x2AB_1EAFu32.to_be_bytes());
    b[30..32].copy_from_slice(&1u16.to_be_bytes());
    b[48..80].fill(0xff);
    b[48..50].copy_from_slice(&2u16.to_be_bytes());
    let (name, value, entry) = (80, 104, 128);
    b[name] = 251;
    b[name + 1..name + 4].copy_from_slice(b"abc");
    b[name + 22..name + 24].fill(0xff);
    b[value] = 251;
    b[value + 8] = 9;
    b[value + 22..value + 24].fill(0xff);
    b[entry] = 252;
    b[entry + 1] = 8;
    b[entry + 2..entry + 4].fill(0xff);
    b[entry + 7] = 4;
    b[entry + 9] = 1;
    b[entry + 11] = 1;
    b[entry + 16..entry + 24].copy_from_slice(&0x0123_4560_0000_0000u64.to_be_bytes());
    for c in 3..18 {
        b[80 + c * 24] = 253;
    }
    block(DmuType::DIRECTORY_CONTENTS, Level(0), &mut b).unwrap();
    let l = Leaf::parse(&b).unwrap();
    let e = l.entries_of(0x0123_4560_0000_0000).unwrap()[0];
    assert_eq!(l.name(&e).unwrap(), b"abc");
    assert_eq!(l.value(&e).unwrap(), 9u64.to_be_bytes());
    // Pointer tables and headers consist of words.
    let mut h = ZBT_HEADER.to_be_bytes().to_vec();
    h.resize(512, 0);
    block(DmuType::DIRECTORY_CONTENTS, Level(0), &mut h).unwrap();
    assert!(FatHeader::parse(&h).is_err());
    assert_eq!(h[..8], ZBT_HEADER.to_le_bytes());
}

/// Goal: a block of dnodes is swapped by its parts. Block pointers are swapped as words, a bonus by
/// its type, and a large dnode with all its slots at once. An unallocated slot becomes zeros.
#[test]
fn dnode_blocks() {
    let mut b = vec![0u8; 2048];
    b[0] = 19; // a plain file of two slots
    b[3] = 1;
    b[4] = 17; // with a znode
    b[11] = 1;
    b[10] = 1;
    b[12] = 1;
    b[7] = 4; // and a spill block
    b[16..24].copy_from_slice(&3u64.to_be_bytes());
    b[64..72].copy_from_slice(&0x0102u64.to_be_bytes());
    b[192..200].copy_from_slice(&77u64.to_be_bytes());
    b[1024 - 128..1024 - 120].copy_from_slice(&0x0304u64.to_be_bytes());
    b[1024 + 40] = 1;
    b[1536] = 44; // an object whose bonus is system attributes, left as they are
    b[1536 + 3] = 1;
    b[1536 + 4] = 44;
    b[1536 + 11] = 8;
    b[1536 + 192..1536 + 196].copy_from_slice(&[0, 0x2f, 0x50, 0x5a]);
    block(DmuType::DNODE, Level(0), &mut b).unwrap();
    let le = |at: usize| crate::bytes::le64(&b, at);
    assert_eq!((le(16), le(64), le(192), le(1024 - 128)), (3, 0x0102, 77, 0x0304));
    assert_eq!(b[10..12], [1, 1]);
    assert_eq!(b[1024..1536], [0; 512]);
    assert_eq!(b[1536 + 192..1536 + 196], [0, 0x2f, 0x50, 0x5a]);
}

proptest! {
    /// Goal: no foreign block of any type makes the swap panic.
    #[test]
    fn any_block_ends(kind in 0u8..=255, level in 0u8..2, len in 0usize..5000, seed in prop::collection::vec(any::<u8>(), 64)) {
        let mut b: Vec<u8> = (0..len).map(|i| seed[i % 64] & seed[(i / 7) % 64]).collect();
        if len > 8 && seed[0] & 1 == 0 {
            let t = if seed[0] & 2 == 0 { ZBT_LEAF } else { ZBT_MICRO };
            b[..8].copy_from_slice(&t.to_be_bytes());
        }
        if let Ok(kind) = DmuType::from_disk(kind) {
            let _ = block(kind, Level(level), &mut b);
        }
    }
}
