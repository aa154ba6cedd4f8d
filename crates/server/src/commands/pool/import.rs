//! From devices to an imported pool.

use crate::mounts::threads::threads_for;
use crate::pools::Pools;
use crate::replies::{of_library, of_open, of_spa};
use crate::view;
use crate::view::PoolFacts;
use api::{
    Caller, Candidate, Error, ExportRequest, ImportOutcome, ImportRequest, Lost, PoolChange, Reason,
    RewindInfo, ScanRequest,
};
use device::Layer;
use dsl::Name;
use ondisk::config::PoolState;
use ondisk::{Guid, Nvlist, Txg, VdevConfig};
use poolhouse::{OpenOptions, Pool};
use spa::discovery::DEFAULT_SEARCH_PATHS;
use spa::import::{Claim, Clock, Options, Pass, Resources, Rewind, Seen, import_for_writing, list_txgs};
use spa::{Host, Spa};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most bytes of a cache file to read.
const CACHEFILE_MAX: u64 = 64 << 20;

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) pools: Vec<spa::Candidate>,
    /// Pools of the cache file that no device holds.
    pub(crate) lost: Vec<Lost>,
    /// Devices, files and folders that did not answer.
    pub(crate) silent: Vec<PathBuf>,
}

/// The pools that a search finds and that match the request (`zpool_search_import`).
///
/// # Errors
/// * [`Reason::System`]: the cache file can't be read.
/// * [`Reason::InvalidConfig`]: the cache file is malformed.
pub(crate) fn find(request: &ScanRequest) -> Result<Found, Error> {
    let asked = |name: &str, guid: Guid| {
        request.name.as_ref().is_none_or(|wanted| wanted == name)
            && request.guid.is_none_or(|wanted| wanted == guid.0)
    };
    let cached = request.cachefile.as_deref().map(|file| cached(file, &asked)).transpose()?;
    let scan = match &cached {
        Some(cached) => spa::discover(&paths_of(cached, request.beside)),
        None if request.paths.is_empty() => spa::discover(&DEFAULT_SEARCH_PATHS),
        None => spa::discover(&request.paths),
    };
    for path in &scan.silent {
        tracing::warn!(path = %path.display(), "it does not answer, and is passed over in the search for pools");
    }
    let mut pools = scan.pools;
    pools.retain(|pool| asked(&pool.name, pool.guid));
    // A device that left its pool still has an old label. That pool is only found by its guid.
    pools.retain(|pool| pool.superseded_by.is_none() || request.guid == Some(pool.guid.0));
    let mut lost = Vec::new();
    if let Some(cached) = cached {
        // The devices' labels take precedence over the cache file.
        pools.retain(|pool| cached.iter().any(|known| known.guid == pool.guid));
        lost = cached.into_iter().filter(|known| pools.iter().all(|pool| pool.guid != known.guid)).collect();
    }
    let of = |known: Cached| Lost {
        silent: spa::silent(known.paths.iter().map(PathBuf::as_path)),
        name: known.name,
        guid: known.guid.0,
    };
    Ok(Found { pools, lost: lost.into_iter().map(of).collect(), silent: scan.silent })
}

/// The matching pools of a cache file, by their names there. Devices of other pools are not opened.
fn cached(file: &Path, asked: &dyn Fn(&str, Guid) -> bool) -> Result<Vec<Cached>, Error> {
    let about = file.display().to_string();
    let failed = |error: std::io::Error| {
        Error::new(&about, Reason::System { errno: error.raw_os_error().unwrap_or_default() })
    };
    let mut bytes = Vec::new();
    let open = std::fs::File::open(file).map_err(failed)?;
    open.take(CACHEFILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let mut cached = Cached::decode(&bytes).ok_or_else(|| Error::new(&about, Reason::InvalidConfig))?;
    cached.retain(|pool| asked(&pool.name, pool.guid));
    Ok(cached)
}

/// The paths of these pools' devices, or with `beside` their folders.
fn paths_of(cached: &[Cached], beside: bool) -> Vec<&Path> {
    let all = cached.iter().flat_map(|pool| &pool.paths);
    let paths: BTreeSet<&Path> =
        all.filter_map(|path| if beside { path.parent() } else { Some(path.as_path()) }).collect();
    paths.into_iter().collect()
}

/// A pool in a cache file.
#[derive(Debug)]
struct Cached {
    name: String,
    guid: Guid,
    paths: BTreeSet<PathBuf>,
}

impl Cached {
    /// Decodes a cache file: a list of pools' configs by name (`spa_write_cachefile`). `None` if it
    /// is malformed.
    fn decode(bytes: &[u8]) -> Option<Vec<Cached>> {
        let list = Nvlist::decode(bytes).ok()?;
        let pool = |name: &[u8]| {
            let pool = list.list(name)?;
            let tree = VdevConfig::from_nvlist(pool.list("vdev_tree")?).ok()?;
            let paths = tree.leaves().filter_map(|leaf| leaf.path.as_deref());
            let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
            Some(Cached {
                name: String::from_utf8_lossy(name).into_owned(),
                guid: Guid(pool.u64("pool_guid")?),
                paths,
            })
        };
        list.iter().map(|(name, _)| pool(name)).collect()
    }
}

/// The state of each pool after an attempt to load it (`spa_tryimport`).
pub(crate) fn examine(found: &[spa::Candidate], host: &Host, clock: &dyn Clock) -> Vec<Candidate> {
    let options = OpenOptions::default().import();
    let one = |candidate: &spa::Candidate| {
        let report = spa::examine(candidate, &options, host, clock);
        view::candidate(candidate, &report, u64::from(host.hostid))
    };
    found.iter().map(one).collect()
}

/// The conditions of an import that the request does not have.
pub(crate) struct How<'a> {
    pub(crate) host: &'a Host,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) layer: &'a Layer,
}

/// Imports a pool, or reports what an import would do (`spa_import`).
///
/// # Errors
/// * [`Reason::NoSuchImport`]: no pool with this guid was found, or it is destroyed.
/// * [`Reason::InvalidName`], [`Reason::PoolExists`]: the pool can't have this name.
/// * [`Reason::BadProperty`]: a property for this import is unknown or has a bad value.
/// * [`Reason::NotWritable`]: a device can be read but not written.
/// * Others from the search: see [`find`].
/// * Others from the import: see [`of_spa`] and [`of_open`].
/// * If the properties can't be set, the pool is exported again. See [`Pools::change_pool`].
pub(crate) fn import(
    caller: &Caller,
    pools: &Pools,
    how: &How<'_>,
    request: &ImportRequest,
) -> Result<ImportOutcome, Error> {
    let none = || Error::new(request.guid.to_string(), Reason::NoSuchImport);
    let scan = ScanRequest { guid: Some(request.guid), name: None, ..request.scan.clone() };
    let found = find(&scan)?;
    let candidate = found.pools.first().ok_or_else(none)?;
    if candidate.state == PoolState::Destroyed && !request.destroyed {
        return Err(none());
    }
    let name = request.new_name.as_deref().unwrap_or(&candidate.name);
    if !Name::parse(name).is_ok_and(|parsed| parsed.pool() == name) {
        return Err(Error::new(name, Reason::InvalidName));
    }
    let facts = facts(request, name)?;
    let options = Options {
        layer: how.layer.clone(),
        pass: Pass { threads: threads_for(request.threads) },
        cache: pools.tunables.room(),
        hold_scans: pools.tunables.hold_scans(),
        ..options(request, &facts)
    };
    if request.rewind.dry_run {
        return open(candidate, name, &options, &facts, how).map(|(_, outcome)| outcome);
    }
    // Properties of this import alone are in the facts. The others are written to a writable pool.
    let alone = |name: &str| matches!(name, "readonly" | "altroot" | "cachefile");
    let props: Vec<_> = request.props.iter().filter(|(p, _)| !alone(p)).cloned().collect();
    let set = !facts.readonly && !props.is_empty();
    let outcome = pools.import(name, candidate.guid, || {
        let (spa, outcome) = open(candidate, name, &options, &facts, how)?;
        let altroot = facts.altroot.clone();
        let pool = Pool::with_spa(spa, altroot).map_err(|error| Error::new(name, of_library(&error)))?;
        Ok((pool, facts, outcome))
    })?;
    if set && let Err(error) = pools.change_pool(caller, name, &PoolChange::Set { props }, how.host) {
        pools.export(caller, &ExportRequest { name: name.to_owned(), ..ExportRequest::default() })?;
        return Err(error);
    }
    Ok(outcome)
}

/// Opens a pool under a name, and says what the reply reports of that.
///
/// # Errors
/// * [`Reason::NotWritable`]: a device can be read but not written.
/// * All others: see [`of_spa`] and [`of_open`].
fn open(
    candidate: &spa::Candidate,
    name: &str,
    options: &Options,
    facts: &PoolFacts,
    how: &How<'_>,
) -> Result<(Spa, ImportOutcome), Error> {
    let How { host, clock, .. } = *how;
    // The newest state must be read before anything is written.
    let newest = match options.rewind {
        Rewind::No => None,
        Rewind::Recover | Rewind::Extreme => list_txgs(candidate).ok(),
    };
    let newest = newest.and_then(|states| Some(states.first()?.uberblock.timestamp));
    let spa = if options.readonly {
        spa::import(candidate, options, host, clock).map_err(|failure| of_spa(&failure))
    } else {
        let resources = Resources::of_system(name);
        let altroot = facts.altroot.clone();
        import_for_writing(candidate, options, altroot, host, clock, resources)
            .map_err(|failure| of_open(&failure))
    };
    let spa = spa.map_err(|reason| match reason {
        // What can't be opened to be written is missing to the engine; only here the difference
        // matters.
        Reason::MissingDevices(info) if !options.readonly => match spa::unwritable(candidate) {
            Some((device, errno)) => {
                Reason::NotWritable { device: device.display().to_string(), errno: errno.raw_os_error() }
            }
            None => Reason::MissingDevices(info),
        },
        reason => reason,
    });
    let spa = spa.map_err(|reason| Error::new(name, reason))?;
    let rewind = (options.rewind != Rewind::No).then(|| went_back(&spa, newest));
    Ok((spa, ImportOutcome { name: name.to_owned(), rewind, ..ImportOutcome::default() }))
}

/// What is set for this import only. The rest of the properties is written to the pool; a read-only
/// import passes it over, as OpenZFS does.
fn facts(request: &ImportRequest, name: &str) -> Result<PoolFacts, Error> {
    let bad = |property: &str| Error::new(name, Reason::BadProperty { property: property.to_owned() });
    let mut facts = PoolFacts { load_guid: RandomState::new().hash_one(name), ..PoolFacts::default() };
    for (property, value) in &request.props {
        match (property.as_str(), value.as_str()) {
            ("readonly", "on") => facts.readonly = true,
            ("readonly", "off") => facts.readonly = false,
            ("readonly", _) => return Err(bad(property)),
            ("altroot", path) if path.starts_with('/') => {
                // Mountpoints are appended to it, so it must not end with a slash.
                facts.altroot = Some(path.trim_end_matches('/').to_owned()).filter(|path| !path.is_empty());
            }
            ("altroot", _) => return Err(bad(property)),
            ("cachefile", value) => {
                facts.cachefile = Some(value.to_owned()).filter(|value| !value.is_empty())
            }
            _ => {}
        }
    }
    Ok(facts)
}

fn options(request: &ImportRequest, facts: &PoolFacts) -> Options {
    let going_back = &request.rewind;
    Options {
        readonly: facts.readonly || going_back.dry_run,
        claim: if going_back.dry_run { Claim::Nothing } else { Claim::Own },
        force: request.force,
        missing_log: request.missing_log,
        checkpoint: going_back.to_checkpoint,
        rewind: match (going_back.extreme, going_back.rewind) {
            (true, _) => Rewind::Extreme,
            (false, true) => Rewind::Recover,
            (false, false) => Rewind::No,
        },
        max_txg: going_back.txg.map(Txg),
        name: request.new_name.clone(),
        temporary: request.temporary_name,
        seen: request.seen.map(|s| Seen { txg: Txg(s.txg), timestamp: s.timestamp, seq: s.seq }),
        ..OpenOptions::default().import()
    }
}

/// The state that was opened. `newest` is the time of the pool's newest state.
fn went_back(spa: &Spa, newest: Option<u64>) -> RewindInfo {
    let load_time = spa.imported_uberblock().timestamp;
    let lost = newest.and_then(|newest| i64::try_from(newest.saturating_sub(load_time)).ok());
    RewindInfo { load_time, seconds_lost: lost, data_errors: None }
}

#[cfg(test)]
mod tests;
