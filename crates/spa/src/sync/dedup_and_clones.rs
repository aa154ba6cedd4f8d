//! Blocks with several references: the dedup tables and the block reference table.
//!
//! # Theory
//! A block in either table is freed only with its last reference: the pipeline checks both tables
//! at each free. A pass writes its changes of both to the MOS before the space maps, because they
//! may free blocks (`ddt_sync`, `brt_sync`).

use std::sync::Arc;

use dmu::Tx;
use ondisk::Txg;
use pool::brt::CloneTable;
use pool::ddt::DedupTables;

use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::sync::PoolSync;

/// The tables of shared blocks.
pub(crate) struct Shared {
    pub(crate) dedup: Arc<DedupTables>,
    pub(crate) clones: Arc<CloneTable>,
}

impl Shared {
    /// Opens a pool's tables, and gives them to its pipeline.
    ///
    /// # Errors
    /// * [`pool::Error`]: a table cannot be read.
    pub(crate) fn open(core: &PoolCore) -> pool::Result<Shared> {
        let vdevs = core.allocator.vdevs();
        let dedup = Arc::new(DedupTables::open(&core.mos, &vdevs, core.allocator.clone())?);
        // The first txg prunes before it begins with shared blocks.
        dedup.begin(Txg(0), core.world.now(), &vdevs);
        let clones = Arc::new(CloneTable::open(&core.mos, &vdevs)?);
        let zio = core.cache.zio();
        zio.set_dedup(dedup.clone());
        zio.set_clones(clones.clone());
        Ok(Shared { dedup, clones })
    }
}

impl PoolSync {
    /// Begins the sync of a txg: its clones count before it frees anything.
    pub(crate) fn begin_shared(&self, txg: Txg) -> Result<(), SyncError> {
        let vdevs = self.core.allocator.vdevs();
        self.shared.dedup.begin(txg, self.core.world.now(), &vdevs);
        self.shared.clones.set_vdevs(&vdevs);
        let metadata = |source| SyncError::Metadata { txg, source };
        let claimed = std::mem::take(&mut *self.claimed.lock());
        for bp in claimed.into_iter().chain(self.core.dsl.heads().clones(txg)) {
            self.scans.scan.moved(bp.stored().map_or(bp.birth, |s| s.phys_birth));
            let deduped = bp.stored().is_some_and(|s| s.dedup);
            if !deduped || !self.shared.dedup.add_ref(&bp).map_err(metadata)? {
                self.shared.clones.add(txg, &bp);
            }
        }
        self.shared.clones.begin(txg).map_err(metadata)
    }

    /// Writes the pass's changes of the tables, and frees what has lost its last reference.
    pub(crate) fn sync_shared(&self, tx: &Tx) -> Result<(), SyncError> {
        let txg = tx.txg();
        let metadata = |source| SyncError::Metadata { txg, source };
        self.shared.dedup.take_joined().into_iter().for_each(|birth| self.scans.scan.moved(birth));
        self.shared.clones.sync(tx, &self.core.sync_mos).map_err(metadata)?;
        let dead = self.shared.dedup.sync(tx, &self.core.sync_mos).map_err(metadata)?;
        dead.iter().try_for_each(|bp| self.core.free(txg, bp))
    }

    /// The txg has synced, and the MOS with it.
    pub(crate) fn shared_synced(&self) {
        self.shared.clones.sync_done(&self.core.sync_mos);
        self.shared.dedup.sync_done(&self.core.sync_mos);
    }

    /// Deflated bytes that sharing saves.
    pub(crate) fn shared_saved(&self) -> u64 {
        self.shared.dedup.saved().saturating_add(self.shared.clones.saved())
    }
}
