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

use std::sync::Arc;

use ondisk::label::LABELS;
use ondisk::{Blkptr, ByteOrder, RootedConfig, Txg, Uberblock, VdevConfig, VdevId, VdevKind};
use vdev::label::LabelWriter;
use zio::Reason;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::sync::PoolSync;

/// Newest pool version, which every writer records (`SPA_VERSION`).
pub(crate) const SPA_VERSION: u64 = 5000;

/// The sum of the guids of a tree, modulo 2^64 (`vdev_guid_sum`).
pub(crate) fn guid_sum(root: &VdevConfig) -> u64 {
    root.walk().filter(|v| v.kind != VdevKind::Hole).fold(0, |sum: u64, v| sum.wrapping_add(v.guid.0))
}

impl PoolSync {
    /// Makes `root` the pool's state as of `txg`.
    pub(crate) fn commit(&self, txg: Txg, root: &Blkptr) -> Result<(), SyncError> {
        let mos = &self.core.sync_mos;
        let features = match mos.has_counted_features(txg) {
            true => Arc::new(mos.features().map_err(|source| SyncError::Metadata { txg, source })?),
            false => Arc::clone(&self.core.synced.read().features),
        };
        let zio = self.core.cache.zio();
        zio.suspension().set_mode(PoolCore::failmode(mos));
        let mmp = self.core.heart.fields(self.core.multihost(), self.core.uptime());
        zio.flush(txg).map_err(|source| SyncError::Flush { txg, source })?;
        let changed = {
            let mut config = self.core.changed_config.lock();
            config.committing = config.next.take();
            config.committing.clone()
        };
        let config = changed.clone().unwrap_or_else(|| self.core.synced.read().config.clone());
        let before = self.core.synced.read().uberblock.clone();
        let tree = config.root();
        let uberblock = Uberblock {
            order: ByteOrder::Little,
            version: config.version,
            txg,
            guid_sum: guid_sum(tree),
            timestamp: self.core.world.now(),
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
        self.core.heart.synced(&uberblock, zio.tree().devices().count(), self.core.uptime());
        let mut synced = self.core.synced.write();
        synced.uberblock = uberblock;
        synced.config = config;
        synced.features = features;
        drop(synced);
        self.core.changed_config.lock().committing = None;
        Ok(())
    }

    /// Writes something and makes it durable. If that fails, the pool is suspended, and later the
    /// write is repeated.
    fn insist(&self, txg: Txg, write: impl Fn() -> Result<(), SyncError>) -> Result<(), SyncError> {
        let zio = self.core.cache.zio();
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

    /// Writes the labels of one parity of all devices. Each top-level vdev that holds data needs
    /// one device that took them.
    fn write_labels(&self, config: &RootedConfig, txg: Txg, parity: usize) -> Result<(), SyncError> {
        let tree = config.root();
        let each = tree.children.iter().map(|top| self.core.leaves(top)).collect::<Vec<_>>();
        let took = self.core.on_each(each.iter().flatten().collect(), |(leaf, device)| {
            let label = config.to_label(leaf.guid, txg)?;
            let writer = LabelWriter::of(&**device, leaf.guid);
            Some((parity..LABELS).step_by(2).map(|l| writer.config(l, &label).is_ok()).collect::<Vec<_>>())
        });
        let mut took = took.into_iter();
        for (top, leaves) in tree.children.iter().zip(&each) {
            let mut written = 0;
            for ((leaf, _), done) in leaves.iter().zip(took.by_ref()) {
                written += usize::from(done.is_some_and(|done| self.core.judge_labels(leaf.guid, &done)));
            }
            // The pool can live without a log device.
            let needed = !top.is_log && self.core.cache.zio().tree().holds_blocks(VdevId(top.id as u32));
            if written == 0 && needed {
                return Err(SyncError::Labels { txg, what: "labels", written, wanted: leaves.len() });
            }
        }
        Ok(())
    }

    /// Writes the uberblock to all devices, or to those of a few vdevs; if none of these takes it,
    /// to all.
    fn write_uberblock(&self, root: &VdevConfig, ub: &Uberblock, all: bool) -> Result<(), SyncError> {
        match self.core.put_uberblock(root, ub, all) {
            Err(_) if !all => self.core.put_uberblock(root, ub, true),
            done => done,
        }
    }
}
