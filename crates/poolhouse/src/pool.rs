//! An open pool.

use crate::{Dataset, Error, Result};
use dsl::Dsl;
use ondisk::Txg;
use parking_lot::Mutex;
use spa::import::{Claim, Hands, Options, Rewind, SystemClock, import_for_writing};
use spa::{Candidate, Host, Scan, Spa};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use zpl::FileSystem;

/// How a pool is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Name or guid of the pool, needed when the devices hold several.
    pub pool: Option<String>,
    /// Open it for writing. It must be claimed as one's own then, and can't be rewound.
    pub write: bool,
    /// What is claimed of its devices. An owner keeps everybody else out; who claims nothing looks at a pool that somebody else
    /// may have open, even on another host, and what is read may change underneath.
    pub claim: Claim,
    /// Open although another host used it last.
    pub force: bool,
    /// Open without missing log devices.
    pub missing_log: bool,
    /// Open the state of the pool's checkpoint.
    pub checkpoint: bool,
    /// Go back if the newest state can't be opened.
    pub rewind: Rewind,
    /// Open no state newer than this transaction group.
    pub max_txg: Option<Txg>,
    /// Open it under another name.
    pub name: Option<String>,
    /// Alternate root, put before its mountpoints.
    pub altroot: Option<String>,
    /// Bytes of the block cache (`zfs_arc_max`); the default is a quarter of the machine's memory.
    pub cache_bytes: Option<u64>,
    /// Read no blocks ahead: what is read then depends on the caller alone, not on threads.
    pub no_read_ahead: bool,
}

/// An open pool; clones share it.
#[derive(Debug, Clone)]
pub struct Pool {
    spa: Arc<Spa>,
    dsl: Dsl,
    /// File systems that are written, by their objects.
    written: Written,
}

/// See [`Pool::written`].
type Written = Arc<Mutex<HashMap<u64, Weak<FileSystem>>>>;

/// What [`Pool::dataset_names`] found.
#[derive(Debug, Default)]
pub struct DatasetNames {
    /// The names.
    pub names: Vec<String>,
    /// Datasets that could not be read, or below which something could not, and why.
    pub failures: Vec<(String, dsl::Error)>,
}

impl Pool {
    /// Opens the pool on `devices`: image files, block devices, or folders of such.
    ///
    /// # Errors
    /// [`Error`] says which pool was not found, or why it can't be opened.
    pub fn open<P: AsRef<Path>>(devices: &[P], options: &OpenOptions) -> Result<Pool> {
        let scan = spa::scan(devices);
        let candidate = choose(&scan, options.pool.as_deref())?;
        Self::import(candidate, options, &Host::of_system())
    }

    /// Opens a pool that a search found.
    ///
    /// # Errors
    /// [`Error::Import`] and failures to read the pool's own records.
    pub fn import(candidate: &Candidate, options: &OpenOptions, host: &Host) -> Result<Pool> {
        let how = options.import();
        let altroot = options.altroot.clone();
        if !options.write {
            let spa = spa::import::import(candidate, &how, host, &SystemClock)?;
            return Self::with_spa(spa, altroot);
        }
        let hands = Hands::of_system(&candidate.name);
        let spa = import_for_writing(candidate, &how, altroot, host, &SystemClock, hands)?;
        Self::with_spa(spa, None)
    }

    /// Opens the datasets of an imported pool. `altroot` is for one that is only read: what writes a pool has its own.
    ///
    /// # Errors
    /// Failures to read the pool's own records.
    pub fn with_spa(spa: Spa, altroot: Option<String>) -> Result<Pool> {
        if let Some(live) = spa.writer() {
            let dsl = live.dsl().clone();
            return Ok(Pool { spa: Arc::new(spa), dsl, written: Written::default() });
        }
        let space = spa.space()?;
        let options = dsl::Options { pool_name: spa.name().to_owned(), space, altroot };
        let dsl = Dsl::open(spa.mos().clone(), options)?;
        spa.cache().zio().set_keys(dsl.keys().clone());
        Ok(Pool { spa: Arc::new(spa), dsl, written: Written::default() })
    }

    /// Lets the pool go in order, after everything that was changed is on disk. Nothing can be changed any more; devices are let go of
    /// with the last handle. A pool that is only read has nothing to be put in order.
    ///
    /// # Errors
    /// [`Error::Stopped`]: it stays as its last transaction group left it.
    pub fn export(&self) -> Result<()> {
        self.spa.writer().map_or(Ok(()), |live| Ok(live.export()?))
    }

    /// The pool alive: vdevs, features, uberblock, cache.
    pub fn spa(&self) -> &Arc<Spa> {
        &self.spa
    }

    /// Its datasets.
    pub fn dsl(&self) -> &Dsl {
        &self.dsl
    }

    /// The file systems that [`Dataset::writer`] has opened.
    pub(crate) fn written(&self) -> &Mutex<HashMap<u64, Weak<FileSystem>>> {
        &self.written
    }

    /// The name that it was opened under.
    pub fn name(&self) -> &str {
        self.spa.name()
    }

    /// Opens a dataset, volume or snapshot: `pool/a/b`, `pool/a/b@snap`.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a bad name or one that is not there.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        Ok(Dataset::new(self.clone(), self.dsl.dataset(name)?))
    }

    /// The names of every file system, volume and, if asked for, snapshot, sorted as `zfs list` does.
    ///
    /// # Errors
    /// As opening the root fails; later failures are in the answer.
    pub fn dataset_names(&self, snapshots: bool) -> Result<DatasetNames> {
        let options = dsl::ListOptions { snapshots, ..dsl::ListOptions::default() };
        let listing = self.dsl.list_sorted(None, &options)?;
        let names = listing.datasets.iter().map(dsl::Dataset::name).collect();
        Ok(DatasetNames { names, failures: listing.failures })
    }

    /// Loads the key of an encryption root: 32 raw bytes, 64 hexadecimal digits, or a passphrase, without a line end.
    ///
    /// # Errors
    /// [`Error::Key`] says why it is refused.
    pub fn load_key(&self, dataset: &str, material: &[u8]) -> Result<()> {
        Ok(self.dsl.keys().load(&self.dsl.dir(dataset)?, material, false)?)
    }

    /// Forgets the key of an encryption root, and every block that was read with it.
    ///
    /// # Errors
    /// [`Error::Key`] when there is none to forget.
    pub fn unload_key(&self, dataset: &str) -> Result<()> {
        self.dsl.keys().unload(&self.dsl.dir(dataset)?)?;
        self.spa.cache().purge();
        Ok(())
    }
}

impl OpenOptions {
    /// The part of it that concerns import.
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

/// Bytes of the block cache if nobody says: a quarter of the memory that this process may use.
pub fn default_cache_bytes() -> u64 {
    spa::discovery::host::memory() / 4
}

/// The candidate that is meant: by name or guid, or the only one.
fn choose<'s>(scan: &'s Scan, wanted: Option<&str>) -> Result<&'s Candidate> {
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
