//! From devices to an imported pool.

use crate::api::{
    Candidate, Error, ExportRequest, ImportOutcome, ImportRequest, PoolChange, Reason, RewindInfo,
    ScanRequest,
};
use crate::faults::{of_library, of_open, of_spa};
use crate::pools::{Pools, threads_for};
use crate::view::{self, PoolFacts};
use device::Layer;
use dsl::Name;
use ondisk::config::PoolState;
use ondisk::{Guid, Nvlist, Txg, VdevConfig};
use poolhouse::{OpenOptions, Pool};
use spa::import::{Claim, Clock, Hands, Options, Pass, Rewind, Seen, import_for_writing, list_txgs};
use spa::scan::DEFAULT_SEARCH_PATHS;
use spa::{Host, Spa};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most bytes of a cache file that are read.
const CACHEFILE_MAX: u64 = 64 << 20;

/// The pools that a search finds, as far as they are asked for.
pub(super) fn find(request: &ScanRequest) -> Result<Vec<spa::Candidate>, Error> {
    let mut pools = match &request.cachefile {
        Some(file) => in_cachefile(file, request.beside)?,
        None if request.paths.is_empty() => spa::scan(&DEFAULT_SEARCH_PATHS).pools,
        None => spa::scan(&request.paths).pools,
    };
    pools.retain(|pool| {
        request.name.as_ref().is_none_or(|name| *name == pool.name)
            && request.guid.is_none_or(|guid| guid == pool.guid.0)
    });
    Ok(pools)
}

/// The pools of a cache file. It says where their devices are, or at least in which folders (`beside`); what is on these is
/// believed rather than the file.
fn in_cachefile(file: &Path, beside: bool) -> Result<Vec<spa::Candidate>, Error> {
    let about = file.display().to_string();
    let failed = |error: std::io::Error| {
        Error::new(&about, Reason::System { errno: error.raw_os_error().unwrap_or_default() })
    };
    let mut bytes = Vec::new();
    let open = std::fs::File::open(file).map_err(failed)?;
    open.take(CACHEFILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let cached = Cached::decode(&bytes).ok_or_else(|| Error::new(&about, Reason::InvalidConfig))?;
    let paths: BTreeSet<&Path> = cached
        .paths
        .iter()
        .filter_map(|path| if beside { path.parent() } else { Some(path.as_path()) })
        .collect();
    let mut pools = spa::scan(&paths.into_iter().collect::<Vec<_>>()).pools;
    pools.retain(|pool| cached.guids.contains(&pool.guid));
    Ok(pools)
}

/// What a cache file tells of pools.
#[derive(Debug, Default)]
struct Cached {
    guids: BTreeSet<Guid>,
    paths: BTreeSet<PathBuf>,
}

impl Cached {
    /// From the file's contents: a list of pools' configs by name (`spa_write_cachefile`); `None` if it is no such list.
    fn decode(bytes: &[u8]) -> Option<Cached> {
        let list = Nvlist::decode(bytes).ok()?;
        let mut cached = Cached::default();
        for (name, _) in list.iter() {
            let pool = list.list(name)?;
            let tree = VdevConfig::from_nvlist(pool.list("vdev_tree")?).ok()?;
            let paths = tree.leaves().filter_map(|leaf| leaf.path.as_deref());
            cached.paths.extend(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))));
            cached.guids.insert(Guid(pool.u64("pool_guid")?));
        }
        Some(cached)
    }
}

/// What an attempt to load each of them shows.
pub(super) fn examine(found: &[spa::Candidate], host: &Host, clock: &dyn Clock) -> Vec<Candidate> {
    let options = OpenOptions::default().import();
    let one = |candidate: &spa::Candidate| {
        let report = spa::examine(candidate, &options, host, clock);
        view::candidate(candidate, &report, u64::from(host.hostid))
    };
    found.iter().map(one).collect()
}

/// What an import goes by that no request says.
pub(super) struct How<'a> {
    pub(super) host: &'a Host,
    pub(super) clock: &'a dyn Clock,
    pub(super) layer: &'a Layer,
}

/// Imports a pool, or says what that would come to.
pub(super) fn import(pools: &Pools, how: &How<'_>, request: &ImportRequest) -> Result<ImportOutcome, Error> {
    let How { host, clock, layer } = *how;
    let none = || Error::new(request.guid.to_string(), Reason::NoSuchImport);
    let scan = ScanRequest { guid: Some(request.guid), name: None, ..request.scan.clone() };
    let found = find(&scan)?;
    let candidate = found.first().ok_or_else(none)?;
    if candidate.state == PoolState::Destroyed && !request.destroyed {
        return Err(none());
    }
    let name = request.new_name.as_deref().unwrap_or(&candidate.name);
    if !Name::parse(name).is_ok_and(|parsed| parsed.pool() == name) {
        return Err(Error::new(name, Reason::InvalidName));
    }
    let facts = facts(request, name)?;
    let options = Options {
        layer: layer.clone(),
        pass: Pass { threads: threads_for(request.threads) },
        cache: pools.tunables.room(),
        ..options(request, &facts)
    };
    let altroot = facts.altroot.clone();
    let open = || {
        let altroot = altroot.clone();
        let spa = if options.readonly {
            spa::import(candidate, &options, host, clock).map_err(|failure| of_spa(&failure))
        } else {
            let hands = Hands::of_system(name);
            import_for_writing(candidate, &options, altroot, host, clock, hands)
                .map_err(|failure| of_open(&failure))
        };
        let spa = spa.map_err(|reason| Error::new(name, reason))?;
        let rewind = (options.rewind != Rewind::No).then(|| went_back(&spa));
        Ok((spa, ImportOutcome { name: name.to_owned(), rewind, ..ImportOutcome::default() }))
    };
    if request.rewind.dry_run {
        return open().map(|(_, outcome)| outcome);
    }
    // Those that hold for this import alone are in the facts; the rest is written, to a pool that is.
    let alone = |name: &str| matches!(name, "readonly" | "altroot" | "cachefile");
    let props: Vec<_> = request.props.iter().filter(|(p, _)| !alone(p)).cloned().collect();
    let set = !facts.readonly && !props.is_empty();
    let outcome = pools.import(name, candidate.guid, || {
        let (spa, outcome) = open()?;
        let altroot = facts.altroot.clone();
        let pool = Pool::with_spa(spa, altroot).map_err(|error| Error::new(name, of_library(&error)))?;
        Ok((pool, facts, outcome))
    })?;
    if set && let Err(error) = pools.change_pool(name, &PoolChange::Set { props }, host) {
        pools.export(&ExportRequest { name: name.to_owned(), ..ExportRequest::default() })?;
        return Err(error);
    }
    Ok(outcome)
}

/// What is set for this import only. The rest of the properties is written to the pool; a read-only import passes it over, as
/// OpenZFS does.
fn facts(request: &ImportRequest, name: &str) -> Result<PoolFacts, Error> {
    let bad = |property: &str| Error::new(name, Reason::BadProperty { property: property.to_owned() });
    let mut facts = PoolFacts { load_guid: RandomState::new().hash_one(name), ..PoolFacts::default() };
    for (property, value) in &request.props {
        match (property.as_str(), value.as_str()) {
            ("readonly", "on") => facts.readonly = true,
            ("readonly", "off") => facts.readonly = false,
            ("readonly", _) => return Err(bad(property)),
            ("altroot", path) if path.starts_with('/') => {
                // Mountpoints are joined to it, so it ends without a slash.
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

/// The state that was opened, and how much younger the pool's newest is.
fn went_back(spa: &Spa) -> RewindInfo {
    let load_time = spa.uberblock().timestamp;
    let newest = list_txgs(spa.candidate()).ok().and_then(|states| Some(states.first()?.uberblock.timestamp));
    let lost = newest.and_then(|newest| i64::try_from(newest.saturating_sub(load_time)).ok());
    RewindInfo { load_time, seconds_lost: lost, data_errors: None }
}

#[cfg(test)]
mod tests;
