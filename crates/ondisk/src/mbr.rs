//! Master boot records: the older kind of partition table, on disks that some other system divided.
//!
//! # On disk
//! The first sector ends in 55 AA; before that are four entries of 16 bytes, little-endian: a flag (80 where a machine should boot
//! from, else 0), a type, a first sector and a number of sectors (and the same twice in cylinders, which nobody reads). A disk
//! with a GUID partition table has a record too, whose only entry says so.
//!
//! An entry may be an *extended* partition: a container whose first sector is a record again, with one *logical* partition, counted
//! from that record, and a link to the next record, counted from the container. So logical partitions form a chain.
//!
//! # Absent
//! This module reads nothing: the caller reads the sectors, follows the chain and ends it. A record doesn't say how large its sectors
//! are: 512 bytes are taken for granted, as on nearly all disks that have one. Labels decide whether there is a pool: the type doesn't.

use crate::{ByteOrder, Corrupt, Result};

#[cfg(test)]
mod tests;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Where the entries begin.
const ENTRIES: usize = 446;
/// Bytes of an entry.
const ENTRY_SIZE: usize = 16;

/// An entry in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its type; 0 is never in use.
    pub kind: u8,
    /// First byte, counted from what its record counts from.
    pub offset: u64,
    /// Bytes, at least a sector.
    pub size: u64,
}

impl Entry {
    /// Whether it is a container of logical partitions, or the link to the next one.
    pub fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// Whether it only says that the disk has a GUID partition table.
    pub fn is_protective(&self) -> bool {
        self.kind == 0xee
    }
}

/// The four entries of a record, each in its place; `None` for those that are not in use.
///
/// # Errors
/// [`Corrupt`] when the sector is no record: other things begin with a sector that ends in 55 AA as well.
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
        // What is behind the entries could be read, so they are there.
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
