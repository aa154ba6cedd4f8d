//! Partitions of the AFS server that commands make.

use crate::afs::Parting;
use crate::pools::Pools;
use crate::pools::imported::Imported;
use crate::query;
use api::{
    AfsEnable, AfsPartition, AfsQuery, AfsStatus, AfsVolume, Caller, DatasetChange, DatasetKind, Error,
    Reason,
};
use std::sync::Arc;

impl Pools {
    /// Serves a file system as a partition, and creates it before that if the request says so.
    ///
    /// # Errors
    /// See [`api::Service::afs_enable`].
    pub(crate) fn afs_enable(&self, caller: &Caller, request: &AfsEnable) -> Result<AfsPartition, Error> {
        let name = request.dataset.as_str();
        let imported = self.table.pool_of(name)?;
        let found = imported.pool.spa().read(|| imported.pool.dsl().dataset(name));
        let is_missing = matches!(found, Err(dsl::Error::NoSuchDataset { .. }));
        if is_missing && !request.create {
            return Err(Error::new(name, Reason::NoSuchDataset));
        }
        if is_missing {
            self.afs.check_new(request)?;
            let change = DatasetChange::Create {
                name: name.to_owned(),
                kind: DatasetKind::Filesystem,
                props: vec![("canmount".to_owned(), "off".to_owned())],
                sparse: false,
                parents: false,
                mount: false,
                key: None,
            };
            self.change(caller, &change)?;
        }
        let partition = self.afs.enable(caller, &imported, request)?;
        self.check_afs(&imported)?;
        Ok(partition)
    }

    /// The pools of these file systems.
    fn pools_of<'a>(&self, datasets: impl Iterator<Item = &'a str>) -> Vec<Arc<Imported>> {
        let mut pools: Vec<Arc<Imported>> =
            datasets.filter_map(|name| self.table.pool_of(name).ok()).collect();
        pools.sort_unstable_by_key(Arc::as_ptr);
        pools.dedup_by(|a, b| Arc::ptr_eq(a, b));
        pools
    }

    /// The AFS server and its partitions. A partition whose pool does not answer says so.
    pub(crate) fn afs_status(&self) -> AfsStatus {
        let mut status = self.afs.status();
        let pools = self.pools_of(status.partitions.iter().map(|one| one.dataset.as_str()));
        let partitions = self.afs.served();
        let spaces = query::each_soon(&pools, false, move |pool| crate::afs::spaces(&partitions, pool));
        for (pool, spaces) in pools.iter().zip(spaces) {
            let of_it =
                |one: &&mut AfsPartition| one.served && crate::afs::within(pool.pool.name(), &one.dataset);
            for one in status.partitions.iter_mut().filter(of_it) {
                match spaces.as_ref().map(|spaces| spaces.get(&one.dataset)) {
                    Some(Some(Ok((total, free)))) => (one.total, one.free) = (*total, *free),
                    Some(Some(Err(reason))) => one.problem = Some(reason.clone()),
                    // It is served no more.
                    Some(None) => {}
                    None => one.problem = Some(query::silent(pool).reason),
                }
            }
        }
        status
    }

    /// Volumes and clones. Of those whose pool does not answer, only what memory has is listed.
    ///
    /// # Errors
    /// * [`Reason::BadValue`]: the request names no partition.
    pub(crate) fn afs_volumes(&self, query: &AfsQuery) -> Result<Vec<AfsVolume>, Error> {
        let Some(running) = self.afs.now() else { return Ok(Vec::new()) };
        let chosen = crate::afs::chosen(&running, query)?;
        let pools = self.pools_of(chosen.iter().map(|volume| volume.partition().dataset()));
        let (own, all) = (Arc::clone(&running), chosen.clone());
        // There may be many headers to read.
        let listed = query::each_soon(&pools, true, move |pool| {
            crate::afs::listed(
                &own,
                all.iter().filter(|one| crate::afs::within(pool.pool.name(), one.partition().dataset())),
            )
        });
        let known = listed.into_iter().flatten().flatten().map(|one| (one.id, one));
        let mut known: std::collections::HashMap<u32, AfsVolume> = known.collect();
        let silent = |volume| crate::afs::unread(&running, volume);
        Ok(chosen.iter().map(|one| known.remove(&one.id().0).unwrap_or_else(|| silent(one))).collect())
    }

    /// Serves the partitions of a pool that was imported, or whose key was loaded.
    pub(crate) fn adopt_afs(&self, imported: &Arc<Imported>) {
        self.afs.adopt(imported);
        if let Err(error) = self.check_afs(imported) {
            tracing::info!(pool = imported.pool.name(), %error, "its partitions of AFS go with it");
        }
    }

    /// Removes partitions that were added after the export of their pool had looked for them. Those
    /// of a pool of the same name that was imported since are served in their place.
    fn check_afs(&self, imported: &Arc<Imported>) -> Result<(), Error> {
        let name = imported.pool.name();
        let now = self.table.pool(name);
        if now.as_ref().is_ok_and(|now| Arc::ptr_eq(now, imported)) {
            return Ok(());
        }
        // What fails is logged: the pool may be closed already.
        let _ = self.afs.release(imported, Parting::Forced);
        match now {
            Ok(another) => {
                self.afs.adopt(&another);
                Err(Error::new(name, Reason::NoSuchPool))
            }
            Err(gone) => Err(gone),
        }
    }
}
