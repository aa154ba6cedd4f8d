//! Questions about pools that are no list of anything.

use super::{Pools, data_room};
use crate::change::{quotas, tasks};
use crate::faults::of_dsl;
use api::{DatasetChange, Error, ObjectPath, Settings};
use ondisk::ObjNum;
use zpl::FileSystem;

impl Pools {
    /// The properties that a creation would give what it makes.
    ///
    /// # Errors
    /// Values that may not be.
    pub fn draft(&self, change: &DatasetChange) -> Result<Settings, Error> {
        let imported = self.pool_of(change.subject())?;
        let (kept, _) = quotas::split(change)?;
        let room = |blocks, block| data_room(&imported.pool, blocks, block);
        let drafted = imported.pool.spa().read(|| tasks::draft(imported.pool.dsl(), &room, &kept))?;
        let DatasetChange::Create { props, .. } = change else { return Ok(drafted) };
        // What the request says comes in its order, limits of users among it.
        let added = drafted.into_iter().filter(|(name, _)| !props.iter().any(|(p, _)| p == name));
        Ok(props.iter().cloned().chain(added).collect())
    }

    /// Where an object is to be found. Of a file system that is mounted, as it is now.
    ///
    /// # Errors
    /// [`api::Reason::NoSuchPool`].
    pub fn object_path(&self, pool: &str, objset: ObjNum, object: ObjNum) -> Result<ObjectPath, Error> {
        let imported = self.pool(pool)?;
        // A number that is no dataset's may be anything else's.
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
