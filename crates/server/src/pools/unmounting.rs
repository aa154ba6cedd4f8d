//! Unmounting file systems of any pools, and mounting them again when a change fails.

use crate::mounts::forest::{Fate, Forest, Way};
use crate::pools::imported::{Imported, Mounted};
use api::{Caller, Error, MountFailure, Reason};
use fuse::Detach;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most busy file systems whose users are looked up. Each needs a pass over all processes.
const NAMED_MAX: usize = 4;

/// Unmounts from the leaves, later mounts at one place first. Returns the failures.
pub(super) fn unmount_all(
    caller: &Caller,
    mounted: &[Mounted],
    how: Detach,
    threads: usize,
) -> Vec<MountFailure> {
    let mut order: Vec<&Mounted> = mounted.iter().collect();
    order.sort_by_key(|(_, live)| std::cmp::Reverse(live.number));
    let (mut failures, mut from) = (Vec::new(), 0);
    while from < order.len() {
        // A parent that was mounted after its child hides the child. So what is below comes after
        // it.
        let mut seen: BTreeSet<&Path> = BTreeSet::new();
        let hidden = order[from..].iter().position(|(_, live)| {
            let above = live.target().ancestors().skip(1).any(|path| seen.contains(path));
            seen.insert(live.target());
            above
        });
        let to = hidden.map_or(order.len(), |at| from + at);
        // A mount that covers another is unmounted first, since it was mounted later.
        let batch: Vec<&Mounted> = order[from..to].iter().rev().copied().collect();
        failures.extend(unmount_forest(caller, &batch, how, threads));
        from = to;
    }
    failures
}

/// Unmounts as a forest what was mounted from the roots.
fn unmount_forest(caller: &Caller, order: &[&Mounted], how: Detach, threads: usize) -> Vec<MountFailure> {
    let paths: Vec<_> = order.iter().map(|(_, live)| live.target().to_owned()).collect();
    let fates = Forest::new(&paths).walk(Way::Up, threads, |at| {
        let (pool, live) = order[at];
        pool.mounts.unmount(live, how)
    });
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for (fate, (pool, live)) in fates.into_iter().zip(order) {
        match fate {
            Fate::Done => {}
            Fate::Failed(error) => {
                let named = failures.len() < NAMED_MAX;
                let error = if named { pool.mounts.with_holders(caller, live, error) } else { error };
                failures.push(MountFailure { name: error.about.clone(), error });
            }
            // Something is still mounted in it, which is reported first.
            Fate::Skipped => {
                let target = live.target().to_string_lossy().into_owned();
                let error = Error::new(&target, Reason::Busy);
                let named = skipped.len() < NAMED_MAX;
                let error = if named { pool.mounts.with_holders(caller, live, error) } else { error };
                skipped.push(MountFailure { name: target, error });
            }
        }
    }
    failures.append(&mut skipped);
    failures
}

/// Mounts again, parents first, what was unmounted for a change that failed.
pub(super) fn restore_all(mounted: &[Mounted]) {
    let mut order: Vec<&Mounted> = mounted.iter().collect();
    order.sort_by_key(|(_, live)| live.number);
    for (imported, live) in order {
        match imported.mounts.restore(&imported.pool, live, true) {
            Ok(()) => {}
            // It could not be unmounted.
            Err(error) if error.reason == Reason::AlreadyMounted => {}
            Err(error) => tracing::error!(%error, "it is not mounted again"),
        }
    }
}

/// A dataset, and the folder where it is mounted.
pub(super) type Folder = (String, PathBuf);

/// The mountpoint folders that come from the dataset's name: no property or option names them.
pub(super) fn folders_of(mounted: &[Mounted]) -> Vec<Folder> {
    let mut folders = Vec::new();
    for (imported, live) in mounted {
        let name = live.name();
        let dataset = imported.pool.dsl().dataset(&name);
        let Ok(Some(place)) = dataset.and_then(|d| d.property(dsl::Prop::Mountpoint)) else { continue };
        let usual = matches!(place.source, dsl::Source::Default | dsl::Source::Inherited(_));
        let there = matches!(&place.value, dsl::prop::Value::Text(path) if live.target() == Path::new(path));
        if usual && there {
            folders.push((name, live.target().to_owned()));
        }
    }
    folders
}

/// Removes folders where nothing is mounted any more, if they are empty (`remove_mountpoint`).
pub(super) fn remove_folders(folders: Vec<Folder>) {
    let mut folders: Vec<PathBuf> = folders.into_iter().map(|(_, path)| path).collect();
    folders.sort();
    for folder in folders.iter().rev() {
        if let Err(error) = std::fs::remove_dir(folder) {
            tracing::debug!(folder = %folder.display(), %error, "it stays");
        }
    }
}

/// The mount at a path.
pub(super) fn at_path(mounted: &[Mounted], name: &str) -> Result<Vec<Mounted>, Error> {
    let path = PathBuf::from(name);
    // The path as given, or as it resolves: a link may lead there.
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let found = mounted
        .iter()
        .rfind(|(_, live)| live.is_at(&path))
        .or_else(|| mounted.iter().rfind(|(_, live)| live.target() == path || live.target() == real));
    found.cloned().map(|one| vec![one]).ok_or_else(|| Error::new(name, Reason::NotAMountpoint))
}

/// Refuses to unload keys that a remaining mount needs. Nothing is unmounted then.
pub(super) fn keys_are_free(pools: &[Arc<Imported>], chosen: &[Mounted]) -> Result<(), Error> {
    let root_of = |pool: &Arc<Imported>, name: &str| {
        let head = name.split('@').next().unwrap_or(name);
        let root = pool.pool.dsl().dir(head).and_then(|dir| dir.encryption_root()).ok().flatten();
        root.map(|root| (pool.pool.spa().guid(), root.object(), root.name().to_owned()))
    };
    let goes: BTreeSet<String> = chosen.iter().map(|(_, live)| live.name()).collect();
    let needed: Vec<_> = chosen.iter().filter_map(|(pool, live)| root_of(pool, &live.name())).collect();
    for (pool, live) in pools.iter().flat_map(Imported::mounted) {
        let name = live.name();
        if goes.contains(&name) {
            continue;
        }
        if let Some((guid, object, _)) = root_of(&pool, &name)
            && let Some((.., root)) = needed.iter().find(|n| (n.0, n.1) == (guid, object))
        {
            return Err(Error::new(root, Reason::Busy));
        }
    }
    Ok(())
}
