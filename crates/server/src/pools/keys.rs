//! Wrapping keys of imported pools.

use api::{Caller, Error, KeyMaterial, LoadKeyRequest, Reason};
use ondisk::ObjNum;

use crate::control::files::visits::Visits;
use crate::pools::Pools;
use crate::pools::imported::Imported;
use crate::pools::table::PoolTable;
use crate::replies::{of_dsl, of_key};

impl Pools {
    /// Loads the key of an encryption root, or checks it (`spa_keystore_load_wkey`).
    ///
    /// # Errors
    /// See [`api::Service::load_key`].
    pub fn load_key(&self, caller: &Caller, request: &LoadKeyRequest) -> Result<(), Error> {
        let about = request.dataset.as_str();
        let pool = self.table.pool_of(about)?;
        let dsl = pool.pool.dsl();
        let dir = dsl.dir(about).map_err(|error| Error::new(about, of_dsl(&error)))?;
        let bytes = match &request.key {
            KeyMaterial::Passphrase(bytes) | KeyMaterial::Hex(bytes) | KeyMaterial::Raw(bytes) => bytes,
        };
        let load =
            |noop| dsl.keys().load(&dir, bytes, noop).map_err(|error| Error::new(about, of_key(&error)));
        let place = (pool.pool.name(), dir.object());
        match request.noop {
            true => load(true)?,
            // A key that visits have loaded would go with the last of them.
            false => self.visits.leave_key(place, load)?,
        }
        tracing::debug!(dataset = about, uid = caller.peer().uid, noop = request.noop, "its key fits");
        Ok(())
    }

    /// Unloads a key, unless a mount, a volume or a visit needs it (`spa_keystore_unload_wkey`).
    ///
    /// # Errors
    /// See [`api::Service::unload_key`].
    pub fn unload_key(&self, caller: &Caller, dataset: &str) -> Result<(), Error> {
        let imported = self.table.pool_of(dataset)?;
        for partition in self.afs.served_of(&imported) {
            if has_key_of(&imported, &partition, dataset)? {
                return Err(Error::new(dataset, Reason::ServedOverAfs { partition, volume: None }));
            }
        }
        unload(caller, &self.table, &self.visits, dataset)
    }
}

/// Whether a dataset has its key from this encryption root.
fn has_key_of(imported: &Imported, dataset: &str, root: &str) -> Result<bool, Error> {
    let dsl = imported.pool.dsl();
    let read = || Ok((dsl.dir(root)?.object(), dsl.dir(dataset)?.encryption_root()?.map(|dir| dir.object())));
    let read = imported.pool.spa().read(read);
    let (root, needed) = read.map_err(|error: dsl::Error| Error::new(dataset, of_dsl(&error)))?;
    Ok(needed == Some(root))
}

/// Unloads a key, unless a mount, a volume or a visit needs it.
///
/// # Errors
/// See [`api::Service::unload_key`].
pub(crate) fn unload(
    caller: &Caller,
    pools: &PoolTable,
    visits: &Visits,
    dataset: &str,
) -> Result<(), Error> {
    let pool = pools.pool_of(dataset)?;
    let fail = |error: dsl::Error| Error::new(dataset, of_dsl(&error));
    let root = pool.pool.dsl().dir(dataset).map_err(fail)?;
    for live in pool.mounts.served() {
        let name = live.name();
        // A snapshot has the key of its head.
        let head = name.split('@').next().unwrap_or(&name);
        let dir = pool.pool.dsl().dir(head).map_err(fail)?;
        let needs = dir.encryption_root().map_err(fail)?;
        if needs.is_some_and(|needed| needed.object() == root.object()) {
            return Err(Error::new(dataset, Reason::Busy));
        }
    }
    for object in pool.volumes.objects() {
        let needs = pool.pool.dsl().by_object(ObjNum(object)).and_then(|d| d.dir().encryption_root());
        if needs.map_err(fail)?.is_some_and(|needed| needed.object() == root.object()) {
            return Err(Error::new(dataset, Reason::Busy));
        }
    }
    for (object, who) in visits.users(pool.pool.name()) {
        let needs = pool.pool.dsl().by_object(ObjNum(object)).and_then(|d| d.dir().encryption_root());
        if needs.map_err(fail)?.is_some_and(|needed| needed.object() == root.object()) {
            // Other users do not learn who uses files of the pool.
            let reason = if caller.owns() { Reason::HeldOpen { by: who } } else { Reason::Busy };
            return Err(Error::new(dataset, reason));
        }
    }
    // Earlier writes may still need the key on their way to the disk.
    if let Some(live) = pool.pool.spa().writer() {
        live.sync_all_unless_suspended().map_err(|_| Error::new(dataset, Reason::Suspended))?;
    }
    // Last: a visit may have begun during the wait.
    for (object, who) in visits.readers(pool.pool.name()) {
        let needs = pool.pool.dsl().by_object(ObjNum(object)).and_then(|d| d.dir().encryption_root());
        // The dataset may have been destroyed meanwhile.
        if needs.ok().flatten().is_some_and(|needed| needed.object() == root.object()) {
            let reason = if caller.owns() { Reason::HeldOpen { by: who } } else { Reason::Busy };
            return Err(Error::new(dataset, reason));
        }
    }
    match pool.pool.unload_key(dataset) {
        Ok(()) => Ok(()),
        Err(error) => Err(Error::new(dataset, crate::replies::of_library(&error))),
    }
}
