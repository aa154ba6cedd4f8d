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
use std::sync::Arc;
use std::time::Duration;

use ondisk::{Guid, ObjNum, VdevConfig, VdevKind};
use vdev::{Limit, Symptom, VdevAux, VdevState};

use crate::create::NewLeaf;
use crate::device_monitor::Memory;
use crate::engine::{AttachTerms, Engine, Verdict};
use crate::txg::TxgHandle;
use crate::vdev_ops::replicas;

/// The properties that limit a symptom: the number of errors, and the seconds within which they
/// count.
const LIMITS: [(Symptom, &str, &str); 3] = [
    (Symptom::Checksum, "checksum_n", "checksum_t"),
    (Symptom::Io, "io_n", "io_t"),
    (Symptom::Slow, "slow_io_n", "slow_io_t"),
];

/// Whether a vdev property is a limit for a symptom.
pub(crate) fn is_limit(name: &str) -> bool {
    LIMITS.iter().any(|(_, count, time)| name == *count || name == *time)
}

/// The limit that the properties set. Slow I/Os have a limit only if both properties are set.
fn limit(what: Symptom, count: Option<u64>, seconds: Option<u64>) -> Limit {
    let usual = match what {
        Symptom::Slow if count.is_none() || seconds.is_none() => return Limit::NEVER,
        _ => Limit::DEFAULT,
    };
    Limit { count: count.unwrap_or(usual.count), within: seconds.map_or(usual.within, Duration::from_secs) }
}

impl Engine {
    /// Gives the tree its error limits, from the properties of devices and their top-level vdevs. A
    /// property that can't be read counts as unset.
    pub(crate) fn load_limits(&self) {
        let config = self.config_now();
        let tree = self.tree();
        let number = |zap: Option<ObjNum>, name: &str| {
            let value = zap.and_then(|zap| self.mos.u64(zap, name).ok().flatten());
            // `none` is stored as this value, which also stands for an unset property.
            value.filter(|n| *n != u64::MAX)
        };
        for top in config.vdev_tree.iter().flat_map(|root| &root.children) {
            for leaf in top.leaves() {
                for (what, count, time) in LIMITS {
                    let of = |name: &str| number(leaf.leaf_zap, name).or_else(|| number(top.top_zap, name));
                    // A vdev that has left the tree needs no limit.
                    let _ = tree.set_limit(leaf.guid, what, limit(what, of(count), of(time)));
                }
            }
        }
    }

    /// Degrades or faults the devices with too many errors.
    pub(crate) fn judge(&self, txgs: &TxgHandle) {
        for (guid, what) in self.tree().bell().take_alarms() {
            let verdict = match what {
                Symptom::Io => Verdict::Failing,
                Symptom::Checksum | Symptom::Slow => Verdict::Poor,
            };
            // The vdev may be gone or faulted by now.
            if self.tree().state_of(guid).is_ok_and(|(state, _)| state >= VdevState::Degraded) {
                let _ = self.fault(txgs, guid, verdict);
            }
        }
    }

    /// The devices that are faulted, removed or can't be opened, or that are degraded for errors.
    pub(crate) fn not_well(&self) -> Vec<Guid> {
        let tree = self.tree();
        let ill = |leaf: &&VdevConfig| match tree.state_of(leaf.guid) {
            Ok((VdevState::Faulted | VdevState::Removed | VdevState::CantOpen, _)) => true,
            Ok((VdevState::Degraded, aux)) => aux == VdevAux::ErrExceeded,
            Ok(_) | Err(_) => false,
        };
        tree.config().leaves().filter(ill).map(|leaf| leaf.guid).collect()
    }

    /// Lets hot spares take the places of the devices that need one.
    pub(crate) fn send_spares(self: &Arc<Self>, txgs: &TxgHandle, memory: &mut Memory) {
        let ill = self.not_well();
        memory.known.retain(|guid| ill.contains(guid));
        memory.spare_is_due = false;
        for guid in ill.into_iter().filter(|guid| !memory.known.contains(guid)) {
            if self.wants_spare(guid) {
                memory.spare_is_due |= !self.send_spare(txgs, guid) && self.has_free_spare();
            }
        }
    }

    /// Whether a hot spare is free.
    fn has_free_spare(&self) -> bool {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        self.aux.read().spares.iter().any(|spare| root.find(spare.config.guid).is_none())
    }

    /// Whether a device has no spare yet.
    fn wants_spare(&self, guid: Guid) -> bool {
        let config = self.config_now();
        let root = config.vdev_tree.as_ref().expect("an engine's config has a tree");
        let tree = self.tree();
        let works = |side: &VdevConfig| {
            side.guid != guid && tree.state_of(side.guid).is_ok_and(|(state, _)| state >= VdevState::Degraded)
        };
        replicas::parent_of(root, guid).is_some_and(|parent| match parent.kind {
            VdevKind::Spare | VdevKind::Replacing => !parent.children.iter().any(works),
            _ => true,
        })
    }

    /// Tries the spares in order until one takes the device's place; true if one did.
    fn send_spare(self: &Arc<Self>, txgs: &TxgHandle, guid: Guid) -> bool {
        let spares: Vec<VdevConfig> =
            self.aux.read().spares.iter().map(|spare| spare.config.clone()).collect();
        let config = self.config_now();
        let in_use = |spare: &VdevConfig| {
            config.vdev_tree.as_ref().is_some_and(|root| root.find(spare.guid).is_some())
        };
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
                self.attach(txgs, guid, &new, &terms).is_ok()
            };
            if distributed && joins(true) || joins(false) {
                self.notice(spare.guid, "vdev_spare");
                if !self.not_well().contains(&guid) {
                    // The device was cleared or became available before the spare was attached, so
                    // that path released no spare. Release it here.
                    self.unspare(&|leaf| leaf.guid == guid);
                    self.errands.end_replacements(&self.tree());
                }
                return true;
            }
        }
        false
    }
}
