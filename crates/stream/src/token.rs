//! The token with which an interrupted send continues (`zfs send -t`).
//!
//! # Theory
//! `dsl::resume` makes tokens, and describes their form. This module reads the token of any sender.

use codec::checksum::fletcher4;
use flate2::{Decompress, FlushDecompress, Status};
use ondisk::{ByteOrder, Nvlist};

/// The longest list in a token. Redacted sends have the longest, with 8 bytes for a snapshot.
const MAX_PACKED: usize = 1 << 20;

/// Why a token can't be read. The texts are those of `zfs_send_resume_token_to_nvlist`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not have the form `VERSION-SUM-SIZE-HEX`.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// Its version is not 1.
    #[error("resume token is corrupt (invalid version {0})")]
    Version(u32),
    /// Its last part has other characters than hexadecimal digits.
    #[error("resume token is corrupt (payload is not hex-encoded)")]
    Hex,
    /// It has been changed or cut.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// Its last part is not the compressed form of a list of its size.
    #[error("resume token is corrupt (decompression failed)")]
    Decompression,
    /// The list can't be decoded.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List,
}

/// Decodes a token (`zfs_send_resume_token_to_nvlist`).
///
/// # Errors
/// Each [`TokenError`], by its cause.
pub fn decode(token: &str) -> Result<Nvlist, TokenError> {
    let mut parts = token.splitn(4, '-');
    let mut part = || parts.next().ok_or(TokenError::Format);
    let version: u32 = part()?.trim_start().parse().map_err(|_| TokenError::Format)?;
    let sum = u64::from_str_radix(part()?, 16).map_err(|_| TokenError::Format)?;
    let size = u64::from_str_radix(part()?, 16).map_err(|_| TokenError::Format)?;
    if version != 1 {
        return Err(TokenError::Version(version));
    }
    let digits = part()?.as_bytes();
    let nibble = |digit: u8| (digit as char).to_digit(16).ok_or(TokenError::Hex);
    let pairs = digits.as_chunks::<2>().0;
    let compressed = pairs
        .iter()
        .map(|[high, low]| Ok((nibble(*high)? * 16 + nibble(*low)?) as u8))
        .collect::<Result<Vec<u8>, TokenError>>()?;
    // The sum is over whole words.
    let words = &compressed[..compressed.len() & !3];
    if fletcher4(ByteOrder::Little, words).0[0] != sum {
        return Err(TokenError::Checksum);
    }
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_PACKED);
    let mut packed = vec![0; size.ok_or(TokenError::Decompression)?];
    let mut inflate = Decompress::new(true);
    let end = inflate.decompress(&compressed, &mut packed, FlushDecompress::Finish);
    if !matches!(end, Ok(Status::StreamEnd)) || inflate.total_out() != packed.len() as u64 {
        return Err(TokenError::Decompression);
    }
    Nvlist::decode(&packed).map_err(|_| TokenError::List)
}

#[cfg(test)]
mod tests;
