//! Structures that are nothing but 64-bit words.

use crate::bytes::le64;
use crate::{Corrupt, Result};

/// The first `N` words of `buf`.
pub(crate) fn words<const N: usize>(what: &'static str, buf: &[u8]) -> Result<[u64; N]> {
    if buf.len() < N * 8 {
        return Err(Corrupt::Truncated { what, need: N * 8, have: buf.len() });
    }
    Ok(std::array::from_fn(|i| le64(buf, i * 8)))
}

/// As [`words`], but a structure that grew over time: words past the end of `buf` read as 0, if at least
/// `min` are there.
pub(crate) fn words_from<const N: usize>(what: &'static str, buf: &[u8], min: usize) -> Result<[u64; N]> {
    if buf.len() < min * 8 {
        return Err(Corrupt::Truncated { what, need: min * 8, have: buf.len() });
    }
    Ok(std::array::from_fn(|i| if buf.len() >= i * 8 + 8 { le64(buf, i * 8) } else { 0 }))
}

/// Puts words into `buf` from word `first` on, little-endian; `buf` has room.
pub(crate) fn put_words(buf: &mut [u8], first: usize, words: &[u64]) {
    for (chunk, w) in buf[first * 8..].chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&w.to_le_bytes());
    }
}
