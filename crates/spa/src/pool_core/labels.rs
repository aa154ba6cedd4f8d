//! Writing to the labels of devices.

use std::collections::HashMap;
use std::sync::Arc;

use device::Device;
use ondisk::label::{LABELS, MMP_BLOCKS_PER_LABEL, uberblock_count, uberblock_shift};
use ondisk::{Guid, Uberblock, VdevConfig, VdevKind};
use vdev::label::LabelWriter;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;

/// Number of top-level vdevs that get the uberblock of a txg without config changes
/// (`SPA_SYNC_MIN_VDEVS`).
const MIN_VDEVS: usize = 3;

impl PoolCore {
    pub(crate) fn leaves<'c>(&self, top: &'c VdevConfig) -> Vec<(&'c VdevConfig, Arc<dyn Device>)> {
        let tree = self.tree();
        let devices: HashMap<Guid, Arc<dyn Device>> =
            tree.devices().map(|(guid, device)| (guid, device.clone())).collect();
        top.leaves()
            .filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File))
            .filter(|leaf| tree.is_writable(leaf.guid))
            .filter_map(|leaf| Some((leaf, devices.get(&leaf.guid)?.clone())))
            .collect()
    }

    /// Runs `work` on each device, all at once; the results are in the order of the devices.
    pub(crate) fn on_each<T: Send, R: Send>(&self, devices: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        self.cache.zio().workers().at_once(devices, work)
    }

    /// Counts a device's failed label writes as write errors, and probes it if there are any: a
    /// device that otherwise works stays in use. True if a label was written.
    pub(crate) fn judge_labels(&self, leaf: Guid, done: &[bool]) -> bool {
        let bad = done.iter().filter(|good| !**good).count();
        self.cache.zio().tree().blame(leaf, bad as u64);
        bad < done.len()
    }

    pub(crate) fn put_uberblock(
        &self,
        root: &VdevConfig,
        ub: &Uberblock,
        all: bool,
    ) -> Result<(), SyncError> {
        let concrete =
            |t: &&VdevConfig| all || t.metaslab_array.is_some() && !t.is_log && t.kind != VdevKind::Indirect;
        let tops: Vec<&VdevConfig> = root.children.iter().filter(concrete).collect();
        let count = if all { tops.len() } else { tops.len().min(MIN_VDEVS) };
        let first = if all { 0 } else { ub.txg.0 as usize };
        let mut all = Vec::new();
        for i in 0..count {
            let top = tops[(first + i) % tops.len()];
            let shift = uberblock_shift(top.ashift.unwrap_or_default());
            let slots = uberblock_count(shift) as u64
                - if self.heart.is_on() { MMP_BLOCKS_PER_LABEL as u64 } else { 0 };
            let slot = (ub.txg.0 % slots) as usize;
            all.extend(self.leaves(top).into_iter().map(|(leaf, device)| (leaf.guid, device, shift, slot)));
        }
        let wanted = all.len();
        let took = self.on_each(all, |(leaf, device, shift, slot)| {
            let writer = LabelWriter::of(&*device, leaf);
            (leaf, (0..LABELS).map(|l| writer.uberblock(l, shift, slot, ub).is_ok()).collect::<Vec<_>>())
        });
        let written = took.into_iter().filter(|(leaf, done)| self.judge_labels(*leaf, done)).count();
        if written == 0 {
            return Err(SyncError::Labels { txg: ub.txg, what: "uberblock", written, wanted });
        }
        Ok(())
    }
}
