//! Making a synced txg the pool's state: labels and uberblocks.
//!
//! # Crash
//! The order is OpenZFS's:
//!
//! 1. Everything that the new uberblock reaches is made durable.
//! 2. If the config changed, the even labels (0 and 2) of all devices are rewritten and flushed.
//!    Until the new uberblock is there, an import finds them too new and takes the odd ones, which
//!    still go with the old uberblock.
//! 3. The uberblock is written to all four labels, and flushed. Now the txg exists.
//! 4. The odd labels (1 and 3) are rewritten.
//!
//! The slot in the ring follows from the txg, so the uberblocks of the last txgs stay.
//!
//! # See
//! OpenZFS `vdev_config_sync`, `uberblock_update`.

use std::collections::HashMap;
use std::sync::Arc;

use device::Device;
use ondisk::label::{LABELS, MMP_BLOCKS_PER_LABEL, uberblock_count, uberblock_shift};
use ondisk::{Blkptr, ByteOrder, Guid, PoolConfig, Txg, Uberblock, VdevConfig, VdevId, VdevKind};
use vdev::label::LabelWriter;
use zio::Reason;

use crate::engine::{Engine, SyncError};

/// Number of top-level vdevs that get the uberblock of a txg without config changes
/// (`SPA_SYNC_MIN_VDEVS`).
const MIN_VDEVS: usize = 3;
/// Newest pool version, which every writer records (`SPA_VERSION`).
pub(crate) const SPA_VERSION: u64 = 5000;

/// The sum of the guids of a tree, modulo 2^64 (`vdev_guid_sum`).
pub(crate) fn guid_sum(root: &VdevConfig) -> u64 {
    root.walk().filter(|v| v.kind != VdevKind::Hole).fold(0, |sum: u64, v| sum.wrapping_add(v.guid.0))
}

impl Engine {
    /// Makes `root` the pool's state as of `txg`.
    pub(crate) fn commit(&self, txg: Txg, root: &Blkptr) -> Result<(), SyncError> {
        let features = self.sync_mos.features().map_err(|source| SyncError::Books { txg, source })?;
        let zio = self.cache.zio();
        zio.suspension().set_mode(Self::failmode(&self.sync_mos));
        let mmp = self.heart.fields(self.multihost(), self.uptime());
        zio.flush(txg).map_err(|source| SyncError::Flush { txg, source })?;
        let changed = {
            let mut config = self.changed_config.lock();
            config.committing = config.next.take();
            config.committing.clone()
        };
        let config = changed.clone().unwrap_or_else(|| self.synced.read().config.clone());
        let before = self.synced.read().uberblock.clone();
        let tree = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let uberblock = Uberblock {
            order: ByteOrder::Little,
            version: config.version,
            txg,
            guid_sum: guid_sum(tree),
            timestamp: self.world.now(),
            rootbp: root.encode(),
            software_version: SPA_VERSION,
            mmp: Some(mmp),
            checkpoint_txg: Txg(0),
            raidz_reflow: before.raidz_reflow,
        };
        if changed.is_some() {
            self.insist(txg, || self.write_labels(&config, txg, 0))?;
        }
        self.insist(txg, || self.write_uberblock(tree, &uberblock, changed.is_some()))?;
        if changed.is_some() {
            self.insist(txg, || self.write_labels(&config, txg, 1))?;
        }
        self.heart.synced(&uberblock, zio.tree().devices().count(), self.uptime());
        let mut synced = self.synced.write();
        synced.uberblock = uberblock;
        synced.config = config;
        synced.features = Arc::new(features);
        drop(synced);
        self.changed_config.lock().committing = None;
        Ok(())
    }

    /// Writes something and makes it durable. If that fails, the pool is suspended, and later the
    /// write is repeated.
    fn insist(&self, txg: Txg, write: impl Fn() -> Result<(), SyncError>) -> Result<(), SyncError> {
        let zio = self.cache.zio();
        let flush = || zio.flush_once(txg).map_err(|source| SyncError::Flush { txg, source });
        loop {
            // A host whose heartbeat has failed for too long must not change the pool.
            if !zio.suspension().pass() {
                return Err(SyncError::LetGo { txg });
            }
            match write().and_then(|()| flush()) {
                Err(e) if !zio.suspension().wait(Reason::Io) => return Err(e),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

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
    fn on_each<T: Send, R: Send>(&self, devices: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        self.cache.zio().workers().at_once(devices, work)
    }

    /// Writes the labels of one parity of all devices. Each top-level vdev that holds data needs
    /// one device that took them.
    fn write_labels(&self, config: &PoolConfig, txg: Txg, parity: usize) -> Result<(), SyncError> {
        let tree = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let each = tree.children.iter().map(|top| self.leaves(top)).collect::<Vec<_>>();
        let took = self.on_each(each.iter().flatten().collect(), |(leaf, device)| {
            let label = config.to_label(leaf.guid, txg)?;
            let writer = LabelWriter::of(&**device, leaf.guid);
            Some((parity..LABELS).step_by(2).map(|l| writer.config(l, &label).is_ok()).collect::<Vec<_>>())
        });
        let mut took = took.into_iter();
        for (top, leaves) in tree.children.iter().zip(&each) {
            let mut written = 0;
            for ((leaf, _), done) in leaves.iter().zip(took.by_ref()) {
                written += usize::from(done.is_some_and(|done| self.judge_labels(leaf.guid, &done)));
            }
            // The pool can live without a log device.
            let needed = !top.is_log && self.cache.zio().tree().holds_blocks(VdevId(top.id as u32));
            if written == 0 && needed {
                return Err(SyncError::Labels { txg, what: "labels", written, wanted: leaves.len() });
            }
        }
        Ok(())
    }

    /// Counts a device's failed label writes as write errors, and probes it if there are any: a
    /// device that otherwise works stays in use. True if a label was written.
    pub(crate) fn judge_labels(&self, leaf: Guid, done: &[bool]) -> bool {
        let bad = done.iter().filter(|good| !**good).count();
        self.cache.zio().tree().blame(leaf, bad as u64);
        bad < done.len()
    }

    /// Writes the uberblock to all devices, or to those of a few vdevs; if none of these takes it,
    /// to all.
    fn write_uberblock(&self, root: &VdevConfig, ub: &Uberblock, all: bool) -> Result<(), SyncError> {
        match self.put_uberblock(root, ub, all) {
            Err(_) if !all => self.put_uberblock(root, ub, true),
            done => done,
        }
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
