//! All datasets of a pool.

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::heads::Heads;
use crate::keys::Keys;
use crate::name::{Name, Tail};

use crate::reverse::Reversed;
use crate::room::Room;
use crate::{Error, Result};
use ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use ondisk::{Corrupt, ObjNum, Txg, mos};
use parking_lot::RwLock;
use pool::Mos;
use pool::space::PoolSpace;
use std::sync::{Arc, OnceLock};
use zio::ReadOptions;

/// What [`Dsl::open`] is told about the pool.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The name that the pool is imported under.
    pub pool_name: String,
    /// Its room.
    pub space: PoolSpace,
    /// Alternate root of its mountpoints.
    pub altroot: Option<String>,
}

/// The datasets of a pool; clones share them (`dsl_pool_t`).
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
    /// The room as it is now: a live pool's changes.
    space: RwLock<PoolSpace>,
    room: Arc<Room>,
    reversed: Reversed,
}

impl std::fmt::Debug for Dsl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dsl({})", self.inner.options.pool_name)
    }
}

impl Dsl {
    /// The datasets of the pool whose MOS this is.
    ///
    /// # Errors
    /// As reading the directory fails.
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
            room: Arc::default(),
            reversed: Reversed::default(),
        };
        Ok(Dsl { inner: Arc::new(inner), mos })
    }

    /// The same datasets, read as `options` say through this handle and those that come from it.
    #[must_use]
    pub fn with_options(&self, options: &ReadOptions) -> Dsl {
        Dsl { inner: self.inner.clone(), mos: self.mos.with_options(options) }
    }

    /// The pool's books.
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// Its loaded keys; the block pipeline is given them too.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.inner.keys
    }

    /// Datasets that are open for writing.
    pub fn heads(&self) -> &Arc<Heads> {
        &self.inner.heads
    }

    /// The pool's room.
    pub fn space(&self) -> PoolSpace {
        *self.inner.space.read()
    }

    /// The pool's room has changed.
    pub fn set_space(&self, space: PoolSpace) {
        *self.inner.space.write() = space;
    }

    /// What writers have in flight.
    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.inner.room
    }

    /// The root directory's object.
    pub(crate) fn root_object(&self) -> ObjNum {
        self.inner.root
    }

    /// The pool's name.
    pub fn pool_name(&self) -> &str {
        &self.inner.options.pool_name
    }

    /// Alternate root of its mountpoints.
    pub fn altroot(&self) -> Option<&str> {
        self.inner.options.altroot.as_deref()
    }

    /// The root directory: the pool's own file system.
    ///
    /// # Errors
    /// As reading fails.
    pub fn root(&self) -> Result<Dir> {
        Dir::open(self, self.inner.root, self.inner.options.pool_name.clone(), None)
    }

    /// The directory of a path, the pool's name first.
    ///
    /// # Errors
    /// [`Error::NoSuchDataset`]; as reading fails.
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
    /// [`Error::NoSuchDataset`], [`Error::BadName`]; as reading fails.
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
    /// As reading fails; [`Error::Corrupt`] when the way up to the root is broken.
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

    /// Whether blocks of one head may become blocks of another without being copied (`zfs_clone_range`): the feature `block_cloning` is
    /// enabled, and neither is encrypted, or both are the same. (OpenZFS also clones between datasets that share a master key.)
    ///
    /// # Errors
    /// As reading fails.
    pub fn may_clone(&self, from: u64, to: u64) -> Result<bool> {
        let feature = ondisk::feature::Feature::by_name("block_cloning").expect("it is in the table");
        if self.mos().feature_refcount(feature)?.is_none() {
            return Ok(false);
        }
        let encrypted = |head| {
            let dir = ObjNum(self.dataset_phys(ObjNum(head))?.dir_obj);
            Ok::<_, Error>(self.dir_by_object(dir)?.crypto_object()?.is_some())
        };
        Ok(from == to || !encrypted(from)? && !encrypted(to)?)
    }

    /// Whether an object is still the snapshot that this group made.
    ///
    /// # Errors
    /// As reading fails.
    pub fn is_snapshot(&self, object: ObjNum, born: Txg) -> Result<bool> {
        match self.dataset_phys(object) {
            Ok(phys) => Ok(phys.is_snapshot() && phys.creation_txg == born),
            Err(Error::Object(dmu::Error::NoSuchObject { .. })) => Ok(false),
            // What its number means now is none.
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The name of an object in a map, which `read` looks through.
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
            // What was changed and not synced yet doesn't show in the map's dnode.
            return Ok(read()?.into_iter().find(|(_, o)| *o == object).map(|(name, _)| name));
        }
        let dn = os.dnode(map)?;
        self.inner.reversed.name((map, dn.phys()), object, read)
    }

    /// A dataset's bonus.
    pub(crate) fn dataset_phys(&self, object: ObjNum) -> Result<DslDatasetPhys> {
        let dn = self.mos().objset().dnode(object)?;
        DslDatasetPhys::decode(dn.bonus()).map_err(Error::corrupt(object))
    }

    /// The directory of an object number, with its name (`dsl_dir_hold_obj`).
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] when the way up to the root is broken or too long.
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

    /// Object of the snapshot of `$ORIGIN`, of which pools since version 11 make every dataset a clone.
    pub(crate) fn origin_snapshot(&self) -> Result<Option<u64>> {
        if let Some(o) = self.inner.origin.get() {
            return Ok(*o);
        }
        let head = self.root()?.child("$ORIGIN")?.map(|d| d.head()).transpose()?.flatten();
        let found = head.map(|h| h.phys().prev_snap_obj).filter(|o| *o != 0);
        // While a pool is being made, it is not there yet.
        if found.is_none() && self.mos().objset().is_live() {
            return Ok(None);
        }
        Ok(*self.inner.origin.get_or_init(|| found))
    }
}
