//! Replacing a tree that is in use.
//!
//! # Theory
//! A tree never changes, so a thread that works with one may continue while another takes its
//! place. A vdev that both trees have under the same guid is one vdev. Its device stays open. Its
//! counters, its state and the txgs that it has missed are shared. So nothing that the last users
//! of the old tree find out is lost, and neither tree claims a device twice.
//!
//! # Locks
//! A cell's lock is held while the tree's reference is copied, never while a device is opened or
//! read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::Device;
use observe::lock::RwLock;
use ondisk::Guid;

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
    /// The tree as it is now. A caller that does several things that must fit together calls this
    /// once.
    pub fn get(&self) -> Arc<Tree> {
        self.0.read().clone()
    }

    /// Puts a tree in the place of the current one, from which [`Tree::reshape`] made it. The
    /// caller makes sure that no other thread replaces the tree meanwhile: changes of a pool's
    /// shape come one at a time.
    pub fn set(&self, tree: Arc<Tree>) {
        let mut now = self.0.write();
        tree.assess_all();
        *now = tree;
    }
}

impl Tree {
    /// The tree of another configuration of the same pool.
    ///
    /// Vdevs that both have, by their guids, are shared. `open` opens the devices of new leaves
    /// alone. States above the leaves follow when the tree is put in place.
    ///
    /// # Errors
    /// The current tree does not change.
    ///
    /// * [`VdevError::Config`](crate::VdevError::Config): a field of the configuration has an
    ///   invalid value.
    /// * [`VdevError::Shape`](crate::VdevError::Shape): the vdevs are nested in an invalid way, are
    ///   too many, or share a guid.
    pub fn reshape(&self, root: &VdevConfig, open: &mut Opener<'_>) -> Result<Tree> {
        self.rebuilt(root, &Devices::new(), open)
    }

    /// The same tree with other devices for some of its leaves (`vdev_reopen`).
    ///
    /// These leaves are as if they had never failed: a device that was pulled is at its path again.
    /// What they missed meanwhile stays known.
    ///
    /// # Errors
    /// Those of [`Tree::reshape`].
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

    /// The same tree without the device of a leaf, which is no longer open there (`vdev_close`). A
    /// thread that still works with the old tree may use the device for a while.
    ///
    /// # Errors
    /// Those of [`Tree::reshape`].
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

    /// The vdev of this tree that a vdev of another configuration is. A device that takes its
    /// mirror's place takes its guid too, and its configuration says which guid it had.
    fn same(&self, spec: &VdevConfig) -> Option<&Node> {
        let of = |guid: Guid| self.by_guid.get(&guid).map(|id| self.node(*id));
        of(spec.guid)
            .filter(|old| old.kind.is_leaf() == spec.kind.is_leaf())
            .or_else(|| of(spec.orig_guid?).filter(|old| old.kind.is_leaf() && spec.kind.is_leaf()))
    }
}

/// Clears in the configuration that these devices were kept out.
// As deep as the tree, whose depth was checked when it was built.
fn let_in(vdev: &mut VdevConfig, devices: &Devices) {
    if devices.contains_key(&vdev.guid) {
        (vdev.offline, vdev.faulted, vdev.degraded, vdev.removed) = (false, false, false, false);
    }
    vdev.children.iter_mut().for_each(|child| let_in(child, devices));
}

/// Marks a device in the configuration as offline, so that it is not opened.
// As deep as the tree, whose depth was checked when it was built.
fn keep_out(vdev: &mut VdevConfig, leaf: Guid) {
    vdev.offline |= vdev.guid == leaf;
    vdev.children.iter_mut().for_each(|child| keep_out(child, leaf));
}

#[cfg(test)]
mod tests;
