//! Pools and datasets that are made, changed and destroyed, as the commands of these names do it.

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
use spa::engine::TaskError;
use spa::import::Hands;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zpl::{CaseSensitivity, NewFileSystem};

/// Bytes of a volume's blocks (`ZVOL_DEFAULT_BLOCKSIZE`).
const VOLUME_BLOCK: u32 = 16 << 10;

impl Pool {
    /// Makes a pool with all features that can be written (`zpool create`). Each item of `layout` is a
    /// top-level vdev: one device, or a mirror of several. Devices are image files of 64 MiB or more,
    /// or block devices; what is on them is lost, unless it is a pool in use.
    ///
    /// # Errors
    /// [`Error::Create`] names the device and what is wrong with it.
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
        let Hands { workers, world } = Hands::of_system(name);
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

    /// Makes a file system (`zfs create`). It inherits its properties, and is encrypted as the dataset
    /// above is.
    ///
    /// # Errors
    /// [`Error::Dataset`] if the name is taken, or the dataset above is missing; [`Error::ReadOnly`].
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

    /// Makes a volume of `size` bytes, rounded up to blocks of 16 KiB, which reserves no space
    /// (`zfs create -s -V`).
    ///
    /// # Errors
    /// As [`Pool::create_filesystem`].
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

    /// Makes a snapshot `POOL/DATASET@NAME` of all that was written before (`zfs snapshot`).
    ///
    /// # Errors
    /// [`Error::Dataset`] if the name is taken, or there is no such dataset; [`Error::ReadOnly`].
    pub fn snapshot(&self, name: &str) -> Result<Dataset> {
        let names = vec![name.to_owned()];
        self.run(Snapshot { names, props: PropList::new(), enforce_limits: true })?;
        self.dataset(name)
    }

    /// Makes `name` a clone of a snapshot (`zfs clone`).
    ///
    /// # Errors
    /// As [`Pool::create_filesystem`]; [`Error::Dataset`] if there is no such snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<Dataset> {
        self.run(dsl::ops::clone::Clone {
            name: name.to_owned(),
            origin: snapshot.to_owned(),
            props: PropList::new(),
            enforce_limits: true,
        })?;
        self.dataset(name)
    }

    /// Destroys a file system, a volume or a snapshot, on which nothing else depends (`zfs destroy`).
    ///
    /// # Errors
    /// [`Error::Dataset`] if it has children, snapshots or clones, or a handle of it is open for
    /// writing; [`Error::ReadOnly`].
    pub fn destroy(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        if name.contains('@') {
            return self.run(DestroySnapshots { names: vec![name], defer: false });
        }
        self.run(DestroyHead { name })
    }

    /// Sets a property of a dataset, as `zfs set PROPERTY=VALUE`. A file system that is open for
    /// writing goes by it when it is opened next.
    ///
    /// # Errors
    /// [`Error::Dataset`] if there is no such dataset, property or value; [`Error::ReadOnly`].
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

    /// Waits until all that was changed before is on disk (`zpool sync`).
    ///
    /// # Errors
    /// [`Error::Stopped`]; [`Error::ReadOnly`].
    pub fn sync(&self) -> Result<()> {
        Ok(self.spa().writer().ok_or(Error::ReadOnly)?.sync_all()?)
    }

    /// Does one operation on datasets, and waits until it is on disk.
    fn run(&self, task: impl SyncTask + Send + 'static) -> Result<()> {
        match self.spa().writer().ok_or(Error::ReadOnly)?.run(Box::new(task)) {
            Ok(()) => Ok(()),
            Err(TaskError::Refused(error)) => Err(error.into()),
            Err(TaskError::Stopped(stopped)) => Err(stopped.into()),
        }
    }
}

/// A file system of this user. `fixed` gives the properties that never change.
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
