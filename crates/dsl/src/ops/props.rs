//! Properties: set and inherited.
//!
//! # On disk
//! A value is in the ZAP of its directory, or of its snapshot: a number as one word, a string as
//! bytes with their NUL. Two more names can be there:
//!
//! | name | value |
//! |---|---|
//! | with `$inherit` | 0, where an inherited value hides a received one |
//! | with `$recvd` | a received value |
//!
//! `$hasrecvd` is there once properties were received.

use crate::account::Delta;
use crate::error::{PropError, Refusal};
use crate::links::ParentWalk;
use crate::mos_objects::{DropEntry, words};
use crate::ops::create::{ZVOL_OBJ, ZVOL_ZAP_OBJ};
use crate::policy::{Redundant, Settings, checksum_of, compress_of, dedup_of};
use crate::prop::value::PropZap;
use crate::prop::{Prop, Value, ZAP_MAXNAMELEN, ZFS_MAXPROPLEN};
use crate::sync::{SyncTask, Syncing, TaskNeed};
use crate::{Error, Kind, Result};
use dmu::{Objset, zap};
use ondisk::dsl::DdUsed;
use ondisk::version::{
    SPA_VERSION_DEDUP, SPA_VERSION_DITTO_BLOCKS, SPA_VERSION_GZIP_COMPRESSION, SPA_VERSION_PASSTHROUGH_X,
    SPA_VERSION_REFQUOTA, SPA_VERSION_SNAP_PROPS, SPA_VERSION_ZLE_COMPRESSION,
};
use ondisk::{DmuType, ObjNum};

/// Says that properties were received (`ZPROP_HAS_RECVD`).
pub(crate) const HAS_RECEIVED: &[u8] = b"$hasrecvd";
/// What follows the name of a property in the entry of its received value (`ZPROP_RECVD_SUFFIX`).
pub(crate) const RECEIVED: &str = "$recvd";
/// What follows it in the entry that hides a received value (`ZPROP_INHERIT_SUFFIX`).
pub(crate) const HIDING: &str = "$inherit";

/// A checked property and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// Checked properties that are set together ([`crate::prop::parse`]).
pub type PropList = Vec<Setting>;

/// The source of a new value (`zprop_source_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetAs {
    /// The user.
    Local,
    /// A stream.
    Received,
}

/// A value as a ZAP value.
fn stored(value: &Value) -> zap::Value {
    match value {
        Value::Number(n) => words(&[*n]),
        Value::Text(s) => {
            let mut raw = s.clone().into_bytes();
            raw.push(0);
            zap::Value::bytes(&raw)
        }
    }
}

/// The feature that a value needs, if it needs one (`zfs_check_settable`).
pub fn needed_feature(set: &Setting) -> Option<&'static str> {
    let Value::Number(n) = set.value else { return None };
    match Prop::by_name(&set.name) {
        Some(Prop::Compression) => match n & 0x7f {
            15 => Some("lz4_compress"),
            16 => Some("zstd_compress"),
            _ => None,
        },
        Some(Prop::Checksum | Prop::Dedup) => match n & 0xff {
            11 => Some("sha512"),
            12 => Some("skein"),
            13 => Some("edonr"),
            14 => Some("blake3"),
            _ => None,
        },
        Some(Prop::Recordsize | Prop::Volblocksize) if n > ondisk::SPA_OLD_MAXBLOCKSIZE => {
            Some("large_blocks")
        }
        Some(Prop::Dnodesize) if n != 0 => Some("large_dnode"),
        Some(Prop::SpecialSmallBlocks) => Some("allocation_classes"),
        Some(Prop::FilesystemLimit | Prop::SnapshotLimit) => Some("filesystem_limits"),
        Some(Prop::Longname) if n != 0 => Some("longname"),
        _ => None,
    }
}

/// The pool version that a value needs, if it is not the first (`zfs_check_settable`).
pub fn needed_version(set: &Setting) -> Option<u64> {
    let Value::Number(n) = set.value else { return None };
    match Prop::by_name(&set.name) {
        Some(Prop::Copies) => Some(SPA_VERSION_DITTO_BLOCKS),
        Some(Prop::Compression) => match n & 0x7f {
            5..=13 => Some(SPA_VERSION_GZIP_COMPRESSION),
            14 => Some(SPA_VERSION_ZLE_COMPRESSION),
            _ => None,
        },
        Some(Prop::Refquota | Prop::Refreservation) => Some(SPA_VERSION_REFQUOTA),
        Some(Prop::Dedup) if n != 2 => Some(SPA_VERSION_DEDUP),
        Some(Prop::Aclinherit) if n == 5 => Some(SPA_VERSION_PASSTHROUGH_X),
        _ => None,
    }
}

impl Syncing<'_> {
    /// The properties set on a directory.
    fn prop_zap(&mut self, dir: u64) -> Result<PropZap> {
        let object = self.dir(dir)?.props_zapobj;
        PropZap::read(self.mos(), ObjNum(object))
    }

    /// A number set on a directory itself.
    pub(crate) fn own_prop(&mut self, dir: u64, name: &str) -> Result<Option<u64>> {
        let object = self.dir(dir)?.props_zapobj;
        if object == 0 {
            return Ok(None);
        }
        let zap = self.zap(object)?;
        if let Some(v) = zap.lookup(name.as_bytes())? {
            return Ok(v.first());
        }
        if zap.lookup(format!("{name}{HIDING}").as_bytes())?.is_some() {
            return Ok(None);
        }
        Ok(zap.lookup(format!("{name}{RECEIVED}").as_bytes())?.and_then(|v| v.first()))
    }

    /// The reservation of a head for itself (`ds_reserved`).
    pub(crate) fn refreservation(&mut self, ds: u64) -> Result<u64> {
        let dir = self.ds(ds)?.dir_obj;
        Ok(self.own_prop(dir, Prop::Refreservation.name())?.unwrap_or(0))
    }

    /// How the blocks of a directory's datasets are stored.
    pub(crate) fn settings(&mut self, dir: u64) -> Result<Settings> {
        let lz4 = self.feature_active("lz4_compress")?;
        let encrypt = self.field_u64(dir, ondisk::crypto_key::FIELD)?.is_some_and(|o| o != 0);
        let wanted = [
            Prop::Checksum,
            Prop::Compression,
            Prop::Copies,
            Prop::Dedup,
            Prop::RedundantMetadata,
            Prop::SpecialSmallBlocks,
        ];
        let mut found = [None; 6];
        let (mut at, mut parents) = (dir, ParentWalk::from(dir));
        while at != 0 && found.iter().any(Option::is_none) {
            let zap = self.prop_zap(at)?;
            if !zap.is_empty() {
                for (slot, prop) in found.iter_mut().zip(wanted).filter(|(s, _)| s.is_none()) {
                    *slot = zap.number(prop.name(), prop.desc());
                }
            }
            at = parents.parent(self, at)?;
        }
        let value = |i: usize| found[i].unwrap_or(wanted[i].desc().default);
        let (compress, zstd) = compress_of(value(1), lz4);
        Ok(Settings {
            checksum: checksum_of(value(0)),
            compress,
            zstd,
            copies: value(2).clamp(1, 3) as u8,
            dedup: dedup_of(value(3)),
            redundant: match value(4) {
                0 => Redundant::All,
                1 => Redundant::Most,
                2 => Redundant::Some,
                _ => Redundant::None,
            },
            special_small_blocks: value(5),
            encrypt,
            embed: self.feature_active("embedded_data")?,
            hole_birth: self.feature_active("hole_birth")?,
            lz4,
        })
    }

    /// Stores a value on a directory (`dsl_prop_set_sync_impl`).
    pub(crate) fn store_prop(&mut self, dir: u64, set: &Setting, source: SetAs) -> Result<()> {
        let object = self.dir(dir)?.props_zapobj;
        if source == SetAs::Received {
            self.zap(object)?.update(self.tx, HAS_RECEIVED, &words(&[0]))?;
        }
        self.store_in(object, set, source)?;
        self.dsl.heads().properties_changed();
        Ok(())
    }

    fn store_in(&mut self, object: u64, set: &Setting, source: SetAs) -> Result<()> {
        let zap = self.zap(object)?;
        let name = &set.name;
        match source {
            SetAs::Local => {
                zap.drop_entry(self.tx, format!("{name}{HIDING}").as_bytes())?;
                zap.update(self.tx, name.as_bytes(), &stored(&set.value))?;
            }
            SetAs::Received => {
                zap.update(self.tx, format!("{name}{RECEIVED}").as_bytes(), &stored(&set.value))?;
            }
        }
        Ok(())
    }

    /// Stores a value on a snapshot.
    pub(crate) fn store_snapshot_prop(&mut self, snap: u64, set: &Setting, source: SetAs) -> Result<()> {
        let object = match self.ds(snap)?.props_obj {
            0 => {
                let o = self.zap_create(DmuType::DSL_PROPS)?;
                self.ds_mut(snap)?.props_obj = o;
                o
            }
            o => o,
        };
        self.store_in(object, set, source)
    }

    /// Removes the local value of a directory (`dsl_prop_set_sync_impl` with other sources).
    ///
    /// With `received`, the received value holds again. Otherwise the inherited value holds, even
    /// if one was received.
    fn unset_prop(&mut self, dir: u64, name: &str, received: bool) -> Result<()> {
        let object = self.dir(dir)?.props_zapobj;
        let zap = self.zap(object)?;
        zap.drop_entry(self.tx, name.as_bytes())?;
        let hiding = format!("{name}{HIDING}");
        if hiding.len() >= ZAP_MAXNAMELEN {
            // Nothing can hide a value that was received under such a name.
            if !received {
                zap.drop_entry(self.tx, format!("{name}{RECEIVED}").as_bytes())?;
            }
        } else if received {
            zap.drop_entry(self.tx, hiding.as_bytes())?;
        } else if zap.lookup(HAS_RECEIVED)?.is_some() {
            zap.update(self.tx, hiding.as_bytes(), &words(&[0]))?;
        }
        self.dsl.heads().properties_changed();
        Ok(())
    }

    /// Checks the properties of a new dataset.
    ///
    /// It will use and refer to at least these bytes.
    pub(crate) fn check_new_props(
        &mut self,
        parent: u64,
        name: &str,
        kind: Kind,
        props: &PropList,
        (uses, refers): (u64, u64),
    ) -> Result<()> {
        let given = |prop: Prop| {
            props.iter().find(|set| set.name == prop.name()).map_or(0, |set| match set.value {
                Value::Number(n) => n,
                Value::Text(_) => 0,
            })
        };
        let own = given(Prop::Refreservation);
        for (quota, least) in [
            (given(Prop::Quota), uses.max(own).max(given(Prop::Reservation))),
            (given(Prop::Refquota), refers.max(own)),
        ] {
            if quota != 0 && quota < least {
                return Self::refuse(name, Refusal::NoSpace);
            }
        }
        for set in props {
            self.check_feature(name, set)?;
            let Value::Number(n) = set.value else { continue };
            let refuse =
                |why| Err(Error::BadProperty { name: name.to_owned(), property: set.name.clone(), why });
            match Prop::by_name(&set.name) {
                Some(Prop::Reservation | Prop::Refreservation) if n > self.available(parent)? => {
                    return Self::refuse(name, Refusal::NoSpace);
                }
                Some(Prop::Volsize) if kind == Kind::Volume && n == 0 => {
                    return refuse(PropError::Zero(Prop::Volsize.name()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets the properties of a new dataset, except those that its contents keep.
    pub(crate) fn set_new_props(&mut self, dir: u64, props: &PropList) -> Result<()> {
        for set in props {
            match Prop::by_name(&set.name) {
                Some(
                    Prop::Version
                    | Prop::Utf8only
                    | Prop::Normalize
                    | Prop::Case
                    | Prop::Volsize
                    | Prop::Volblocksize
                    | Prop::Encryption
                    | Prop::Keyformat
                    | Prop::Pbkdf2Iters
                    | Prop::Pbkdf2Salt,
                ) => {}
                _ => self.set_prop(dir, set, SetAs::Local)?,
            }
        }
        Ok(())
    }

    /// Checks that the pool has the feature that a value needs (`zfs_check_settable`).
    fn check_feature(&mut self, name: &str, set: &Setting) -> Result<()> {
        if needed_version(set).is_some_and(|v| self.version() < v) {
            let (name, property) = (name.to_owned(), set.name.clone());
            return Err(Error::BadProperty { name, property, why: PropError::Feature });
        }
        let needed = needed_feature(set);
        match needed {
            Some(f) if !self.feature_enabled(f)? => Err(Error::BadProperty {
                name: name.to_owned(),
                property: set.name.clone(),
                why: PropError::Feature,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that an existing dataset can have a value.
    fn check_prop(&mut self, head: u64, name: &str, set: &Setting) -> Result<()> {
        self.check_feature(name, set)?;
        let prop = Prop::by_name(&set.name);
        let p = self.ds(head)?;
        let n = match &set.value {
            Value::Number(n) => *n,
            Value::Text(text) => {
                let why = match prop {
                    Some(Prop::Keylocation) => self.check_location(p.dir_obj, text)?,
                    _ => None,
                };
                return Self::bad_prop(name, &set.name, why);
            }
        };
        let d = self.dir(p.dir_obj)?;
        let refquota = self.own_prop(p.dir_obj, Prop::Refquota.name())?.unwrap_or(0);
        let reserved = self.refreservation(head)?;
        let why = match prop {
            Some(Prop::Quota) => {
                (n != 0 && (n < d.reserved || n < d.used_bytes)).then_some(PropError::BelowUsed)
            }
            Some(Prop::Refquota) => {
                (n != 0 && (n < p.referenced_bytes || n < reserved)).then_some(PropError::BelowUsed)
            }
            Some(Prop::Reservation) => {
                let more = n.max(d.used_bytes).saturating_sub(d.reserved.max(d.used_bytes));
                let room = match d.parent_obj {
                    0 => self.dsl.space().adjusted().saturating_sub(d.used_bytes),
                    parent => self.available(parent)?,
                };
                (more > 0 && (more > room || (d.quota != 0 && n > d.quota))).then_some(PropError::NoSpace)
            }
            Some(Prop::Refreservation) => {
                let more = n.max(p.unique_bytes).saturating_sub(reserved.max(p.unique_bytes));
                let room = self.available(p.dir_obj)?;
                (more > 0 && (more > room || (refquota != 0 && n > refquota))).then_some(PropError::NoSpace)
            }
            Some(Prop::Volsize) => return self.check_volsize(head, name, n),
            Some(Prop::Version) => Some(PropError::ReadOnly(Prop::Version.name())),
            _ => None,
        };
        Self::bad_prop(name, &set.name, why)
    }

    fn bad_prop(name: &str, property: &str, why: Option<PropError>) -> Result<()> {
        match why {
            None => Ok(()),
            Some(why) => {
                Err(Error::BadProperty { name: name.to_owned(), property: property.to_owned(), why })
            }
        }
    }

    fn check_volsize(&mut self, head: u64, name: &str, size: u64) -> Result<()> {
        // The owner of a volume changes its size, since the blocks belong to the owner.
        if self.dsl.heads().is_busy(head) {
            return Self::refuse(name, Refusal::Busy);
        }
        let bp = self.ds(head)?.bp;
        let os = Objset::open(self.mos().objset().cache().clone(), head, &bp, self.mos().options().clone())?;
        let block = os.dnode(ZVOL_OBJ)?.block_size();
        zap::Zap::open(&os.dnode(ZVOL_ZAP_OBJ)?)?.lookup(b"size")?;
        let why = match size {
            0 => PropError::Zero(Prop::Volsize.name()),
            n if !n.is_multiple_of(block) => PropError::NotMultiple(block),
            _ => return Ok(()),
        };
        let property = Prop::Volsize.name().to_owned();
        Err(Error::BadProperty { name: name.to_owned(), property, why })
    }

    /// Sets a value on a directory, with its consequences.
    fn set_prop(&mut self, dir: u64, set: &Setting, source: SetAs) -> Result<()> {
        let prop = Prop::by_name(&set.name);
        match prop {
            Some(Prop::Volsize) => {
                let Value::Number(n) = set.value else { return Ok(()) };
                let head = self.dir(dir)?.head_dataset_obj;
                return self.set_volsize(head, n);
            }
            Some(Prop::FilesystemLimit | Prop::SnapshotLimit) => self.activate_limits(dir)?,
            // Setting zstd activates its feature at once, not with the first block
            // (`dsl_dataset_set_compression`).
            Some(Prop::Compression) if matches!(set.value, Value::Number(n) if n & 0x7f == 16) => {
                match self.dir(dir)?.head_dataset_obj {
                    0 => {}
                    head => self.activate_new(head, "zstd_compress")?,
                }
            }
            _ => {}
        }
        let before = self.reserved_by_head(dir)?;
        self.store_prop(dir, set, source)?;
        self.follow_prop(dir, prop, before)
    }

    fn reserved_by_head(&mut self, dir: u64) -> Result<u64> {
        match self.dir(dir)?.head_dataset_obj {
            0 => Ok(0),
            head => self.refreservation(head),
        }
    }

    /// Updates what a directory keeps of a property outside of its ZAP to the effective value.
    fn follow_prop(&mut self, dir: u64, prop: Option<Prop>, reserved: u64) -> Result<()> {
        match prop {
            Some(Prop::Quota) => {
                let now = self.own_prop(dir, Prop::Quota.name())?.unwrap_or(0);
                self.dir_mut(dir)?.quota = now;
            }
            Some(Prop::Reservation) => {
                let now = self.own_prop(dir, Prop::Reservation.name())?.unwrap_or(0);
                self.set_dir_reserved(dir, now)?;
            }
            Some(Prop::Refreservation) => {
                let head = self.dir(dir)?.head_dataset_obj;
                let unique = if head == 0 { 0 } else { self.ds(head)?.unique_bytes };
                let now = self.reserved_by_head(dir)?;
                let by = now.max(unique).wrapping_sub(reserved.max(unique)) as i64;
                self.diduse(dir, DdUsed::Refrsrv, Delta { used: by, ..Delta::default() })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reserves space in the directory above (`dsl_dir_set_reservation_sync_impl`).
    pub(crate) fn set_dir_reserved(&mut self, dir: u64, reserved: u64) -> Result<()> {
        let d = self.dir(dir)?;
        let by = reserved.max(d.used_bytes).wrapping_sub(d.reserved.max(d.used_bytes)) as i64;
        self.dir_mut(dir)?.reserved = reserved;
        match d.parent_obj {
            0 => Ok(()),
            parent => self.diduse(parent, DdUsed::ChildRsrv, Delta { used: by, ..Delta::default() }),
        }
    }

    /// Ends a head's reservation, whatever its source.
    pub(crate) fn drop_refreservation(&mut self, head: u64) -> Result<()> {
        let before = self.refreservation(head)?;
        if before == 0 {
            return Ok(());
        }
        let dir = self.ds(head)?.dir_obj;
        let object = self.dir(dir)?.props_zapobj;
        let name = Prop::Refreservation.name();
        let zap = self.zap(object)?;
        zap.drop_entry(self.tx, name.as_bytes())?;
        zap.drop_entry(self.tx, format!("{name}{RECEIVED}").as_bytes())?;
        self.follow_prop(dir, Some(Prop::Refreservation), before)
    }

    /// Sets the size of a volume without an owner, and frees what is behind the end.
    fn set_volsize(&mut self, head: u64, size: u64) -> Result<()> {
        let bp = self.ds(head)?.bp;
        let cache = self.mos().objset().cache().clone();
        let heads = self.dsl.heads().clone();
        self.sync_head(head, 1)?;
        let options = self.mos().options();
        let os = match heads.get(head, options) {
            Some(os) => os,
            None => Objset::open_live(cache, head, &bp, options.clone())?,
        };
        let sizes = zap::Zap::open(&os.dnode(ZVOL_ZAP_OBJ)?)?;
        sizes.update(self.tx, b"size", &words(&[size]))?;
        os.dnode(ZVOL_OBJ)?.free_range(self.tx, size, u64::MAX)?;
        heads.enter(head, os, &[]);
        self.sync_head(head, 1)
    }

    /// Counts datasets from this directory down, for its first limit
    /// (`dsl_dir_actv_fs_ss_limit_sync`).
    fn activate_limits(&mut self, dir: u64) -> Result<()> {
        if self.field(dir, ondisk::mos::DD_FILESYSTEM_COUNT)?.is_some() {
            return Ok(());
        }
        if !self.feature_active("filesystem_limits")? {
            self.feature_count("filesystem_limits", 1)?;
        }
        self.count_below(dir).map(|_| ())
    }
}

/// Sets properties of a dataset, all or none (`dsl_props_set`).
#[derive(Debug, Clone)]
pub struct SetProps {
    /// The full name of a dataset or snapshot.
    pub name: String,
    /// The values.
    pub props: PropList,
    /// The source of the values.
    pub source: SetAs,
}

/// Refuses a property whose entry would have a name that no entry can have.
fn check_entry(dataset: &str, property: &str, source: SetAs) -> Result<()> {
    let longest = match source {
        SetAs::Local => property.len(),
        // A marker can hide the received value of a dataset later.
        SetAs::Received if !dataset.contains('@') => property.len() + HIDING.len(),
        SetAs::Received => property.len() + RECEIVED.len(),
    };
    let name = || property.to_owned();
    let why = if longest >= ZAP_MAXNAMELEN {
        PropError::NameTooLong(name())
    } else if property.is_empty() || property.contains('\0') {
        PropError::Unknown(name())
    } else {
        return Ok(());
    };
    Err(Error::BadProperty { name: dataset.to_owned(), property: name(), why })
}

impl SyncTask for SetProps {
    fn need(&self) -> TaskNeed {
        const LIMITS: [Prop; 4] = [Prop::Quota, Prop::Refquota, Prop::Reservation, Prop::Refreservation];
        let limit = |set: &Setting| Prop::by_name(&set.name).is_some_and(|p| LIMITS.contains(&p));
        if self.props.iter().all(limit) {
            return TaskNeed::FREEING;
        }
        // Two blocks each, as in OpenZFS; many small ones share their blocks.
        let bytes = |set: &Setting| match &set.value {
            Value::Number(_) => set.name.len(),
            Value::Text(text) => set.name.len() + text.len(),
        };
        let blocks = 64 + self.props.iter().map(|set| bytes(set) as u64 + 64).sum::<u64>() / 4096;
        TaskNeed::reserved(blocks.min(2 * self.props.len() as u64))
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        for set in &self.props {
            check_entry(&self.name, &set.name, self.source)?;
            if matches!(&set.value, Value::Text(text) if text.len() >= ZFS_MAXPROPLEN) {
                let (property, why) = (set.name.clone(), PropError::TooLong(set.name.clone()));
                return Err(Error::BadProperty { name: self.name.clone(), property, why });
            }
        }
        s.check_props_room(&self.name, &self.props, self.source)?;
        if self.name.contains('@') {
            s.hold_snapshot(&self.name)?;
            if s.version() < SPA_VERSION_SNAP_PROPS {
                return Syncing::refuse(&self.name, Refusal::Feature("snapshot properties"));
            }
            return Ok(());
        }
        let head = s.hold_head(&self.name)?;
        for set in &self.props {
            s.check_prop(head, &self.name, set)?;
        }
        Ok(())
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let text = |v: &Value| match v {
            Value::Number(n) => n.to_string(),
            Value::Text(t) => t.clone(),
        };
        if self.name.contains('@') {
            let (_, snap) = s.hold_snapshot(&self.name)?;
            for set in &self.props {
                s.store_snapshot_prop(snap, set, self.source)?;
                s.log("set", &self.name, snap, format!("{}={}", set.name, text(&set.value)));
            }
            return Ok(());
        }
        let head = s.hold_head(&self.name)?;
        let dir = s.ds(head)?.dir_obj;
        for set in &self.props {
            s.set_prop(dir, set, self.source)?;
            s.log("set", &self.name, head, format!("{}={}", set.name, text(&set.value)));
        }
        Ok(())
    }
}

/// Gives a property its inherited value, or its received one (`dsl_prop_inherit`).
#[derive(Debug, Clone)]
pub struct InheritProp {
    /// The full name of a dataset or snapshot.
    pub name: String,
    /// The property.
    pub property: String,
    /// Whether the received value is to hold, if there is one (`zfs inherit -S`).
    pub received: bool,
}

impl SyncTask for InheritProp {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(2)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        check_entry(&self.name, &self.property, SetAs::Local)?;
        s.check_inherit_room(&self.name, &self.property, self.received)?;
        if let Some(prop) = Prop::by_name(&self.property) {
            let desc = prop.desc();
            let fixed = desc.is_readonly() || (!self.received && !desc.is_inheritable());
            if fixed {
                let why = PropError::NotInheritable(desc.name);
                let property = self.property.clone();
                return Err(Error::BadProperty { name: self.name.clone(), property, why });
            }
        }
        if self.name.contains('@') {
            s.hold_snapshot(&self.name).map(|_| ())
        } else {
            s.hold_head(&self.name).map(|_| ())
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        if self.name.contains('@') {
            let (_, snap) = s.hold_snapshot(&self.name)?;
            let object = s.ds(snap)?.props_obj;
            if object != 0 {
                s.zap(object)?.drop_entry(s.tx, self.property.as_bytes())?;
            }
            s.log("inherit", &self.name, snap, format!("{}=", self.property));
            return Ok(());
        }
        let head = s.hold_head(&self.name)?;
        let dir = s.ds(head)?.dir_obj;
        let before = s.refreservation(head)?;
        s.unset_prop(dir, &self.property, self.received)?;
        s.follow_prop(dir, Prop::by_name(&self.property), before)?;
        s.log("inherit", &self.name, head, format!("{}=", self.property));
        Ok(())
    }
}

/// Removes the received value of a property (`clear_received_props`). A local one stays.
#[derive(Debug, Clone)]
pub struct DropReceived {
    /// The full name of a file system, volume or snapshot.
    pub name: String,
    /// The property.
    pub property: String,
}

impl SyncTask for DropReceived {
    fn need(&self) -> TaskNeed {
        TaskNeed::reserved(2)
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        match self.name.contains('@') {
            true => s.hold_snapshot(&self.name).map(|_| ()),
            false => s.hold_head(&self.name).map(|_| ()),
        }
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        let entry = format!("{}{RECEIVED}", self.property);
        if self.name.contains('@') {
            let (_, snap) = s.hold_snapshot(&self.name)?;
            let object = s.ds(snap)?.props_obj;
            if object != 0 {
                s.zap(object)?.drop_entry(s.tx, entry.as_bytes())?;
            }
            s.log("inherit", &self.name, snap, format!("{}=", self.property));
            return Ok(());
        }
        let head = s.hold_head(&self.name)?;
        let dir = s.ds(head)?.dir_obj;
        let before = s.refreservation(head)?;
        let object = s.dir(dir)?.props_zapobj;
        s.zap(object)?.drop_entry(s.tx, entry.as_bytes())?;
        s.dsl.heads().properties_changed();
        s.follow_prop(dir, Prop::by_name(&self.property), before)?;
        s.log("inherit", &self.name, head, format!("{}=", self.property));
        Ok(())
    }
}
