//! Features as operations on datasets use them.
//!
//! # On disk
//! Two ZAPs of the MOS count the users of each enabled feature: one for features needed to write,
//! one for those needed to read. A dataset that uses a feature of [`Feature::per_dataset`] has an
//! entry of its guid in its own ZAP, with the value 0.

use crate::Result;
use crate::mos_objects::{DropEntry, words};
use crate::sync::Syncing;
use dmu::zap::{Value, Zap};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{DmuType, ObjNum};

fn feature(name: &'static str) -> &'static Feature {
    Feature::by_name(name).expect("rooms name features of the table")
}

impl Syncing<'_> {
    /// The number of users of a feature; `None` if it is not enabled.
    fn feature_users(&self, name: &'static str) -> Result<Option<u64>> {
        match self.mos().feature_refcount(feature(name)) {
            // Pools of the old versions have no features.
            Err(pool::Error::Missing { .. }) => Ok(None),
            n => Ok(n?),
        }
    }

    /// True if the pool may use a feature (`spa_feature_is_enabled`).
    pub(crate) fn feature_enabled(&self, name: &'static str) -> Result<bool> {
        Ok(self.feature_users(name)?.is_some())
    }

    /// True if something uses a feature (`spa_feature_is_active`).
    pub(crate) fn feature_active(&self, name: &'static str) -> Result<bool> {
        Ok(self.feature_users(name)?.is_some_and(|n| n > 0))
    }

    /// Adds a user of a feature, or removes one (`spa_feature_incr`, `spa_feature_decr`).
    pub(crate) fn feature_count(&mut self, name: &'static str, by: i64) -> Result<()> {
        let f = feature(name);
        if by < 0 {
            self.mos().feature_decr(self.tx, f)?;
        } else {
            self.mos().feature_incr(self.tx, f)?;
        }
        Ok(())
    }

    /// Makes an object a ZAP around its bonus, which can have more fields (`dmu_object_zapify`).
    pub(crate) fn zapify(&mut self, object: u64, kind: DmuType) -> Result<()> {
        let dn = self.mos().objset().dnode(ObjNum(object))?;
        if dn.kind() != kind {
            return Ok(());
        }
        Zap::zapify(self.mos().objset(), self.tx, &dn)?;
        self.feature_count("extensible_dataset", 1)
    }

    /// Frees an object that may have been made a ZAP (`dmu_object_free_zapified`).
    pub(crate) fn free_zapified(&mut self, object: u64) -> Result<()> {
        let dn = self.mos().objset().dnode(ObjNum(object))?;
        let zapified = crate::dir::is_zapified(dn.kind());
        self.mos().objset().free_object(self.tx, ObjNum(object))?;
        if zapified { self.feature_count("extensible_dataset", -1) } else { Ok(()) }
    }

    /// A field of an object's ZAP; `None` without a ZAP or without the field.
    pub(crate) fn field(&self, object: u64, name: &str) -> Result<Option<Value>> {
        let dn = self.mos().objset().dnode(ObjNum(object))?;
        if !crate::dir::is_zapified(dn.kind()) {
            return Ok(None);
        }
        Ok(Zap::open(&dn)?.lookup(name.as_bytes())?)
    }

    /// A number of an object's ZAP.
    pub(crate) fn field_u64(&self, object: u64, name: &str) -> Result<Option<u64>> {
        Ok(self.field(object, name)?.and_then(|v| v.first()))
    }

    /// The features that a dataset uses itself.
    pub(crate) fn dataset_features(&self, ds: u64) -> Result<Vec<(&'static Feature, Value)>> {
        let dn = self.mos().objset().dnode(ObjNum(ds))?;
        if !crate::dir::is_zapified(dn.kind()) {
            return Ok(Vec::new());
        }
        let zap = Zap::open(&dn)?;
        let mut out = Vec::new();
        for f in FEATURES.iter().filter(|f| f.per_dataset()) {
            if let Some(v) = zap.lookup(f.guid.as_bytes())? {
                out.push((f, v));
            }
        }
        Ok(out)
    }

    /// Notes that a dataset begins to use a feature (`dsl_dataset_activate_feature`).
    pub(crate) fn activate(&mut self, ds: u64, f: &'static Feature, value: &Value) -> Result<()> {
        self.feature_count(f.name, 1)?;
        self.zapify(ds, DmuType::DSL_DATASET)?;
        self.zap(ds)?.update(self.tx, f.guid.as_bytes(), value)?;
        Ok(())
    }

    /// The same by name, if the feature is enabled and the dataset does not use it yet.
    pub(crate) fn activate_new(&mut self, ds: u64, name: &'static str) -> Result<()> {
        let f = feature(name);
        if self.field(ds, f.guid)?.is_some() || !self.feature_enabled(name)? {
            return Ok(());
        }
        self.activate(ds, f, &words(&[0]))
    }

    /// Notes that a dataset stops using a feature, if it did (`dsl_dataset_deactivate_feature`).
    pub(crate) fn deactivate(&mut self, ds: u64, name: &'static str) -> Result<()> {
        let f = feature(name);
        if self.field(ds, f.guid)?.is_none() {
            return Ok(());
        }
        self.zap(ds)?.drop_entry(self.tx, f.guid.as_bytes())?;
        self.feature_count(name, -1)
    }

    /// Notes that a dataset that is being destroyed stops using its features.
    pub(crate) fn deactivate_all(&mut self, ds: u64) -> Result<()> {
        for (f, _) in self.dataset_features(ds)? {
            self.zap(ds)?.drop_entry(self.tx, f.guid.as_bytes())?;
            self.feature_count(f.name, -1)?;
        }
        Ok(())
    }
}
