//! The part of a dnode besides its pointers, as a transaction group leaves it.

use crate::NewObject;
use ondisk::blkptr::BLKPTR_SHIFT;
use ondisk::dnode::{DN_MAX_LEVELS, DnodeFlags, DnodePhys};
use ondisk::objset::ObjsetKind;
use ondisk::{BlkId, Blkptr, Corrupt, DmuType};

/// log2 of the smallest and largest indirect blocks of new objects (`DN_MIN_INDBLKSHIFT`,
/// `DN_MAX_INDBLKSHIFT`).
pub(crate) const INDBLKSHIFT: std::ops::RangeInclusive<u8> = 12..=17;

/// log2 of the indirect blocks of new objects of a MOS.
///
/// Each txg changes a few pointers of some of its objects, and compresses the whole indirect blocks
/// that hold them. OpenZFS makes them as large as in a file system, and takes any size.
const MOS_INDBLKSHIFT: u8 = 14;

/// log2 of the indirect blocks that this crate reads.
const INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 10..=24;

/// The part of a dnode that changes.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) kind: DmuType,
    pub(crate) bonus_kind: DmuType,
    pub(crate) bonus: Vec<u8>,
    /// The bonus and all of the space behind it, if it arrived encrypted in this txg.
    pub(crate) encrypted_bonus: Option<Vec<u8>>,
    pub(crate) checksum: u8,
    pub(crate) compress: u8,
    pub(crate) flags: DnodeFlags,
    pub(crate) datablksz: u32,
    pub(crate) indblkshift: u8,
    pub(crate) nlevels: u8,
    pub(crate) nblkptr: usize,
    pub(crate) extra_slots: u8,
    pub(crate) maxblkid: BlkId,
    pub(crate) has_spill: bool,
}

impl Header {
    pub(crate) fn of(phys: &DnodePhys) -> Header {
        Header {
            kind: phys.kind,
            bonus_kind: phys.bonus_kind,
            bonus: phys.bonus.clone(),
            encrypted_bonus: None,
            checksum: phys.checksum,
            compress: phys.compress,
            flags: phys.flags,
            datablksz: phys.datablksz,
            indblkshift: phys.indblkshift,
            nlevels: phys.nlevels,
            nblkptr: phys.blkptrs.len(),
            extra_slots: phys.extra_slots,
            maxblkid: phys.maxblkid,
            has_spill: phys.spill.is_some(),
        }
    }

    /// The header of a new object in an object set of this kind (`dnode_allocate`).
    pub(crate) fn new(kind: ObjsetKind, spec: &NewObject) -> Header {
        let slots = usize::from(spec.slots.max(1));
        let ibs = match (spec.indblkshift, kind) {
            (0, ObjsetKind::Meta) => MOS_INDBLKSHIFT,
            (0, _) => *INDBLKSHIFT.end(),
            (shift, _) => shift,
        };
        let datablksz = if spec.block_size == 0 { 512 } else { spec.block_size.next_multiple_of(512) };
        Header {
            kind: spec.kind,
            bonus_kind: spec.bonus_kind,
            bonus: spec.bonus.clone(),
            encrypted_bonus: None,
            checksum: 0,
            compress: 0,
            flags: DnodeFlags(DnodeFlags::USED_BYTES),
            datablksz,
            indblkshift: ibs.clamp(*INDBLKSHIFT.start(), *INDBLKSHIFT.end()),
            nlevels: 1,
            nblkptr: DnodePhys::pointers_beside(slots, spec.bonus_kind, spec.bonus.len()),
            extra_slots: (slots - 1) as u8,
            maxblkid: BlkId(0),
            has_spill: false,
        }
    }

    /// The largest possible length of the bonus (`DN_BONUS_SIZE`, less the pointer to the spill
    /// block if there is one).
    ///
    /// `None` if the pointers alone don't fit.
    pub(crate) fn bonus_room(&self) -> Option<usize> {
        let pointers = self.nblkptr + usize::from(self.has_spill);
        DnodePhys::tail_len(usize::from(self.extra_slots) + 1).checked_sub(pointers << BLKPTR_SHIFT)
    }

    /// Extends the object to block `blkid`: the tree gets as many levels as it needs
    /// (`dnode_new_blkid`).
    ///
    /// # Errors
    /// * [`Corrupt::Range`]: no number of levels reaches so far, because the indirect blocks have a
    ///   size that no writer uses.
    pub(crate) fn reach(&mut self, blkid: BlkId) -> ondisk::Result<()> {
        if blkid <= self.maxblkid {
            return Ok(());
        }
        let epbs = u32::from(self.indblkshift).saturating_sub(BLKPTR_SHIFT);
        let mut nlevels = self.nlevels;
        while blkid.0.checked_shr(u32::from(nlevels - 1) * epbs).unwrap_or(0) >= self.nblkptr as u64 {
            nlevels += 1;
            // An object of one level has no indirect blocks, so a dnode may claim any size for
            // them.
            if nlevels > DN_MAX_LEVELS || !INDIRECT_SHIFTS.contains(&self.indblkshift) {
                let value = self.indblkshift.into();
                return Err(Corrupt::Range { what: "dnode", field: "dn_indblkshift", value });
            }
        }
        (self.maxblkid, self.nlevels) = (blkid, nlevels);
        Ok(())
    }

    /// The dnode with this header, over the pointers of `old`.
    pub(crate) fn over(&self, old: Option<&DnodePhys>) -> DnodePhys {
        let mut flags = DnodeFlags(self.flags.0 & !DnodeFlags::SPILL);
        flags.0 |= if self.has_spill { DnodeFlags::SPILL } else { 0 };
        DnodePhys {
            kind: self.kind,
            indblkshift: self.indblkshift,
            nlevels: self.nlevels,
            bonus_kind: self.bonus_kind,
            checksum: self.checksum,
            compress: self.compress,
            flags,
            datablksz: self.datablksz,
            extra_slots: self.extra_slots,
            maxblkid: self.maxblkid,
            used_bytes: old.map_or(0, |o| o.used_bytes),
            blkptrs: old.map_or_else(|| vec![Blkptr::HOLE; self.nblkptr], |o| o.blkptrs.clone()),
            bonus: self.bonus.clone(),
            spill: self.has_spill.then(|| old.and_then(|o| o.spill).unwrap_or(Blkptr::HOLE)),
        }
    }
}

#[cfg(test)]
mod tests;
