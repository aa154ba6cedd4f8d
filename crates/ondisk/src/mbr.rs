//! Master boot records: the older partition table, on disks that another system partitioned.
//!
//! # On disk
//! The first sector ends in 55 AA. Before that are four entries of 16 bytes, little-endian:
//!
//! * a flag: hexadecimal 80 for the partition to boot from, else 0
//! * a type
//! * the first sector and the number of sectors
//! * both again in cylinders, which no reader uses
//!
//! A disk with a GUID partition table has a record too, whose only entry says so.
//!
//! An entry can be an *extended* partition: a container whose first sector is a record again. That
//! record has one *logical* partition, with an offset from that record. It also has a link to the
//! next record, with an offset from the container. So logical partitions form a chain.
//!
//! # Absent
//! This module reads no device: the caller reads the sectors, follows the chain and bounds it. A
//! record doesn't tell its sector size, so this module assumes 512 bytes, as on nearly all such
//! disks. Labels tell whether a partition holds a pool; its type does not.

use crate::{ByteOrder, Corrupt, Result};

#[cfg(test)]
mod tests;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Offset of the entries.
const ENTRIES: usize = 446;
/// Bytes of an entry.
const ENTRY_SIZE: usize = 16;

/// An entry in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Type of the partition; never 0.
    pub kind: u8,
    /// Offset in bytes, from the base that its record uses.
    pub offset: u64,
    /// Bytes in the partition, at least a sector.
    pub size: u64,
}

impl Entry {
    /// True for a container of logical partitions, or the link to the next one.
    pub fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// True if the entry only says that the disk has a GUID partition table.
    pub fn is_protective(&self) -> bool {
        self.kind == 0xee
    }
}

/// Decodes the four entries of a record, in order; `None` for unused entries.
///
/// Sectors of other kinds end in 55 AA as well.
///
/// # Errors
/// * [`Corrupt::Truncated`]: `sector` has fewer than 512 bytes.
/// * [`Corrupt::Magic`]: the sector does not end in 55 AA.
/// * [`Corrupt::Range`]: the flag of an entry is neither 0 nor hexadecimal 80, so the sector is no
///   record.
pub fn decode(sector: &[u8]) -> Result<[Option<Entry>; 4]> {
    const WHAT: &str = "master boot record";
    let le = ByteOrder::Little;
    let found = le.u16(WHAT, sector, 510)?;
    if found != 0xaa55 {
        return Err(Corrupt::Magic { what: WHAT, found: found.into() });
    }
    let mut entries = [None; 4];
    for (i, entry) in entries.iter_mut().enumerate() {
        let at = ENTRIES + i * ENTRY_SIZE;
        // The bytes behind the entries exist, so the entries exist too.
        let (flag, kind) = (sector[at], sector[at + 4]);
        if flag & 0x7f != 0 {
            return Err(Corrupt::Range { what: WHAT, field: "flag", value: flag.into() });
        }
        let first = u64::from(le.u32(WHAT, sector, at + 8)?);
        let sectors = u64::from(le.u32(WHAT, sector, at + 12)?);
        if kind != 0 && sectors != 0 {
            *entry = Some(Entry { kind, offset: first * SECTOR, size: sectors * SECTOR });
        }
    }
    Ok(entries)
}
