//! System attributes: a file's attributes, packed in the order of a layout (`sys/sa_impl.h`).
//!
//! # On disk
//! A bonus of type [`DmuType::SA`](crate::DmuType::SA), or a spill block, begins with a header. The
//! header names a layout, and has the lengths of the attributes whose length varies. The attributes
//! follow, each at a multiple of 8:
//!
//! ```text
//! 0 magic (4)   4 layout (10 bits), header size / 8 (6 bits)   6 lengths (2 each)   attributes
//! ```
//!
//! Each object set numbers its attributes and layouts itself, in two ZAPs:
//!
//! * `REGISTRY` gives each name a number, a length (0 if it varies) and a byte swap.
//! * `LAYOUTS` gives each layout the numbers of its attributes.
//!
//! The sixteen attributes of the older znode have the numbers 0 to 15 in every object set.
//!
//! The byte swap of a whole bonus or spill block does nothing. The magic number tells its byte
//! order, and [`Located`] tells how to swap each attribute.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use strum::FromRepr;

use crate::bytes::swap64;
use crate::byteswap::{swap16, swap32};
use crate::{ByteOrder, Corrupt, Result, acl};

/// Magic number of the header.
pub const SA_MAGIC: u32 = 0x2F_505A;
const WHAT: &str = "system attributes";
/// Layout numbers have ten bits.
const LAYOUTS_MAX: u16 = 1024;
/// Most attributes that a registry may number. OpenZFS has 22; the field has 16 bits.
const MAX_ATTRS: usize = 1024;

/// Number of an attribute in its object set (`sa_attr_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttrNum(pub u16);

/// How the words of an attribute are swapped (`sa_bswap_type_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum AttrSwap {
    /// 64-bit words (`SA_UINT64_ARRAY`).
    Uint64,
    /// 32-bit words (`SA_UINT32_ARRAY`).
    Uint32,
    /// 16-bit words (`SA_UINT16_ARRAY`).
    Uint16,
    /// Bytes (`SA_UINT8_ARRAY`).
    Uint8,
    /// ACEs (`SA_ACL`).
    Acl,
}

impl AttrSwap {
    /// Converts `buf` from `order` to little-endian (`sa_byteswap`).
    pub fn to_native(self, order: ByteOrder, buf: &mut [u8]) {
        if order == ByteOrder::Little {
            return;
        }
        match self {
            Self::Uint64 => swap64(buf),
            Self::Uint32 => swap32(buf),
            Self::Uint16 => swap16(buf),
            Self::Uint8 => {}
            Self::Acl => acl::swap_v1(buf),
        }
    }
}

/// Registration of one attribute (`sa_attr_table_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttrReg {
    /// Number of the attribute (`sa_attr`).
    pub num: AttrNum,
    /// Length in bytes, or 0 if it varies by file (`sa_length`).
    pub len: u16,
    /// How the attribute is swapped (`sa_byteswap`).
    pub swap: AttrSwap,
}

impl AttrReg {
    /// Decodes a value of the `REGISTRY` ZAP: number (16 bits), byte swap (8), length (16).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the byte swap is unknown, or the number is 1024 or more.
    pub fn from_disk(v: u64) -> Result<Self> {
        let byte = (v >> 16) as u8;
        let swap = AttrSwap::from_repr(byte).ok_or(Corrupt::Range {
            what: WHAT,
            field: "byte swap",
            value: byte.into(),
        })?;
        let num = v as u16;
        if usize::from(num) >= MAX_ATTRS {
            return Err(Corrupt::Range { what: WHAT, field: "attribute number", value: num.into() });
        }
        Ok(Self { num: AttrNum(num), len: (v >> 24) as u16, swap })
    }

    /// Encodes a value of the `REGISTRY` ZAP (`ATTR_ENCODE`).
    pub fn to_disk(self) -> u64 {
        u64::from(self.num.0) | (self.swap as u64) << 16 | u64::from(self.len) << 24
    }
}

/// An attribute that Poolhouse knows by its registered name (`zpl_attr_t`, `ZPL_*`).
///
/// The order of the variants means nothing on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attr {
    /// Time of the last access: seconds, nanoseconds.
    Atime,
    /// Time of the last change of the contents.
    Mtime,
    /// Time of the last change of contents or attributes.
    Ctime,
    /// Time of creation.
    Crtime,
    /// Transaction group of creation.
    Gen,
    /// File type and permissions.
    Mode,
    /// Size in bytes.
    Size,
    /// Object of the parent directory.
    Parent,
    /// Number of links.
    Links,
    /// Object of the directory of extended attributes.
    Xattr,
    /// Device number.
    Rdev,
    /// Flags (`ZFS_XATTR`, `ZFS_READONLY`, ...).
    Flags,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Unused words of the older znode.
    Pad,
    /// The ACL of the older znode.
    ZnodeAcl,
    /// Number of ACEs.
    DaclCount,
    /// Target of a symbolic link.
    Symlink,
    /// Stamp of a virus scanner.
    Scanstamp,
    /// ACEs.
    DaclAces,
    /// Extended attributes, a packed nvlist.
    Dxattr,
    /// Id of the project.
    Projid,
    /// What an AFS volume keeps with each vnode. OpenZFS doesn't know it, and leaves it alone.
    Afs,
}

/// Name, length (0 if it varies) and byte swap of each known attribute. The first sixteen have
/// their index as number. The last is no attribute of the ZPL.
const KNOWN: [(Attr, &str, u16, AttrSwap); 23] = {
    use AttrSwap::{Acl, Uint8, Uint64};
    [
        (Attr::Atime, "ZPL_ATIME", 16, Uint64),
        (Attr::Mtime, "ZPL_MTIME", 16, Uint64),
        (Attr::Ctime, "ZPL_CTIME", 16, Uint64),
        (Attr::Crtime, "ZPL_CRTIME", 16, Uint64),
        (Attr::Gen, "ZPL_GEN", 8, Uint64),
        (Attr::Mode, "ZPL_MODE", 8, Uint64),
        (Attr::Size, "ZPL_SIZE", 8, Uint64),
        (Attr::Parent, "ZPL_PARENT", 8, Uint64),
        (Attr::Links, "ZPL_LINKS", 8, Uint64),
        (Attr::Xattr, "ZPL_XATTR", 8, Uint64),
        (Attr::Rdev, "ZPL_RDEV", 8, Uint64),
        (Attr::Flags, "ZPL_FLAGS", 8, Uint64),
        (Attr::Uid, "ZPL_UID", 8, Uint64),
        (Attr::Gid, "ZPL_GID", 8, Uint64),
        (Attr::Pad, "ZPL_PAD", 32, Uint64),
        (Attr::ZnodeAcl, "ZPL_ZNODE_ACL", 88, Uint8),
        (Attr::DaclCount, "ZPL_DACL_COUNT", 8, Uint64),
        (Attr::Symlink, "ZPL_SYMLINK", 0, Uint8),
        (Attr::Scanstamp, "ZPL_SCANSTAMP", 32, Uint8),
        (Attr::DaclAces, "ZPL_DACL_ACES", 0, Acl),
        (Attr::Dxattr, "ZPL_DXATTR", 0, Uint8),
        (Attr::Projid, "ZPL_PROJID", 8, Uint64),
        (Attr::Afs, "POOLHOUSE_AFS", 0, Uint8),
    ]
};
/// How many of these are the ZPL's, which each object set registers.
const ZPL: usize = 22;
const LEGACY: usize = 16;

impl Attr {
    /// The registered name.
    pub fn name(self) -> &'static str {
        KNOWN[self as usize].1
    }

    /// The attribute with this registered name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        KNOWN.iter().find(|k| k.1.as_bytes() == name).map(|k| k.0)
    }
}

/// Location of an attribute in its bonus or spill block, and its conversion to little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Number of the attribute.
    pub num: AttrNum,
    /// The attribute, if Poolhouse knows it.
    pub attr: Option<Attr>,
    /// Bytes of the attribute.
    pub range: Range<usize>,
    /// How the attribute is swapped.
    pub swap: AttrSwap,
    /// Byte order in which the attribute is stored.
    pub order: ByteOrder,
}

/// The attributes and layouts of one object set (`sa_os_t`).
#[derive(Debug, Clone)]
pub struct SaRegistry {
    regs: Vec<Option<AttrReg>>,
    /// Indexed by [`Attr`].
    nums: [Option<AttrNum>; KNOWN.len()],
    layouts: BTreeMap<u16, Layout>,
}

/// The attributes of a bonus or spill block in order, with all that [`SaRegistry::locate`] needs
/// for each file (`sa_lot_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    attrs: Vec<(AttrReg, Option<Attr>)>,
    /// Number of attributes that have a length in each file's header.
    variable: usize,
}

/// Bytes of a header for this many attributes of varying length.
fn header_size(variable: usize) -> usize {
    (6 + 2 * variable.max(1)).next_multiple_of(8)
}

impl Default for SaRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl SaRegistry {
    /// A registry of the sixteen attributes that need no registration.
    pub fn new() -> Self {
        let mut r = Self { regs: Vec::new(), nums: [None; KNOWN.len()], layouts: BTreeMap::new() };
        for (i, (attr, _, len, swap)) in KNOWN.iter().take(LEGACY).enumerate() {
            let num = AttrNum(i as u16);
            r.regs.push(Some(AttrReg { num, len: *len, swap: *swap }));
            r.nums[*attr as usize] = Some(num);
        }
        r
    }

    /// Whether it has all attributes and layouts of an older registry, with the same numbers. Then
    /// a bonus that is the same has the same attributes.
    pub fn extends(&self, older: &SaRegistry) -> bool {
        let has_all = |mine: &[Option<AttrReg>], all: &[Option<AttrReg>]| {
            all.iter().enumerate().all(|(i, reg)| reg.is_none() || mine.get(i) == Some(reg))
        };
        has_all(&self.regs, &older.regs)
            && self.nums.iter().zip(&older.nums).all(|(mine, num)| num.is_none() || mine == num)
            && older.layouts.iter().all(|(number, layout)| self.layouts.get(number) == Some(layout))
    }

    /// Adds an entry of the `REGISTRY` ZAP.
    ///
    /// Unknown names count too, because their attributes take space in layouts.
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: the value has a fault that [`AttrReg::from_disk`] lists.
    /// * [`Corrupt::Shape`]: a number has two registrations, or a known attribute has another
    ///   length or, if it is one of the first sixteen, another number; or another attribute has one
    ///   of the first sixteen numbers.
    pub fn register(&mut self, name: &[u8], value: u64) -> Result<()> {
        let reg = AttrReg::from_disk(value)?;
        let i = usize::from(reg.num.0);
        if let Some(attr) = Attr::by_name(name) {
            let (_, _, len, _) = KNOWN[attr as usize];
            if len != reg.len || ((attr as usize) < LEGACY && attr as usize != i) {
                return Err(Corrupt::Shape {
                    what: WHAT,
                    why: "a known attribute is registered differently",
                });
            }
            self.nums[attr as usize] = Some(reg.num);
        }
        if i >= self.regs.len() {
            self.regs.resize(i + 1, None);
        }
        if i < LEGACY && Attr::by_name(name).is_none_or(|attr| attr as usize != i) {
            return Err(Corrupt::Shape { what: WHAT, why: "an attribute has the number of an older one" });
        }
        if i >= LEGACY && self.regs[i].is_some() {
            return Err(Corrupt::Shape { what: WHAT, why: "two attributes have one number" });
        }
        self.regs[i] = Some(reg);
        Ok(())
    }

    /// Adds an entry of the `LAYOUTS` ZAP, whose name is the number of the layout.
    ///
    /// Call it after all calls of [`Self::register`].
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the name is not a number below 1024.
    /// * [`Corrupt::Range`]: an attribute of the layout is not registered.
    pub fn add_layout(&mut self, name: &[u8], attrs: &[u16]) -> Result<()> {
        let num = std::str::from_utf8(name)
            .ok()
            .and_then(|s| s.parse::<u16>().ok())
            .filter(|n| *n < LAYOUTS_MAX)
            .ok_or(Corrupt::Shape { what: WHAT, why: "a layout's name is no layout number" })?;
        let place = |&a: &u16| {
            let bad = Corrupt::Range { what: WHAT, field: "attribute in a layout", value: a.into() };
            let known = self.nums.iter().position(|n| *n == Some(AttrNum(a)));
            Ok((self.reg(AttrNum(a)).ok_or(bad)?, known.map(|i| KNOWN[i].0)))
        };
        let attrs = attrs.iter().map(place).collect::<Result<Vec<_>>>()?;
        let variable = attrs.iter().filter(|(r, _)| r.len == 0).count();
        self.layouts.insert(num, Layout { attrs, variable });
        Ok(())
    }

    /// Registers each attribute of the ZPL that has no number yet, and each of `more`
    /// (`sa_attr_register_sync`).
    ///
    /// Returns all registrations: names, and values of the `REGISTRY` ZAP.
    pub fn register_known(&mut self, more: impl Fn(Attr) -> bool) -> Vec<(&'static str, u64)> {
        for (i, (attr, _, len, swap)) in KNOWN.into_iter().enumerate() {
            if self.num(attr).is_none() && (i < ZPL || more(attr)) {
                let num = AttrNum(self.regs.len() as u16);
                self.regs.push(Some(AttrReg { num, len, swap }));
                self.nums[attr as usize] = Some(num);
            }
        }
        let reg = |attr| self.num(attr).and_then(|num| self.reg(num));
        KNOWN.iter().filter_map(|(attr, name, ..)| Some((*name, reg(*attr)?.to_disk()))).collect()
    }

    fn reg(&self, num: AttrNum) -> Option<AttrReg> {
        self.regs.get(usize::from(num.0)).copied().flatten()
    }

    /// Length in bytes of an attribute; `None` if it varies by file or the attribute is not
    /// registered.
    pub fn fixed_len(&self, num: AttrNum) -> Option<u16> {
        self.reg(num).map(|r| r.len).filter(|len| *len != 0)
    }

    /// Number of the layout with these attributes in this order (`sa_find_layout`).
    ///
    /// # Errors
    /// If the object set has no such layout, the number that it would get; `None` if no number is
    /// left.
    pub fn layout_of(&self, attrs: &[AttrNum]) -> std::result::Result<u16, Option<u16>> {
        let same = |l: &Layout| l.attrs.iter().map(|(r, _)| r.num).eq(attrs.iter().copied());
        if let Some((num, _)) = self.layouts.iter().find(|(num, l)| **num > 1 && same(l)) {
            return Ok(*num);
        }
        let next = self.layouts.last_key_value().map_or(2, |(n, _)| (n + 1).max(2));
        Err(Some(next).filter(|n| *n < LAYOUTS_MAX))
    }

    /// How many of these attributes, from the first on, fit into `room` bytes with their header
    /// (`sa_find_sizes`).
    ///
    /// Also returns the bytes that these take. `attrs` has the lengths of the values.
    pub fn fit(&self, attrs: &[(AttrNum, usize)], room: usize) -> (usize, usize) {
        let (mut variable, mut total, mut fits) = (0, 0usize, (0, 0));
        for (i, (num, len)) in attrs.iter().enumerate() {
            variable += usize::from(self.fixed_len(*num).is_none());
            total = total.next_multiple_of(8) + len;
            let need = header_size(variable) + total;
            if need > room {
                break;
            }
            fits = (i + 1, need);
        }
        fits
    }

    /// Encodes a bonus or spill block of these attributes, little-endian; `layout` is the number of
    /// their layout.
    pub fn pack(&self, layout: u16, attrs: &[(AttrNum, Cow<'_, [u8]>)]) -> Vec<u8> {
        let lengths = attrs.iter().filter(|(num, _)| self.fixed_len(*num).is_none()).map(|(_, v)| v.len());
        let header = header_size(lengths.clone().count());
        let mut out = Vec::with_capacity(
            header + attrs.iter().map(|(_, v)| v.len().next_multiple_of(8)).sum::<usize>(),
        );
        out.resize(header, 0);
        out[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&(layout | (header as u16 / 8) << 10).to_le_bytes());
        for (slot, len) in out[6..].chunks_exact_mut(2).zip(lengths) {
            slot.copy_from_slice(&(len as u16).to_le_bytes());
        }
        for (_, value) in attrs {
            out.resize(out.len().next_multiple_of(8), 0);
            out.extend_from_slice(value);
        }
        out
    }

    /// Number of a known attribute, if the object set has it.
    pub fn num(&self, attr: Attr) -> Option<AttrNum> {
        self.nums[attr as usize]
    }

    /// Finds all attributes in `buf`, a bonus or spill block, in the order of its layout.
    ///
    /// A header of zeros is a bonus that was never written: it has no attributes.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` ends inside the header or an attribute.
    /// * [`Corrupt::Magic`]: the magic number is wrong.
    /// * [`Corrupt::Range`]: the layout is unknown, or the header is smaller than its lengths or
    ///   larger than `buf`.
    pub fn locate(&self, buf: &[u8]) -> Result<Vec<Located>> {
        let mut out = Vec::with_capacity(KNOWN.len());
        self.for_each(buf, |located| out.push(located))?;
        Ok(out)
    }

    /// Finds these attributes in `buf`, in the order in which they are wanted. `None` if one is not
    /// there, or is wanted twice, or its words are big-endian. It costs less than
    /// [`SaRegistry::locate`].
    ///
    /// # Errors
    /// Those of [`SaRegistry::locate`].
    pub fn find<const N: usize>(&self, buf: &[u8], wanted: [Attr; N]) -> Result<Option<[Range<usize>; N]>> {
        let mut found = [const { None }; KNOWN.len()];
        self.for_each(buf, |located| {
            if let Some(attr) = located.attr.filter(|_| located.order == ByteOrder::Little) {
                // Of several, the first one counts, as elsewhere.
                found[attr as usize].get_or_insert(located.range);
            }
        })?;
        let found = wanted.map(|attr| found[attr as usize].take());
        let all = found.iter().all(Option::is_some);
        Ok(all.then(|| found.map(|range| range.expect("each one is there"))))
    }

    fn for_each(&self, buf: &[u8], mut visit: impl FnMut(Located)) -> Result<()> {
        let magic = ByteOrder::Little.u32(WHAT, buf, 0)?;
        let order = match magic {
            0 => return Ok(()),
            SA_MAGIC => ByteOrder::Little,
            m if m.swap_bytes() == SA_MAGIC => ByteOrder::Big,
            m => return Err(Corrupt::Magic { what: WHAT, found: m.into() }),
        };
        let info = order.u16(WHAT, buf, 4)?;
        // Layout 0 is that of the old znode. A header that says 0 has the dummy layout, which is
        // number 1.
        let layout = (info & 0x3ff).max(1);
        let header = usize::from(info >> 10) * 8;
        if layout == 1 && !self.layouts.contains_key(&1) {
            return Ok(());
        }
        let layout = self.layouts.get(&layout).ok_or(Corrupt::Range {
            what: WHAT,
            field: "layout",
            value: layout.into(),
        })?;
        let mut at = (6 + 2 * layout.variable).next_multiple_of(8);
        if header < at || header > buf.len() {
            return Err(Corrupt::Range { what: WHAT, field: "header size", value: header as u64 });
        }
        let mut lengths = 0;
        for &(reg, attr) in &layout.attrs {
            let mut len = usize::from(reg.len);
            if len == 0 {
                len = order.u16(WHAT, buf, 6 + 2 * lengths)?.into();
                lengths += 1;
            }
            let range = at..at + len;
            if range.end > buf.len() {
                return Err(Corrupt::Truncated { what: WHAT, need: range.end, have: buf.len() });
            }
            at = range.end.next_multiple_of(8);
            visit(Located { num: reg.num, attr, range, swap: reg.swap, order });
        }
        Ok(())
    }
}
