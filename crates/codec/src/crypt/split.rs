//! The secret and the authenticated parts of dnode blocks and log blocks.
//!
//! # Theory
//! Both kinds stay readable in part without the key. A reader can walk the tree of dnodes, follow
//! the chain of log blocks, and claim their blocks. Encryption takes the secret parts as one
//! message. All else, as far as it is portable, is associated data, in the order of the block. The
//! secret parts keep their positions.

use super::mac::BpAuth;
use super::{KeyVersion, MAC_LEN};
use crate::checksum::embedded::{ECK_SIZE, ZIL_CHAIN_ECK};
use crate::{Error, Result};
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE, DnodeFlags};
use ondisk::{ByteOrder, Corrupt, DmuType};
use std::ops::Range;

/// Flags of a dnode that a raw stream carries (`DNODE_CRYPT_PORTABLE_FLAGS_MASK`).
pub(super) const PORTABLE_FLAGS: u8 = DnodeFlags::SPILL;
/// Offset of a dnode's flags.
pub(super) const DN_FLAGS: usize = 7;
/// Range of a dnode's used space, which isn't portable.
pub(super) const DN_USED: Range<usize> = 24..32;
const DN_NBLKPTR: usize = 3;
const DN_BONUSTYPE: usize = 4;
const DN_BONUSLEN: Range<usize> = 10..12;

/// Bytes of a log block's header (`zil_chain_t`).
const ZIL_CHAIN: usize = ZIL_CHAIN_ECK + ECK_SIZE;
const ZC_NUSED: usize = 136;
/// Bytes of a log record's header (`lr_t`): type, length, txg, sequence.
const LR_HEADER: usize = 32;
const TX_WRITE: u64 = 9;
const TX_CLONE_RANGE: u64 = 24;
/// Offset of the block pointer in a write record, or of the count and block pointers in a clone
/// record.
const LR_POINTERS: usize = 64;

/// The secret and the authenticated parts of a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// Associated data: the parts that are authenticated but not secret, joined.
    pub aad: Vec<u8>,
    /// Ranges of the secret parts, in order and without overlap.
    pub secret: Vec<Range<usize>>,
    /// End of the block's contents; the bytes after it read as zeros.
    pub end: usize,
}

impl Split {
    /// The secret parts of `block`, joined to one message.
    pub(super) fn gather(&self, block: &[u8]) -> Vec<u8> {
        self.secret.iter().flat_map(|part| &block[part.clone()]).copied().collect()
    }

    /// Copies the parts of a message back to their positions.
    pub(super) fn scatter(&self, message: &[u8], block: &mut [u8]) {
        let mut rest = message;
        for part in &self.secret {
            let (here, after) = rest.split_at(part.len());
            block[part.clone()].copy_from_slice(here);
            rest = after;
        }
    }
}

fn malformed(what: &'static str) -> impl Fn(&'static str) -> Error {
    move |why| Error::Protected { what, source: Corrupt::Shape { what, why } }
}

/// Splits a block of dnodes of `order` (`zio_crypt_init_uios_dnode`).
///
/// The result is the same for encrypted and for plain bonuses.
///
/// * Secret: the whole bonus space of each dnode whose bonus has an encrypted type.
/// * Authenticated, in the block's own byte order:
///   * the 64 bytes of the core, without flags and used space that aren't portable
///   * the portable parts of the pointers
///   * other bonuses
///   * all of a free slot
///
/// # Errors
/// * [`Error::Protected`]: the block is impossible:
///   * its size is not a multiple of 512
///   * a dnode passes the end of the block
///   * the pointers of a dnode don't fit into it
///   * the type of a bonus is unknown
///   * a pointer has embedded data
pub fn dnode_block(version: KeyVersion, order: ByteOrder, block: &[u8]) -> Result<Split> {
    let bad = malformed("dnode block");
    if !block.len().is_multiple_of(DNODE_MIN_SIZE) {
        return Err(bad("its size is not a whole number of slots"));
    }
    let mut split = Split { aad: Vec::with_capacity(block.len()), secret: Vec::new(), end: block.len() };
    let mut at = 0;
    while at < block.len() {
        let slots = usize::from(block[at + 12]) + 1;
        let dnode =
            block.get(at..at + slots * DNODE_MIN_SIZE).ok_or_else(|| bad("a dnode goes past the block"))?;
        let (core, bonus) = parts(dnode).map_err(|source| Error::Protected { what: "dnode", source })?;
        split.aad.extend_from_slice(&core);
        for pointer in pointers(dnode, &bonus) {
            split.aad.extend_from_slice(BpAuth::new(version, order, pointer)?.bytes());
        }
        let bonus_kind = DmuType::from_disk(dnode[DN_BONUSTYPE])
            .map_err(|source| Error::Protected { what: "dnode", source })?;
        let has_bonus = dnode[DN_BONUSLEN] != [0, 0];
        if dnode[0] != 0 && bonus_kind.is_encrypted() && has_bonus {
            split.secret.push(at + bonus.start..at + bonus.end);
        } else {
            split.aad.extend_from_slice(&dnode[bonus]);
        }
        at += dnode.len();
    }
    Ok(split)
}

/// The authenticated form of a dnode's core, in the block's byte order, and the range of its bonus
/// space.
fn parts(dnode: &[u8]) -> std::result::Result<([u8; DNODE_CORE_SIZE], Range<usize>), Corrupt> {
    let mut core = [0; DNODE_CORE_SIZE];
    core.copy_from_slice(&dnode[..DNODE_CORE_SIZE]);
    core[DN_FLAGS] &= PORTABLE_FLAGS;
    core[DN_USED].fill(0);
    let bonus = bonus_room(dnode)?;
    Ok((core, bonus))
}

/// The range of a dnode's bonus space, used or not (`DN_BONUS`, `DN_MAX_BONUS_LEN`).
///
/// It is between the last pointer and the spill pointer, or the end of the dnode.
pub(super) fn bonus_room(dnode: &[u8]) -> std::result::Result<Range<usize>, Corrupt> {
    let start = DNODE_CORE_SIZE + usize::from(dnode[DN_NBLKPTR]) * BLKPTR_SIZE;
    let spill = dnode[DN_FLAGS] & DnodeFlags::SPILL != 0;
    let end = if spill { dnode.len() - BLKPTR_SIZE } else { dnode.len() };
    if start > end {
        let value = dnode[DN_NBLKPTR].into();
        return Err(Corrupt::Range { what: "dnode", field: "dn_nblkptr", value });
    }
    Ok(start..end)
}

/// A dnode's pointers, the spill pointer last. `bonus` is the range from [`bonus_room`].
pub(super) fn pointers<'a>(
    dnode: &'a [u8],
    bonus: &Range<usize>,
) -> impl Iterator<Item = &'a [u8; BLKPTR_SIZE]> {
    let top = dnode[DNODE_CORE_SIZE..bonus.start].as_chunks::<BLKPTR_SIZE>().0;
    // After the bonus there is the spill pointer or nothing.
    top.iter().chain(dnode[bonus.end..].as_chunks::<BLKPTR_SIZE>().0)
}

/// Splits a log block of `order` (`zio_crypt_init_uios_zil`).
///
/// The result is the same for an encrypted and for a plain block.
///
/// * Secret: each record after its 32-byte header, but for the block pointers of a write or a
///   clone.
/// * Authenticated, as stored: the chain header without its trailer, and the parts of each record
///   that aren't secret.
///
/// # Errors
/// * [`Error::Protected`]: the block is impossible:
///   * its fill count is larger than the block or smaller than the header
///   * a record passes the end of the used part
///   * a write or clone record is shorter than its fixed part
pub fn zil_block(order: ByteOrder, block: &[u8]) -> Result<Split> {
    let what = "log block";
    let bad = malformed(what);
    let field = |at| order.u64(what, block, at).map_err(|source| Error::Protected { what, source });
    let end = usize::try_from(field(ZC_NUSED)?).unwrap_or(usize::MAX);
    if end < ZIL_CHAIN || end > block.len() {
        return Err(bad("its fill count doesn't fit"));
    }
    let mut split = Split { aad: block[..ZIL_CHAIN_ECK].to_vec(), secret: Vec::new(), end };
    let mut at = ZIL_CHAIN;
    while at < end {
        if end - at < LR_HEADER {
            return Err(bad("a record is cut short"));
        }
        let kind = field(at)?;
        let len = usize::try_from(field(at + 8)?).unwrap_or(usize::MAX);
        if len < LR_HEADER || len > end - at {
            return Err(bad("a record's length doesn't fit"));
        }
        split.aad.extend_from_slice(&block[at..at + LR_HEADER]);
        let (from, to) = (at + LR_HEADER, at + len);
        match kind {
            TX_WRITE => {
                let pointer = at + LR_POINTERS..at + LR_POINTERS + BLKPTR_SIZE;
                if pointer.end > to {
                    return Err(bad("a write record is too short"));
                }
                split.aad.extend_from_slice(&block[pointer.clone()]);
                split.secret.push(from..pointer.start);
                if pointer.end < to {
                    split.secret.push(pointer.end..to);
                }
            }
            TX_CLONE_RANGE => {
                if len < LR_POINTERS {
                    return Err(bad("a clone record is too short"));
                }
                split.aad.extend_from_slice(&block[at + LR_POINTERS..to]);
                split.secret.push(from..at + LR_POINTERS);
            }
            _ => split.secret.push(from..to),
        }
        at = to;
    }
    Ok(split)
}

/// The MAC of an encrypted log block, from the checksum in its trailer
/// (`zio_crypt_decode_mac_zil`).
///
/// # Errors
/// * [`Error::Protected`]: the block is shorter than its header.
pub fn zil_mac(block: &[u8]) -> Result<[u8; MAC_LEN]> {
    let at = ZIL_CHAIN - MAC_LEN;
    block.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Error::Protected {
        what: "log block",
        source: Corrupt::Truncated { what: "log block", need: ZIL_CHAIN, have: block.len() },
    })
}
