//! Partitions of the AFS server that commands make.

use crate::pools::Pools;
use crate::pools::imported::Imported;
use api::{AfsEnable, AfsPartition, Caller, DatasetChange, DatasetKind, Error, Reason};
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
        let _ = self.afs.release(imported, true);
        match now {
            Ok(another) => {
                self.afs.adopt(&another);
                Err(Error::new(name, Reason::NoSuchPool))
            }
            Err(gone) => Err(gone),
        }
    }
}
