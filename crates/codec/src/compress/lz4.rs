//! `lz4`: a big-endian length and an LZ4 block (`lz4_zfs.c`).
//!
//! # Theory
//! The packer is lz4_flex. The unpacker is our own. Pool metadata are mostly long runs of zeros,
//! which LZ4 stores as a match that overlaps itself. A decoder that copies such a match byte by
//! byte spends most of its time there. Here an overlapping match doubles with each copy, so a run
//! costs as much as a `memcpy` of it.

use super::{Unpacked, prefixed};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use ondisk::Corrupt;
use std::cell::RefCell;

/// Bytes of the length prefix.
const PREFIX: usize = 4;
/// Largest scratch buffer that a thread keeps between blocks.
const KEEP: usize = 2 << 20;
/// Shortest match; the length in a token is relative to it.
const MIN_MATCH: usize = 4;
/// Bytes copied at once where space allows: longer than most literals and matches.
const WIDE: usize = 32;

/// Shortest match of zeros that may be the rest of a block.
const RUN: usize = 512;

thread_local! {
    // The packer needs space for the worst case, which is more than the caller's limit.
    static SCRATCH: RefCell<(CompressTable, Vec<u8>)> = const { RefCell::new((CompressTable::large(), Vec::new())) };
}

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let start = unpack_start(src, dst)?;
    dst[start..].fill(0);
    Ok(())
}

/// Unpacks a block without the zeros at its end, and returns the length of what is before them. See
/// [`super::decompress_start`].
pub(super) fn unpack_start(src: &[u8], dst: &mut [u8]) -> std::result::Result<usize, Corrupt> {
    let stream = prefixed("lz4", src, PREFIX)?;
    let bad = |why| Corrupt::Shape { what: "lz4", why };
    match unpack_block(stream, dst) {
        Some((start, len)) if len == dst.len() => Ok(start),
        Some(_) => Err(bad("the stream ends before the block is full")),
        None => Err(bad("the stream is not valid")),
    }
}

/// Unpacks an LZ4 block to the start of `dst`. Returns how much of it was written, and the length
/// of the block; zeros are between.
///
/// `None` if the block is not valid or longer than `dst`.
fn unpack_block(src: &[u8], dst: &mut [u8]) -> Option<(usize, usize)> {
    // Zeros after `to` that are not written yet: nothing but zeros may follow.
    let (mut from, mut to, mut zeros) = (0usize, 0usize, 0usize);
    loop {
        let token = *src.get(from)?;
        from += 1;
        let literals = length(token >> 4, src, &mut from)?;
        if zeros > 0 && is_zero(src.get(from..)?.get(..literals)?) {
            zeros += literals;
        } else {
            write_zeros(dst, &mut to, &mut zeros)?;
            copy_literals(src, from, dst, to, literals)?;
            to += literals;
        }
        from += literals;
        // The last sequence has no match.
        if from == src.len() {
            return Some((to, to + zeros)).filter(|(_, len)| *len <= dst.len());
        }
        let offset = usize::from(u16::from_le_bytes(*src.get(from..)?.first_chunk()?));
        from += 2;
        let len = length(token & 15, src, &mut from)? + MIN_MATCH;
        let of_zeros = match zeros {
            0 => len >= RUN && repeats_zeros(dst, to, offset, len),
            _ => (1..=zeros).contains(&offset),
        };
        if of_zeros {
            zeros += len;
        } else {
            write_zeros(dst, &mut to, &mut zeros)?;
            copy_match(dst, to, offset, len)?;
            to += len;
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Writes zeros after which something else follows.
fn write_zeros(dst: &mut [u8], to: &mut usize, zeros: &mut usize) -> Option<()> {
    if *zeros > 0 {
        dst.get_mut(*to..)?.get_mut(..*zeros)?.fill(0);
        *to += std::mem::take(zeros);
    }
    Some(())
}

/// Whether a match has only zeros. It looks at no more bytes than the match has.
fn repeats_zeros(dst: &[u8], to: usize, offset: usize, len: usize) -> bool {
    let start = to.checked_sub(offset).filter(|_| offset > 0);
    start.and_then(|start| dst.get(start..start + offset.min(len))).is_some_and(is_zero)
}

/// Decodes a length that starts in a token: after 15 it goes on in bytes, the last of which is not
/// 255.
#[inline(always)]
fn length(start: u8, src: &[u8], from: &mut usize) -> Option<usize> {
    let mut len = usize::from(start);
    if start == 15 {
        loop {
            let more = *src.get(*from)?;
            *from += 1;
            // At most 255 for each byte of the source, so it can't overflow.
            len += usize::from(more);
            if more != 255 {
                break;
            }
        }
    }
    Some(len)
}

#[inline(always)]
fn copy_literals(src: &[u8], from: usize, dst: &mut [u8], to: usize, len: usize) -> Option<()> {
    if len <= WIDE
        && let Some(wide) = src[from..].first_chunk::<WIDE>()
        && let Some(out) = dst.get_mut(to..)?.first_chunk_mut::<WIDE>()
    {
        // More than needed: the following sequences overwrite the rest.
        *out = *wide;
        return Some(());
    }
    dst.get_mut(to..)?.get_mut(..len)?.copy_from_slice(src.get(from..)?.get(..len)?);
    Some(())
}

/// Repeats `len` bytes from `offset` before `to`; they may overlap themselves.
#[inline(always)]
fn copy_match(dst: &mut [u8], to: usize, offset: usize, len: usize) -> Option<()> {
    let start = to.checked_sub(offset).filter(|_| offset > 0)?;
    if len <= WIDE && offset >= WIDE && dst.len() - to >= WIDE {
        dst.copy_within(start..start + WIDE, to);
        return Some(());
    }
    let out = dst.get_mut(start..)?.get_mut(..offset + len)?;
    let mut have = offset;
    while have < out.len() {
        // The bytes so far are a whole number of repetitions, so they can be repeated as a whole.
        let n = have.min(out.len() - have);
        let (done, rest) = out.split_at_mut(have);
        rest[..n].copy_from_slice(&done[..n]);
        have += n;
    }
    Some(())
}

pub(super) fn pack(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    SCRATCH.with_borrow_mut(|(table, scratch)| {
        let most = get_maximum_output_size(src.len());
        if scratch.len() < most {
            scratch.resize(most, 0);
        }
        let len =
            compress_into_with_table(src, scratch, table).expect("the scratch buffer fits the worst case");
        let packed = dst.get_mut(..PREFIX + len).map(|out| {
            let prefix = u32::try_from(len).expect("blocks are far below 4 GiB");
            out[..PREFIX].copy_from_slice(&prefix.to_be_bytes());
            out[PREFIX..].copy_from_slice(&scratch[..len]);
            PREFIX + len
        });
        if scratch.len() > KEEP {
            *scratch = Vec::new();
        }
        packed
    })
}

#[cfg(test)]
mod tests;
