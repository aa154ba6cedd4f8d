//! The pool's history: a ring of records.
//!
//! # On disk
//! The data of the history object begin with the record of `zpool create`, which is never
//! overwritten. The rest of the object, up to `phys_max_off`, is a ring. A record is a
//! little-endian 64-bit length and a packed nvlist of that length, and may wrap. Offsets in
//! [`HistoryPhys`] are logical: they only grow.

use crate::words::words;
use crate::{Corrupt, Result};

/// Largest ring that OpenZFS makes (`spa_history_create_obj`). A reader may hold all of it in
/// memory.
const PHYS_MAX: u64 = 1 << 30;

/// Bounds of the ring, in the object's bonus (`spa_history_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryPhys {
    /// Start of the ring: the end of the first record (`sh_pool_create_len`).
    pub pool_create_len: u64,
    /// End of the ring in the object (`sh_phys_max_off`).
    pub phys_max_off: u64,
    /// Logical offset of the oldest record (`sh_bof`).
    pub bof: u64,
    /// Logical offset of the end of the newest record (`sh_eof`).
    pub eof: u64,
    /// Number of overwritten records (`sh_records_lost`).
    pub records_lost: u64,
}

impl HistoryPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the bonus is shorter than its five words.
    /// * [`Corrupt::Shape`]: the ring ends before it begins, has no space or more than 1 GiB, or is
    ///   shorter than its records.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        const WHAT: &str = "history";
        let w: [u64; 5] = words(WHAT, bonus)?;
        let h = Self { pool_create_len: w[0], phys_max_off: w[1], bof: w[2], eof: w[3], records_lost: w[4] };
        let shape = |why| Err(Corrupt::Shape { what: WHAT, why });
        if h.eof < h.bof {
            return shape("it ends before it begins");
        }
        if h.phys_max_off <= h.pool_create_len || h.phys_max_off > PHYS_MAX {
            return shape("its ring has no room or absurdly much");
        }
        if h.eof - h.bof > h.phys_max_off {
            return shape("it is longer than its ring");
        }
        Ok(h)
    }

    /// Encodes the bonus, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let w = [self.pool_create_len, self.phys_max_off, self.bof, self.eof, self.records_lost];
        w.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// Offset in the object of the byte at logical offset `at` (`spa_history_log_to_phys`).
    ///
    /// # Panics
    /// If the ring has no space, which no decoded header has.
    pub fn to_phys(&self, at: u64) -> u64 {
        let ring = self.phys_max_off - self.pool_create_len;
        if at < self.pool_create_len { at } else { (at - self.pool_create_len) % ring + self.pool_create_len }
    }
}
