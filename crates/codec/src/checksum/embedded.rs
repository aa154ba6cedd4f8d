//! Blocks with an embedded checksum: labels and uberblocks, gang headers, log blocks.
//!
//! # Theory
//! Such a block has a 40-byte trailer (`zio_eck_t`): a magic number and 32 bytes of checksum.
//! During the computation a *verifier* takes the place of the checksum. Only the right reader knows
//! the verifier: it is the block's location, or the checksum words of the pointer in the log chain.
//! So an intact block at another location, or of another chain, doesn't verify. The verifier is
//! never stored.
//!
//! The magic number tells the writer's byte order. All words of trailer and verifier have it.
//!
//! # On disk
//! | kind | covers | trailer at | function | verifier |
//! |---|---|---|---|---|
//! | `label` | the block | its end | SHA-256 | byte offset on the device, 0, 0, 0 |
//! | `gang_header` | 512 bytes | its end | SHA-256 | vdev, offset of the first DVA, birth txg, 0 |
//! | `zilog` | the block | its end | Fletcher-2 | the pointer's checksum words |
//! | `zilog2` | the used part, rounded up to 4 KiB | byte 144 | Fletcher-4 | the same |

use super::fletcher::{Fletcher2, Fletcher4};
use super::{Checksum, is_strong};
use crate::{Error, Result};
pub use ondisk::label::{ECK_SIZE, ZEC_MAGIC};
use ondisk::{ByteOrder, ChecksumKind, Corrupt};
use sha2::{Digest, Sha256};

/// Offset of the trailer in a `zilog2` block, after the chain's pad, pointer and fill count
/// (`zc_eck`).
pub const ZIL_CHAIN_ECK: usize = 144;
/// Offset of the fill count in a `zilog2` block: the bytes in use (`zc_nused`).
const ZIL_CHAIN_NUSED: usize = 136;
/// Unit of the covered part of a `zilog2` block (`ZIL_MIN_BLKSZ`).
const ZIL_MIN_BLKSZ: u64 = 4096;

/// Identity of a block with an embedded checksum, from which its verifier is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verifier {
    /// A part of a label: its offset on the device (`zio_checksum_label_verifier`).
    Label {
        /// Offset from the start of the device, in bytes.
        offset: u64,
    },
    /// A gang header: the identity of the gang block pointer (`zio_checksum_gang_verifier`).
    GangHeader {
        /// Top-level vdev of the pointer's first DVA.
        vdev: u64,
        /// Offset of the pointer's first DVA in bytes (`DVA_GET_OFFSET`).
        offset: u64,
        /// Physical birth of the pointer (`BP_GET_PHYSICAL_BIRTH`).
        birth: u64,
    },
    /// A log block of the old kind: the checksum words of its pointer.
    Zilog(Checksum),
    /// A log block: the checksum words of its pointer.
    Zilog2(Checksum),
}

impl Verifier {
    /// The kind of checksum that belongs to this identity.
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

/// Verifies the embedded checksum of a block, and returns the byte order of its writer
/// (`zio_checksum_error_impl`).
///
/// `mac` is the crypt bit of the block's pointer. With it, half of the stored words are a MAC (see
/// [`Checksum::check`]).
///
/// # Errors
/// * [`Error::Trailer`]: the block is too short, has an odd size, has no trailer, or has an
///   impossible fill count.
/// * [`Error::Mismatch`]: the stored checksum is not that of the bytes.
pub fn verify(verifier: &Verifier, block: &[u8], mac: bool) -> Result<ByteOrder> {
    let span = span_to_verify(verifier, block)?;
    let stored = stored_at(block, span.sum_at);
    let actual = sum(verifier, span, block);
    Checksum::from_bytes(span.order, &stored).check(verifier.kind(), actual, mac)?;
    Ok(span.order)
}

/// Writes magic number and checksum into a block, little-endian (`zio_checksum_compute`).
///
/// A `zilog2` block already has its fill count. `mac` is the tag of the block's encryption, if the
/// block is encrypted. It replaces half of the checksum.
///
/// # Errors
/// * [`Error::Trailer`]: the block is too short for the trailer, has an odd size, or has an
///   impossible fill count.
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

/// The covered part of a block, and the offset of its checksum.
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
            // The functions run over whole words. A block that does not consist of whole words has
            // no checksum.
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

/// The checksum of the covered part, with the verifier in place of the stored checksum.
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
            // The trailer begins in the middle of a pair of words, so the last 48 bytes are
            // assembled first.
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
