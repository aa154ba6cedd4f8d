//! Changes of a pool as a whole: from a request to the engine.
//!
//! # Theory
//! Properties are checked as libzfs checks them; devices are named by people and found by guid. Whether a change may be made, the engine says.

use ondisk::version::SPA_VERSION_FEATURES;
use ondisk::{Ashift, Guid};
use spa::Host;
use spa::create::{NewLeaf, claim_file};
use spa::engine::{AddTerms, CheckpointError, ClearError, Live, PoolProp, ShapeError};
use vdev::VdevInfo;

use crate::device_life::of_life;
use crate::faults::of_dsl;
use crate::pools::Imported;
use crate::work::{leaf, of_create, vdevs};
use api::chain;
use api::settings::pool::{self, Setting, When};
use api::{Error, Layout, PoolChange, Reason, Settings};

/// Properties to be set on an imported pool.
pub(crate) struct Props {
    /// Those that the pool keeps.
    pub(crate) kept: Vec<PoolProp>,
    /// The file that remembers the pool, if that is set; absent for the usual one.
    pub(crate) cachefile: Option<Option<String>>,
}

/// Checks properties that shall be set.
///
/// # Errors
/// What is wrong with the first bad one.
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

/// Adds vdevs, removes devices, forgets errors.
///
/// # Errors
/// As the engine refuses, and for devices that the pool does not have.
pub(crate) fn change(imported: &Imported, live: &Live, change: &PoolChange) -> Result<(), Error> {
    let name = imported.pool.name();
    let failed = |e: ShapeError| Error::new(name, of_shape(&e));
    match change {
        PoolChange::Add { layout, ashift, check_ashift, force } => {
            let tops = vdevs(name, layout)?;
            // Before the distributed ones that come with it.
            let at = live.spare_count();
            let shift = ashift.and_then(|n| u8::try_from(n).ok()).map(Ashift);
            let terms =
                AddTerms { ashift: shift, check_ashift: *check_ashift, force: *force, claimer: &claim_file };
            if !tops.is_empty() {
                live.add(&tops, &terms).map_err(failed)?;
            }
            add_aux(live, name, layout, at, *force)
        }
        PoolChange::Remove { device } => {
            let guid = find(imported, device)?;
            let config = live.config();
            let mut tops = config.vdev_tree.iter().flat_map(|root| &root.children);
            if tops.any(|top| top.guid == guid && top.is_log) {
                return live.remove_log(guid).map_err(|e| Error::new(name, of_life(&e)));
            }
            live.remove_aux(guid).map_err(failed)
        }
        PoolChange::Clear { device } => {
            let guid = device.as_ref().map(|device| find(imported, device)).transpose()?;
            live.clear(guid).map_err(|e| match e {
                ClearError::Vdev(e) => failed(e.into()),
                ClearError::Shape(e) => failed(e),
                ClearError::Active(_) => {
                    Error::new(name, Reason::System { errno: rustix::io::Errno::REMOTEIO.raw_os_error() })
                }
            })
        }
        _ => Err(Error::new(name, Reason::BadRequest { what: "not a change of devices".to_owned() })),
    }
}

/// Why a checkpoint was not taken or let go.
pub(crate) fn of_checkpoint(error: &CheckpointError) -> Reason {
    match error {
        CheckpointError::Stopped(_) => Reason::Suspended,
        CheckpointError::Feature => Reason::System { errno: rustix::io::Errno::NOTSUP.raw_os_error() },
        CheckpointError::Exists => Reason::CheckpointExists,
        CheckpointError::Discarding => Reason::DiscardingCheckpoint,
        CheckpointError::Absent => Reason::NoCheckpoint,
        CheckpointError::Books(_) => Reason::Io { what: chain(error), info: Box::default() },
    }
}

/// Adds the hot spares and cache devices of a layout, if it has any; the spares at this place in the list of all.
///
/// # Errors
/// As the engine refuses.
pub(crate) fn add_aux(live: &Live, name: &str, layout: &Layout, at: usize, force: bool) -> Result<(), Error> {
    if layout.spares.is_empty() && layout.cache.is_empty() {
        return Ok(());
    }
    let leaves = |list: &[api::Vdev]| list.iter().map(|v| leaf(name, v)).collect::<Result<Vec<NewLeaf>, _>>();
    let (spares, cache) = (leaves(&layout.spares)?, leaves(&layout.cache)?);
    live.add_aux_at(at, &spares, &cache, force, &claim_file).map_err(|e| Error::new(name, of_shape(&e)))
}

/// The device that people call so: by its path, its last part, its guid, or the name that it is shown with (`zpool_find_vdev`).
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

/// Why a pool was not changed.
pub(crate) fn of_shape(error: &ShapeError) -> Reason {
    match error {
        ShapeError::Stopped(_) => Reason::Suspended,
        ShapeError::Devices(e) => of_create(e),
        ShapeError::AshiftMismatch { .. } => Reason::AshiftMismatch,
        ShapeError::Unhealthy => Reason::MissingDevices(Box::default()),
        ShapeError::Busy { .. } => Reason::Busy,
        ShapeError::NoRoom => Reason::Refused { why: api::Refusal::NoSpace },
        ShapeError::CheckpointExists => Reason::CheckpointExists,
        ShapeError::DiscardingCheckpoint => Reason::DiscardingCheckpoint,
        ShapeError::Guid { .. } => Reason::BadGuid,
        ShapeError::Unsupported { what } => Reason::NotSupported { what: (*what).to_owned() },
        ShapeError::Tree(vdev::VdevError::NoSuchGuid { .. }) => Reason::NoSuchDevice,
        ShapeError::Labels(_) | ShapeError::Books(_) | ShapeError::Tree(_) => {
            Reason::Io { what: chain(error), info: Box::default() }
        }
    }
}
