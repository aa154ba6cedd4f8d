//! The pool's config in the MOS.

use std::sync::Arc;

use dmu::Tx;
use ondisk::feature::FEATURES;
use ondisk::{RootedConfig, mos};

use crate::pool_core::errors::SyncError;
use crate::sync::PoolSync;

/// The config entry that says that every vdev has its ZAP.
const PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";

impl PoolSync {
    /// Writes the config to the MOS if it has changed, or if the labels must name other features
    /// (`spa_sync_config_object`).
    pub(crate) fn write_config(&self, tx: &Tx) -> Result<(), SyncError> {
        let txg = tx.txg();
        self.put_config(tx).map_err(|source| SyncError::Metadata { txg, source })
    }

    fn put_config(&self, tx: &Tx) -> pool::Result<()> {
        let features = self.label_features()?;
        let mut changed = self.core.changed_config.lock();
        let now = self.core.newest_config(&changed);
        if changed.next.is_none() && now.features_for_read == features {
            return Ok(());
        }
        let mut config = RootedConfig::clone(&now);
        (config.features_for_read, config.txg) = (features, tx.txg());
        let config = Arc::new(config);
        let mut nv = config.to_mos(tx.txg());
        if self.core.sync_mos.dir(mos::VDEV_ZAP_MAP)?.is_none() {
            // An imported pool's devices may have none yet; OpenZFS then creates them.
            nv.remove(PER_VDEV_ZAPS);
        }
        self.core.sync_mos.write_config(tx, &nv)?;
        changed.next = Some(config);
        Ok(())
    }

    /// The active features that are needed to read the MOS (`spa_label_features`).
    fn label_features(&self) -> pool::Result<Vec<String>> {
        let mut out = Vec::new();
        for feature in FEATURES.iter().filter(|f| f.mos()) {
            if self.core.sync_mos.feature_refcount(feature)?.is_some_and(|n| n > 0) {
                out.push(feature.guid.to_owned());
            }
        }
        Ok(out)
    }
}
