//! Reopening devices that become available again.
//!
//! # Theory
//! A reopen looks for a device that was removed or was absent at import, at its path. It is the
//! device if its label says so. Its dirty time log has what it missed, so it is read last for these
//! txgs.
//!
//! An open, readable device may still be an old handle: a file on a FUSE or network mount that went
//! and came back. It counts as open while its path leads to the same device or nowhere, or while it
//! is writable. Otherwise the device at its path replaces it, if that has its labels and is as new.
//! A copy at the path of a working device does not replace it.
//!
//! An open device that reports that it is gone, or has no readable label any more, is closed if the
//! pool can do without it. Then it shows as unopenable, a spare takes its place, and the monitor
//! looks for it like any missing one. A device with labels is probed, and faulted if it doesn't
//! work.
//!
//! # Locks
//! The sync thread of a suspended pool waits with a half-written txg, perhaps within a change of
//! the vdev tree. So a reopen takes `placing` alone, which is held only while one tree replaces
//! another. Before it comes `reopening`, held while devices are opened and read. A second reopen
//! then finds in the tree what the first has claimed; without the lock it would not find the
//! device.
//!
//! # Absent
//! A device is looked for at its path and nowhere else.
//!
//! # See
//! OpenZFS `vdev_reopen`, `vdev_open`, `vdev_validate`, `zfs_ioc_pool_reopen`, `zfs_ioc_clear`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use device::Device;
use ondisk::label::LABELS;
use ondisk::{Guid, PoolConfig, Txg, VdevConfig, VdevKind};
use vdev::{Devices, Tree, VdevAux, VdevState, inject, takes_writes};

use crate::Labels;
use crate::discovery::label::read_uberblocks;
use crate::discovery::probe;
use crate::vdev_ops::Vdevs;
use crate::vdev_ops::expand::copy_rings;
use crate::vdev_ops::replicas;

/// How an open device behaves.
enum Answers {
    /// It is readable, and writable as far as is known.
    Well,
    /// It is readable and not writable.
    Stale,
    /// Its labels can't be read.
    Nothing,
}

/// The newest txg of which a device has an uberblock; 0 if it has none.
fn newest_state(root: &VdevConfig, leaf: &VdevConfig, device: &dyn Device) -> Txg {
    let top = root.children.iter().find(|top| top.find(leaf.guid).is_some());
    let Some(ashift) = top.and_then(|top| top.ashift) else { return Txg(0) };
    let all = read_uberblocks(device, ashift);
    all.iter().map(|found| found.uberblock.txg).max().unwrap_or(Txg(0))
}

impl Vdevs {
    /// The devices, of a vdev or of all, whose handles don't work but that are at their paths now.
    fn found_again(&self, of: Option<Guid>) -> Devices {
        let tree = self.core.tree();
        let config = self.core.config_now();
        let root = config.root();
        // Devices that were taken out of use stay so, and those with too many errors.
        let kept_out = |leaf: &VdevConfig| match tree.state_of(leaf.guid) {
            Ok((VdevState::Offline, _)) => true,
            Ok((VdevState::Faulted, aux)) => {
                let kept = root.find(leaf.guid).is_some_and(|leaf| leaf.faulted);
                aux == VdevAux::External || kept
            }
            _ => false,
        };
        self.found(of, &|leaf| !kept_out(leaf))
    }

    /// A device that was taken out of use, if it is present.
    pub(crate) fn there_now(&self, guid: Guid) -> Devices {
        let _one = self.reopening.lock();
        self.found(Some(guid), &|_| true)
    }

    fn found(&self, of: Option<Guid>, wanted: &dyn Fn(&VdevConfig) -> bool) -> Devices {
        let tree = self.core.tree();
        let root = tree.config();
        let within = of.map_or(Some(root), |guid| root.find(guid));
        let newest = self.core.synced.read().uberblock.txg;
        let mut found = Devices::new();
        for leaf in within.into_iter().flat_map(VdevConfig::leaves) {
            if !matches!(leaf.kind, VdevKind::Disk | VdevKind::File) || !wanted(leaf) {
                continue;
            }
            if inject::is_gone(root.guid, leaf.guid) {
                continue;
            }
            let (mut works, mut at_least) = (true, Txg(0));
            let open = tree.devices().find(|(guid, _)| *guid == leaf.guid).map(|(_, device)| device.clone());
            if let Some(device) = open {
                match self.answers(&tree, leaf, &device) {
                    // Only its errors are cleared.
                    Answers::Well => continue,
                    // Its name may lead to another handle of it.
                    Answers::Stale => {
                        at_least = newest_state(root, leaf, &*device);
                        device.give_way();
                        works = false;
                    }
                    Answers::Nothing => {}
                }
            }
            let top_level = root.children.iter().any(|top| top.guid == leaf.guid);
            let there =
                crate::import::devices::reopen(leaf, top_level, root.guid, newest, self.core.world.layer());
            // A new handle may be no better.
            works |= there.as_deref().is_some_and(|device| takes_writes(root.guid, leaf.guid, device));
            // An older copy lacks blocks without a record of that.
            let there = there.filter(|device| {
                let new = newest_state(root, leaf, &**device) >= at_least;
                works && new && Labels::of(&**device, leaf.guid).valid() > 0
            });
            if let Some(device) = there {
                found.insert(leaf.guid, device);
            }
        }
        found
    }

    /// How an open device behaves through its handle.
    fn answers(&self, tree: &Tree, leaf: &VdevConfig, device: &Arc<dyn Device>) -> Answers {
        if Labels::of(&**device, leaf.guid).newest().is_none() {
            return Answers::Nothing;
        }
        let moved = leaf.path.as_deref().is_some_and(|path| {
            let (path, device) = (Path::new(OsStr::from_bytes(path)), device.clone());
            probe::one(path, move |path| device.is_not_at(path)).unwrap_or(false)
        });
        // Readable and not writable: a file on a mount that went and came back. A writable one
        // stays, whatever is at its path: only that has everything that was written to it.
        let given_up = tree.given_up().contains(&leaf.guid);
        let takes = || takes_writes(tree.config().guid, leaf.guid, &**device);
        if (moved || given_up) && !takes() { Answers::Stale } else { Answers::Well }
    }

    /// See [`Vdevs::reopen`]; gives the devices that are available again. With `unspare`,
    /// their hot spares are released ([`Vdevs::unspare`]).
    pub(crate) fn open_again(
        self: &Arc<Self>,
        of: Option<Guid>,
        unspare: bool,
    ) -> Result<Vec<Guid>, vdev::VdevError> {
        let _resilver = self.scans.scan.comes();
        let found = {
            let _one = self.reopening.lock();
            let found = self.found_again(of);
            if found.is_empty() {
                return Ok(Vec::new());
            }
            self.put_opened(&found)?;
            found
        };
        if unspare {
            // Before anything on disk says that they are available: an import that finds them
            // healthy releases no spare.
            self.unspare(&|leaf| found.contains_key(&leaf.guid));
        }
        if self.core.tree().state().0 >= VdevState::Degraded {
            // Their labels are those of the txg in which they left.
            self.core.edit_config(|_| {});
            // In a suspended pool the works wait until it is cleared: a thread that stops them may
            // wait for that too.
            if self.core.txgs().check_suspended().is_ok() {
                self.works.restart_works();
                // A pool that stops meanwhile needs no resilver.
                let _ = self.heal();
            }
        }
        Ok(found.into_keys().collect())
    }

    /// Closes the open devices of a vdev, or of all, that are lost, if the pool can do without
    /// them; probes the others (`vdev_open`, `vdev_validate`).
    pub(crate) fn close_lost(&self, of: Option<Guid>) -> Result<(), vdev::VdevError> {
        let (config, tree) = (self.core.config_now(), self.core.tree());
        let root = config.root();
        let within = of.map_or(Some(tree.config()), |guid| tree.config().find(guid));
        for leaf in within.into_iter().flat_map(VdevConfig::leaves) {
            let open = tree.devices().find(|(guid, _)| *guid == leaf.guid).map(|(_, device)| device.clone());
            let Some(device) = open.filter(|_| tree.is_writable(leaf.guid)) else { continue };
            match lost(tree.config().guid, leaf, &*device) {
                Some(why) if !replicas::is_required(&tree, root, leaf.guid) => {
                    self.close_one(leaf.guid, why)?
                }
                Some(_) => {}
                None => tree.look_at(leaf.guid),
            }
        }
        Ok(())
    }

    /// Replaces the tree by one without a device. It misses what it took and did not flush.
    fn close_one(&self, guid: Guid, why: VdevAux) -> Result<(), vdev::VdevError> {
        let _one = self.core.placing.lock();
        let tree = self.core.tree();
        let unsynced = || tree.leaves_out(guid, Txg(self.core.synced.read().uberblock.txg.0 + 1));
        unsynced()?;
        tree.set_state(guid, VdevState::CantOpen, why)?;
        self.core.cache.zio().trees().set(Arc::new(tree.closed(guid)?));
        // A txg may have begun meanwhile.
        unsynced()
    }

    /// Records that these devices are available again: hot spares that stand in for them are
    /// released once they lack nothing (`vdev_unspare`).
    pub(crate) fn unspare(&self, back: &dyn Fn(&VdevConfig) -> bool) {
        let config = self.core.config_now();
        let root = config.root();
        let tree = self.core.tree();
        let firsts =
            root.walk().filter(|vdev| vdev.kind == VdevKind::Spare).filter_map(|vdev| vdev.children.first());
        let works =
            |leaf: &VdevConfig| tree.state_of(leaf.guid).is_ok_and(|(state, _)| state >= VdevState::Degraded);
        let back: Vec<Guid> =
            firsts.filter(|leaf| back(leaf) && works(leaf) && !leaf.unspare).map(|leaf| leaf.guid).collect();
        if back.is_empty() {
            return;
        }
        self.core.edit_config(|config| {
            let root = config.root_mut();
            for guid in &back {
                replicas::edit(root, *guid, &mut |leaf| leaf.unspare = true);
            }
        });
    }

    /// Replaces the tree by one with these devices open.
    pub(crate) fn put_opened(&self, found: &Devices) -> Result<(), vdev::VdevError> {
        let _one = self.core.placing.lock();
        let tree = Arc::new(self.core.tree().reopened(found)?);
        for top in &tree.config().children {
            for leaf in top.leaves() {
                // Before any write to it. A failure shows when its labels are written.
                match found.get(&leaf.guid) {
                    Some(device) if self.has_other_end(leaf, &**device) => copy_rings(top, leaf, &**device),
                    _ => continue,
                };
            }
        }
        self.core.cache.zio().trees().set(tree);
        found.keys().for_each(|device| self.core.cache.zio().doubt(*device));
        Ok(())
    }

    /// Whether a device has grown while it was absent, so that its end moved: no label there is its
    /// own.
    fn has_other_end(&self, leaf: &VdevConfig, device: &dyn Device) -> bool {
        let pool = self.core.config_now().pool_guid;
        let labels = Labels::of(device, leaf.guid);
        let own = |label: &PoolConfig| label.pool_guid == pool && label.guid == Some(leaf.guid);
        !labels.copies[LABELS / 2..].iter().flatten().any(own)
    }
}

/// Why an open device is lost, if it is. A device with another's label is left to the code that
/// decides about it.
fn lost(pool: Guid, leaf: &VdevConfig, device: &dyn Device) -> Option<VdevAux> {
    if inject::is_gone(pool, leaf.guid) {
        return Some(VdevAux::OpenFailed);
    }
    // The system itself reports a removed device.
    let readable = device.is_gone() || Labels::of(device, leaf.guid).valid() > 0;
    (!readable).then_some(VdevAux::BadLabel)
}

impl Vdevs {
    /// Reopens the devices of a vdev, or of all, that are missing, and gives the number that are
    /// available again (`vdev_reopen`).
    ///
    /// An open device that is lost is closed, if the pool can do without it.
    ///
    /// # Errors
    /// * [`vdev::VdevError`]: only after a defect of this software.
    pub fn reopen(self: &Arc<Self>, of: Option<Guid>) -> Result<usize, vdev::VdevError> {
        let back = self.open_again(of, false)?.len();
        // A pool that has stopped keeps what it has.
        if self.core.txgs().check_suspended().is_ok() {
            self.close_lost(of)?;
        }
        Ok(back)
    }
}

/// The paths of devices whose file systems had no space for a write.
pub(crate) fn without_room(tree: &vdev::Tree) -> Vec<String> {
    let path = |guid| Some(String::from_utf8_lossy(tree.config().find(guid)?.path.as_deref()?).into_owned());
    let mut paths: Vec<String> = tree.without_room().into_iter().filter_map(path).collect();
    paths.sort();
    paths
}
