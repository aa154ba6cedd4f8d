//! Writing to and discarding free space of one device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use device::{Device, DeviceError, Op};
use observe::work::{self, Wait};
use ondisk::Guid;
use ondisk::label::{LABEL_START_SIZE, LABELS, label_offset};

use crate::inject::{self, On, Wrong};
use crate::request::{Priority, Request};
use crate::stats::{Io, IoType};
use crate::tree::{Layout, NodeId, Tree, device_offset};

/// Why free space of a device was not written or discarded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WipeError {
    /// The pool has no such device, or it is not open, or takes no writes (`ENXIO`).
    #[error("the device {guid} takes no writes")]
    Gone {
        /// The device.
        guid: Guid,
    },
    /// The range is not in the space between the device's labels.
    #[error("{offset:#x}+{len:#x} is not in the space of the device {guid}")]
    Range {
        /// The device.
        guid: Guid,
        /// First byte of the device's space.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The device failed.
    #[error("the device {guid}")]
    Device {
        /// The device.
        guid: Guid,
        /// The cause.
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

    /// Whether a device can be trimmed, or could while it was open. False for one that was never
    /// open.
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

    /// Writes to a range of free space of a device (`vdev_initialize_write`). A device that fails
    /// is probed, and given up if the probe fails.
    ///
    /// # Errors
    /// * [`WipeError::Gone`]: the pool has no such device, it is not open, or it takes no writes.
    /// * [`WipeError::Range`]: the range is not in the space between the device's labels.
    /// * [`WipeError::Device`]: the write failed.
    pub fn fill(&self, leaf: Guid, offset: u64, bytes: &[u8], request: &Request) -> Result<()> {
        let (id, _) = self.wiped(leaf, offset, bytes.len() as u64)?;
        self.write_leaf(id, offset, &[bytes], request).map_err(|source| {
            self.suspect(id);
            WipeError::Device { guid: leaf, source }
        })
    }

    /// Discards a range of free space of a device (`vdev_trim_range`). A device that fails is
    /// probed, and given up if the probe fails.
    ///
    /// # Errors
    /// * [`WipeError::Gone`]: the pool has no such device, it is not open, or it takes no writes.
    /// * [`WipeError::Range`]: the range is not in the space between the device's labels.
    /// * [`WipeError::Device`]: the discard failed.
    pub fn discard(&self, leaf: Guid, offset: u64, len: u64) -> Result<()> {
        let (id, device) = self.wiped(leaf, offset, len)?;
        let at = device_offset(offset);
        let discard = || match inject::strike(|| self.root_guid(), leaf, On::Free) {
            Some(Wrong::Error(code)) => Err(inject::error(code, Op::Trim, device.name(), at, len)),
            Some(Wrong::Noop) => Ok(()),
            _ => device.trim(at, len),
        };
        let by_class = &self.node(id).stats.by_class;
        let _waiting = work::wait(Wait::Discard, leaf.0);
        let (what, began) = ((Priority::Trim, IoType::Trim), Instant::now());
        let done = by_class.count(what, len, false, discard);
        let (took, failed) = (began.elapsed(), done.as_ref().err());
        Io { device: leaf, what: Some(what), offset: at, bytes: len, took, failed }.show();
        done.map_err(|source| {
            self.suspect(id);
            WipeError::Device { guid: leaf, source: Arc::new(source) }
        })
    }
}

#[cfg(test)]
mod tests;
