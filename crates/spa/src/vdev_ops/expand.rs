//! Vdevs that grow with their devices.
//!
//! # Theory
//! A top-level vdev has metaslabs of one size. When all of its devices have grown, more metaslabs
//! fit at its end. One txg adds them, and writes the new size to the config and to all labels. The
//! labels at the ends of the devices lie at the new ends from then on. A vdev grows as a whole:
//! with `zpool online -e` of any of its devices, or by itself with `autoexpand=on`. The labels at
//! the new end get copies of the uberblocks at the front, of all txgs: a rewind finds them at both
//! ends.
//!
//! # Crash
//! Until that txg's uberblock is on the devices nothing references the new space. The labels at the
//! front are those of the txg before, and stay where they are. The uberblocks at the new end are
//! durable together with the txg's own labels.
//!
//! # Absent
//! A partition is as large as its table says; tables are not changed. A device that has shrunk is
//! noticed only when the missing part is accessed.
//!
//! # See
//! OpenZFS `vdev_expand`, `vdev_metaslab_init`, `vdev_get_stats_ex` (`vs_esize`),
//! `vdev_copy_uberblocks`.

use std::sync::Arc;

use device::Device;
use dmu::Tx;
use dsl::sync::Event;
use ondisk::label::{LABELS, uberblock_shift};
use ondisk::{Guid, Psize, VdevConfig, VdevId, VdevKind};
use pool::metaslab::TopVdev;
use vdev::Tree;
use vdev::label::{LabelWriter, Labels};

use crate::new_vdevs::Claimed;
use crate::new_vdevs::geometry::{asize, leaf_asize};
use crate::pool_core::errors::{LifeError, SyncError};
use crate::pool_core::pool_tasks::Change;
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::replicas;

/// Allocatable bytes of a top-level vdev after growing with its devices. `None` if it would not
/// gain a metaslab.
pub(crate) fn grown(tree: &Tree, top: &VdevConfig) -> Option<u64> {
    if matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) || top.raidz_expanding {
        return None;
    }
    let size = |leaf: &VdevConfig| {
        let device = tree.devices().find(|(guid, _)| *guid == leaf.guid);
        match leaf.kind {
            // Its size follows from the devices that it is spread over.
            VdevKind::DraidSpare => u64::MAX,
            _ => device.map_or(0, |(_, device)| leaf_asize(device.size_now())),
        }
    };
    let metaslab = 1u64 << top.metaslab_shift.filter(|shift| *shift < 63)?;
    let (now, before) = (asize(top, &size), top.asize?);
    (now >= before.checked_add(metaslab)?).then_some(now)
}

/// Bytes that a top-level vdev could grow by, in whole metaslabs (`vs_esize`).
pub(crate) fn room_to_grow(tree: &Tree, top: &VdevConfig) -> u64 {
    let metaslab = top.metaslab_shift.filter(|shift| *shift < 63).map_or(1, |shift| 1u64 << shift);
    let more = grown(tree, top).map_or(0, |now| now - top.asize.unwrap_or(0));
    more / metaslab * metaslab
}

/// Copies the uberblocks at the front of a device to the labels at its end, and gives which of
/// these labels took them. A new end holds arbitrary data.
pub(crate) fn copy_rings(top: &VdevConfig, leaf: &VdevConfig, device: &dyn Device) -> Vec<bool> {
    let labels = Labels::of(device, leaf.guid);
    let shift = uberblock_shift(top.ashift.unwrap_or_default());
    let found = |label| labels.ring(label, shift).ok().filter(|ring| !ring.is_empty());
    // If there is none at the front, those at the end may be all that the device has.
    let Some(ring) = found(0).or_else(|| found(1)) else { return vec![true; LABELS / 2] };
    let writer = LabelWriter::of(device, leaf.guid);
    (LABELS / 2..LABELS).map(|label| writer.ring(label, &ring).is_ok()).collect()
}

impl Vdevs {
    /// Grows the top-level vdev of a device, if it can.
    pub(crate) fn grow_top_of(self: &Arc<Self>, guid: Guid) -> Result<(), LifeError> {
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let root = config.root();
        let top = root.children.iter().find(|top| top.find(guid).is_some());
        match top.filter(|top| grown(&tree, top).is_some()).map(|top| top.guid) {
            Some(top) => {
                let me = Arc::clone(self);
                self.core.decide(move |_, tx| me.take_growth(tx, top))
            }
            None => Ok(()),
        }
    }

    /// Grows all vdevs that can, if the pool wants that (`autoexpand=on`).
    pub(crate) fn grow_by_itself(self: &Arc<Self>) {
        if !self.core.is_on("autoexpand") {
            return;
        }
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let tops = config.root().children.iter();
        let larger: Vec<Guid> = tops.filter(|top| grown(&tree, top).is_some()).map(|top| top.guid).collect();
        drop(tree);
        for top in larger {
            let _alone = self.core.shape.lock();
            // A pool that has stopped needs no space.
            let me = Arc::clone(self);
            let _ = self.core.decide(move |_, tx| me.take_growth(tx, top));
        }
    }

    /// Grows a vdev with its devices, in the syncing txg.
    fn take_growth(&self, tx: &Tx, guid: Guid) -> Result<Change<()>, SyncError> {
        let txg = tx.txg();
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let mut root = config.root().clone();
        let top = root.children.iter().find(|top| top.guid == guid);
        let Some(now) = top.and_then(|top| grown(&tree, top)) else { return Ok(Ok(((), Vec::new()))) };
        let before = self.core.allocator.totals().size();
        replicas::edit(&mut root, guid, &mut |top| top.asize = Some(now));
        let top = root.children.iter().find(|top| top.guid == guid).cloned().expect("it was just there");
        for leaf in top.leaves() {
            for (_, device) in tree.devices().filter(|(of, _)| *of == leaf.guid) {
                let before = device.size();
                device.grow();
                if device.size() > before && tree.is_writable(leaf.guid) {
                    self.core.judge_labels(leaf.guid, &copy_rings(&top, leaf, &**device));
                }
            }
        }
        let shape = |source| SyncError::Shape { txg, source };
        // The tree keeps closed what is closed.
        let mut shown = tree.config().clone();
        replicas::edit(&mut shown, guid, &mut |top| top.asize = Some(now));
        let tree = self.core.put_tree(&shown, &Claimed::new(), |_| Ok(())).map_err(shape)?;
        let block = tree.psize_to_asize(VdevId(top.id as u32), Psize(1 << 17), txg).map_err(shape)?;
        let described = TopVdev::from_config(&self.core.sync_mos, &top, block.0);
        if let Some(described) = described.map_err(|source| SyncError::Metadata { txg, source })? {
            self.core.allocator.grow_vdev(&described);
        }
        self.core.edit_config(|config| config.set_root(root));
        let size = self.core.allocator.totals().size();
        let text =
            format!("pool '{}' size: {size}(+{})", self.core.dsl.pool_name(), size.saturating_sub(before));
        Ok(Ok(((), vec![Event { what: "vdev online", dataset: String::new(), object: 0, text }])))
    }
}
