//! Structures that consist of 64-bit words alone.

use crate::bytes::le64;
use crate::{Corrupt, Result};

/// Decodes the first `N` words of `buf`, little-endian.
///
/// # Errors
/// * [`Corrupt::Truncated`]: `buf` is shorter than `N` words.
pub(crate) fn words<const N: usize>(what: &'static str, buf: &[u8]) -> Result<[u64; N]> {
    if buf.len() < N * 8 {
        return Err(Corrupt::Truncated { what, need: N * 8, have: buf.len() });
    }
    Ok(std::array::from_fn(|i| le64(buf, i * 8)))
}

/// Decodes a structure that grew over time: words past the end of `buf` read as 0.
///
/// # Errors
/// * [`Corrupt::Truncated`]: `buf` is shorter than `min` words.
pub(crate) fn words_from<const N: usize>(what: &'static str, buf: &[u8], min: usize) -> Result<[u64; N]> {
    if buf.len() < min * 8 {
        return Err(Corrupt::Truncated { what, need: min * 8, have: buf.len() });
    }
    Ok(std::array::from_fn(|i| if buf.len() >= i * 8 + 8 { le64(buf, i * 8) } else { 0 }))
}

/// Puts words into `buf` from word `first` on, little-endian.
///
/// Words that have no space in `buf` are left out: the caller makes `buf` large enough.
pub(crate) fn put_words(buf: &mut [u8], first: usize, words: &[u64]) {
    for (chunk, w) in buf[first * 8..].chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&w.to_le_bytes());
    }
}
