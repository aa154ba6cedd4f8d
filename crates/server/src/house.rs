//! The control API over the pools of this process.
//!
//! # Theory
//! Each method finds its pool, reads what it needs through [`crate::view`], and answers; changes go through [`Pools`]. It
//! serves in the daemon, and in a command that finds no daemon, where there is simply nothing imported.

use crate::api::{
    Candidate, Dataset, DatasetQuery, Error, ExportRequest, HistoryRecord, Hold, ImportOutcome,
    ImportRequest, LoadKeyRequest, Mount, MountReport, MountRequest, Pool, PoolQuery, Reason, RewindInfo,
    ScanRequest, Service, SpaceClass, SpaceEntry, UnmountRequest,
};
use crate::daemon;
use crate::faults::{of_library, of_spa};
use crate::pools::{Imported, Pools};
use crate::view::{self, PoolFacts};
use ondisk::Txg;
use ondisk::config::PoolState;
use spa::import::{Options, Rewind, SystemClock};
use spa::{Host, Scan};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

/// Pools, and this machine as they see it.
pub struct House {
    pools: Pools,
    host: Host,
}

impl Default for House {
    fn default() -> Self {
        Self { pools: Pools::default(), host: Host::of_system() }
    }
}

impl House {
    /// Nothing imported.
    pub fn new() -> Self {
        Self::default()
    }

    fn found(request: &ScanRequest) -> Result<Scan, Error> {
        if let Some(file) = &request.cachefile {
            let what = "reading configurations from a cache file".to_owned();
            return Err(Error::new(file.to_string_lossy(), Reason::NotSupported { what }));
        }
        let usual = || spa::scan::DEFAULT_SEARCH_PATHS.iter().map(PathBuf::from).collect();
        let paths = if request.paths.is_empty() { usual() } else { request.paths.clone() };
        Ok(spa::scan(&paths))
    }

    /// Loads a pool as a request wants it.
    fn load(
        &self,
        candidate: &spa::Candidate,
        request: &ImportRequest,
        name: &str,
    ) -> Result<(poolhouse::Pool, PoolFacts, ImportOutcome), Error> {
        let fail = |reason| Error::new(name, reason);
        let asked = Asked::of(request).map_err(|property| fail(Reason::BadProperty { property }))?;
        let options = Options {
            readonly: asked.readonly,
            force: request.force,
            missing_log: request.missing_log,
            checkpoint: request.rewind.to_checkpoint,
            rewind: match request.rewind {
                // A trial finds out what a rewind would do by not doing it.
                crate::api::Rewind { dry_run: true, .. } => Rewind::No,
                crate::api::Rewind { extreme: true, .. } => Rewind::Extreme,
                crate::api::Rewind { rewind: true, .. } => Rewind::Recover,
                crate::api::Rewind { .. } => Rewind::No,
            },
            max_txg: request.rewind.txg.map(Txg),
            name: Some(name.to_owned()),
            ..poolhouse::OpenOptions::default().import()
        };
        let spa = spa::import(candidate, &options, &self.host, &SystemClock)
            .map_err(|failure| fail(of_spa(&failure)))?;
        let back = request.rewind.txg.is_some() || (request.rewind.rewind && spa.log_dropped());
        let rewind = back.then(|| RewindInfo {
            load_time: spa.uberblock().timestamp,
            seconds_lost: None,
            data_errors: None,
        });
        let pool = poolhouse::Pool::with_spa(spa, asked.altroot.clone())
            .map_err(|error| fail(of_library(&error)))?;
        let facts = PoolFacts {
            altroot: asked.altroot,
            cachefile: asked.cachefile,
            load_guid: RandomState::new().hash_one(name),
            readonly: true,
        };
        let outcome = ImportOutcome { name: name.to_owned(), rewind, ..ImportOutcome::default() };
        Ok((pool, facts, outcome))
    }

    fn datasets_of(pool: &Imported, query: &DatasetQuery) -> Result<Vec<Dataset>, Error> {
        let listed = pool.pool.spa().mos().pool_props();
        let listed = listed.map_err(|error| Error::new(pool.pool.name(), of_library(&error.into())))?;
        let listsnapshots =
            listed.get("listsnapshots").and_then(|value| value.first()).is_some_and(|n| n != 0);
        view::datasets(pool.pool.dsl(), query, listsnapshots, &|name| pool.mounts.holds(name))
    }
}

/// The properties that an import may be given.
struct Asked {
    readonly: bool,
    altroot: Option<String>,
    cachefile: Option<String>,
}

impl Asked {
    /// The name of a property that can't be set comes back.
    fn of(request: &ImportRequest) -> Result<Self, String> {
        let mut asked = Self { readonly: false, altroot: None, cachefile: None };
        for (name, value) in &request.props {
            match (name.as_str(), value.as_str()) {
                ("readonly", "on") => asked.readonly = true,
                ("readonly", "off") => asked.readonly = false,
                ("altroot", path) if path.starts_with('/') => asked.altroot = Some(path.to_owned()),
                ("cachefile", value) => asked.cachefile = Some(value.to_owned()),
                _ => return Err(name.clone()),
            }
        }
        Ok(asked)
    }
}

impl Service for House {
    fn pool_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.pools.all().iter().map(|pool| pool.pool.name().to_owned()).collect())
    }

    fn pool(&self, name: &str, query: &PoolQuery) -> Result<Pool, Error> {
        let pool = self.pools.pool(name)?;
        view::pool(pool.pool.spa(), pool.pool.dsl(), &pool.facts, query)
    }

    fn history(&self, name: &str) -> Result<Vec<HistoryRecord>, Error> {
        view::history(name, self.pools.pool(name)?.pool.spa().mos())
    }

    fn datasets(&self, query: &DatasetQuery) -> Result<Vec<Dataset>, Error> {
        if let Some(root) = &query.root {
            return Self::datasets_of(&*self.pools.pool_of(root)?, query);
        }
        let mut all = Vec::new();
        for pool in self.pools.all() {
            all.extend(Self::datasets_of(&pool, query)?);
        }
        Ok(all)
    }

    fn space(&self, dataset: &str, classes: &[SpaceClass]) -> Result<Vec<SpaceEntry>, Error> {
        view::space(self.pools.pool_of(dataset)?.pool.dsl(), dataset, classes)
    }

    fn holds(&self, snapshot: &str) -> Result<Vec<Hold>, Error> {
        view::holds(self.pools.pool_of(snapshot)?.pool.dsl(), snapshot)
    }

    fn scan(&self, request: &ScanRequest) -> Result<Vec<Candidate>, Error> {
        let imported: Vec<u64> = self.pools.all().iter().map(|pool| pool.pool.spa().guid().0).collect();
        let wanted = |candidate: &&spa::Candidate| {
            !imported.contains(&candidate.guid.0)
                && request.guid.is_none_or(|guid| guid == candidate.guid.0)
                && request.name.as_ref().is_none_or(|name| *name == candidate.name)
        };
        let options = poolhouse::OpenOptions::default().import();
        let found = Self::found(request)?;
        let examined = found.pools.iter().filter(wanted).map(|candidate| {
            let report = spa::examine(candidate, &options, &self.host, &SystemClock);
            view::candidate(candidate, &report, u64::from(self.host.hostid))
        });
        Ok(examined.collect())
    }

    fn import(&self, request: &ImportRequest) -> Result<ImportOutcome, Error> {
        let none = || Error::new(request.guid.to_string(), Reason::NoSuchImport);
        let found = Self::found(&request.scan)?;
        let candidate = found.pools.iter().find(|pool| pool.guid.0 == request.guid).ok_or_else(none)?;
        if candidate.state == PoolState::Destroyed && !request.destroyed {
            return Err(none());
        }
        let name = request.new_name.as_deref().unwrap_or(&candidate.name);
        let valid = dsl::Name::parse(name).is_ok_and(|parsed| parsed.pool() == name);
        if !valid {
            return Err(Error::new(name, Reason::InvalidName));
        }
        if request.rewind.dry_run {
            // Imported for a moment, or told what it would take.
            return self.load(candidate, request, name).map(|(_, _, outcome)| outcome);
        }
        self.pools.import(name, candidate.guid, || self.load(candidate, request, name))
    }

    fn export(&self, request: &ExportRequest) -> Result<(), Error> {
        self.pools.export(request)
    }

    fn mounts(&self) -> Result<Vec<Mount>, Error> {
        Ok(self.pools.mounts())
    }

    fn mount(&self, request: &MountRequest) -> Result<MountReport, Error> {
        self.pools.mount(request)
    }

    fn unmount(&self, request: &UnmountRequest) -> Result<MountReport, Error> {
        self.pools.unmount(request)
    }

    fn load_key(&self, request: &LoadKeyRequest) -> Result<(), Error> {
        self.pools.load_key(request)
    }

    fn unload_key(&self, dataset: &str) -> Result<(), Error> {
        self.pools.unload_key(dataset)
    }
}

impl daemon::House for House {
    fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    fn close(&self) {
        self.pools.close();
    }
}

/// Whoever holds this user's pools: the daemon, started when it is needed, or nobody.
pub fn connect() -> impl Service {
    crate::client::Socket::new(Box::new(House::new())).client()
}

/// A house for a daemon.
pub fn shared() -> Arc<dyn daemon::House> {
    Arc::new(House::new())
}
