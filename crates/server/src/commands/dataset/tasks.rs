//! Sync tasks for requests.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dsl::ops::bookmark::{CreateBookmarks, DestroyBookmarks};
use dsl::ops::create::Create;
use dsl::ops::deleg::{MadeBy, SetGrants};
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::hold::{HoldSnapshots, ReleaseSnapshots};
use dsl::ops::key::{ChangeKey, MoveKeys};
use dsl::ops::promote::Promote;
use dsl::ops::props::{DropReceived, InheritProp, SetAs, SetProps};
use dsl::ops::rename::{Rename, RenameSnapshot};
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::prop::parse::{Context, number, setting};
use dsl::{Contents, Dsl, Kind, Prop, PropError, PropList, SyncTask, Value};
use ondisk::version::newest_zpl;
use ondisk::{SPA_MAXBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};
use zpl::{CaseSensitivity, NewFileSystem};

use crate::commands::dataset::{Task, keys, volume};
use crate::replies::of_dsl;
use api::{Caller, DatasetChange, DatasetKind, Error, KeyMaterial, Reason, Settings};

/// The newest version of file systems (`ZPL_VERSION`).
pub(crate) const ZPL_VERSION: u64 = 5;

/// The first version that stores how it treats names (`ZPL_VERSION_NORMALIZATION`).
const ZPL_VERSION_NORMALIZATION: u64 = 3;

/// Whether count limits apply to the caller (`dsl_enforce_ds_ss_limits`). They apply neither to
/// root nor to the daemon's own user.
fn enforce_limits(caller: &Caller) -> bool {
    !caller.owns()
}

/// The operations for a request.
pub struct Planned {
    /// The operations, in order.
    pub tasks: Vec<Task>,
    /// The subject of each operation.
    pub about: Vec<String>,
    /// The file systems and volumes that are created, parents first.
    pub made: Vec<String>,
}

impl Planned {
    fn new() -> Self {
        Self { tasks: Vec::new(), about: Vec::new(), made: Vec::new() }
    }

    /// One operation.
    pub fn one(about: &str, task: impl SyncTask + Send + 'static) -> Self {
        let mut planned = Self::new();
        planned.push(about, task);
        planned
    }

    fn push(&mut self, about: &str, task: impl SyncTask + Send + 'static) {
        self.tasks.push(Box::new(task));
        self.about.push(about.to_owned());
    }
}

/// The bytes, as the pool counts them, that a number of blocks of a size take on its vdevs
/// (`volsize_from_vdevs`).
pub type Room<'a> = &'a dyn Fn(u64, u64) -> u64;

/// The operations for a caller's request. `room` gives the space that blocks take.
///
/// # Errors
/// * [`Reason::System`] (`EINVAL`): a new name contains `%`.
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: a dataset does not exist, or can't.
/// * [`Reason::BadType`]: the request does not fit the kind of the dataset.
/// * [`Reason::BadProperty`]: there is no such property.
/// * [`Reason::BadValue`]: a value is not valid, or does not fit the others, in OpenZFS's words.
/// * [`Reason::BadKey`]: a key is malformed.
/// * [`Reason::Io`], [`Reason::Corrupt`]: a dataset can't be read.
pub fn plan(caller: &Caller, dsl: &Dsl, room: Room<'_>, change: &DatasetChange) -> Result<Planned, Error> {
    check_name(change)?;
    match change {
        DatasetChange::Create { name, kind, props, sparse, parents, key, .. } => {
            let mut planned = if *parents { ancestors(caller, dsl, room, name)? } else { Planned::new() };
            let head = new_head(caller, dsl, name, *kind, props, (room, *sparse), key.as_ref())?;
            planned.push(name, made_by(caller, name, head));
            planned.made.push(name.clone());
            Ok(planned)
        }
        DatasetChange::Clone { origin, name, props, parents } => {
            clone(caller, dsl, room, (origin, name, props), *parents)
        }
        DatasetChange::Destroy { names, defer, .. } => Ok(destroy(names, *defer)),
        DatasetChange::DestroyBookmarks { names } => {
            Ok(Planned::one(change.subject(), DestroyBookmarks { names: names.clone() }))
        }
        DatasetChange::Snapshot { names, props } => {
            let props = settings(dsl, change.subject(), Kind::Snapshot, true, props)?;
            Ok(Planned::one(
                change.subject(),
                Snapshot { names: names.clone(), props, enforce_limits: enforce_limits(caller) },
            ))
        }
        DatasetChange::Promote { name } => {
            Ok(Planned::one(name, Promote { name: name.clone(), enforce_limits: enforce_limits(caller) }))
        }
        DatasetChange::Rename { from, to, parents, .. } => {
            let mut planned = if *parents { ancestors(caller, dsl, room, to)? } else { Planned::new() };
            planned.push(
                from,
                Rename { old: from.clone(), new: to.clone(), enforce_limits: enforce_limits(caller) },
            );
            Ok(planned)
        }
        DatasetChange::RenameSnapshot { dataset, from, to, recursive } => {
            let (dataset, old, new, recursive) = (dataset.clone(), from.clone(), to.clone(), *recursive);
            Ok(Planned::one(change.subject(), RenameSnapshot { dataset, old, new, recursive }))
        }
        DatasetChange::Rollback { snapshot, destroy: first, .. } => {
            let head = snapshot.split('@').next().unwrap_or(snapshot);
            let mut planned = destroy(first, false);
            planned.push(head, Rollback { name: head.to_owned(), to: Some(snapshot.clone()) });
            Ok(planned)
        }
        DatasetChange::Bookmark { source, name } => {
            Ok(Planned::one(name, CreateBookmarks { pairs: vec![(name.clone(), source.clone())] }))
        }
        DatasetChange::Hold { snapshots, tag } => {
            Ok(Planned::one(change.subject(), HoldSnapshots { holds: pairs(snapshots, tag) }))
        }
        DatasetChange::Release { snapshots, tag } => {
            Ok(Planned::one(change.subject(), ReleaseSnapshots { holds: pairs(snapshots, tag) }))
        }
        DatasetChange::Set { name, props, .. } => set(dsl, room, name, props),
        DatasetChange::SetReceived { snapshots } => set_received(dsl, snapshots),
        DatasetChange::Inherit { name, prop, received } => {
            let task = InheritProp { name: name.clone(), property: prop.clone(), received: *received };
            Ok(Planned::one(name, task))
        }
        DatasetChange::ChangeKey { name, key, props } => change_key(dsl, name, key.as_ref(), props),
        DatasetChange::MoveKeys { name, own } => {
            Ok(Planned::one(name, MoveKeys { name: name.clone(), own: *own }))
        }
        DatasetChange::Allow { name, grants, remove } => {
            let (grants, remove) = (grants.clone(), *remove);
            Ok(Planned::one(name, SetGrants { name: name.clone(), grants, remove }))
        }
    }
}

/// Refuses names with `%` and `$`: they belong to the engine, and are never listed (`%recv`,
/// `$MOS`).
///
/// # Errors
/// * [`Reason::System`] (`EINVAL`): a new name contains `%`, or what is renamed or promoted; or a
///   name contains `$`.
fn check_name(change: &DatasetChange) -> Result<(), Error> {
    let errno = rustix::io::Errno::INVAL.raw_os_error();
    let refuse = |name: &str| Err(Error::new(name, Reason::System { errno }));
    if change.subject().contains('$') {
        return refuse(change.subject());
    }
    match change {
        DatasetChange::Create { name, .. }
        | DatasetChange::Clone { name, .. }
        | DatasetChange::Promote { name }
            if name.contains('%') =>
        {
            refuse(name)
        }
        DatasetChange::Rename { from, to, .. } if from.contains('%') || to.contains('%') => refuse(from),
        DatasetChange::RenameSnapshot { dataset, from, to, .. }
            if [dataset, from, to].iter().any(|name| name.contains('%')) =>
        {
            refuse(dataset)
        }
        _ => Ok(()),
    }
}

/// The operations that clone the snapshot `origin` as `name`; with `parents` also those that create
/// its missing parents.
///
/// # Errors
/// See [`plan`].
fn clone(
    caller: &Caller,
    dsl: &Dsl,
    room: Room<'_>,
    (origin, name, props): (&str, &str, &Settings),
    parents: bool,
) -> Result<Planned, Error> {
    let kind = kind_of(dsl, origin.split('@').next().unwrap_or(origin))?;
    let mut planned = if parents { ancestors(caller, dsl, room, name)? } else { Planned::new() };
    keys::check_clone(name, props)?;
    let mut props = settings(dsl, name, kind, true, props)?;
    if kind == Kind::Volume {
        volume::reserve(dsl, origin, &mut props, room)?;
    }
    let task = dsl::ops::clone::Clone {
        name: name.to_owned(),
        origin: origin.to_owned(),
        props,
        enforce_limits: enforce_limits(caller),
    };
    planned.push(name, made_by(caller, name, task));
    planned.made.push(name.to_owned());
    Ok(planned)
}

/// The operation that sets properties of a dataset. A volume's reservation follows its size.
///
/// # Errors
/// See [`plan`].
fn set(dsl: &Dsl, room: Room<'_>, name: &str, props: &Settings) -> Result<Planned, Error> {
    let kind = kind_of(dsl, name)?;
    let mut props = settings(dsl, name, kind, false, props)?;
    if kind == Kind::Volume {
        volume::reserve(dsl, name, &mut props, room)?;
    }
    Ok(Planned::one(name, SetProps { name: name.to_owned(), props, source: SetAs::Local }))
}

/// The operations that make the received properties of snapshots these. Snapshots that already have
/// them need none.
///
/// # Errors
/// * [`Reason::Io`], [`Reason::Corrupt`]: a snapshot's properties can't be read.
fn set_received(dsl: &Dsl, snapshots: &[(String, Settings)]) -> Result<Planned, Error> {
    let mut planned = Planned::new();
    let context = Context { kind: Kind::Snapshot, creating: false, max_block: SPA_OLD_MAXBLOCKSIZE };
    for (name, props) in snapshots {
        let failed = |error: &dsl::Error| Error::new(name, of_dsl(error));
        let dataset = match dsl.dataset(name) {
            Ok(dataset) if dataset.is_snapshot() => dataset,
            Ok(_) | Err(dsl::Error::NoSuchDataset { .. }) => continue,
            Err(error) => return Err(failed(&error)),
        };
        let mut wanted: PropList =
            props.iter().filter_map(|(property, text)| setting(property, text, context).ok()).collect();
        for property in dataset.received_names().map_err(|error| failed(&error))? {
            if !wanted.iter().any(|set| set.name == property) {
                planned.push(name, DropReceived { name: name.clone(), property });
            }
        }
        wanted.retain(|set| dataset.received(&set.name).ok().flatten().as_ref() != Some(&set.value));
        if !wanted.is_empty() {
            planned.push(name, SetProps { name: name.clone(), props: wanted, source: SetAs::Received });
        }
    }
    Ok(planned)
}

/// The operation that gives an encryption root another key, or its parent's.
///
/// # Errors
/// See [`plan`].
fn change_key(dsl: &Dsl, name: &str, key: Option<&KeyMaterial>, props: &Settings) -> Result<Planned, Error> {
    keys::check_change(name, props)?;
    settings(dsl, name, kind_of(dsl, name)?, true, props)?;
    let key = key.map(|key| keys::new_key(name, key, props)).transpose()?;
    Ok(Planned::one(name, ChangeKey { name: name.to_owned(), key }))
}

/// The task for a dataset that is created for the caller.
fn made_by<T: SyncTask>(caller: &Caller, name: &str, task: T) -> MadeBy<T> {
    MadeBy { task, name: name.to_owned(), uid: caller.peer().uid }
}

fn pairs(snapshots: &[String], tag: &str) -> Vec<(String, String)> {
    snapshots.iter().map(|snapshot| (snapshot.clone(), tag.to_owned())).collect()
}

/// Destroys in this order. Neighbouring snapshots form one operation, even thousands of them.
fn destroy(names: &[String], defer: bool) -> Planned {
    let mut planned = Planned::new();
    for run in names.chunk_by(|a, b| a.contains('@') && b.contains('@')) {
        let Some(first) = run.first() else { continue };
        if first.contains('@') {
            planned.push(first, DestroySnapshots { names: run.to_vec(), defer });
        } else if first.contains('#') {
            planned.push(first, DestroyBookmarks { names: run.to_vec() });
        } else {
            planned.push(first, DestroyHead { name: first.clone() });
        }
    }
    planned
}

/// The kind of a dataset.
fn kind_of(dsl: &Dsl, name: &str) -> Result<Kind, Error> {
    let fail = |e: &dsl::Error| Error::new(name, of_dsl(e));
    let dataset = dsl.dataset(name).map_err(|e| fail(&e))?;
    let kind = dataset.kind().map_err(|e| fail(&e))?;
    kind.ok_or_else(|| Error::new(name, Reason::BadType))
}

/// Creates the missing parents of a dataset.
fn ancestors(caller: &Caller, dsl: &Dsl, room: Room<'_>, name: &str) -> Result<Planned, Error> {
    let mut planned = Planned::new();
    for (at, _) in name.match_indices('/') {
        let above = &name[..at];
        match dsl.dir(above) {
            Ok(_) => {}
            Err(dsl::Error::NoSuchDataset { .. }) => {
                let none = Settings::new();
                let head = new_head(caller, dsl, above, DatasetKind::Filesystem, &none, (room, false), None)?;
                planned.push(above, made_by(caller, above, head));
                planned.made.push(above.to_owned());
            }
            Err(e) => return Err(Error::new(above, of_dsl(&e))),
        }
    }
    Ok(planned)
}

/// Checks properties, and returns them as they are stored. `name` is a dataset, or one to create.
///
/// # Errors
/// * [`Reason::BadValue`]: a property or value is not valid, in OpenZFS's words.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the pool's features can't be read.
pub fn settings(
    dsl: &Dsl,
    name: &str,
    kind: Kind,
    creating: bool,
    props: &Settings,
) -> Result<PropList, Error> {
    let large = dsl.mos().features().map_err(|e| Error::new(name, of_dsl(&e.into())))?;
    let large = large.is_enabled("org.open-zfs:large_blocks");
    let max_block = if large { SPA_MAXBLOCKSIZE } else { SPA_OLD_MAXBLOCKSIZE };
    settings_in(name, Context { kind, creating, max_block }, props)
}

/// The same as [`settings`], in a known context.
///
/// # Errors
/// * [`Reason::BadValue`]: a property or value is not valid, in OpenZFS's words.
pub(crate) fn settings_in(name: &str, context: Context, props: &Settings) -> Result<PropList, Error> {
    let each = |(property, text): &(String, String)| {
        setting(property, text, context).map_err(|why| bad_value(name, &why))
    };
    props.iter().map(each).collect()
}

/// The error for a value that is not valid, in OpenZFS's words.
pub(crate) fn bad_value(name: &str, why: &PropError) -> Error {
    Error::new(name, Reason::BadValue { what: why.to_string() })
}

/// The number that a list sets a property to.
pub(crate) fn number_of(list: &PropList, prop: Prop) -> Option<u64> {
    list.iter().find(|s| s.name == prop.name()).and_then(|s| match s.value {
        Value::Number(n) => Some(n),
        Value::Text(_) => None,
    })
}

/// The properties that a dataset would have after its creation. Needs no parent dataset.
///
/// # Errors
/// * [`Reason::BadType`]: the change creates no file system or volume.
/// * [`Reason::BadValue`]: a property or value is not valid, in OpenZFS's words.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the pool's features can't be read.
pub fn draft(dsl: &Dsl, room: Room<'_>, change: &DatasetChange) -> Result<Settings, Error> {
    let DatasetChange::Create { name, kind, props, sparse, .. } = change else {
        return Err(Error::new(change.subject(), Reason::BadType));
    };
    let mut drafted = props.clone();
    match kind {
        DatasetKind::Volume => {
            let mut list = settings(dsl, name, Kind::Volume, true, props)?;
            volume::new(name, &mut list, room, (*sparse, dsl.mos().version()))?;
            let by = volume::kept_by(dsl.mos().version());
            if let Some(n) = number_of(&list, by).filter(|_| !props.iter().any(|(p, _)| p == by.name())) {
                drafted.push((by.name().to_owned(), n.to_string()));
            }
        }
        _ => {
            settings(dsl, name, Kind::Filesystem, true, props)?;
        }
    }
    Ok(drafted)
}

fn new_head(
    caller: &Caller,
    dsl: &Dsl,
    name: &str,
    kind: DatasetKind,
    given: &Settings,
    (room, sparse): (Room<'_>, bool),
    key: Option<&KeyMaterial>,
) -> Result<Create, Error> {
    let (contents, props): (Arc<dyn Contents>, _) = match kind {
        DatasetKind::Filesystem => {
            let props = settings(dsl, name, Kind::Filesystem, true, given)?;
            (Arc::new(new_file_system(caller, dsl, name, &props)?), props)
        }
        DatasetKind::Volume => {
            let mut props = settings(dsl, name, Kind::Volume, true, given)?;
            let volume = volume::new(name, &mut props, room, (sparse, dsl.mos().version()))?;
            (Arc::new(volume), props)
        }
        DatasetKind::Snapshot | DatasetKind::Bookmark => return Err(Error::new(name, Reason::BadType)),
    };
    let crypt = keys::new_crypt(name, key, given)?;
    Ok(Create { name: name.to_owned(), contents, props, crypt, enforce_limits: enforce_limits(caller) })
}

/// The version of a new file system in a pool of version `spa` (`zfs_fill_zplprops`).
///
/// Before version 3, a file system can't store how it treats names.
///
/// # Errors
/// * [`Reason::BadValue`]: the version does not exist, or can't have a property for names that
///   `props` sets.
pub(crate) fn version_of(name: &str, props: &PropList, spa: u64) -> Result<u64, Error> {
    let newest = newest_zpl(spa);
    let version = number_of(props, Prop::Version).filter(|v| *v != 0).unwrap_or(newest);
    let names = [Prop::Normalize, Prop::Utf8only, Prop::Case];
    let too_old = version < ZPL_VERSION_NORMALIZATION && names.iter().any(|p| number_of(props, *p).is_some());
    if version > newest || too_old { Err(self::too_old(name)) } else { Ok(version) }
}

/// The error for what a pool or file system of an old version can't have.
pub(crate) fn too_old(name: &str) -> Error {
    let what = "pool and or dataset must be upgraded to set this property or value".to_owned();
    Error::new(name, Reason::BadValue { what })
}

/// A new file system. Its fixed properties come from `props`, or from its nearest existing parent.
fn new_file_system(caller: &Caller, dsl: &Dsl, name: &str, props: &PropList) -> Result<NewFileSystem, Error> {
    let above = above(dsl, name)?;
    let fixed = |prop: Prop| -> Result<u64, Error> {
        if let Some(n) = number_of(props, prop) {
            return Ok(n);
        }
        let Some(above) = &above else { return Ok(prop.desc().default) };
        let property = above.property(prop).map_err(|e| Error::new(name, of_dsl(&e)))?;
        Ok(match property.map(|p| p.value) {
            Some(Value::Number(n)) => n,
            Some(Value::Text(_)) | None => prop.desc().default,
        })
    };
    Ok(NewFileSystem {
        version: version_of(name, props, dsl.mos().version())?,
        ..file_system(caller, fixed)?
    })
}

/// A new file system of the caller. `fixed` gives the properties that never change.
///
/// # Errors
/// Those of `fixed`.
pub(crate) fn file_system(
    caller: &Caller,
    mut fixed: impl FnMut(Prop) -> Result<u64, Error>,
) -> Result<NewFileSystem, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let normalization = fixed(Prop::Normalize)?;
    let maker = caller.peer();
    Ok(NewFileSystem {
        uid: maker.uid.into(),
        gid: maker.gid.into(),
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

/// The nearest existing parent of a name.
fn above(dsl: &Dsl, name: &str) -> Result<Option<dsl::Dataset>, Error> {
    let mut path = name;
    while let Some((up, _)) = path.rsplit_once('/') {
        match dsl.dataset(up) {
            Ok(dataset) => return Ok(Some(dataset)),
            Err(dsl::Error::NoSuchDataset { .. }) => path = up,
            Err(e) => return Err(Error::new(up, of_dsl(&e))),
        }
    }
    Ok(None)
}

/// A size as the user writes it.
///
/// # Errors
/// * [`Reason::BadValue`]: it is not a size, in OpenZFS's words.
pub fn size(name: &str, text: &str) -> Result<u64, Error> {
    number(text).map_err(|why| bad_value(name, &why))
}
