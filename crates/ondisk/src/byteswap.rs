//! Conversion of blocks from the other byte order to little-endian.
//!
//! # Theory
//! A block pointer tells the byte order of its block. `zio` swaps a foreign block once, after
//! decompression, by the type of its object. Every decoder above reads little-endian only.
//!
//! Swapping words is the same operation in both directions. But lengths inside a block, such as
//! that of a dnode's bonus, must be read in native order. So the functions here work in one
//! direction: from foreign to native.
//!
//! # Absent
//! System attributes ([`DmuType::SA`]) are not swapped here: a block of them names its layout, not
//! the types of its attributes. Their magic number tells their byte order, and `sa` swaps them when
//! it reads them. Packed nvlists and labels carry their own byte order too.

#[cfg(test)]
mod tests;

use crate::acl;
use crate::bytes::swap64;
use crate::kind::ByteSwap;
use crate::zap::{MICRO_ENTRY_SIZE, ZBT_LEAF, ZBT_MICRO};
use crate::znode::ZNODE_SIZE;
use crate::{Corrupt, DmuType, Level, Result};

const DNODE_SIZE: usize = 512;
const DNODE_CORE_SIZE: usize = 64;
const BLKPTR_SIZE: usize = 128;
const DNODE_FLAG_SPILL_BLKPTR: u8 = 4;

/// Swaps a whole block of an object of type `kind` from the other byte order, in place
/// (`dmu_ot_byteswap`).
///
/// A block above level 0 is an array of block pointers, whatever its type.
///
/// # Errors
/// * [`Corrupt::Truncated`]: a ZAP block has fewer than 8 bytes.
/// * [`Corrupt::Range`]: one of these values is impossible:
///   * the size of a ZAP leaf, of a block of dnodes or of an object set
///   * the type of a chunk in a ZAP leaf
///   * the number of block pointers of a dnode
///   * the type of a dnode's bonus
/// * [`Corrupt::Shape`]: a large dnode crosses the end of its block.
pub fn block(kind: DmuType, level: Level, buf: &mut [u8]) -> Result<()> {
    if level.0 > 0 {
        swap64(buf);
        return Ok(());
    }
    match kind.byteswap() {
        ByteSwap::Uint8 => Ok(()),
        ByteSwap::Uint16 => {
            swap16(buf);
            Ok(())
        }
        ByteSwap::Uint32 => {
            swap32(buf);
            Ok(())
        }
        ByteSwap::Uint64 => {
            swap64(buf);
            Ok(())
        }
        ByteSwap::Zap => zap(buf),
        ByteSwap::Dnode => dnodes(buf),
        ByteSwap::Objset => objset(buf),
        ByteSwap::Znode => {
            znode(buf);
            Ok(())
        }
        ByteSwap::OldAcl => {
            acl::swap_v0(buf);
            Ok(())
        }
        ByteSwap::Acl => {
            acl::swap_v1(buf);
            Ok(())
        }
    }
}

/// Swaps every 16-bit word of `buf` in place; an odd byte at the end stays as it is
/// (`byteswap_uint16_array`).
pub fn swap16(buf: &mut [u8]) {
    for w in buf.as_chunks_mut::<2>().0 {
        w.reverse();
    }
}

/// Swaps every 32-bit word of `buf` in place (`byteswap_uint32_array`).
///
/// A tail shorter than a word stays as it is.
pub fn swap32(buf: &mut [u8]) {
    for w in buf.as_chunks_mut::<4>().0 {
        w.reverse();
    }
}

fn zap(buf: &mut [u8]) -> Result<()> {
    let Some(first) = buf.first_chunk::<8>() else {
        return Err(Corrupt::Truncated { what: "ZAP block", need: 8, have: buf.len() });
    };
    match u64::from_be_bytes(*first) {
        ZBT_MICRO => {
            let (slots, _) = buf.as_chunks_mut::<MICRO_ENTRY_SIZE>();
            let mut slots = slots.iter_mut();
            if let Some(header) = slots.next() {
                swap64(&mut header[..24]);
            }
            for s in slots {
                s[..8].reverse();
                s[8..12].reverse();
            }
            Ok(())
        }
        ZBT_LEAF => zap_leaf(buf),
        // The header, or a block of the pointer table: both consist of words.
        _ => {
            swap64(buf);
            Ok(())
        }
    }
}

fn zap_leaf(buf: &mut [u8]) -> Result<()> {
    use crate::zap::raw::{CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE, CHUNK_SIZE, geometry};
    const WHAT: &str = "ZAP leaf";
    if buf.len() < 512 || !buf.len().is_power_of_two() {
        return Err(Corrupt::Range { what: WHAT, field: "block size", value: buf.len() as u64 });
    }
    let (chunks_at, chunks) = geometry(buf.len());
    buf[0..8].reverse();
    buf[16..24].reverse();
    buf[24..28].reverse();
    swap16(&mut buf[28..36]);
    swap16(&mut buf[48..chunks_at]);
    for c in buf[chunks_at..].as_chunks_mut::<CHUNK_SIZE>().0.iter_mut().take(chunks) {
        match c[0] {
            CHUNK_ENTRY => {
                swap16(&mut c[2..12]);
                c[12..16].reverse();
                c[16..24].reverse();
            }
            CHUNK_ARRAY | CHUNK_FREE => c[22..24].reverse(),
            kind => return Err(Corrupt::Range { what: WHAT, field: "chunk type", value: kind.into() }),
        }
    }
    Ok(())
}

fn dnodes(buf: &mut [u8]) -> Result<()> {
    const WHAT: &str = "block of dnodes";
    if !buf.len().is_multiple_of(DNODE_SIZE) {
        return Err(Corrupt::Range { what: WHAT, field: "size", value: buf.len() as u64 });
    }
    let mut at = 0;
    while at < buf.len() {
        let slots = if buf[at] == 0 { 1 } else { 1 + usize::from(buf[at + 12]) };
        let end = at + slots * DNODE_SIZE;
        let dn = buf
            .get_mut(at..end)
            .ok_or(Corrupt::Shape { what: WHAT, why: "a large dnode crosses the end of its block" })?;
        dnode(dn)?;
        at = end;
    }
    Ok(())
}

/// Swaps one dnode; `dn` is exactly its slots (`dnode_byteswap`).
fn dnode(dn: &mut [u8]) -> Result<()> {
    const WHAT: &str = "dnode";
    if dn[0] == 0 {
        // Unallocated: the bytes of such a slot mean nothing.
        dn.fill(0);
        return Ok(());
    }
    swap16(&mut dn[8..12]);
    swap64(&mut dn[16..32]);
    let (nblkptr, bonus_kind, flags) = (usize::from(dn[3]), dn[4], dn[7]);
    let has_bonus = dn[10..12] != [0, 0];
    let bonus_at = DNODE_CORE_SIZE + nblkptr * BLKPTR_SIZE;
    let spill = if flags & DNODE_FLAG_SPILL_BLKPTR != 0 { BLKPTR_SIZE } else { 0 };
    let bonus_end = dn.len() - spill;
    if bonus_at > bonus_end {
        return Err(Corrupt::Range { what: WHAT, field: "block pointers", value: nblkptr as u64 });
    }
    swap64(&mut dn[DNODE_CORE_SIZE..bonus_at]);
    if has_bonus {
        let kind = DmuType::from_disk(bonus_kind)?;
        let bonus = &mut dn[bonus_at..bonus_end];
        match kind.byteswap() {
            // No bonus holds dnodes or object sets. This check ends the recursion.
            ByteSwap::Dnode | ByteSwap::Objset => {
                return Err(Corrupt::Range { what: WHAT, field: "bonus type", value: bonus_kind.into() });
            }
            _ => block(kind, Level(0), bonus)?,
        }
    }
    swap64(&mut dn[bonus_end..]);
    Ok(())
}

fn objset(buf: &mut [u8]) -> Result<()> {
    const WHAT: &str = "object set";
    const V1: usize = 1024;
    const V2: usize = 2048;
    const V3: usize = 4096;
    if !matches!(buf.len(), V1 | V2 | V3) {
        return Err(Corrupt::Range { what: WHAT, field: "size", value: buf.len() as u64 });
    }
    // The meta-dnode, then the header of the intent log, the type and the flags. Two MACs follow,
    // which are byte strings.
    dnode(&mut buf[..DNODE_SIZE])?;
    swap64(&mut buf[512..720]);
    // User and group accounting fill the second KiB of version 2; project accounting follows it in
    // version 3.
    if buf.len() >= V2 {
        dnode(&mut buf[1024..1536])?;
        dnode(&mut buf[1536..2048])?;
    }
    if buf.len() >= V3 {
        dnode(&mut buf[2048..2560])?;
    }
    Ok(())
}

/// Swaps a `znode_phys_t` and the ACEs embedded in it (`zfs_znode_byteswap`).
///
/// The bytes that follow it (the target of a symbolic link) need no swap.
fn znode(buf: &mut [u8]) {
    let Some(zp) = buf.first_chunk_mut::<ZNODE_SIZE>() else { return swap64(buf) };
    swap64(&mut zp[..184]);
    zp[184..188].reverse();
    swap16(&mut zp[188..192]);
    if u16::from_le_bytes([zp[188], zp[189]]) == 0 {
        acl::swap_v0(&mut zp[192..]);
    } else {
        acl::swap_v1(&mut zp[192..]);
    }
}
