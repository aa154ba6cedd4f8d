//! Scans, checkpoints, removals: what a pool is in the middle of.

use crate::metaslab::TopVdev;
use crate::spacemap::SpaceMap;
use crate::{Error, Mos, Result};
use ondisk::indirect::{CondensingPhys, RemovingPhys};
use ondisk::mos::DIRECTORY_OBJECT;
use ondisk::scan::{RebuildPhys, ScanPhys};
use ondisk::{ObjNum, mos};

impl Mos {
    /// State of the last scrub or resilver.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for an unknown function or state.
    pub fn scan(&self) -> Result<Option<ScanPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::SCAN)?.map(|w| ScanPhys::decode(&w).map_err(Error::corrupt(dir))).transpose()
    }

    /// The txg of the last finished scrub.
    ///
    /// # Errors
    /// As reading fails.
    pub fn last_scrubbed_txg(&self) -> Result<Option<u64>> {
        Ok(self.dir_words(mos::LAST_SCRUBBED_TXG)?.and_then(|w| w.first().copied()))
    }

    /// State of the last device removal.
    ///
    /// # Errors
    /// As reading fails.
    pub fn removing(&self) -> Result<Option<RemovingPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::REMOVING)?
            .map(|w| RemovingPhys::decode(&w).map_err(Error::corrupt(dir)))
            .transpose()
    }

    /// State of a mapping that is being condensed.
    ///
    /// # Errors
    /// As reading fails.
    pub fn condensing(&self) -> Result<Option<CondensingPhys>> {
        let dir = ObjNum(DIRECTORY_OBJECT);
        self.dir_words(mos::CONDENSING_INDIRECT)?
            .map(|w| CondensingPhys::decode(&w).map_err(Error::corrupt(dir)))
            .transpose()
    }

    /// State of the last sequential rebuild of a top-level vdev.
    ///
    /// # Errors
    /// As reading fails.
    pub fn rebuild(&self, top_zap: ObjNum) -> Result<Option<RebuildPhys>> {
        self.words(top_zap, mos::VDEV_TOP_REBUILD_PHYS)?
            .map(|w| RebuildPhys::decode(&w).map_err(Error::corrupt(top_zap)))
            .transpose()
    }

    /// The words of the uberblock that the pool can be rewound to; `None` without a checkpoint.
    ///
    /// # Errors
    /// As reading fails.
    pub fn checkpoint(&self) -> Result<Option<Vec<u64>>> {
        self.dir_words(mos::ZPOOL_CHECKPOINT)
    }

    /// Bytes of a vdev that only the checkpoint refers to (`vs_checkpoint_space`).
    ///
    /// # Errors
    /// As reading fails.
    pub fn checkpoint_space(&self, vd: &TopVdev) -> Result<u64> {
        let Some(zap) = vd.top_zap else { return Ok(0) };
        let Some(obj) = self.u64(zap, mos::VDEV_TOP_POOL_CHECKPOINT_SM)? else { return Ok(0) };
        let map = SpaceMap::open(self, ObjNum(obj), 0, vd.asize, vd.ashift.0)?;
        // The map logs frees only, so that its sum is negative.
        Ok(map.phys().alloc.min(0).unsigned_abs())
    }
}
