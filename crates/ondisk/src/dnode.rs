//! Dnodes: an object's type, its geometry and the roots of its block tree (`dnode_phys_t`).
//!
//! # On disk
//! A dnode takes one to 32 slots of 512 bytes. In order, it has:
//!
//! 1. a core of 64 bytes
//! 2. one to three block pointers
//! 3. the bonus
//! 4. if the spill flag is set, one more block pointer, in the last 128 bytes

use crate::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, Blkptr};
use crate::{BlkId, ByteOrder, Corrupt, DmuType, Level, Result, SPA_MAXBLOCKSIZE, SPA_MINBLOCKSHIFT};
use std::ops::Range;

/// Bytes of one slot.
pub const DNODE_MIN_SIZE: usize = 512;
/// log2 of [`DNODE_MIN_SIZE`].
pub const DNODE_SHIFT: u32 = 9;
/// Bytes of the largest dnode, 32 slots.
pub const DNODE_MAX_SIZE: usize = 16384;
/// Bytes before the block pointers.
pub const DNODE_CORE_SIZE: usize = 64;
/// Bytes of a block of dnodes.
pub const DNODE_BLOCK_SIZE: usize = 16384;
/// Most levels of a block tree. 64-bit offsets need no more.
pub const DN_MAX_LEVELS: u8 = 16;

/// Most block pointers in a dnode.
pub const DN_MAX_NBLKPTR: usize = 3;

const WHAT: &str = "dnode";
const MIN_INDBLKSHIFT: u8 = 10;
const MAX_INDBLKSHIFT: u8 = 24;

/// Flags of a dnode (`dn_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DnodeFlags(pub u8);

impl DnodeFlags {
    /// `dn_used` counts bytes, not sectors (`DNODE_FLAG_USED_BYTES`).
    pub const USED_BYTES: u8 = 1;
    /// User, group and project accounting includes the object's bytes
    /// (`DNODE_FLAG_USERUSED_ACCOUNTED`).
    pub const USERUSED_ACCOUNTED: u8 = 2;
    /// The dnode has a spill block (`DNODE_FLAG_SPILL_BLKPTR`).
    pub const SPILL: u8 = 4;
    /// User, group and project accounting includes the object itself
    /// (`DNODE_FLAG_USEROBJUSED_ACCOUNTED`).
    pub const USEROBJUSED_ACCOUNTED: u8 = 8;

    /// True if `bit` is set.
    pub fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// A checked dnode (`dnode_phys_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnodePhys {
    /// Type of the object (`dn_type`).
    pub kind: DmuType,
    /// log2 of the size of an indirect block (`dn_indblkshift`).
    pub indblkshift: u8,
    /// Levels of the block tree; with 1, the pointers in the dnode point at data (`dn_nlevels`).
    pub nlevels: u8,
    /// Type of the bonus (`dn_bonustype`).
    pub bonus_kind: DmuType,
    /// Checksum number for new blocks; 0 is inherit (`dn_checksum`).
    pub checksum: u8,
    /// Compressor number for new blocks; 0 is inherit (`dn_compress`).
    pub compress: u8,
    /// Flags of the dnode (`dn_flags`).
    pub flags: DnodeFlags,
    /// Bytes of a data block (`dn_datablkszsec`, there in sectors).
    pub datablksz: u32,
    /// Slots beyond the first (`dn_extra_slots`).
    pub extra_slots: u8,
    /// Largest allocated block number (`dn_maxblkid`).
    pub maxblkid: BlkId,
    /// Bytes that the object uses, converted if the dnode counts sectors (`DN_USED_BYTES`).
    pub used_bytes: u64,
    /// The pointers of the top level, one to three (`dn_blkptr`).
    pub blkptrs: Vec<Blkptr>,
    /// Bytes of the bonus (`DN_BONUS`).
    pub bonus: Vec<u8>,
    /// Pointer to the spill block (`DN_SPILL_BLKPTR`).
    pub spill: Option<Blkptr>,
}

impl DnodePhys {
    /// Number of slots of the dnode at the head of `raw`, without decoding the rest
    /// (`dn_extra_slots`).
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the dnode does not fit into `raw`.
    pub fn slots(raw: &[u8]) -> Result<usize> {
        let extra = *raw.get(12).ok_or(Corrupt::Truncated { what: WHAT, need: 13, have: raw.len() })?;
        let need = (usize::from(extra) + 1) * DNODE_MIN_SIZE;
        if need > raw.len() {
            return Err(Corrupt::Truncated { what: WHAT, need, have: raw.len() });
        }
        Ok(usize::from(extra) + 1)
    }

    /// Where the bonus is in the dnode at the head of `raw`, and its type, without decoding the
    /// rest. `None` if the dnode has a spill block, or may be malformed: [`DnodePhys::decode`]
    /// tells.
    pub fn find_bonus(raw: &[u8]) -> Option<(DmuType, Range<usize>)> {
        let size = Self::slots(raw).ok()? * DNODE_MIN_SIZE;
        let (nblkptr, flags) = (usize::from(raw[3]), DnodeFlags(raw[7]));
        if flags.has(DnodeFlags::SPILL) || !(1..=DN_MAX_NBLKPTR).contains(&nblkptr) {
            return None;
        }
        let at = DNODE_CORE_SIZE + nblkptr * BLKPTR_SIZE;
        let end = at + usize::from(u16::from_le_bytes([raw[10], raw[11]]));
        (end <= size).then_some((DmuType::from_disk(raw[4]).ok()?, at..end))
    }

    /// Decodes the dnode at the head of `raw`; `None` for a free slot.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `raw` has fewer than 512 bytes, or is shorter than the dnode's
    ///   slots.
    /// * [`Corrupt::Range`]: a type, the levels, the indirect block size, the number of pointers or
    ///   the data block size is impossible.
    /// * [`Corrupt::Range`]: the bonus does not fit into the slots.
    /// * [`Corrupt::Range`] and [`Corrupt::Shape`]: a block pointer has a fault that
    ///   [`Blkptr::decode`] lists.
    pub fn decode(raw: &[u8]) -> Result<Option<DnodePhys>> {
        if raw.len() < DNODE_MIN_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: DNODE_MIN_SIZE, have: raw.len() });
        }
        if raw[0] == 0 {
            return Ok(None);
        }
        let kind = DmuType::from_disk(raw[0])?;
        let size = Self::slots(raw)? * DNODE_MIN_SIZE;
        let range = |field, value: u64, ok: bool| {
            if ok { Ok(()) } else { Err(Corrupt::Range { what: WHAT, field, value }) }
        };
        let (indblkshift, nlevels, nblkptr) = (raw[1], raw[2], usize::from(raw[3]));
        range("dn_nlevels", nlevels.into(), (1..=DN_MAX_LEVELS).contains(&nlevels))?;
        let shift_ok = (MIN_INDBLKSHIFT..=MAX_INDBLKSHIFT).contains(&indblkshift) || nlevels == 1;
        range("dn_indblkshift", indblkshift.into(), shift_ok)?;
        range("dn_nblkptr", nblkptr as u64, (1..=3).contains(&nblkptr))?;
        let le = ByteOrder::Little;
        let datablksz = u32::from(le.u16(WHAT, raw, 8)?) << SPA_MINBLOCKSHIFT;
        let size_ok = datablksz != 0 && u64::from(datablksz) <= SPA_MAXBLOCKSIZE;
        range("dn_datablkszsec", datablksz.into(), size_ok)?;
        let flags = DnodeFlags(raw[7]);
        let bonuslen = usize::from(le.u16(WHAT, raw, 10)?);
        let spill_at = size - BLKPTR_SIZE;
        let limit = if flags.has(DnodeFlags::SPILL) { spill_at } else { size };
        // OpenZFS makes long redaction lists with a third pointer under that of the spill block.
        let nblkptr = match bonuslen {
            0 if flags.has(DnodeFlags::SPILL) => nblkptr.min((limit - DNODE_CORE_SIZE) / BLKPTR_SIZE),
            _ => nblkptr,
        };
        let bonus_at = DNODE_CORE_SIZE + nblkptr * BLKPTR_SIZE;
        range("dn_bonuslen", bonuslen as u64, bonus_at + bonuslen <= limit)?;
        let used = le.u64(WHAT, raw, 24)?;
        Ok(Some(DnodePhys {
            kind,
            indblkshift,
            nlevels,
            bonus_kind: DmuType::from_disk(raw[4])?,
            checksum: raw[5],
            compress: raw[6],
            flags,
            datablksz,
            extra_slots: raw[12],
            maxblkid: BlkId(le.u64(WHAT, raw, 16)?),
            used_bytes: if flags.has(DnodeFlags::USED_BYTES) { used } else { used.saturating_mul(512) },
            blkptrs: raw[DNODE_CORE_SIZE..bonus_at]
                .chunks_exact(BLKPTR_SIZE)
                .map(Blkptr::decode)
                .collect::<Result<_>>()?,
            bonus: raw[bonus_at..bonus_at + bonuslen].to_vec(),
            spill: if flags.has(DnodeFlags::SPILL) {
                Some(Blkptr::decode(&raw[spill_at..size])?)
            } else {
                None
            },
        }))
    }

    /// Encodes the dnode for pools before version 3, where `dn_used` counts sectors.
    ///
    /// # Panics
    /// In the cases that [`DnodePhys::encode`] lists.
    pub fn encode_sectors(&self) -> Vec<u8> {
        let mut raw = self.encode();
        raw[7] &= !DnodeFlags::USED_BYTES;
        raw[24..32].copy_from_slice(&self.used_bytes.div_ceil(512).to_le_bytes());
        raw
    }

    /// Encodes all slots of the dnode, little-endian.
    ///
    /// # Panics
    /// The maker of the dnode keeps these rules; it panics otherwise:
    ///
    /// * The dnode has one to three pointers.
    /// * Pointers, bonus and spill pointer fit into the slots.
    /// * The data block size is a multiple of 512, and not 0.
    /// * [`Blkptr::encode`] accepts each pointer.
    pub fn encode(&self) -> Vec<u8> {
        let size = self.num_slots() * DNODE_MIN_SIZE;
        let has_spill = self.spill.is_some();
        let bonus_at = DNODE_CORE_SIZE + self.blkptrs.len() * BLKPTR_SIZE;
        let limit = if has_spill { size - BLKPTR_SIZE } else { size };
        assert!((1..=DN_MAX_NBLKPTR).contains(&self.blkptrs.len()), "a dnode has one to three pointers");
        assert!(bonus_at + self.bonus.len() <= limit, "the bonus fits into the dnode");
        let sectors = self.datablksz >> SPA_MINBLOCKSHIFT;
        assert!(sectors << SPA_MINBLOCKSHIFT == self.datablksz && sectors != 0, "blocks are whole sectors");
        let mut raw = vec![0; size];
        let spill_flag = if has_spill { DnodeFlags::SPILL } else { 0 };
        let flags = self.flags.0 & !DnodeFlags::SPILL | DnodeFlags::USED_BYTES | spill_flag;
        raw[..8].copy_from_slice(&[
            self.kind.to_disk(),
            self.indblkshift,
            self.nlevels,
            self.blkptrs.len() as u8,
            self.bonus_kind.to_disk(),
            self.checksum,
            self.compress,
            flags,
        ]);
        raw[8..10].copy_from_slice(&(sectors as u16).to_le_bytes());
        raw[10..12].copy_from_slice(&(self.bonus.len() as u16).to_le_bytes());
        raw[12] = self.extra_slots;
        raw[16..24].copy_from_slice(&self.maxblkid.0.to_le_bytes());
        raw[24..32].copy_from_slice(&self.used_bytes.to_le_bytes());
        for (slot, bp) in raw[DNODE_CORE_SIZE..bonus_at].chunks_exact_mut(BLKPTR_SIZE).zip(&self.blkptrs) {
            slot.copy_from_slice(&bp.encode());
        }
        raw[bonus_at..bonus_at + self.bonus.len()].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            raw[size - BLKPTR_SIZE..].copy_from_slice(&spill.encode());
        }
        raw
    }

    /// Bytes that pointers and bonus share in a dnode of `slots` slots (`DN_SLOTS_TO_BONUSLEN` and
    /// one pointer).
    ///
    /// # Panics
    /// With overflow checks, if `slots` is 0.
    pub fn tail_len(slots: usize) -> usize {
        slots * DNODE_MIN_SIZE - DNODE_CORE_SIZE
    }

    /// Number of pointers of a new dnode of `slots` slots with a bonus of `bonus` bytes.
    ///
    /// A bonus of system attributes can grow, so its dnode has one pointer.
    pub fn pointers_beside(slots: usize, bonus_kind: DmuType, bonus: usize) -> usize {
        if bonus_kind == DmuType::SA {
            return 1;
        }
        (Self::tail_len(slots).saturating_sub(bonus) / BLKPTR_SIZE).clamp(1, DN_MAX_NBLKPTR)
    }

    /// log2 of the number of pointers in an indirect block (`dn_indblkshift - SPA_BLKPTRSHIFT`).
    pub fn epbs(&self) -> u32 {
        u32::from(self.indblkshift).saturating_sub(BLKPTR_SHIFT)
    }

    /// log2 of the number of data blocks below one block of `level`; at most 64.
    pub fn span_shift(&self, level: Level) -> u32 {
        (u32::from(level.0) * self.epbs()).min(64)
    }

    /// Number of slots of this dnode (`dn_num_slots`).
    pub fn num_slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }
}

#[cfg(test)]
mod tests;
