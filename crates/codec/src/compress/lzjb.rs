//! LZJB: Jeff Bonwick's small Lempel-Ziv (`lzjb.c`).
//!
//! # On disk
//! The stream has groups of a control byte and eight items. Each bit of the control byte, from the
//! lowest up, tells the kind of an item:
//!
//! * clear: a literal byte
//! * set: a copy in two big-endian bytes, with six bits of length minus 3 and ten bits of distance
//!   back
//!
//! There is no end mark: the stream ends when the block is full.

use super::Unpacked;
use ondisk::Corrupt;

const MATCH_MIN: usize = 3;
/// Six bits of length.
const MATCH_MAX: usize = MATCH_MIN + 63;
/// Ten bits of distance.
const DISTANCE: usize = 0x3ff;
/// Slots of the packer's table of recent positions.
const SLOTS: usize = 1024;
/// A control byte and eight copies: the space that the packer needs before it starts a group.
const GROUP_MAX: usize = 1 + 2 * 8;

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let short = Corrupt::Shape { what: "lzjb", why: "the stream ends before the block is full" };
    let mut input = src.iter();
    let mut next = || input.next().copied().ok_or(short.clone());
    let (mut at, mut control, mut bit) = (0, 0u8, 8);
    while at < dst.len() {
        if bit == 8 {
            (control, bit) = (next()?, 0);
        }
        let copy = control >> bit & 1 != 0;
        bit += 1;
        if !copy {
            dst[at] = next()?;
            at += 1;
            continue;
        }
        let (hi, lo) = (next()?, next()?);
        let len = usize::from(hi >> 2) + MATCH_MIN;
        let distance = usize::from(u16::from_be_bytes([hi, lo])) & DISTANCE;
        if distance == 0 || distance > at {
            return Err(Corrupt::Range { what: "lzjb", field: "distance", value: distance as u64 });
        }
        let end = dst.len().min(at + len);
        if distance >= end - at {
            dst.copy_within(at - distance..end - distance, at);
        } else {
            // The copy overlaps itself: it reads bytes that it has written.
            for i in at..end {
                dst[i] = dst[i - distance];
            }
        }
        at = end;
    }
    Ok(())
}

pub(super) fn pack(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut recent = [0u16; SLOTS];
    let (mut from, mut to) = (0, 0);
    while from < src.len() {
        if to + GROUP_MAX >= dst.len() {
            return None;
        }
        let control = to;
        dst[control] = 0;
        to += 1;
        for bit in 0..8 {
            if from == src.len() {
                break;
            }
            match find(&mut recent, src, from) {
                Some((distance, len)) => {
                    dst[control] |= 1 << bit;
                    dst[to] = ((len - MATCH_MIN) << 2 | distance >> 8) as u8;
                    dst[to + 1] = distance as u8;
                    to += 2;
                    from += len;
                }
                None => {
                    dst[to] = src[from];
                    to += 1;
                    from += 1;
                }
            }
        }
    }
    Some(to)
}

/// The earlier bytes that equal those at `at`, as (distance, length).
fn find(recent: &mut [u16; SLOTS], src: &[u8], at: usize) -> Option<(usize, usize)> {
    // Near the end only literals, so that no match has to look past it.
    if src.len() - at < MATCH_MAX {
        return None;
    }
    let mut hash = usize::from(src[at]) << 16 | usize::from(src[at + 1]) << 8 | usize::from(src[at + 2]);
    hash += hash >> 9;
    hash += hash >> 5;
    let slot = &mut recent[hash % SLOTS];
    // Positions are kept modulo 2^16, which is enough for ten bits of distance.
    let distance = at.wrapping_sub(usize::from(*slot)) & DISTANCE;
    *slot = at as u16;
    if distance == 0 || distance > at {
        return None;
    }
    let (here, there) = (&src[at..at + MATCH_MAX], &src[at - distance..at - distance + MATCH_MAX]);
    let len = here.iter().zip(there).take_while(|(a, b)| a == b).count();
    (len >= MATCH_MIN).then_some((distance, len))
}
