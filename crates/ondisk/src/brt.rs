//! The block reference table: how many clones of a block exist.
//!
//! # On disk
//! For each top-level vdev, the directory of the MOS names an object
//! (`com.fudosecurity:brt:vdev:ID`). The object is an array of 16-bit counts, one for each range of
//! 16 MiB. Its bonus is a [`BrtVdevPhys`], which names the ZAP of entries. The ZAP maps an offset
//! (a key of one 64-bit word) to the number of additional references (a byte string of 8, or one
//! word).

use crate::words::words;
use crate::{Corrupt, Result};

/// Prefix of the names in the directory of the MOS (`BRT_OBJECT_VDEV_PREFIX`).
pub const BRT_VDEV_PREFIX: &str = "com.fudosecurity:brt:vdev:";

/// Header of a vdev's table, in its bonus (`brt_vdev_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrtVdevPhys {
    /// Object of the entries (`bvp_mos_entries`).
    pub mos_entries: u64,
    /// Number of ranges (`bvp_size`).
    pub size: u64,
    /// True if the counts are big-endian (`bvp_byteorder`).
    pub big_endian: bool,
    /// Sum of the counts of all ranges, which is the number of entries (`bvp_totalcount`).
    pub totalcount: u64,
    /// Bytes in a range (`bvp_rangesize`).
    pub rangesize: u64,
    /// Bytes that cloned blocks take (`bvp_usedspace`).
    pub usedspace: u64,
    /// Bytes that the clones would take if they were copies (`bvp_savedspace`).
    pub savedspace: u64,
}

impl BrtVdevPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus is shorter than its seven words.
    /// * [`Corrupt::Range`]: the byte order is neither 0 nor 1.
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

    /// Encodes the bonus, little-endian.
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
