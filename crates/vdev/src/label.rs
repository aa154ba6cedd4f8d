//! The labels of a device.
//!
//! # Theory
//! A device holds four labels, two in front and two behind, so that losing either end, or a crash in the middle of
//! an update (which writes two, flushes, and writes the other two), leaves some whole. Each label has the
//! pool's configuration as it concerns this device, and a ring of uberblocks. Each part carries its own checksum,
//! bound to its place on the device, so that a label copied elsewhere is not believed.
//!
//! The configuration to use is the one of the latest group that is not beyond what the caller allows; the
//! uberblock to use is chosen above, over all devices of the pool.
//!
//! # On disk
//! See [`ondisk::label`] and [`ondisk::uberblock`].
//!
//! # See
//! OpenZFS `vdev_label.c` (`vdev_label_read_config`, `vdev_uberblock_load`).

mod face;
mod write;

pub(crate) use face::Face;
pub use write::{LabelWriteError, LabelWriter};

use codec::checksum::embedded::Verifier;
use device::{AlignedBuf, Device, DeviceError};
use ondisk::label::{
    BOOT_ENV_OFFSET, BootEnv, LABELS, PAD_SIZE, PHYS_OFFSET, PHYS_SIZE, RING_OFFSET, RING_SIZE, decode_phys,
    label_offset, uberblock_count, uberblock_offset,
};
use ondisk::uberblock::Uberblock;
use ondisk::{Corrupt, Guid, Nvlist, Txg};

/// Why a part of a label can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The device has no room for labels.
    #[error("label {label}: the device has only {size} bytes")]
    TooSmall {
        /// Number of the label.
        label: usize,
        /// Bytes in the device.
        size: u64,
    },
    /// It can't be read.
    #[error("label {label}: read")]
    Io {
        /// Number of the label.
        label: usize,
        /// The cause.
        #[source]
        source: DeviceError,
    },
    /// Its checksum is wrong or absent: it is damaged, or there never was a label.
    #[error("label {label}: checksum")]
    Checksum {
        /// Number of the label.
        label: usize,
        /// What was found.
        #[source]
        source: codec::Error,
    },
    /// Its bytes are as they were written, and mean nothing.
    #[error("label {label}: contents")]
    Corrupt {
        /// Number of the label.
        label: usize,
        /// What was found.
        #[source]
        source: Corrupt,
    },
}

type Result<T> = std::result::Result<T, LabelError>;

/// The ring of uberblocks of one label, as it is copied to others.
pub struct Ring {
    bytes: AlignedBuf,
    /// log2 of a slot's size.
    shift: u8,
    /// Those that hold an uberblock.
    slots: Vec<usize>,
}

impl Ring {
    /// Whether there is no uberblock in it.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// The four labels of a device.
pub struct Labels<'d> {
    face: Face<'d>,
}

impl<'d> Labels<'d> {
    /// The labels of `device`; nothing is read yet.
    pub fn new(device: &'d dyn Device) -> Self {
        Self { face: Face::new(device) }
    }

    /// The same of a leaf of a pool that is open, which its faults befall ([`crate::inject`]).
    pub fn of(device: &'d dyn Device, leaf: Guid) -> Self {
        Self { face: Face::of(device, leaf) }
    }

    /// The configuration in label 0 to 3, if its checksum holds (`vdev_phys_t`).
    ///
    /// # Errors
    /// Every [`LabelError`].
    pub fn config(&self, label: usize) -> Result<Nvlist> {
        let part = self.verified(label, PHYS_OFFSET, PHYS_SIZE)?;
        decode_phys(&part).map_err(|source| LabelError::Corrupt { label, source })
    }

    /// The configuration in label 0 to 3 as far as it can be decoded, whatever its checksum: what `zdb -l` shows of
    /// a damaged one. The flag says whether the checksum holds.
    ///
    /// # Errors
    /// [`LabelError::TooSmall`], [`LabelError::Io`], [`LabelError::Corrupt`].
    pub fn config_unverified(&self, label: usize) -> Result<(Nvlist, bool)> {
        let (part, offset) = self.read(label, PHYS_OFFSET, PHYS_SIZE)?;
        let good = codec::checksum::embedded::verify(&Verifier::Label { offset }, &part, false).is_ok();
        let config = decode_phys(&part).map_err(|source| LabelError::Corrupt { label, source })?;
        Ok((config, good))
    }

    /// The latest configuration that is not beyond `limit`, and the number of its label
    /// (`vdev_label_read_config`). Labels of spares and cache devices, which have no group, count as of group 0.
    ///
    /// # Errors
    /// When no label serves, the reason of the first.
    pub fn best_config(&self, limit: Txg) -> Result<(usize, Nvlist)> {
        let mut best: Option<(u64, usize, Nvlist)> = None;
        let mut first_error = None;
        for label in 0..LABELS {
            match self.config(label) {
                Ok(config) => {
                    let txg = config.u64("txg").unwrap_or(0);
                    if txg <= limit.0 && best.as_ref().is_none_or(|(b, ..)| txg > *b) {
                        best = Some((txg, label, config));
                    }
                }
                Err(e) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        let why = Corrupt::Shape { what: "label", why: "every label is of a later transaction group" };
        best.map(|(_, label, config)| (label, config))
            .ok_or_else(|| first_error.unwrap_or(LabelError::Corrupt { label: 0, source: why }))
    }

    /// The uberblocks in the ring of label 0 to 3 whose checksums hold, with the numbers of their slots; `shift`
    /// is log2 of a slot's size ([`ondisk::label::uberblock_shift`]). Slots that were never written or are
    /// damaged are left out.
    ///
    /// # Errors
    /// [`LabelError::TooSmall`], [`LabelError::Io`].
    pub fn uberblocks(&self, label: usize, shift: u8) -> Result<Vec<(usize, Uberblock)>> {
        Ok(self.slots(label, shift)?.1)
    }

    /// The ring of label 0 to 3 as it is to be copied to another label ([`LabelWriter::ring`]); `shift` as for [`Labels::uberblocks`]. Slots that were never
    /// written or are damaged are empty.
    ///
    /// # Errors
    /// [`LabelError::TooSmall`], [`LabelError::Io`].
    pub fn ring(&self, label: usize, shift: u8) -> Result<Ring> {
        let (bytes, slots) = self.slots(label, shift)?;
        Ok(Ring { bytes, shift, slots: slots.into_iter().map(|(slot, _)| slot).collect() })
    }

    /// The bytes of a ring, and what is in its slots.
    fn slots(&self, label: usize, shift: u8) -> Result<(AlignedBuf, Vec<(usize, Uberblock)>)> {
        let (ring, start) = self.read(label, RING_OFFSET, RING_SIZE)?;
        let size = 1 << shift;
        let slots = (0..uberblock_count(shift)).filter_map(|slot| {
            let at = (uberblock_offset(shift, slot) - RING_OFFSET) as usize;
            let bytes = &ring[at..at + size];
            // The magic first: checking a hundred empty slots is most of the work otherwise.
            let uberblock = Uberblock::decode(bytes).ok()?;
            let verifier = Verifier::Label { offset: start + at as u64 };
            codec::checksum::embedded::verify(&verifier, bytes, false).ok()?;
            Some((slot, uberblock))
        });
        let slots = slots.collect();
        Ok((ring, slots))
    }

    /// The boot environment in label 0 to 3; `None` when there is none (`vdev_boot_envblock_t`).
    ///
    /// # Errors
    /// Every [`LabelError`].
    pub fn boot_env(&self, label: usize) -> Result<Option<BootEnv>> {
        let part = self.verified(label, BOOT_ENV_OFFSET, PAD_SIZE)?;
        BootEnv::decode(&part).map_err(|source| LabelError::Corrupt { label, source })
    }

    /// A part of a label, and its offset on the device.
    fn read(&self, label: usize, offset: u64, size: u64) -> Result<(AlignedBuf, u64)> {
        let whole = self.face.size();
        let start = label_offset(whole, label).ok_or(LabelError::TooSmall { label, size: whole })?;
        let mut buf = AlignedBuf::zeroed(size as usize);
        self.face.read(&mut buf, start, offset).map_err(|source| LabelError::Io { label, source })?;
        Ok((buf, start + offset))
    }

    fn verified(&self, label: usize, offset: u64, size: u64) -> Result<AlignedBuf> {
        let (part, offset) = self.read(label, offset, size)?;
        codec::checksum::embedded::verify(&Verifier::Label { offset }, &part, false)
            .map_err(|source| LabelError::Checksum { label, source })?;
        Ok(part)
    }
}
