//! Reading the labels and uberblocks of one device.
//!
//! # Theory
//! Each of a device's four labels stands alone. A copy is valid if its checksum, bound to its place
//! on the device, verifies and its list makes sense. Copies may differ: a config change rewrites
//! two of them, flushes, and rewrites the others. The newest one that is not newer than the pool's
//! state is the right one.

use device::Device;
use ondisk::config::PoolState;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::{Ashift, Guid, PoolConfig, Txg, Uberblock};
pub use vdev::label::LabelError;

#[cfg(test)]
mod tests;

/// The four labels of a device.
#[derive(Debug)]
pub struct Labels {
    /// Size of the device in bytes.
    pub size: u64,
    /// Each copy, or what is wrong with it.
    pub copies: [Result<PoolConfig, LabelError>; LABELS],
}

impl Labels {
    /// Reads all four labels.
    pub fn read(device: &dyn Device) -> Labels {
        Self::with(device, &vdev::label::Labels::new(device))
    }

    /// Reads those of a leaf of an open pool, with the leaf's injected faults ([`vdev::inject`]).
    pub(crate) fn of(device: &dyn Device, leaf: Guid) -> Labels {
        Self::with(device, &vdev::label::Labels::of(device, leaf))
    }

    fn with(device: &dyn Device, labels: &vdev::label::Labels<'_>) -> Labels {
        Labels { size: device.size(), copies: std::array::from_fn(|l| read_config(labels, l)) }
    }

    /// Number of copies that verify (`ne_num_labels`).
    pub fn valid(&self) -> usize {
        self.copies.iter().flatten().count()
    }

    /// The newest config whose txg is at most `max` (`vdev_label_read_config`).
    ///
    /// Labels without a txg count as the oldest: those of spares, cache devices and devices that
    /// are being added.
    pub fn best(&self, max: Txg) -> Option<&PoolConfig> {
        // Of equals the first copy wins.
        self.copies.iter().flatten().filter(|c| c.txg <= max).rev().max_by_key(|c| c.txg)
    }

    /// The newest config whatever its txg. Leaves out those of devices whose addition never
    /// finished: these belong to no pool.
    pub fn newest(&self) -> Option<&PoolConfig> {
        let aux = |c: &PoolConfig| matches!(c.state, PoolState::Spare | PoolState::L2cache);
        self.best(Txg(u64::MAX)).filter(|c| aux(c) || c.txg != Txg(0))
    }
}

/// The guid of a device before it took the place of its mirror.
pub(crate) fn before_split(label: &PoolConfig) -> Option<Guid> {
    label.vdev_tree.as_ref().and_then(|top| top.orig_guid)
}

/// The pool from which the pool of a label was split (`split_guid`).
pub(crate) fn split_from(label: &PoolConfig) -> Option<Guid> {
    label.nvlist.u64("split_guid").map(Guid)
}

/// Whether the label's txg has its uberblock on this device.
pub(crate) fn is_announced(device: &dyn Device, label: &PoolConfig) -> bool {
    let ashift = label.vdev_tree.as_ref().and_then(|top| top.ashift).unwrap_or_default();
    read_uberblocks(device, ashift).iter().any(|found| found.uberblock.txg >= label.txg)
}

fn read_config(labels: &vdev::label::Labels<'_>, label: usize) -> Result<PoolConfig, LabelError> {
    let nv = labels.config(label)?;
    PoolConfig::from_nvlist(&nv).map_err(|source| LabelError::Corrupt { label, source })
}

/// An uberblock and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundUberblock {
    /// Number of the label.
    pub label: usize,
    /// Slot of the label's ring.
    pub slot: usize,
    /// The uberblock.
    pub uberblock: Uberblock,
}

/// Every valid uberblock of a device, by label and slot. Labels that can't be read have none.
/// `ashift` is that of the device's top-level vdev.
pub fn read_uberblocks(device: &dyn Device, ashift: Ashift) -> Vec<FoundUberblock> {
    let labels = vdev::label::Labels::new(device);
    let ring = |label| labels.uberblocks(label, uberblock_shift(ashift)).unwrap_or_default();
    (0..LABELS)
        .flat_map(|label| {
            ring(label).into_iter().map(move |(slot, uberblock)| FoundUberblock { label, slot, uberblock })
        })
        .collect()
}
