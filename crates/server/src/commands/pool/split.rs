//! The split of a pool. The new pool is imported, and exported again unless it is to stay.

use std::hash::{BuildHasher, RandomState};

use dsl::Name;
use ondisk::Guid;
use poolhouse::Pool;
use spa::Host;
use spa::SplitTerms;
use spa::engine::{PoolProp, PoolWriter};
use spa::import::Resources;

use crate::pools::imported::Imported;
use crate::replies::{of_library, of_shape, of_split};
use crate::view::PoolFacts;
use api::settings::pool::{self, Setting, When};
use api::{Error, Reason, Settings};

/// How to split a pool.
pub(crate) struct Split<'a> {
    /// The new pool's name.
    pub(crate) name: &'a str,
    /// The guids of its devices.
    pub(crate) devices: &'a [u64],
    /// Properties of the new pool.
    pub(crate) props: &'a Settings,
}

/// A new pool that is about to be split off.
pub(crate) struct SplitOff {
    /// Its guid.
    pub(crate) guid: Guid,
    /// Properties that it stores.
    kept: Vec<PoolProp>,
    facts: PoolFacts,
    resources: Resources,
}

/// Checks the name and the properties of the new pool. Writes nothing.
///
/// # Errors
/// They are about the old pool.
///
/// * [`Reason::InvalidName`]: the new pool can't have this name.
/// * [`Reason::BadValue`], [`Reason::BadProperty`]: a property of the new pool is not valid.
pub(crate) fn prepare(imported: &Imported, host: &Host, how: &Split<'_>) -> Result<SplitOff, Error> {
    let about = |reason: Reason| Error::new(imported.pool.name(), reason);
    if !Name::parse(how.name).is_ok_and(|parsed| parsed.pool() == how.name) {
        return Err(about(Reason::InvalidName));
    }
    let version = imported.pool.spa().version();
    let (kept, facts) = props(how, version, host).map_err(about)?;
    let resources = Resources::of_system(how.name);
    let guid = Guid(resources.world.random().max(1));
    Ok(SplitOff { guid, kept, facts, resources })
}

/// Splits devices off into a new pool, and opens it (`spa_vdev_split_mirror`). `old` is the name of
/// the pool that loses them.
///
/// # Errors
/// * [`Reason::Suspended`]: the new pool accepts no writes.
/// * All others: see [`of_split`], and [`of_shape`] for the properties.
pub(crate) fn open(
    old: &str,
    live: &PoolWriter,
    host: &Host,
    how: &Split<'_>,
    new: SplitOff,
    cache: arc::CacheMemory,
) -> Result<(Pool, PoolFacts, ()), Error> {
    let about = |reason: Reason| Error::new(old, reason);
    let SplitOff { guid, kept, facts, resources } = new;
    let devices: Vec<Guid> = how.devices.iter().copied().map(Guid).collect();
    let terms = SplitTerms {
        name: how.name,
        guid,
        leaves: &devices,
        altroot: facts.altroot.clone(),
        host,
        workers: resources.workers,
        cache,
    };
    let spa = live.split(&terms).map_err(|e| about(of_split(&e)))?;
    let writer = spa.writer().expect("a pool that was split off is open for writing");
    if !kept.is_empty()
        && let Err(e) = writer.set(kept)
    {
        // The new pool exists all the same, and can be imported.
        writer.export().map_err(|_| Error::new(how.name, Reason::Suspended))?;
        return Err(about(of_shape(&e)));
    }
    let altroot = facts.altroot.clone();
    let pool = Pool::with_spa(spa, altroot).map_err(|e| about(of_library(&e)))?;
    Ok((pool, facts, ()))
}

/// The properties that the new pool stores, and those that apply until its export.
fn props(how: &Split<'_>, version: u64, host: &Host) -> Result<(Vec<PoolProp>, PoolFacts), Reason> {
    let mut kept = Vec::new();
    let mut facts = PoolFacts { load_guid: RandomState::new().hash_one(how.name), ..PoolFacts::default() };
    for (property, value) in how.props {
        let checked = pool::check(property, value, When::Import, version, host.hostid);
        match checked.map_err(|what| Reason::BadValue { what })? {
            Setting::Feature(feature) => kept.push(PoolProp::Feature(feature)),
            Setting::Number(of, number) => kept.push(PoolProp::Number(of.to_owned(), number)),
            Setting::Text(of, text) => kept.push(PoolProp::Text(of, text)),
            Setting::AltRoot(path) => {
                facts.altroot = Some(path.trim_end_matches('/').to_owned()).filter(|p| !p.is_empty());
            }
            Setting::CacheFile(file) => facts.cachefile = file,
            // The new pool has that version already.
            Setting::Version(_) | Setting::NoFeature(_) | Setting::ReadOnly(false) => {}
            Setting::ReadOnly(true) => {
                let what = format!("property '{property}' can only be set at import time");
                return Err(Reason::BadValue { what });
            }
            Setting::BootFs(_) | Setting::TemporaryName(_) => {
                return Err(Reason::BadProperty { property: property.clone() });
            }
        }
    }
    Ok((kept, facts))
}
