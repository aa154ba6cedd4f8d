//! Properties of the pool, and its features.
//!
//! # On disk
//! `comment` and `compatibility` are in the config, and so in all labels. All others are in a ZAP
//! of the MOS (`pool_props`): numbers as words, strings with their NUL. An empty string is absent.
//!
//! # See
//! OpenZFS `spa_sync_props`.

use dmu::Tx;
use dsl::sync::{Env, Event, Syncing};
use ondisk::feature::Feature;
use ondisk::version::{SPA_VERSION_FEATURES, SPA_VERSION_RAIDZ_DEFLATE};
use ondisk::{Blkptr, DmuType, mos};

use crate::damaged::HEAD_ERRLOG;
use crate::engine::{Engine, PoolWriter, ShapeError, SyncError};

/// A property of the pool, and its new value (`zpool_prop_t`). The caller has checked both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolProp {
    /// Enable a feature, and those that it depends on.
    Feature(&'static Feature),
    /// A number.
    Number(String, u64),
    /// A string; an empty one unsets the property.
    Text(String, String),
    /// A newer version, with its features (`zpool upgrade`).
    Version(u64),
}

impl PoolWriter {
    /// Sets properties of the pool and enables features, all in one txg (`spa_prop_set`).
    ///
    /// # Errors
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn set(&self, props: Vec<PoolProp>) -> Result<(), ShapeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        self.change_pool(Box::new(move |engine, tx| {
            let txg = tx.txg();
            let set = |p: &PoolProp| match p {
                PoolProp::Version(version) => engine.upgrade(tx, *version),
                p => engine.set_prop(tx, p).map_err(|source| SyncError::Books { txg, source }),
            };
            props.iter().map(set).collect()
        }))?;
        // The property may be one that concerns the device monitor.
        engine.tree().bell().ring();
        Ok(())
    }
}

impl Engine {
    fn set_prop(&self, tx: &Tx, prop: &PoolProp) -> pool::Result<Event> {
        let text = match prop {
            PoolProp::Feature(feature) => {
                let new = feature.guid == HEAD_ERRLOG && !self.sync_mos.feature_enabled(HEAD_ERRLOG)?;
                self.sync_mos.feature_enable(tx, feature)?;
                if new {
                    self.upgrade_error_logs(tx)?;
                }
                format!("feature@{}=enabled", feature.name)
            }
            PoolProp::Number(name, number) => {
                let table = self.props_table(tx)?;
                self.sync_mos.set_word(tx, table, name, *number)?;
                format!("{name}={}", *number as i64)
            }
            PoolProp::Text(name, value) => {
                let kept = Some(value.clone()).filter(|v| !v.is_empty());
                match name.as_str() {
                    "comment" => self.edit_config(|config| config.comment = kept),
                    "compatibility" => self.edit_config(|config| config.compatibility = kept),
                    _ => self.set_text(tx, name, kept.as_deref())?,
                }
                format!("{name}={value}")
            }
            PoolProp::Version(_) => unreachable!("versions are set by an upgrade"),
        };
        Ok(Event { what: "set", dataset: String::new(), object: 0, text })
    }

    /// Upgrades the pool to a newer version, with its features (`spa_sync_upgrades`).
    fn upgrade(&self, tx: &Tx, to: u64) -> Result<Event, SyncError> {
        let txg = tx.txg();
        let books = |source| SyncError::Books { txg, source };
        let from = self.sync_mos.version();
        if from < to {
            // New structures have the new version from here on.
            self.cache.zio().set_pool_version(to);
            let mut random = || self.world.random();
            let dsize = |bp: &Blkptr| self.dsize(bp);
            let env = Env { now: self.world.now(), random: &mut random, dsize: &dsize };
            {
                let _config = self.config.write();
                let mut s = Syncing::new(&self.sync_dsl, tx, env);
                let done = s.upgrade(from, to).and_then(|()| s.finish());
                done.map_err(|source| SyncError::Datasets { txg, source })?;
            }
            if from < SPA_VERSION_RAIDZ_DEFLATE && SPA_VERSION_RAIDZ_DEFLATE <= to {
                self.sync_mos.set_dir_words(tx, mos::DEFLATE, &[1]).map_err(books)?;
                self.ratios.lock().clear();
            }
            if to >= SPA_VERSION_FEATURES {
                self.sync_mos.create_features(tx).map_err(books)?;
            }
            self.edit_config(|config| config.version = to);
        }
        Ok(Event { what: "set", dataset: String::new(), object: 0, text: format!("version={to}") })
    }

    fn set_text(&self, tx: &Tx, name: &str, value: Option<&str>) -> pool::Result<()> {
        let table = self.props_table(tx)?;
        match value {
            Some(value) => self.sync_mos.set_string(tx, table, name, value),
            None if self.sync_mos.pool_props()?.contains_key(name) => self.sync_mos.unset(tx, table, name),
            None => Ok(()),
        }
    }

    /// The ZAP of properties; the first property creates it.
    fn props_table(&self, tx: &Tx) -> pool::Result<ondisk::ObjNum> {
        if let Some(table) = self.sync_mos.dir(mos::PROPS)? {
            return Ok(table);
        }
        let table = self.sync_mos.create_zap_of(tx, DmuType::POOL_PROPS)?;
        self.sync_mos.link(tx, mos::PROPS, table)?;
        Ok(table)
    }
}
