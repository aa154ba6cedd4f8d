//! ZLE: runs of zeros are counted, the rest is copied.
//!
//! # On disk
//! A length byte `b`: below 64, `b + 1` literal bytes follow; from 64 up it stands for `b - 63` zeros.

use super::Unpacked;
use ondisk::Corrupt;

/// Length bytes below this one announce literals; also the most literals in a row.
const LITERALS: usize = 64;
/// The most zeros that one byte counts.
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
        // OpenZFS never uses the destination's last byte for a length, and asks for room for a full literal run.
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

/// Length of the literals at the front of `rest`, which begins with one. A single zero among them is cheaper copied than
/// counted; two end the run.
fn literal_run(rest: &[u8]) -> usize {
    let most = rest.len().min(LITERALS);
    let mut n = 0;
    while n + 1 < most && (rest[n] != 0 || rest[n + 1] != 0) {
        n += 1;
    }
    if rest[n] != 0 { n + 1 } else { n }
}
