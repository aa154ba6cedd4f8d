//! Hotplug: devices that become available again, and new ones in their places.
//!
//! # Theory
//! The monitor looks for a device that was removed or could not be opened at its path. If its label
//! is there, the pool reopens it and resilvers what it missed. A hot spare that stood in for it is
//! then released. With `autoreplace=on`, another free device there may take its place: one that
//! `zpool replace` takes without `-f`, never one of another pool.
//!
//! A faulted device stays faulted until it is cleared, and an offline one until it is brought
//! online.
//!
//! # See
//! OpenZFS `cmd/zed/agents/zfs_mod.c`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ondisk::{VdevConfig, VdevKind};
use vdev::VdevState;

use crate::device_monitor::{DeviceMonitor, Memory};
use crate::discovery::location::Identity;
use crate::new_vdevs::NewLeaf;
use crate::vdev_ops::attach::AttachTerms;

/// What is at a path. A new file there is another thing, even if it has the inode number of a
/// removed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Thing {
    identity: Identity,
    /// When it last changed, seconds and nanoseconds.
    changed: (i64, i64),
}

impl Thing {
    fn at(path: &Path) -> Option<Thing> {
        let meta = path.metadata().ok()?;
        Some(Thing { identity: Identity::of(&meta)?, changed: (meta.ctime(), meta.ctime_nsec()) })
    }
}

impl DeviceMonitor {
    /// The devices that may become available again: removed ones, ones that could not be opened,
    /// and those faulted because the system no longer has them.
    fn missing_devices(&self) -> Vec<VdevConfig> {
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let gone = |leaf: &VdevConfig| {
            tree.devices().find(|(guid, _)| *guid == leaf.guid).is_some_and(|(_, d)| d.is_gone())
        };
        let missing = |leaf: &&VdevConfig| match tree.state_of(leaf.guid) {
            Ok((VdevState::Removed | VdevState::CantOpen, _)) => true,
            Ok((VdevState::Faulted, _)) => !leaf.faulted && gone(leaf),
            Ok(_) | Err(_) => false,
        };
        let leaves = config.root().leaves();
        leaves
            .filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File))
            .filter(missing)
            .cloned()
            .collect()
    }

    /// Whether the monitor polls for devices: one is missing, or may grow.
    pub(crate) fn is_looking(&self) -> bool {
        !self.missing_devices().is_empty() || self.core.is_on("autoexpand") || self.core.is_on("autotrim")
    }

    /// Reopens the devices that are available again, and replaces missing ones where it may.
    pub(crate) fn look_for_devices(&self, memory: &mut Memory) {
        let missing = self.missing_devices();
        if missing.is_empty() {
            memory.refused.clear();
            return;
        }
        for leaf in &missing {
            // That the device is still missing is no news.
            let Ok(back) = self.vdevs.open_again(Some(leaf.guid), true) else { continue };
            if !back.is_empty() {
                self.works.notice(leaf.guid, "vdev_online");
                self.core.request_end_of_replacements();
            } else if self.core.is_on("autoreplace") {
                self.replace_by_itself(leaf, memory);
            }
        }
    }

    /// Puts the device at the path of a missing one in its place, unless that was tried before.
    fn replace_by_itself(&self, leaf: &VdevConfig, memory: &mut Memory) {
        let Some(path) = leaf.path.as_deref().map(|path| PathBuf::from(OsStr::from_bytes(path))) else {
            return;
        };
        let there = Thing::at(&path).filter(|_| path.is_absolute());
        memory.refused.retain(|(guid, found)| *guid != leaf.guid || Some(*found) == there);
        let Some(there) = there else { return };
        if memory.refused.contains(&(leaf.guid, there)) {
            return;
        }
        let claimer = self.claimer();
        let terms = AttachTerms {
            replace: true,
            sequential: false,
            force: false,
            unattended: true,
            claimer: &claimer,
        };
        match self.vdevs.attach(leaf.guid, &NewLeaf { path }, &terms) {
            Ok(()) => self.works.notice(leaf.guid, "vdev_autoreplace"),
            Err(_) => {
                memory.refused.insert((leaf.guid, there));
            }
        }
    }
}
