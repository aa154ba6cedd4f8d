//! Dirty time logs (DTLs): what each device has missed, stored in the pool.
//!
//! # Theory
//! The tree records which txgs a device missed, and readers use it last for blocks of these. An
//! import must know this too, so each txg writes the logs that changed: a space map for each leaf,
//! whose ranges are txgs. Writing them may miss the device again, but only ever the same txg, so
//! that passes still end. Deferred metadata writes ([`zio::Zio::write_held`]) follow the passes. If
//! a device misses them that was not known to miss the txg, there is another pass.
//!
//! # Crash
//! What a device misses after the last pass, in label writes or flushes, is recorded with the next
//! txg. A crash in between may leave a device that lacks blocks without a record. Their checksums
//! show that, and redundancy repairs them.
//!
//! # Absent
//! Shrinking a log: a finished scan does that ([`crate::scan`]).
//!
//! # See
//! OpenZFS `vdev_dtl_sync`, `vdev_dtl_load`.

use std::sync::Arc;

use dmu::Tx;
use ondisk::spacemap::MapType;
use ondisk::{Guid, ObjNum, RootedConfig, VdevConfig};
use pool::range::RangeSet;
use pool::spacemap::{DTL_BLOCK_SIZE, Pass, SpaceMap};

use crate::pool_core::errors::SyncError;
use crate::sync::PoolSync;

impl PoolSync {
    /// Writes the logs that changed. True if one is new, and so the config has changed.
    pub(crate) fn write_dtls(&self, tx: &Tx, pass: u32) -> Result<bool, SyncError> {
        let txg = tx.txg();
        self.put_dtls(tx, pass).map_err(|source| SyncError::Metadata { txg, source })
    }

    fn put_dtls(&self, tx: &Tx, pass: u32) -> pool::Result<bool> {
        let tree = self.core.tree();
        let mut changed = self.core.changed_config.lock();
        let now = self.core.newest_config(&changed);
        let mut written = self.core.dtls.lock();
        let mut new: Vec<(Guid, ObjNum)> = Vec::new();
        for leaf in now.root().leaves() {
            let Ok(missed) = tree.dtl(leaf.guid) else { continue };
            if written.get(&leaf.guid).map_or(missed.is_empty(), |w| *w == missed) {
                continue;
            }
            let object = match leaf.dtl {
                Some(object) => object,
                None => {
                    let object = self.core.sync_mos.create_space_map(tx, DTL_BLOCK_SIZE)?;
                    new.push((leaf.guid, object));
                    object
                }
            };
            let mut ranges = RangeSet::new();
            for (start, end) in missed.iter() {
                let fresh = ranges.add(start, end);
                assert!(fresh, "ranges of groups don't overlap");
            }
            let mut map = SpaceMap::open(&self.core.sync_mos, object, 0, u64::MAX, 0)?;
            map.truncate(tx)?;
            map.append(&Pass::new(&self.core.sync_mos, tx, pass)?, MapType::Alloc, &ranges)?;
            map.store(tx)?;
            written.insert(leaf.guid, missed);
        }
        if new.is_empty() {
            return Ok(false);
        }
        let mut config = RootedConfig::clone(&now);
        let root = config.root_mut();
        new.iter().for_each(|(guid, object)| name(root, *guid, *object));
        changed.next = Some(Arc::new(config));
        Ok(true)
    }
}

/// Records a leaf's log in the config.
// Recursion as deep as the tree, whose depth was checked when it was built.
fn name(vdev: &mut VdevConfig, leaf: Guid, object: ObjNum) {
    if vdev.guid == leaf {
        vdev.dtl = Some(object);
    }
    vdev.children.iter_mut().for_each(|child| name(child, leaf, object));
}
