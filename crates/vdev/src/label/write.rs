//! Writing the labels of a device.
//!
//! # Crash
//! Each part of a label has its own checksum, so a torn write makes that part unreadable and no
//! other. A higher layer decides which labels are written when, with flushes between: the even
//! ones, then uberblocks, then the odd ones.

use codec::checksum::embedded::{Verifier, seal};
use device::{AlignedBuf, Device, DeviceError};
use ondisk::label::{
    BOOT_ENV_OFFSET, ECK_SIZE, LABEL_SIZE, LABELS, PAD_SIZE, PHYS_OFFSET, PHYS_SIZE, RING_OFFSET, RING_SIZE,
    label_offset, uberblock_offset,
};
use ondisk::{Guid, Nvlist, Txg, Uberblock};

use super::{LabelIo, Ring};

/// Why a part of a label could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LabelWriteError {
    /// The device is too small for labels.
    #[error("label {label}: the device has only {size} bytes")]
    TooSmall {
        /// Number of the label.
        label: usize,
        /// Bytes in the device.
        size: u64,
    },
    /// The config is larger than a label (`EFAULT` of `nvlist_pack`, shown as `ENAMETOOLONG`).
    #[error("the config has {size} bytes, and a label holds {}", PHYS_SIZE as usize - ECK_SIZE)]
    TooLarge {
        /// Bytes of the packed config.
        size: usize,
    },
    /// The write or flush failed.
    #[error("label {label}: write")]
    Io {
        /// Number of the label.
        label: usize,
        /// The cause.
        #[source]
        source: DeviceError,
    },
}

type Result<T> = std::result::Result<T, LabelWriteError>;

/// Writes labels of a device.
pub struct LabelWriter<'d> {
    face: LabelIo<'d>,
}

impl<'d> LabelWriter<'d> {
    /// A writer of the labels of `device`.
    pub fn new(device: &'d dyn Device) -> Self {
        Self { face: LabelIo::new(device) }
    }

    /// A writer of the labels of a leaf of an open pool. Its injected faults apply
    /// ([`crate::inject`]).
    pub fn of(device: &'d dyn Device, leaf: Guid) -> Self {
        Self { face: LabelIo::of(device, leaf) }
    }

    /// Whether the labels have space for a config and `reserve` more bytes.
    ///
    /// # Errors
    /// * [`LabelWriteError::TooLarge`]: they have not.
    pub fn check(&self, config: &Nvlist, reserve: usize) -> Result<()> {
        let size = config.encode_xdr().len();
        if size + reserve > PHYS_SIZE as usize - ECK_SIZE {
            return Err(LabelWriteError::TooLarge { size });
        }
        Ok(())
    }

    /// Writes the config of label 0 to 3 (`vdev_label_sync`).
    ///
    /// # Errors
    /// * [`LabelWriteError::TooLarge`]: the packed config does not fit into a label.
    /// * [`LabelWriteError::TooSmall`]: the device is too small for this label.
    /// * [`LabelWriteError::Io`]: the write failed.
    pub fn config(&self, label: usize, config: &Nvlist) -> Result<()> {
        let packed = config.encode_xdr();
        let mut part = AlignedBuf::zeroed(PHYS_SIZE as usize);
        let room = part.len() - ECK_SIZE;
        let space =
            part[..room].get_mut(..packed.len()).ok_or(LabelWriteError::TooLarge { size: packed.len() })?;
        space.copy_from_slice(&packed);
        self.sealed(label, PHYS_OFFSET, part)
    }

    /// Writes an uberblock into slot `slot` of the ring of label 0 to 3 (`vdev_uberblock_sync`).
    ///
    /// `shift` is log2 of a slot's size ([`ondisk::label::uberblock_shift`]).
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for this label.
    /// * [`LabelWriteError::Io`]: the write failed.
    ///
    /// # Panics
    /// If a slot of this size can't hold an uberblock.
    pub fn uberblock(&self, label: usize, shift: u8, slot: usize, uberblock: &Uberblock) -> Result<()> {
        let mut part = AlignedBuf::zeroed(1 << shift);
        let bytes = uberblock.encode();
        part[..bytes.len()].copy_from_slice(&bytes);
        self.sealed(label, uberblock_offset(shift, slot), part)
    }

    /// Writes the ring of another label to label 0 to 3 (`vdev_copy_uberblocks`). Each uberblock
    /// gets the checksum of its new place.
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for this label.
    /// * [`LabelWriteError::Io`]: the write failed.
    pub fn ring(&self, label: usize, ring: &Ring) -> Result<()> {
        let start = self.start(label)?;
        let mut bytes = AlignedBuf::zeroed(RING_SIZE as usize);
        for slot in &ring.slots {
            let at = uberblock_offset(ring.shift, *slot);
            let within = (at - RING_OFFSET) as usize..(at - RING_OFFSET) as usize + (1 << ring.shift);
            let part = &mut bytes[within.clone()];
            part.copy_from_slice(&ring.bytes[within]);
            seal(&Verifier::Label { offset: start + at }, part, None)
                .expect("a slot has room for its checksum");
        }
        self.put(label, RING_OFFSET, &bytes)
    }

    /// Empties the ring and the boot environment of all labels of a new device, whatever they held
    /// (`vdev_label_init`).
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for labels.
    /// * [`LabelWriteError::Io`]: a write failed.
    pub fn clear_rings(&self) -> Result<()> {
        let ring = AlignedBuf::zeroed(RING_SIZE as usize);
        for label in 0..LABELS {
            self.sealed(label, BOOT_ENV_OFFSET, AlignedBuf::zeroed(PAD_SIZE as usize))?;
            self.put(label, RING_OFFSET, &ring)?;
        }
        Ok(())
    }

    /// Empties the space before the first label, where partition tables and marks of file systems
    /// are.
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for labels.
    /// * [`LabelWriteError::Io`]: the write failed.
    pub fn clear_front(&self) -> Result<()> {
        self.put(0, 0, &AlignedBuf::zeroed(PAD_SIZE as usize))
    }

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// * [`LabelWriteError::Io`]: the flush failed. It names label 0.
    pub fn flush(&self) -> Result<()> {
        self.face.flush().map_err(|source| LabelWriteError::Io { label: 0, source })
    }

    /// Makes the rings of all labels of a device void that leaves its pool.
    ///
    /// `last` is the pool's uberblock. It stays in the rings without a txg and without a checksum
    /// of its own, so it is not valid. `zhack label repair -u` can restore it.
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for labels.
    /// * [`LabelWriteError::Io`]: a write failed.
    pub fn void_rings(&self, last: &Uberblock) -> Result<()> {
        self.clear_rings()?;
        let void = Uberblock { txg: Txg(0), ..last.clone() }.encode();
        for label in 0..LABELS {
            let mut ring = AlignedBuf::zeroed(RING_SIZE as usize);
            ring[..void.len()].copy_from_slice(&void);
            self.sealed(label, RING_OFFSET, ring)?;
        }
        Ok(())
    }

    /// Wipes the config and ring of label 0 to 3 (`zpool labelclear`). The pads in front stay,
    /// since other software may use them.
    ///
    /// # Errors
    /// * [`LabelWriteError::TooSmall`]: the device is too small for this label.
    /// * [`LabelWriteError::Io`]: the write failed.
    pub fn wipe(&self, label: usize) -> Result<()> {
        self.put(label, PHYS_OFFSET, &AlignedBuf::zeroed((LABEL_SIZE - PHYS_OFFSET) as usize))
    }

    fn sealed(&self, label: usize, at: u64, mut part: AlignedBuf) -> Result<()> {
        let offset = self.start(label)? + at;
        seal(&Verifier::Label { offset }, &mut part, None)
            .expect("a part of a label has room for its checksum");
        self.put(label, at, &part)
    }

    fn put(&self, label: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let start = self.start(label)?;
        self.face.write(bytes, start, at).map_err(|source| LabelWriteError::Io { label, source })
    }

    fn start(&self, label: usize) -> Result<u64> {
        let size = self.face.size();
        label_offset(size, label).ok_or(LabelWriteError::TooSmall { label, size })
    }
}

#[cfg(test)]
mod tests;
