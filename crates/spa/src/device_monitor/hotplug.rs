//! Devices that come back by themselves, and others that are put in their places.
//!
//! # Theory
//! A device that was pulled, or could not be opened, is looked for where it should be. If it is there, by its label, it is taken in, and what it missed
//! is brought up to date; a hot spare that stood in for it goes then. With `autoreplace=on`, what else is there may take its place, if it is free: as
//! `zpool replace` without `-f` would take it, and never what another pool has.
//!
//! A device that was faulted stays so until it is cleared, and one that was taken offline until it is brought online.
//!
//! # See
//! OpenZFS `cmd/zed/agents/zfs_mod.c`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ondisk::{VdevConfig, VdevKind};
use vdev::VdevState;

use crate::create::NewLeaf;
use crate::device_monitor::Memory;
use crate::discovery::location::Identity;
use crate::engine::{AttachTerms, Engine};
use crate::txg::TxgHandle;

/// Something at a path: another file there is another thing, even if it has the number of one that was removed.
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

impl Engine {
    /// The devices that may come back: those that were pulled or could not be opened, and those that were given up since the system has them no more.
    fn missing_devices(&self) -> Vec<VdevConfig> {
        let (config, tree) = (self.config_now(), self.tree());
        let gone = |leaf: &VdevConfig| {
            tree.devices().find(|(guid, _)| *guid == leaf.guid).is_some_and(|(_, d)| d.is_gone())
        };
        let missing = |leaf: &&VdevConfig| match tree.state_of(leaf.guid) {
            Ok((VdevState::Removed | VdevState::CantOpen, _)) => true,
            Ok((VdevState::Faulted, _)) => !leaf.faulted && gone(leaf),
            Ok(_) | Err(_) => false,
        };
        let leaves = config.vdev_tree.iter().flat_map(VdevConfig::leaves);
        leaves
            .filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File))
            .filter(missing)
            .cloned()
            .collect()
    }

    /// Whether a device is missing, and so may come back, or may grow.
    pub(crate) fn is_looking(&self) -> bool {
        !self.missing_devices().is_empty() || self.is_on("autoexpand") || self.is_on("autotrim")
    }

    /// Takes in what has come back, and what may take the place of what has not.
    pub(crate) fn look_for_devices(self: &Arc<Self>, txgs: &TxgHandle, memory: &mut Memory) {
        let missing = self.missing_devices();
        if missing.is_empty() {
            memory.refused.clear();
            return;
        }
        for leaf in &missing {
            // That it is still missing is no news.
            let Ok(back) = self.reopen(txgs, Some(leaf.guid), true) else { continue };
            if !back.is_empty() {
                self.notice(leaf.guid, "vdev_online");
                self.errands.end_replacements(&self.tree());
            } else if self.is_on("autoreplace") {
                self.replace_by_itself(txgs, leaf, memory);
            }
        }
    }

    /// Puts what is at the path of a missing device in its place, unless that was tried.
    fn replace_by_itself(self: &Arc<Self>, txgs: &TxgHandle, leaf: &VdevConfig, memory: &mut Memory) {
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
        match self.attach(txgs, leaf.guid, &NewLeaf { path }, &terms) {
            Ok(()) => self.notice(leaf.guid, "vdev_autoreplace"),
            Err(_) => {
                memory.refused.insert((leaf.guid, there));
            }
        }
    }
}
