//! The split of a pool. The new pool is imported, and exported again unless it is to stay.

use std::hash::{BuildHasher, RandomState};

use dsl::Name;
use ondisk::Guid;
use poolhouse::Pool;
use spa::Host;
use spa::engine::{PoolProp, PoolWriter, SplitTerms};
use spa::import::Hands;

use crate::pools::{Imported, Pools};
use crate::replies::{of_library, of_shape, of_split};
use crate::view::PoolFacts;
use api::settings::pool::{self, Setting, When};
use api::{Caller, Error, ExportRequest, Reason, Settings};

/// How to split a pool.
pub(crate) struct Split<'a> {
    /// The new pool's name.
    pub(crate) name: &'a str,
    /// The guids of its devices.
    pub(crate) devices: &'a [u64],
    /// Properties of the new pool.
    pub(crate) props: &'a Settings,
    /// Leave the new pool imported.
    pub(crate) import: bool,
}

/// Splits devices off into a new pool (`spa_vdev_split_mirror`).
///
/// # Errors
/// They are about the old pool, unless the new one can't be exported.
///
/// * [`Reason::InvalidName`], [`Reason::PoolExists`]: the new pool can't have this name.
/// * [`Reason::BadValue`]: a property of the new pool is not valid.
/// * All others: see [`of_split`], and [`Pools::export`] for the new pool.
pub(crate) fn split(
    caller: &Caller,
    pools: &Pools,
    imported: &Imported,
    live: &PoolWriter,
    host: &Host,
    how: &Split<'_>,
) -> Result<(), Error> {
    let old = imported.pool.name();
    let about = |reason: Reason| Error::new(old, reason);
    if !Name::parse(how.name).is_ok_and(|parsed| parsed.pool() == how.name) {
        return Err(about(Reason::InvalidName));
    }
    let version = imported.pool.spa().version();
    let (kept, facts) = props(how, version, host).map_err(about)?;
    let Hands { workers, world } = Hands::of_system(how.name);
    let guid = Guid(world.random().max(1));
    let devices: Vec<Guid> = how.devices.iter().copied().map(Guid).collect();
    let open = || {
        let terms = SplitTerms {
            name: how.name,
            guid,
            leaves: &devices,
            altroot: facts.altroot.clone(),
            host,
            workers,
            cache: pools.tunables.room(),
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
    };
    pools.import(how.name, guid, open).map_err(|e| Error { about: old.to_owned(), ..e })?;
    if how.import {
        return Ok(());
    }
    pools.export(caller, &ExportRequest { name: how.name.to_owned(), ..ExportRequest::default() })
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
