//! The names of files on a partition. They are made of numbers alone.
//!
//! # See
//! OpenAFS: `src/util/flipbase64.c`, `src/vol/namei_ops.c` (`namei_HandleToName`).

use crate::types::{Unique, Vnode, VolumeId};

/// The digits of a number in a name, the lowest one first. Each has six bits.
const DIGITS: &[u8; 64] = b"+=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The bits of a file's number that are the vnode's (`NAMEI_VNODEMASK`). All of them: a special
/// file.
pub(super) const VNODE_MASK: u32 = (1 << 26) - 1;
/// Where a file's number has its tag (`NAMEI_TAGSHIFT`, `NAMEI_TAGMASK`).
const TAG_SHIFT: u32 = 26;
const TAG_MASK: u64 = 7;
/// Where a file's number has the unique, or the volume (`NAMEI_UNIQSHIFT`).
const UNIQUE_SHIFT: u32 = 32;

/// A number as a name (`int64_to_flipbase64`).
pub fn flipped(mut number: u64) -> String {
    let mut name = String::new();
    loop {
        name.push(char::from(DIGITS[(number & 63) as usize]));
        number >>= 6;
        if number == 0 {
            return name;
        }
    }
}

/// The number of a name.
fn number_of(name: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
    let number = name.iter().rev().try_fold(0_u64, |number, byte| {
        number.checked_mul(64).and_then(|number| Some(number | digit(byte)? as u64))
    })?;
    (flipped(number).as_bytes() == name).then_some(number)
}

/// The volume whose special file of a type has this name.
pub(super) fn special_of(name: &[u8], kind: u32) -> Option<VolumeId> {
    let number = number_of(name)?;
    let id = VolumeId((number >> UNIQUE_SHIFT) as u32);
    (id.0 != 0 && number == special(id, kind)).then_some(id)
}

/// The volume whose head has this name: `VNNNNNNNNNN.vol`.
pub(super) fn volume_of(name: &[u8]) -> Option<VolumeId> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix('V')?;
    let digits = name.strip_suffix(".vol")?;
    let id = digits.parse().ok().filter(|id| *id != 0)?;
    (digits == format!("{id:010}")).then_some(VolumeId(id))
}

/// The name of a volume's head.
pub(super) fn head(id: VolumeId) -> String {
    format!("V{:010}.vol", id.0)
}

/// The folders of a group: those that A and B name.
pub(super) fn group(parent: VolumeId) -> [String; 2] {
    [flipped(u64::from(parent.0 & 0xff)), flipped(parent.0.into())]
}

/// The number of a special file of a volume (`namei_MakeSpecIno`). `kind` is its type.
pub(super) fn special(id: VolumeId, kind: u32) -> u64 {
    u64::from(VNODE_MASK) | u64::from(kind) << TAG_SHIFT | u64::from(id.0) << UNIQUE_SHIFT
}

/// The folders of a vnode in those of its group: C and D (`VNO_DIR1`, `VNO_DIR2`).
pub(super) fn folders(vnode: Vnode) -> [u32; 2] {
    [vnode.0 >> 14 & 0xff, vnode.0 >> 9 & 0x1ff]
}

/// Whether this is the number of a file with data of a vnode. The tag may be any.
pub(super) fn is_of(file: u64, vnode: Vnode, unique: Unique) -> bool {
    let bare = file & !(TAG_MASK << TAG_SHIFT);
    bare == (u64::from(vnode.0) | u64::from(unique.0) << UNIQUE_SHIFT) && (1..VNODE_MASK).contains(&vnode.0)
}
