//! The parts of block pointers, dnodes and object sets that go into MACs.

use super::split::{DN_FLAGS, DN_USED, PORTABLE_FLAGS, bonus_room, pointers};
use super::{KeyVersion, MAC_LEN};
use crate::{Checksum, Error, Result};
use ondisk::blkptr::BLKPTR_SIZE;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE};
use ondisk::objset::{OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3, ObjsetFlags};
use ondisk::{ByteOrder, Corrupt, DmuType};
use sha2::{Digest, Sha512};

/// The bits of `blk_prop`, by their meaning.
mod prop {
    pub(super) const PSIZE: u64 = 0xffff << 16;
    pub(super) const COMPRESS: u64 = 0x7f << 32;
    pub(super) const EMBEDDED: u64 = 1 << 39;
    pub(super) const CHECKSUM: u64 = 0xff << 40;
    pub(super) const DEDUP: u64 = 1 << 62;
    pub(super) const BYTEORDER: u64 = 1 << 63;

    pub(super) fn kind(prop: u64) -> u8 {
        (prop >> 48) as u8
    }

    pub(super) fn level(prop: u64) -> u64 {
        prop >> 56 & 0x1f
    }
}

/// The authenticated form of a block pointer (`blkptr_auth_buf_t`).
///
/// It has the portable properties in little-endian, the MAC and, since version 1, eight zeros.
pub(super) struct BpAuth {
    buf: [u8; 32],
    len: usize,
}

impl BpAuth {
    /// For a pointer in a block of `order`.
    pub(super) fn new(version: KeyVersion, order: ByteOrder, raw: &[u8; BLKPTR_SIZE]) -> Result<Self> {
        let words = raw.as_chunks::<8>().0;
        let word = |i: usize| match order {
            ByteOrder::Little => u64::from_le_bytes(words[i]),
            ByteOrder::Big => u64::from_be_bytes(words[i]),
        };
        let stored = word(6);
        if stored & prop::EMBEDDED != 0 {
            let what = "block pointer";
            let source = Corrupt::Shape { what, why: "data in a pointer can't be authenticated" };
            return Err(Error::Protected { what, source });
        }
        let hole = word(0) == 0 && word(1) == 0;
        // The pointer itself tells the byte order of its block, and so of the MAC.
        let own = if stored & prop::BYTEORDER != 0 { ByteOrder::Little } else { ByteOrder::Big };
        let mac = if prop::kind(stored) == DmuType::OBJSET.to_disk() {
            [0; MAC_LEN]
        } else {
            Checksum([0, 0, word(14), word(15)]).mac(own)
        };
        let mut buf = [0; 32];
        buf[..8].copy_from_slice(&portable(version, stored, hole).to_le_bytes());
        buf[8..24].copy_from_slice(&mac);
        let len = match version {
            KeyVersion::V0 => 24,
            KeyVersion::V1 => 32,
        };
        Ok(Self { buf, len })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

/// `blk_prop` without the bits that differ in another pool
/// (`zio_crypt_bp_zero_nonportable_blkprop`).
fn portable(version: KeyVersion, stored: u64, hole: bool) -> u64 {
    let mask = match version {
        KeyVersion::V0 => prop::DEDUP | prop::CHECKSUM | prop::PSIZE,
        // Holes have properties only in pools with `hole_birth`.
        KeyVersion::V1 if hole => u64::MAX,
        // Raw streams don't tell how indirect blocks were stored.
        KeyVersion::V1 if prop::level(stored) > 0 => {
            prop::DEDUP | prop::CHECKSUM | prop::BYTEORDER | prop::COMPRESS | prop::PSIZE
        }
        KeyVersion::V1 => prop::DEDUP | prop::CHECKSUM,
    };
    stored & !mask
}

/// Computes the digest over the pointers of an indirect block, which takes the place of its MAC
/// (`zio_crypt_do_indirect_mac_checksum`).
///
/// `block` is uncompressed and of `order`. The digest needs no key.
///
/// # Errors
/// * [`Error::Protected`]: the block does not consist of whole pointers, or a pointer has embedded
///   data.
pub fn indirect_mac(version: KeyVersion, order: ByteOrder, block: &[u8]) -> Result<[u8; MAC_LEN]> {
    let (raw, tail) = block.as_chunks::<BLKPTR_SIZE>();
    if !tail.is_empty() {
        let what = "indirect block";
        let source = Corrupt::Shape { what, why: "its size is not a whole number of pointers" };
        return Err(Error::Protected { what, source });
    }
    let mut digest = Sha512::new();
    for pointer in raw {
        digest.update(BpAuth::new(version, order, pointer)?.bytes());
    }
    Ok(truncated(&digest.finalize()))
}

/// Verifies an uncompressed indirect block of `order` against the MAC in its pointer.
///
/// The version isn't known without a key, so either version may match.
///
/// # Errors
/// * [`Error::Mac`]: neither version matches.
/// * [`Error::Protected`]: the block does not consist of whole pointers, or a pointer has embedded
///   data.
pub fn verify_indirect(order: ByteOrder, block: &[u8], mac: &[u8; MAC_LEN]) -> Result<()> {
    for version in [KeyVersion::V1, KeyVersion::V0] {
        if indirect_mac(version, order, block)? == *mac {
            return Ok(());
        }
    }
    Err(Error::Mac { what: "indirect block" })
}

fn truncated<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut mac = [0; N];
    mac.copy_from_slice(&digest[..N]);
    mac
}

/// The two MACs in an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjsetMacs {
    /// MAC over type and meta-dnode, which raw streams carry (`os_portable_mac`).
    pub portable: [u8; 32],
    /// MAC over flags and accounting dnodes; zeros while accounting is incomplete or absent
    /// (`os_local_mac`).
    pub local: [u8; 32],
}

/// Computes an object set's MACs with `start`, a keyed HMAC-SHA512 without input
/// (`zio_crypt_do_objset_hmacs`).
///
/// All fields are input as little-endian, in a block of either `order`. Only the type is input as
/// big-endian.
pub(super) fn objset_macs<M: hmac::Mac + Clone>(
    start: &M,
    version: KeyVersion,
    order: ByteOrder,
    block: &[u8],
) -> Result<ObjsetMacs> {
    let what = "object set";
    let protect = |source| Error::Protected { what, source };
    if ![OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3].contains(&block.len()) {
        return Err(protect(Corrupt::Shape { what, why: "it has none of the three sizes" }));
    }
    let kind = order.u64(what, block, 704).map_err(protect)?;
    let flags = order.u64(what, block, 712).map_err(protect)?;

    let mut mac = start.clone();
    mac.update(&kind.to_be_bytes());
    // No flag is portable (`OBJSET_CRYPT_PORTABLE_FLAGS_MASK`), so all count as clear.
    mac.update(&0u64.to_le_bytes());
    dnode(&mut mac, version, order, &block[..DNODE_MIN_SIZE])?;
    let portable = truncated(&mac.finalize().into_bytes());

    // User, group and project accounting, as far as the block has them and they exist.
    let accounting = block.get(1024..2560.min(block.len())).unwrap_or_default();
    let mut dnodes = accounting.as_chunks::<DNODE_MIN_SIZE>().0.iter();
    let of_users = dnodes.len() >= 2 && dnodes.clone().take(2).any(|d| d[0] != 0);
    if flags & ObjsetFlags::USERACCOUNTING_COMPLETE == 0 || !of_users {
        return Ok(ObjsetMacs { portable, local: [0; 32] });
    }
    let mut mac = start.clone();
    mac.update(&flags.to_le_bytes());
    dnodes.by_ref().filter(|d| d[0] != 0).try_for_each(|d| dnode(&mut mac, version, order, d))?;
    Ok(ObjsetMacs { portable, local: truncated(&mac.finalize().into_bytes()) })
}

/// Adds a dnode of an object set: its core in little-endian without the parts that aren't portable,
/// and its pointers.
fn dnode<M: hmac::Mac>(mac: &mut M, version: KeyVersion, order: ByteOrder, raw: &[u8]) -> Result<()> {
    let what = "dnode";
    if raw[12] != 0 {
        let source = Corrupt::Shape { what, why: "an object set's dnodes take one slot" };
        return Err(Error::Protected { what, source });
    }
    let mut core = [0; DNODE_CORE_SIZE];
    core.copy_from_slice(&raw[..DNODE_CORE_SIZE]);
    if order == ByteOrder::Big {
        // `dn_datablkszsec`, `dn_bonuslen`, `dn_maxblkid`.
        for field in [8..10, 10..12, 16..24] {
            core[field].reverse();
        }
    }
    core[DN_FLAGS] &= PORTABLE_FLAGS;
    core[DN_USED].fill(0);
    mac.update(&core);
    let bonus = bonus_room(raw).map_err(|source| Error::Protected { what, source })?;
    for pointer in pointers(raw, &bonus) {
        mac.update(BpAuth::new(version, order, pointer)?.bytes());
    }
    Ok(())
}
