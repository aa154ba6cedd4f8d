//! Diagnosis: devices with too many errors, and the hot spares that replace them.
//!
//! # Theory
//! A device with too many I/O errors is faulted. One with too many checksum errors or slow I/Os is
//! degraded, as it may be the best there is. A device that the pool can't do without is only ever
//! degraded. The limits are properties of the device or of its top-level vdev, or OpenZFS's
//! defaults. `vdev` counts the errors.
//!
//! A device needs a spare if it is faulted, degraded for errors, removed or can't be opened. The
//! pool then tries each of its hot spares in turn, like `zpool replace`. It passes over a spare
//! that is in use, too small or another pool's. It tries that spare again every few seconds, since
//! it may have grown or be available again. A device that was unhealthy at import gets no spare, as
//! it may appear in a moment. It does if it appears and then fails again.
//!
//! # Absent
//! The failure of an idle spare is found only when the spare is needed.
//!
//! # See
//! OpenZFS `cmd/zed/agents/zfs_diagnosis.c`, `zfs_retire.c`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ondisk::{Guid, VdevConfig, VdevKind};
use vdev::{Symptom, VdevAux, VdevState};

use crate::device_monitor::{DeviceMonitor, Memory};
use crate::new_vdevs::NewLeaf;
use crate::vdev_ops::attach::AttachTerms;
use crate::vdev_ops::online_offline::Verdict;
use crate::vdev_ops::replicas;

impl DeviceMonitor {
    /// Degrades or faults the devices with too many errors.
    pub(crate) fn judge(&self) {
        for (guid, what) in self.core.tree().bell().take_alarms() {
            let verdict = match what {
                Symptom::Io => Verdict::Failing,
                Symptom::Checksum | Symptom::Slow => Verdict::Poor,
            };
            // The vdev may be gone or faulted by now.
            if self.core.tree().state_of(guid).is_ok_and(|(state, _)| state >= VdevState::Degraded) {
                let _ = self.vdevs.fault(guid, verdict);
            }
        }
    }

    /// The devices that are faulted, removed or can't be opened, or that are degraded for errors.
    pub(crate) fn not_well(&self) -> Vec<Guid> {
        let tree = self.core.tree();
        let ill = |leaf: &&VdevConfig| match tree.state_of(leaf.guid) {
            Ok((VdevState::Faulted | VdevState::Removed | VdevState::CantOpen, _)) => true,
            Ok((VdevState::Degraded, aux)) => aux == VdevAux::ErrExceeded,
            Ok(_) | Err(_) => false,
        };
        tree.config().leaves().filter(ill).map(|leaf| leaf.guid).collect()
    }

    /// Lets hot spares take the places of the devices that need one.
    pub(crate) fn send_spares(&self, memory: &mut Memory) {
        let ill = self.not_well();
        memory.known.retain(|guid| ill.contains(guid));
        memory.spare_is_due = false;
        for guid in ill.into_iter().filter(|guid| !memory.known.contains(guid)) {
            if self.wants_spare(guid) {
                memory.spare_is_due |= !self.send_spare(guid) && self.has_free_spare();
            }
        }
    }

    /// Whether a hot spare is free.
    fn has_free_spare(&self) -> bool {
        let config = self.core.config_now();
        let root = config.root();
        self.core.aux.read().spares.iter().any(|spare| root.find(spare.config.guid).is_none())
    }

    /// Whether a device has no spare yet.
    fn wants_spare(&self, guid: Guid) -> bool {
        let config = self.core.config_now();
        let root = config.root();
        let tree = self.core.tree();
        let works = |side: &VdevConfig| {
            side.guid != guid && tree.state_of(side.guid).is_ok_and(|(state, _)| state >= VdevState::Degraded)
        };
        replicas::parent_of(root, guid).is_some_and(|parent| match parent.kind {
            VdevKind::Spare | VdevKind::Replacing => !parent.children.iter().any(works),
            _ => true,
        })
    }

    /// Tries the spares in order until one takes the device's place; true if one did.
    fn send_spare(&self, guid: Guid) -> bool {
        let spares: Vec<VdevConfig> =
            self.core.aux.read().spares.iter().map(|spare| spare.config.clone()).collect();
        let config = self.core.config_now();
        let in_use = |spare: &VdevConfig| config.root().find(spare.guid).is_some();
        let claimer = self.claimer();
        for spare in spares.iter().filter(|spare| !in_use(spare)) {
            // A distributed spare is rebuilt sequentially, as by `zed`: that is the fastest way
            // back to redundancy. While another scan runs, it is resilvered.
            let distributed = spare.kind == VdevKind::DraidSpare;
            let Some(path) = spare.path.as_deref() else { continue };
            let new = NewLeaf { path: PathBuf::from(OsStr::from_bytes(path)) };
            let joins = |sequential| {
                let terms = AttachTerms {
                    replace: true,
                    sequential,
                    force: false,
                    unattended: true,
                    claimer: &claimer,
                };
                self.vdevs.attach(guid, &new, &terms).is_ok()
            };
            if distributed && joins(true) || joins(false) {
                self.works.notice(spare.guid, "vdev_spare");
                if !self.not_well().contains(&guid) {
                    // The device was cleared or became available before the spare was attached, so
                    // that path released no spare. Release it here.
                    self.vdevs.unspare(&|leaf| leaf.guid == guid);
                    self.core.request_end_of_replacements();
                }
                return true;
            }
        }
        false
    }
}
