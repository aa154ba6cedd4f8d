//! Queries about pools that return no lists.

use crate::commands::dataset::{quotas, tasks};
use crate::pools::Pools;
use crate::pools::datasets::data_room;
use crate::replies::of_dsl;
use api::{DatasetChange, Error, ObjectPath, Settings};
use ondisk::ObjNum;
use zpl::FileSystem;

impl Pools {
    /// The properties that a dataset would have after its creation.
    ///
    /// # Errors
    /// See [`api::Service::draft`].
    pub fn draft(&self, change: &DatasetChange) -> Result<Settings, Error> {
        let imported = self.table.pool_of(change.subject())?;
        let (kept, _) = quotas::split(change)?;
        let room = |blocks, block| data_room(&imported.pool, blocks, block);
        let drafted = imported.pool.spa().read(|| tasks::draft(imported.pool.dsl(), &room, &kept))?;
        let DatasetChange::Create { props, .. } = change else { return Ok(drafted) };
        // The properties of the request keep their order, with quotas of users among them.
        let added = drafted.into_iter().filter(|(name, _)| !props.iter().any(|(p, _)| p == name));
        Ok(props.iter().cloned().chain(added).collect())
    }

    /// The location of an object. For a mounted file system, its present one (`zpool_obj_to_path`).
    ///
    /// # Errors
    /// See [`api::Service::object_path`].
    pub fn object_path(&self, pool: &str, objset: ObjNum, object: ObjNum) -> Result<ObjectPath, Error> {
        let imported = self.table.pool(pool)?;
        // A number that is not a dataset's may belong to anything.
        let Ok(dataset) = imported.pool.dsl().by_object(objset) else { return Ok(ObjectPath::default()) };
        let name = dataset.name();
        let live = imported.mounts.served().into_iter().find(|live| live.name() == name);
        let path = |fs: &FileSystem| {
            let path = fs.object_path(object).ok()?;
            Some(String::from_utf8_lossy(&path).into_owned())
        };
        let stored = || {
            let objset = dataset.objset().map_err(|e| Error::new(&name, of_dsl(&e)))?;
            Ok(objset.and_then(|objset| path(&FileSystem::open(&objset).ok()?)))
        };
        let mountpoint = live.as_ref().map(|live| live.target().to_string_lossy().into_owned());
        let path = match &live {
            Some(live) => live.with_files(|fs| fs.map_or_else(stored, |fs| Ok(path(&fs))))?,
            None => stored()?,
        };
        Ok(ObjectPath { dataset: Some(name), path, mountpoint })
    }
}
