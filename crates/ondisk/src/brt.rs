//! The block reference table: how often blocks were cloned.
//!
//! # On disk
//! Per top-level vdev the MOS directory names (`com.fudosecurity:brt:vdev:ID`) an object of 16-bit counts, one a 16 MiB
//! range, with [`BrtVdevPhys`] as its bonus; that names a ZAP from offset (one 64-bit key word) to the number of extra
//! references (one byte string of 8, or one word).

use crate::words::words;
use crate::{Corrupt, Result};

/// Prefix of the MOS directory's names (`BRT_OBJECT_VDEV_PREFIX`).
pub const BRT_VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";

/// Header of a vdev's table, in its bonus (`brt_vdev_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrtVdevPhys {
    /// Object of the entries.
    pub mos_entries: u64,
    /// Number of ranges.
    pub size: u64,
    /// True if the counts are big-endian.
    pub big_endian: bool,
    /// Sum of all ranges' counts: the number of entries.
    pub totalcount: u64,
    /// Bytes a range spans.
    pub rangesize: u64,
    /// Bytes that cloned blocks take.
    pub usedspace: u64,
    /// Bytes that their clones would take in addition.
    pub savedspace: u64,
}

impl BrtVdevPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt::Truncated`]; [`Corrupt::Range`] for an unknown byte order.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 7] = words("BRT vdev", bonus)?;
        if w[2] > 1 {
            return Err(Corrupt::Range { what: "BRT vdev", field: "byte order", value: w[2] });
        }
        Ok(Self {
            mos_entries: w[0],
            size: w[1],
            big_endian: w[2] == 1,
            totalcount: w[3],
            rangesize: w[4],
            usedspace: w[5],
            savedspace: w[6],
        })
    }

    /// The bonus.
    pub fn encode(&self) -> Vec<u8> {
        let order = self.big_endian.into();
        let w = [
            self.mos_entries,
            self.size,
            order,
            self.totalcount,
            self.rangesize,
            self.usedspace,
            self.savedspace,
        ];
        w.iter().flat_map(|v| v.to_le_bytes()).collect()
    }
}
