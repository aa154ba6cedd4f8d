//! What a pool could not read without a device.
//!
//! # Theory
//! A vdev is *out* for a txg if data of that txg can't be read from it:
//!
//! * a device for the txgs that it missed, and for all while it is absent;
//! * a mirror for those for which all children are out;
//! * a raidz for those for which more children are out than it has parity.
//!
//! A device is *required* if its top-level vdev would be out for some txg without it.
//!
//! # See
//! OpenZFS `vdev_dtl_reassess` (`DTL_OUTAGE`), `vdev_dtl_required`, `vdev_get_min_asize`.

use ondisk::{Guid, VdevConfig, VdevKind};
use vdev::{DRAID_RESERVE, Tree, TxgRanges, VdevState};

/// The txgs for which a vdev is out, as if the devices in `gone` were absent.
// Recursion as deep as the tree, whose depth was checked when it was built.
pub(crate) fn outage(tree: &Tree, vdev: &VdevConfig, gone: &[Guid]) -> TxgRanges {
    let least = match vdev.kind {
        VdevKind::Hole | VdevKind::Indirect => return TxgRanges::default(),
        VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare | VdevKind::Missing => {
            let there = tree.state_of(vdev.guid).is_ok_and(|(state, _)| state >= VdevState::Degraded);
            let missed = tree.dtl(vdev.guid).ok().filter(|_| there && !gone.contains(&vdev.guid));
            return missed.unwrap_or_else(|| TxgRanges::new([(0, u64::MAX)]));
        }
        VdevKind::Raidz | VdevKind::Draid => vdev.nparity.unwrap_or(1) as usize + 1,
        VdevKind::Root => 1,
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => vdev.children.len(),
    };
    let children: Vec<TxgRanges> = vdev.children.iter().map(|child| outage(tree, child, gone)).collect();
    TxgRanges::in_at_least(least, &children)
}

/// Whether some data can be read only from this device (`vdev_dtl_required`).
pub(crate) fn is_required(tree: &Tree, root: &VdevConfig, leaf: Guid) -> bool {
    let top = root.children.iter().find(|top| top.find(leaf).is_some());
    top.is_none_or(|top| top.guid == leaf || !outage(tree, top, &[leaf]).is_empty())
}

/// The same for a device that is to be faulted. Devices that replace others, or are replaced, don't
/// count, since they are the likeliest to fail too (`faulting` in `vdev_dtl_reassess`).
pub(crate) fn is_required_when_faulting(tree: &Tree, root: &VdevConfig, leaf: Guid) -> bool {
    let Some(top) = root.children.iter().find(|top| top.find(leaf).is_some()) else { return true };
    let mut gone = vec![leaf];
    for replacing in top.walk().filter(|vdev| vdev.kind == VdevKind::Replacing) {
        gone.extend(replacing.children.iter().filter(|side| side.kind.is_leaf()).map(|side| side.guid));
    }
    top.guid == leaf || !outage(tree, top, &gone).is_empty()
}

/// Whether everything can be read without these devices.
pub(crate) fn can_spare(tree: &Tree, root: &VdevConfig, leaves: &[Guid]) -> bool {
    root.children.iter().all(|top| outage(tree, top, leaves).is_empty())
}

/// The parent of a vdev.
pub(crate) fn parent_of(root: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    root.walk().find(|vdev| vdev.children.iter().any(|child| child.guid == guid))
}

/// Least allocatable bytes of a replacement for a vdev (`vdev_get_min_asize`).
// Recursion as deep as the tree, whose depth was checked when it was built.
pub(crate) fn min_asize(root: &VdevConfig, guid: Guid) -> u64 {
    let Some(parent) = parent_of(root, guid) else { return 0 };
    if parent.kind == VdevKind::Root {
        let top = parent.children.iter().find(|top| top.guid == guid);
        let unit = top.and_then(|top| top.metaslab_shift).filter(|s| *s < 63).map_or(1, |s| 1u64 << s);
        return top.and_then(|top| top.asize).unwrap_or(0) / unit * unit;
    }
    let above = min_asize(root, parent.guid);
    let children = parent.children.len() as u64;
    match (parent.kind, parent.draid) {
        (VdevKind::Raidz, _) => above.div_ceil(children),
        (VdevKind::Draid, Some(shape)) => {
            above.div_ceil(children.saturating_sub(shape.nspares).max(1)).saturating_add(DRAID_RESERVE)
        }
        _ => above,
    }
}

/// Changes a vdev at or below another; true if it was there.
// Recursion as deep as the tree, whose depth was checked when it was built.
pub(crate) fn edit(vdev: &mut VdevConfig, guid: Guid, with: &mut dyn FnMut(&mut VdevConfig)) -> bool {
    if vdev.guid == guid {
        with(vdev);
        return true;
    }
    vdev.children.iter_mut().any(|child| edit(child, guid, with))
}

/// The hole that keeps the ids of the top-level vdevs behind it.
pub(crate) fn hole(id: u64) -> VdevConfig {
    VdevConfig { id, is_hole: true, ..VdevConfig::new(VdevKind::Hole, Guid(0)) }
}
