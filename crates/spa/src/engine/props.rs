//! Properties of the pool, and its features.
//!
//! # On disk
//! `comment` and `compatibility` are in the config, and so in all labels. All others are in a ZAP
//! of the MOS (`pool_props`): numbers as words, strings with their NUL. An empty string is absent.
//!
//! # See
//! OpenZFS `spa_sync_props`.

use dmu::Tx;
use dmu::zap::Add;
use dsl::sync::{Env, Event, Syncing};
use ondisk::feature::Feature;
use ondisk::version::{SPA_VERSION_FEATURES, SPA_VERSION_RAIDZ_DEFLATE};
use ondisk::{Blkptr, DmuType, ObjNum, mos};

use crate::damaged::HEAD_ERRLOG;
use crate::engine::PoolWriter;
use crate::error_log;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::{ShapeError, SyncError};
use crate::vdev_ops::vdev_props::check_names;

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
    /// * [`ShapeError::NamesCollide`]: the names of too many user properties collide.
    /// * [`ShapeError::Metadata`]: the properties can't be read.
    /// * [`ShapeError::Stopped`]: the pool has stopped.
    pub fn set(&self, props: Vec<PoolProp>) -> Result<(), ShapeError> {
        let core = &self.parts().core;
        let _alone = core.shape.lock();
        let adds: Vec<_> = props.iter().filter_map(PoolProp::add).collect();
        check_names(core, core.check_dsl.mos().dir(mos::PROPS)?, &adds)?;
        core.change_pool(Box::new(move |core, tx| {
            let txg = tx.txg();
            let set = |p: &PoolProp| match p {
                PoolProp::Version(version) => upgrade(core, tx, *version),
                p => set_prop(core, tx, p).map_err(|source| SyncError::Metadata { txg, source }),
            };
            props.iter().map(set).collect()
        }))?;
        // The property may be one that concerns the device monitor.
        core.tree().bell().ring();
        Ok(())
    }
}

impl PoolProp {
    /// The entry of a value in a ZAP.
    fn add(&self) -> Option<Add<'_>> {
        match self {
            PoolProp::Feature(_) | PoolProp::Version(_) => None,
            PoolProp::Text(_, text) if text.is_empty() => None,
            PoolProp::Number(name, _) => Some(Add { name: name.as_bytes(), value_len: 8 }),
            PoolProp::Text(name, text) => Some(Add { name: name.as_bytes(), value_len: text.len() + 1 }),
        }
    }
}

fn set_prop(core: &PoolCore, tx: &Tx, prop: &PoolProp) -> pool::Result<Event> {
    let text = match prop {
        PoolProp::Feature(feature) => {
            let new = feature.guid == HEAD_ERRLOG && !core.sync_mos.feature_enabled(HEAD_ERRLOG)?;
            core.sync_mos.feature_enable(tx, feature)?;
            if new {
                error_log::upgrade(tx, core.check_dsl.mos(), &core.sync_mos)?;
            }
            format!("feature@{}=enabled", feature.name)
        }
        PoolProp::Number(name, number) => {
            let table = props_table(core, tx)?;
            core.sync_mos.set_word(tx, table, name, *number)?;
            format!("{name}={}", *number as i64)
        }
        PoolProp::Text(name, value) => {
            let kept = Some(value.clone()).filter(|v| !v.is_empty());
            match name.as_str() {
                "comment" => core.edit_config(|config| config.comment = kept),
                "compatibility" => core.edit_config(|config| config.compatibility = kept),
                _ => set_text(core, tx, name, kept.as_deref())?,
            }
            format!("{name}={value}")
        }
        PoolProp::Version(_) => unreachable!("versions are set by an upgrade"),
    };
    Ok(Event { what: "set", dataset: String::new(), object: 0, text })
}

/// Upgrades the pool to a newer version, with its features (`spa_sync_upgrades`).
fn upgrade(core: &PoolCore, tx: &Tx, to: u64) -> Result<Event, SyncError> {
    let txg = tx.txg();
    let metadata = |source| SyncError::Metadata { txg, source };
    let from = core.sync_mos.version();
    if from < to {
        // New structures have the new version from here on.
        core.cache.zio().set_pool_version(to);
        let mut random = || core.world.random();
        let dsize = |bp: &Blkptr| core.dsize(bp);
        let env = Env { now: core.world.now(), random: &mut random, dsize: &dsize };
        {
            let _config = core.datasets.write();
            let mut s = Syncing::new(&core.sync_dsl, tx, env);
            let done = s.upgrade(from, to).and_then(|()| s.finish());
            done.map_err(|source| SyncError::Datasets { txg, source })?;
        }
        if from < SPA_VERSION_RAIDZ_DEFLATE && SPA_VERSION_RAIDZ_DEFLATE <= to {
            core.sync_mos.set_dir_words(tx, mos::DEFLATE, &[1]).map_err(metadata)?;
            core.ratios.lock().clear();
        }
        if to >= SPA_VERSION_FEATURES {
            core.sync_mos.create_features(tx).map_err(metadata)?;
        }
        core.edit_config(|config| config.version = to);
    }
    Ok(Event { what: "set", dataset: String::new(), object: 0, text: format!("version={to}") })
}

fn set_text(core: &PoolCore, tx: &Tx, name: &str, value: Option<&str>) -> pool::Result<()> {
    let table = props_table(core, tx)?;
    match value {
        Some(value) => core.sync_mos.set_string(tx, table, name, value),
        None if core.sync_mos.pool_props()?.contains_key(name) => core.sync_mos.unset(tx, table, name),
        None => Ok(()),
    }
}

/// The ZAP of properties; the first property creates it.
fn props_table(core: &PoolCore, tx: &Tx) -> pool::Result<ObjNum> {
    if let Some(table) = core.sync_mos.dir(mos::PROPS)? {
        return Ok(table);
    }
    let table = core.sync_mos.create_zap_of(tx, DmuType::POOL_PROPS)?;
    core.sync_mos.link(tx, mos::PROPS, table)?;
    Ok(table)
}
