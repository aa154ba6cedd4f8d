//! From the leaves of a config to open devices.
//!
//! # Theory
//! A leaf is found by its guid among the members of the search; where it isn't, the path that the config records is asked, since
//! the search may have been narrower than the pool. A device is only taken when its label, read anew under its lock, says
//! that it is the leaf. The recorded path comes from the disk, so what is there is looked at without a lock first.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use device::{Device, DeviceError, Layer, Mode};
use ondisk::{Guid, PoolConfig, Txg, VdevConfig, VdevKind};
use parking_lot::Mutex;
use vdev::VdevAux;

use crate::discovery;
use crate::discovery::Member;
use crate::discovery::label::{Labels, before_split, is_announced, split_from};
use crate::discovery::location::{DeviceLocation, Openings};
use crate::discovery::probe;

/// How far a config is believed, and so what labels are held against.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trust {
    /// A config made from labels: a leaf's label must only say that it is the leaf, and not split off from the pool.
    Labels {
        /// The pool.
        pool: Guid,
    },
    /// The config of the MOS: the label must name the pool, and not be newer than the uberblock.
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
    /// Recorded paths that were asked, and whether there is anything that answers.
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

    /// The refusal of a device that somebody else holds, if one refused since this was last asked.
    pub(super) fn take_busy(&self) -> Option<DeviceError> {
        self.busy.lock().take()
    }

    /// The members that may be a leaf, best first.
    fn of(&self, leaf: &VdevConfig, top_level: bool) -> Vec<Member> {
        let is = |m: &&Member| {
            m.guid() == leaf.guid
                // A disk whose mirror was dissolved takes the mirror's guid before its label does.
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

    /// The device at a place, or the one that it is a part of, if this import has it open already:
    /// a second claim would be refused.
    pub(super) fn opened(&self, place: &DeviceLocation) -> Option<Arc<dyn Device>> {
        self.openings.opened(place)
    }

    /// Finds out which pools have been split off from this one, before its devices are opened: a split is made for all of its devices by the first
    /// that has the uberblock.
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
                        // It is not ours to keep, and a disk that we held would exclude its own partitions.
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

    /// Adds what is at the path that the config records to the members; says what a leaf without a device is to be called.
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
        // There is something, and it is not this device: its label is gone or another's.
        let other = self.members.lock().iter().any(|m| m.place.path == path);
        if other { VdevAux::CorruptData } else { VdevAux::BadLabel }
    }

    /// Holds a device's label against the config (`vdev_validate`).
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

    /// Whether a device has gone from this pool to one that was split off: its newest labels say so, and the uberblock that they announce is there, on
    /// it or on another that has gone with it ([`crate::engine`]).
    fn is_split_off(&self, device: &dyn Device, labels: &Labels, pool: Guid) -> bool {
        let Some(label) = labels.newest().filter(|label| split_from(label) == Some(pool)) else {
            return false;
        };
        label.pool_guid.is_some_and(|new| self.split_off.lock().contains(&new)) || is_announced(device, label)
    }
}

/// The device at a leaf's path that has its label still, made void when it left: a state of the pool from before that has it again. The config that names
/// it is the pool's own.
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
