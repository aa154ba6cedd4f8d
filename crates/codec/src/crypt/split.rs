//! Which parts of dnode blocks and log blocks are secret, and which are only authenticated.
//!
//! # Theory
//! Both kinds stay readable in part without the key: dnodes so that the tree can be walked, log blocks so that the chain can be
//! followed and its blocks claimed. Encryption takes the secret parts as one message, and everything else
//! (what is portable of it) as associated data, in the order of the block. The secret parts keep their places.

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
/// Where a dnode's flags are.
pub(super) const DN_FLAGS: usize = 7;
/// Where a dnode says what it uses, which isn't portable.
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
/// Where the block pointer of a write record is, or the count and block pointers of a clone record.
const LR_POINTERS: usize = 64;

/// A block taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// Associated data: what is authenticated and not secret, put together.
    pub aad: Vec<u8>,
    /// The secret parts, in order and apart from one another.
    pub secret: Vec<Range<usize>>,
    /// Where the block's contents end; what follows reads as zeros.
    pub end: usize,
}

impl Split {
    /// The secret parts of `block` as one message.
    pub(super) fn gather(&self, block: &[u8]) -> Vec<u8> {
        self.secret.iter().flat_map(|part| &block[part.clone()]).copied().collect()
    }

    /// Puts a message back into its places.
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

/// Takes a block of dnodes of `order` apart (`zio_crypt_init_uios_dnode`). It looks the same with its bonuses encrypted
/// or not.
///
/// Secret: the whole room for the bonus of each dnode whose bonus is of an encrypted type. Authenticated: the 64 bytes of
/// the core in the block's own order, less flags and use that aren't portable; the pointers' portable
/// parts; other bonuses; free slots entirely.
///
/// # Errors
/// [`Error::Protected`] when a dnode doesn't fit into the block or its parts into the dnode.
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

/// The authenticated form of a dnode's core, in the block's order, and the room for its bonus.
fn parts(dnode: &[u8]) -> std::result::Result<([u8; DNODE_CORE_SIZE], Range<usize>), Corrupt> {
    let mut core = [0; DNODE_CORE_SIZE];
    core.copy_from_slice(&dnode[..DNODE_CORE_SIZE]);
    core[DN_FLAGS] &= PORTABLE_FLAGS;
    core[DN_USED].fill(0);
    let bonus = bonus_room(dnode)?;
    Ok((core, bonus))
}

/// The room for a dnode's bonus, whatever of it is used (`DN_BONUS`, `DN_MAX_BONUS_LEN`): from the last pointer to the
/// spill pointer or the end.
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

/// A dnode's pointers, the spill pointer last; `bonus` is what [`bonus_room`] found between them.
pub(super) fn pointers<'a>(
    dnode: &'a [u8],
    bonus: &Range<usize>,
) -> impl Iterator<Item = &'a [u8; BLKPTR_SIZE]> {
    let top = dnode[DNODE_CORE_SIZE..bonus.start].as_chunks::<BLKPTR_SIZE>().0;
    // What is behind the bonus is the spill pointer or nothing.
    top.iter().chain(dnode[bonus.end..].as_chunks::<BLKPTR_SIZE>().0)
}

/// Takes a log block of `order` apart (`zio_crypt_init_uios_zil`). It looks the same encrypted or not.
///
/// Secret: each record behind its 32-byte header, but for the block pointer of a write and the block pointers of a
/// clone. Authenticated, as stored: the chain header but for its trailer, and what isn't secret of each record.
///
/// # Errors
/// [`Error::Protected`] when the records don't fit into the block or their parts into the records.
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

/// The MAC that an encrypted log block carries in the checksum of its trailer (`zio_crypt_decode_mac_zil`).
///
/// # Errors
/// [`Error::Protected`] when the block is too short.
pub fn zil_mac(block: &[u8]) -> Result<[u8; MAC_LEN]> {
    let at = ZIL_CHAIN - MAC_LEN;
    block.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Error::Protected {
        what: "log block",
        source: Corrupt::Truncated { what: "log block", need: ZIL_CHAIN, have: block.len() },
    })
}
