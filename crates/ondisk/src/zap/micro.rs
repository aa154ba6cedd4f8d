//! Micro ZAPs (`mzap_phys_t`).

use super::ZBT_MICRO;
use crate::bytes::le64;
use crate::{Corrupt, Result};

/// Size of a slot, and of the header before the slots (`MZAP_ENT_LEN`).
pub const MICRO_ENTRY_SIZE: usize = 64;
/// Longest name in a micro ZAP, without its NUL (`MZAP_NAME_LEN - 1`).
pub const MICRO_NAME_MAX: usize = 49;
/// Largest micro ZAP, with the `large_microzap` feature (`MZAP_MAX_SIZE`).
const MZAP_MAX_SIZE: usize = 1 << 20;

const WHAT: &str = "micro ZAP";

/// A view of a micro ZAP's block.
///
/// ```text
/// 0  type   8 salt   16 normflags   24..64 unused   64.. slots
/// slot: 0 value (8)   8 cd (4)   12 unused (2)   14 name (50, NUL-terminated; empty: free slot)
/// ```
#[derive(Debug, Clone, Copy)]
pub struct MicroZap<'a> {
    buf: &'a [u8],
    /// Start value of the hash (`mz_salt`).
    pub salt: u64,
    /// How names are normalized before their hash is computed (`mz_normflags`).
    pub normflags: u64,
}

/// One entry of a micro ZAP (`mzap_ent_phys_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// The name, without its NUL (`mze_name`).
    pub name: &'a [u8],
    /// The value (`mze_value`).
    pub value: u64,
    /// Collision differentiator, by which names with the same hash differ (`mze_cd`).
    pub cd: u32,
}

impl<'a> MicroZap<'a> {
    /// Decodes the micro ZAP in `buf`, a whole block.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `buf` has fewer than 128 bytes.
    /// * [`Corrupt::Range`]: the block size is not a multiple of 64, or above 1 MiB.
    /// * [`Corrupt::Magic`]: the block is not a micro ZAP.
    pub fn parse(buf: &'a [u8]) -> Result<Self> {
        if buf.len() < 2 * MICRO_ENTRY_SIZE {
            return Err(Corrupt::Truncated { what: WHAT, need: 2 * MICRO_ENTRY_SIZE, have: buf.len() });
        }
        if buf.len() > MZAP_MAX_SIZE || !buf.len().is_multiple_of(MICRO_ENTRY_SIZE) {
            return Err(Corrupt::Range { what: WHAT, field: "block size", value: buf.len() as u64 });
        }
        let found = le64(buf, 0);
        if found != ZBT_MICRO {
            return Err(Corrupt::Magic { what: WHAT, found });
        }
        Ok(Self { buf, salt: le64(buf, 8), normflags: le64(buf, 16) })
    }

    /// Number of slots, used and free.
    pub fn slots(&self) -> usize {
        self.buf.len() / MICRO_ENTRY_SIZE - 1
    }

    /// The entry in slot `i`; `None` if the slot is free or does not exist.
    ///
    /// # Errors
    /// * [`Corrupt::Shape`]: the name has no NUL.
    /// * [`Corrupt::Range`]: the collision differentiator is above 65,535.
    pub fn entry(&self, i: usize) -> Result<Option<MicroEntry<'a>>> {
        if i >= self.slots() {
            return Ok(None);
        }
        let e = &self.buf[(i + 1) * MICRO_ENTRY_SIZE..][..MICRO_ENTRY_SIZE];
        let field = &e[14..];
        if field[0] == 0 {
            return Ok(None);
        }
        let len = field
            .iter()
            .position(|&b| b == 0)
            .ok_or(Corrupt::Shape { what: WHAT, why: "a name has no end" })?;
        let cd = u32::from_le_bytes([e[8], e[9], e[10], e[11]]);
        if cd > 0xffff {
            return Err(Corrupt::Range { what: WHAT, field: "collision differentiator", value: cd.into() });
        }
        Ok(Some(MicroEntry { name: &field[..len], value: le64(e, 0), cd }))
    }

    /// All entries, in the order of slots; an item can be an error that [`MicroZap::entry`] lists.
    pub fn entries(&self) -> impl Iterator<Item = Result<MicroEntry<'a>>> + use<'a> {
        let z = *self;
        (0..z.slots()).filter_map(move |i| z.entry(i).transpose())
    }
}

/// A mutable view of a micro ZAP's block. Slot numbers are those of [`MicroZap`].
#[derive(Debug)]
pub struct MicroZapMut<'a>(&'a mut [u8]);

impl<'a> MicroZapMut<'a> {
    /// Decodes the micro ZAP in `buf`.
    ///
    /// # Errors
    /// The variants and causes that [`MicroZap::parse`] lists.
    pub fn parse(buf: &'a mut [u8]) -> Result<Self> {
        MicroZap::parse(buf)?;
        Ok(Self(buf))
    }

    /// Makes `buf` a micro ZAP without entries; `buf` has whole slots of at least 512 bytes in all
    /// (`mzap_create_impl`).
    ///
    /// # Panics
    /// If `buf` is too short for the header.
    pub fn init(buf: &'a mut [u8], salt: u64, normflags: u64) -> Self {
        buf.fill(0);
        buf[..8].copy_from_slice(&ZBT_MICRO.to_le_bytes());
        buf[8..16].copy_from_slice(&salt.to_le_bytes());
        buf[16..24].copy_from_slice(&normflags.to_le_bytes());
        Self(buf)
    }

    fn slot(&mut self, i: usize) -> &mut [u8] {
        &mut self.0[(i + 1) * MICRO_ENTRY_SIZE..][..MICRO_ENTRY_SIZE]
    }

    /// Sets the entry in slot `i` (`mze_insert`).
    ///
    /// # Panics
    /// If the slot doesn't exist, or the name is empty or longer than [`MICRO_NAME_MAX`].
    pub fn set(&mut self, i: usize, name: &[u8], value: u64, cd: u32) {
        assert!((1..=MICRO_NAME_MAX).contains(&name.len()), "a micro ZAP's names have 1 to 49 bytes");
        let slot = self.slot(i);
        slot.fill(0);
        slot[..8].copy_from_slice(&value.to_le_bytes());
        slot[8..12].copy_from_slice(&cd.to_le_bytes());
        slot[14..14 + name.len()].copy_from_slice(name);
    }

    /// Sets the value in slot `i`.
    ///
    /// # Panics
    /// If the slot doesn't exist.
    pub fn set_value(&mut self, i: usize, value: u64) {
        self.slot(i)[..8].copy_from_slice(&value.to_le_bytes());
    }

    /// Frees slot `i`.
    ///
    /// # Panics
    /// If the slot doesn't exist.
    pub fn clear(&mut self, i: usize) {
        self.slot(i).fill(0);
    }
}
