//! What is left of a removed device: where its blocks went.
//!
//! # On disk
//! The mapping object is an array of [`MappingEntry`]s sorted by source offset, with [`MappingPhys`] as its
//! bonus. The births object is an array of [`BirthEntry`]s sorted by offset, its count in the bonus. Obsolete
//! counts are 32-bit byte counts, one a mapping entry.

use crate::words::{words, words_from};
use crate::{Corrupt, Offset, Result, Txg, VdevId};

/// Header of an indirect mapping, in its bonus (`vdev_indirect_mapping_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MappingPhys {
    /// First offset past everything mapped, in bytes.
    pub max_offset: u64,
    /// Bytes mapped.
    pub bytes_mapped: u64,
    /// Entries in the object.
    pub num_entries: u64,
    /// Object of obsolete counts, or 0 (absent before `obsolete_counts`).
    pub counts_object: u64,
}

impl MappingPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 4] = words_from("indirect mapping", bonus, 3)?;
        Ok(Self { max_offset: w[0], bytes_mapped: w[1], num_entries: w[2], counts_object: w[3] })
    }
}

/// A copied segment (`vdev_indirect_mapping_entry_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingEntry {
    /// Where it was on the removed vdev.
    pub src: Offset,
    /// The top-level vdev it went to, which may be indirect itself.
    pub vdev: VdevId,
    /// Where it is there.
    pub dst: Offset,
    /// Its length in bytes.
    pub size: u64,
}

impl MappingEntry {
    /// Bytes of one entry.
    pub const SIZE: usize = 24;

    /// Decodes one entry.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`]; [`Corrupt::Shape`] for an empty or a wrapping segment.
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

/// Until which txg an offset of the removed vdev was copied (`vdev_indirect_birth_entry_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BirthEntry {
    /// Everything below this offset (and above the entry before) was copied in `phys_birth`.
    pub offset: Offset,
    /// The txg of the copy.
    pub phys_birth: Txg,
}

impl BirthEntry {
    /// Bytes of one entry.
    pub const SIZE: usize = 16;

    /// Decodes one entry.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let w: [u64; 2] = words("indirect births entry", buf)?;
        Ok(Self { offset: Offset(w[0]), phys_birth: Txg(w[1]) })
    }
}

/// The number of entries in a births object, from its bonus (`vdev_indirect_birth_phys_t`).
///
/// # Errors
/// [`Corrupt::Truncated`].
pub fn births_count(bonus: &[u8]) -> Result<u64> {
    let w: [u64; 1] = words("indirect births", bonus)?;
    Ok(w[0])
}

/// State of a device removal, in the MOS directory as `com.delphix:removing` (`spa_removing_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovingPhys {
    /// As [`crate::scan::ScanState`].
    pub state: u64,
    /// Vdev being removed or last removed; `u64::MAX` for none.
    pub removing_vdev: u64,
    /// Vdev removed before; `u64::MAX` for none. Chains through the vdevs' configs.
    pub prev_indirect_vdev: u64,
    /// Seconds since 1970.
    pub start_time: u64,
    /// Seconds since 1970.
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
    /// [`Corrupt::Truncated`].
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

/// A mapping being condensed, `com.delphix:condensing_indirect` (`spa_condensing_indirect_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CondensingPhys {
    /// The indirect vdev.
    pub vdev: u64,
    /// The obsolete space map being worked in.
    pub prev_obsolete_sm_object: u64,
    /// The new mapping.
    pub next_mapping_object: u64,
}

impl CondensingPhys {
    /// Decodes the ZAP value.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`].
    pub fn decode(w: &[u64]) -> Result<Self> {
        let w = array::<3>("condensing state", w)?;
        Ok(Self { vdev: w[0], prev_obsolete_sm_object: w[1], next_mapping_object: w[2] })
    }
}

fn array<const N: usize>(what: &'static str, w: &[u64]) -> Result<[u64; N]> {
    w.first_chunk().copied().ok_or(Corrupt::Truncated { what, need: N * 8, have: w.len() * 8 })
}
