//! All datasets of a pool.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::heads::Heads;
use crate::keys::Keys;
use crate::name::{Name, Tail};

use crate::reservation::TempReserve;
use crate::reverse::Reversed;
use crate::{Error, Result};
use dmu::Objset;
use observe::lock::RwLock;
use ondisk::dsl::{DS_FLAG_INCONSISTENT, DslDatasetPhys, DslDirPhys};
use ondisk::feature::Feature;
use ondisk::objset::{ACCOUNTING_FEATURES, ObjsetFlags, ZIL_HEADER};
use ondisk::{Corrupt, DmuType, ObjNum, Txg, mos};
use pool::Mos;
use pool::space::PoolSpace;
use std::sync::{Arc, OnceLock};
use zio::ReadOptions;

/// What [`Dsl::open`] needs to know about the pool.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The name under which the pool is imported.
    pub pool_name: String,
    /// The space of the pool.
    pub space: PoolSpace,
    /// Alternate root of the mountpoints (`altroot`).
    pub altroot: Option<String>,
}

/// All datasets of a pool; clones share them (`dsl_pool_t`).
#[derive(Clone)]
pub struct Dsl {
    inner: Arc<Inner>,
    mos: Mos,
}

struct Inner {
    options: Options,
    root: ObjNum,
    origin: OnceLock<Option<u64>>,
    keys: Arc<Keys>,
    heads: Arc<Heads>,
    /// The present space: a live pool changes it.
    space: RwLock<PoolSpace>,
    reserve: Arc<TempReserve>,
    reversed: Reversed,
}

impl std::fmt::Debug for Dsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dsl({})", self.inner.options.pool_name)
    }
}

impl Dsl {
    /// Opens the datasets of the pool of this MOS (`dsl_pool_open`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the MOS directory can't be read.
    /// * [`Error::Pool`]: the MOS directory names no root directory.
    pub fn open(mos: Mos, options: Options) -> Result<Dsl> {
        let root = mos.dir(mos::ROOT_DATASET)?.ok_or(pool::Error::Missing { name: mos::ROOT_DATASET })?;
        let space = RwLock::new(options.space);
        let inner = Inner {
            options,
            root,
            origin: OnceLock::new(),
            keys: Arc::default(),
            heads: Arc::default(),
            space,
            reserve: Arc::default(),
            reversed: Reversed::default(),
        };
        Ok(Dsl { inner: Arc::new(inner), mos })
    }

    /// The same datasets; this handle and those from it read with `options`.
    #[must_use]
    pub fn with_options(&self, options: &ReadOptions) -> Dsl {
        Dsl { inner: self.inner.clone(), mos: self.mos.with_options(options) }
    }

    /// The MOS (`dp_meta_objset`).
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// The loaded keys, which the block pipeline uses too (`spa_keystore`).
    pub fn keys(&self) -> &Arc<Keys> {
        &self.inner.keys
    }

    /// Datasets that are open for writing.
    pub fn heads(&self) -> &Arc<Heads> {
        &self.inner.heads
    }

    /// The space of the pool.
    pub fn space(&self) -> PoolSpace {
        *self.inner.space.read()
    }

    /// Notes that the space of the pool has changed.
    pub fn set_space(&self, space: PoolSpace) {
        *self.inner.space.write() = space;
    }

    /// The space that writers have in flight.
    pub(crate) fn temp_reserve(&self) -> &Arc<TempReserve> {
        &self.inner.reserve
    }

    /// The root directory's object.
    pub(crate) fn root_object(&self) -> ObjNum {
        self.inner.root
    }

    /// The pool's name (`spa_name`).
    pub fn pool_name(&self) -> &str {
        &self.inner.options.pool_name
    }

    /// The alternate root of the mountpoints (`altroot`).
    pub fn altroot(&self) -> Option<&str> {
        self.inner.options.altroot.as_deref()
    }

    /// The root directory: the pool's own file system (`dp_root_dir`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the directory can't be read.
    pub fn root(&self) -> Result<Dir> {
        Dir::open(self, self.inner.root, self.inner.options.pool_name.clone(), None)
    }

    /// The directory of a path that begins with the pool's name (`dsl_dir_hold`).
    ///
    /// # Errors
    /// * [`Error::BadName`]: the path is malformed.
    /// * [`Error::NoSuchDataset`]: no directory has this path, or it is of another pool.
    /// * [Reading](Error#reading): a directory on the path can't be read.
    pub fn dir(&self, path: &str) -> Result<Dir> {
        let missing = || Error::NoSuchDataset { name: path.to_owned() };
        let name = Name::parse(path)?;
        if name.pool() != self.pool_name() || name.tail != Tail::Head {
            return Err(missing());
        }
        name.components().try_fold(self.root()?, |dir, part| dir.child(part)?.ok_or_else(missing))
    }

    /// The dataset of a name: `pool/a/b` or `pool/a/b@snapshot` (`dsl_dataset_hold`).
    ///
    /// # Errors
    /// * [`Error::BadName`]: the name is malformed.
    /// * [`Error::NoSuchDataset`]: no dataset has this name.
    /// * [Reading](Error#reading): the dataset or a directory above it can't be read.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let parsed = Name::parse(name)?;
        let head = self
            .dir(parsed.path)
            .map_err(|e| if matches!(e, Error::NoSuchDataset { .. }) { missing() } else { e })?
            .head()?
            .ok_or_else(missing)?;
        match parsed.tail {
            Tail::Head => Ok(head),
            Tail::Snapshot(s) => head.snapshot(s)?.ok_or_else(missing),
            Tail::Bookmark(_) => Err(missing()),
        }
    }

    /// The dataset of an object number, with its name (`dsl_dataset_hold_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the dataset or a directory above it can't be read.
    /// * [`Error::Corrupt`]: a parent, or the head of a snapshot, does not list it.
    pub fn by_object(&self, object: ObjNum) -> Result<Dataset> {
        let phys = self.dataset_phys(object)?;
        let dir = self.dir_by_object(ObjNum(phys.dir_obj))?;
        if !phys.is_snapshot() {
            return Dataset::open(&dir, object, None);
        }
        let name = match dir.head()? {
            Some(head) => {
                let map = ObjNum(head.phys().snapnames_zapobj);
                self.name_in(map, object, || head.snapshot_objects())?
            }
            None => None,
        };
        let lost = Corrupt::Shape { what: "snapshot", why: "its dataset does not list it" };
        Dataset::open(&dir, object, Some(name.ok_or(Error::Corrupt { object, source: lost })?))
    }

    /// Whether a head may share blocks of another without a copy (`zfs_clone_range`).
    ///
    /// The feature `block_cloning` must be enabled. Neither head may be encrypted, unless both are
    /// the same. OpenZFS also clones between datasets that share a master key.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a dataset or its directory can't be read.
    ///
    /// # Panics
    /// If the table of features lacks `block_cloning`.
    pub fn may_clone(&self, from: u64, to: u64) -> Result<bool> {
        let feature = Feature::by_name("block_cloning").expect("it is in the table");
        if self.mos().feature_refcount(feature)?.is_none() {
            return Ok(false);
        }
        let encrypted = |head| {
            let dir = ObjNum(self.dataset_phys(ObjNum(head))?.dir_obj);
            Ok::<_, Error>(self.dir_by_object(dir)?.crypto_object()?.is_some())
        };
        Ok(from == to || !encrypted(from)? && !encrypted(to)?)
    }

    /// What a file system of the pool counts by user, group and project, if the pool's version is
    /// 15 or later.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the table of features can't be read.
    pub fn accounting(&self) -> Result<ObjsetFlags> {
        let mut flags = ObjsetFlags::USERACCOUNTING_COMPLETE;
        for (flag, feature) in ACCOUNTING_FEATURES {
            let feature = Feature::by_name(feature).expect("it is in the table");
            if self.mos().feature_refcount(feature)?.is_some() {
                flags |= flag;
            }
        }
        Ok(ObjsetFlags(flags))
    }

    /// Whether an object is still the snapshot that txg `born` made.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the object can't be read. A free or reused number is no error.
    pub fn is_snapshot(&self, object: ObjNum, born: Txg) -> Result<bool> {
        match self.dataset_phys(object) {
            Ok(phys) => Ok(phys.is_snapshot() && phys.creation_txg == born),
            Err(Error::Object(dmu::Error::NoSuchObject { .. })) => Ok(false),
            // The number belongs to another object now.
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The name of an object in a map; `read` reads the map.
    fn name_in(
        &self,
        map: ObjNum,
        object: ObjNum,
        read: impl FnOnce() -> Result<Vec<(String, ObjNum)>>,
    ) -> Result<Option<String>> {
        if map.0 == 0 {
            return Ok(None);
        }
        let os = self.mos().objset();
        if os.is_live() {
            // The dnode does not show changes of the map that are not synced.
            return Ok(read()?.into_iter().find(|(_, o)| *o == object).map(|(name, _)| name));
        }
        let dn = os.dnode(map)?;
        self.inner.reversed.name((map, dn.phys()), object, read)
    }

    /// The bonus of a dataset.
    pub(crate) fn dataset_phys(&self, object: ObjNum) -> Result<DslDatasetPhys> {
        let dn = self.mos().dnode(object)?;
        DslDatasetPhys::decode(dn.bonus()).map_err(Error::corrupt(object))
    }

    /// Whether an object is a head that an import must look at: it has an intent log, or is not
    /// complete. Its name is not read.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the object or its object set can't be read.
    pub fn is_unsettled(&self, object: ObjNum) -> Result<bool> {
        let os = self.mos().objset();
        let kind = match os.dnode(object) {
            Ok(dnode) => dnode.bonus_kind(),
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        if kind != DmuType::DSL_DATASET {
            return Ok(false);
        }
        let phys = self.dataset_phys(object)?;
        if phys.is_snapshot() || phys.flags & DS_FLAG_INCONSISTENT != 0 {
            return Ok(!phys.is_snapshot());
        }
        if phys.bp.is_hole() {
            return Ok(false);
        }
        let os = Objset::open(os.cache().clone(), object.0, &phys.bp, os.options().clone())?;
        Ok(os.phys().zil_header != [0; ZIL_HEADER.end - ZIL_HEADER.start])
    }

    /// The directory of an object number, with its name (`dsl_dir_hold_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the directory or one above it can't be read.
    /// * [`Error::Corrupt`]: the parents do not reach the root, or one does not list it.
    pub fn dir_by_object(&self, object: ObjNum) -> Result<Dir> {
        let mut chain = vec![object];
        let mut at = object;
        while at != self.inner.root {
            let dn = self.mos().objset().dnode(at)?;
            let phys = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(at))?;
            at = ObjNum(phys.parent_obj);
            chain.push(at);
            if at.0 == 0 || chain.len() > crate::ZFS_MAX_DATASET_NAME_LEN {
                let source = Corrupt::Shape { what: "DSL directory", why: "no way leads to the root" };
                return Err(Error::Corrupt { object, source });
            }
        }
        chain.pop();
        let mut dir = self.root()?;
        while let Some(next) = chain.pop() {
            let map = ObjNum(dir.phys().child_dir_zapobj);
            let name = self.name_in(map, next, || dir.child_objects())?;
            let lost = Corrupt::Shape { what: "DSL directory", why: "its parent does not list it" };
            dir = dir.open_child(&name.ok_or(Error::Corrupt { object: next, source: lost })?, next)?;
        }
        Ok(dir)
    }

    /// The snapshot of `$ORIGIN`, the origin of every dataset since pool version 11.
    pub(crate) fn origin_snapshot(&self) -> Result<Option<u64>> {
        if let Some(o) = self.inner.origin.get() {
            return Ok(*o);
        }
        let head = self.root()?.child("$ORIGIN")?.map(|d| d.head()).transpose()?.flatten();
        let found = head.map(|h| h.phys().prev_snap_obj).filter(|o| *o != 0);
        // A pool under construction does not have it yet.
        if found.is_none() && self.mos().objset().is_live() {
            return Ok(None);
        }
        Ok(*self.inner.origin.get_or_init(|| found))
    }
}
