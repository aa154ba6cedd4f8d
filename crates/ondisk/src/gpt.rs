//! GUID partition tables: where a pool's partition is on a disk or in an image.
//!
//! # On disk
//! Sector 1 holds the primary header, and the last sector the backup. A header names the sectors of
//! its array of entries: usually 2 to 33, or the 32 sectors before the backup. It has a CRC-32 of
//! itself and one of the array. All numbers are little-endian. The sector size is that of the disk:
//! an image of a 4096-byte disk has its header at byte 4096.
//!
//! # Absent
//! This module reads no device: the caller passes the sectors. [`mbr`](crate::mbr) decodes the
//! older tables.
//!
//! See the UEFI specification, chapter 5. OpenZFS uses `efi_alloc_and_read`.

use crate::{ByteOrder, Corrupt, Result};

#[cfg(test)]
mod tests;

/// Sector sizes with which discovery looks for a table.
pub const SECTOR_SIZES: [u64; 2] = [512, 4096];
/// Bytes of a header that the format defines.
const HEADER_SIZE: usize = 92;
/// Most entries of a table that the decoder accepts. The usual number is 128.
const MAX_ENTRIES: u32 = 4096;
/// Most bytes of an entry that the decoder accepts. The usual number is 128.
const MAX_ENTRY_SIZE: u32 = 4096;

/// Type of the partitions that OpenZFS makes on Linux and macOS (Solaris `/usr`), in stored byte
/// order (`EFI_USR`).
pub const TYPE_SOLARIS_USR: [u8; 16] =
    [0xc3, 0x8c, 0x89, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];
/// Type of the partitions of a Solaris root, in stored byte order (`EFI_ROOT`).
pub const TYPE_SOLARIS_ROOT: [u8; 16] =
    [0x4f, 0xcf, 0x85, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];
/// Type of the ZFS partitions of FreeBSD, in stored byte order (`EFI_FREEBSD_ZFS`).
pub const TYPE_FREEBSD_ZFS: [u8; 16] =
    [0xba, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b];

/// A checked header of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    sector: u64,
    sectors: u64,
    entries_lba: u64,
    entry_size: u32,
    entries: u32,
    entries_crc: u32,
    backup_lba: u64,
}

/// A partition of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Number of the partition, from 1.
    pub number: u32,
    /// Type of the partition, in stored byte order.
    pub kind: [u8; 16],
    /// Guid of the partition itself, in stored byte order.
    pub guid: [u8; 16],
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes in the partition.
    pub size: u64,
    /// Name of the partition.
    pub name: String,
}

impl Partition {
    /// True if the type is one that ZFS partitions have.
    ///
    /// A partition of another type can hold a pool too: its labels decide.
    pub fn is_zfs(&self) -> bool {
        [TYPE_SOLARIS_USR, TYPE_SOLARIS_ROOT, TYPE_FREEBSD_ZFS].contains(&self.kind)
    }
}

/// Offset of the primary header on a disk with this sector size.
pub fn primary_offset(sector: u64) -> u64 {
    sector
}

/// Offset of the backup header on a disk of `size` bytes; `None` if no table fits on the disk.
///
/// # Panics
/// If `sector` is 0.
pub fn backup_offset(sector: u64, size: u64) -> Option<u64> {
    (size / sector).checked_sub(1).filter(|lba| *lba > 1).map(|lba| lba * sector)
}

impl Header {
    /// Decodes the header in `sector`, which the caller read at byte `at` of a disk of `size`
    /// bytes.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `sector` has fewer than 16 bytes.
    /// * [`Corrupt::Magic`]: there is no table.
    /// * [`Corrupt::Shape`]: the header's checksum is wrong.
    /// * [`Corrupt::Range`]: one of these values is impossible:
    ///   * the size of the header
    ///   * its own sector, which is not at `at`
    ///   * the number of entries, above 4,096
    ///   * the size of an entry, which is not a multiple of 8 between 128 and 4,096
    ///   * the sector of the entries, which pass the end of the disk
    pub fn decode(sector: &[u8], at: u64, size: u64) -> Result<Header> {
        const WHAT: &str = "partition table header";
        let le = ByteOrder::Little;
        let found = le.u64(WHAT, sector, 0)?;
        if found.to_le_bytes() != *b"EFI PART" {
            return Err(Corrupt::Magic { what: WHAT, found });
        }
        let range = |field, value: u64| Corrupt::Range { what: WHAT, field, value };
        let header_size = le.u32(WHAT, sector, 12)?;
        if (header_size as usize) < HEADER_SIZE {
            return Err(range("header size", header_size.into()));
        }
        let bytes = sector.get(..header_size as usize).ok_or(range("header size", header_size.into()))?;
        let mut crc = Crc32::new();
        crc.update(&bytes[..16]).update(&[0; 4]).update(&bytes[20..]);
        if crc.finish() != le.u32(WHAT, sector, 16)? {
            return Err(Corrupt::Shape { what: WHAT, why: "the checksum is wrong" });
        }
        let sector_size = sector.len() as u64;
        let header = Header {
            sector: sector_size,
            sectors: size / sector_size,
            backup_lba: le.u64(WHAT, sector, 32)?,
            entries_lba: le.u64(WHAT, sector, 72)?,
            entries: le.u32(WHAT, sector, 80)?,
            entry_size: le.u32(WHAT, sector, 84)?,
            entries_crc: le.u32(WHAT, sector, 88)?,
        };
        let own = le.u64(WHAT, sector, 24)?;
        if own.checked_mul(sector_size) != Some(at) {
            return Err(range("own sector", own));
        }
        if header.entries > MAX_ENTRIES {
            return Err(range("number of entries", header.entries.into()));
        }
        if header.entry_size < 128
            || header.entry_size > MAX_ENTRY_SIZE
            || !header.entry_size.is_multiple_of(8)
        {
            return Err(range("entry size", header.entry_size.into()));
        }
        let end = header
            .entries_lba
            .checked_mul(sector_size)
            .and_then(|b| b.checked_add(header.entries_len() as u64));
        if end.is_none_or(|end| end > size) {
            return Err(range("sector of the entries", header.entries_lba));
        }
        Ok(header)
    }

    /// Offset of the entries on the disk.
    pub fn entries_offset(&self) -> u64 {
        self.entries_lba * self.sector
    }

    /// Bytes of all entries: at most 16 MiB.
    pub fn entries_len(&self) -> usize {
        self.entries as usize * self.entry_size as usize
    }

    /// Offset of the other header on the disk; `None` if it is beyond any disk.
    pub fn other_offset(&self) -> Option<u64> {
        self.backup_lba.checked_mul(self.sector)
    }

    /// Decodes the used partitions from `entries`, the bytes at [`Header::entries_offset`].
    ///
    /// Partitions that pass the end of the disk are left out.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `entries` is shorter than [`Header::entries_len`].
    /// * [`Corrupt::Shape`]: the checksum of the array is wrong.
    pub fn partitions(&self, entries: &[u8]) -> Result<Vec<Partition>> {
        const WHAT: &str = "partition table entries";
        let need = self.entries_len();
        let raw = entries.get(..need).ok_or(Corrupt::Truncated { what: WHAT, need, have: entries.len() })?;
        if Crc32::new().update(raw).finish() != self.entries_crc {
            return Err(Corrupt::Shape { what: WHAT, why: "the checksum is wrong" });
        }
        let le = ByteOrder::Little;
        let mut found = Vec::new();
        for (i, e) in raw.chunks_exact(self.entry_size as usize).enumerate() {
            let (kind, guid) = (id(&e[..16]), id(&e[16..32]));
            let (first, last) = (le.u64(WHAT, e, 32)?, le.u64(WHAT, e, 40)?);
            if kind == [0; 16] || first > last || last >= self.sectors {
                continue;
            }
            let units =
                e[56..128].as_chunks::<2>().0.iter().map(|u| u16::from_le_bytes(*u)).take_while(|u| *u != 0);
            found.push(Partition {
                number: i as u32 + 1,
                kind,
                guid,
                offset: first * self.sector,
                size: (last - first + 1) * self.sector,
                name: char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect(),
            });
        }
        Ok(found)
    }
}

fn id(raw: &[u8]) -> [u8; 16] {
    let mut b = [0; 16];
    b.copy_from_slice(raw);
    b
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// The CRC-32 of Ethernet and zip.
struct Crc32(u32);

impl Crc32 {
    fn new() -> Self {
        Self(!0)
    }

    fn update(&mut self, data: &[u8]) -> &mut Self {
        for b in data {
            self.0 = self.0 >> 8 ^ CRC_TABLE[usize::from(self.0 as u8 ^ b)];
        }
        self
    }

    fn finish(&self) -> u32 {
        !self.0
    }
}
