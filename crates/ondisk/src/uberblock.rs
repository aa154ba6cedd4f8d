//! The uberblock: the root of one transaction group, which the sync thread writes last.
//!
//! # On disk
//! An uberblock has 216 bytes, at the start of a slot of the ring in a label (see
//! [`crate::label`]). The slot ends with an embedded checksum. The magic number tells the writer's
//! byte order.
//!
//! | offset | field |
//! |---|---|
//! | 0 | magic |
//! | 8 | version |
//! | 16 | txg |
//! | 24 | sum of all vdevs' guids |
//! | 32 | time, seconds |
//! | 40 | block pointer of the MOS (128 bytes) |
//! | 168 | software version |
//! | 176 | multihost: magic, delay in ns, config |
//! | 200 | txg of the checkpoint that this is |
//! | 208 | raidz expansion: state and offset |
//!
//! OpenZFS: `include/sys/uberblock_impl.h`.

use std::cmp::Ordering;

use strum::FromRepr;

use crate::{ByteOrder, Corrupt, Result, Txg, bytes};

#[cfg(test)]
mod tests;

/// Magic number of an uberblock.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// Magic number of the multihost fields.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Bytes of the fields of an uberblock (`sizeof (uberblock_t)`).
pub const UBERBLOCK_SIZE: usize = 216;
/// Bytes of a block pointer (`sizeof (blkptr_t)`).
const BLKPTR_SIZE: usize = 128;

/// A decoded uberblock (`uberblock_t`).
#[derive(Clone, PartialEq, Eq)]
pub struct Uberblock {
    /// Byte order of the writer.
    pub order: ByteOrder,
    /// Pool version of the writer (`ub_version`).
    pub version: u64,
    /// Transaction group of the uberblock (`ub_txg`).
    pub txg: Txg,
    /// Sum of the guids of all vdevs, modulo 2^64, which tells whether a vdev is missing
    /// (`ub_guid_sum`).
    pub guid_sum: u64,
    /// Time of the write, in seconds since 1970 (`ub_timestamp`).
    pub timestamp: u64,
    /// Block pointer of the MOS's object set, in little-endian words, whatever the writer's byte
    /// order (`ub_rootbp`).
    pub rootbp: [u8; BLKPTR_SIZE],
    /// Highest pool version that the writer knew (`ub_software_version`).
    pub software_version: u64,
    /// Multihost protection; `None` if the writer didn't know it (`ub_mmp_magic`).
    pub mmp: Option<Mmp>,
    /// In a checkpoint, the transaction group at which it was taken; else 0 (`ub_checkpoint_txg`).
    pub checkpoint_txg: Txg,
    /// Progress of a raidz expansion (`ub_raidz_reflow_info`).
    pub raidz_reflow: RaidzReflow,
}

/// The multihost fields of an uberblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mmp {
    /// Nanoseconds since the last multihost write; 0 with multihost off (`ub_mmp_delay`).
    pub delay_ns: u64,
    /// The other fields, as stored (`ub_mmp_config`).
    pub config: u64,
}

impl Mmp {
    /// Milliseconds between the writes to one leaf, if valid (`MMP_INTERVAL`).
    pub fn interval_ms(self) -> Option<u64> {
        (self.config & 1 != 0).then_some(self.config >> 8 & 0xff_ffff)
    }

    /// Sequence number of the write within its second, if valid (`MMP_SEQ`).
    pub fn seq(self) -> Option<u16> {
        (self.config & 2 != 0).then_some((self.config >> 32) as u16)
    }

    /// Number of intervals without a write after which the owner suspends the pool, if valid
    /// (`MMP_FAIL_INT`).
    pub fn fail_intervals(self) -> Option<u16> {
        (self.config & 4 != 0).then_some((self.config >> 48) as u16)
    }

    /// The bits of [`Mmp::config`] that tell which fields are valid; `zdb` prints them as
    /// `mmp_valid`.
    pub fn valid_bits(self) -> u8 {
        self.config as u8
    }
}

/// Progress of a raidz expansion (`ub_raidz_reflow_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RaidzReflow {
    /// State of the scratch area (`RRSS_GET_STATE`).
    pub scratch: ScratchState,
    /// Bytes reflowed so far (`RRSS_GET_OFFSET`).
    pub offset: u64,
}

/// State of the scratch area of a raidz expansion (`raidz_reflow_scratch_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromRepr)]
#[repr(u16)]
pub enum ScratchState {
    /// The scratch area is not in use (`RRSS_SCRATCH_NOT_IN_USE`).
    #[default]
    NotInUse = 0,
    /// The scratch area holds data (`RRSS_SCRATCH_VALID`).
    Valid = 1,
    /// The expansion has copied the data back (`RRSS_SCRATCH_INVALID_SYNCED`).
    InvalidSynced = 2,
    /// An import has copied the data back (`RRSS_SCRATCH_INVALID_SYNCED_ON_IMPORT`).
    InvalidSyncedOnImport = 3,
    /// The data are copied back, and the reflow has continued
    /// (`RRSS_SCRATCH_INVALID_SYNCED_REFLOW`).
    InvalidSyncedReflow = 4,
}

impl RaidzReflow {
    fn from_disk(v: u64) -> Result<Self> {
        let state = (v >> 55) as u16;
        let scratch = ScratchState::from_repr(state).ok_or(Corrupt::Range {
            what: "uberblock",
            field: "raidz reflow state",
            value: state.into(),
        })?;
        let sectors = v & ((1 << 55) - 1);
        Ok(Self { scratch, offset: sectors << crate::SPA_MINBLOCKSHIFT })
    }

    fn to_disk(self) -> u64 {
        (self.scratch as u64) << 55 | self.offset >> crate::SPA_MINBLOCKSHIFT
    }
}

impl Uberblock {
    /// Decodes the uberblock at the start of a slot, without verifying its checksum.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: the slot has fewer than [`UBERBLOCK_SIZE`] bytes.
    /// * [`Corrupt::Magic`]: the slot is unused.
    /// * [`Corrupt::Range`]: the state of the raidz expansion is unknown.
    pub fn decode(slot: &[u8]) -> Result<Self> {
        const WHAT: &str = "uberblock";
        if slot.len() < UBERBLOCK_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: UBERBLOCK_SIZE, have: slot.len() });
        }
        let found = bytes::le64(slot, 0);
        let order =
            ByteOrder::by_magic(found, UBERBLOCK_MAGIC).ok_or(Corrupt::Magic { what: WHAT, found })?;
        let word = |at| order.u64(WHAT, slot, at);
        let mut rootbp = [0; BLKPTR_SIZE];
        rootbp.copy_from_slice(&slot[40..40 + BLKPTR_SIZE]);
        if order == ByteOrder::Big {
            bytes::swap64(&mut rootbp);
        }
        Ok(Self {
            order,
            version: word(8)?,
            txg: Txg(word(16)?),
            guid_sum: word(24)?,
            timestamp: word(32)?,
            rootbp,
            software_version: word(168)?,
            mmp: (word(176)? == MMP_MAGIC).then_some(Mmp { delay_ns: word(184)?, config: word(192)? }),
            checkpoint_txg: Txg(word(200)?),
            raidz_reflow: RaidzReflow::from_disk(word(208)?)?,
        })
    }

    /// Encodes the uberblock, little-endian.
    pub fn encode(&self) -> [u8; UBERBLOCK_SIZE] {
        let mut out = [0; UBERBLOCK_SIZE];
        let mut put = |at: usize, v: u64| out[at..at + 8].copy_from_slice(&v.to_le_bytes());
        put(0, UBERBLOCK_MAGIC);
        put(8, self.version);
        put(16, self.txg.0);
        put(24, self.guid_sum);
        put(32, self.timestamp);
        put(168, self.software_version);
        if let Some(mmp) = self.mmp {
            put(176, MMP_MAGIC);
            put(184, mmp.delay_ns);
            put(192, mmp.config);
        }
        put(200, self.checkpoint_txg.0);
        put(208, self.raidz_reflow.to_disk());
        out[40..40 + BLKPTR_SIZE].copy_from_slice(&self.rootbp);
        out
    }

    /// The multihost sequence number, 0 if there is none.
    fn seq(&self) -> u16 {
        self.mmp.and_then(Mmp::seq).unwrap_or(0)
    }

    /// Compares two uberblocks: by transaction group, then time, then multihost sequence number
    /// (`vdev_uberblock_compare`).
    ///
    /// The newer one is the greater.
    pub fn newer(&self, other: &Self) -> Ordering {
        (self.txg, self.timestamp, self.seq()).cmp(&(other.txg, other.timestamp, other.seq()))
    }
}

impl std::fmt::Debug for Uberblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uberblock")
            .field("order", &self.order)
            .field("version", &self.version)
            .field("txg", &self.txg)
            .field("guid_sum", &self.guid_sum)
            .field("timestamp", &self.timestamp)
            .field("software_version", &self.software_version)
            .field("mmp", &self.mmp)
            .field("checkpoint_txg", &self.checkpoint_txg)
            .field("raidz_reflow", &self.raidz_reflow)
            .finish_non_exhaustive()
    }
}
