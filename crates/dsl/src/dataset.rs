//! Datasets: live file systems and volumes, and snapshots.

use crate::dir::{Dir, is_zapified};
use crate::prop::Kind;
use crate::{Dsl, Error, Result};
use dmu::Objset;
use dmu::zap::{Cookie, Zap};
use ondisk::bookmark::BookmarkPhys;
use ondisk::dsl::{DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT, DslDatasetPhys};
use ondisk::objset::ObjsetKind;
use ondisk::{Blkptr, Corrupt, DmuType, ObjNum, mos};
use pool::ZapValue;
use std::sync::{Arc, OnceLock};
use zio::ReadOptions;

const WHAT: &str = "DSL dataset";
/// Object of a file system's master node (`MASTER_NODE_OBJ`).
const MASTER_NODE_OBJ: ObjNum = ObjNum(1);
/// Object of a volume's data (`ZVOL_OBJ`).
const ZVOL_OBJ: ObjNum = ObjNum(1);
/// Object of a volume's settings (`ZVOL_ZAP_OBJ`).
const ZVOL_ZAP_OBJ: ObjNum = ObjNum(2);

/// An open dataset; clones share it (`dsl_dataset_t`).
#[derive(Clone)]
pub struct Dataset(Arc<Inner>);

struct Inner {
    dir: Dir,
    object: ObjNum,
    phys: DslDatasetPhys,
    zapified: bool,
    snap: Option<String>,
    objset: OnceLock<Option<Objset>>,
}

/// An entry of the map of a dataset's snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The part of the name after the `@`; it is text in a sound pool.
    pub name: Vec<u8>,
    /// The snapshot's object.
    pub object: ObjNum,
    /// The position in the map after this entry.
    pub next: u64,
}

/// A hold of a snapshot (`dsl_dataset_user_hold`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its tag.
    pub tag: String,
    /// The time of the hold, in seconds since 1970.
    pub time: u64,
}

/// A bookmark of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// The part of the name after the `#`.
    pub name: String,
    /// The stored form (`zfs_bookmark_phys_t`).
    pub phys: BookmarkPhys,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({} = {})", self.0.object, self.name())
    }
}

impl Dataset {
    pub(crate) fn open(dir: &Dir, object: ObjNum, snap: Option<String>) -> Result<Dataset> {
        let bad = Error::corrupt(object);
        let shape = |why| bad(Corrupt::Shape { what: WHAT, why });
        let dn = dir.dsl().mos().dnode(object)?;
        if dn.bonus_kind() != DmuType::DSL_DATASET {
            return Err(shape("its bonus is of another type"));
        }
        let phys = DslDatasetPhys::decode(dn.bonus()).map_err(&bad)?;
        if phys.dir_obj != dir.object().0 {
            return Err(shape("it belongs to another directory"));
        }
        if phys.is_snapshot() != snap.is_some() {
            return Err(shape("a head is a snapshot, or a snapshot a head"));
        }
        let zapified = is_zapified(dn.kind());
        Ok(Dataset(Arc::new(Inner {
            dir: dir.clone(),
            object,
            phys,
            zapified,
            snap,
            objset: OnceLock::new(),
        })))
    }

    /// The object, which is also the number of the object set (`objsetid`).
    pub fn object(&self) -> ObjNum {
        self.0.object
    }

    /// The directory of the dataset (`ds_dir`).
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// The stored form (`dsl_dataset_phys_t`).
    pub fn phys(&self) -> &DslDatasetPhys {
        &self.0.phys
    }

    /// The datasets of the pool.
    pub fn dsl(&self) -> &Dsl {
        self.0.dir.dsl()
    }

    /// The full name (`dsl_dataset_name`).
    pub fn name(&self) -> String {
        match &self.0.snap {
            None => self.0.dir.name().to_owned(),
            Some(s) => format!("{}@{s}", self.0.dir.name()),
        }
    }

    /// The part of a snapshot's name after the `@` (`ds_snapname`).
    pub fn snapshot_name(&self) -> Option<&str> {
        self.0.snap.as_deref()
    }

    /// Whether it is a snapshot (`dsl_dataset_is_snapshot`).
    pub fn is_snapshot(&self) -> bool {
        self.0.snap.is_some()
    }

    /// Whether it was received or destroyed only in part (`DS_FLAG_INCONSISTENT`).
    pub fn is_inconsistent(&self) -> bool {
        self.0.phys.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// Whether it is destroyed with its last hold or clone (`DS_FLAG_DEFER_DESTROY`).
    pub fn is_deferred(&self) -> bool {
        self.0.phys.flags & DS_FLAG_DEFER_DESTROY != 0
    }

    /// The value of a field of its ZAP; `None` without the field.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the ZAP can't be read.
    pub fn field(&self, name: &str) -> Result<Option<ZapValue>> {
        if !self.0.zapified {
            return Ok(None);
        }
        Ok(self.dsl().mos().value(self.0.object, name)?)
    }

    /// The first word of a field of its ZAP; `None` without the field.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the ZAP can't be read.
    pub fn field_u64(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.field(name)?.and_then(|v| v.first()))
    }

    /// A handle of the same dataset without an open object set.
    ///
    /// It is for callers that keep the handle for long, and need only snapshots.
    #[must_use]
    pub fn closed(&self) -> Dataset {
        let Inner { dir, object, phys, zapified, snap, objset: _ } = &*self.0;
        Dataset(Arc::new(Inner {
            dir: dir.clone(),
            object: *object,
            phys: *phys,
            zapified: *zapified,
            snap: snap.clone(),
            objset: OnceLock::new(),
        }))
    }

    /// The object set, opened once; `None` for a dataset without contents (`dmu_objset_from_ds`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the root block can't be read, or is no object set.
    /// * [`Error::Corrupt`]: the key object is malformed.
    pub fn objset(&self) -> Result<Option<Objset>> {
        // A head that is open for writing shows its unsynced changes.
        if let Some(os) = self.dsl().heads().get(self.0.object.0, self.dsl().mos().options()) {
            return Ok(Some(os));
        }
        if let Some(os) = self.0.objset.get() {
            return Ok(os.clone());
        }
        let os = if self.0.phys.bp.is_hole() {
            None
        } else {
            self.dsl().keys().admit(self)?;
            let mos = self.dsl().mos();
            self.dsl().note_second(self.0.object);
            let cache = mos.objset().cache().clone();
            Some(Objset::open(cache, self.0.object.0, &self.0.phys.bp, mos.options().clone())?)
        };
        Ok(self.0.objset.get_or_init(|| os).clone())
    }

    /// The pointer to the object set as of the last txg that was synced. `None`: the dataset has no
    /// contents. Reads only the pool's metadata.
    ///
    /// A head that is open for writing goes on, and its later txgs free blocks of that object set.
    /// While this is the same pointer, they have freed none.
    ///
    /// # Errors
    /// Those of [`Dataset::objset`].
    pub fn synced_root(&self) -> Result<Option<Blkptr>> {
        // The handle's block pointer may be of a much earlier txg.
        let phys = self.dsl().dataset_phys(self.0.object)?;
        if phys.bp.is_hole() {
            return Ok(None);
        }
        self.dsl().keys().admit(self)?;
        Ok(Some(phys.bp))
    }

    /// The object set at a pointer that [`Dataset::synced_root`] returned, read with `options`.
    ///
    /// # Errors
    /// Those of [`Dataset::objset`].
    pub fn objset_at(&self, root: &Blkptr, options: ReadOptions) -> Result<Objset> {
        let cache = self.dsl().mos().objset().cache().clone();
        Ok(Objset::open(cache, self.0.object.0, root, options)?)
    }

    /// The object set, open for changes.
    pub(crate) fn open_live(&self) -> Result<Option<Objset>> {
        // The handle's block pointer may be of a much earlier txg.
        let phys = self.dsl().dataset_phys(self.0.object)?;
        if phys.bp.is_hole() {
            return Ok(None);
        }
        self.dsl().keys().admit(self)?;
        let mos = self.dsl().mos();
        self.dsl().note_second(self.0.object);
        let cache = mos.objset().cache().clone();
        Ok(Some(Objset::open_live(cache, self.0.object.0, &phys.bp, mos.options().clone())?))
    }

    /// Whether the head is a file system or a volume; `None` if neither (`dmu_objset_type`).
    ///
    /// # Errors
    /// Those of [`Dataset::objset`].
    pub fn head_kind(&self) -> Result<Option<Kind>> {
        Ok(self.objset()?.and_then(|os| match os.kind() {
            ObjsetKind::Zfs => Some(Kind::Filesystem),
            ObjsetKind::Zvol => Some(Kind::Volume),
            ObjsetKind::None | ObjsetKind::Meta | ObjsetKind::Other => None,
        }))
    }

    /// The kind of the dataset; `None` for a head that is neither file system nor volume.
    ///
    /// # Errors
    /// Those of [`Dataset::objset`].
    pub fn kind(&self) -> Result<Option<Kind>> {
        if self.is_snapshot() { Ok(Some(Kind::Snapshot)) } else { self.head_kind() }
    }

    /// The snapshots, oldest first; empty for a snapshot.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map or a snapshot can't be read.
    /// * [`Error::Corrupt`]: the map or a snapshot is malformed.
    pub fn snapshots(&self) -> Result<Vec<Dataset>> {
        let mut out = self
            .snapshot_objects()?
            .into_iter()
            .map(|(name, object)| Dataset::open(&self.0.dir, object, Some(name)))
            .collect::<Result<Vec<_>>>()?;
        out.sort_by_key(|d| (d.phys().creation_txg, d.object()));
        Ok(out)
    }

    /// Names and objects of the snapshots, in the order of `ds_snapnames_zapobj`.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    /// * [`Error::Corrupt`]: a name is not text, or a value is no object number.
    pub fn snapshot_objects(&self) -> Result<Vec<(String, ObjNum)>> {
        self.snapshot_entries()?.collect()
    }

    /// Names and objects of the snapshots, one by one.
    ///
    /// An entry that can't be read does not end the iteration.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be opened.
    ///
    /// Each item has the errors of [`Dataset::snapshot_objects`].
    pub fn snapshot_entries(&self) -> Result<impl Iterator<Item = Result<(String, ObjNum)>> + use<>> {
        let map = ObjNum(self.0.phys.snapnames_zapobj);
        let shape =
            move |why| Error::Corrupt { object: map, source: Corrupt::Shape { what: "snapshot map", why } };
        let entries = if map.0 == 0 { None } else { Some(self.dsl().mos().entries(map)?) };
        Ok(entries.into_iter().flatten().map(move |e| {
            let e = e?;
            let name = String::from_utf8(e.name).map_err(|_| shape("a name is not text"))?;
            let object = e.value.first().ok_or_else(|| shape("a snapshot is no object number"))?;
            Ok((name, ObjNum(object)))
        }))
    }

    /// At most `limit` snapshots from a position of the map on; 0 is the start.
    ///
    /// Directories of snapshots list them in batches (`dmu_snapshot_list_next`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    /// * [`Error::Corrupt`]: a key is no name, or a value is no object number.
    pub fn snapshot_page(&self, from: u64, limit: usize) -> Result<Vec<SnapshotEntry>> {
        let map = ObjNum(self.0.phys.snapnames_zapobj);
        let shape =
            |why| Error::Corrupt { object: map, source: Corrupt::Shape { what: "snapshot map", why } };
        let mut out = Vec::new();
        if map.0 == 0 {
            return Ok(out);
        }
        let mut cursor = self.dsl().mos().zap(map)?.cursor_at(Cookie(from));
        while out.len() < limit {
            let Some(e) = cursor.next_entry()? else { break };
            let name = e.key.name().ok_or_else(|| shape("its keys are no names"))?.to_vec();
            let object = e.value.first().ok_or_else(|| shape("a snapshot is no object number"))?;
            out.push(SnapshotEntry { name, object: ObjNum(object), next: e.next.0 });
        }
        Ok(out)
    }

    /// The number of snapshots in the map.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    pub fn snapshot_count(&self) -> Result<u64> {
        match ObjNum(self.0.phys.snapnames_zapobj) {
            ObjNum(0) => Ok(0),
            map => Ok(self.dsl().mos().zap(map)?.count()?),
        }
    }

    /// The snapshot of this name, if it exists (`dsl_dataset_snap_lookup`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map or the snapshot can't be read.
    /// * [`Error::Corrupt`]: the map names a dataset that is no snapshot of this one.
    pub fn snapshot(&self, name: &str) -> Result<Option<Dataset>> {
        let map = ObjNum(self.0.phys.snapnames_zapobj);
        if map.0 == 0 {
            return Ok(None);
        }
        match self.dsl().mos().u64(map, name)? {
            None => Ok(None),
            Some(object) => Dataset::open(&self.0.dir, ObjNum(object), Some(name.to_owned())).map(Some),
        }
    }

    /// The snapshot that this is a clone of; `None` without an origin (`dd_origin_obj`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the origin or a directory above it can't be read.
    /// * [`Error::Corrupt`]: the origin's dataset does not list it.
    pub fn origin(&self) -> Result<Option<Dataset>> {
        let origin = self.0.dir.phys().origin_obj;
        // Since version 11 each dataset without an origin is a clone of the pool's empty `$ORIGIN`.
        if self.is_snapshot() || origin == 0 || Some(origin) == self.dsl().origin_snapshot()? {
            return Ok(None);
        }
        self.dsl().by_object(ObjNum(origin)).map(Some)
    }

    /// The live datasets that are clones of this snapshot, in the order of `ds_next_clones_obj`.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map or a clone can't be read.
    /// * [`Error::Corrupt`]: a clone's parent does not list it.
    pub fn clones(&self) -> Result<Vec<Dataset>> {
        let map = self.0.phys.next_clones_obj;
        if map == 0 || !self.is_snapshot() {
            return Ok(Vec::new());
        }
        let objects: Vec<u64> = self
            .dsl()
            .mos()
            .entries(ObjNum(map))?
            .map(|e| Ok(e?.value.first().unwrap_or(0)))
            .collect::<Result<_>>()?;
        // Old releases left entries out: a map of another length is incomplete.
        if objects.len() as u64 != self.0.phys.num_children.saturating_sub(1) {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        for object in objects {
            // The map names what follows in the clone: its head, or its oldest snapshot.
            let dir = self.dsl().dataset_phys(ObjNum(object))?.dir_obj;
            out.extend(self.dsl().dir_by_object(ObjNum(dir))?.head()?);
        }
        Ok(out)
    }

    /// The holds of a snapshot, in the order of their map (`dsl_dataset_get_holds`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    pub fn holds(&self) -> Result<Vec<Hold>> {
        let map = self.0.phys.userrefs_obj;
        if map == 0 {
            return Ok(Vec::new());
        }
        self.dsl()
            .mos()
            .entries(ObjNum(map))?
            .map(|e| {
                let e = e?;
                Ok(Hold { tag: e.name_lossy(), time: e.value.first().unwrap_or(0) })
            })
            .collect()
    }

    /// The bookmarks, in the order of their map (`dsl_get_bookmarks`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    /// * [`Error::Corrupt`]: a bookmark is malformed.
    pub fn bookmarks(&self) -> Result<Vec<Bookmark>> {
        let Some(map) = self.field_u64(mos::DS_BOOKMARK_NAMES)? else { return Ok(Vec::new()) };
        let object = ObjNum(map);
        self.dsl()
            .mos()
            .entries(object)?
            .map(|e| {
                let e = e?;
                let words: Vec<u64> = e.value.iter().collect();
                let phys = BookmarkPhys::decode(&words).map_err(Error::corrupt(object))?;
                Ok(Bookmark { name: e.name_lossy(), phys })
            })
            .collect()
    }

    /// The bookmark of this name, if it exists (`dsl_bookmark_lookup`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the map can't be read.
    /// * [`Error::Corrupt`]: the bookmark is malformed.
    pub fn bookmark(&self, name: &str) -> Result<Option<Bookmark>> {
        let Some(map) = self.field_u64(mos::DS_BOOKMARK_NAMES)? else { return Ok(None) };
        let object = ObjNum(map);
        let Some(words) = self.dsl().mos().words(object, name)? else { return Ok(None) };
        let phys = BookmarkPhys::decode(&words).map_err(Error::corrupt(object))?;
        Ok(Some(Bookmark { name: name.to_owned(), phys }))
    }

    /// A number of the master node; `None` without the entry, or if this is no file system.
    ///
    /// # Errors
    /// Those of [`Dataset::objset`], and:
    /// * [Reading](Error#reading): the master node can't be read.
    pub fn master_node(&self, name: &str) -> Result<Option<u64>> {
        match self.objset()? {
            Some(os) if os.kind() == ObjsetKind::Zfs => match os.dnode(MASTER_NODE_OBJ) {
                Ok(master) => Ok(Zap::open(&master)?.lookup_u64(name.as_bytes())?),
                // A pool of libzpool alone has an empty object set as its root.
                Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
                Err(e) => Err(e.into()),
            },
            _ => Ok(None),
        }
    }

    /// Size and block size of a volume in bytes; `None` if this is no volume (`zvol_get_stats`).
    ///
    /// # Errors
    /// Those of [`Dataset::objset`], and:
    /// * [Reading](Error#reading): the volume's objects can't be read.
    pub fn volume(&self) -> Result<Option<(u64, u64)>> {
        match self.objset()? {
            Some(os) if os.kind() == ObjsetKind::Zvol => {
                let size = Zap::open(&os.dnode(ZVOL_ZAP_OBJ)?)?.lookup_u64(b"size")?;
                let block = os.dnode(ZVOL_OBJ)?.block_size();
                Ok(size.map(|s| (s, block)))
            }
            _ => Ok(None),
        }
    }
}
