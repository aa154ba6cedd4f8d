//! The space that blocks take, and their release.

use ondisk::{Blkptr, Psize, Txg, VdevId};

use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;

impl PoolCore {
    /// Bytes of the pool's space that a block takes, deflated (`bp_get_dsize_sync`).
    pub(crate) fn dsize(&self, bp: &Blkptr) -> u64 {
        let Some(s) = bp.stored() else { return 0 };
        s.copies().map(|d| (d.asize.0 >> 9).saturating_mul(self.deflate_ratio(d.vdev))).sum()
    }

    /// Usable part of a vdev's space in 1/512: the data part of a 128 KiB block's space
    /// (`vdev_deflate_ratio`).
    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        if let Some(ratio) = self.ratios.lock().get(&vdev) {
            return *ratio;
        }
        let taken = self.tree().psize_to_asize(vdev, Psize(1 << 17), ondisk::Txg(0)).map_or(1 << 17, |a| a.0);
        // The directory was readable when the pool was opened.
        let deflates = self.sync_mos.deflates().unwrap_or(true);
        let ratio = if deflates { pool::metaslab::deflate_ratio(taken) } else { 512 };
        self.ratios.lock().insert(vdev, ratio);
        ratio
    }

    pub(crate) fn free(&self, txg: Txg, bp: &Blkptr) -> Result<(), SyncError> {
        self.cache.free(txg, bp, None).map_err(|source| SyncError::Free { txg, source })
    }
}
