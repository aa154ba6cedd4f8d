//! An open pool.

use crate::{Dataset, Error, Result};
use dsl::Dsl;
use observe::lock::Mutex;
use observe::ops::OpTable;
use ondisk::Txg;
use spa::import::{Claim, Options, Resources, Rewind, SystemClock, import_for_writing};
use spa::{Candidate, Discovery, Host, Spa};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use zpl::FileSystem;

/// How a pool is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Name or guid of the pool. Needed if the devices hold several.
    pub pool: Option<String>,
    /// Open the pool for writing. This needs [`Claim::Own`].
    pub write: bool,
    /// What to claim of the devices.
    ///
    /// An owner excludes all other users. Without a claim, another user may have the pool open,
    /// even on another host. What is read may then change during the read.
    pub claim: Claim,
    /// Open the pool although another host used it last (`ZFS_IMPORT_ANY_HOST`).
    pub force: bool,
    /// Open the pool without its missing log devices (`ZFS_IMPORT_MISSING_LOG`).
    pub missing_log: bool,
    /// Open the state of the pool's checkpoint (`ZFS_IMPORT_CHECKPOINT`).
    pub checkpoint: bool,
    /// How far to go back if the newest state can't be opened (`zpool_load_policy_t`).
    pub rewind: Rewind,
    /// Open no state newer than this transaction group (`spa_load_max_txg`).
    pub max_txg: Option<Txg>,
    /// Open the pool under this name.
    pub name: Option<String>,
    /// Alternate root, put before the mountpoints of the datasets (`ZPOOL_PROP_ALTROOT`).
    pub altroot: Option<String>,
    /// Size of the block cache in bytes (`zfs_arc_max`). Default: [`default_cache_bytes`].
    pub cache_bytes: Option<u64>,
    /// Never prefetch. What is read then depends on the caller alone, not on threads.
    pub no_read_ahead: bool,
}

/// An open pool. Clones share it.
#[derive(Debug, Clone)]
pub struct Pool {
    spa: Arc<Spa>,
    dsl: Dsl,
    /// The file systems that are open for writing, by the object numbers of their datasets.
    written: Written,
    ops: Arc<OpTable>,
}

/// The type of [`Pool::written`].
type Written = Arc<Mutex<HashMap<u64, Weak<FileSystem>>>>;

/// The result of [`Pool::dataset_names`].
#[derive(Debug, Default)]
pub struct DatasetNames {
    /// The names.
    pub names: Vec<String>,
    /// Datasets that could not be read, or below which a dataset could not be read, and the errors.
    pub failures: Vec<(String, dsl::Error)>,
}

impl Pool {
    /// Opens the pool on `devices`: image files, block devices, or directories of these.
    ///
    /// # Errors
    /// * [`Error::NoPool`]: no device has a label of a pool.
    /// * [`Error::NoSuchPool`]: the devices hold no pool of the requested name or guid.
    /// * [`Error::SeveralPools`]: the devices hold several pools, and `options` name none.
    /// * [`Error::Import`], [`Error::Refused`], [`Error::Pool`], [`Error::Dataset`]: see
    ///   [`Pool::import`].
    pub fn open<P: AsRef<Path>>(devices: &[P], options: &OpenOptions) -> Result<Pool> {
        let scan = spa::discover(devices);
        let candidate = choose(&scan, options.pool.as_deref())?;
        Self::import(candidate, options, &Host::of_system())
    }

    /// Imports a pool that [`spa::discover`] found (`spa_import`).
    ///
    /// # Errors
    /// * [`Error::Import`]: the pool can't be imported; see [`spa::Failure`].
    /// * [`Error::Refused`]: the pool can't be opened for writing; see
    ///   [`spa::import::WriteRefusal`].
    /// * [`Error::Pool`], [`Error::Dataset`]: see [`Pool::with_spa`].
    pub fn import(candidate: &Candidate, options: &OpenOptions, host: &Host) -> Result<Pool> {
        let how = options.import();
        let altroot = options.altroot.clone();
        if !options.write {
            let spa = spa::import::import(candidate, &how, host, &SystemClock)?;
            return Self::with_spa(spa, altroot);
        }
        let resources = Resources::of_system(&candidate.name);
        let spa = import_for_writing(candidate, &how, altroot, host, &SystemClock, resources)?;
        Self::with_spa(spa, None)
    }

    /// Opens the datasets of an imported pool.
    ///
    /// `altroot` applies only to a read-only pool. A pool that was imported for writing has its
    /// own.
    ///
    /// # Errors
    /// Only for a read-only pool:
    ///
    /// * [`Error::Pool`]: the pool's metadata can't be read.
    /// * [`Error::Dataset`]: the root dataset can't be opened.
    pub fn with_spa(spa: Spa, altroot: Option<String>) -> Result<Pool> {
        if let Some(live) = spa.writer() {
            let dsl = live.dsl().clone();
            return Ok(Pool { spa: Arc::new(spa), dsl, written: Written::default(), ops: Arc::default() });
        }
        let space = spa.space()?;
        let options = dsl::Options { pool_name: spa.name().to_owned(), space, altroot };
        let dsl = Dsl::open(spa.mos().clone(), options)?;
        spa.cache().zio().set_keys(dsl.keys().clone());
        Ok(Pool { spa: Arc::new(spa), dsl, written: Written::default(), ops: Arc::default() })
    }

    /// Exports the pool, after all changes are on disk (`spa_export`).
    ///
    /// No change is possible afterwards. The last handle releases the devices. For a read-only pool
    /// this does nothing.
    ///
    /// # Errors
    /// * [`Error::Stopped`]: the pool stays as its last transaction group left it.
    pub fn export(&self) -> Result<()> {
        self.spa.writer().map_or(Ok(()), |live| Ok(live.export()?))
    }

    /// The pool itself: vdevs, features, uberblock, cache.
    pub fn spa(&self) -> &Arc<Spa> {
        &self.spa
    }

    /// The datasets of the pool.
    pub fn dsl(&self) -> &Dsl {
        &self.dsl
    }

    /// Counters of the operations that front ends do for users, since the import.
    pub fn ops(&self) -> &Arc<OpTable> {
        &self.ops
    }

    /// The file systems that [`Dataset::writer`] opened.
    pub(crate) fn written(&self) -> &Mutex<HashMap<u64, Weak<FileSystem>>> {
        &self.written
    }

    /// The name under which the pool was opened.
    pub fn name(&self) -> &str {
        self.spa.name()
    }

    /// Has the cache treat the blocks of a dataset as its properties `primarycache` and `prefetch`
    /// say, from now on.
    ///
    /// # Errors
    /// [`Error::Dataset`]: a property can't be read.
    pub fn follow_cache(&self, dataset: &dsl::Dataset) -> Result<()> {
        let kind = |prop| {
            let found = self.spa().read(|| dataset.stored_number(prop))?;
            Ok::<_, dsl::Error>(found.map_or(arc::CacheType::All, arc::CacheType::of_number))
        };
        let policy = arc::Policy { keep: kind(dsl::Prop::Primarycache)?, ahead: kind(dsl::Prop::Prefetch)? };
        self.spa().cache().set_policy(dataset.object().0, policy);
        Ok(())
    }

    /// Opens a file system, volume or snapshot: `pool/a/b`, `pool/a/b@snap` (`dsl_dataset_hold`).
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the name is invalid, or the dataset does not exist or can't be read.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        Ok(Dataset::new(self.clone(), self.dsl.dataset(name)?))
    }

    /// The names of all file systems and volumes, and of the snapshots if requested.
    ///
    /// The order is that of `zfs list`.
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the root dataset can't be opened. Later failures are in the result.
    pub fn dataset_names(&self, snapshots: bool) -> Result<DatasetNames> {
        let options = dsl::ListOptions { snapshots, ..dsl::ListOptions::default() };
        let listing = self.dsl.list_sorted(None, &options)?;
        let names = listing.datasets.iter().map(dsl::Dataset::name).collect();
        Ok(DatasetNames { names, failures: listing.failures })
    }

    /// Loads the key of an encryption root (`spa_keystore_load_wkey`).
    ///
    /// `material` is 32 raw bytes, 64 hexadecimal digits, or a passphrase, without a line end.
    ///
    /// # Errors
    /// * [`Error::Key`]: the key is wrong or malformed, it is loaded already, or the dataset is no
    ///   encryption root.
    /// * [`Error::Dataset`]: the dataset does not exist or can't be read.
    pub fn load_key(&self, dataset: &str, material: &[u8]) -> Result<()> {
        Ok(self.dsl.keys().load(&self.dsl.dir(dataset)?, material, false)?)
    }

    /// Forgets the key of an encryption root (`spa_keystore_unload_wkey`).
    ///
    /// It also drops all blocks from the cache, as some were decrypted with that key.
    ///
    /// # Errors
    /// * [`Error::Key`]: no key is loaded, a dataset below is in use, or the dataset is no
    ///   encryption root.
    /// * [`Error::Dataset`]: the dataset does not exist or can't be read.
    pub fn unload_key(&self, dataset: &str) -> Result<()> {
        let unload = |dsl: &Dsl| -> Result<()> { Ok(dsl.keys().unload(&dsl.dir(dataset)?)?) };
        match self.spa.writer() {
            // An operation that has found the key in its check needs it until it is done.
            Some(live) => live.read(unload)?,
            None => unload(&self.dsl)?,
        }
        self.spa.cache().purge();
        Ok(())
    }
}

impl OpenOptions {
    /// The options that concern the import.
    pub fn import(&self) -> Options {
        Options {
            readonly: !self.write,
            claim: self.claim,
            force: self.force,
            missing_log: self.missing_log,
            skip_mmp: self.claim == Claim::Nothing,
            checkpoint: self.checkpoint,
            rewind: self.rewind,
            max_txg: self.max_txg,
            name: self.name.clone(),
            temporary: false,
            cache: self.cache_bytes.unwrap_or_else(default_cache_bytes).into(),
            read_ahead: !self.no_read_ahead,
            ..Options::default()
        }
    }
}

/// The default size of the block cache: a quarter of the memory that this process may use.
pub fn default_cache_bytes() -> u64 {
    spa::discovery::host::memory() / 4
}

/// The requested candidate: by name or guid, or the only one.
fn choose<'s>(scan: &'s Discovery, wanted: Option<&str>) -> Result<&'s Candidate> {
    match (wanted, scan.pools.as_slice()) {
        (None, []) => Err(Error::NoPool { devices: scan.asked }),
        (None, [only]) => Ok(only),
        (None, several) => {
            Err(Error::SeveralPools { names: several.iter().map(|c| c.name.clone()).collect() })
        }
        (Some(wanted), pools) => {
            let guid = wanted.parse().ok();
            pools
                .iter()
                .find(|c| c.name == wanted || guid == Some(c.guid.0))
                .ok_or_else(|| Error::NoSuchPool { name: wanted.to_owned() })
        }
    }
}
