//! The labels of a device.
//!
//! # Theory
//! A device holds four labels, two in front and two behind. An update writes two labels, flushes,
//! and writes the other two. So after the loss of either end, or a crash during an update, some
//! labels are whole. Each label has the pool's configuration as it concerns this device, and a ring
//! of uberblocks. Each part has its own checksum, bound to its place on the device. So a label that
//! was copied elsewhere is not valid there.
//!
//! The configuration to use is that of the latest txg that is not beyond the caller's limit. A
//! higher layer chooses the uberblock, over all devices of the pool.
//!
//! # On disk
//! See [`ondisk::label`] and [`ondisk::uberblock`].
//!
//! # See
//! OpenZFS `vdev_label.c` (`vdev_label_read_config`, `vdev_uberblock_load`).

mod label_io;
mod write;

pub(crate) use label_io::LabelIo;
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
    /// The device is too small for labels.
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
    /// Its checksum is wrong or absent: the part is damaged, or there never was a label.
    #[error("label {label}: checksum")]
    Checksum {
        /// Number of the label.
        label: usize,
        /// What was found.
        #[source]
        source: codec::Error,
    },
    /// The checksum matches, and the contents are invalid.
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

/// The ring of uberblocks of one label, to be copied to other labels.
pub struct Ring {
    bytes: AlignedBuf,
    /// log2 of a slot's size.
    shift: u8,
    /// The slots that hold an uberblock.
    slots: Vec<usize>,
}

impl Ring {
    /// Whether the ring holds no uberblock.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// The four labels of a device (`vdev_label_t`).
pub struct Labels<'d> {
    face: LabelIo<'d>,
}

impl<'d> Labels<'d> {
    /// The labels of `device`; nothing is read yet.
    pub fn new(device: &'d dyn Device) -> Self {
        Self { face: LabelIo::new(device) }
    }

    /// The labels of a leaf of an open pool. Its injected faults apply ([`crate::inject`]).
    pub fn of(device: &'d dyn Device, leaf: Guid) -> Self {
        Self { face: LabelIo::of(device, leaf) }
    }

    /// The configuration in label 0 to 3, if its checksum matches (`vdev_phys_t`).
    ///
    /// # Errors
    /// * [`LabelError::TooSmall`]: the device is too small for this label.
    /// * [`LabelError::Io`]: the read failed.
    /// * [`LabelError::Checksum`]: the checksum is wrong or absent.
    /// * [`LabelError::Corrupt`]: the checksum matches, and the configuration can't be decoded.
    pub fn config(&self, label: usize) -> Result<Nvlist> {
        let part = self.verified(label, PHYS_OFFSET, PHYS_SIZE)?;
        decode_phys(&part).map_err(|source| LabelError::Corrupt { label, source })
    }

    /// The configuration in label 0 to 3 as far as it can be decoded, whatever its checksum.
    ///
    /// `zdb -l` shows this of a damaged label. The flag says whether the checksum matches.
    ///
    /// # Errors
    /// * [`LabelError::TooSmall`]: the device is too small for this label.
    /// * [`LabelError::Io`]: the read failed.
    /// * [`LabelError::Corrupt`]: the configuration can't be decoded.
    pub fn config_unverified(&self, label: usize) -> Result<(Nvlist, bool)> {
        let (part, offset) = self.read(label, PHYS_OFFSET, PHYS_SIZE)?;
        let good = codec::checksum::embedded::verify(&Verifier::Label { offset }, &part, false).is_ok();
        let config = decode_phys(&part).map_err(|source| LabelError::Corrupt { label, source })?;
        Ok((config, good))
    }

    /// The latest configuration that is not beyond `limit`, and the number of its label
    /// (`vdev_label_read_config`).
    ///
    /// Labels of spares and cache devices, which have no txg, count as of txg 0.
    ///
    /// # Errors
    /// * [`LabelError::Corrupt`]: every label can be read, and every one is of a txg beyond
    ///   `limit`.
    /// * Otherwise, if no label can be used: the error of the first that failed, as
    ///   [`Labels::config`] lists them.
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

    /// The uberblocks in the ring of label 0 to 3 whose checksums match, with their slots
    /// (`vdev_uberblock_load`).
    ///
    /// `shift` is log2 of a slot's size ([`ondisk::label::uberblock_shift`]). Slots that were never
    /// written or are damaged are left out.
    ///
    /// # Errors
    /// * [`LabelError::TooSmall`]: the device is too small for this label.
    /// * [`LabelError::Io`]: the read failed.
    pub fn uberblocks(&self, label: usize, shift: u8) -> Result<Vec<(usize, Uberblock)>> {
        Ok(self.slots(label, shift)?.1)
    }

    /// The ring of label 0 to 3, to be copied to another label ([`LabelWriter::ring`]).
    ///
    /// `shift` is that of [`Labels::uberblocks`]. Slots that were never written or are damaged are
    /// empty.
    ///
    /// # Errors
    /// * [`LabelError::TooSmall`]: the device is too small for this label.
    /// * [`LabelError::Io`]: the read failed.
    pub fn ring(&self, label: usize, shift: u8) -> Result<Ring> {
        let (bytes, slots) = self.slots(label, shift)?;
        Ok(Ring { bytes, shift, slots: slots.into_iter().map(|(slot, _)| slot).collect() })
    }

    /// The bytes of a ring, and the uberblocks in its slots.
    fn slots(&self, label: usize, shift: u8) -> Result<(AlignedBuf, Vec<(usize, Uberblock)>)> {
        let (ring, start) = self.read(label, RING_OFFSET, RING_SIZE)?;
        let size = 1 << shift;
        let slots = (0..uberblock_count(shift)).filter_map(|slot| {
            let at = (uberblock_offset(shift, slot) - RING_OFFSET) as usize;
            let bytes = &ring[at..at + size];
            // The magic number is checked first. Otherwise most of the work would be checksums of
            // empty slots.
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
    /// * [`LabelError::TooSmall`]: the device is too small for this label.
    /// * [`LabelError::Io`]: the read failed.
    /// * [`LabelError::Checksum`]: the checksum is wrong or absent.
    /// * [`LabelError::Corrupt`]: the checksum matches, and the contents can't be decoded.
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
