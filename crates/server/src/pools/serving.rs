//! Partitions of the AFS server that commands make.

use crate::pools::Pools;
use api::{AfsEnable, AfsPartition, Caller, DatasetChange, DatasetKind, Error, Reason};

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
        self.afs.enable(caller, &imported, request)
    }
}
