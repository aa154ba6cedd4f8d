//! Devices that follow their volumes. With `poolhouse serve --attach`, every volume has one, as
//! with the kernel module.
//!
//! # Theory
//! A change may remove a volume, its key or its contents. Before it, the volume's device is
//! detached unless it is in use. If it is in use, the change finds the volume busy. Afterwards each
//! detached volume that still exists gets its device again.
//!
//! With `--attach`, the daemon compares the volumes of a pool with the attached ones after a
//! change, an import or a key. Volumes without a device get one.
//!
//! Nothing here makes a change fail: a volume without a device is still served otherwise.
//!
//! # Absent
//! Snapshots (`snapdev=visible`): they are attached only by name.

use crate::pools::table::PoolTable;
use crate::volumes::attach::Attachments;
use crate::volumes::attach::device::Taken;
use api::DatasetChange;
use dsl::prop::{Prop, Value};
use std::sync::atomic::Ordering;

/// The value of `volmode=none` (`ZFS_VOLMODE_NONE`).
const HIDDEN: u64 = 3;

impl Attachments {
    /// From now on, every volume gets a device.
    pub(crate) fn want_every(&self) {
        self.every.store(true, Ordering::Relaxed);
    }

    fn wants_every(&self) -> bool {
        self.every.load(Ordering::Relaxed)
    }
}

/// Whether `name` is the dataset `root`, or below it.
fn below(root: &str, name: &str) -> bool {
    name.strip_prefix(root).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

impl Attachments {
    /// Detaches the unused devices of volumes that a change is about to remove or replace.
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

    /// Detaches the unused device of a volume whose contents a received stream is about to replace.
    pub(crate) fn devices_before_receive(&self, volume: &str) -> Taken {
        self.devices_go(volume, &|name| name == volume)
    }

    /// Detaches the unused devices of volumes whose key is about to be unloaded.
    pub(crate) fn devices_before_unloading(&self, root: &str) -> Taken {
        self.devices_go(root, &|name| below(root, name))
    }

    /// Detaches the unused devices of some volumes of a pool.
    fn devices_go(&self, about: &str, goes: &dyn Fn(&str) -> bool) -> Taken {
        let pool = about.split(['/', '@', '#']).next().unwrap_or(about);
        let Some(files) = self.of(pool) else { return Vec::new() };
        let mut taken = Vec::new();
        for (name, read_only) in files.all().into_iter().filter(|(name, _)| goes(name)) {
            match files.detach(&name, false) {
                Ok(()) => taken.push((name, read_only)),
                Err(reason) => tracing::info!(volume = name, ?reason, "it stays attached"),
            }
        }
        taken
    }

    /// Attaches those of the volumes again that still exist.
    pub(crate) fn devices_back(&self, pools: &PoolTable, taken: Taken) {
        for (name, read_only) in taken {
            let there = pools.pool_of(&name).is_ok_and(|pool| pool.pool.dsl().dataset(&name).is_ok());
            if there && let Err(error) = self.attach_again(pools, &name, read_only) {
                tracing::warn!(volume = name, %error, "it has no device any more");
            }
        }
    }

    /// Attaches the volumes of a pool that have no device, if every volume is to have one.
    pub(crate) fn devices_after(&self, pools: &PoolTable, pool: &str) {
        if !self.wants_every() {
            return;
        }
        let pool = pool.split(['/', '@', '#']).next().unwrap_or(pool);
        let Ok(imported) = pools.pool(pool) else { return };
        let attached = self.of(pool).map(|files| files.names()).unwrap_or_default();
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
            if let Err(error) = self.attach_again(pools, &name, false) {
                tracing::warn!(volume = name, %error, "it gets no device");
            }
        }
    }
}
