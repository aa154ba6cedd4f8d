//! Devices that fail: how they are found, and no longer used.
//!
//! # Theory
//! One failed write says little: a bad sector costs one copy of one block. So a device that failed
//! is *probed*: an unused part of its labels is read and written back. A device whose probe fails
//! too is given up:
//!
//! * If the pool can do without it, it is *faulted*. It is no longer read or written, and the txgs
//!   that it misses go to its DTL.
//! * If the pool needs it, it stays readable, and is no longer written. Its top-level vdev then
//!   takes no new blocks until the errors are cleared.
//!
//! # See
//! OpenZFS `vdev_probe`, `spa_async_fault_vdev`, `vdev_clear`, `vdev_allocatable`.

use std::sync::atomic::Ordering::Relaxed;

use device::{AlignedBuf, Device, DeviceError};
use ondisk::label::{BOOT_ENV_OFFSET, LABELS, PAD_SIZE, label_offset};
use ondisk::{Guid, VdevId};

use crate::inject::{self, On, Wrong};
use crate::label::LabelIo;
use crate::tree::{Layout, NodeId, Tree};
use crate::{Result, VdevAux, VdevState};

impl Tree {
    /// Probes a device that has just failed, and gives it up if the probe fails.
    pub(crate) fn suspect(&self, id: NodeId) {
        let node = self.node(id);
        let Layout::Leaf(Some(device)) = &node.layout else { return };
        if self.writable(id) && !probe(self.root_guid(), node.guid, &**device, true) {
            self.fault(id, device.is_gone());
        }
    }

    /// Probes a device after a failed read. Gives it up only if the device reads nothing and the
    /// pool can do without it.
    ///
    /// A device that only takes no writes may have what others lack. A later write will find that
    /// out.
    pub(crate) fn suspect_reader(&self, id: NodeId) {
        let node = self.node(id);
        let Layout::Leaf(Some(device)) = &node.layout else { return };
        if self.writable(id) && !probe(self.root_guid(), node.guid, &**device, false) {
            self.fault_spared(id, device.is_gone());
        }
    }

    /// Counts so many write errors against a device, for its labels, and probes it.
    pub fn blame(&self, guid: Guid, failed: u64) {
        if let Some(id) = self.by_guid.get(&guid).filter(|_| failed > 0) {
            self.node(*id).stats.write_errors.add(failed);
            self.suspect(*id);
        }
    }

    /// Probes the device of a leaf, and gives it up if the probe fails (`vdev_probe` in
    /// `vdev_open`).
    pub fn look_at(&self, guid: Guid) {
        if let Some(id) = self.by_guid.get(&guid) {
            self.suspect(*id);
        }
    }

    /// Gives up a device that does not respond. If the pool needs it, it is only written no more.
    pub fn give_up(&self, guid: Guid) {
        if let Some(id) = self.by_guid.get(&guid).filter(|id| self.writable(**id)) {
            self.fault(*id, false);
        }
    }

    /// Gives a device up; returns whether the pool can do without it.
    ///
    /// A device that was pulled is removed rather than faulted. A device that the pool needs is
    /// only written no more.
    pub(crate) fn fault(&self, id: NodeId, pulled: bool) -> bool {
        if self.fault_spared(id, pulled) {
            return true;
        }
        let mut up = Some(id);
        while let Some(id) = up.filter(|id| *id != Self::ROOT) {
            self.node(id).cant_write.store(true, Relaxed);
            up = self.node(id).parent;
        }
        false
    }

    /// Gives a device up if the pool can do without it; returns whether it can.
    fn fault_spared(&self, id: NodeId, pulled: bool) -> bool {
        let node = self.node(id);
        let before = (node.state(), node.aux());
        match pulled {
            true => node.put_state(VdevState::Removed, VdevAux::None),
            false => node.put_state(VdevState::Faulted, VdevAux::ErrExceeded),
        }
        self.assess_above(id);
        if self.state().0 >= VdevState::Degraded {
            return true;
        }
        node.put_state(before.0, before.1);
        self.assess_above(id);
        false
    }

    /// Whether anything may be written below a vdev.
    pub(crate) fn writable(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.readable() && !node.cant_write.load(Relaxed)
    }

    /// The devices whose storage had no space for a write since their errors were last cleared.
    pub fn without_room(&self) -> Vec<Guid> {
        let full = self.by_guid.iter().filter(|(_, id)| self.node(**id).no_room.load(Relaxed));
        full.map(|(guid, _)| *guid).collect()
    }

    /// The open devices that were given up.
    pub fn given_up(&self) -> Vec<Guid> {
        let ids =
            self.by_guid.iter().filter(|(_, id)| matches!(self.node(**id).layout, Layout::Leaf(Some(_))));
        ids.filter(|(_, id)| !self.writable(**id)).map(|(guid, _)| *guid).collect()
    }

    /// Whether a top-level vdev takes new blocks (`vdev_allocatable`): its devices are open and
    /// take writes.
    pub fn takes_blocks(&self, vdev: VdevId) -> bool {
        self.holds_blocks(vdev) && self.top(vdev).is_ok_and(|id| self.writable(id))
    }

    /// Whether no top-level vdev has lost more devices than it can do without.
    pub fn is_whole(&self) -> bool {
        let tops = &self.node(Self::ROOT).children;
        self.state().0 >= VdevState::Degraded
            && tops.iter().all(|id| !self.node(*id).cant_write.load(Relaxed))
    }

    /// Probes the devices of a top-level vdev, of which one failed. Returns whether the vdev is
    /// still whole.
    pub fn probe(&self, vdev: VdevId) -> bool {
        let Ok(top) = self.top(vdev) else { return false };
        for guid in self.leaves_of(vdev) {
            if let Some(id) = self.by_guid.get(&guid) {
                self.suspect(*id);
            }
        }
        self.writable(top)
    }

    /// Clears the errors of a vdev and of all below it, or of the whole pool (`vdev_clear`).
    /// Devices that were given up and are open are used again.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`](crate::VdevError::NoSuchGuid): the pool has no vdev of this
    ///   guid.
    pub fn clear(&self, guid: Option<Guid>) -> Result<()> {
        let first = match guid {
            Some(guid) => *self.by_guid.get(&guid).ok_or(crate::VdevError::NoSuchGuid { guid })?,
            None => Self::ROOT,
        };
        let mut todo = vec![first];
        while let Some(id) = todo.pop() {
            let node = self.node(id);
            todo.extend(&node.children);
            node.stats.clear_errors();
            node.tally.clear();
            node.cant_write.store(false, Relaxed);
            node.lost_writes.store(false, Relaxed);
            node.no_room.store(false, Relaxed);
            if matches!(node.layout, Layout::Leaf(Some(_))) {
                node.put_state(VdevState::Healthy, VdevAux::None);
                self.assess_above(id);
            }
        }
        let mut up = self.node(first).parent;
        while let Some(id) = up {
            self.node(id).cant_write.store(false, Relaxed);
            up = self.node(id).parent;
        }
        Ok(())
    }
}

/// Whether a device of a pool can be read and written, tested on an unused part of its labels
/// (`vdev_probe`).
pub fn takes_writes(pool: Guid, leaf: Guid, device: &dyn Device) -> bool {
    probe(pool, leaf, device, true)
}

/// Reads a part of a label, and with `writes` writes it back. One label that works is enough.
fn probe(pool: Guid, guid: Guid, device: &dyn Device, writes: bool) -> bool {
    if matches!(inject::strike(|| pool, guid, On::Probe), Some(Wrong::Error(_))) {
        return false;
    }
    let mut buf = AlignedBuf::zeroed(PAD_SIZE as usize);
    let face = LabelIo::of(device, guid).probing();
    (0..LABELS).filter_map(|label| label_offset(device.size(), label)).any(|start| {
        // A device of a pool that is only read needs only to be readable.
        let wrote = |done| matches!(done, Ok(()) | Err(DeviceError::ReadOnly { .. }));
        face.read(&mut buf, start, BOOT_ENV_OFFSET).is_ok()
            && (!writes || wrote(face.write(&buf, start, BOOT_ENV_OFFSET)))
    })
}

#[cfg(test)]
mod tests;
