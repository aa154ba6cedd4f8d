//! What remains of a removed device: the new location of each of its blocks.
//!
//! # On disk
//! * The mapping object is an array of [`MappingEntry`]s, sorted by source offset. Its bonus is a
//!   [`MappingPhys`].
//! * The births object is an array of [`BirthEntry`]s, sorted by offset. Its bonus has their
//!   number.
//! * The counts object has a 32-bit number of obsolete bytes for each mapping entry.

use crate::words::{words, words_from};
use crate::{Corrupt, Offset, Result, Txg, VdevId};

/// Header of an indirect mapping, in its bonus (`vdev_indirect_mapping_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MappingPhys {
    /// End of the last mapped segment, in bytes (`vimp_max_offset`).
    pub max_offset: u64,
    /// Bytes mapped (`vimp_bytes_mapped`).
    pub bytes_mapped: u64,
    /// Number of entries in the object (`vimp_num_entries`).
    pub num_entries: u64,
    /// Object of the obsolete counts, or 0; absent before `obsolete_counts` (`vimp_counts_object`).
    pub counts_object: u64,
}

impl MappingPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus is shorter than three words.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 4] = words_from("indirect mapping", bonus, 3)?;
        Ok(Self { max_offset: w[0], bytes_mapped: w[1], num_entries: w[2], counts_object: w[3] })
    }
}

/// A copied segment (`vdev_indirect_mapping_entry_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingEntry {
    /// Offset of the segment on the removed vdev (`DVA_MAPPING_GET_SRC_OFFSET`).
    pub src: Offset,
    /// The top-level vdev with the copy, which may be indirect itself (`vimep_dst`).
    pub vdev: VdevId,
    /// Offset of the copy there (`vimep_dst`).
    pub dst: Offset,
    /// Bytes in the segment.
    pub size: u64,
}

impl MappingEntry {
    /// Bytes of one entry.
    pub const SIZE: usize = 24;

    /// Decodes one entry.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` is shorter than [`MappingEntry::SIZE`].
    /// * [`Corrupt::Shape`]: the segment is empty, or an offset wraps.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let w: [u64; 3] = words("indirect mapping entry", buf)?;
        let shape = |why| Corrupt::Shape { what: "indirect mapping entry", why };
        let src = (w[0] & (u64::MAX >> 1)).checked_mul(512).ok_or(shape("source offset wraps"))?;
        let dst = (w[2] & (u64::MAX >> 1)).checked_mul(512).ok_or(shape("destination offset wraps"))?;
        let size = (w[1] & 0xff_ffff) * 512;
        if size == 0 {
            return Err(shape("segment is empty"));
        }
        if src.checked_add(size).is_none() || dst.checked_add(size).is_none() {
            return Err(shape("segment wraps"));
        }
        Ok(Self { src: Offset(src), vdev: VdevId(((w[1] >> 32) & 0xff_ffff) as u32), dst: Offset(dst), size })
    }
}

/// Transaction group in which a range of the removed vdev was copied
/// (`vdev_indirect_birth_entry_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BirthEntry {
    /// End of the range, which begins at the end of the entry before (`vibe_offset`).
    pub offset: Offset,
    /// Transaction group of the copy (`vibe_phys_birth_txg`).
    pub phys_birth: Txg,
}

impl BirthEntry {
    /// Bytes of one entry.
    pub const SIZE: usize = 16;

    /// Decodes one entry.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` is shorter than [`BirthEntry::SIZE`].
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let w: [u64; 2] = words("indirect births entry", buf)?;
        Ok(Self { offset: Offset(w[0]), phys_birth: Txg(w[1]) })
    }
}

/// Decodes the number of entries of a births object from its bonus (`vdev_indirect_birth_phys_t`).
///
/// # Errors
/// * [`Corrupt::Truncated`]: the bonus is shorter than one word.
pub fn births_count(bonus: &[u8]) -> Result<u64> {
    let w: [u64; 1] = words("indirect births", bonus)?;
    Ok(w[0])
}

/// State of a device removal, `com.delphix:removing` in the directory of the MOS.
///
/// OpenZFS's fields have these names with `sr_` in front (`spa_removing_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovingPhys {
    /// A number of [`crate::scan::ScanState`].
    pub state: u64,
    /// The vdev whose removal is in progress or was last; `u64::MAX` for none.
    pub removing_vdev: u64,
    /// The vdev removed before it, the head of a chain through the vdevs' configs; `u64::MAX` for
    /// none.
    pub prev_indirect_vdev: u64,
    /// Start time in seconds since 1970.
    pub start_time: u64,
    /// End time in seconds since 1970.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied or freed.
    pub copied: u64,
}

impl RemovingPhys {
    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than seven words.
    pub fn decode(w: &[u64]) -> Result<Self> {
        let w = array::<7>("removal state", w)?;
        Ok(Self {
            state: w[0],
            removing_vdev: w[1],
            prev_indirect_vdev: w[2],
            start_time: w[3],
            end_time: w[4],
            to_copy: w[5],
            copied: w[6],
        })
    }
}

/// State of the condensing of a mapping, `com.delphix:condensing_indirect`
/// (`spa_condensing_indirect_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CondensingPhys {
    /// The indirect vdev (`scip_vdev`).
    pub vdev: u64,
    /// The obsolete space map that is being worked in (`scip_prev_obsolete_sm_object`).
    pub prev_obsolete_sm_object: u64,
    /// The new mapping (`scip_next_mapping_object`).
    pub next_mapping_object: u64,
}

impl CondensingPhys {
    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the value has fewer than three words.
    pub fn decode(w: &[u64]) -> Result<Self> {
        let w = array::<3>("condensing state", w)?;
        Ok(Self { vdev: w[0], prev_obsolete_sm_object: w[1], next_mapping_object: w[2] })
    }
}

fn array<const N: usize>(what: &'static str, w: &[u64]) -> Result<[u64; N]> {
    w.first_chunk().copied().ok_or(Corrupt::Truncated { what, need: N * 8, have: w.len() * 8 })
}
