//! What `zfs allow` lets other users ask of root's daemon.
//!
//! # Theory
//! A request of somebody who is neither root nor the daemon's own user is read before it is answered, and each thing that it would do is held
//! against what is granted on the datasets it names, by the rules of OpenZFS's `zfs_secpolicy_*`: [`needs`] lists them as pairs of a dataset and a
//! permission. What is not listed is refused; a new kind of change doesn't compile until it is. A `zoned` dataset is root's alone, and nothing is granted where the
//! pool's `delegation` is off.
//!
//! Mounting is root's, as on Linux: `mount` is needed for much, and mounts nothing. What would unmount or mount something for another user is refused
//! by [`Pools`](crate::pools::Pools), or is done but for the mount.
//!
//! A command line goes into the history after the change that it made: who has changed a pool may
//! write one line into its history, of the command `zfs`, which is all that can be granted.
//!
//! # Absent
//! Groups that only a directory service or the process itself knows: a peer has the group that the kernel tells, and those of its user in
//! `/etc/group`.

use crate::faults::of_dsl;
use crate::mounts::plans;
use crate::pools::{Imported, Pools};
use crate::view::space::{Limited, limited};
use api::accounts;
use api::plan::Where;
use api::{
    Caller, DatasetChange, DatasetList, DatasetQuery, DiffRequest, Error, MountFailure, PoolChange,
    PropSelect, Reason, Settings, SpaceClass,
};
use dsl::deleg::{self, Asker};
use dsl::prop::is_user_property;
use dsl::{Prop, Value};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Where a permission is needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum At<'a> {
    /// On this dataset.
    Here(&'a str),
    /// On a dataset that is to be made below this one, or is made already.
    Below(&'a str),
    /// On this dataset, in which one is to be made; or, if it is to be made too, on the one that is there, and on those that are made on the way.
    Path(&'a str),
    /// On this snapshot of this dataset.
    Snapshot(&'a str, &'a str),
}

/// Bytes that a line of another user in a history ends before (`HIS_MAX_RECORD_LEN`).
const HISTORY_LINE_MAX: usize = 8193;

/// A permission that a request needs.
type Need<'a> = (At<'a>, String);

/// Who may write a line into the history of which pool.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<BTreeSet<(u32, String)>>);

impl Tickets {
    /// The caller has changed something of a dataset's pool.
    pub fn give(&self, caller: &Caller, dataset: &str) {
        self.0.lock().insert((caller.peer().uid, pool_of(dataset)));
    }

    /// Whether the caller may write a line now; once.
    fn take(&self, caller: &Caller, pool: &str) -> bool {
        self.0.lock().remove(&(caller.peer().uid, pool.to_owned()))
    }
}

fn pool_of(dataset: &str) -> String {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset).to_owned()
}

/// Whether a caller that is neither root nor the daemon's own user may have this request answered.
///
/// # Errors
/// [`Reason::Permission`]; [`Reason::DelegationOff`]; what is asked about does not exist or can't be read.
pub fn authorize(
    pools: &Pools,
    tickets: &Tickets,
    caller: &Caller,
    method: &str,
    body: &[u8],
) -> Result<(), Error> {
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
    struct Space {
        dataset: String,
        classes: Vec<SpaceClass>,
    }
    let denied = || Error::new(subject(method, body), Reason::Permission);
    // What does not parse is told so by who would answer it; here it is only not allowed.
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
        "diff" => {
            let asked: Diff = serde_json::from_slice(body).map_err(|_| denied())?;
            check(pools, caller, &[here(&asked.request.from, "diff"), here(&asked.request.to, "diff")])
        }
        "space" => {
            let asked: Space = serde_json::from_slice(body).map_err(|_| denied())?;
            let class = |class: &SpaceClass| match class {
                SpaceClass::User => "user",
                SpaceClass::Group => "group",
                SpaceClass::Project => "project",
            };
            let tables = ["used", "quota", "objused", "objquota"];
            let each = asked.classes.iter().flat_map(|c| tables.map(|table| format!("{}{table}", class(c))));
            let needs: Vec<Need<'_>> =
                each.map(|permission| (At::Here(&asked.dataset), permission)).collect();
            check(pools, caller, &needs)
        }
        _ => Err(denied()),
    }
}

/// The pool, volume or dataset that a request is about; the method where it names none.
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

/// Whether the caller may make this change.
fn check_change(pools: &Pools, caller: &Caller, change: &DatasetChange) -> Result<(), Error> {
    if change.subject().is_empty() {
        return Err(Error::new("change", Reason::Permission));
    }
    let origin = match change {
        // Its own name is looked up to find whose clone it is.
        DatasetChange::Promote { name } => origin_of(pools, name)?,
        _ => None,
    };
    if let DatasetChange::Allow { name, grants, remove } = change {
        return check_allow(pools, caller, name, grants, *remove);
    }
    let mut needs = needs(change);
    if let Some(origin) = &origin {
        needs.push((At::Here(origin), "promote".to_owned()));
    }
    check(pools, caller, &needs)
}

/// What a change needs (`zfs_secpolicy_*`).
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
        // The snapshots of all datasets below are renamed with that of the first one, and nobody is asked about them.
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
        DatasetChange::Inherit { name, prop, .. } => vec![here(name, &permission_to_set(prop))],
        DatasetChange::ChangeKey { name, .. } => vec![here(name, "change-key")],
        // Checked by itself.
        DatasetChange::Allow { name, .. } => vec![here(name, "allow")],
    }
}

/// A permission on a dataset that is there.
fn here<'a>(name: &'a str, permission: &str) -> Need<'a> {
    (At::Here(name), permission.to_owned())
}

/// What it takes to make a dataset; with `parents` also those above it that are missing.
fn made(name: &str, parents: bool) -> Vec<Need<'_>> {
    let at = if parents { At::Path(above(name)) } else { At::Here(above(name)) };
    ["create", "mount"].map(|permission| (at.clone(), permission.to_owned())).into()
}

/// What it takes to destroy something.
fn destroyed(name: &str) -> Vec<Need<'_>> {
    if name.contains('#') {
        return vec![here(head_of(name), "destroy")];
    }
    vec![here(name, "mount"), here(name, "destroy")]
}

fn settings<'a>(at: At<'a>, props: &Settings) -> Vec<Need<'a>> {
    props.iter().map(|(property, _)| (at.clone(), permission_to_set(property))).collect()
}

/// The permission that it takes to set a property (`zfs_check_settable`). A name that is none is granted to nobody.
fn permission_to_set(property: &str) -> String {
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

/// The dataset above; a pool's own where there is none.
fn above(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(above, _)| above)
}

/// The snapshot that a clone was made of.
fn origin_of(pools: &Pools, name: &str) -> Result<Option<String>, Error> {
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

/// Who hands permissions on has them, and `allow`, which he can't hand on; who takes some back takes his own (`dsl_deleg_can_allow`,
/// `dsl_deleg_can_unallow`).
fn check_allow(
    pools: &Pools,
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

/// The caller, as grants name users and groups.
fn asker(caller: &Caller) -> Asker {
    let peer = caller.peer();
    Asker { uid: peer.uid, groups: accounts::groups_of(peer.uid, peer.gid) }
}

/// Whether everything that is needed is granted. What needs nothing does nothing, and is refused.
fn check(pools: &Pools, caller: &Caller, needs: &[Need<'_>]) -> Result<(), Error> {
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
    asker: &Asker,
) -> Result<(), Error> {
    let fail = |e: &dsl::Error| Error::new(name, of_dsl(e));
    let props = imported.pool.spa().mos().pool_props().map_err(|e| fail(&e.into()))?;
    if props.get("delegation").and_then(|value| value.first()) == Some(0) {
        return Err(Error::new(name, Reason::DelegationOff));
    }
    let mut found = imported.pool.dsl().dataset(name);
    // Datasets above one that is to be made may have to be made with it.
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
        // What is made there has what is granted below.
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

/// Whether a property tells of the caller alone, or of nobody.
fn own(asker: &Asker, property: &str) -> bool {
    match limited(property) {
        None => true,
        Some(Limited::By(_, id)) if property.starts_with("user") => id == asker.uid,
        Some(Limited::By(_, id)) if property.starts_with("group") => asker.groups.contains(&id),
        Some(_) => false,
    }
}

/// The properties of a query that the caller may read. What others use, and may use, takes a
/// permission (`zfs_secpolicy_userspace_one`).
pub(crate) fn visible(pools: &Pools, caller: &Caller, query: &DatasetQuery) -> DatasetQuery {
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

/// Takes out of an answer what the caller may read of the dataset that the query begins with, but
/// not of one below it.
pub(crate) fn hide(pools: &Pools, caller: &Caller, query: &DatasetQuery, list: &mut DatasetList) {
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

/// Whether what is mounted may be unmounted for a change. What is rolled back stays mounted where it is: if it were mounted anew, that would be where its
/// `mountpoint` says, which others may have been granted to set, and root's daemon would mount it there.
///
/// # Errors
/// [`Reason::Permission`].
pub(crate) fn may_unmount(caller: &Caller, mounted: &[String]) -> Result<(), Error> {
    match mounted.first() {
        Some(name) if !caller.mounts() => Err(Error::new(name, Reason::Permission)),
        _ => Ok(()),
    }
}

/// Where a change mounts nothing because of who asks: those of these file systems that would be mounted otherwise.
pub(crate) fn left_unmounted(
    caller: &Caller,
    imported: &Imported,
    names: &[String],
) -> Option<Vec<MountFailure>> {
    if caller.mounts() {
        return None;
    }
    let mountable = |name: &&String| {
        let found = plans(imported.pool.dsl(), Some(name), false, 1, &|| {}).unwrap_or_default().plans;
        found.iter().any(|plan| plan.obstacle(false, false).is_none() && matches!(plan.place, Where::Path(_)))
    };
    let failure =
        |name: &String| MountFailure { name: name.clone(), error: Error::new(name, Reason::Permission) };
    Some(names.iter().filter(mountable).map(failure).collect())
}

#[cfg(test)]
mod tests;
