//! Datasets: live file systems and volumes, and snapshots.

use crate::dir::{Dir, is_zapified};
use crate::prop::Kind;
use crate::{Dsl, Error, Result};
use dmu::Objset;
use dmu::zap::{Cookie, Zap};
use ondisk::bookmark::BookmarkPhys;
use ondisk::dsl::{DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT, DslDatasetPhys};
use ondisk::objset::ObjsetKind;
use ondisk::{Corrupt, DmuType, ObjNum, mos};
use pool::ZapValue;
use std::sync::{Arc, OnceLock};

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
    /// What follows the `@`; a sound pool has text here.
    pub name: Vec<u8>,
    /// The snapshot's object.
    pub object: ObjNum,
    /// The position after it.
    pub next: u64,
}

/// A hold of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its tag.
    pub tag: String,
    /// When it was made, seconds since 1970.
    pub time: u64,
}

/// A bookmark of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// Its name, without the dataset's.
    pub name: String,
    /// As stored.
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
        let dn = dir.dsl().mos().objset().dnode(object)?;
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

    /// Its object; also the number of its object set (`objsetid`).
    pub fn object(&self) -> ObjNum {
        self.0.object
    }

    /// Its directory.
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// As stored.
    pub fn phys(&self) -> &DslDatasetPhys {
        &self.0.phys
    }

    /// The pool's datasets.
    pub fn dsl(&self) -> &Dsl {
        self.0.dir.dsl()
    }

    /// Its full name.
    pub fn name(&self) -> String {
        match &self.0.snap {
            None => self.0.dir.name().to_owned(),
            Some(s) => format!("{}@{s}", self.0.dir.name()),
        }
    }

    /// The part of a snapshot's name after the `@`.
    pub fn snapshot_name(&self) -> Option<&str> {
        self.0.snap.as_deref()
    }

    /// True for snapshots.
    pub fn is_snapshot(&self) -> bool {
        self.0.snap.is_some()
    }

    /// True if it was only partly received or destroyed.
    pub fn is_inconsistent(&self) -> bool {
        self.0.phys.flags & DS_FLAG_INCONSISTENT != 0
    }

    /// True if it goes when its last hold or clone does.
    pub fn is_deferred(&self) -> bool {
        self.0.phys.flags & DS_FLAG_DEFER_DESTROY != 0
    }

    /// The words of a field of its ZAP.
    ///
    /// # Errors
    /// As reading fails.
    pub fn field(&self, name: &str) -> Result<Option<ZapValue>> {
        if !self.0.zapified {
            return Ok(None);
        }
        Ok(self.dsl().mos().value(self.0.object, name)?)
    }

    /// The first word of a field of its ZAP.
    ///
    /// # Errors
    /// As reading fails.
    pub fn field_u64(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.field(name)?.and_then(|v| v.first()))
    }

    /// A handle of the same that has no object set open, for who keeps it long and asks for snapshots alone.
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

    /// Its object set; `None` while it has no contents yet. Opened once.
    ///
    /// # Errors
    /// As reading fails.
    pub fn objset(&self) -> Result<Option<Objset>> {
        // Somebody writes to it: what is there is what he sees.
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

    /// Its object set, to be changed.
    pub(crate) fn open_live(&self) -> Result<Option<Objset>> {
        // The block pointer that the handle remembers may be of a group long ago.
        let phys = self.dsl().dataset_phys(self.0.object)?;
        if phys.bp.is_hole() || self.is_inconsistent() {
            return Ok(None);
        }
        self.dsl().keys().admit(self)?;
        let mos = self.dsl().mos();
        self.dsl().note_second(self.0.object);
        let cache = mos.objset().cache().clone();
        Ok(Some(Objset::open_live(cache, self.0.object.0, &phys.bp, mos.options().clone())?))
    }

    /// Whether its head is a file system or a volume; `None` if it is neither.
    ///
    /// # Errors
    /// As reading its object set fails.
    pub fn head_kind(&self) -> Result<Option<Kind>> {
        Ok(self.objset()?.and_then(|os| match os.kind() {
            ObjsetKind::Zfs => Some(Kind::Filesystem),
            ObjsetKind::Zvol => Some(Kind::Volume),
            ObjsetKind::None | ObjsetKind::Meta | ObjsetKind::Other => None,
        }))
    }

    /// What it is.
    ///
    /// # Errors
    /// As [`Dataset::head_kind`].
    pub fn kind(&self) -> Result<Option<Kind>> {
        if self.is_snapshot() { Ok(Some(Kind::Snapshot)) } else { self.head_kind() }
    }

    /// Its snapshots, oldest first; empty for snapshots.
    ///
    /// # Errors
    /// As reading fails.
    pub fn snapshots(&self) -> Result<Vec<Dataset>> {
        let mut out = self
            .snapshot_objects()?
            .into_iter()
            .map(|(name, object)| Dataset::open(&self.0.dir, object, Some(name)))
            .collect::<Result<Vec<_>>>()?;
        out.sort_by_key(|d| (d.phys().creation_txg, d.object()));
        Ok(out)
    }

    /// Names and objects of its snapshots, in the order of their map.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for a name that is no text.
    pub fn snapshot_objects(&self) -> Result<Vec<(String, ObjNum)>> {
        self.snapshot_entries()?.collect()
    }

    /// As [`Dataset::snapshot_objects`], one by one: behind a bad entry there are others.
    ///
    /// # Errors
    /// As opening their map fails.
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

    /// At most `limit` of its snapshots from a position of their map on; 0 is its start. For directories of snapshots,
    /// which are listed in pieces.
    ///
    /// # Errors
    /// As reading fails; [`Error::Corrupt`] for an entry that is no object number.
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

    /// How many snapshots its map says that it has.
    ///
    /// # Errors
    /// As reading fails.
    pub fn snapshot_count(&self) -> Result<u64> {
        match ObjNum(self.0.phys.snapnames_zapobj) {
            ObjNum(0) => Ok(0),
            map => Ok(self.dsl().mos().zap(map)?.count()?),
        }
    }

    /// Its snapshot of this name.
    ///
    /// # Errors
    /// As reading fails.
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

    /// The snapshot that it is a clone of; `None` if it is no clone.
    ///
    /// # Errors
    /// As reading fails.
    pub fn origin(&self) -> Result<Option<Dataset>> {
        let origin = self.0.dir.phys().origin_obj;
        // Since version 11 every first dataset is a clone of the pool's empty $ORIGIN: that is none.
        if self.is_snapshot() || origin == 0 || Some(origin) == self.dsl().origin_snapshot()? {
            return Ok(None);
        }
        self.dsl().by_object(ObjNum(origin)).map(Some)
    }

    /// The live datasets that were cloned from this snapshot, in the order of their map (`ds_next_clones_obj`).
    ///
    /// # Errors
    /// As reading fails.
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
        // Old code left entries out: a map of another length is not to be trusted.
        if objects.len() as u64 != self.0.phys.num_children.saturating_sub(1) {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        for object in objects {
            // The map names what comes next in the clone: its head, or its oldest snapshot.
            let dir = self.dsl().dataset_phys(ObjNum(object))?.dir_obj;
            out.extend(self.dsl().dir_by_object(ObjNum(dir))?.head()?);
        }
        Ok(out)
    }

    /// Holds of a snapshot, in the order of their map.
    ///
    /// # Errors
    /// As reading fails.
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

    /// Its bookmarks, in the order of their map.
    ///
    /// # Errors
    /// As reading fails.
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

    /// Its bookmark of this name.
    ///
    /// # Errors
    /// As reading fails.
    pub fn bookmark(&self, name: &str) -> Result<Option<Bookmark>> {
        let Some(map) = self.field_u64(mos::DS_BOOKMARK_NAMES)? else { return Ok(None) };
        let object = ObjNum(map);
        let Some(words) = self.dsl().mos().words(object, name)? else { return Ok(None) };
        let phys = BookmarkPhys::decode(&words).map_err(Error::corrupt(object))?;
        Ok(Some(Bookmark { name: name.to_owned(), phys }))
    }

    /// A number of a file system's master node; `None` if it isn't there or this is no file system.
    ///
    /// # Errors
    /// As reading fails.
    pub fn master_node(&self, name: &str) -> Result<Option<u64>> {
        match self.objset()? {
            Some(os) if os.kind() == ObjsetKind::Zfs => match os.dnode(MASTER_NODE_OBJ) {
                Ok(master) => Ok(Zap::open(&master)?.lookup_u64(name.as_bytes())?),
                // The root of a pool that was made without the ZPL (libzpool alone) is an empty object set.
                Err(dmu::Error::NoSuchObject { .. }) => Ok(None),
                Err(e) => Err(e.into()),
            },
            _ => Ok(None),
        }
    }

    /// Size and block size of a volume in bytes; `None` if this is no volume.
    ///
    /// # Errors
    /// As reading fails.
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
