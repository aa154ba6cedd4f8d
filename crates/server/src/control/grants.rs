//! What `zfs allow` permits other users at root's daemon.
//!
//! # Theory
//! A request of a user that does not own the daemon is decoded before it is answered. Each of its
//! effects needs a permission on a dataset, by the rules of OpenZFS's `zfs_secpolicy_*`. [`needs`]
//! lists these pairs. Requests that are not listed are refused, and a new kind of change does not
//! compile until it is listed.
//!
//! A `zoned` dataset is root's alone. Nothing is granted where the pool's `delegation` is off.
//!
//! Mounting is root's, as on Linux: many changes need the permission `mount`, but it mounts
//! nothing. [`Pools`](crate::pools::Pools) refuses a change that would unmount or mount something
//! for another user, or makes it without the mount.
//!
//! A command line enters the history after the change that it made. So a user who has changed a
//! pool may write one line into its history. The line must be of the command `zfs`, since only its
//! changes can be granted.
//!
//! # Absent
//! Groups that only a directory service or the process itself knows. A peer has the group that the
//! kernel reports, and those of its user in `/etc/group`.

use crate::mounts::plans;
use crate::pools::imported::Imported;
use crate::pools::table::PoolTable;
use crate::replies::of_dsl;
use crate::view::space::{Limited, limited};
use afs::server::store::{NAME, PARTITION};
use api::accounts;
use api::{
    Caller, DatasetChange, DatasetList, DatasetQuery, DiffRequest, Error, MountFailure, PoolChange,
    PropSelect, Reason, SendRequest, Settings, SpaceClass,
};
use dsl::deleg::{self, Credentials};
use dsl::prop::is_user_property;
use dsl::{Prop, Value};
use mount_rules::Where;
use observe::lock::Mutex;
use serde::Deserialize;
use std::collections::BTreeSet;

pub(crate) mod streams;

/// The dataset on which a permission is needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum At<'a> {
    /// This dataset.
    Here(&'a str),
    /// A dataset that exists below this one, or is about to be created there.
    Below(&'a str),
    /// This dataset, in which one is created. If it is created too, the nearest existing parent and
    /// those created on the way.
    Path(&'a str),
    /// This snapshot of this dataset.
    Snapshot(&'a str, &'a str),
}

/// The length that a history line of another user must not reach (`HIS_MAX_RECORD_LEN`).
const HISTORY_LINE_MAX: usize = 8193;

/// A permission that a request needs, and where.
type Need<'a> = (At<'a>, String);

/// The permissions to write one line into a pool's history: (uid, pool).
#[derive(Debug, Default)]
pub struct Tickets(Mutex<BTreeSet<(u32, String)>>);

impl Tickets {
    /// Permits one line, since the caller has changed a dataset of the pool.
    pub fn give(&self, caller: &Caller, dataset: &str) {
        self.0.lock().insert((caller.peer().uid, pool_of(dataset)));
    }

    /// Whether the caller may write a line now. This uses the permission up.
    fn take(&self, caller: &Caller, pool: &str) -> bool {
        self.0.lock().remove(&(caller.peer().uid, pool.to_owned()))
    }
}

fn pool_of(dataset: &str) -> String {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset).to_owned()
}

// The parts of requests' bodies that permissions depend on.

#[derive(Deserialize)]
struct Change {
    change: DatasetChange,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    change: PoolChange,
}

#[derive(Deserialize)]
struct Key {
    request: KeyRequest,
}

#[derive(Deserialize)]
struct KeyRequest {
    dataset: String,
}

#[derive(Deserialize)]
struct OneDataset {
    dataset: String,
}

#[derive(Deserialize)]
struct Diff {
    request: DiffRequest,
}

#[derive(Deserialize)]
struct Send {
    request: SendRequest,
}

#[derive(Deserialize)]
struct Space {
    dataset: String,
    classes: Vec<SpaceClass>,
}

/// Checks whether a caller that does not own the daemon may make this request (`zfs_secpolicy_*`).
///
/// # Errors
/// * [`Reason::Permission`]: a permission is not granted, a dataset is `zoned`, the request can't
///   be granted, or it does not parse.
/// * [`Reason::DelegationOff`]: the pool's `delegation` is off.
/// * [`Reason::NoSuchPool`], [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: the subject does
///   not exist.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the subject can't be read.
pub fn authorize(
    pools: &PoolTable,
    tickets: &Tickets,
    caller: &Caller,
    method: &str,
    body: &[u8],
) -> Result<(), Error> {
    let denied = || Error::new(subject(method, body), Reason::Permission);
    // A request that does not parse is only refused here. The owner would get the parser's message.
    let load_key = |dataset: &str| check(pools, caller, &[(At::Here(dataset), "load-key".to_owned())]);
    match method {
        "change" | "draft" => {
            let asked: Change = serde_json::from_slice(body).map_err(|_| denied())?;
            check_change(pools, caller, &asked.change)
        }
        "change_pool" => match serde_json::from_slice(body) {
            Ok(Line { name, change: PoolChange::Log { command } })
                if command.len() < HISTORY_LINE_MAX
                    && command.starts_with("zfs ")
                    && tickets.take(caller, &name) =>
            {
                Ok(())
            }
            _ => Err(denied()),
        },
        "load_key" => {
            let asked: Key = serde_json::from_slice(body).map_err(|_| denied())?;
            load_key(&asked.request.dataset)
        }
        "unload_key" => {
            let asked: OneDataset = serde_json::from_slice(body).map_err(|_| denied())?;
            load_key(&asked.dataset)
        }
        // OpenZFS destroys what was received in part as any other dataset.
        "receive_abort" => {
            let asked: OneDataset = serde_json::from_slice(body).map_err(|_| denied())?;
            check(pools, caller, &destroyed(&asked.dataset))
        }
        "diff" => {
            let asked: Diff = serde_json::from_slice(body).map_err(|_| denied())?;
            check(pools, caller, &[here(&asked.request.from, "diff"), here(&asked.request.to, "diff")])
        }
        "send_size" => {
            let asked: Send = serde_json::from_slice(body).map_err(|_| denied())?;
            streams::may_send(pools, caller, &asked.request)
        }
        "space" => {
            let asked: Space = serde_json::from_slice(body).map_err(|_| denied())?;
            check(pools, caller, &tables(&asked))
        }
        _ => Err(denied()),
    }
}

/// The permissions to read tables of space: the use and the quotas of users, groups or projects.
fn tables(asked: &Space) -> Vec<Need<'_>> {
    let class = |class: &SpaceClass| match class {
        SpaceClass::User => "user",
        SpaceClass::Group => "group",
        SpaceClass::Project => "project",
    };
    let tables = ["used", "quota", "objused", "objquota"];
    let each = asked.classes.iter().flat_map(|c| tables.map(|table| format!("{}{table}", class(c))));
    each.map(|permission| (At::Here(&asked.dataset), permission)).collect()
}

/// The pool, volume or dataset that a request is about, or else its method.
fn subject(method: &str, body: &[u8]) -> String {
    const NAMES: [&str; 9] =
        ["name", "dataset", "names", "datasets", "snapshot", "snapshots", "first", "from", "pool"];
    fn name_in(value: &serde_json::Value) -> Option<&str> {
        match value {
            serde_json::Value::String(name) => Some(name),
            serde_json::Value::Array(all) => all.first().and_then(name_in),
            serde_json::Value::Object(fields) => NAMES.iter().find_map(|name| name_in(fields.get(*name)?)),
            _ => None,
        }
    }
    let found = serde_json::from_slice::<serde_json::Value>(body).ok();
    let named = found.as_ref().and_then(|body| name_in(body).or_else(|| name_in(body.get("request")?)));
    named.unwrap_or(method).to_owned()
}

/// Checks whether the caller may make this change.
fn check_change(pools: &PoolTable, caller: &Caller, change: &DatasetChange) -> Result<(), Error> {
    if change.subject().is_empty() {
        return Err(Error::new("change", Reason::Permission));
    }
    let origin = match change {
        // The clone itself is read to find its origin.
        DatasetChange::Promote { name } => origin_of(pools, name)?,
        _ => None,
    };
    if let DatasetChange::Allow { name, grants, remove } = change {
        return check_allow(pools, caller, name, grants, *remove);
    }
    if let DatasetChange::SetReceived { snapshots, .. } = change {
        // What is not named is removed, so the names alone do not say what is needed.
        snapshots.iter().try_for_each(|(name, _)| streams::may_append(pools, caller, head_of(name)))?;
    }
    let mut needs = needs(change);
    if let Some(origin) = &origin {
        needs.push((At::Here(origin), "promote".to_owned()));
    }
    check(pools, caller, &needs)
}

/// The permissions that a change needs (`zfs_secpolicy_*`).
fn needs(change: &DatasetChange) -> Vec<Need<'_>> {
    match change {
        DatasetChange::Create { name, props, sparse, parents, .. } => {
            let mut needs = made(name, *parents);
            needs.extend(settings(At::Below(above(name)), props));
            let volume = props.iter().any(|(property, _)| property == "volsize");
            if volume && !sparse {
                needs.push((At::Below(above(name)), "refreservation".to_owned()));
            }
            needs
        }
        DatasetChange::Clone { origin, name, props, parents } => {
            let mut needs = made(name, *parents);
            needs.push(here(origin, "clone"));
            needs.extend(settings(At::Below(above(name)), props));
            needs
        }
        DatasetChange::Destroy { names, .. } | DatasetChange::DestroyBookmarks { names } => {
            names.iter().flat_map(|name| destroyed(name)).collect()
        }
        DatasetChange::Snapshot { names, props } => {
            let userprop = (!props.is_empty()).then_some("userprop");
            let permissions: Vec<&str> = std::iter::once("snapshot").chain(userprop).collect();
            let mut needs = Vec::new();
            for name in names {
                needs.extend(permissions.iter().map(|permission| here(head_of(name), permission)));
            }
            needs
        }
        DatasetChange::Promote { name } => vec![here(name, "promote"), here(name, "mount")],
        DatasetChange::Rename { from, to, parents, .. } => {
            let mut needs = made(to, *parents);
            needs.extend([here(from, "rename"), here(from, "mount")]);
            needs
        }
        // The snapshots of all datasets below are renamed with the first one, without a check of
        // their own.
        DatasetChange::RenameSnapshot { dataset, from, .. } => {
            let mut needs = vec![here(dataset, "create"), here(dataset, "mount")];
            needs.extend(
                ["rename", "mount"].map(|permission| (At::Snapshot(dataset, from), permission.to_owned())),
            );
            needs
        }
        DatasetChange::Rollback { snapshot, destroy, .. } => {
            let mut needs = vec![here(head_of(snapshot), "rollback")];
            needs.extend(destroy.iter().flat_map(|name| destroyed(name)));
            needs
        }
        DatasetChange::Bookmark { name, .. } => vec![here(head_of(name), "bookmark")],
        DatasetChange::Hold { snapshots, .. } => {
            snapshots.iter().map(|name| here(head_of(name), "hold")).collect()
        }
        DatasetChange::Release { snapshots, .. } => {
            snapshots.iter().map(|name| here(head_of(name), "release")).collect()
        }
        DatasetChange::Set { name, props, .. } => settings(At::Here(name), props),
        DatasetChange::SetReceived { snapshots } => {
            snapshots.iter().flat_map(|(name, props)| settings(At::Here(head_of(name)), props)).collect()
        }
        DatasetChange::Inherit { name, prop, .. } => vec![here(name, &permission_to_set(prop))],
        DatasetChange::ChangeKey { name, .. } | DatasetChange::MoveKeys { name, .. } => {
            vec![here(name, "change-key")]
        }
        // `check_allow` checks this change.
        DatasetChange::Allow { name, .. } => vec![here(name, "allow")],
    }
}

/// The need for a permission on an existing dataset.
fn here<'a>(name: &'a str, permission: &str) -> Need<'a> {
    (At::Here(name), permission.to_owned())
}

/// The permissions to create a dataset; with `parents` also its missing parents.
fn made(name: &str, parents: bool) -> Vec<Need<'_>> {
    let at = if parents { At::Path(above(name)) } else { At::Here(above(name)) };
    ["create", "mount"].map(|permission| (at.clone(), permission.to_owned())).into()
}

/// The permissions to destroy something.
fn destroyed(name: &str) -> Vec<Need<'_>> {
    if name.contains('#') {
        return vec![here(head_of(name), "destroy")];
    }
    vec![here(name, "mount"), here(name, "destroy")]
}

fn settings<'a>(at: At<'a>, props: &Settings) -> Vec<Need<'a>> {
    props.iter().map(|(property, _)| (at.clone(), permission_to_set(property))).collect()
}

/// The permission to set a property (`zfs_check_settable`). An unknown name can't be granted, nor
/// can the properties of the AFS server: they name its files, and the volumes it destroys.
fn permission_to_set(property: &str) -> String {
    if [PARTITION, NAME].iter().any(|start| property.starts_with(start)) {
        return property.to_owned();
    }
    if is_user_property(property) {
        return "userprop".to_owned();
    }
    match property.split_once('@') {
        Some((family, _)) if limited(property).is_some() => family.to_owned(),
        _ => Prop::by_name(property).map_or_else(|| property.to_owned(), |prop| prop.name().to_owned()),
    }
}

fn head_of(name: &str) -> &str {
    &name[..name.find(['@', '#']).unwrap_or(name.len())]
}

/// The parent dataset, or the pool's root dataset.
fn above(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(above, _)| above)
}

/// The origin of a clone.
pub(crate) fn origin_of(pools: &PoolTable, name: &str) -> Result<Option<String>, Error> {
    let imported = pools.pool_of(name)?;
    let fail = |e: &dsl::Error| Error::new(name, of_dsl(e));
    imported.pool.spa().read(|| {
        let dataset = imported.pool.dsl().dataset(name).map_err(|e| fail(&e))?;
        let origin = dataset.property(Prop::Origin).map_err(|e| fail(&e))?;
        Ok(origin.and_then(|p| match p.value {
            Value::Text(origin) if !origin.is_empty() => Some(origin),
            _ => None,
        }))
    })
}

/// Checks a change of grants (`dsl_deleg_can_allow`, `dsl_deleg_can_unallow`).
///
/// To grant permissions, a user needs them and `allow`, and can't grant `allow` itself. To revoke,
/// a user needs `allow`, and can revoke only its own.
fn check_allow(
    pools: &PoolTable,
    caller: &Caller,
    name: &str,
    grants: &deleg::Grants,
    remove: bool,
) -> Result<(), Error> {
    let denied = || Error::new(name, Reason::Permission);
    let mut needs = vec![(At::Here(name), "allow".to_owned())];
    for (whom, words) in grants {
        let own =
            whom.starts_with(['u', 'U']) && whom.get(3..) == Some(caller.peer().uid.to_string().as_str());
        if (remove && !own) || (!remove && words.contains("allow")) {
            return Err(denied());
        }
        if !remove {
            needs.extend(words.iter().map(|word| (At::Here(name), word.clone())));
        }
    }
    check(pools, caller, &needs)
}

/// The caller's user and groups, as grants name them.
fn asker(caller: &Caller) -> Credentials {
    let peer = caller.peer();
    Credentials { uid: peer.uid, groups: accounts::groups_of(peer.uid, peer.gid) }
}

/// Checks that all needs are granted. A request without needs does nothing, and is refused.
fn check(pools: &PoolTable, caller: &Caller, needs: &[Need<'_>]) -> Result<(), Error> {
    if needs.is_empty() {
        return Err(Error::new("", Reason::Permission));
    }
    let asker = asker(caller);
    // A request may name the same thing any number of times.
    let needs: BTreeSet<&Need<'_>> = needs.iter().collect();
    for (at, permission) in needs {
        let name = match at {
            At::Here(name) | At::Below(name) | At::Path(name) => (*name).to_owned(),
            At::Snapshot(dataset, snapshot) => format!("{dataset}@{snapshot}"),
        };
        let imported = pools.pool_of(&name)?;
        imported.pool.spa().read(|| granted(&imported, at, &name, permission, &asker))?;
    }
    Ok(())
}

fn granted(
    imported: &Imported,
    at: &At<'_>,
    name: &str,
    permission: &str,
    asker: &Credentials,
) -> Result<(), Error> {
    let fail = |e: &dsl::Error| Error::new(name, of_dsl(e));
    let props = imported.pool.spa().mos().pool_props().map_err(|e| fail(&e.into()))?;
    if props.get("delegation").and_then(|value| value.first()) == Some(0) {
        return Err(Error::new(name, Reason::DelegationOff));
    }
    let mut found = imported.pool.dsl().dataset(name);
    // Missing parents of a new dataset may be created with it.
    let mut path = name;
    while let (Err(dsl::Error::NoSuchDataset { .. }), At::Below(_) | At::Path(_), Some((up, _))) =
        (&found, at, path.rsplit_once('/'))
    {
        path = up;
        found = imported.pool.dsl().dataset(path);
    }
    let dataset = found.map_err(|e| fail(&e))?;
    let zoned = dataset.property(Prop::Zoned).map_err(|e| fail(&e))?;
    if zoned.is_some_and(|p| p.value != Value::Number(0)) {
        return Err(Error::new(name, Reason::Permission));
    }
    let granted = match at {
        // The new parent will have what is granted below.
        At::Path(_) if path != name => match dataset.is_granted(permission, asker) {
            Ok(true) => dataset.is_granted_below(permission, asker),
            denied => denied,
        },
        At::Here(_) | At::Path(_) | At::Snapshot(..) => dataset.is_granted(permission, asker),
        At::Below(_) => dataset.is_granted_below(permission, asker),
    };
    match granted.map_err(|e| fail(&e))? {
        true => Ok(()),
        false => Err(Error::new(name, Reason::Permission)),
    }
}

/// Whether a property shows the use of the caller alone, or of no user.
fn own(asker: &Credentials, property: &str) -> bool {
    match limited(property) {
        None => true,
        Some(Limited::By(_, id)) if property.starts_with("user") => id == asker.uid,
        Some(Limited::By(_, id)) if property.starts_with("group") => asker.groups.contains(&id),
        Some(_) => false,
    }
}

/// The query without the properties that the caller may not read. The use and quotas of other users
/// need a permission (`zfs_secpolicy_userspace_one`).
pub(crate) fn visible(pools: &PoolTable, caller: &Caller, query: &DatasetQuery) -> DatasetQuery {
    let mut query = query.clone();
    if caller.owns() {
        return query;
    }
    let asker = asker(caller);
    let root = query.root.clone();
    let granted = |property: &str| {
        let needed = root.as_deref().map(|root| vec![here(root, &permission_to_set(property))]);
        needed.is_some_and(|needed| check(pools, caller, &needed).is_ok())
    };
    if let PropSelect::Named(names) = &mut query.props {
        names.retain(|name| own(&asker, name) || granted(name));
    }
    query
}

/// Removes properties from an answer that the caller may read at the query's root, but not at a
/// dataset below.
pub(crate) fn hide(pools: &PoolTable, caller: &Caller, query: &DatasetQuery, list: &mut DatasetList) {
    if caller.owns() {
        return;
    }
    let asker = asker(caller);
    for dataset in list.datasets.iter_mut().filter(|d| Some(&d.name) != query.root.as_ref()) {
        let name = dataset.name.clone();
        let granted =
            |property: &str| check(pools, caller, &[here(&name, &permission_to_set(property))]).is_ok();
        dataset.props.retain(|prop| own(&asker, &prop.name) || granted(&prop.name));
    }
}

/// Checks whether file systems may be unmounted for a change.
///
/// A file system that is rolled back stays mounted at its place. If it were mounted again, root's
/// daemon would do so at its `mountpoint`, which may be another user's choice by a grant.
///
/// # Errors
/// * [`Reason::Permission`]: something is mounted, and the caller may not unmount.
pub(crate) fn may_unmount(caller: &Caller, mounted: &[String]) -> Result<(), Error> {
    match mounted.first() {
        Some(name) if !caller.mounts() => Err(Error::new(name, Reason::Permission)),
        _ => Ok(()),
    }
}

/// The file systems that a change leaves unmounted because of its caller; `None` if the caller may
/// mount.
pub(crate) fn left_unmounted(
    caller: &Caller,
    imported: &Imported,
    names: &[String],
) -> Option<Vec<MountFailure>> {
    if caller.mounts() {
        return None;
    }
    let mountable = |name: &&String| {
        let found = plans(imported.pool.dsl(), Some(name), false, &[], 1, &|| {}).unwrap_or_default().plans;
        found.iter().any(|plan| plan.obstacle(false, false).is_none() && matches!(plan.place, Where::Path(_)))
    };
    let failure =
        |name: &String| MountFailure { name: name.clone(), error: Error::new(name, Reason::Permission) };
    Some(names.iter().filter(mountable).map(failure).collect())
}

#[cfg(test)]
mod tests;
