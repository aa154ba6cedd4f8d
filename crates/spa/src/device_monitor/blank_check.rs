//! What may be taken without being asked: blank devices, and hot spares that are still what they were.
//!
//! # Theory
//! Names of devices change, and what is at the path of a hot spare, or of a device that is missing, may be a stranger's. Whoever says `zpool replace` has looked; what the pool does by itself
//! must not overwrite anything that somebody may want. So a device takes another's place only if it is blank, and a spare only if all says that it is this spare, and that nothing else was put there since.
//!
//! Labels at the end of a device outlive most programs that make file systems, which write at its front. So the front counts: a spare's is empty up to its first label, since
//! labelling it as one empties it.
//!
//! # Absent
//! What lies elsewhere than at the ends, and a mark at the end of a spare's device, behind its labels or in their empty rings, where old versions of Linux's md have theirs.
//!
//! # See
//! OpenZFS asks in `zpool` alone (`check_in_use`), and not when a spare steps in.

use device::{AlignedBuf, Device};
use ondisk::config::PoolState;
use ondisk::label::{LABEL_START_SIZE, LABELS, PAD_SIZE, label_offset};
use ondisk::{Guid, PoolConfig};

use crate::Labels;
use crate::discovery::label::LabelError;

/// Whether a device has nothing but zeros where labels of pools lie, and the marks of nearly everything else: at its front, and from the labels at its end to its last byte. What
/// can't be read is not blank.
pub(crate) fn is_blank(device: &dyn Device) -> bool {
    let size = device.size();
    label_offset(size, 2)
        .is_some_and(|end| is_zero(device, 0, LABEL_START_SIZE) && is_zero(device, end, size - end))
}

/// Whether that many bytes are zeros; both numbers are whole sectors, as sizes of devices and of labels are.
fn is_zero(device: &dyn Device, at: u64, len: u64) -> bool {
    let mut bytes = AlignedBuf::zeroed(len as usize);
    device.read_at(&mut bytes, at).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Whether all labels say that a device is this hot spare, and that nobody uses it.
pub(crate) fn says_spare(labels: &Labels, spare: Guid) -> bool {
    let says = |l: &PoolConfig| l.state == PoolState::Spare && l.guid == Some(spare);
    labels.copies.iter().all(|copy| copy.as_ref().is_ok_and(says))
}

/// Whether a device is this hot spare, and nothing else since: both labels at its front say so, or one there and one at its end, none says anything else, and nothing was put before the first. Labels of the
/// pool itself are there if the power failed, or the device, when it stepped in or was let go.
pub(crate) fn is_spare(device: &dyn Device, labels: &Labels, spare: Guid, pool: Option<Guid>) -> bool {
    let own = |l: &PoolConfig| l.pool_guid.is_some() && l.pool_guid == pool;
    let says = |copy: &Result<PoolConfig, LabelError>| {
        copy.as_ref().is_ok_and(|l| l.guid == Some(spare) && (l.state == PoolState::Spare || own(l)))
    };
    let (front, back) = labels.copies.split_at(LABELS / 2);
    let foreign = labels.copies.iter().any(|copy| copy.is_ok() && !says(copy));
    // Those at the end are elsewhere when the device has grown.
    let there = front.iter().all(says) || front.iter().any(says) && back.iter().any(says);
    !foreign && there && is_zero(device, 0, PAD_SIZE)
}
