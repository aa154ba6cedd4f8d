//! Devices of volumes that come and go with these: every volume has one, as with the kernel module, for a daemon that was told so (`poolhouse serve --attach`).
//!
//! # Theory
//! Before a change that takes a volume, its key or its contents away, its device goes, unless somebody uses it, and then the change finds the volume busy. Afterwards
//! what went has its device again, if it is still there; with `--attach` the volumes of a pool are held against what is attached after a change, an import or a key:
//! those that lack a device get one. Nothing here makes a change fail: a volume without a device is still served otherwise.
//!
//! # Absent
//! Snapshots (`snapdev=visible`): they are attached by name alone.

use super::Attachments;
use crate::pools::Pools;
use api::DatasetChange;
use dsl::prop::{Prop, Value};
use std::sync::atomic::Ordering;

/// `volmode=none`.
const HIDDEN: u64 = 3;

impl Attachments {
    /// From now on every volume gets a device.
    pub(crate) fn want_every(&self) {
        self.every.store(true, Ordering::Relaxed);
    }

    fn wants_every(&self) -> bool {
        self.every.load(Ordering::Relaxed)
    }
}

/// Devices that were taken away: of which volumes, and whether they could only be read.
pub(crate) type Taken = Vec<(String, bool)>;

/// Whether a dataset is this one, or below it.
fn below(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

impl Pools {
    /// Takes the unused devices of volumes away that a change is about to take away or replace.
    pub(crate) fn devices_before(&self, change: &DatasetChange) -> Taken {
        let goes = |name: &str| match change {
            DatasetChange::Destroy { names, .. } => names.iter().any(|n| n == name),
            DatasetChange::Rollback { snapshot, destroy, .. } => {
                snapshot.split('@').next() == Some(name) || destroy.iter().any(|n| n == name)
            }
            _ => false,
        };
        self.devices_go(change.subject(), &goes)
    }

    /// Takes the unused devices of volumes away whose key is about to go.
    pub(crate) fn devices_before_unloading(&self, root: &str) -> Taken {
        self.devices_go(root, &|name| below(root, name))
    }

    /// Takes the unused devices of some volumes of a pool away.
    fn devices_go(&self, about: &str, goes: &dyn Fn(&str) -> bool) -> Taken {
        let pool = about.split(['/', '@', '#']).next().unwrap_or(about);
        let Some(files) = self.attachments.of(pool) else { return Vec::new() };
        let mut taken = Vec::new();
        for (name, read_only) in files.all().into_iter().filter(|(name, _)| goes(name)) {
            match files.detach(&name, false) {
                Ok(()) => taken.push((name, read_only)),
                Err(reason) => tracing::info!(volume = name, ?reason, "it stays attached"),
            }
        }
        taken
    }

    /// Gives their devices back to those of them that are still there.
    pub(crate) fn devices_back(&self, taken: Taken) {
        for (name, read_only) in taken {
            let there = self.pool_of(&name).is_ok_and(|pool| pool.pool.dsl().dataset(&name).is_ok());
            if there && let Err(error) = self.attach(&name, read_only) {
                tracing::warn!(volume = name, %error, "it has no device any more");
            }
        }
    }

    /// Gives devices to the volumes of a pool that have none.
    pub(crate) fn devices_after(&self, pool: &str) {
        if !self.attachments.wants_every() {
            return;
        }
        let pool = pool.split(['/', '@', '#']).next().unwrap_or(pool);
        let Ok(imported) = self.pool(pool) else { return };
        let attached = self.attachments.of(pool).map(|files| files.names()).unwrap_or_default();
        let listing = match imported.pool.dsl().list_sorted(None, &dsl::ListOptions::default()) {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(pool, %error, "its volumes get no devices");
                return;
            }
        };
        for volume in &listing.datasets {
            let name = volume.name();
            let is_volume =
                !volume.is_snapshot() && matches!(volume.head_kind(), Ok(Some(dsl::Kind::Volume)));
            if !is_volume || attached.contains(&name) {
                continue;
            }
            let mode = volume.property(Prop::Volmode).ok().flatten().map(|p| p.value);
            if mode == Some(Value::Number(HIDDEN)) {
                continue;
            }
            if let Err(error) = self.attach(&name, false) {
                tracing::warn!(volume = name, %error, "it gets no device");
            }
        }
    }
}
