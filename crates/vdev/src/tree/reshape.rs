//! Another tree in the place of one that is in use.
//!
//! # Theory
//! A tree never changes, so whoever works with one may go on with it while another takes its place. What both know under the same guid is
//! one vdev: its device stays open, and its counters, states and what it has missed are shared. So nothing that the old tree's last
//! users find out is lost, and neither tree claims a device twice.
//!
//! # Locks
//! A cell's lock is held for handing out the tree, never while a device is opened or read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::Device;
use ondisk::Guid;
use parking_lot::RwLock;

use super::{Layout, Node, Opener, Tree};
use crate::{Result, VdevAux, VdevConfig, VdevState};

/// Devices by the guids of their leaves.
pub type Devices = HashMap<Guid, Arc<dyn Device>>;

/// A pool's tree as it is now; all clones are the same cell.
#[derive(Debug, Clone)]
pub struct TreeCell(Arc<RwLock<Arc<Tree>>>);

impl From<Arc<Tree>> for TreeCell {
    fn from(tree: Arc<Tree>) -> Self {
        Self(Arc::new(RwLock::new(tree)))
    }
}

impl TreeCell {
    /// The tree as it is now. Who does several things that must fit together asks once.
    pub fn get(&self) -> Arc<Tree> {
        self.0.read().clone()
    }

    /// Puts a tree in the place of the one there was. It was made from that by [`Tree::reshape`], and nobody has put another
    /// one there since: whoever changes a pool's shape does it alone.
    pub fn set(&self, tree: Arc<Tree>) {
        let mut now = self.0.write();
        tree.assess_all();
        *now = tree;
    }
}

impl Tree {
    /// The tree of another configuration of the same pool. Vdevs that both have, by their guids, are shared; `open` is asked for
    /// the devices of new leaves alone. States above the leaves follow when it is put in place.
    ///
    /// # Errors
    /// As [`Tree::open`]; the tree that is there stays as it was.
    pub fn reshape(&self, root: &VdevConfig, open: &mut Opener<'_>) -> Result<Tree> {
        self.rebuilt(root, &Devices::new(), open)
    }

    /// The same tree with other devices for some of its leaves, which are as if they had never failed: what is found at the path of a device
    /// that was pulled (`vdev_reopen`). What they missed meanwhile stays known.
    ///
    /// # Errors
    /// As [`Tree::reshape`].
    pub fn reopened(&self, devices: &Devices) -> Result<Tree> {
        let mut config = self.config.clone();
        let_in(&mut config, devices);
        let tree = self.rebuilt(&config, devices, &mut |_| Err(VdevAux::OpenFailed))?;
        for id in devices.keys().filter_map(|guid| tree.by_guid.get(guid)) {
            let node = tree.node(*id);
            node.cant_write.store(false, Relaxed);
            node.lost_writes.store(false, Relaxed);
            node.put_state(VdevState::Healthy, VdevAux::None);
        }
        Ok(tree)
    }

    /// The same tree without the device of a leaf, which it has open no more (`vdev_close`). Whoever still works with the old tree may have it for a while.
    ///
    /// # Errors
    /// As [`Tree::reshape`].
    pub fn closed(&self, leaf: Guid) -> Result<Tree> {
        let mut config = self.config.clone();
        keep_out(&mut config, leaf);
        self.rebuilt(&config, &Devices::new(), &mut |_| Err(VdevAux::OpenFailed))
    }

    fn rebuilt(&self, root: &VdevConfig, anew: &Devices, open: &mut Opener<'_>) -> Result<Tree> {
        let mut known = |leaf: &VdevConfig| match anew.get(&leaf.guid) {
            Some(device) => Ok(Arc::clone(device)),
            None => match self.same(leaf).map(|old| (&old.layout, old.aux())) {
                Some((Layout::Leaf(Some(device)), _)) => Ok(Arc::clone(device)),
                Some((Layout::Leaf(None), aux)) => Err(aux),
                _ => open(leaf),
            },
        };
        let mut tree = super::build::build(root, Arc::clone(&self.bell), &mut known)?.lacking(self.lacking);
        for node in &mut tree.nodes {
            let Some(old) = self.same(&node.spec) else { continue };
            node.vitals = Arc::clone(&old.vitals);
            if let Layout::Leaf(Some(device)) = &old.layout {
                node.could_trim.store(device.can_trim(), Relaxed);
            }
            match (&node.layout, &old.layout) {
                (Layout::Raidz(new), Layout::Raidz(old)) => new.set_reflow(old.reflow()),
                // What was not open before, for whatever reason, stays so.
                (Layout::Leaf(_), Layout::Leaf(None)) if !anew.contains_key(&node.guid) => {
                    node.layout = Layout::Leaf(None)
                }
                (Layout::Indirect(_), Layout::Indirect(old)) => node.layout = Layout::Indirect(old.clone()),
                _ => {}
            }
        }
        Ok(tree)
    }

    /// What a vdev of another configuration is in this tree. A device that takes its mirror's place takes its guid too, and says which one it had.
    fn same(&self, spec: &VdevConfig) -> Option<&Node> {
        let of = |guid: Guid| self.by_guid.get(&guid).map(|id| self.node(*id));
        of(spec.guid)
            .filter(|old| old.kind.is_leaf() == spec.kind.is_leaf())
            .or_else(|| of(spec.orig_guid?).filter(|old| old.kind.is_leaf() && spec.kind.is_leaf()))
    }
}

/// Forgets that these devices were kept out.
// As deep as the tree, which is bounded when it is built.
fn let_in(vdev: &mut VdevConfig, devices: &Devices) {
    if devices.contains_key(&vdev.guid) {
        (vdev.offline, vdev.faulted, vdev.degraded, vdev.removed) = (false, false, false, false);
    }
    vdev.children.iter_mut().for_each(|child| let_in(child, devices));
}

/// Has a device not opened, as one that is offline.
// As deep as the tree, which is bounded when it is built.
fn keep_out(vdev: &mut VdevConfig, leaf: Guid) {
    vdev.offline |= vdev.guid == leaf;
    vdev.children.iter_mut().for_each(|child| keep_out(child, leaf));
}

#[cfg(test)]
mod tests;
