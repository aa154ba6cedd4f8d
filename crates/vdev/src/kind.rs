//! Properties of kinds of vdevs.

use ondisk::config::VdevKind;

/// Whether blocks live on vdevs of this kind (`vdev_is_concrete`).
pub(crate) fn is_concrete(kind: VdevKind) -> bool {
    !matches!(kind, VdevKind::Root | VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing)
}

/// Whether all children of such a vdev hold the same (`vdev_mirror_ops` and its two relatives).
pub(crate) fn is_mirrored(kind: VdevKind) -> bool {
    matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
}
