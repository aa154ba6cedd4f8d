//! Blocks that carry their own checksum: labels and uberblocks, gang headers, log blocks.
//!
//! # Theory
//! Such a block holds a 40-byte trailer (`zio_eck_t`): a magic number and 32 bytes of checksum. While the checksum is
//! computed, its own place holds a *verifier* that only the right reader knows: the block's position, or the
//! checksum field of the log chain's pointer. So a block that was written elsewhere or in another chain
//! doesn't verify, even though its bytes are intact. The verifier is never stored.
//!
//! The magic number tells the writer's byte order, in which all words of trailer and verifier are.
//!
//! # On disk
//! | kind | covers | trailer at | function | verifier |
//! |---|---|---|---|---|
//! | `label` | the block | its end | SHA-256 | byte offset on the device, 0, 0, 0 |
//! | `gang_header` | 512 bytes | its end | SHA-256 | vdev, offset of the first DVA, birth txg, 0 |
//! | `zilog` | the block | its end | Fletcher-2 | the pointer's checksum words |
//! | `zilog2` | the used part, rounded up to 4 KiB | byte 144, in the chain header | Fletcher-4 | the same |

use super::fletcher::{Fletcher2, Fletcher4};
use super::{Checksum, is_strong};
use crate::{Error, Result};
use ondisk::{ByteOrder, ChecksumKind, Corrupt};
use sha2::{Digest, Sha256};

/// The magic number of the trailer (`ZEC_MAGIC`).
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of the trailer.
pub const ECK_SIZE: usize = 40;
/// Where the trailer of a `zilog2` block is: behind the chain's pad, pointer and fill count (`zil_chain_t.zc_eck`).
pub const ZIL_CHAIN_ECK: usize = 144;
/// Where a `zilog2` block says how much of it is used (`zc_nused`).
const ZIL_CHAIN_NUSED: usize = 136;
/// Granularity of the used part (`ZIL_MIN_BLKSZ`).
const ZIL_MIN_BLKSZ: u64 = 4096;

/// What an embedded checksum is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verifier {
    /// A block in a label area, by its byte offset on the device.
    Label {
        /// Offset from the start of the device, front label included.
        offset: u64,
    },
    /// A gang header, by the identity of the gang block pointer (`zio_checksum_gang_verifier`).
    GangHeader {
        /// Top-level vdev of the pointer's first DVA.
        vdev: u64,
        /// Offset of the pointer's first DVA, in bytes as the DVA counts (`DVA_GET_OFFSET`).
        offset: u64,
        /// Its (physical) birth txg (`BP_GET_BIRTH`).
        birth: u64,
    },
    /// A log block of the old kind, by the checksum words of the pointer that leads to it.
    Zilog(Checksum),
    /// A log block, by the checksum words of the pointer that leads to it.
    Zilog2(Checksum),
}

impl Verifier {
    /// The checksum kind that goes with it.
    pub fn kind(&self) -> ChecksumKind {
        match self {
            Self::Label { .. } => ChecksumKind::Label,
            Self::GangHeader { .. } => ChecksumKind::GangHeader,
            Self::Zilog(_) => ChecksumKind::Zilog,
            Self::Zilog2(_) => ChecksumKind::Zilog2,
        }
    }

    fn words(&self) -> Checksum {
        match *self {
            Self::Label { offset } => Checksum([offset, 0, 0, 0]),
            Self::GangHeader { vdev, offset, birth } => Checksum([vdev, offset, birth, 0]),
            Self::Zilog(words) | Self::Zilog2(words) => words,
        }
    }

    fn trailer(&self, source: Corrupt) -> Error {
        Error::Trailer { kind: self.kind(), source }
    }
}

/// Checks a block against the checksum inside it and says in which byte order it was written.
///
/// `mac` is the crypt bit of the block pointer that led here: then half of the stored words are a MAC, see
/// [`Checksum::check`].
///
/// # Errors
/// [`Error::Trailer`] when the block is too short or has no trailer, [`Error::Mismatch`] when the checksum is
/// another.
pub fn verify(verifier: &Verifier, block: &[u8], mac: bool) -> Result<ByteOrder> {
    let span = span_to_verify(verifier, block)?;
    let stored = stored_at(block, span.sum_at);
    let actual = sum(verifier, span, block);
    Checksum::from_bytes(span.order, &stored).check(verifier.kind(), actual, mac)?;
    Ok(span.order)
}

/// Writes magic number and checksum into a block, little-endian. A `zilog2` block's fill count must be in
/// place.
///
/// With `mac`, the tag that encrypting the block yielded, half of the checksum gives way to it.
///
/// # Errors
/// [`Error::Trailer`] when the block has no room for the trailer or its fill count doesn't fit.
pub fn seal(verifier: &Verifier, block: &mut [u8], mac: Option<&[u8; 16]>) -> Result<()> {
    let at = trailer_at(verifier, block)?;
    block[at..at + 8].copy_from_slice(&ZEC_MAGIC.to_le_bytes());
    let span = span_to_verify(verifier, block)?;
    let mut actual = sum(verifier, span, block);
    if let Some(mac) = mac {
        actual = actual.under_mac(verifier.kind()).with_mac(ByteOrder::Little, mac);
    }
    block[span.sum_at..span.sum_at + 32].copy_from_slice(&actual.to_bytes(ByteOrder::Little));
    Ok(())
}

/// What of a block is covered, and where its checksum is.
#[derive(Clone, Copy)]
struct Span {
    order: ByteOrder,
    len: usize,
    sum_at: usize,
}

fn trailer_at(verifier: &Verifier, block: &[u8]) -> Result<usize> {
    let what = "block with a checksum inside";
    let short = |need| verifier.trailer(Corrupt::Truncated { what, need, have: block.len() });
    match verifier {
        Verifier::Zilog2(_) => {
            let need = ZIL_CHAIN_ECK + ECK_SIZE;
            if block.len() < need { Err(short(need)) } else { Ok(ZIL_CHAIN_ECK) }
        }
        Verifier::Label { .. } | Verifier::GangHeader { .. } | Verifier::Zilog(_) => {
            // The functions run over whole words; a block that isn't made of them has no checksum.
            if !block.len().is_multiple_of(16) {
                return Err(verifier.trailer(Corrupt::Shape { what, why: "its size is odd" }));
            }
            block.len().checked_sub(ECK_SIZE).ok_or_else(|| short(ECK_SIZE))
        }
    }
}

fn span_to_verify(verifier: &Verifier, block: &[u8]) -> Result<Span> {
    let what = "block with a checksum inside";
    let at = trailer_at(verifier, block)?;
    let magic = ondisk::bytes::le64(block, at);
    let order = ByteOrder::by_magic(magic, ZEC_MAGIC)
        .ok_or_else(|| verifier.trailer(Corrupt::Magic { what, found: magic }))?;
    let len = match verifier {
        Verifier::Zilog2(_) => {
            let used = order.u64(what, block, ZIL_CHAIN_NUSED).map_err(|e| verifier.trailer(e))?;
            let covered = used.checked_next_multiple_of(ZIL_MIN_BLKSZ).and_then(|n| usize::try_from(n).ok());
            covered.filter(|&n| used >= (ZIL_CHAIN_ECK + ECK_SIZE) as u64 && n <= block.len()).ok_or_else(
                || verifier.trailer(Corrupt::Range { what: "log block", field: "zc_nused", value: used }),
            )?
        }
        Verifier::Label { .. } | Verifier::GangHeader { .. } | Verifier::Zilog(_) => block.len(),
    };
    Ok(Span { order, len, sum_at: at + 8 })
}

fn stored_at(block: &[u8], at: usize) -> [u8; 32] {
    let mut stored = [0; 32];
    stored.copy_from_slice(&block[at..at + 32]);
    stored
}

/// The checksum of the covered part with the verifier in place of the stored one.
fn sum(verifier: &Verifier, span: Span, block: &[u8]) -> Checksum {
    let Span { order, len, sum_at } = span;
    debug_assert!(!is_strong(verifier.kind()));
    let own = verifier.words().to_bytes(order);
    let parts = [&block[..sum_at], &own, &block[sum_at + 32..len]];
    match verifier {
        Verifier::Label { .. } | Verifier::GangHeader { .. } => {
            let mut hasher = Sha256::new();
            for part in parts {
                hasher.update(part);
            }
            Checksum::from_bytes(ByteOrder::Big, &hasher.finalize().into())
        }
        Verifier::Zilog(_) => {
            // The trailer begins in the middle of a pair of words, so its last 48 bytes are put together first.
            let mut end = [0; 48];
            end[..16].copy_from_slice(&block[len - 48..sum_at]);
            end[16..].copy_from_slice(&own);
            let mut sum = Fletcher2::new(order);
            sum.append(&block[..len - 48]);
            sum.append(&end);
            sum.finish()
        }
        Verifier::Zilog2(_) => {
            let mut sum = Fletcher4::new(order);
            for part in parts {
                sum.append(part);
            }
            sum.finish()
        }
    }
}

#[cfg(test)]
mod tests;
