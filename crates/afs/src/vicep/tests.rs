//! Names and records of a partition.

use proptest::prelude::*;

use super::names::{self, flipped};
use super::{Damage, DiskVnode, Head, Info, LARGE_SIZE, SMALL_SIZE};
use crate::types::{Unique, Vnode, VolumeId};

/// Goal: numbers are the names that OpenAFS gives them, as its server wrote them.
#[test]
fn names_of_numbers() {
    assert_eq!([flipped(0), flipped(63), flipped(64)], ["+", "z", "+="]);
    assert_eq!(names::group(VolumeId(536_870_917)), ["3", "3+++U"]);
    assert_eq!(flipped(names::special(VolumeId(536_870_917), 1)), "zzzz5I++++0");
    assert_eq!(names::special_of(b"zzzz5I++++0", 1), Some(VolumeId(536_870_917)));
    for wrong in [&b"zzzz5I++++0+"[..], b"zzzz9I++++0", b"README", b"zzzzzzzzzzzzzzzz", b""] {
        assert_eq!(names::special_of(wrong, 1), None, "{wrong:?}");
    }
    assert_eq!(names::folders(Vnode(1 << 14 | 3 << 9 | 7)), [1, 0x23]);
}

/// Goal: only whole names of heads are taken for volumes.
#[test]
fn names_of_heads() {
    assert_eq!(names::volume_of(b"V0536870917.vol"), Some(VolumeId(536_870_917)));
    assert_eq!(names::head(VolumeId(536_870_917)), "V0536870917.vol");
    for name in [
        &b"V536870917.vol"[..],
        b"V0000000000.vol",
        b"V+536870917.vol",
        b"V9999999999.vol",
        b"V0536870917.vol.bak",
        b"v0536870917.vol",
        b"AFSIDat",
        b"V\xff.vol",
        b"",
    ] {
        assert_eq!(names::volume_of(name), None, "{name:?}");
    }
}

/// Goal: the number of a file belongs to one vnode and unique, with any tag.
#[test]
fn numbers_of_files() {
    let (vnode, unique) = (Vnode(6), Unique(9));
    assert!(names::is_of(9 << 32 | 6, vnode, unique) && names::is_of(9 << 32 | 7 << 26 | 6, vnode, unique));
    for wrong in [9 << 32 | 8, 8 << 32 | 6, 9 << 32 | 1 << 29 | 6, 0] {
        assert!(!names::is_of(wrong, vnode, unique), "{wrong:#x}");
    }
    let special = Vnode(names::VNODE_MASK);
    assert!(!names::is_of(u64::from(special.0), special, Unique(0)));
}

/// Goal: the other order of bytes is named, and another magic number is not taken for it.
#[test]
fn byte_orders() {
    let mut head = [0; 76];
    head[..4].copy_from_slice(&0x88a1_bb3c_u32.to_be_bytes());
    assert!(matches!(Head::decode(&head, VolumeId(1)), Err(Damage::ByteOrder)));
    head[0] ^= 1;
    assert!(matches!(Head::decode(&head, VolumeId(1)), Err(Damage::Magic { .. })));
}

proptest! {
    /// Goal: no bytes make a decoder panic, and records of other lengths are refused.
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), vnode in 1u32.., stamp: bool) {
        let magic: u32 = if vnode & 1 == 1 { 0xad87_65fe } else { 0xda8c_041f };
        if stamp && bytes.len() >= 40 {
            bytes[36..40].copy_from_slice(&magic.to_le_bytes());
        }
        let size = if vnode & 1 == 1 { LARGE_SIZE } else { SMALL_SIZE };
        bytes.resize(if stamp { size } else { bytes.len() }, 0);
        let decoded = DiskVnode::decode(&bytes, Vnode(vnode));
        prop_assert!(bytes.len() == size || decoded.is_err());
        let head = Head { id: VolumeId(7), parent: VolumeId(7) };
        prop_assert!(Info::decode(&bytes, head).is_err() || bytes.len() == 552);
        prop_assert!(Head::decode(&bytes, VolumeId(7)).is_err() || bytes.len() == 76);
    }
}
