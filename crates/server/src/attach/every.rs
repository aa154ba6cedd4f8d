//! Every volume a block device, as with the kernel module, for a daemon that was told so (`poolhouse serve --attach`).
//!
//! # Theory
//! After a change, an import or a key the volumes of that pool are held against what is attached: those that lack a device get one. Before a
//! change that takes a volume, its key or its contents away, its device goes, unless somebody uses it, and then the change finds the volume busy. Nothing
//! here makes a change fail: a volume without a device is still served otherwise.
//!
//! # Absent
//! Snapshots (`snapdev=visible`): they are attached by name alone.

use super::Attachments;
use crate::api::DatasetChange;
use crate::pools::Pools;
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

/// Whether a dataset is this one, or below it.
fn below(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

impl Pools {
    /// Takes the unused devices of volumes away that a change is about to take away or replace.
    pub(crate) fn devices_before(&self, change: &DatasetChange) {
        let goes = |name: &str| match change {
            DatasetChange::Destroy { names, .. } => names.iter().any(|n| n == name),
            DatasetChange::Rollback { snapshot, destroy, .. } => {
                snapshot.split('@').next() == Some(name) || destroy.iter().any(|n| n == name)
            }
            _ => false,
        };
        self.devices_go(change.subject(), &goes);
    }

    /// Takes the unused devices of volumes away whose key is about to go.
    pub(crate) fn devices_before_unloading(&self, root: &str) {
        self.devices_go(root, &|name| below(root, name));
    }

    /// Takes the unused devices of some volumes of a pool away.
    fn devices_go(&self, about: &str, goes: &dyn Fn(&str) -> bool) {
        if !self.attachments.wants_every() {
            return;
        }
        let pool = about.split(['/', '@', '#']).next().unwrap_or(about);
        let Some(files) = self.attachments.of(pool) else { return };
        for name in files.names().iter().filter(|name| goes(name)) {
            if let Err(reason) = files.detach(name, false) {
                tracing::info!(volume = name, ?reason, "it stays attached");
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
