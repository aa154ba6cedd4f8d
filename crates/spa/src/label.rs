//! Reading the labels and uberblocks of one device.
//!
//! # Theory
//! Each of a device's four labels stands for itself: a copy counts when its checksum, bound to its own place on the device,
//! verifies and its list makes sense. Copies may differ, since a config change rewrites two of them, flushes, and rewrites
//! the others: the newest that is not newer than the pool's state is the right one.

use codec::checksum::embedded::{Verifier, verify};
use device::{Device, DeviceError};
use ondisk::config::PoolState;
use ondisk::label::{
    BOOT_ENV_OFFSET, BootEnv, LABELS, PAD_SIZE, PHYS_OFFSET, PHYS_SIZE, RING_OFFSET, RING_SIZE, decode_phys,
    label_offset, uberblock_count, uberblock_shift,
};
use ondisk::{Ashift, Corrupt, PoolConfig, Txg, Uberblock};

#[cfg(test)]
mod tests;

/// Why one copy of a label is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The device is too small for labels.
    #[error("the device has no room for labels")]
    NoRoom,
    /// The medium failed.
    #[error("read the label")]
    Io(#[source] DeviceError),
    /// Its checksum does not verify: never written, damaged, or copied from elsewhere.
    #[error("verify the label")]
    Checksum(#[source] codec::Error),
    /// Its contents mean nothing.
    #[error("decode the label")]
    Corrupt(#[source] Corrupt),
}

/// The four labels of a device.
#[derive(Debug)]
pub struct Labels {
    /// Bytes of the device.
    pub size: u64,
    /// Each copy, or what is wrong with it.
    pub copies: [Result<PoolConfig, LabelError>; LABELS],
}

impl Labels {
    /// Reads all four.
    pub fn read(device: &dyn Device) -> Labels {
        Labels { size: device.size(), copies: std::array::from_fn(|l| read_config(device, l)) }
    }

    /// Number of copies that verify (`ne_num_labels`).
    pub fn valid(&self) -> usize {
        self.copies.iter().flatten().count()
    }

    /// The newest config whose txg is at most `max` (`vdev_label_read_config`). Labels without a txg, those of spares, of
    /// cache devices and of devices half added, count as old as can be.
    pub fn best(&self, max: Txg) -> Option<&PoolConfig> {
        // Of equals the first copy is taken.
        self.copies.iter().flatten().filter(|c| c.txg <= max).rev().max_by_key(|c| c.txg)
    }

    /// The newest config whatever its txg, leaving out those of devices whose addition never finished: these belong to no pool.
    pub fn newest(&self) -> Option<&PoolConfig> {
        let aux = |c: &PoolConfig| matches!(c.state, PoolState::Spare | PoolState::L2cache);
        self.best(Txg(u64::MAX)).filter(|c| aux(c) || c.txg != Txg(0))
    }
}

fn read_part(device: &dyn Device, label: usize, at: u64, size: u64) -> Result<Vec<u8>, LabelError> {
    let start = label_offset(device.size(), label).ok_or(LabelError::NoRoom)? + at;
    let mut part = vec![0; size as usize];
    device.read_at(&mut part, start).map_err(LabelError::Io)?;
    Ok(part)
}

fn verified_part(device: &dyn Device, label: usize, at: u64, size: u64) -> Result<Vec<u8>, LabelError> {
    let offset = label_offset(device.size(), label).ok_or(LabelError::NoRoom)? + at;
    let part = read_part(device, label, at, size)?;
    verify(&Verifier::Label { offset }, &part, false).map_err(LabelError::Checksum)?;
    Ok(part)
}

fn read_config(device: &dyn Device, label: usize) -> Result<PoolConfig, LabelError> {
    let part = verified_part(device, label, PHYS_OFFSET, PHYS_SIZE)?;
    decode_phys(&part).and_then(|nv| PoolConfig::from_nvlist(&nv)).map_err(LabelError::Corrupt)
}

/// The boot environment of one label; `None` when it was never written.
///
/// # Errors
/// [`LabelError`] when it can't be read or verified.
pub fn read_bootenv(device: &dyn Device, label: usize) -> Result<Option<BootEnv>, LabelError> {
    let part = verified_part(device, label, BOOT_ENV_OFFSET, PAD_SIZE)?;
    BootEnv::decode(&part).map_err(LabelError::Corrupt)
}

/// An uberblock, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundUberblock {
    /// Number of the label.
    pub label: usize,
    /// Slot of the label's ring.
    pub slot: usize,
    /// The uberblock.
    pub uberblock: Uberblock,
}

/// Every uberblock of a device that verifies, by label and slot; labels that can't be read have none.
/// `ashift` is that of the device's top-level vdev.
pub fn read_uberblocks(device: &dyn Device, ashift: Ashift) -> Vec<FoundUberblock> {
    (0..LABELS).flat_map(|label| read_ring(device, label, ashift).unwrap_or_default()).collect()
}

/// The uberblocks of one label that verify, by slot.
///
/// # Errors
/// [`LabelError`] when the ring can't be read.
pub fn read_ring(
    device: &dyn Device,
    label: usize,
    ashift: Ashift,
) -> Result<Vec<FoundUberblock>, LabelError> {
    let start = label_offset(device.size(), label).ok_or(LabelError::NoRoom)? + RING_OFFSET;
    let ring = read_part(device, label, RING_OFFSET, RING_SIZE)?;
    let shift = uberblock_shift(ashift);
    let mut found = Vec::new();
    for (slot, bytes) in ring.chunks_exact(1 << shift).take(uberblock_count(shift)).enumerate() {
        // Decoding asks for the magic first, so that unused slots cost no checksum.
        let Ok(uberblock) = Uberblock::decode(bytes) else { continue };
        let offset = start + ((slot as u64) << shift);
        if verify(&Verifier::Label { offset }, bytes, false).is_ok() {
            found.push(FoundUberblock { label, slot, uberblock });
        }
    }
    Ok(found)
}
