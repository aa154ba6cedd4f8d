//! From the leaves of a config to open devices.
//!
//! # Theory
//! A leaf is found by its guid among the members of the search. Otherwise the path in the config is
//! probed, since the search may not have covered it. A device is only used if its label, read again
//! under the claim, says that it is the leaf. The recorded path comes from the disk, so what is
//! there is first read without a claim.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use device::{Device, DeviceError, Layer, Mode};
use observe::lock::Mutex;
use ondisk::{Guid, PoolConfig, Txg, VdevConfig, VdevKind};
use vdev::VdevAux;

use crate::discovery;
use crate::discovery::Member;
use crate::discovery::label::{Labels, before_split, is_announced, split_from};
use crate::discovery::location::{DeviceLocation, Openings};
use crate::discovery::probe;

/// How far a config is trusted, and so what labels are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trust {
    /// A config made from labels. A leaf's label must name the leaf, and must not say that it was
    /// split off from the pool.
    Labels {
        /// The pool.
        pool: Guid,
    },
    /// The config of the MOS. The label must name the pool, and not be newer than the uberblock.
    Mos {
        /// The pool.
        pool: Guid,
        /// Newest txg that a label may have.
        newest: Txg,
    },
}

/// The devices of one import.
pub(super) struct Devices {
    openings: Openings,
    members: Mutex<Vec<Member>>,
    /// Recorded paths that were probed, and whether anything there answers.
    asked: Mutex<HashMap<Vec<u8>, bool>>,
    busy: Mutex<Option<DeviceError>>,
    /// Pools that were split off.
    split_off: Mutex<HashSet<Guid>>,
}

impl Devices {
    pub(super) fn new(members: &[Member], mode: Mode, layer: Layer) -> Devices {
        Devices {
            openings: Openings::new(mode, layer),
            members: Mutex::new(members.to_vec()),
            asked: Mutex::default(),
            busy: Mutex::default(),
            split_off: Mutex::default(),
        }
    }

    /// The refusal of a device that another program has in use, if there was one since the last
    /// call.
    pub(super) fn take_busy(&self) -> Option<DeviceError> {
        self.busy.lock().take()
    }

    /// The members that may be a leaf, best first.
    fn of(&self, leaf: &VdevConfig, top_level: bool) -> Vec<Member> {
        let is = |m: &&Member| {
            m.guid() == leaf.guid
                // When a mirror is reduced to one disk, the disk takes the mirror's guid before its
                // label does.
                || (top_level && m.config.top_guid == Some(leaf.guid))
                || leaf.orig_guid == Some(m.guid())
                // Or the other way round: its label is newer than the state that is opened.
                || before_split(&m.config) == Some(leaf.guid)
        };
        let mut found: Vec<_> = self.members.lock().iter().filter(is).cloned().collect();
        found.sort_by_key(|m| m.guid() != leaf.guid);
        found
    }

    /// Where a leaf's device was found, for its config.
    pub(super) fn place(&self, guid: Guid) -> Option<DeviceLocation> {
        self.members.lock().iter().find(|m| m.guid() == guid).map(|m| m.place.clone())
    }

    /// The device at a place, or the one that it is a part of, if this import has it open already.
    /// A second claim would be refused.
    pub(super) fn opened(&self, place: &DeviceLocation) -> Option<Arc<dyn Device>> {
        self.openings.opened(place)
    }

    /// Finds the pools that were split off from this one, before its devices are opened. The first
    /// device with the split's uberblock completes the split for all of them.
    pub(super) fn look_for_splits(&self, root: &VdevConfig, pool: Guid) {
        for leaf in root.leaves() {
            if !self.members.lock().iter().any(|m| m.guid() == leaf.guid) {
                self.ask_recorded_path(leaf);
            }
        }
        let members = self.members.lock();
        let gone = members.iter().filter(|m| m.before.is_none() && split_from(&m.config) == Some(pool));
        self.split_off.lock().extend(gone.filter_map(|m| m.config.pool_guid));
    }

    /// Opens the device of a leaf.
    pub(super) fn open(
        &self,
        leaf: &VdevConfig,
        top_level: bool,
        trust: Trust,
    ) -> Result<Arc<dyn Device>, VdevAux> {
        let mut members = self.of(leaf, top_level);
        let mut why = VdevAux::OpenFailed;
        if members.is_empty() {
            why = self.ask_recorded_path(leaf);
            members = self.of(leaf, top_level);
        }
        if members.is_empty() && matches!(trust, Trust::Mos { .. }) {
            members = void_at_path(leaf);
            self.members.lock().extend(members.iter().cloned());
        }
        for m in members {
            match self.openings.open(&m.place) {
                Ok(device) => match self.check(&*device, leaf, top_level, trust) {
                    Ok(()) => return Ok(device),
                    Err(aux) => {
                        // The device is not ours to keep, and claiming a whole disk would exclude
                        // its partitions.
                        why = aux;
                        drop(device);
                        self.openings.release(&m.place);
                    }
                },
                Err(e @ DeviceError::Busy { .. }) => *self.busy.lock() = Some(e),
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Adds the device at the recorded path to the members. Gives the state of a leaf without a
    /// device.
    fn ask_recorded_path(&self, leaf: &VdevConfig) -> VdevAux {
        let Some(raw) = &leaf.path else { return VdevAux::OpenFailed };
        let path = Path::new(OsStr::from_bytes(raw));
        if !path.is_absolute() {
            return VdevAux::OpenFailed;
        }
        let known = self.asked.lock().get(raw).copied();
        let there = known.unwrap_or_else(|| {
            let look = |path: &Path| path.exists().then(|| discovery::probe(path, usize::MAX));
            let found = probe::one(path, look).flatten();
            self.asked.lock().insert(raw.clone(), found.is_some());
            let there = found.is_some();
            self.members.lock().extend(found.into_iter().flatten());
            there
        });
        if !there {
            return VdevAux::OpenFailed;
        }
        // There is something else: the device's label is gone, or another's.
        let other = self.members.lock().iter().any(|m| m.place.path == path);
        if other { VdevAux::CorruptData } else { VdevAux::BadLabel }
    }

    /// Checks a device's label against the config (`vdev_validate`).
    fn check(
        &self,
        device: &dyn Device,
        leaf: &VdevConfig,
        top_level: bool,
        trust: Trust,
    ) -> Result<(), VdevAux> {
        let labels = Labels::read(device);
        let (pool, newest) = match trust {
            Trust::Labels { pool } => (pool, Txg(u64::MAX)),
            Trust::Mos { pool, newest } => (pool, newest),
        };
        if self.is_split_off(device, &labels, pool) {
            return Err(VdevAux::SplitPool);
        }
        let label = labels.best(newest).ok_or(VdevAux::BadLabel)?;
        if matches!(trust, Trust::Mos { .. }) && label.pool_guid != Some(pool) {
            return Err(VdevAux::CorruptData);
        }
        if is_leaf(label, leaf, top_level) { Ok(()) } else { Err(VdevAux::CorruptData) }
    }

    /// Whether a device has left this pool with a split. Its newest labels must say so, and their
    /// uberblock must be on it or on another device of the split (`vdev_ops::split`).
    fn is_split_off(&self, device: &dyn Device, labels: &Labels, pool: Guid) -> bool {
        let Some(label) = labels.newest().filter(|label| split_from(label) == Some(pool)) else {
            return false;
        };
        label.pool_guid.is_some_and(|new| self.split_off.lock().contains(&new)) || is_announced(device, label)
    }
}

/// The device at a leaf's path that still has its label, made void when it left the pool. An older
/// state of the pool still has the device. The config that names it is the pool's own.
fn void_at_path(leaf: &VdevConfig) -> Vec<Member> {
    let Some(raw) = &leaf.path else { return Vec::new() };
    let path = Path::new(OsStr::from_bytes(raw));
    let found = if path.is_absolute() { probe::one(path, discovery::probe_void) } else { None };
    found.into_iter().flatten().filter(|m| m.guid() == leaf.guid).collect()
}

fn is_leaf(label: &PoolConfig, leaf: &VdevConfig, top_level: bool) -> bool {
    label.guid == Some(leaf.guid)
        || before_split(label) == Some(leaf.guid)
        || (top_level && label.top_guid == Some(leaf.guid))
}

/// Guids of the leaves that are top-level vdevs.
pub(super) fn top_level_leaves(root: &VdevConfig) -> HashSet<Guid> {
    root.children
        .iter()
        .filter(|c| matches!(c.kind, VdevKind::Disk | VdevKind::File))
        .map(|c| c.guid)
        .collect()
}

/// Opens the device of a leaf of a pool that we own, if it is at its path and not in use.
pub(crate) fn reopen(
    leaf: &VdevConfig,
    top_level: bool,
    pool: Guid,
    newest: Txg,
    layer: Layer,
) -> Option<Arc<dyn Device>> {
    let trust = Trust::Mos { pool, newest };
    Devices::new(&[], Mode::Write, layer).open(leaf, top_level, trust).ok()
}
