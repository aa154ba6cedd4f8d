//! Changes of a pool as a whole: from a request to the engine.
//!
//! # Theory
//! Properties are checked as in libzfs. Users name devices, and this module finds them by guid. The
//! engine decides whether a change is allowed.

pub(crate) mod initialize_trim;
pub(crate) mod layout;
pub(crate) mod online_offline;
pub(crate) mod properties;

use ondisk::version::SPA_VERSION_FEATURES;
use ondisk::{Ashift, Guid};
use spa::Host;
use spa::create::claim_file;
use spa::engine::{AddTerms, PoolProp, PoolWriter, ShapeError};
use vdev::VdevInfo;

use crate::commands::vdev::layout::{add_aux, vdevs};
use crate::pools::imported::Imported;
use crate::replies::{of_clear, of_dsl, of_life, of_shape};
use api::settings::pool::{self, Setting, When};
use api::{Error, PoolChange, Reason, Settings};

/// Valid properties for an imported pool.
pub(crate) struct Props {
    /// Those that the pool stores.
    pub(crate) kept: Vec<PoolProp>,
    /// The cache file that lists the pool, if that is set; `Some(None)` for the default one.
    pub(crate) cachefile: Option<Option<String>>,
}

/// Checks new properties (`zpool_valid_proplist`).
///
/// # Errors
/// * [`Reason::BadValue`]: a property is unknown or can't have this value, in OpenZFS's words.
/// * [`Reason::BadProperty`]: a property can't be set on an imported pool.
/// * [`Reason::InvalidName`], [`Reason::NoSuchDataset`], [`Reason::BadType`]: `bootfs` is not a
///   file system of the pool.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the dataset for `bootfs` can't be read.
pub(crate) fn props(imported: &Imported, settings: &Settings, host: &Host) -> Result<Props, Error> {
    let name = imported.pool.name();
    let version = imported.pool.spa().version();
    let mut out = Props { kept: Vec::new(), cachefile: None };
    for (property, value) in settings {
        let checked = pool::check(property, value, When::Set, version, host.hostid)
            .map_err(|what| Error::new(name, Reason::BadValue { what }))?;
        match checked {
            Setting::Feature(feature) => {
                if version < SPA_VERSION_FEATURES {
                    out.kept.push(PoolProp::Version(SPA_VERSION_FEATURES));
                }
                out.kept.push(PoolProp::Feature(feature));
            }
            Setting::Number(of, number) => out.kept.push(PoolProp::Number(of.to_owned(), number)),
            Setting::Text(of, text) => out.kept.push(PoolProp::Text(of, text)),
            Setting::BootFs(dataset) => {
                out.kept.push(PoolProp::Number("bootfs".to_owned(), bootfs(imported, &dataset)?));
            }
            Setting::CacheFile(file) => out.cachefile = Some(file),
            Setting::Version(newer) if newer > version => out.kept.push(PoolProp::Version(newer)),
            Setting::Version(_) | Setting::NoFeature(_) => {}
            Setting::AltRoot(_) | Setting::ReadOnly(_) | Setting::TemporaryName(_) => {
                return Err(Error::new(name, Reason::BadProperty { property: property.clone() }));
            }
        }
    }
    Ok(out)
}

/// The object of the dataset to boot from; 0 for none.
fn bootfs(imported: &Imported, dataset: &str) -> Result<u64, Error> {
    if dataset.is_empty() {
        return Ok(0);
    }
    let name = imported.pool.name();
    let own = dsl::Name::parse(dataset).is_ok_and(|parsed| parsed.pool() == name);
    if !own {
        return Err(Error::new(name, Reason::InvalidName));
    }
    let fail = |e: dsl::Error| Error::new(name, of_dsl(&e));
    imported.pool.spa().read(|| {
        let found = imported.pool.dsl().dataset(dataset).map_err(fail)?;
        match found.head_kind().map_err(fail)? {
            Some(dsl::Kind::Filesystem) => Ok(found.object().0),
            _ => Err(Error::new(name, Reason::BadType)),
        }
    })
}

/// Adds vdevs, removes devices, or clears errors (`spa_vdev_add`, `spa_vdev_remove`, `vdev_clear`).
///
/// # Errors
/// * [`Reason::BadRequest`]: it is another kind of change.
/// * [`Reason::NoSuchDevice`]: the pool has no such device.
/// * [`Reason::InvalidConfig`]: the layout of the new devices is not valid.
/// * [`Reason::System`] (`EREMOTEIO`): another host uses the pool, so it can't be cleared.
/// * All others: see [`of_shape`] and [`of_life`].
pub(crate) fn change(imported: &Imported, live: &PoolWriter, change: &PoolChange) -> Result<(), Error> {
    let name = imported.pool.name();
    let failed = |e: ShapeError| Error::new(name, of_shape(&e));
    match change {
        PoolChange::Add { layout, ashift, check_ashift, force } => {
            let tops = vdevs(name, layout)?;
            // These spares come before the distributed ones of the same request.
            let at = live.vdevs().spare_count();
            let shift = ashift.and_then(|n| u8::try_from(n).ok()).map(Ashift);
            let terms =
                AddTerms { ashift: shift, check_ashift: *check_ashift, force: *force, claimer: &claim_file };
            if !tops.is_empty() {
                live.vdevs().add(&tops, &terms).map_err(failed)?;
            }
            add_aux(live, name, layout, at, *force)
        }
        PoolChange::Remove { device } => {
            let guid = find(imported, device)?;
            let config = live.config();
            let mut tops = config.vdev_tree.iter().flat_map(|root| &root.children);
            if tops.any(|top| top.guid == guid && top.is_log) {
                return live.vdevs().remove_log(guid).map_err(|e| Error::new(name, of_life(&e)));
            }
            live.vdevs().remove_aux(guid).map_err(failed)
        }
        PoolChange::Clear { device } => {
            let guid = device.as_ref().map(|device| find(imported, device)).transpose()?;
            live.clear(guid).map_err(|e| Error::new(name, of_clear(e)))
        }
        _ => Err(Error::new(name, Reason::BadRequest { what: "not a change of devices".to_owned() })),
    }
}

/// Finds a device by its path, the last part of that, its guid, or its displayed name
/// (`zpool_find_vdev`).
///
/// # Errors
/// * [`Reason::NoSuchDevice`]: the pool has no such device.
pub(crate) fn find(imported: &Imported, device: &str) -> Result<Guid, Error> {
    let spa = imported.pool.spa();
    let full = if device.starts_with('/') { device.to_owned() } else { format!("/dev/{device}") };
    let called = |path: Option<&[u8]>| path.is_some_and(|p| p == full.as_bytes() || p == device.as_bytes());
    let guid = device.parse().ok().map(Guid);
    let aside = spa.spares().into_iter().chain(spa.l2cache());
    let aside = aside.map(|a| a.config).find(|c| called(c.path.as_deref()) || Some(c.guid) == guid);
    if let Some(config) = aside {
        return Ok(config.guid);
    }
    let tree = spa.tree().describe();
    let mut todo: Vec<&VdevInfo> = tree.children.iter().collect();
    while let Some(v) = todo.pop() {
        if called(v.path.as_deref()) || Some(v.guid) == guid || v.name == device {
            return Ok(v.guid);
        }
        todo.extend(&v.children);
    }
    Err(Error::new(imported.pool.name(), Reason::NoSuchDevice))
}
