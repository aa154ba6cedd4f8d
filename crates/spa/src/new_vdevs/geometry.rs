//! The space of a new vdev: its allocatable size, metaslab size and sector size.
//!
//! See OpenZFS `vdev_open`, `vdev_raidz_open`, `vdev_draid_open`, `vdev_metaslab_set_size`.

use observe::{Tunable, Unit};
use ondisk::label::{LABEL_END_SIZE, LABEL_SIZE, LABEL_START_SIZE};
use ondisk::{Ashift, VdevConfig, VdevKind};
use vdev::{DRAID_RESERVE, DRAID_ROW_HEIGHT};

#[cfg(test)]
mod tests;

/// Smallest metaslab: it has space for the largest block (`SPA_MAXBLOCKSHIFT`).
const MIN_MS_SHIFT: u32 = 24;
/// Largest metaslab, unless there would be too many (`zfs_vdev_max_ms_shift`).
pub static MAX_MS_SHIFT: Tunable = Tunable::new(
    "zfs_vdev_max_ms_shift",
    34,
    24..=40,
    Unit::Shift,
    "largest size of a metaslab of a new vdev",
);
/// Default size of a metaslab (`zfs_vdev_default_ms_shift`).
pub static DEFAULT_MS_SHIFT: Tunable =
    Tunable::new("zfs_vdev_default_ms_shift", 29, 24..=40, Unit::Shift, "size of a metaslab of a new vdev");
/// Fewest metaslabs of a vdev (`zfs_vdev_min_ms_count`).
pub static MIN_MS_COUNT: Tunable =
    Tunable::new("zfs_vdev_min_ms_count", 16, 2..=1 << 17, Unit::Count, "fewest metaslabs of a new vdev");
/// Metaslabs of a large vdev (`zfs_vdev_default_ms_count`).
pub static DEFAULT_MS_COUNT: Tunable = Tunable::new(
    "zfs_vdev_default_ms_count",
    200,
    2..=1 << 17,
    Unit::Count,
    "number of metaslabs of a large new vdev",
);
/// Most metaslabs of a vdev (`zfs_vdev_ms_count_limit`).
pub static MS_COUNT_LIMIT: Tunable = Tunable::new(
    "zfs_vdev_ms_count_limit",
    1 << 17,
    2..=1 << 24,
    Unit::Count,
    "most metaslabs of a new vdev",
);
/// Smallest sector size that is chosen for a vdev, as a shift (`zfs_vdev_min_auto_ashift`).
pub static MIN_AUTO: Tunable = Tunable::new(
    "zfs_vdev_min_auto_ashift",
    9,
    9..=16,
    Unit::Shift,
    "smallest sector size chosen for a vdev",
);
/// Largest shift that is chosen for a device's physical sector size (`zfs_vdev_max_auto_ashift`).
pub static MAX_AUTO: Tunable = Tunable::new(
    "zfs_vdev_max_auto_ashift",
    14,
    9..=16,
    Unit::Shift,
    "largest sector size chosen because a device prefers it",
);
/// Logical sector size of files, as a shift (`vdev_file_logical_ashift`).
pub static FILE_LOGICAL: Tunable =
    Tunable::new("vdev_file_logical_ashift", 9, 9..=16, Unit::Shift, "smallest sector size of a file vdev");
/// Physical sector size of files, as a shift (`vdev_file_physical_ashift`).
pub static FILE_PHYSICAL: Tunable =
    Tunable::new("vdev_file_physical_ashift", 9, 9..=16, Unit::Shift, "preferred sector size of a file vdev");

/// Allocatable bytes of a device of `size` bytes: whole labels, without labels and boot area.
pub(crate) fn leaf_asize(size: u64) -> u64 {
    (size - size % LABEL_SIZE).saturating_sub(LABEL_START_SIZE + LABEL_END_SIZE)
}

/// Allocatable bytes of a vdev; `leaf` gives those of a leaf.
pub(crate) fn asize(vdev: &VdevConfig, leaf: &dyn Fn(&VdevConfig) -> u64) -> u64 {
    if vdev.kind.is_leaf() {
        return leaf(vdev);
    }
    let least = vdev.children.iter().map(|c| asize(c, leaf)).min().unwrap_or(0);
    let space = match (vdev.kind, vdev.draid) {
        (VdevKind::Raidz, _) => least * vdev.children.len() as u64,
        (VdevKind::Draid, Some(d)) => {
            let rows = least.saturating_sub(DRAID_RESERVE) / DRAID_ROW_HEIGHT * DRAID_ROW_HEIGHT;
            let disks = vdev.children.len() as u64 - d.nspares;
            let group = (d.ndata + vdev.nparity.unwrap_or(1)) * DRAID_ROW_HEIGHT;
            rows * disks / group * group
        }
        _ => least,
    };
    space - space % LABEL_SIZE
}

/// The metaslab size of a new vdev with `asize` allocatable bytes, as a shift
/// (`vdev_metaslab_set_size`).
pub(super) fn metaslab_shift(asize: u64) -> u64 {
    // As OpenZFS's highbit64: the number of bits that the value needs.
    let bits = |n: u64| u64::BITS - n.leading_zeros();
    let (least, many) = (MIN_MS_COUNT.get().max(2), DEFAULT_MS_COUNT.get().max(2));
    let shift_of = |tunable: &Tunable| (tunable.get() as u32).clamp(MIN_MS_SHIFT, 60);
    let (usual, largest) = (shift_of(&DEFAULT_MS_SHIFT), shift_of(&MAX_MS_SHIFT));
    let limit = MS_COUNT_LIMIT.get().max(2);
    let count = asize >> usual;
    let shift = if count < least {
        bits(asize / least)
    } else if count > many {
        bits(asize / many)
    } else {
        usual
    };
    let shift = match shift {
        ..MIN_MS_SHIFT => MIN_MS_SHIFT,
        s if s <= largest => s,
        _ if asize >> largest > limit => bits(asize / limit),
        _ => largest,
    };
    // Whatever the tunables say, the vdev has at least one whole metaslab.
    u64::from(shift.min(asize.checked_ilog2().unwrap_or(0)).max(MIN_MS_SHIFT))
}

/// The sector size of a device as a shift: the physical one up to `zfs_vdev_max_auto_ashift`.
pub(super) fn auto_ashift(logical: u32, physical: u32) -> Ashift {
    let of = |tunable: &Tunable| tunable.get().clamp(9, 16) as u8;
    let shift = |bytes: u32| bytes.max(512).ilog2() as u8;
    let logical = shift(logical);
    let physical = shift(physical).max(logical);
    // A larger physical sector size does not count.
    if logical < physical && physical <= of(&MAX_AUTO) {
        Ashift(physical.max(of(&MIN_AUTO)).min(of(&MAX_AUTO)).max(logical))
    } else {
        Ashift(logical.max(of(&MIN_AUTO)))
    }
}
