//! Enabling and counting features.
//!
//! # Theory
//! A feature is enabled if it is in one of two ZAPs: of the features needed to read, or of those
//! needed only to write. The value counts its users. Code that starts or stops using the feature
//! changes the count in the same txg. The labels name the active features that are needed to read
//! the MOS. They are looked up when the labels are written.
//!
//! # See
//! OpenZFS `module/zfs/zfeature.c`.

use crate::{Error, Mos, Result};
use dmu::Tx;
use ondisk::feature::Feature;
use ondisk::version::SPA_VERSION_FEATURES;
use ondisk::{ObjNum, Txg, mos};
use std::sync::atomic::Ordering;

/// The feature `enabled_txg`: the pool records when features were enabled.
const ENABLED_TXG: &str = "com.delphix:enabled_txg";

/// A feature that this crate uses.
///
/// # Panics
/// If the table has no feature of this guid.
pub(crate) fn known(guid: &str) -> &'static Feature {
    Feature::by_guid(guid).expect("the table has every feature that is used here")
}

impl Mos {
    /// Creates the three ZAPs of a pool with features (`spa_feature_create_zap_objects`).
    ///
    /// # Errors
    /// The errors of [changing](Error#changing).
    pub fn create_features(&self, tx: &Tx) -> Result<()> {
        for name in [mos::FEATURES_FOR_READ, mos::FEATURES_FOR_WRITE, mos::FEATURE_DESCRIPTIONS] {
            let zap = self.create_zap(tx)?;
            self.link(tx, name, zap)?;
        }
        Ok(())
    }

    fn feature_zap(&self, feature: &Feature) -> Result<ObjNum> {
        let name =
            if feature.readonly_compatible() { mos::FEATURES_FOR_WRITE } else { mos::FEATURES_FOR_READ };
        self.dir(name)?.ok_or(Error::Missing { name })
    }

    /// The number of users of a feature (`feature_get_refcount`). `None` if it is not enabled.
    ///
    /// In pools before version 5000, no feature is enabled.
    ///
    /// # Errors
    /// * The errors of [reading](Error#reading).
    /// * [`Error::Missing`]: the pool has no ZAPs of features.
    pub fn feature_refcount(&self, feature: &Feature) -> Result<Option<u64>> {
        if self.version() < SPA_VERSION_FEATURES {
            return Ok(None);
        }
        self.u64(self.feature_zap(feature)?, feature.guid)
    }

    /// True if a feature is enabled (`spa_feature_is_enabled`). False also in pools too old for
    /// features.
    ///
    /// # Errors
    /// The errors of [reading](Error#reading).
    ///
    /// # Panics
    /// If the table has no feature of this guid.
    pub fn feature_enabled(&self, guid: &str) -> Result<bool> {
        match self.feature_refcount(known(guid)) {
            Ok(n) => Ok(n.is_some()),
            Err(Error::Missing { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn feature_sync(&self, tx: &Tx, feature: &Feature, count: u64) -> Result<u64> {
        self.counted.fetch_max(tx.txg().0, Ordering::AcqRel);
        self.set_word(tx, self.feature_zap(feature)?, feature.guid, count)?;
        Ok(count)
    }

    /// Whether this MOS has enabled or counted features in `txg`.
    pub fn has_counted_features(&self, txg: Txg) -> bool {
        self.counted.load(Ordering::Acquire) >= txg.0
    }

    /// Adds a user of a feature (`spa_feature_incr`). Returns the new number of users.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn feature_incr(&self, tx: &Tx, feature: &Feature) -> Result<u64> {
        self.feature_add(tx, feature, 1)
    }

    /// Adds users of a feature. Returns the new number of users.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub(crate) fn feature_add(&self, tx: &Tx, feature: &Feature, users: u64) -> Result<u64> {
        let count = self.feature_refcount(feature)?.and_then(|n| n.checked_add(users));
        self.feature_sync(tx, feature, count.ok_or(Error::Feature { guid: feature.guid })?)
    }

    /// Removes a user of a feature (`spa_feature_decr`). Returns the new number of users.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn feature_decr(&self, tx: &Tx, feature: &Feature) -> Result<u64> {
        self.feature_sub(tx, feature, 1)
    }

    /// Removes users of a feature. Returns the new number of users.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub(crate) fn feature_sub(&self, tx: &Tx, feature: &Feature, users: u64) -> Result<u64> {
        let count = self.feature_refcount(feature)?.and_then(|n| n.checked_sub(users));
        self.feature_sync(tx, feature, count.ok_or(Error::Feature { guid: feature.guid })?)
    }

    /// Enables a feature, after those that it depends on (`spa_feature_enable`). An enabled feature
    /// stays as it is.
    ///
    /// # Errors
    /// The errors of [counting features](Error#counting-features).
    pub fn feature_enable(&self, tx: &Tx, feature: &Feature) -> Result<()> {
        if self.feature_refcount(feature)?.is_some() {
            return Ok(());
        }
        for name in feature.depends {
            let needed = Feature::by_name(name).expect("dependencies are in the table");
            self.feature_enable(tx, needed)?;
        }
        let name = mos::FEATURE_DESCRIPTIONS;
        let texts = self.dir(name)?.ok_or(Error::Missing { name })?;
        self.set_string(tx, texts, feature.guid, feature.description)?;
        self.feature_sync(tx, feature, u64::from(feature.activate_on_enable()))?;
        if self.feature_enabled(ENABLED_TXG)? {
            let zap = match self.dir(mos::FEATURE_ENABLED_TXG)? {
                Some(zap) => zap,
                None => {
                    let zap = self.create_zap(tx)?;
                    self.link(tx, mos::FEATURE_ENABLED_TXG, zap)?;
                    zap
                }
            };
            self.feature_incr(tx, known(ENABLED_TXG))?;
            self.set_word(tx, zap, feature.guid, tx.txg().0)?;
        }
        Ok(())
    }
}
