//! States: those that follow from the states of children.

use ondisk::Guid;

use super::{Layout, Node, NodeId, Tree};
use crate::kind;
use crate::{Result, VdevAux, VdevKind, VdevState};

impl Tree {
    /// Sets the state of a vdev; the states of its parents follow (`vdev_set_state`).
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`](crate::VdevError::NoSuchGuid): the pool has no vdev of this
    ///   guid.
    pub fn set_state(&self, guid: Guid, state: VdevState, aux: VdevAux) -> Result<()> {
        let node = self.guid(guid)?;
        node.put_state(state, aux);
        if let Some(id) = self.by_guid.get(&guid) {
            self.assess_above(*id);
        }
        Ok(())
    }

    /// The state of a vdev, and the reason.
    ///
    /// # Errors
    /// * [`VdevError::NoSuchGuid`](crate::VdevError::NoSuchGuid): the pool has no vdev of this
    ///   guid.
    pub fn state_of(&self, guid: Guid) -> Result<(VdevState, VdevAux)> {
        let node = self.guid(guid)?;
        Ok((node.state(), node.aux()))
    }

    /// Whether a device is open and takes writes (`vdev_writeable`).
    pub fn is_writable(&self, guid: Guid) -> bool {
        let is_leaf = |id: &NodeId| matches!(self.node(*id).layout, Layout::Leaf(Some(_)));
        self.by_guid.get(&guid).is_some_and(|id| is_leaf(id) && self.writable(*id))
    }

    /// The state of the whole pool, as far as it follows from its vdevs.
    pub fn state(&self) -> (VdevState, VdevAux) {
        let root = self.node(Self::ROOT);
        (root.state(), root.aux())
    }

    /// Sets the states of all vdevs above the leaves from their children's.
    pub(super) fn assess_all(&self) {
        // Children come after their parents in the arena, so that backwards is bottom-up.
        for i in (0..self.nodes.len()).rev() {
            if !self.nodes[i].children.is_empty() {
                self.assess(NodeId(i as u32));
            }
        }
    }

    /// Sets the state of a vdev from its children's (`vdev_propagate_state`).
    pub(crate) fn assess(&self, id: NodeId) {
        let node = self.node(id);
        let (mut faulted, mut degraded, mut corrupt) = (0, 0, false);
        let mut concrete = 0;
        for child in node.children.iter().map(|c| self.node(*c)) {
            if !counts(child) {
                continue;
            }
            concrete += 1;
            if !child.readable() {
                // A pool without its log device can still be opened.
                if child.spec.is_log && id == Self::ROOT {
                    degraded += 1;
                } else {
                    faulted += 1;
                }
            } else if child.state() <= VdevState::Degraded {
                degraded += 1;
            }
            corrupt |= child.aux() == VdevAux::CorruptData;
        }
        let tolerated = match &node.layout {
            Layout::Mirrored => concrete - 1,
            Layout::Raidz(raidz) => raidz.nparity,
            Layout::Draid(draid) => draid.nparity,
            Layout::Root => self.lacking.min(concrete.max(1) - 1),
            Layout::Leaf(_) | Layout::DraidSpare { .. } | Layout::Indirect(_) | Layout::Absent => return,
        };
        let (state, aux) = if faulted > tolerated {
            self.lost(id, corrupt)
        } else if faulted + degraded > 0 {
            (VdevState::Degraded, VdevAux::None)
        } else {
            (VdevState::Healthy, VdevAux::None)
        };
        node.put_state(state, aux);
    }

    /// Whether a vdev can't be read.
    pub(super) fn is_lost(&self, node: &Node) -> bool {
        counts(node) && !node.readable()
    }

    /// The state of a vdev that has lost too many children.
    fn lost(&self, id: NodeId, corrupt: bool) -> (VdevState, VdevAux) {
        let node = self.node(id);
        let offline = |c: &NodeId| self.node(*c).state() == VdevState::Offline;
        if kind::is_mirrored(node.kind) && node.children.iter().all(offline) {
            return (VdevState::Offline, VdevAux::ChildrenOffline);
        }
        let aux = if corrupt && id == Self::ROOT { VdevAux::CorruptData } else { VdevAux::NoReplicas };
        (VdevState::CantOpen, aux)
    }
}

/// Whether a vdev's state counts for its parent. A hole or a removed vdev does not; a missing one
/// counts as lost.
fn counts(node: &Node) -> bool {
    kind::is_concrete(node.kind) || node.kind == VdevKind::Missing
}
