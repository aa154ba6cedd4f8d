//! Blocks of the other byte order: real blocks, swapped field by field, must come back byte for
//! byte.
//!
//! The test swaps native blocks here by their own contents. The reader instead works from the
//! contents of the foreign block, so the two do not share a mistake.

use crate::common::{filesystems, mos};
use dmu::Objset;
use ondisk::bytes::{le64, swap64};
use ondisk::byteswap::swap16;
use ondisk::kind::ByteSwap;
use ondisk::sa::{AttrSwap, SaRegistry};
use ondisk::zap::{ZBT_LEAF, ZBT_MICRO};
use ondisk::{BlkId, ByteOrder, DmuType, Level, ObjNum};
use std::collections::BTreeMap;

/// Reverses `len` bytes at each of these offsets.
fn turn(b: &mut [u8], len: usize, at: &[usize]) {
    at.iter().for_each(|&i| b[i..i + len].reverse());
}

fn turn_zap(b: &mut [u8]) {
    match le64(b, 0) {
        ZBT_MICRO => {
            for slot in (64..b.len()).step_by(64) {
                turn(b, 8, &[slot]);
                turn(b, 4, &[slot + 8]);
            }
            swap64(&mut b[..24]);
        }
        ZBT_LEAF => {
            let size = b.len();
            let first = 48 + size / 16;
            let chunks = (size - size / 16) / 24 - 2;
            for c in (0..chunks).map(|n| first + n * 24) {
                if b[c] == 252 {
                    turn(b, 2, &[c + 2, c + 4, c + 6, c + 8, c + 10]);
                    turn(b, 4, &[c + 12]);
                    turn(b, 8, &[c + 16]);
                } else {
                    turn(b, 2, &[c + 22]);
                }
            }
            swap16(&mut b[48..first]);
            turn(b, 2, &[28, 30, 32, 34]);
            turn(b, 4, &[24]);
            turn(b, 8, &[0, 16]);
        }
        _ => swap64(b),
    }
}

fn turn_znode(b: &mut [u8]) {
    let version = u16::from_le_bytes([b[188], b[189]]);
    let mut at = 192;
    while version == 0 && at < 264 {
        turn(b, 4, &[at, at + 4]);
        turn(b, 2, &[at + 8, at + 10]);
        at += 12;
    }
    while version == 1 && at + 8 <= 264 {
        let (kind, flags) = (b[at], u16::from_le_bytes([b[at + 2], b[at + 3]]));
        let has_id = !matches!(flags & 0x7040, 0x1000 | 0x2040 | 0x4000);
        turn(b, 2, &[at, at + 2]);
        turn(b, 4, &[at + 4]);
        if has_id && at + 16 <= 264 {
            turn(b, 8, &[at + 8]);
        }
        at += if !has_id {
            8
        } else if (5..=8).contains(&kind) {
            48
        } else {
            16
        };
    }
    turn(b, 2, &[188, 190]);
    turn(b, 4, &[184]);
    swap64(&mut b[..184]);
}

fn turn_dnode(b: &mut [u8], slots: usize) {
    let bonus_at = 64 + 128 * usize::from(b[3]);
    let end = slots * 512 - if b[7] & 4 != 0 { 128 } else { 0 };
    if u16::from_le_bytes([b[10], b[11]]) != 0 {
        let kind = DmuType::from_disk(b[4]).unwrap();
        match kind.byteswap() {
            ByteSwap::Uint8 => {}
            ByteSwap::Uint64 => swap64(&mut b[bonus_at..end]),
            ByteSwap::Znode => turn_znode(&mut b[bonus_at..end]),
            other => panic!("a bonus of {other:?}"),
        }
    }
    swap64(&mut b[64..bonus_at]);
    swap64(&mut b[end..slots * 512]);
    turn(b, 2, &[8, 10]);
    turn(b, 8, &[16, 24]);
}

/// `b` as a big-endian machine would have written it.
fn foreign(kind: DmuType, b: &[u8]) -> Vec<u8> {
    let mut b = b.to_vec();
    match kind.byteswap() {
        ByteSwap::Uint8 => {}
        ByteSwap::Uint64 => swap64(&mut b),
        ByteSwap::Zap => turn_zap(&mut b),
        ByteSwap::Dnode => {
            let mut at = 0;
            while at < b.len() {
                let slots = if b[at] == 0 { 1 } else { 1 + usize::from(b[at + 12]) };
                if b[at] != 0 {
                    turn_dnode(&mut b[at..], slots);
                }
                at += slots * 512;
            }
        }
        other => panic!("no {other:?} among these"),
    }
    b
}

/// Swaps every block of every object of `os`, and counts them by kind of swap.
fn check(os: &Objset, seen: &mut BTreeMap<String, usize>) {
    let all = std::iter::once(os.meta_dnode()).chain(os.objects(ObjNum(1)).map(|d| d.unwrap()));
    for dn in all {
        if !dn.kind().is_metadata() {
            continue;
        }
        let mut next = dn.next_data_block(BlkId(0)).unwrap();
        while let Some(blkid) = next {
            let real = dn.block(blkid).unwrap().unwrap();
            let mut b = foreign(dn.kind(), &real);
            ondisk::byteswap::block(dn.kind(), Level(0), &mut b).unwrap();
            assert!(b[..] == real[..], "{dn:?} ({}) block {blkid}", dn.kind().name());
            *seen.entry(format!("{:?}", dn.kind().byteswap())).or_default() += 1;
            next = dn.next_data_block(BlkId(blkid.0 + 1)).unwrap();
        }
    }
}

/// Goal: every metadata block of real pools survives a swap and the reader's swap back, with system
/// attributes and with older znodes.
#[test]
fn real_blocks_survive() {
    let mut seen = BTreeMap::new();
    for name in ["single-lz4", "v28", "v1"] {
        let mos = mos(&testkit::fixture(name)[0]);
        check(&mos, &mut seen);
        filesystems(&mos).iter().for_each(|(_, os)| check(os, &mut seen));
    }
    assert!(seen["Dnode"] > 200 && seen["Zap"] > 500 && seen["Uint64"] > 40, "{seen:?}");
}

/// Goal: attributes that a big-endian machine wrote are found at the same places with the same
/// values.
#[test]
fn foreign_attributes() {
    let mut reg = SaRegistry::new();
    reg.register(b"ZPL_SYMLINK", (3 << 16) | 17).unwrap();
    reg.register(b"ZPL_DACL_ACES", (4 << 16) | 18).unwrap();
    reg.add_layout(b"7", &[5, 17, 0, 18]).unwrap();
    let ace = |order: ByteOrder| match order {
        ByteOrder::Little => [0u16.to_le_bytes(), 0x1000u16.to_le_bytes(), [1, 0], [0, 0]].concat(),
        ByteOrder::Big => [0u16.to_be_bytes(), 0x1000u16.to_be_bytes(), [0, 0], [0, 1]].concat(),
    };
    let bonus = |order: ByteOrder| {
        let u16s = |v: u16| if order == ByteOrder::Little { v.to_le_bytes() } else { v.to_be_bytes() };
        let u64s = |v: u64| if order == ByteOrder::Little { v.to_le_bytes() } else { v.to_be_bytes() };
        let magic = 0x2F_505Au32;
        let magic = if order == ByteOrder::Little { magic.to_le_bytes() } else { magic.to_be_bytes() };
        let mut b = magic.to_vec();
        b.extend([u16s(7 | 2 << 10), u16s(3), u16s(8), [0; 2], [0; 2], [0; 2]].concat());
        b.extend(u64s(0o100644));
        b.extend(*b"abc\0\0\0\0\0");
        b.extend([u64s(5), u64s(6)].concat());
        b.extend(ace(order));
        b
    };
    let (le, be) = (bonus(ByteOrder::Little), bonus(ByteOrder::Big));
    let (here, there) = (reg.locate(&le).unwrap(), reg.locate(&be).unwrap());
    assert_eq!(here.len(), 4);
    for (l, b) in here.iter().zip(&there) {
        assert_eq!((l.num, &l.range, l.swap), (b.num, &b.range, b.swap));
        let mut raw = be[b.range.clone()].to_vec();
        b.swap.to_native(b.order, &mut raw);
        assert_eq!(raw, le[l.range.clone()], "{:?}", l.num);
    }
    assert_eq!(there[3].swap, AttrSwap::Acl);
}
