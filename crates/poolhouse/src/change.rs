//! Creating, changing and destroying pools and datasets, as `zpool` and `zfs` do it.

use crate::{Dataset, Error, Pool, Result};
use dsl::ops::create::{Create, NewVolume};
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::props::{SetAs, SetProps};
use dsl::ops::snapshot::Snapshot;
use dsl::prop::parse::{Context, setting};
use dsl::{Contents, Kind, Prop, PropList, Setting, SyncTask, Value};
use ondisk::feature::{FEATURES, Feature};
use ondisk::version::{SPA_VERSION_FEATURES, newest_zpl};
use ondisk::{SPA_MAXBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use spa::Host;
use spa::create::{self, Beginning, NewLeaf, NewPool, NewVdev, VdevShape, claim_file};
use spa::import::Resources;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zpl::{CaseSensitivity, NewFileSystem};

/// Block size of a new volume in bytes (`ZVOL_DEFAULT_BLOCKSIZE`).
const VOLUME_BLOCK: u32 = 16 << 10;

impl Pool {
    /// Receives a send stream, from its BEGIN up to its END (`zfs receive`). Returns its length.
    ///
    /// # Errors
    /// * [`Error::Receive`]: the stream or the dataset does not allow it.
    pub fn receive(&self, source: impl std::io::Read, options: &stream::ReceiveOptions) -> Result<u64> {
        let receiving = stream::Receiving::new(self.spa(), source, options)?;
        let bytes = receiving.bytes();
        receiving.finish()?;
        Ok(bytes)
    }

    /// Creates a pool with all features that Poolhouse can write (`spa_create`).
    ///
    /// Each item of `layout` is a top-level vdev: one device, or a mirror of several. A device is
    /// an image file of 64 MiB or more, or a block device. The old contents of the devices are
    /// lost, unless they are a pool in use.
    ///
    /// # Errors
    /// * [`Error::Create`]: a device can't be used or written, or the layout is invalid; see
    ///   [`spa::create::CreateError`].
    pub fn create<P: AsRef<Path>>(name: &str, layout: &[&[P]]) -> Result<Pool> {
        let vdev = |devices: &&[P]| NewVdev {
            shape: if devices.len() == 1 { VdevShape::Single } else { VdevShape::Mirror },
            bias: None,
            leaves: devices.iter().map(|path| NewLeaf { path: path.as_ref().to_owned() }).collect(),
        };
        let vdevs = layout.iter().map(vdev).collect();
        let new = NewPool { name: name.to_owned(), vdevs, ashift: None, force: false };
        let features: Vec<&Feature> = FEATURES.iter().filter(|feature| feature.can_write()).collect();
        let begin = Beginning {
            features: &features,
            version: SPA_VERSION_FEATURES,
            contents: &new_file_system(|prop| Ok(prop.desc().default), SPA_VERSION_FEATURES)?,
            props: &Vec::new(),
            crypt: None,
            temporary_name: None,
        };
        let Resources { workers, world } = Resources::of_system(name);
        let setting = create::Setting {
            host: &Host::of_system(),
            world,
            claimer: &claim_file,
            workers,
            cache: crate::default_cache_bytes().into(),
            altroot: None,
        };
        Self::with_spa(create::create(&new, &begin, &setting)?, None)
    }

    /// Creates a file system (`zfs create`, `dsl_dataset_create_sync`).
    ///
    /// It inherits its properties and its encryption from its parent dataset.
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the name is invalid or exists, the parent dataset does not exist, or a
    ///   limit or quota forbids it.
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Stopped`]: the pool accepts no more writes.
    pub fn create_filesystem(&self, name: &str) -> Result<Dataset> {
        let above = self.dsl().dataset(name.rsplit_once('/').map_or(name, |(above, _)| above))?;
        let fixed = |prop: Prop| {
            Ok(match above.property(prop)?.map(|property| property.value) {
                Some(Value::Number(number)) => number,
                Some(Value::Text(_)) | None => prop.desc().default,
            })
        };
        let contents = new_file_system(fixed, self.dsl().mos().version())?;
        self.create_dataset(name, Arc::new(contents), PropList::new())
    }

    /// Creates a sparse volume (`zfs create -s -V`).
    ///
    /// `size` is in bytes, and is rounded up to blocks of 16 KiB.
    ///
    /// # Errors
    /// See [`Pool::create_filesystem`].
    pub fn create_volume(&self, name: &str, size: u64) -> Result<Dataset> {
        let size = size.next_multiple_of(VOLUME_BLOCK.into());
        let volsize = Setting { name: Prop::Volsize.name().to_owned(), value: Value::Number(size) };
        let contents = NewVolume { size, block: VOLUME_BLOCK };
        self.create_dataset(name, Arc::new(contents), vec![volsize])
    }

    fn create_dataset(&self, name: &str, contents: Arc<dyn Contents>, props: PropList) -> Result<Dataset> {
        let name = name.to_owned();
        self.run(Create { name: name.clone(), contents, props, crypt: None, enforce_limits: true })?;
        self.dataset(&name)
    }

    /// Creates a snapshot `POOL/DATASET@NAME` of all earlier writes (`dsl_dataset_snapshot`).
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the name is invalid or exists, the dataset does not exist, or a limit
    ///   or quota forbids it.
    /// * [`Error::ReadOnly`], [`Error::Stopped`]: see [`Pool::create_filesystem`].
    pub fn snapshot(&self, name: &str) -> Result<Dataset> {
        let names = vec![name.to_owned()];
        self.run(Snapshot { names, props: PropList::new(), enforce_limits: true })?;
        self.dataset(name)
    }

    /// Creates `name` as a clone of a snapshot (`dsl_dataset_clone`).
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the snapshot does not exist, or the reasons of
    ///   [`Pool::create_filesystem`].
    /// * [`Error::ReadOnly`], [`Error::Stopped`]: see [`Pool::create_filesystem`].
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<Dataset> {
        self.run(dsl::ops::clone::Clone {
            name: name.to_owned(),
            origin: snapshot.to_owned(),
            props: PropList::new(),
            enforce_limits: true,
        })?;
        self.dataset(name)
    }

    /// Destroys a file system, volume or snapshot that has no dependents (`dsl_destroy_head`,
    /// `dsl_destroy_snapshots_nvl`).
    ///
    /// # Errors
    /// * [`Error::Dataset`]: it does not exist; it has children, snapshots, clones or holds; or a
    ///   handle of it is open for writing.
    /// * [`Error::ReadOnly`], [`Error::Stopped`]: see [`Pool::create_filesystem`].
    pub fn destroy(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        if name.contains('@') {
            return self.run(DestroySnapshots { names: vec![name], defer: false });
        }
        self.run(DestroyHead { name })
    }

    /// Sets a property of a dataset, as `zfs set PROPERTY=VALUE` (`dsl_props_set`).
    ///
    /// A file system that is open for writing takes the new value when it is next opened.
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the dataset or property does not exist, or the value is invalid.
    /// * [`Error::Pool`]: the pool's features can't be read.
    /// * [`Error::ReadOnly`], [`Error::Stopped`]: see [`Pool::create_filesystem`].
    pub fn set(&self, name: &str, property: &str, value: &str) -> Result<()> {
        let dataset = self.dsl().dataset(name)?;
        let kind = if dataset.is_snapshot() { Some(Kind::Snapshot) } else { dataset.head_kind()? };
        let large = self.dsl().mos().features()?.is_enabled("org.open-zfs:large_blocks");
        let context = Context {
            kind: kind.unwrap_or(Kind::Filesystem),
            creating: false,
            max_block: if large { SPA_MAXBLOCKSIZE } else { SPA_OLD_MAXBLOCKSIZE },
        };
        let setting = setting(property, value, context).map_err(|why| dsl::Error::BadProperty {
            name: name.to_owned(),
            property: property.to_owned(),
            why,
        })?;
        self.run(SetProps { name: name.to_owned(), props: vec![setting], source: SetAs::Local })
    }

    /// Waits until all earlier changes are on disk (`zpool sync`, `txg_wait_synced`).
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Stopped`]: the pool stopped before the changes were on disk.
    pub fn sync(&self) -> Result<()> {
        Ok(self.spa().writer().ok_or(Error::ReadOnly)?.sync_all()?)
    }

    /// Runs one operation on datasets, and waits until it is on disk (`dsl_sync_task`).
    ///
    /// # Errors
    /// * [`Error::Dataset`]: the operation refuses.
    /// * [`Error::ReadOnly`], [`Error::Stopped`]: see [`Pool::create_filesystem`].
    pub fn run(&self, task: impl SyncTask + Send + 'static) -> Result<()> {
        Ok(self.spa().writer().ok_or(Error::ReadOnly)?.run(Box::new(task))?)
    }
}

/// A new file system that belongs to the user of this process.
///
/// `fixed` returns the properties that can't change later.
fn new_file_system(fixed: impl Fn(Prop) -> Result<u64>, version: u64) -> Result<NewFileSystem> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let normalization = fixed(Prop::Normalize)?;
    Ok(NewFileSystem {
        version: newest_zpl(version),
        uid: rustix::process::geteuid().as_raw().into(),
        gid: rustix::process::getegid().as_raw().into(),
        case: match fixed(Prop::Case)? {
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            _ => CaseSensitivity::Sensitive,
        },
        normalization,
        utf8only: normalization != 0 || fixed(Prop::Utf8only)? != 0,
        ..NewFileSystem::new((now.as_secs(), u64::from(now.subsec_nanos())))
    })
}
