//! Properties of the pool, and its features.
//!
//! # On disk
//! `comment` and `compatibility` are in the config, and so in all labels; all others in a table of the MOS (`pool_props`), numbers as words and
//! texts with their NUL. A text that is empty is absent.
//!
//! # See
//! OpenZFS `spa_sync_props`.

use dmu::Tx;
use dsl::sync::Event;
use ondisk::feature::Feature;
use ondisk::{DmuType, mos};
use pool::errlog::ErrLog;

use super::{Engine, Live, ShapeError, SyncError};

/// `com.delphix:head_errlog`: error logs know the file systems of the blocks that they name.
const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

/// A property of the pool, and what it is set to; names and values have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolProp {
    /// A feature is enabled, and those that it depends on.
    Feature(&'static Feature),
    /// A number.
    Number(String, u64),
    /// A text; an empty one unsets it.
    Text(String, String),
}

impl Live {
    /// Sets properties of the pool and enables features, all in one group (`spa_prop_set`).
    ///
    /// # Errors
    /// [`ShapeError::Unsupported`] for what this engine does not keep up; nothing is set then.
    pub fn set(&self, props: Vec<PoolProp>) -> Result<(), ShapeError> {
        let engine = self.engine();
        let _alone = engine.shape.lock();
        for prop in &props {
            match prop {
                PoolProp::Feature(f) if f.guid == HEAD_ERRLOG && engine.has_old_errors()? => {
                    return Err(ShapeError::Unsupported {
                        what: "another form of error log while there are errors",
                    });
                }
                PoolProp::Feature(_) | PoolProp::Number(..) | PoolProp::Text(..) => {}
            }
        }
        self.change_pool(Box::new(move |engine, tx| {
            let txg = tx.txg();
            let set = |p: &PoolProp| engine.set_prop(tx, p);
            props
                .iter()
                .map(set)
                .collect::<pool::Result<Vec<Event>>>()
                .map_err(|source| SyncError::Books { txg, source })
        }))?;
        Ok(())
    }
}

impl Engine {
    /// Whether the error logs name something in the form that they have without the feature for the other one.
    fn has_old_errors(&self) -> pool::Result<bool> {
        if self.mos.feature_enabled(HEAD_ERRLOG)? {
            return Ok(false);
        }
        let any = |log| Ok::<_, pool::Error>(!self.mos.errlog(log, false)?.is_empty());
        Ok(any(ErrLog::Last)? || any(ErrLog::Scrub)?)
    }

    fn set_prop(&self, tx: &Tx, prop: &PoolProp) -> pool::Result<Event> {
        let text = match prop {
            PoolProp::Feature(feature) => {
                self.mos.feature_enable(tx, feature)?;
                format!("feature@{}=enabled", feature.name)
            }
            PoolProp::Number(name, number) => {
                let table = self.props_table(tx)?;
                self.mos.set_word(tx, table, name, *number)?;
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
        };
        Ok(Event { what: "set", dataset: String::new(), object: 0, text })
    }

    fn set_text(&self, tx: &Tx, name: &str, value: Option<&str>) -> pool::Result<()> {
        let table = self.props_table(tx)?;
        match value {
            Some(value) => self.mos.set_string(tx, table, name, value),
            None if self.mos.pool_props()?.contains_key(name) => self.mos.unset(tx, table, name),
            None => Ok(()),
        }
    }

    /// The table of properties; the first property makes it.
    fn props_table(&self, tx: &Tx) -> pool::Result<ondisk::ObjNum> {
        if let Some(table) = self.mos.dir(mos::PROPS)? {
            return Ok(table);
        }
        let table = self.mos.create_zap_of(tx, DmuType::POOL_PROPS)?;
        self.mos.link(tx, mos::PROPS, table)?;
        Ok(table)
    }
}
