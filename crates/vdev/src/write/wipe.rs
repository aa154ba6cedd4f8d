//! Writing and discarding what holds nothing, on one device.
//!
//! # See
//! OpenZFS `vdev_initialize_write`, `vdev_trim_range`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use device::{Device, DeviceError, Op};
use ondisk::Guid;
use ondisk::label::{LABEL_START_SIZE, LABELS, label_offset};

use crate::inject::{self, On, Wrong};
use crate::request::Request;
use crate::tree::{Layout, NodeId, Tree, device_offset};

/// Why a range of a device was not wiped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WipeError {
    /// The pool has no such device, it is not there, or takes no writes (`ENXIO`).
    #[error("the device {guid} takes no writes")]
    Gone {
        /// Which.
        guid: Guid,
    },
    /// The range is not in the space between the device's labels.
    #[error("{offset:#x}+{len:#x} is not in the space of the device {guid}")]
    Range {
        /// Which.
        guid: Guid,
        /// First byte of the device's space.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The device failed.
    #[error("the device {guid}")]
    Device {
        /// Which.
        guid: Guid,
        /// How.
        #[source]
        source: Arc<DeviceError>,
    },
}

type Result<T> = std::result::Result<T, WipeError>;

impl Tree {
    /// Whether a device can be trimmed, as far as is known (`vdev_has_trim`).
    pub fn can_trim(&self, leaf: Guid) -> bool {
        self.devices().any(|(guid, device)| guid == leaf && device.can_trim())
    }

    /// The same, or whether it could while it was open; of what was never open nobody knows it (`vdev_has_trim`).
    pub fn could_trim(&self, leaf: Guid) -> bool {
        let node = self.by_guid.get(&leaf).map(|id| self.node(*id));
        node.is_some_and(|node| match &node.layout {
            Layout::Leaf(Some(device)) => device.can_trim(),
            _ => node.could_trim.load(Relaxed),
        })
    }

    fn wiped(&self, guid: Guid, offset: u64, len: u64) -> Result<(NodeId, &Arc<dyn Device>)> {
        let id = *self.by_guid.get(&guid).ok_or(WipeError::Gone { guid })?;
        let Layout::Leaf(Some(device)) = &self.node(id).layout else { return Err(WipeError::Gone { guid }) };
        if !self.writable(id) {
            return Err(WipeError::Gone { guid });
        }
        // The last two labels follow the space.
        let space = label_offset(device.size(), LABELS / 2).and_then(|end| end.checked_sub(LABEL_START_SIZE));
        let inside = offset.checked_add(len).zip(space).is_some_and(|(end, space)| end <= space);
        if inside { Ok((id, device)) } else { Err(WipeError::Range { guid, offset, len }) }
    }

    /// Writes to a range of a device's space that holds nothing.
    ///
    /// # Errors
    /// [`WipeError`]. A device that fails is probed, and given up if it fails again.
    pub fn fill(&self, leaf: Guid, offset: u64, bytes: &[u8], request: &Request) -> Result<()> {
        let (id, _) = self.wiped(leaf, offset, bytes.len() as u64)?;
        self.write_leaf(id, offset, &[bytes], request).map_err(|source| {
            self.suspect(id);
            WipeError::Device { guid: leaf, source }
        })
    }

    /// Discards a range of a device's space that holds nothing.
    ///
    /// # Errors
    /// As [`Tree::fill`].
    pub fn discard(&self, leaf: Guid, offset: u64, len: u64) -> Result<()> {
        let (id, device) = self.wiped(leaf, offset, len)?;
        let stats = &self.node(id).stats;
        stats.trims_begun.inc();
        stats.trim_sizes.record(len);
        let start = Instant::now();
        let at = device_offset(offset);
        let done = match inject::strike(|| self.root_guid(), leaf, On::Free) {
            Some(Wrong::Error(code)) => Err(inject::error(code, Op::Trim, device.name(), at, len)),
            Some(Wrong::Noop) => Ok(()),
            _ => device.trim(at, len),
        };
        stats.trim_ns.record(start.elapsed().as_nanos() as u64);
        stats.trim_ops.inc();
        match done {
            Ok(()) => {
                stats.trim_bytes.add(len);
                Ok(())
            }
            Err(source) => {
                self.suspect(id);
                Err(WipeError::Device { guid: leaf, source: Arc::new(source) })
            }
        }
    }
}

#[cfg(test)]
mod tests;
