//! Layout of a device's labels: config, boot environment and uberblocks.
//!
//! # On disk
//! A device has four copies of a 256 KiB label, two at its start and two at its end. The end is the
//! size of the device, rounded down to 256 KiB.
//!
//! ```text
//! 0        8K            16K                                128K                        256K
//! | unused | boot env    | config: packed nvlist (112 KiB) | ring of uberblocks (128 KiB) |
//! ```
//!
//! Between the front labels and the data are 3.5 MiB for a boot loader and for raidz expansion. So
//! allocatable space begins at 4 MiB. The boot environment, the config and each uberblock slot end
//! with an embedded checksum ([`Eck`]). Its verifier is the offset of that part on the device.
//!
//! OpenZFS: `include/sys/vdev_impl.h`, `module/zfs/vdev_label.c`.

use crate::{Ashift, ByteOrder, Corrupt, Nvlist, Result};

#[cfg(test)]
mod tests;

/// Bytes of one label (`sizeof (vdev_label_t)`).
pub const LABEL_SIZE: u64 = 256 << 10;
/// Number of labels of a device (`VDEV_LABELS`).
pub const LABELS: usize = 4;
/// Bytes of each of the first two parts of a label (`VDEV_PAD_SIZE`).
pub const PAD_SIZE: u64 = 8 << 10;
/// Offset of the boot environment in a label (`vl_be`).
pub const BOOT_ENV_OFFSET: u64 = PAD_SIZE;
/// Offset of the config in a label (`vl_vdev_phys`).
pub const PHYS_OFFSET: u64 = 2 * PAD_SIZE;
/// Bytes of the config with its embedded checksum (`VDEV_PHYS_SIZE`).
pub const PHYS_SIZE: u64 = 112 << 10;
/// Offset of the ring of uberblocks in a label (`vl_uberblock`).
pub const RING_OFFSET: u64 = PHYS_OFFSET + PHYS_SIZE;
/// Bytes of the ring of uberblocks (`VDEV_UBERBLOCK_RING`).
pub const RING_SIZE: u64 = 128 << 10;
/// Offset on the device of the space for a boot loader (`VDEV_BOOT_OFFSET`).
pub const BOOT_OFFSET: u64 = 2 * LABEL_SIZE;
/// Bytes for a boot loader (`VDEV_BOOT_SIZE`).
pub const BOOT_SIZE: u64 = 7 << 19;
/// Bytes before the allocatable space: 4 MiB (`VDEV_LABEL_START_SIZE`).
pub const LABEL_START_SIZE: u64 = BOOT_OFFSET + BOOT_SIZE;
/// Bytes after the allocatable space (`VDEV_LABEL_END_SIZE`).
pub const LABEL_END_SIZE: u64 = 2 * LABEL_SIZE;
/// Smallest device for a pool: 64 MiB.
pub const SPA_MINDEVSIZE: u64 = 64 << 20;
/// log2 of the smallest uberblock slot.
pub const UBERBLOCK_SHIFT: u8 = 10;
/// log2 of the largest uberblock slot.
pub const MAX_UBERBLOCK_SHIFT: u8 = 13;
/// Slots at the end of the ring that are reserved for multihost writes, if multihost is on.
pub const MMP_BLOCKS_PER_LABEL: usize = 1;
/// Magic number of an embedded checksum.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of an embedded checksum (`sizeof (zio_eck_t)`).
pub const ECK_SIZE: usize = 40;

const _: () = assert!(RING_OFFSET + RING_SIZE == LABEL_SIZE);
const _: () = assert!(LABEL_START_SIZE == 4 << 20);

/// Offset of label `label` on a device of `size` bytes (`vdev_label_offset`).
///
/// `None` if the device is smaller than four labels, or `label` is above 3.
pub fn label_offset(size: u64, label: usize) -> Option<u64> {
    let size = size - size % LABEL_SIZE;
    if size < LABELS as u64 * LABEL_SIZE {
        return None;
    }
    match label {
        0 | 1 => Some(label as u64 * LABEL_SIZE),
        2 | 3 => Some(size - (LABELS - label) as u64 * LABEL_SIZE),
        _ => None,
    }
}

/// log2 of the size of a top-level vdev's uberblock slots (`VDEV_UBERBLOCK_SHIFT`).
pub fn uberblock_shift(ashift: Ashift) -> u8 {
    ashift.0.clamp(UBERBLOCK_SHIFT, MAX_UBERBLOCK_SHIFT)
}

/// Number of uberblock slots of `1 << shift` bytes in a ring (`VDEV_UBERBLOCK_COUNT`).
///
/// # Panics
/// If `shift` is not a value of [`uberblock_shift`].
pub fn uberblock_count(shift: u8) -> usize {
    assert!((UBERBLOCK_SHIFT..=MAX_UBERBLOCK_SHIFT).contains(&shift), "shift of an uberblock slot");
    (RING_SIZE >> shift) as usize
}

/// Offset in the label of uberblock slot `slot` (`VDEV_UBERBLOCK_OFFSET`).
///
/// # Panics
/// If `shift` is not a value of [`uberblock_shift`], or the ring has no such slot.
pub fn uberblock_offset(shift: u8, slot: usize) -> u64 {
    assert!(slot < uberblock_count(shift), "number of an uberblock slot");
    RING_OFFSET + ((slot as u64) << shift)
}

/// The embedded checksum at the end of a part of a label, a gang header or an old log block
/// (`zio_eck_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eck {
    /// Byte order of the part's writer.
    pub order: ByteOrder,
    /// The four words of the checksum (`zec_cksum`).
    pub cksum: [u64; 4],
}

impl Eck {
    /// Decodes the embedded checksum at the end of `part`, without verifying it.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `part` has fewer than 40 bytes.
    /// * [`Corrupt::Magic`]: the magic number is wrong.
    pub fn at_end(part: &[u8]) -> Result<Eck> {
        const WHAT: &str = "embedded checksum";
        let at = part.len().checked_sub(ECK_SIZE).ok_or(Corrupt::Truncated {
            what: WHAT,
            need: ECK_SIZE,
            have: part.len(),
        })?;
        let found = ByteOrder::Little.u64(WHAT, part, at)?;
        let order = ByteOrder::by_magic(found, ZEC_MAGIC).ok_or(Corrupt::Magic { what: WHAT, found })?;
        let mut cksum = [0; 4];
        for (i, c) in cksum.iter_mut().enumerate() {
            *c = order.u64(WHAT, part, at + 8 + 8 * i)?;
        }
        Ok(Eck { order, cksum })
    }
}

/// Decodes the config of a label: the nvlist in a part of [`PHYS_SIZE`] bytes (`vdev_phys_t`).
///
/// The caller has verified the checksum of the part.
///
/// # Errors
/// * [`Corrupt::Truncated`]: the part does not have exactly [`PHYS_SIZE`] bytes.
/// * [`Corrupt::Truncated`], [`Corrupt::Range`] and [`Corrupt::Shape`]: the list has a fault that
///   [`Nvlist::decode`] lists.
pub fn decode_phys(part: &[u8]) -> Result<Nvlist> {
    if part.len() != PHYS_SIZE as usize {
        return Err(Corrupt::Truncated { what: "label config", need: PHYS_SIZE as usize, have: part.len() });
    }
    Nvlist::decode(&part[..part.len() - ECK_SIZE])
}

/// The boot environment: what a boot loader keeps in a label (`vdev_boot_envblock_t`).
#[derive(Debug, Clone, PartialEq)]
pub enum BootEnv {
    /// Text, such as `grubenv` (`VB_RAW`).
    Raw(Vec<u8>),
    /// An nvlist (`VB_NVLIST`).
    Nvlist(Nvlist),
}

impl BootEnv {
    /// Decodes the boot environment in a part of [`PAD_SIZE`] bytes; `None` if it was never
    /// written.
    ///
    /// The caller has verified the checksum of the part.
    ///
    /// # Errors
    /// * [`Corrupt::Truncated`]: `part` has fewer than 48 bytes.
    /// * [`Corrupt::Magic`]: the part has no embedded checksum.
    /// * [`Corrupt::Range`]: the version is neither `VB_RAW` nor `VB_NVLIST`.
    /// * [`Corrupt::Truncated`], [`Corrupt::Range`] and [`Corrupt::Shape`]: the list has a fault
    ///   that [`Nvlist::decode`] lists.
    pub fn decode(part: &[u8]) -> Result<Option<BootEnv>> {
        const WHAT: &str = "boot environment";
        let order = Eck::at_end(part)?.order;
        let body = part.get(8..part.len() - ECK_SIZE).ok_or(Corrupt::Truncated {
            what: WHAT,
            need: 8 + ECK_SIZE,
            have: part.len(),
        })?;
        match order.u64(WHAT, part, 0)? {
            0 => {
                let end = body.iter().position(|b| *b == 0).unwrap_or(body.len());
                Ok((end != 0).then(|| BootEnv::Raw(body[..end].to_vec())))
            }
            1 => Ok(Some(BootEnv::Nvlist(Nvlist::decode(body)?))),
            value => Err(Corrupt::Range { what: WHAT, field: "version", value }),
        }
    }
}
