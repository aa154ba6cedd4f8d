//! The states of scans, checkpoints and removals.

use crate::metaslab::TopVdev;
use crate::spacemap::SpaceMap;
use crate::{Error, Mos, Result};
use ondisk::indirect::{CondensingPhys, RemovingPhys};
use ondisk::mos::DIRECTORY_OBJECT;
use ondisk::scan::{RebuildPhys, ScanPhys};
use ondisk::{ObjNum, mos};

impl Mos {
    /// The state of the last scrub or resilver (`dsl_scan_phys_t`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading). [`Error::Corrupt`] also if the function or the state
    /// is unknown.
    pub fn scan(&self) -> Result<Option<ScanPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::SCAN)?.map(|w| ScanPhys::decode(&w).map_err(Error::corrupt(dir))).transpose()
    }

    /// The txg of the last finished scrub (`spa_scrubbed_last_txg`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn last_scrubbed_txg(&self) -> Result<Option<u64>> {
        Ok(self.dir_words(mos::LAST_SCRUBBED_TXG)?.and_then(|w| w.first().copied()))
    }

    /// The state of the last device removal (`spa_removing_phys_t`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn removing(&self) -> Result<Option<RemovingPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::REMOVING)?
            .map(|w| RemovingPhys::decode(&w).map_err(Error::corrupt(dir)))
            .transpose()
    }

    /// The state of a mapping that is being condensed (`spa_condensing_indirect_phys_t`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn condensing(&self) -> Result<Option<CondensingPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::CONDENSING_INDIRECT)?
            .map(|w| CondensingPhys::decode(&w).map_err(Error::corrupt(dir)))
            .transpose()
    }

    /// The state of the last sequential rebuild of a top-level vdev (`vdev_rebuild_phys_t`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn rebuild(&self, top_zap: ObjNum) -> Result<Option<RebuildPhys>> {
        self.words(top_zap, mos::VDEV_TOP_REBUILD_PHYS)?
            .map(|w| RebuildPhys::decode(&w).map_err(Error::corrupt(top_zap)))
            .transpose()
    }

    /// The words of the checkpointed uberblock, to which the pool can be rewound
    /// (`DMU_POOL_ZPOOL_CHECKPOINT`). `None` without a checkpoint.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn checkpoint(&self) -> Result<Option<Vec<u64>>> {
        self.dir_words(mos::ZPOOL_CHECKPOINT)
    }

    /// The bytes of a vdev that only the checkpoint refers to (`vs_checkpoint_space`).
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    pub fn checkpoint_space(&self, vd: &TopVdev) -> Result<u64> {
        let Some(zap) = vd.top_zap else { return Ok(0) };
        let Some(obj) = self.u64(zap, mos::VDEV_TOP_POOL_CHECKPOINT_SM)? else { return Ok(0) };
        let map = SpaceMap::open(self, ObjNum(obj), 0, vd.asize, vd.ashift.0)?;
        // The map holds only frees, so its sum is negative.
        Ok(map.phys().alloc.min(0).unsigned_abs())
    }
}
