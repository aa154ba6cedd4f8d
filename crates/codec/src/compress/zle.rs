//! ZLE: zero-length encoding, which counts zeros and copies the rest (`zle.c`).
//!
//! # On disk
//! Each run starts with a length byte `b`. Below 64, `b + 1` literal bytes follow it. From 64 up,
//! it stands for `b - 63` zeros.

use super::Unpacked;
use ondisk::Corrupt;

/// Length bytes below this one are followed by literals; also the most literals of a run.
const LITERALS: usize = 64;
/// The most zeros that one length byte counts.
const ZEROS_MAX: usize = 256 - LITERALS;

pub(super) fn unpack(src: &[u8], dst: &mut [u8]) -> Unpacked {
    let short = |why| Corrupt::Shape { what: "zle", why };
    let (mut input, mut output) = (src, dst);
    while !output.is_empty() {
        let (&b, rest) = input.split_first().ok_or(short("the stream ends before the block is full"))?;
        let b = usize::from(b);
        let len = if b < LITERALS { b + 1 } else { b + 1 - LITERALS };
        let (run, after) = output.split_at_mut_checked(len).ok_or(short("a run goes past the block"))?;
        input = rest;
        if b < LITERALS {
            let (literals, rest) = input.split_at_checked(len).ok_or(short("literals are missing"))?;
            run.copy_from_slice(literals);
            input = rest;
        } else {
            run.fill(0);
        }
        output = after;
    }
    Ok(())
}

pub(super) fn pack(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    while from < src.len() {
        let rest = &src[from..];
        // OpenZFS never uses the last byte of the destination for a length, and needs space for a
        // full run of literals.
        if to + 1 >= dst.len() {
            return None;
        }
        let zeros = rest.iter().take(ZEROS_MAX).take_while(|b| **b == 0).count();
        if zeros > 0 {
            dst[to] = (zeros - 1 + LITERALS) as u8;
            to += 1;
            from += zeros;
            continue;
        }
        if dst.len() - (to + 1) < LITERALS {
            return None;
        }
        let literals = literal_run(rest);
        dst[to] = (literals - 1) as u8;
        dst[to + 1..to + 1 + literals].copy_from_slice(&rest[..literals]);
        to += 1 + literals;
        from += literals;
    }
    Some(to)
}

/// Length of the run of literals at the start of `rest`, which begins with a literal.
///
/// A single zero in the run is cheaper as a literal than as a count; two zeros end the run.
fn literal_run(rest: &[u8]) -> usize {
    let most = rest.len().min(LITERALS);
    let mut n = 0;
    while n + 1 < most && (rest[n] != 0 || rest[n + 1] != 0) {
        n += 1;
    }
    if rest[n] != 0 { n + 1 } else { n }
}
