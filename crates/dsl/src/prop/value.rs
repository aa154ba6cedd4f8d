//! The properties of a dataset, and the sources of their values.
//!
//! # Theory
//! Stored values are in ZAPs: one of each directory, and one of each snapshot that has properties.
//! A name in such a ZAP may have a suffix:
//!
//! | suffix | value |
//! |---|---|
//! | `$recvd` | received |
//! | `$inherit` | hides a received value |
//! | `$iuv` | understood only by newer software |
//!
//! The nearest value upwards holds, if the property is inherited. In addition there are figures
//! computed from the dataset. They keep the source of the stored value, if there is one.

use super::{Kind, PROPS, Prop, PropAttr, PropDesc, PropKind, is_user_property};
use crate::dataset::{Bookmark, Dataset};
use crate::space::ratio;
use crate::{Dsl, Error, Result};
use ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DdUsed, DslDirPhys};
use ondisk::{ObjNum, crypto_key, mos};
use pool::{Mos, ZapValue, string_of};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number, or the number of an index name.
    Number(u64),
    /// A string.
    Text(String),
}

/// The source of a value (`zprop_source_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// None: the value is a fact.
    None,
    /// The default: the property is not set.
    Default,
    /// Set on this dataset.
    Local,
    /// Set on the dataset of this name.
    Inherited(String),
    /// Received here.
    Received,
    /// Overridden by a mount; only the front ends know.
    Temporary,
}

/// A property of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The name.
    pub name: String,
    /// The row of the table; `None` for user properties.
    pub prop: Option<Prop>,
    /// The value.
    pub value: Value,
    /// The source of the value.
    pub source: Source,
}

/// The role of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Suffix {
    Iuv,
    Local,
    Inherit,
    Recvd,
}

/// The values of a property that are stored at one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnValues {
    /// The local value.
    pub local: Option<Value>,
    /// The received value.
    pub received: Option<Value>,
    /// The inherited value holds instead of the received one.
    pub hidden: bool,
}

/// The properties of one ZAP.
#[derive(Debug, Default)]
pub(crate) struct PropZap {
    values: BTreeMap<(String, Suffix), ZapValue>,
    /// Names in the order of the ZAP, each once.
    order: Vec<String>,
}

impl PropZap {
    pub(crate) fn read(mos: &Mos, object: ObjNum) -> Result<Self> {
        let mut out = Self::default();
        if object.0 == 0 {
            return Ok(out);
        }
        let mut seen = BTreeSet::new();
        for e in mos.entries(object)? {
            let e = e?;
            let full = e.name_lossy();
            let (name, suffix) = match full.split_once('$') {
                None => (full.as_str(), Suffix::Local),
                Some((n, "iuv")) => (n, Suffix::Iuv),
                Some((n, "inherit")) => (n, Suffix::Inherit),
                Some((n, "recvd")) => (n, Suffix::Recvd),
                // Suffixes of later releases are ignored, as OpenZFS does.
                Some(_) => continue,
            };
            if seen.insert(name.to_owned()) {
                out.order.push(name.to_owned());
            }
            out.values.insert((name.to_owned(), suffix), e.value);
        }
        Ok(out)
    }

    /// Whether no property is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number that holds here.
    pub(crate) fn number(&self, name: &str, desc: &PropDesc) -> Option<u64> {
        self.effective(name, Some(desc)).and_then(|(v, _)| v.first())
    }

    fn get(&self, name: &str, suffix: Suffix) -> Option<&ZapValue> {
        self.values.get(&(name.to_owned(), suffix))
    }

    /// The value that holds here, and whether it was received.
    fn effective(&self, name: &str, desc: Option<&PropDesc>) -> Option<(&ZapValue, bool)> {
        let known = |v: &&ZapValue| match desc {
            Some(d) if d.kind == PropKind::Index => v.first().is_some_and(|n| d.index_name(n).is_some()),
            _ => true,
        };
        if let Some(v) = self.get(name, Suffix::Iuv).filter(known) {
            return Some((v, false));
        }
        if let Some(v) = self.get(name, Suffix::Local) {
            return Some((v, false));
        }
        if self.get(name, Suffix::Inherit).is_some() {
            return None;
        }
        self.get(name, Suffix::Recvd).map(|v| (v, true))
    }
}

fn value_of(v: &ZapValue) -> Value {
    match string_of(v) {
        Some(s) => Value::Text(s),
        None => Value::Number(v.first().unwrap_or(0)),
    }
}

impl Dataset {
    /// The stored value that holds, and its source; `None` if it is not set (`dsl_prop_get_ds`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): a property ZAP can't be read.
    fn stored(&self, name: &str, desc: Option<&PropDesc>) -> Result<Option<(Value, Source)>> {
        if self.phys().props_obj != 0 && self.is_snapshot() {
            let own = PropZap::read(self.dsl().mos(), ObjNum(self.phys().props_obj))?;
            if let Some((v, received)) = own.effective(name, desc) {
                let source = if received { Source::Received } else { Source::Local };
                return Ok(Some((value_of(v), source)));
            }
        }
        let inheritable = desc.is_none_or(PropDesc::is_inheritable);
        for (i, dir) in self.dir().chain().enumerate() {
            let inheriting = i > 0 || self.is_snapshot();
            if inheriting && !inheritable {
                break;
            }
            if let Some((v, received)) = dir.props()?.effective(name, desc) {
                let source = match (inheriting, received) {
                    (true, _) => Source::Inherited(dir.name().to_owned()),
                    (false, true) => Source::Received,
                    (false, false) => Source::Local,
                };
                return Ok(Some((value_of(v), source)));
            }
        }
        Ok(None)
    }

    /// A native property, stored or computed (`zfs_prop_get`).
    ///
    /// `None` if this dataset does not have the property, or it has no value. This layer does not
    /// know mounts: `mounted` reads as no.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the dataset, or an object with the value, can't be read.
    /// * [`Error::Corrupt`]: the key object is malformed.
    pub fn property(&self, prop: Prop) -> Result<Option<Property>> {
        let desc = prop.desc();
        let Some(kind) = self.kind()? else { return Ok(None) };
        if !desc.is_valid_for(kind) {
            return Ok(None);
        }
        if let Some(head) = self.head_kind()?.filter(|_| self.is_snapshot()) {
            let snapshots_only = desc.types == Kind::Snapshot as u8;
            let numeric = desc.kind != PropKind::String;
            if numeric && !snapshots_only && !desc.is_valid_for(head) {
                return Ok(None);
            }
        }
        let computed = self.computed(prop, kind)?;
        let stored = match &computed {
            // Facts have no source.
            Computed::Fact(_) | Computed::Missing => None,
            Computed::Value(_) | Computed::Stored => self.stored(desc.name, Some(desc))?,
        };
        let value = match (computed, &stored) {
            (Computed::Missing, _) => return Ok(None),
            (Computed::Fact(value), _) => {
                return Ok(Some(Property {
                    name: desc.name.to_owned(),
                    prop: Some(prop),
                    value,
                    source: Source::None,
                }));
            }
            (Computed::Value(v), _) => v,
            (Computed::Stored, Some((v, _))) => v.clone(),
            (Computed::Stored, None) => match default_of(desc) {
                Some(v) => v,
                None => return Ok(None),
            },
        };
        let source = match stored {
            Some((_, source)) => source,
            None if default_of(desc).as_ref() == Some(&value) => Source::Default,
            None if SETTABLE_FIGURES.contains(&prop) => Source::Local,
            None => Source::None,
        };
        let mut out = Property { name: desc.name.to_owned(), prop: Some(prop), value, source };
        if prop == Prop::Mountpoint {
            self.place_mountpoint(&mut out);
        }
        let bad_index = match &out.value {
            Value::Number(n) => desc.kind == PropKind::Index && desc.index_name(*n).is_none(),
            Value::Text(_) => desc.kind != PropKind::String,
        };
        Ok((!bad_index).then_some(out))
    }

    /// Completes a mountpoint.
    ///
    /// An inherited one gets the path from where it is set to here. An alternate root goes before
    /// it.
    fn place_mountpoint(&self, p: &mut Property) {
        let Value::Text(set) = &p.value else { return };
        if !set.starts_with('/') {
            return;
        }
        let below = match &p.source {
            Source::Inherited(from) => self.dir().name().strip_prefix(from.as_str()).unwrap_or(""),
            Source::Default => self.dir().name(),
            Source::None | Source::Local | Source::Received | Source::Temporary => "",
        };
        let below = below.trim_start_matches('/');
        let root = self.dsl().altroot().filter(|r| *r != "/").unwrap_or("");
        let set = if set == "/" && !(root.is_empty() && below.is_empty()) { "" } else { set.as_str() };
        let slash = if below.is_empty() { "" } else { "/" };
        p.value = Value::Text(format!("{root}{set}{slash}{below}"));
    }

    /// A user property; `None` if it is not set.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a property ZAP can't be read.
    pub fn user_property(&self, name: &str) -> Result<Option<Property>> {
        let found = self.stored(name, None)?;
        Ok(found.map(|(value, source)| Property { name: name.to_owned(), prop: None, value, source }))
    }

    /// All properties that `zfs get all` shows (`dsl_prop_get_all`).
    ///
    /// Native properties come first, in their order. User properties follow in the order of their
    /// ZAPs, those set here first.
    ///
    /// # Errors
    /// Those of [`Dataset::property`].
    pub fn properties(&self) -> Result<Vec<Property>> {
        let mut out = Vec::new();
        for desc in PROPS.iter().filter(|d| d.visible) {
            out.extend(self.property(desc.id)?);
        }
        for name in self.user_property_names()? {
            out.extend(self.user_property(&name)?);
        }
        Ok(out)
    }

    /// Names of the user properties that hold here.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a property ZAP can't be read.
    pub fn user_property_names(&self) -> Result<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        let mut take = |zap: &PropZap| {
            for name in zap.order.iter().filter(|n| is_user_property(n)) {
                if zap.effective(name, None).is_some() && seen.insert(name.clone()) {
                    out.push(name.clone());
                }
            }
        };
        if self.phys().props_obj != 0 && self.is_snapshot() {
            take(&PropZap::read(self.dsl().mos(), ObjNum(self.phys().props_obj))?);
        }
        for dir in self.dir().chain() {
            take(&*dir.props()?);
        }
        Ok(out)
    }

    /// The received value of a property, even if a local one hides it (`dsl_prop_get_received`).
    ///
    /// # Errors
    /// * [Reading](Error#reading): the property ZAP can't be read.
    pub fn received(&self, name: &str) -> Result<Option<Value>> {
        let plain = |z: &PropZap| z.get(name, Suffix::Recvd).map(value_of);
        Ok(self.own_props()?.and_then(|zap| plain(&zap)))
    }

    /// The properties that this dataset or snapshot itself has; `None` if there are none.
    fn own_props(&self) -> Result<Option<std::sync::Arc<PropZap>>> {
        Ok(match (self.is_snapshot(), self.phys().props_obj) {
            (true, 0) => None,
            (true, object) => Some(std::sync::Arc::new(PropZap::read(self.dsl().mos(), ObjNum(object))?)),
            (false, _) => Some(self.dir().props()?),
        })
    }

    /// What a directory itself has of a property, so that it can be put back.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the property ZAP can't be read.
    pub fn own_values(&self, name: &str) -> Result<OwnValues> {
        let zap = self.dir().props()?;
        let value = |suffix| zap.get(name, suffix).map(value_of);
        let hidden = zap.get(name, Suffix::Inherit).is_some();
        Ok(OwnValues { local: value(Suffix::Local), received: value(Suffix::Recvd), hidden })
    }

    /// The names of properties that have a received value.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the property ZAP can't be read.
    pub fn received_names(&self) -> Result<Vec<String>> {
        let Some(zap) = self.own_props()? else { return Ok(Vec::new()) };
        let names = zap.order.iter().filter(|name| zap.get(name, Suffix::Recvd).is_some());
        Ok(names.cloned().collect())
    }

    /// The number of a property that is not computed, without a look at what the dataset holds. The
    /// caller knows that such datasets have the property.
    ///
    /// `None` if the stored number has no name, or if snapshots don't have the property and this is
    /// one.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a property ZAP can't be read.
    pub fn stored_number(&self, prop: Prop) -> Result<Option<u64>> {
        let desc = prop.desc();
        if self.is_snapshot() && !desc.is_valid_for(Kind::Snapshot) {
            return Ok(None);
        }
        let number = self.number(prop)?;
        let is_known = desc.kind != PropKind::Index || desc.index_name(number).is_some();
        Ok(is_known.then_some(number))
    }

    /// The effective number of a property that has a default.
    fn number(&self, prop: Prop) -> Result<u64> {
        Ok(match self.stored(prop.name(), Some(prop.desc()))? {
            Some((Value::Number(n), _)) => n,
            _ => prop.desc().default,
        })
    }

    fn computed(&self, prop: Prop, kind: Kind) -> Result<Computed> {
        use Computed::{Fact, Missing, Stored};
        let p = self.phys();
        let d = self.dir().phys();
        let num = |n: u64| Ok(Fact(Value::Number(n)));
        let maybe = |n: Option<u64>| Ok(n.map_or(Missing, |n| Fact(Value::Number(n))));
        let text = |s: Option<String>| Ok(s.map_or(Missing, |s| Fact(Value::Text(s))));
        let set = |n: u64| Ok(Computed::Value(Value::Number(n)));
        let broken_down = |n: u64| maybe((d.flags & DD_FLAG_USED_BREAKDOWN != 0).then_some(n));
        let snap = self.is_snapshot();
        match prop {
            Prop::Type => text(Some(kind.name().to_owned())),
            Prop::Name => text(Some(self.name())),
            Prop::Creation => num(p.creation_time),
            Prop::Used => num(if snap { p.unique_bytes } else { d.used_bytes }),
            Prop::Available => {
                num(self.space_available(self.number(Prop::Refquota)?, self.number(Prop::Refreservation)?))
            }
            Prop::Referenced => num(p.referenced_bytes),
            Prop::Compressratio if snap => num(ratio(p.uncompressed_bytes, p.compressed_bytes)),
            Prop::Compressratio => num(ratio(d.uncompressed_bytes, d.compressed_bytes)),
            Prop::Refratio => num(ratio(p.uncompressed_bytes, p.compressed_bytes)),
            Prop::Mounted => num(0),
            Prop::Origin => text(self.origin()?.map(|o| o.name())),
            Prop::Clones => {
                let names: Vec<String> = self.clones()?.iter().map(Dataset::name).collect();
                text((!names.is_empty()).then(|| names.join(",")))
            }
            Prop::Numclones => num(p.num_children.saturating_sub(1)),
            Prop::Quota => set(d.quota),
            Prop::Reservation => set(d.reserved),
            Prop::Createtxg => num(p.creation_txg.0),
            Prop::Guid => num(p.guid),
            Prop::Unique => num(p.unique_bytes),
            Prop::Objsetid => num(self.object().0),
            Prop::Logicalreferenced => num(p.uncompressed_bytes),
            Prop::Logicalused => num(d.uncompressed_bytes),
            Prop::Usedsnap => broken_down(d.used_by(DdUsed::Snap)),
            Prop::Usedds => broken_down(d.used_by(DdUsed::Head)),
            Prop::Usedrefreserv => broken_down(d.used_by(DdUsed::Refrsrv)),
            Prop::Usedchild => {
                broken_down(d.used_by(DdUsed::Child).saturating_add(d.used_by(DdUsed::ChildRsrv)))
            }
            Prop::Written => maybe(self.written()?),
            Prop::Userrefs => num(self.holds()?.len() as u64),
            Prop::DeferDestroy => num(self.is_deferred().into()),
            Prop::Inconsistent => num(self.is_inconsistent().into()),
            Prop::Redacted => num(self.field(mos::DS_REDACTED_SNAPS)?.is_some().into()),
            Prop::RedactSnaps => text(self.field(mos::DS_REDACTED_SNAPS)?.map(|v| numbers(v.iter()))),
            Prop::SnapshotsChanged => maybe(self.dir().field(mos::DD_SNAPSHOTS_CHANGED)?.filter(|n| *n != 0)),
            Prop::FilesystemCount => set(self.dir().field(mos::DD_FILESYSTEM_COUNT)?.unwrap_or(u64::MAX)),
            Prop::SnapshotCount => set(self.dir().field(mos::DD_SNAPSHOT_COUNT)?.unwrap_or(u64::MAX)),
            Prop::Version | Prop::Normalize | Prop::Utf8only | Prop::Case => maybe(self.zpl_property(prop)?),
            Prop::Volsize | Prop::Volblocksize => self.volume_property(prop),
            Prop::ReceiveResumeToken => text(self.resume_token()?),
            Prop::PrevSnap => text(self.previous_snapshot()?),
            Prop::Useraccounting => num(self.objset()?.is_some_and(|o| o.phys().userused.is_some()).into()),
            Prop::Encryption
            | Prop::Keyformat
            | Prop::Pbkdf2Iters
            | Prop::Pbkdf2Salt
            | Prop::Keystatus
            | Prop::KeyGuid
            | Prop::EncryptionRoot
            | Prop::IvsetGuid => self.crypto_property(prop),
            Prop::Remaptxg => Ok(Missing),
            _ => Ok(Stored),
        }
    }

    fn volume_property(&self, prop: Prop) -> Result<Computed> {
        let found = if self.is_inconsistent() { None } else { self.volume()? };
        Ok(found.map_or(Computed::Missing, |(size, block)| {
            Computed::Value(Value::Number(if prop == Prop::Volsize { size } else { block }))
        }))
    }

    /// A property that the master node keeps; old file systems have the default
    /// (`zfs_get_zplprop`).
    fn zpl_property(&self, prop: Prop) -> Result<Option<u64>> {
        if self.is_inconsistent() || self.head_kind()? != Some(Kind::Filesystem) {
            return Ok(None);
        }
        let name = if prop == Prop::Version { "VERSION" } else { prop.name() };
        Ok(Some(self.master_node(name)?.unwrap_or(prop.desc().default)))
    }

    fn previous_snapshot(&self) -> Result<Option<String>> {
        let object = self.phys().prev_snap_obj;
        if object == 0 || Some(object) == self.dsl().origin_snapshot()? {
            return Ok(None);
        }
        Ok(Some(self.dsl().by_object(ObjNum(object))?.name()))
    }

    fn crypto_property(&self, prop: Prop) -> Result<Computed> {
        let fallback = match prop {
            Prop::Encryption | Prop::Keyformat | Prop::Pbkdf2Iters | Prop::Pbkdf2Salt => Computed::Stored,
            _ => Computed::Missing,
        };
        let Some(key) = self.dir().crypto_object()? else { return Ok(fallback) };
        let mos = self.dsl().mos();
        let fact = |n: Option<u64>| n.map_or(Computed::Missing, |n| Computed::Fact(Value::Number(n)));
        let set = |n: Option<u64>| n.map_or(Computed::Stored, |n| Computed::Value(Value::Number(n)));
        Ok(match prop {
            Prop::Encryption => set(mos.u64(key, crypto_key::SUITE)?),
            Prop::Keyformat | Prop::Pbkdf2Iters | Prop::Pbkdf2Salt => set(mos.u64(key, prop.name())?),
            Prop::KeyGuid => fact(mos.u64(key, crypto_key::GUID)?),
            Prop::Keystatus => fact(Some(self.dsl().keys().status(self.dir())? as u64)),
            Prop::IvsetGuid => fact(self.field_u64(mos::DS_IVSET_GUID)?),
            _ => match self.dir().encryption_root()? {
                Some(root) => Computed::Fact(Value::Text(root.name().to_owned())),
                None => Computed::Missing,
            },
        })
    }
}

/// Settable numbers that are local when not the default, whether or not a value is stored.
const SETTABLE_FIGURES: &[Prop] = &[
    Prop::Canmount,
    Prop::Volsize,
    Prop::Quota,
    Prop::Refquota,
    Prop::Reservation,
    Prop::Refreservation,
    Prop::FilesystemLimit,
    Prop::SnapshotLimit,
    Prop::FilesystemCount,
    Prop::SnapshotCount,
];

/// How the value of a property is found.
enum Computed {
    /// In the property ZAPs.
    Stored,
    /// Computed, with the source of the stored value.
    Value(Value),
    /// Computed, without a source.
    Fact(Value),
    /// Absent.
    Missing,
}

impl Dsl {
    /// The effective number of an inheritable property of a dataset, by the dataset's object
    /// (`dsl_prop_get_int_ds`).
    ///
    /// The object stays the same when the dataset is renamed.
    ///
    /// # Errors
    /// * [Reading](Error#reading): a directory or a property ZAP can't be read.
    pub fn number_for(&self, dataset: ObjNum, prop: Prop) -> Result<u64> {
        let desc = prop.desc();
        let mut at = ObjNum(self.dataset_phys(dataset)?.dir_obj);
        // No directory is deeper than a name can be long.
        for _ in 0..crate::ZFS_MAX_DATASET_NAME_LEN {
            let dn = self.mos().objset().dnode(at)?;
            let dir = DslDirPhys::decode(dn.bonus()).map_err(Error::corrupt(at))?;
            let own = PropZap::read(self.mos(), ObjNum(dir.props_zapobj))?;
            if let Some(number) = own.number(prop.name(), desc) {
                return Ok(number);
            }
            if dir.parent_obj == 0 {
                break;
            }
            at = ObjNum(dir.parent_obj);
        }
        Ok(desc.default)
    }
}

impl Dsl {
    /// Passes on to the cache what of a dataset cache devices may hold (`secondarycache`).
    pub(crate) fn note_second(&self, dataset: ObjNum) {
        let cache = self.mos().objset().cache();
        if !cache.has_devices() {
            return;
        }
        // Other operations report properties that can't be read.
        let second = self.number_for(dataset, Prop::Secondarycache);
        let second = second.map_or(arc::CacheType::All, arc::CacheType::of_number);
        cache.set_secondary_cache(dataset.0, second);
    }

    /// The same for all live datasets, after properties changed or a cache device was added.
    pub fn note_seconds(&self) {
        if self.mos().objset().cache().has_devices() {
            self.heads().live().into_iter().for_each(|object| self.note_second(ObjNum(object)));
        }
    }
}

/// The default of a property; computed ones have none.
fn default_of(desc: &PropDesc) -> Option<Value> {
    if desc.attr == PropAttr::Readonly && !matches!(desc.id, Prop::FilesystemCount | Prop::SnapshotCount) {
        return None;
    }
    match desc.kind {
        PropKind::String => desc.default_str.map(|s| Value::Text(s.to_owned())),
        PropKind::Number | PropKind::Index => Some(Value::Number(desc.default)),
    }
}

fn numbers(w: impl Iterator<Item = u64>) -> String {
    let all: Vec<String> = w.map(|n| n.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(",") }
}

impl Bookmark {
    /// A property of a bookmark; `dataset` is the full name of its dataset.
    ///
    /// # Errors
    /// * [Reading](Error#reading): the redaction list can't be read.
    /// * [`Error::Corrupt`]: the redaction list is malformed.
    pub fn property(&self, dsl: &Dsl, dataset: &str, prop: Prop) -> Result<Option<Property>> {
        let p = &self.phys;
        let full = p.flags & ondisk::bookmark::ZBM_FLAG_HAS_FBN != 0;
        let num = |n: u64| Some(Value::Number(n));
        let value = match prop {
            Prop::Type => Some(Value::Text(Kind::Bookmark.name().to_owned())),
            Prop::Name => Some(Value::Text(format!("{dataset}#{}", self.name))),
            Prop::Creation => num(p.creation_time),
            Prop::Createtxg => num(p.creation_txg),
            Prop::Guid => num(p.guid),
            Prop::IvsetGuid => num(p.ivset_guid),
            Prop::Referenced if full => num(p.referenced_bytes),
            Prop::Logicalreferenced if full => num(p.uncompressed_bytes),
            Prop::RedactSnaps if p.redaction_obj != 0 => {
                let object = ObjNum(p.redaction_obj);
                let dn = dsl.mos().objset().dnode(object)?;
                let spill = dn.spill()?;
                let list = ondisk::bookmark::RedactionListPhys::decode(dn.bonus(), spill.as_deref())
                    .map_err(Error::corrupt(object))?;
                Some(Value::Text(numbers(list.snaps.into_iter())))
            }
            _ => None,
        };
        Ok(value.map(|value| Property {
            name: prop.name().to_owned(),
            prop: Some(prop),
            value,
            source: Source::None,
        }))
    }

    /// All properties of a bookmark that `zfs get all` shows.
    ///
    /// # Errors
    /// Those of [`Bookmark::property`].
    pub fn properties(&self, dsl: &Dsl, dataset: &str) -> Result<Vec<Property>> {
        let mut out = Vec::new();
        for d in PROPS.iter().filter(|d| d.visible && d.is_valid_for(Kind::Bookmark)) {
            out.extend(self.property(dsl, dataset, d.id)?);
        }
        Ok(out)
    }
}
