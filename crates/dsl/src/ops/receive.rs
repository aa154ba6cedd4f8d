//! Receiving: a new dataset or a hidden clone that is filled, and then becomes visible.
//!
//! # Theory
//! A stream for a dataset that does not exist goes into a new dataset. A stream for an existing one
//! goes into a hidden child, `%recv`. Both are marked incomplete (`DS_FLAG_INCONSISTENT`), so that
//! only the receive can open them.
//!
//! At the end, the child's contents change places with those of the dataset, as in a rollback. The
//! new snapshot is made, and the child is destroyed. All of that is one operation. Bookmarks go
//! whose snapshots are not in the past of the new contents: an increment from one would lack what
//! differs.
//!
//! # On disk
//! If a receive can be resumed, the incomplete dataset's ZAP says what stream it is and how far it
//! came (`DS_FIELD_RESUME_*`). Without these fields an incomplete dataset is destroyed when its
//! pool is next opened for writing.
//!
//! # See
//! OpenZFS `dmu_recv_begin_check`, `dmu_recv_begin_sync`, `dmu_recv_resume_begin_check`,
//! `dmu_recv_end_check`, `dmu_recv_end_sync`.

pub use super::receive_redacted::Redacted;
use crate::error::Refusal;
use crate::heads::{LongHold, ResumePoint};
use crate::keys::{RawKeys, RawUse};
use crate::mos_objects::{DropEntry, words};
use crate::ops::create::{Empty, check_new_name};
use crate::ops::key::NewCrypt;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Kind, Name, Result, Tail, ZFS_MAX_DATASET_NAME_LEN};
use dmu::zap::Value;
use dmu::{DnodesShape, Objset};
use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::dsl::{DS_FLAG_CI_DATASET, DS_FLAG_INCONSISTENT, DslDatasetPhys};
use ondisk::objset::ObjsetKind;
use ondisk::replay::{Begin, features, flags};
use ondisk::{DmuType, ObjNum, mos};
use std::sync::Arc;

/// The hidden child of an existing dataset that a stream goes into (`recv_clone_name`).
pub const RECEIVING: &str = "%recv";

/// Receives raw streams without comparing their sets of initialisation vectors
/// (`zfs_disable_ivset_guid_check`).
pub static DISABLE_IVSET_GUID_CHECK: Tunable = Tunable::new(
    "zfs_disable_ivset_guid_check",
    0,
    0..=1,
    Unit::Flag,
    "receive raw streams of old versions, whose snapshots have no set of initialisation vectors",
);

const IVSET_MISSING: &str = "IV set guid missing. See errata 4 at \
                             https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.";
const IVSET_MISMATCH: &str = "IV set guid mismatch. See the 'zfs receive' man page section\n \
                              discussing the limitations of raw encrypted send streams.";

/// How much one transaction may exceed a quota: `DMU_MAX_ACCESS` and `spa_asize_inflation`.
const REFQUOTA_SLACK: u64 = (64 << 20) * 24;

/// Features of streams that the pool must have enabled, and their names there.
const NEEDS: [(u64, &str); 9] = [
    (features::RAW, "encryption"),
    (features::LZ4, "lz4_compress"),
    (features::ZSTD, "zstd_compress"),
    (features::EMBED_DATA, "embedded_data"),
    (features::LARGE_BLOCKS, "large_blocks"),
    (features::LARGE_DNODE, "large_dnode"),
    (features::LARGE_MICROZAP, "large_microzap"),
    (features::REDACTED, "redacted_datasets"),
    (features::LONGNAME, "longname"),
];

/// The fields of a receive that can be resumed, all of them.
const RESUME_FIELDS: [&str; 11] = [
    mos::DS_RESUME_FROMGUID,
    mos::DS_RESUME_OBJECT,
    mos::DS_RESUME_OFFSET,
    mos::DS_RESUME_BYTES,
    mos::DS_RESUME_TOGUID,
    mos::DS_RESUME_TONAME,
    mos::DS_RESUME_LARGEBLOCK,
    mos::DS_RESUME_EMBEDOK,
    mos::DS_RESUME_COMPRESSOK,
    mos::DS_RESUME_RAWOK,
    mos::DS_RESUME_REDACT_BOOKMARK_SNAPS,
];

/// What a receive is about.
#[derive(Debug, Clone)]
pub struct Received {
    /// The full name of the dataset.
    pub name: String,
    /// The name of the new snapshot, after the `@`.
    pub snapshot: String,
    /// The begin of the stream.
    pub begin: Begin,
    /// Replace a dataset that has changed (`zfs receive -F`).
    pub force: bool,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
    /// The keys of a raw stream.
    pub raw: Option<RawKeys>,
    /// For which snapshots it is redacted.
    pub redacted: Redacted,
    /// The encryption of a new dataset, if it is not the parent's.
    pub crypt: Option<NewCrypt>,
    /// The tree of dnodes of new contents, if it is not OpenZFS's. A raw stream has its own.
    pub dnodes: Option<DnodesShape>,
}

impl Received {
    fn has(&self, feature: u64) -> bool {
        self.begin.features() & feature != 0
    }

    fn full(&self) -> String {
        format!("{}@{}", self.name, self.snapshot)
    }

    /// The kind of the dataset that the stream has.
    fn kind(&self) -> Result<Kind> {
        match self.begin.objset_type {
            2 => Ok(Kind::Filesystem),
            3 => Ok(Kind::Volume),
            _ => Syncing::refuse(&self.name, Refusal::Stream("it has neither a file system nor a volume")),
        }
    }

    fn check_features(&self, s: &Syncing<'_>) -> Result<()> {
        for (bit, feature) in NEEDS {
            if self.has(bit) && !s.feature_enabled(feature)? {
                return Syncing::refuse(&self.name, Refusal::Feature(feature));
            }
        }
        Ok(())
    }

    /// Notes the features that only the stream names.
    fn activate_features(&self, s: &mut Syncing<'_>, ds: u64) -> Result<()> {
        for (bit, feature) in [(features::LARGE_MICROZAP, "large_microzap"), (features::LONGNAME, "longname")]
        {
            if self.has(bit) {
                s.activate_new(ds, feature)?;
            }
        }
        Ok(())
    }

    /// Refuses a raw stream that does not continue what a snapshot has, as far as its encryption
    /// tells.
    fn check_raw(&self, s: &mut Syncing<'_>, dir: u64, from: Option<u64>) -> Result<()> {
        let Some(raw) = &self.raw else { return Ok(()) };
        let refuse = |why| Syncing::refuse(&self.name, Refusal::RawStream(why));
        if !s.is_encrypted(dir)? {
            return refuse("cannot perform raw receive on top of existing unencrypted dataset");
        }
        s.check_received_key(dir, &self.name, raw)?;
        let Some(from) = from.filter(|_| DISABLE_IVSET_GUID_CHECK.get() == 0) else { return Ok(()) };
        match s.field_u64(from, mos::DS_IVSET_GUID)?.unwrap_or(0) {
            0 => refuse(IVSET_MISSING),
            _ if raw.from_ivset == 0 => refuse(IVSET_MISSING),
            ivset if ivset != raw.from_ivset => refuse(IVSET_MISMATCH),
            _ => Ok(()),
        }
    }

    /// Refuses a stream with embedded blocks for a dataset that is or will be encrypted.
    fn check_embedded(&self, encrypted: bool) -> Result<()> {
        if self.has(features::EMBED_DATA) && encrypted {
            let why = "incompatible embedded data stream feature with encrypted receive.";
            return Syncing::refuse(&self.name, Refusal::RawStream(why));
        }
        Ok(())
    }

    /// Whether a new dataset below `parent` will be encrypted.
    fn will_encrypt(&self, s: &Syncing<'_>, parent: u64) -> Result<bool> {
        match &self.crypt {
            Some(crypt) if crypt.off => Ok(false),
            Some(crypt) if crypt.suite.is_some() => Ok(true),
            _ => s.is_encrypted(parent),
        }
    }

    fn check_snapshot_limit(&self, s: &mut Syncing<'_>, dir: u64) -> Result<()> {
        if !self.enforce_limits {
            return Ok(());
        }
        let above = s.dir(dir)?.parent_obj;
        s.check_limit(dir, 1, mos::DD_SNAPSHOT_COUNT, above, &self.full())
    }
}

/// The dataset that a stream goes into.
#[derive(Debug)]
pub struct Place {
    /// Its object.
    pub object: u64,
    /// It is the hidden child of the dataset.
    pub hidden: bool,
    /// Keeps it from being destroyed.
    pub hold: LongHold,
    /// It is used without its keys, since the stream is raw.
    pub raw: Option<RawUse>,
}

/// Where a task leaves the dataset that it made or found.
pub type PlaceSlot = Arc<Mutex<Option<Place>>>;

/// Begins to receive a stream (`dmu_recv_begin`).
#[derive(Debug, Clone)]
pub struct ReceiveBegin {
    /// The stream, and where it goes.
    pub what: Received,
    /// The full name of the snapshot that a new dataset is a clone of.
    pub origin: Option<String>,
    /// Keep what was received if the stream breaks off (`zfs receive -s`).
    pub resumable: bool,
    /// The user who gets what creators of datasets are granted.
    pub creator: Option<u32>,
    /// The dataset that the stream goes into.
    pub place: PlaceSlot,
}

impl SyncTask for ReceiveBegin {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(5)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let what = &self.what;
        if Name::parse(&what.name)?.tail != Tail::Head {
            return Syncing::refuse(&what.name, Refusal::NotHead);
        }
        Name::parse_new(&what.full())?;
        what.kind()?;
        what.check_features(s)?;
        what.check_redaction_lists()?;
        if self.resumable && !s.feature_enabled("extensible_dataset")? {
            return Syncing::refuse(&what.name, Refusal::Feature("extensible_dataset"));
        }
        if what.begin.flags & flags::CLONE != 0 && self.origin.is_none() {
            return Syncing::refuse(
                &what.name,
                Refusal::Stream("it is a clone, and its origin is not named"),
            );
        }
        match s.find_dir(&what.name)? {
            Some(_) if self.origin.is_some() => {
                Syncing::refuse(&what.name, Refusal::Stream("a clone must be a new dataset"))
            }
            Some(_) => self.check_existing(s),
            None => self.check_new(s),
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let ci = dataset_flags(&self.what.begin);
        let mut raw = None;
        let name = self.what.name.clone();
        let (ds, full, hidden) = match s.find_dir(&name)? {
            Some(dir) => {
                let from = self.find_from(s, dir)?;
                let child = s.create_dir(Some(dir), RECEIVING)?;
                (self.create(s, (child, &mut raw), from, ci)?, format!("{name}/{RECEIVING}"), true)
            }
            None => {
                let (above, tail) = name.rsplit_once('/').expect("the check found a dataset above");
                let parent = s.hold_dir(above)?;
                let origin = match &self.origin {
                    Some(origin) => Some(s.hold_snapshot(origin)?.1),
                    None => None,
                };
                let dir = s.create_dir(Some(parent), tail)?;
                if let Some(uid) = self.creator {
                    s.grant_creator(dir, uid)?;
                }
                (self.create(s, (dir, &mut raw), origin, ci)?, name, false)
            }
        };
        self.what.activate_features(s, ds)?;
        self.what.set_redacted(s, ds)?;
        if self.resumable {
            self.store_resume_fields(s, ds)?;
        }
        s.ds_mut(ds)?.flags |= DS_FLAG_INCONSISTENT;
        s.dsl.heads().note_unsettled(ds);
        s.log("receive", &full, ds, String::new());
        s.hold_place(&self.place, ds, hidden, raw);
        Ok(())
    }
}

/// The flags of a new dataset for a stream.
fn dataset_flags(begin: &Begin) -> u64 {
    if begin.flags & flags::CI_DATA == 0 { 0 } else { DS_FLAG_CI_DATASET }
}

impl ReceiveBegin {
    /// Makes the dataset that the stream goes into.
    fn create(
        &self,
        s: &mut Syncing<'_>,
        (dir, raw): (u64, &mut Option<RawUse>),
        origin: Option<u64>,
        flags: u64,
    ) -> Result<u64> {
        let ds = s.create_dataset(dir, origin, flags)?;
        *raw = self.what.raw.is_some().then(|| s.dsl.keys().receive_raw(ds));
        match (origin, &self.what.raw) {
            (Some(origin), _) => s.clone_key(dir, origin)?,
            (None, Some(keys)) => s.receive_key(dir, ds, keys)?,
            (None, None) => s.create_key(dir, ds, &self.what.name, self.what.crypt.as_ref())?,
        }
        s.create_counts(dir)?;
        match origin {
            Some(_) => s.reset_log(ds)?,
            None => {
                let contents = Empty { kind: self.what.kind()?, dnodes: self.what.dnodes };
                s.create_contents(ds, &contents, &self.what.name)?;
            }
        }
        Ok(ds)
    }

    /// Whether the stream may go into a dataset that exists (`recv_begin_check_existing_impl`).
    fn check_existing(&self, s: &mut Syncing<'_>) -> Result<()> {
        let what = &self.what;
        let (name, full) = (&what.name, what.full());
        let dir = s.hold_dir(name)?;
        let head = s.hold_head(name)?;
        if name.len() + 1 + RECEIVING.len() >= ZFS_MAX_DATASET_NAME_LEN {
            return Syncing::refuse(name, Refusal::NameTooLong);
        }
        let incomplete = s.ds(head)?.flags & DS_FLAG_INCONSISTENT != 0;
        if incomplete || s.find_dir(&format!("{name}/{RECEIVING}"))?.is_some() {
            return Syncing::refuse(name, Refusal::Busy);
        }
        if s.find_snapshot(head, &what.snapshot)?.is_some() {
            return Syncing::refuse(&full, Refusal::Exists);
        }
        let children = s.dir(dir)?.child_dir_zapobj;
        s.check_received_room(what, children, head)?;
        if what.kind()? == Kind::Volume && children != 0 && s.zap(children)?.count()? != 0 {
            return Syncing::refuse(name, Refusal::WrongParent);
        }
        what.check_snapshot_limit(s, dir)?;
        what.check_embedded(s.is_encrypted(dir)?)?;
        if what.begin.from_guid == 0 {
            if !what.force {
                return Syncing::refuse(name, Refusal::Exists);
            }
            if s.dsl.origin_snapshot()?.is_none() {
                let why = "a pool of this old version can't replace a dataset by a full stream";
                return Syncing::refuse(name, Refusal::Stream(why));
            }
            if s.is_encrypted(dir)? {
                let why = "an encrypted dataset can't be replaced by a full stream";
                return Syncing::refuse(name, Refusal::Stream(why));
            }
            what.check_raw(s, dir, None)?;
            if what.crypt.as_ref().is_some_and(|crypt| !crypt.off && crypt.suite.is_some()) {
                let why = "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
                           unencrypted one with an encrypted one";
                return Syncing::refuse(name, Refusal::RawStream(why));
            }
            let above = s.dir(dir)?.parent_obj;
            return s.check_new_key(above, name, what.crypt.as_ref());
        }
        let Some(from) = self.find_from(s, dir)? else {
            return Syncing::refuse(name, Refusal::NotSource);
        };
        if !what.force && (s.is_modified_since(head, from)? || s.ds(head)?.prev_snap_obj != from) {
            return Syncing::refuse(name, Refusal::Modified);
        }
        what.check_raw(s, dir, Some(from))?;
        what.check_redacted(s, from)?;
        s.check_source(from, what, true)
    }

    /// The snapshot of an existing dataset that an incremental stream builds on.
    fn find_from(&self, s: &mut Syncing<'_>, dir: u64) -> Result<Option<u64>> {
        if self.what.begin.from_guid == 0 {
            return Ok(None);
        }
        let head = s.dir(dir)?.head_dataset_obj;
        let mut snap = s.ds(head)?.prev_snap_obj;
        let mut later = u64::MAX;
        while snap != 0 {
            let p = s.ds(snap)?;
            // Snapshots go back in time, so a chain has no loop.
            if p.dir_obj != dir || p.creation_txg.0 >= later {
                break;
            }
            if p.guid == self.what.begin.from_guid {
                return Ok(Some(snap));
            }
            (later, snap) = (p.creation_txg.0, p.prev_snap_obj);
        }
        Ok(None)
    }

    /// Whether the stream may become a new dataset.
    fn check_new(&self, s: &mut Syncing<'_>) -> Result<()> {
        let what = &self.what;
        let name = &what.name;
        if what.begin.from_guid != 0 && self.origin.is_none() {
            return Err(Error::NoSuchDataset { name: name.clone() });
        }
        if what.begin.from_guid == 0 && self.origin.is_some() && what.begin.flags & flags::FREERECORDS == 0 {
            let why = "it lacks the records of what is free, which a clone needs";
            return Syncing::refuse(name, Refusal::Stream(why));
        }
        let parent = check_new_name(s, name)?;
        self.creator.map_or(Ok(()), |_| s.check_creator_room(parent, name))?;
        let above = s.dir(parent)?.head_dataset_obj;
        if what.enforce_limits {
            s.check_limit(parent, 1, mos::DD_FILESYSTEM_COUNT, 0, name)?;
            s.check_limit(parent, 1, mos::DD_SNAPSHOT_COUNT, 0, name)?;
        }
        if above == 0 || s.head_kind(above)? != ObjsetKind::Zfs {
            return Syncing::refuse(name, Refusal::WrongParent);
        }
        let Some(origin) = &self.origin else {
            if what.raw.is_some() {
                return Ok(());
            }
            s.check_new_key(parent, name, what.crypt.as_ref())?;
            return what.check_embedded(what.will_encrypt(s, parent)?);
        };
        let (_, snap) = s.hold_snapshot(origin)?;
        let p = s.ds(snap)?;
        if what.begin.from_guid != 0 && p.guid != what.begin.from_guid {
            return Syncing::refuse(name, Refusal::NotSource);
        }
        what.check_embedded(s.is_encrypted(p.dir_obj)?)?;
        let incremental = what.begin.from_guid != 0;
        what.check_raw(s, p.dir_obj, incremental.then_some(snap))?;
        what.check_redacted(s, snap)?;
        s.check_source(snap, what, incremental)
    }

    fn store_resume_fields(&self, s: &mut Syncing<'_>, ds: u64) -> Result<()> {
        s.zapify(ds, DmuType::DSL_DATASET)?;
        let begin = &self.what.begin;
        let zap = s.zap(ds)?;
        let mut name = begin.name().to_vec();
        name.push(0);
        zap.add(s.tx, mos::DS_RESUME_TONAME.as_bytes(), &Value::bytes(&name))?;
        let from = (begin.from_guid != 0).then_some((mos::DS_RESUME_FROMGUID, begin.from_guid));
        let numbers = [
            (mos::DS_RESUME_TOGUID, begin.to_guid),
            (mos::DS_RESUME_OBJECT, 1),
            (mos::DS_RESUME_OFFSET, 0),
            (mos::DS_RESUME_BYTES, 0),
        ];
        let forms = [
            (features::LARGE_BLOCKS, mos::DS_RESUME_LARGEBLOCK),
            (features::EMBED_DATA, mos::DS_RESUME_EMBEDOK),
            (features::COMPRESSED, mos::DS_RESUME_COMPRESSOK),
            (features::RAW, mos::DS_RESUME_RAWOK),
        ];
        let forms = forms.into_iter().filter(|(bit, _)| self.what.has(*bit)).map(|(_, field)| (field, 1));
        for (field, n) in from.into_iter().chain(numbers).chain(forms) {
            zap.add(s.tx, field.as_bytes(), &words(&[n]))?;
        }
        if let Some(snaps) = &self.what.redacted.from {
            zap.add(s.tx, mos::DS_RESUME_REDACT_BOOKMARK_SNAPS.as_bytes(), &words(snaps))?;
        }
        Ok(())
    }
}

/// Goes on with a stream that broke off (`dmu_recv_resume_begin_check`).
#[derive(Debug, Clone)]
pub struct ReceiveResume {
    /// The rest of the stream, and where it goes.
    pub what: Received,
    /// Where the rest begins: the object and the offset.
    pub from: (u64, u64),
    /// The dataset that the stream goes into.
    pub place: PlaceSlot,
}

impl SyncTask for ReceiveResume {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(5)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let what = &self.what;
        what.check_features(s)?;
        let (ds, hidden) = s.receiving(&what.name)?;
        let refuse = |why| Syncing::refuse(&what.name, why);
        if hidden && what.begin.from_guid == 0 && !what.force {
            return refuse(Refusal::ResumeExists);
        }
        let p = s.ds(ds)?;
        if p.flags & DS_FLAG_INCONSISTENT == 0
            || s.field_u64(ds, mos::DS_RESUME_TOGUID)? != Some(what.begin.to_guid)
            || s.field_u64(ds, mos::DS_RESUME_FROMGUID)?.unwrap_or(0) != what.begin.from_guid
        {
            return refuse(Refusal::Stream("it does not continue what was received here"));
        }
        if s.dsl.heads().is_busy(ds) {
            return refuse(Refusal::Busy);
        }
        if p.prev_snap_obj != 0 && s.ds(p.prev_snap_obj)?.dir_obj == p.dir_obj {
            return refuse(Refusal::Stream("it does not continue what was received here"));
        }
        let at = (s.field_u64(ds, mos::DS_RESUME_OBJECT)?, s.field_u64(ds, mos::DS_RESUME_OFFSET)?);
        if at != (Some(self.from.0), Some(self.from.1)) {
            return refuse(Refusal::Stream("it continues at another place than where the receive broke off"));
        }
        what.check_embedded(s.is_encrypted(p.dir_obj)?)?;
        if s.field_u64(ds, mos::DS_RESUME_RAWOK)?.is_some() != what.raw.is_some() {
            return refuse(Refusal::Stream("it does not continue what was received here"));
        }
        let from = (what.begin.from_guid != 0).then_some(p.prev_snap_obj);
        what.check_raw(s, p.dir_obj, from)?;
        what.check_still_redacted(s, ds)?;
        s.check_source(ds, what, true)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (ds, hidden) = s.receiving(&self.what.name)?;
        self.what.activate_features(s, ds)?;
        let raw = self.what.raw.is_some().then(|| s.dsl.keys().receive_raw(ds));
        s.hold_place(&self.place, ds, hidden, raw);
        let full = if hidden { format!("{}/{RECEIVING}", self.what.name) } else { self.what.name.clone() };
        s.log("resume receive", &full, ds, String::new());
        Ok(())
    }
}

/// Makes what was received visible (`dmu_recv_end`).
///
/// An existing dataset must have no owner: a mount suspends itself first.
#[derive(Debug, Clone)]
pub struct ReceiveEnd {
    /// The stream. Its name is for messages.
    pub what: Received,
    /// The object of the dataset that the stream went into.
    pub object: u64,
    /// It is the hidden child of the dataset.
    pub hidden: bool,
    /// Refuse to destroy snapshots that the dataset has got since, also by force.
    pub keep_later: bool,
}

impl SyncTask for ReceiveEnd {
    fn need(&self) -> TaskNeed {
        TaskNeed::normal(3)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (what, ds) = (&self.what, self.object);
        if s.ds(ds)?.flags & DS_FLAG_INCONSISTENT == 0 {
            return Syncing::refuse(&what.name, Refusal::Stream("nothing is being received"));
        }
        let (dir, head) = self.target(s)?;
        what.check_snapshot_limit(s, dir)?;
        if !self.hidden {
            return s.check_snapshot(ds, &what.snapshot, &what.full(), true);
        }
        let (origin, mut snap) = (s.ds(ds)?.prev_snap_obj, s.ds(head)?.prev_snap_obj);
        if snap != origin && (self.keep_later || !what.force) {
            return Syncing::refuse(&what.name, Refusal::Modified);
        }
        let mut later = u64::MAX;
        while snap != origin {
            let p = s.ds(snap)?;
            if p.dir_obj != dir || p.creation_txg.0 >= later {
                return Syncing::refuse(&what.name, Refusal::NotSource);
            }
            let name = s.snapshot_name(snap)?;
            s.check_destroy_snapshot(snap, &name, false)?;
            (later, snap) = (p.creation_txg.0, p.prev_snap_obj);
        }
        if let Some(raw) = &what.raw {
            s.check_received_key(dir, &what.name, raw)?;
        }
        let own = origin == 0 || Some(origin) == s.dsl.origin_snapshot()? || s.ds(origin)?.dir_obj == dir;
        if !own {
            return Syncing::refuse(&what.name, Refusal::NotSource);
        }
        s.check_swap(ds, head, (&what.name, what.force))?;
        s.check_snapshot(head, &what.snapshot, &what.full(), true)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let (what, ds, hidden) = (&self.what, self.object, self.hidden);
        s.sync_head(ds, 1)?;
        let full = if hidden { format!("{}/{RECEIVING}", what.name) } else { what.name.clone() };
        s.log("finish receiving", &full, ds, format!("snap={}", what.snapshot));
        let (_, head) = self.target(s)?;
        let head = if hidden {
            s.sync_head(head, 1)?;
            s.drop_bookmarks_after(ds, head, &what.name)?;
            s.destroy_snapshots_after(ds, head)?;
            if let Some(raw) = &what.raw {
                // Only now: the keys are those of the dataset, too.
                let child = s.ds(ds)?.dir_obj;
                s.receive_key(child, head, raw)?;
            }
            s.swap_with_clone(ds, head)?;
            head
        } else {
            ds
        };
        let snap = s.snapshot_head(head, &what.snapshot)?;
        let p = s.ds_mut(snap)?;
        p.creation_time = what.begin.creation_time;
        p.guid = what.begin.to_guid;
        p.flags &= !DS_FLAG_INCONSISTENT;
        if let Some(raw) = what.raw.as_ref().filter(|raw| raw.to_ivset != 0) {
            s.set_ivset(snap, raw.to_ivset)?;
        }
        s.ds_mut(head)?.flags &= !DS_FLAG_INCONSISTENT;
        if hidden { s.destroy_head(ds, &full) } else { s.drop_resume_fields(ds) }
    }
}

impl ReceiveEnd {
    /// The directory and the head that get the snapshot.
    fn target(&self, s: &mut Syncing<'_>) -> Result<(u64, u64)> {
        let dir = s.ds(self.object)?.dir_obj;
        let dir = if self.hidden { s.dir(dir)?.parent_obj } else { dir };
        match s.dir(dir)?.head_dataset_obj {
            0 => Err(Error::NoSuchDataset { name: self.what.name.clone() }),
            head => Ok((dir, head)),
        }
    }
}

/// Destroys what a receive has left (`dmu_recv_cleanup_ds`).
#[derive(Debug)]
pub struct ReceiveAbort {
    /// The object of the incomplete dataset.
    pub object: u64,
    /// What has kept it until now.
    pub hold: Option<LongHold>,
}

impl SyncTask for ReceiveAbort {
    fn need(&self) -> TaskNeed {
        TaskNeed::FREEING
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        self.hold = None;
        let name = s.head_name(self.object)?;
        if s.ds(self.object)?.flags & DS_FLAG_INCONSISTENT == 0 {
            return Err(Error::NoSuchDataset { name });
        }
        s.check_destroy_head(self.object, &name)
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let name = s.head_name(self.object)?;
        s.destroy_head(self.object, &name)
    }
}

impl Syncing<'_> {
    /// Leaves the dataset that a stream goes into to the caller, and keeps it there.
    fn hold_place(&self, slot: &PlaceSlot, object: u64, hidden: bool, raw: Option<RawUse>) {
        let hold = self.dsl.heads().long_hold(object);
        *slot.lock() = Some(Place { object, hidden, hold, raw });
    }

    /// The full name of a head, by its object.
    fn head_name(&mut self, object: u64) -> Result<String> {
        self.flush()?;
        Ok(self.dsl.by_object(ObjNum(object))?.name())
    }

    /// The dataset that a stream for this name goes into, and whether it is the hidden child.
    fn receiving(&mut self, name: &str) -> Result<(u64, bool)> {
        match self.find_dir(&format!("{name}/{RECEIVING}"))? {
            Some(dir) => match self.dir(dir)?.head_dataset_obj {
                0 => Err(Error::NoSuchDataset { name: name.to_owned() }),
                head => Ok((head, true)),
            },
            None => Ok((self.hold_head(name)?, false)),
        }
    }

    fn is_encrypted(&self, dir: u64) -> Result<bool> {
        Ok(self.field_u64(dir, ondisk::crypto_key::FIELD)?.is_some_and(|object| object != 0))
    }

    fn has_resume_fields(&self, ds: u64) -> Result<bool> {
        Ok(self.field(ds, mos::DS_RESUME_TOGUID)?.is_some())
    }

    fn drop_resume_fields(&mut self, ds: u64) -> Result<()> {
        if !self.has_resume_fields(ds)? {
            return Ok(());
        }
        for field in RESUME_FIELDS {
            self.zap(ds)?.drop_entry(self.tx, field.as_bytes())?;
        }
        Ok(())
    }

    /// Stores how far a receive has come, if it can be resumed.
    pub(crate) fn store_resume_point(&mut self, ds: u64, point: ResumePoint) -> Result<()> {
        if !self.has_resume_fields(ds)? {
            return Ok(());
        }
        let zap = self.zap(ds)?;
        for (field, n) in [
            (mos::DS_RESUME_OBJECT, point.object),
            (mos::DS_RESUME_OFFSET, point.offset),
            (mos::DS_RESUME_BYTES, point.bytes),
        ] {
            zap.update(self.tx, field.as_bytes(), &words(&[n]))?;
        }
        Ok(())
    }

    /// Whether a stream may build on a snapshot, or go on in an incomplete dataset.
    ///
    /// A full stream replaces each object whose blocks have another size, so that it need not be as
    /// `large` as its origin.
    fn check_source(&mut self, snap: u64, what: &Received, large: bool) -> Result<()> {
        let uses = |s: &Self, name| -> Result<bool> {
            Ok(s.dataset_features(snap)?.iter().any(|(feature, _)| feature.name == name))
        };
        // Blocks would have to be split or joined (`recv_check_large_blocks`).
        if large && uses(self, "large_blocks")? && !what.has(features::LARGE_BLOCKS) {
            return Self::refuse(&what.name, Refusal::LargeBlocks);
        }
        Ok(())
    }

    /// Whether a head has changed since one of its snapshots (`dsl_dataset_modified_since_snap`).
    ///
    /// A header of the intent log is no change.
    pub(super) fn is_modified_since(&mut self, head: u64, snap: u64) -> Result<bool> {
        let (h, p) = (self.ds(head)?, self.ds(snap)?);
        if h.bp.birth <= p.creation_txg {
            return Ok(false);
        }
        let (cache, options) = (self.mos().objset().cache().clone(), self.mos().options().clone());
        let phys = |object, of: &DslDatasetPhys| -> Result<_> {
            Ok(Objset::open(cache.clone(), object, &of.bp, options.clone())?.phys())
        };
        if h.bp.is_hole() || p.bp.is_hole() {
            return Ok(h.bp.is_hole() != p.bp.is_hole());
        }
        Ok(phys(head, &h)?.meta_dnode != phys(snap, &p)?.meta_dnode)
    }

    /// Whether a clone may take the place of a head (`dsl_dataset_clone_swap_check_impl`). Without
    /// `force`, a head that changed since its last snapshot is refused. `name` is for messages.
    pub(super) fn check_swap(&mut self, clone: u64, head: u64, (name, force): (&str, bool)) -> Result<()> {
        let (c, h) = (self.ds(clone)?, self.ds(head)?);
        if !force && h.prev_snap_obj != 0 && self.is_modified_since(head, h.prev_snap_obj)? {
            return Self::refuse(name, Refusal::Modified);
        }
        if self.dsl.heads().is_busy(head) {
            return Self::refuse(name, Refusal::Busy);
        }
        let reserved = self.refreservation(head)?;
        // The snapshot takes over the space that the reservation covers. The head needs it again.
        let unused = reserved.min(h.unique_bytes).saturating_sub(reserved.min(c.unique_bytes));
        let more = unused.saturating_add(reserved.min(c.unique_bytes));
        if self.takes_origin_along(&c)? && self.dsl.heads().is_busy(c.prev_snap_obj) {
            return Self::refuse(name, Refusal::Busy);
        }
        if more > 0 && more > self.available(h.dir_obj)? {
            return Self::refuse(name, Refusal::NoSpace);
        }
        let quota = self.own_prop(h.dir_obj, "refquota")?.unwrap_or(0);
        if quota != 0 && c.referenced_bytes > quota.saturating_add(REFQUOTA_SLACK) {
            return Self::refuse(name, Refusal::Quota);
        }
        Ok(())
    }
}
