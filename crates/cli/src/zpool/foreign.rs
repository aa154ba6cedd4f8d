//! Contents of a device that don't belong to ZFS, and that a new pool would overwrite.
//!
//! OpenZFS asks libblkid (`check_disk`). This module knows only the marks at which file systems,
//! swap areas and volume containers begin. A device without any may still be in use.

use device::{Device, FileDevice};
use ondisk::label::{LABELS, RING_OFFSET, RING_SIZE, UBERBLOCK_SHIFT, label_offset};
use ondisk::uberblock::UBERBLOCK_MAGIC;

/// The marks by type: byte offset, bytes, name.
const MARKS: [(u64, &[u8], &str); 13] = [
    (0, b"XFSB", "xfs"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (0xff6, b"SWAPSPACE2", "swap"),
    (0xff6, b"SWAP-SPACE", "swap"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (0x218, b"LVM2 001", "LVM2_member"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (3, b"NTFS    ", "ntfs"),
    (3, b"EXFAT   ", "exfat"),
    (0x52, b"FAT32   ", "vfat"),
    (0x36, b"FAT1", "vfat"),
    (0x8001, b"CD001", "iso9660"),
    (0x400, b"\x10\x20\xf5\xf2", "f2fs"),
];
/// The superblock of ext2, ext3 and ext4, its magic number, and the flag of a journal.
const EXT: u64 = 0x400;
const EXT_MAGIC: [u8; 2] = [0x53, 0xef];
const HAS_JOURNAL: u8 = 0x04;
/// All incompatible features beyond ext3: extents, 64-bit numbers, flexible groups and more.
const BEYOND_EXT3: u8 = !0x1f;

#[cfg(test)]
mod tests;

/// Number of uberblocks by which libblkid detects a ZFS member, readable labels or not.
const UBERBLOCKS: usize = 4;

/// The type of a device's contents, by libblkid's name, if it is known.
///
/// `None` if the device also has enough uberblocks: libblkid then finds two types, and reports
/// neither.
pub fn contents(device: &FileDevice) -> Option<&'static str> {
    marked(device).filter(|_| uberblocks(device) < UBERBLOCKS)
}

/// The number of slots in the uberblock rings with the magic number, in either byte order.
fn uberblocks(device: &FileDevice) -> usize {
    let ring = |label| {
        let mut ring = vec![0; RING_SIZE as usize];
        device.read_at(&mut ring, label_offset(device.size(), label)? + RING_OFFSET).ok()?;
        let magic = |slot: &[u8]| {
            let number = slot.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
            number == UBERBLOCK_MAGIC || number.swap_bytes() == UBERBLOCK_MAGIC
        };
        Some(ring.chunks(1 << UBERBLOCK_SHIFT).filter(|slot| magic(slot)).count())
    };
    (0..LABELS).filter_map(ring).sum()
}

/// The type whose mark the device has.
fn marked(device: &FileDevice) -> Option<&'static str> {
    let at = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        // Past the end or unreadable, there is no mark.
        (offset.checked_add(len as u64)? <= device.size()).then_some(())?;
        device.read_at(&mut bytes, offset).ok()?;
        Some(bytes)
    };
    if let Some(sb) = at(EXT, 0x68)
        && sb[0x38..0x3a] == EXT_MAGIC
    {
        let (journal, beyond) = (sb[0x5c] & HAS_JOURNAL != 0, sb[0x60] & BEYOND_EXT3 != 0);
        return Some(match (journal, beyond) {
            (_, true) => "ext4",
            (true, false) => "ext3",
            (false, false) => "ext2",
        });
    }
    MARKS
        .iter()
        .find(|(offset, mark, _)| at(*offset, mark.len()).is_some_and(|bytes| bytes == *mark))
        .map(|m| m.2)
}
