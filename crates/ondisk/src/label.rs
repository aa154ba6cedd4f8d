//! Layout of the labels of a device: where the config, the boot environment and the uberblocks are.
//!
//! # On disk
//! A device holds four copies of a 256 KiB label: two at its start, two at its end (its size rounded down to 256 KiB).
//!
//! ```text
//! 0        8K            16K                                128K                        256K
//! | unused | boot env    | config: packed nvlist (112 KiB) | ring of uberblocks (128 KiB) |
//! ```
//!
//! Between the front labels and the data lie 3.5 MiB for a boot loader (and for raidz expansion), so allocatable space begins
//! at 4 MiB. The boot environment, the config and every uberblock slot each end with an embedded checksum ([`Eck`]), whose verifier is the
//! part's own offset on the device.
//!
//! See OpenZFS `include/sys/vdev_impl.h`, `module/zfs/vdev_label.c`.

use crate::{Ashift, ByteOrder, Corrupt, Nvlist, Result};

#[cfg(test)]
mod tests;

/// Bytes of one label (`sizeof (vdev_label_t)`).
pub const LABEL_SIZE: u64 = 256 << 10;
/// Labels of a device (`VDEV_LABELS`).
pub const LABELS: usize = 4;
/// Bytes of each of the two first parts of a label (`VDEV_PAD_SIZE`).
pub const PAD_SIZE: u64 = 8 << 10;
/// Offset of the boot environment in a label (`vl_be`).
pub const BOOT_ENV_OFFSET: u64 = PAD_SIZE;
/// Offset of the config in a label (`vl_vdev_phys`).
pub const PHYS_OFFSET: u64 = 2 * PAD_SIZE;
/// Bytes of the config with its embedded checksum (`VDEV_PHYS_SIZE`).
pub const PHYS_SIZE: u64 = 112 << 10;
/// Offset of the uberblocks in a label (`vl_uberblock`).
pub const RING_OFFSET: u64 = PHYS_OFFSET + PHYS_SIZE;
/// Bytes of the ring of uberblocks (`VDEV_UBERBLOCK_RING`).
pub const RING_SIZE: u64 = 128 << 10;
/// Offset on the device of the space for a boot loader (`VDEV_BOOT_OFFSET`).
pub const BOOT_OFFSET: u64 = 2 * LABEL_SIZE;
/// Bytes for a boot loader (`VDEV_BOOT_SIZE`).
pub const BOOT_SIZE: u64 = 7 << 19;
/// Bytes before the allocatable space: 4 MiB (`VDEV_LABEL_START_SIZE`).
pub const LABEL_START_SIZE: u64 = BOOT_OFFSET + BOOT_SIZE;
/// Bytes behind the allocatable space (`VDEV_LABEL_END_SIZE`).
pub const LABEL_END_SIZE: u64 = 2 * LABEL_SIZE;
/// Smallest device that a pool takes: 64 MiB (`SPA_MINDEVSIZE`).
pub const SPA_MINDEVSIZE: u64 = 64 << 20;
/// log2 of the smallest uberblock slot (`UBERBLOCK_SHIFT`).
pub const UBERBLOCK_SHIFT: u8 = 10;
/// log2 of the largest uberblock slot (`MAX_UBERBLOCK_SHIFT`).
pub const MAX_UBERBLOCK_SHIFT: u8 = 13;
/// Slots at the end of the ring that are set aside for multihost writes, when multihost is on (`MMP_BLOCKS_PER_LABEL`).
pub const MMP_BLOCKS_PER_LABEL: usize = 1;
/// Magic of an embedded checksum (`ZEC_MAGIC`).
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of an embedded checksum (`sizeof (zio_eck_t)`).
pub const ECK_SIZE: usize = 40;

const _: () = assert!(RING_OFFSET + RING_SIZE == LABEL_SIZE);
const _: () = assert!(LABEL_START_SIZE == 4 << 20);

/// Offset of label `label` (0 to 3) on a device of `size` bytes; `None` when the device has no room for four labels
/// (`vdev_label_offset`).
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

/// log2 of the size of the uberblock slots of a top-level vdev (`VDEV_UBERBLOCK_SHIFT`).
pub fn uberblock_shift(ashift: Ashift) -> u8 {
    ashift.0.clamp(UBERBLOCK_SHIFT, MAX_UBERBLOCK_SHIFT)
}

/// Number of uberblock slots in a ring whose slots are `1 << shift` bytes (`VDEV_UBERBLOCK_COUNT`).
///
/// # Panics
/// When `shift` is not one of [`uberblock_shift`].
pub fn uberblock_count(shift: u8) -> usize {
    assert!((UBERBLOCK_SHIFT..=MAX_UBERBLOCK_SHIFT).contains(&shift), "shift of an uberblock slot");
    (RING_SIZE >> shift) as usize
}

/// Offset in the label of uberblock slot `slot` (`VDEV_UBERBLOCK_OFFSET`).
pub fn uberblock_offset(shift: u8, slot: usize) -> u64 {
    assert!(slot < uberblock_count(shift), "number of an uberblock slot");
    RING_OFFSET + ((slot as u64) << shift)
}

/// The checksum at the end of a part of a label, of a gang header, of an old log block (`zio_eck_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eck {
    /// Byte order of whoever wrote the part.
    pub order: ByteOrder,
    /// The four words of the checksum.
    pub cksum: [u64; 4],
}

impl Eck {
    /// The embedded checksum at the end of `part`; says nothing about whether it is right.
    ///
    /// # Errors
    /// [`Corrupt`] when `part` is too short or its magic wrong.
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

/// The config of a label: the nvlist in a [`PHYS_SIZE`] part, whose checksum the caller has verified.
///
/// # Errors
/// [`Corrupt`] when the part has the wrong size or holds no list.
pub fn decode_phys(part: &[u8]) -> Result<Nvlist> {
    if part.len() != PHYS_SIZE as usize {
        return Err(Corrupt::Truncated { what: "label config", need: PHYS_SIZE as usize, have: part.len() });
    }
    Nvlist::decode(&part[..part.len() - ECK_SIZE])
}

/// What a boot loader keeps in a label (`vdev_boot_envblock_t`).
#[derive(Debug, Clone, PartialEq)]
pub enum BootEnv {
    /// Text, as `grubenv` (`VB_RAW`).
    Raw(Vec<u8>),
    /// A list (`VB_NVLIST`).
    Nvlist(Nvlist),
}

impl BootEnv {
    /// The environment in a [`PAD_SIZE`] part whose checksum the caller has verified; `None` when it was never written.
    ///
    /// # Errors
    /// [`Corrupt`] when it is of an unknown kind or holds no list.
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
