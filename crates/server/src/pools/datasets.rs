//! Changes of datasets, and what follows: mounts, offers and block devices of volumes.

use crate::commands::dataset::quotas;
use crate::commands::dataset::tasks::{Planned, Room, plan};
use crate::control::grants::{left_unmounted, may_unmount, origin_of};
use crate::mounts::MountedFs;
use crate::mounts::changelist::{self, within};
use crate::mounts::threads::threads_for;
use crate::pools::Pools;
use crate::pools::holders::with_user;
use crate::pools::imported::{Imported, Mounted};
use crate::pools::requests;
use crate::pools::unmounting::{Folder, folders_of, remove_folders, restore_all, unmount_all};
use crate::replies::error_of;
use crate::volumes::exports::split_resize;
use api::{Caller, Changed, DatasetChange, Error, MountFailure, MountRequest, Reason};
use dsl::ops::destroy::DestroyHead;
use fuse::Detach;
use mount_rules::Plan;
use ondisk::{Psize, Txg, VdevId, VdevKind};
use poolhouse::Pool;
use spa::engine::{PoolWriter, TaskError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decides on the operations for a change.
pub(super) type PlanOf<'a> = dyn Fn(&dsl::Dsl, Room<'_>, &DatasetChange) -> Result<Planned, Error> + 'a;

impl Pools {
    /// Changes datasets, and adapts their mounts.
    ///
    /// # Errors
    /// See [`api::Service::change`].
    pub fn change(&self, caller: &Caller, change: &DatasetChange) -> Result<Changed, Error> {
        self.change_by(caller, change, &|dsl, room, change| plan(caller, dsl, room, change))
    }

    /// Changes datasets by other operations than those of the request, and adapts their mounts.
    ///
    /// # Errors
    /// See [`api::Service::change`].
    pub(super) fn change_by(
        &self,
        caller: &Caller,
        change: &DatasetChange,
        plan: &PlanOf<'_>,
    ) -> Result<Changed, Error> {
        let about = change.subject();
        let imported = self.table.pool_of(about)?;
        let live = imported.writer(about)?;
        self.afs.check_change(change)?;
        if let DatasetChange::Promote { name } = change
            && let Some(origin) = origin_of(&self.table, name)?
        {
            // Older snapshots of the origin go along, and clones of volumes are such.
            self.afs.check_files(origin.split('@').next().unwrap_or(&origin))?;
        }
        let (change, limits) = &quotas::split(change)?;
        let room = |blocks, block| data_room(&imported.pool, blocks, block);
        let (change, resize) = &imported.pool.spa().read(|| split_resize(&imported, &room, change))?;
        let planned = imported.pool.spa().read(|| plan(imported.pool.dsl(), &room, change))?;
        let followers = imported.pool.spa().read(|| changelist::of(&imported, change))?;
        let (moved, folders) = self.make_way(caller, &imported, change, &followers)?;
        let run = || live.run_all(planned.tasks).map_err(|_| Error::new(about, Reason::Suspended));
        let mut lost = Vec::new();
        let busy = |error| with_user(caller, &self.visits, &self.attachments, &imported, error);
        let results = match imported.mounts.run(caller, &imported.pool, change, &mut lost, run).map_err(busy)
        {
            Err(error) if !lost.is_empty() => {
                let errors = std::iter::once(error).chain(lost.into_iter().map(|lost| lost.error)).collect();
                return Err(Error::new(about, Reason::Several { errors }));
            }
            results => results?,
        };
        let failed = |(about, result): (&String, Result<_, _>)| Some(busy(error_of(about, &result.err()?)));
        let mut errors: Vec<Error> = planned.about.iter().zip(results).filter_map(failed).collect();
        if errors.is_empty() && !limits.is_empty() {
            errors = set_limits(&imported, live, change, limits);
        }
        if errors.is_empty() {
            if let Some((name, input)) = requests::record(change) {
                // The change is made, whether it is recorded or not.
                let _ = live.log_request(name, input, caller.peer().uid);
            }
            self.tell_names(&imported, change);
            if let Some(resize) = resize {
                errors.extend(resize.run(&imported, about).err());
                self.attachments.resized(imported.pool.name(), resize.object);
            }
        }
        self.doors.follow(&imported, change);
        self.afs.follow(&imported, change);
        let mut changed = Changed { failures: self.follow(&imported, change), unmounted: lost };
        let failed = !errors.is_empty();
        // What remains is mounted again at its place.
        let gone = |name: &str| {
            let found = imported.pool.dsl().dataset(name);
            matches!(found, Err(dsl::Error::NoSuchDataset { .. }))
        };
        remove_folders(folders.into_iter().filter(|(name, _)| !failed || gone(name)).collect());
        let request = match failed {
            true => MountRequest { datasets: moved.clone(), before: moved, ..MountRequest::default() },
            false => to_mount(change, moved, followers, planned.made),
        };
        changed.unmounted.extend(self.mount_after(caller, &imported, request)?);
        outcome(change, errors, changed)
    }

    /// Tells the mounts and the block devices of volumes the new names.
    fn tell_names(&self, imported: &Imported, change: &DatasetChange) {
        let pool = imported.pool.name();
        match change {
            DatasetChange::Rename { from, to, .. } => {
                imported.mounts.renamed(from, to);
                self.attachments.devices_renamed(pool, from, to);
            }
            DatasetChange::RenameSnapshot { dataset, from, to, .. } => {
                let [from, to] = [from, to].map(|snap| format!("{dataset}@{snap}"));
                self.attachments.devices_renamed(pool, &from, &to);
            }
            _ => {}
        }
    }

    /// Mounts the file systems among these datasets after a change. Returns those that stay
    /// unmounted.
    ///
    /// # Errors
    /// See [`api::Service::mount`].
    pub(super) fn mount_after(
        &self,
        caller: &Caller,
        imported: &Imported,
        mut request: MountRequest,
    ) -> Result<Vec<MountFailure>, Error> {
        request.datasets.retain(|name| {
            let kind = imported.pool.dsl().dataset(name).and_then(|dataset| dataset.head_kind());
            matches!(kind, Ok(Some(dsl::Kind::Filesystem)))
        });
        if let Some(left) = left_unmounted(caller, imported, &request.datasets) {
            return Ok(left);
        }
        if request.datasets.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.mount(caller, &request)?.failures)
    }

    /// Makes mounted file systems follow their properties. Returns those that could not.
    fn follow(&self, imported: &Arc<Imported>, change: &DatasetChange) -> Vec<MountFailure> {
        let (root, changed): (_, Vec<&str>) = match change {
            DatasetChange::Set { name, props, .. } => (name, props.iter().map(|(p, _)| p.as_str()).collect()),
            DatasetChange::Inherit { name, prop, .. } => (name, vec![prop]),
            // It inherits from another dataset now.
            DatasetChange::Rename { to, .. } => (to, MOUNT_OPTIONS.to_vec()),
            _ => return Vec::new(),
        };
        // Whether the change is about a property or, if that is unknown, about any mount option.
        let told = |about: &str| {
            changed.iter().any(|prop| if about.is_empty() { is_mount_option(prop) } else { *prop == about })
        };
        let mut failures: Vec<(Arc<MountedFs>, Error)> = Vec::new();
        // Other file systems may still wait for an earlier change. A mount and its nested file
        // systems share options, so one of them may have to follow first.
        let follow = |(_, live): &Mounted| {
            imported.mounts.follow(&imported.pool, live).err().map(|_| Arc::clone(live))
        };
        let again: Vec<Arc<MountedFs>> = imported.mounted().iter().filter_map(follow).collect();
        for live in again {
            let Err(error) = imported.mounts.follow(&imported.pool, &live) else { continue };
            let name = live.name();
            let told = match &error.reason {
                Reason::NotInEffect { setting, .. } => props_of(setting).any(&told),
                _ => told(""),
            };
            if told && within(root, &name) {
                failures.push((live, error));
            } else {
                tracing::warn!(dataset = name, %error, "its properties are not followed");
            }
        }
        // A nested file system waits for the mount around it, if that waits for the same.
        let outer: Vec<(Arc<MountedFs>, String)> = (failures.iter())
            .filter_map(|(live, error)| match &error.reason {
                Reason::NotInEffect { setting, .. } => Some((Arc::clone(live), setting.clone())),
                _ => None,
            })
            .collect();
        let mut acls = BTreeMap::new();
        let mounted = imported.mounted();
        let mut comes = |live: &MountedFs, setting: &str| {
            let waits = |(outer, its): &(Arc<MountedFs>, String)| {
                live.is_within(outer) && props_of(setting).all(|prop| props_of(its).any(|own| own == prop))
            };
            if outer.iter().any(waits) {
                return true;
            }
            // What the mount around it has too comes with its next mount.
            let Some((_, around)) =
                mounted.iter().find(|(_, outer)| setting == "acltype=posix" && live.is_within(outer))
            else {
                return false;
            };
            *acls.entry(around.object()).or_insert_with(|| wants_acls(imported, &around.name()))
        };
        failures.retain(|(live, error)| match &error.reason {
            Reason::NotInEffect { setting, .. } => !comes(live, setting),
            _ => true,
        });
        failures.into_iter().map(|(live, error)| MountFailure { name: live.name(), error }).collect()
    }

    /// Unmounts what a change removes or moves. Returns it, and the folders to remove later.
    fn make_way(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        change: &DatasetChange,
        followers: &[String],
    ) -> Result<(Vec<String>, Vec<Folder>), Error> {
        type Chosen<'a> = Box<dyn Fn(&str) -> bool + 'a>;
        let chosen: Chosen<'_> = match change {
            DatasetChange::Destroy { names, .. } => Box::new(move |name| names.iter().any(|n| n == name)),
            DatasetChange::Rename { from, keep_mounted, .. }
                if *keep_mounted || stays_put(imported, from) =>
            {
                return Ok((Vec::new(), Vec::new()));
            }
            DatasetChange::Rename { from, .. } => Box::new(move |name| within(from, name)),
            DatasetChange::Rollback { destroy, .. } => {
                Box::new(move |name| destroy.iter().any(|n| n == name))
            }
            DatasetChange::Set { name: root, props, keep_mounted: false } => {
                let place = props.iter().any(|(p, _)| p == "mountpoint");
                let off = props.iter().any(|(p, v)| p == "canmount" && v == "off");
                let off = off && imported.mounted().iter().any(|(_, live)| live.name() == *root);
                // What is nested in it is mounted again in the folder beneath.
                let lies_in =
                    move |name: &str| name == root || followers.iter().any(|follower| follower == name);
                Box::new(move |name| (place && within(root, name)) || (off && lies_in(name)))
            }
            DatasetChange::Inherit { name: root, prop, .. } if prop == "mountpoint" => {
                Box::new(move |name| within(root, name))
            }
            _ => return Ok((Vec::new(), Vec::new())),
        };
        let mounted: Vec<Mounted> =
            imported.mounted().into_iter().filter(|(_, live)| chosen(&live.name())).collect();
        let names: Vec<String> = mounted.iter().map(|(_, live)| live.name()).collect();
        may_unmount(caller, &names)?;
        // A visit's open files would prevent mounting again.
        for (object, by) in self.visits.users(imported.pool.name()) {
            if let Some((_, live)) = mounted.iter().find(|(_, live)| live.object() == object) {
                return Err(Error::new(live.name(), Reason::HeldOpen { by }));
            }
        }
        if let Some(failure) =
            unmount_all(caller, &mounted, Detach::Normal, threads_for(None)).into_iter().next()
        {
            restore_all(&mounted);
            return Err(failure.error);
        }
        Ok((names, folders_of(&mounted)))
    }
}

/// Sets the quotas of users that a change has. A dataset that it created is destroyed again if that
/// fails: it is created with all of its properties, or not at all.
fn set_limits(
    imported: &Imported,
    live: &PoolWriter,
    change: &DatasetChange,
    limits: &[quotas::Own],
) -> Vec<Error> {
    let about = change.subject();
    let mounted = imported.mounts.served().into_iter().find(|live| live.name() == about);
    let set = |open| quotas::set(&imported.pool, about, open, limits);
    let set = mounted.map_or_else(|| set(None), |live| live.with_files(set));
    let mut errors = Vec::new();
    if set.is_err() && matches!(change, DatasetChange::Create { .. } | DatasetChange::Clone { .. }) {
        match live.run(Box::new(DestroyHead { name: about.to_owned() })) {
            Ok(()) => {}
            Err(TaskError::Refused(e)) => errors.push(error_of(about, &e)),
            Err(TaskError::Stopped(_)) => errors.push(Error::new(about, Reason::Suspended)),
        }
    }
    errors.extend(set.err());
    errors
}

/// What to mount after a change that was made: what was unmounted for it (`moved`), and what it
/// creates (`made`) or gives a place.
fn to_mount(
    change: &DatasetChange,
    moved: Vec<String>,
    followers: Vec<String>,
    made: Vec<String>,
) -> MountRequest {
    let moved: Vec<String> = match change {
        DatasetChange::Rename { from, to, .. } => {
            let named = |old: &String| old.strip_prefix(from.as_str()).map(|tail| format!("{to}{tail}"));
            moved.iter().filter_map(named).collect()
        }
        _ => moved,
    };
    let before = moved.clone();
    let datasets = match change {
        DatasetChange::Create { mount: true, .. } | DatasetChange::Clone { .. } => made,
        // A new mountpoint mounts the file system, whether it was mounted before or not.
        DatasetChange::Set { name, props, keep_mounted: false }
            if props.iter().any(|(p, _)| p == "mountpoint") =>
        {
            with(moved, name, followers)
        }
        DatasetChange::Inherit { name, prop, .. } if prop == "mountpoint" => with(moved, name, followers),
        _ => moved,
    };
    MountRequest { datasets, before, ..MountRequest::default() }
}

/// The reply to a change with these errors. If one of many datasets can't be destroyed, the others
/// still are, and the change succeeds.
fn outcome(change: &DatasetChange, mut errors: Vec<Error>, changed: Changed) -> Result<Changed, Error> {
    let alone = !matches!(change, DatasetChange::Destroy { .. });
    match errors.len() {
        0 => Ok(changed),
        1 if alone => Err(errors.remove(0)),
        _ if alone => Err(Error::new(change.subject(), Reason::Several { errors })),
        _ => {
            let failure = |error: Error| MountFailure { name: error.about.clone(), error };
            let failures = errors.into_iter().flat_map(each).map(failure).collect();
            Ok(Changed { failures, ..changed })
        }
    }
}

/// The separate errors of one error.
fn each(error: Error) -> Vec<Error> {
    match error.reason {
        Reason::Several { errors } => errors,
        _ => vec![error],
    }
}

/// The bytes that blocks take on the raidz or draid with the most parity and padding, relative to
/// a 128 KiB block (`volsize_from_vdevs`).
pub(super) fn data_room(pool: &Pool, blocks: u64, block: u64) -> u64 {
    const USUAL: u64 = 128 << 10;
    let (tree, config) = (pool.spa().tree(), pool.spa().config());
    let taken = |id: u64, size: u64| {
        let asize = tree.psize_to_asize(VdevId(u32::try_from(id).ok()?), Psize(size), Txg(u64::MAX)).ok()?;
        Some(u128::from(asize.0)).filter(|n| *n > 0)
    };
    let tops = config.vdev_tree.iter().flat_map(|root| &root.children);
    let striped = tops.filter(|top| matches!(top.kind, VdevKind::Raidz | VdevKind::Draid));
    let sizes = striped.filter_map(|top| {
        let (own, usual) = (taken(top.id, block)?, taken(top.id, USUAL)?);
        Some(
            u64::try_from(u128::from(blocks) * own / (usual >> 9) * u128::from(USUAL >> 9))
                .unwrap_or(u64::MAX),
        )
    });
    sizes.max().unwrap_or(blocks.saturating_mul(block))
}

/// The datasets to mount again, with one more and its dependents.
fn with(mut moved: Vec<String>, name: &str, followers: Vec<String>) -> Vec<String> {
    for one in std::iter::once(name.to_owned()).chain(followers) {
        if !moved.contains(&one) {
            moved.push(one);
        }
    }
    moved
}

/// Whether a file system's mountpoint is independent of its name, so that a rename keeps it.
fn stays_put(imported: &Imported, name: &str) -> bool {
    let place = imported.pool.dsl().dataset(name).and_then(|d| d.property(dsl::Prop::Mountpoint));
    let Ok(Some(place)) = place else { return false };
    matches!(&place.value, dsl::prop::Value::Text(word) if word == "legacy" || word == "none")
}

fn props_of(settings: &str) -> impl Iterator<Item = &str> {
    settings.split(", ").map(|setting| setting.split('=').next().unwrap_or_default())
}

fn wants_acls(imported: &Imported, name: &str) -> bool {
    let found = imported.pool.dsl().dataset(name).and_then(Plan::of);
    found.is_ok_and(|plan| plan.is_some_and(|plan| plan.options.posix_acl))
}

/// The properties that are mount options (`zfs_is_namespace_prop`).
const MOUNT_OPTIONS: [&str; 8] =
    ["atime", "relatime", "devices", "exec", "setuid", "readonly", "xattr", "nbmand"];

fn is_mount_option(prop: &str) -> bool {
    MOUNT_OPTIONS.contains(&prop)
}
