//! From ranges of a top-level vdev's space to the bytes of one device below it.
//!
//! # Theory
//! A block's address is one of a top-level vdev. Work on the free space of one device needs to know
//! which bytes of that device a range of addresses covers.
//!
//! * The children of a mirror have everything at the same place.
//! * The sectors of a raidz go round its children, whatever lies in them. A child has the sectors
//!   whose number is its own modulo the width: one contiguous run. (Single parity swaps the first
//!   two columns of some blocks, which trade places within the block.)
//! * A stripe of a dRAID is one sector of each child of its group. Of a range within a group, each
//!   of these children has one run, and the others nothing.
//!
//! The result never covers a byte that another address is on. A range of free addresses becomes
//! bytes that hold nothing. It consists of whole sectors, and for dRAID of whole stripes.
//!
//! # Absent
//! A raidz that is being expanded, whose sectors are moving, and mirrors of raidz: both are
//! refused.
//!
//! # See
//! OpenZFS `vdev_xlate`, `vdev_raidz_xlate`, `vdev_draid_xlate`.

use ondisk::{Guid, VdevId};

use crate::tree::{Layout, NodeId, Tree};
use crate::{Result, VdevError};

/// The path from a top-level vdev to a device.
struct LeafPath {
    top: VdevId,
    /// From the top-level vdev down: each vdev, and which of its children is next.
    steps: Vec<(NodeId, usize)>,
}

impl Tree {
    fn way(&self, leaf: Guid) -> Result<LeafPath> {
        let none = VdevError::NoSuchGuid { guid: leaf };
        let mut at = *self.by_guid.get(&leaf).ok_or(none.clone())?;
        if !matches!(self.node(at).layout, Layout::Leaf(_)) {
            return Err(none);
        }
        let mut steps = Vec::new();
        loop {
            let up = self.node(at).parent.ok_or(none.clone())?;
            let place = self.node(up).children.iter().position(|c| *c == at).ok_or(none.clone())?;
            if up == Self::ROOT {
                steps.reverse();
                return Ok(LeafPath { top: VdevId(place as u32), steps });
            }
            steps.push((up, place));
            at = up;
        }
    }

    /// The top-level vdev that a device is below.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no leaf of this guid.
    pub fn top_of(&self, leaf: Guid) -> Result<VdevId> {
        Ok(self.way(leaf)?.top)
    }

    /// Over how many devices a top-level vdev spreads its space (`vdev_get_ndisks`).
    pub fn spread(&self, vdev: VdevId) -> u64 {
        let Ok(top) = self.top(vdev) else { return 1 };
        match &self.node(top).layout {
            Layout::Raidz(raidz) => raidz.width,
            Layout::Draid(draid) => draid.ndisks(),
            _ => 1,
        }
    }

    /// Calls `each` with the runs of a device's space that `start..end` of its top-level vdev
    /// covers (`vdev_xlate_walk`).
    ///
    /// Each run has a start and an end, and they come in order. Runs are whole sectors;
    /// `start..end` is whole stripes for dRAID. A sector that is covered in part is left out.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`]: the pool has no leaf of this guid.
    /// * [`VdevError::Expanding`]: the top-level vdev is a raidz that is being expanded.
    /// * [`VdevError::RaidzSides`]: the device is below a mirror of raidz.
    /// * [`VdevError::Absent`]: a vdev above the device has no space, as a hole.
    pub fn translate(&self, leaf: Guid, start: u64, end: u64, each: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let way = self.way(leaf)?;
        let mut columns = false;
        for (id, _) in &way.steps {
            match &self.node(*id).layout {
                Layout::Mirrored => {}
                Layout::Raidz(raidz) if raidz.is_expanding() => {
                    return Err(VdevError::Expanding { vdev: way.top });
                }
                Layout::Raidz(_) | Layout::Draid(_) if columns || *id != self.top(way.top)? => {
                    return Err(VdevError::RaidzSides { vdev: way.top });
                }
                Layout::Raidz(_) | Layout::Draid(_) => columns = true,
                _ => return Err(VdevError::Absent { vdev: way.top }),
            }
        }
        if start >= end {
            return Ok(());
        }
        // Only the top-level vdev has columns: below it offsets stay as they are.
        let Some((top, place)) = way.steps.first() else {
            each(start, end);
            return Ok(());
        };
        match &self.node(*top).layout {
            Layout::Raidz(raidz) => {
                if let Some((start, end)) = raidz.child_run(*place as u64, start, end) {
                    each(start, end);
                }
            }
            Layout::Draid(draid) => draid.child_runs(*place as u64, start, end, each),
            _ => each(start, end),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
