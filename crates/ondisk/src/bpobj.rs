//! Lists of block pointers: bpobjs, and the deadlists made of them.
//!
//! # On disk
//! The data of a bpobj is an array of 128-byte block pointers, and its bonus is a [`BpobjPhys`]. It
//! may name another object, which holds the numbers of sub-bpobjs. A deadlist has one of two forms:
//!
//! * one bpobj, in old pools (object type [`crate::DmuType::BPOBJ`])
//! * a ZAP from birth txg to bpobj, whose bonus is a [`DeadlistPhys`] (`DMU_OT_DEADLIST`)

use crate::Result;
use crate::words::words_from;

/// Bytes of one entry of a bpobj.
pub const BPOBJ_ENTRY_SIZE: u64 = 128;

/// Header of a bpobj, in its bonus (`bpobj_phys_t`).
///
/// Old pools lack the later fields, which read as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BpobjPhys {
    /// Block pointers in the object's data (`bpo_num_blkptrs`).
    pub num_blkptrs: u64,
    /// Allocated bytes of these blocks (`bpo_bytes`).
    pub bytes: u64,
    /// Compressed bytes (`bpo_comp`).
    pub comp: u64,
    /// Uncompressed bytes (`bpo_uncomp`).
    pub uncomp: u64,
    /// Object that holds the numbers of the sub-bpobjs, or 0 (`bpo_subobjs`).
    pub subobjs: u64,
    /// How many sub-bpobjs there are (`bpo_num_subobjs`).
    pub num_subobjs: u64,
    /// Entries that mark a freed block instead of an allocated block; livelists only
    /// (`bpo_num_freed`).
    pub num_freed: u64,
    /// True if `comp` and `uncomp` are valid (`bpo_havecomp`): the bonus is of version 1 or later.
    pub have_comp: bool,
}

impl BpobjPhys {
    /// Decodes the bonus, whose length tells its version, 0 to 2.
    ///
    /// # Errors
    /// * [`crate::Corrupt::Truncated`]: the bonus is shorter than version 0, which has 16 bytes.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 7] = words_from("bpobj header", bonus, 2)?;
        Ok(Self {
            num_blkptrs: w[0],
            bytes: w[1],
            comp: w[2],
            uncomp: w[3],
            subobjs: w[4],
            num_subobjs: w[5],
            num_freed: w[6],
            have_comp: bonus.len() >= 32,
        })
    }
}

impl BpobjPhys {
    /// Encodes the bonus, little-endian, with or without the count of freed entries, which
    /// livelists have (`BPOBJ_SIZE_V2`).
    pub fn encode(&self, with_freed: bool) -> Vec<u8> {
        let all = [
            self.num_blkptrs,
            self.bytes,
            self.comp,
            self.uncomp,
            self.subobjs,
            self.num_subobjs,
            self.num_freed,
        ];
        let n = if with_freed { 7 } else { 6 };
        all[..n].iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

/// Bytes of a deadlist's bonus (`sizeof (dsl_deadlist_phys_t)`).
pub const DEADLIST_PHYS_SIZE: usize = 320;

impl DeadlistPhys {
    /// Encodes the bonus, little-endian.
    pub fn encode(&self) -> [u8; DEADLIST_PHYS_SIZE] {
        let mut out = [0; DEADLIST_PHYS_SIZE];
        crate::words::put_words(&mut out, 0, &[self.used, self.comp, self.uncomp]);
        out
    }
}

/// Header of a deadlist, in its bonus (`dsl_deadlist_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlistPhys {
    /// Allocated bytes on the list (`dl_used`).
    pub used: u64,
    /// Compressed bytes (`dl_comp`).
    pub comp: u64,
    /// Uncompressed bytes (`dl_uncomp`).
    pub uncomp: u64,
}

impl DeadlistPhys {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// * [`crate::Corrupt::Truncated`]: the bonus is shorter than its three words.
    pub fn decode(bonus: &[u8]) -> Result<Self> {
        let w: [u64; 3] = crate::words::words("deadlist header", bonus)?;
        Ok(Self { used: w[0], comp: w[1], uncomp: w[2] })
    }
}
