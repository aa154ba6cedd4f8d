//! New file systems and volumes.

use crate::error::Refusal;
use crate::links::ParentWalk;
use crate::mos_objects::{DropEntry, upper, words};
use crate::ops::props::PropList;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Kind, Result};
use dmu::zap::{Normalization, Zap};
use dmu::{DnodesShape, NewObject, Objset, Tx};
use observe::{Tunable, Unit};
use ondisk::dsl::{
    DD_FLAG_USED_BREAKDOWN, DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT, DS_FLAG_UNIQUE_ACCURATE,
    DslDatasetPhys, DslDirPhys,
};
use ondisk::objset::{ACCOUNTING_FEATURES, ObjsetFlags, ObjsetKind};
use ondisk::version::{
    SPA_VERSION_DIR_CLONES, SPA_VERSION_ORIGIN, SPA_VERSION_UNIQUE_ACCURATE, SPA_VERSION_USED_BREAKDOWN,
    SPA_VERSION_USERSPACE,
};
use ondisk::zap::ZapFlags;
use ondisk::{DmuType, ObjNum, Txg, mos};
use std::sync::Arc;

/// The number of levels of a name must be below this (`zfs_max_dataset_nesting`).
pub static MAX_NESTING: Tunable = Tunable::new(
    "zfs_max_dataset_nesting",
    50,
    2..=255,
    Unit::Count,
    "levels that the name of a new dataset must stay below",
);

/// The most levels of datasets below a pool.
pub fn max_nesting() -> usize {
    usize::try_from(MAX_NESTING.get()).unwrap_or(usize::MAX).saturating_sub(1)
}
/// Bytes that an empty dataset uses at least, with 512-byte sectors.
///
/// These are its object set and the blocks of its first objects.
const EMPTY: u64 = 24 << 10;
/// The txg that creates a pool (`TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;

/// The initial contents of an object set; the layers that know files and volumes implement it.
pub trait Contents: Send + Sync {
    /// The kind of the dataset.
    fn kind(&self) -> Kind;

    /// Fills the new, empty object set.
    ///
    /// # Errors
    /// A write fails, with an error of the implementation. The dataset is then not created.
    fn fill(&self, os: &Objset, tx: &Tx)
    -> std::result::Result<(), Arc<dyn std::error::Error + Send + Sync>>;
}

/// Creates a file system or volume (`dmu_objset_create`).
pub struct Create {
    /// The full name; the parent must exist.
    pub name: String,
    /// The initial contents.
    pub contents: Arc<dyn Contents>,
    /// The properties.
    pub props: PropList,
    /// The encryption; `None` is as the parent.
    pub crypt: Option<crate::ops::key::NewCrypt>,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
}

impl std::fmt::Debug for Create {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Create({})", self.name)
    }
}

impl SyncTask for Create {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(6)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let parent = check_new_name(s, &self.name)?;
        if self.enforce_limits {
            s.check_limit(parent, 1, mos::DD_FILESYSTEM_COUNT, 0, &self.name)?;
        }
        let head = s.dir(parent)?.head_dataset_obj;
        if head == 0 || s.head_kind(head)? != ObjsetKind::Zfs {
            return Syncing::refuse(&self.name, Refusal::WrongParent);
        }
        self.check_key(s, parent)?;
        s.check_new_props_room(&self.name, &self.props)?;
        s.check_new_props(parent, &self.name, self.contents.kind(), &self.props, (EMPTY, EMPTY))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (above, tail) = self.name.rsplit_once('/').expect("the check found a dataset above");
        let parent = s.hold_dir(above)?;
        let dir = s.create_dir(Some(parent), tail)?;
        let ds = s.create_dataset(dir, None, 0)?;
        s.create_key(dir, ds, &self.name, self.crypt.as_ref())?;
        s.create_counts(dir)?;
        s.create_contents(ds, &*self.contents, &self.name)?;
        s.log("create", &self.name, ds, String::new());
        s.set_new_props(dir, &self.props)
    }
}

/// The flag of directories that break down their used space, if the version has it.
pub(crate) fn breakdown(version: u64) -> u64 {
    if version < SPA_VERSION_USED_BREAKDOWN { 0 } else { DD_FLAG_USED_BREAKDOWN }
}

/// The flag of datasets whose unique bytes are accurate, if the version has it.
pub(crate) fn accurate(version: u64) -> u64 {
    if version < SPA_VERSION_UNIQUE_ACCURATE { 0 } else { DS_FLAG_UNIQUE_ACCURATE }
}

/// Checks that a dataset of this name can be created, and returns the parent directory.
pub(crate) fn check_new_name(s: &mut Syncing<'_>, name: &str) -> Result<u64> {
    if crate::Name::parse(name)?.components().count() > max_nesting() {
        return Syncing::refuse(name, Refusal::TooDeep);
    }
    check_new_place(s, name)
}

/// The same without the limit of the depth.
pub(crate) fn check_new_place(s: &mut Syncing<'_>, name: &str) -> Result<u64> {
    if crate::Name::parse_new(name)?.tail != crate::Tail::Head {
        return Syncing::refuse(name, Refusal::NotHead);
    }
    let Some((above, tail)) = name.rsplit_once('/') else {
        return Syncing::refuse(name, Refusal::Exists);
    };
    let Some(parent) = s.find_dir(above)? else { return Syncing::refuse(name, Refusal::NoParent) };
    if s.find_dir(name)?.is_some() {
        return Syncing::refuse(name, Refusal::Exists);
    }
    let children = s.dir(parent)?.child_dir_zapobj;
    s.check_entry(name, children, tail)?;
    Ok(parent)
}

impl Syncing<'_> {
    /// Creates a directory, or without a parent the root (`dsl_dir_create_sync`).
    pub(crate) fn create_dir(&mut self, parent: Option<u64>, name: &str) -> Result<u64> {
        let spec = dmu::NewObject::new(DmuType::DSL_DIR)
            .with_bonus(DmuType::DSL_DIR, DslDirPhys::default().encode().to_vec());
        let object = self.mos().objset().create_object(self.tx, &spec)?.object().0;
        let value = words(&[object]);
        let (map, key) = match parent {
            Some(p) => (self.dir(p)?.child_dir_zapobj, name),
            None => (mos::DIRECTORY_OBJECT, mos::ROOT_DATASET),
        };
        self.zap(map)?.add(self.tx, key.as_bytes(), &value)?;
        if let Some(p) = parent.filter(|_| !name.starts_with('$')) {
            self.adjust_counts(p, 1, mos::DD_FILESYSTEM_COUNT)?;
        }
        let phys = DslDirPhys {
            creation_time: self.env.now,
            parent_obj: parent.unwrap_or(0),
            props_zapobj: self.zap_create(DmuType::DSL_PROPS)?,
            child_dir_zapobj: self.zap_create(DmuType::DSL_DIR_CHILD_MAP)?,
            flags: breakdown(self.version()),
            ..DslDirPhys::default()
        };
        self.bonuses.add_dir(object, phys);
        Ok(object)
    }

    /// Creates the head of a new directory (`dsl_dataset_create_sync_dd`).
    ///
    /// It is a clone of `origin`, or of the pool's empty snapshot.
    pub(crate) fn create_dataset(&mut self, dir: u64, origin: Option<u64>, flags: u64) -> Result<u64> {
        let origin = match origin {
            Some(o) => Some(o),
            None => self.dsl.origin_snapshot()?,
        };
        let mut phys = DslDatasetPhys::new(dir);
        let spec = dmu::NewObject::new(DmuType::DSL_DATASET)
            .with_bonus(DmuType::DSL_DATASET, phys.encode().to_vec());
        let object = self.mos().objset().create_object(self.tx, &spec)?.object().0;
        phys.flags = flags;
        phys.fsid_guid = self.fsid();
        phys.guid = self.guid();
        phys.snapnames_zapobj = self.zap_create_norm(DmuType::DSL_DS_SNAP_MAP, upper())?;
        phys.creation_time = self.env.now;
        phys.creation_txg = if self.txg() == TXG_INITIAL { Txg(1) } else { self.tx.txg() };
        match origin {
            None => phys.deadlist_obj = self.deadlist_create(&[])?,
            Some(origin) => self.clone_from(object, dir, origin, &mut phys)?,
        }
        phys.flags |= accurate(self.version());
        self.bonuses.add_dataset(object, phys);
        if let Some(origin) = origin {
            for (f, value) in self.dataset_features(origin)? {
                self.activate(object, f, &value)?;
            }
        }
        self.dir_mut(dir)?.head_dataset_obj = object;
        Ok(object)
    }

    /// Makes a new dataset a clone of a snapshot.
    fn clone_from(&mut self, object: u64, dir: u64, origin: u64, phys: &mut DslDatasetPhys) -> Result<()> {
        let from = self.ds(origin)?;
        phys.prev_snap_obj = origin;
        phys.prev_snap_txg = from.creation_txg.0;
        phys.referenced_bytes = from.referenced_bytes;
        phys.compressed_bytes = from.compressed_bytes;
        phys.uncompressed_bytes = from.uncompressed_bytes;
        phys.bp = from.bp;
        phys.flags |= from.flags & (DS_FLAG_INCONSISTENT | DS_FLAG_CI_DATASET);
        if phys.flags & DS_FLAG_INCONSISTENT != 0 {
            self.dsl.heads().note_unsettled(object);
        }
        let origin_head = self.dir(from.dir_obj)?.head_dataset_obj;
        let deadlist = self.ds(origin_head)?.deadlist_obj;
        let keys = self.deadlist_keys(deadlist, from.creation_txg.0, origin)?;
        phys.deadlist_obj = self.deadlist_create(&keys)?;
        self.ds_mut(origin)?.num_children += 1;
        if self.version() >= SPA_VERSION_ORIGIN {
            self.note_next_clone(origin, object)?;
        }
        self.note_clone(from.dir_obj, object)?;
        self.dir_mut(dir)?.origin_obj = origin;
        Ok(())
    }

    /// Records that a dataset follows a snapshot (`ds_next_clones_obj`).
    pub(crate) fn note_next_clone(&mut self, origin: u64, object: u64) -> Result<()> {
        let next = match self.ds(origin)?.next_clones_obj {
            0 => {
                let next = self.zap_create(DmuType::NEXT_CLONES)?;
                self.ds_mut(origin)?.next_clones_obj = next;
                next
            }
            next => next,
        };
        self.zap_add_int(next, object)
    }

    /// Records a clone of a directory's snapshots, if the version does (`dd_clones`).
    pub(crate) fn note_clone(&mut self, dir: u64, head: u64) -> Result<()> {
        if self.version() < SPA_VERSION_DIR_CLONES {
            return Ok(());
        }
        let clones = match self.dir(dir)?.clones {
            0 => {
                let clones = self.zap_create(DmuType::DSL_CLONES)?;
                self.dir_mut(dir)?.clones = clones;
                clones
            }
            clones => clones,
        };
        self.zap_add_int(clones, head)
    }

    /// Adds a number to a ZAP that is a set of numbers (`zap_add_int`).
    pub(crate) fn zap_add_int(&mut self, zap: u64, n: u64) -> Result<()> {
        self.zap(zap)?.add(self.tx, crate::mos_objects::int_key(n).as_bytes(), &words(&[n]))?;
        Ok(())
    }

    /// Removes a number from a set; true if it was there (`zap_remove_int`).
    pub(crate) fn zap_remove_int(&mut self, zap: u64, n: u64) -> Result<bool> {
        self.zap(zap)?.drop_entry(self.tx, crate::mos_objects::int_key(n).as_bytes())
    }

    /// Sets the counts of a leaf to 0, if any dataset has a limit (`dsl_dataset_create_sync`).
    pub(crate) fn create_counts(&mut self, dir: u64) -> Result<()> {
        if !self.feature_active("filesystem_limits")? {
            return Ok(());
        }
        self.zapify(dir, DmuType::DSL_DIR)?;
        let zap = self.zap(dir)?;
        for field in [mos::DD_FILESYSTEM_COUNT, mos::DD_SNAPSHOT_COUNT] {
            zap.update(self.tx, field.as_bytes(), &words(&[0]))?;
        }
        Ok(())
    }

    /// Creates the object set of a new dataset, and fills it (`dmu_objset_create_sync`).
    pub(crate) fn create_contents(&mut self, ds: u64, contents: &dyn Contents, name: &str) -> Result<()> {
        let kind = match contents.kind() {
            Kind::Filesystem => ObjsetKind::Zfs,
            Kind::Volume => ObjsetKind::Zvol,
            Kind::Snapshot | Kind::Bookmark => return Syncing::refuse(name, Refusal::NotHead),
        };
        // Nothing can be counted without the key, which such a dataset need not have.
        let raw = self.dsl.keys().is_raw(ds);
        let counts = self.version() >= SPA_VERSION_USERSPACE && !raw;
        let mut flags = if counts { ObjsetFlags::USERACCOUNTING_COMPLETE } else { 0 };
        let mut begun = Vec::new();
        for (flag, feature) in ACCOUNTING_FEATURES {
            if !raw && self.feature_enabled(feature)? {
                flags |= flag;
                begun.push(feature);
            }
        }
        let cache = self.mos().objset().cache().clone();
        let options = self.mos().options().clone();
        let os = Objset::create_live(cache, ds, kind, ObjsetFlags(flags), self.tx, options);
        let failed = |source| Error::Contents { name: name.to_owned(), source };
        contents.fill(&os, self.tx).map_err(failed)?;
        self.dsl.heads().enter(ds, os, &begun);
        Ok(())
    }

    /// Refuses `more` datasets or snapshots below a directory that would exceed a limit
    /// (`dsl_fs_ss_limit_check`).
    ///
    /// Limits of the directories above are checked up to `until`.
    pub(crate) fn check_limit(
        &mut self,
        dir: u64,
        more: u64,
        field: &str,
        until: u64,
        name: &str,
    ) -> Result<()> {
        let limit = if field == mos::DD_SNAPSHOT_COUNT { "snapshot_limit" } else { "filesystem_limit" };
        let (mut at, mut parents) = (dir, ParentWalk::from(dir));
        while at != 0 && at != until && more > 0 {
            // A directory without a count has no limit, and nothing above has one.
            let Some(count) = self.field_u64(at, field)? else { return Ok(()) };
            let most = self.own_prop(at, limit)?.unwrap_or(u64::MAX);
            if count.saturating_add(more) > most {
                return Syncing::refuse(name, Refusal::Quota);
            }
            at = parents.parent(self, at)?;
        }
        Ok(())
    }

    /// Counts datasets or snapshots, here and above, as far as counts exist
    /// (`dsl_fs_ss_count_adjust`).
    pub(crate) fn adjust_counts(&mut self, dir: u64, by: i64, field: &'static str) -> Result<()> {
        let (mut at, mut parents) = (dir, ParentWalk::from(dir));
        while at != 0 && by != 0 {
            let Some(mut count) = self.field_u64(at, field)? else { return Ok(()) };
            // A wrong count makes a limit wrong, and nothing else.
            count = count.saturating_add_signed(by);
            self.zap(at)?.update(self.tx, field.as_bytes(), &words(&[count]))?;
            at = parents.parent(self, at)?;
        }
        Ok(())
    }
}

/// Object of a volume's data (`ZVOL_OBJ`).
pub(crate) const ZVOL_OBJ: ObjNum = ObjNum(1);
/// Object of a volume's settings (`ZVOL_ZAP_OBJ`).
pub(crate) const ZVOL_ZAP_OBJ: ObjNum = ObjNum(2);

/// The initial contents of a volume (`zvol_create_cb`).
#[derive(Debug, Clone, Copy)]
pub struct NewVolume {
    /// The size in bytes, a multiple of the block size.
    pub size: u64,
    /// The block size in bytes.
    pub block: u32,
}

impl Contents for NewVolume {
    fn kind(&self) -> Kind {
        Kind::Volume
    }

    fn fill(
        &self,
        os: &Objset,
        tx: &Tx,
    ) -> std::result::Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        let fill = || {
            let data = NewObject { block_size: self.block, ..NewObject::new(DmuType::ZVOL) };
            os.claim_object(tx, ZVOL_OBJ, &data)?;
            let spec = NewObject::new(DmuType::ZVOL_PROP);
            let zap =
                Zap::create_claim(os, tx, ZVOL_ZAP_OBJ, &spec, Normalization::NONE, ZapFlags::default())?;
            zap.update(tx, b"size", &words(&[self.size]))
        };
        fill().map_err(|e: dmu::Error| Arc::new(e) as _)
    }
}

/// The contents of a dataset before the first record of a stream.
pub(super) struct Empty {
    pub(super) kind: Kind,
    pub(super) dnodes: Option<DnodesShape>,
}

impl Contents for Empty {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn fill(
        &self,
        os: &Objset,
        tx: &Tx,
    ) -> std::result::Result<(), Arc<dyn std::error::Error + Send + Sync>> {
        self.dnodes.map_or(Ok(()), |shape| os.shape_dnodes(tx, shape)).map_err(|error| Arc::new(error) as _)
    }
}
