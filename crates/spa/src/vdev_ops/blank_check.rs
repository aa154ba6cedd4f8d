//! The test before the pool itself takes a device: it is blank, or still this pool's hot spare.
//!
//! # Theory
//! Names of devices change. The path of a hot spare, or of a missing device, may lead to a device
//! with other data. A user of `zpool replace` has checked that; the pool itself must not overwrite
//! data that may be wanted. So a device may take another's place only if it is blank. A spare may
//! only if all its labels name it, and nothing was put there since.
//!
//! Labels at the end of a device outlive most programs that make file systems, because these write
//! at its front. So the front counts: a spare's is empty up to its first label, as labelling it has
//! emptied it.
//!
//! # Absent
//! Data elsewhere than at the ends. Also a mark at the end of a spare, behind its labels or in
//! their empty rings, where old versions of Linux's md put theirs.
//!
//! # See
//! OpenZFS checks only in `zpool` (`is_device_in_use`), and not when a spare steps in.

use device::{AlignedBuf, Device};
use ondisk::config::PoolState;
use ondisk::label::{LABEL_START_SIZE, LABELS, PAD_SIZE, label_offset};
use ondisk::{Guid, PoolConfig};

use crate::Labels;
use crate::discovery::label::LabelError;

/// Whether a device holds only zeros where pool labels and the marks of nearly all other formats
/// lie.
///
/// These are its front, and its end from the labels to the last byte. A device that can't be read
/// is not blank.
pub(crate) fn is_blank(device: &dyn Device) -> bool {
    let size = device.size();
    label_offset(size, 2)
        .is_some_and(|end| is_zero(device, 0, LABEL_START_SIZE) && is_zero(device, end, size - end))
}

/// Whether these bytes are zeros. Both numbers are whole sectors, like the sizes of devices and
/// labels.
fn is_zero(device: &dyn Device, at: u64, len: u64) -> bool {
    let mut bytes = AlignedBuf::zeroed(len as usize);
    device.read_at(&mut bytes, at).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Whether all labels name this hot spare, and no pool uses it.
pub(crate) fn says_spare(labels: &Labels, spare: Guid) -> bool {
    let says = |l: &PoolConfig| l.state == PoolState::Spare && l.guid == Some(spare);
    labels.copies.iter().all(|copy| copy.as_ref().is_ok_and(says))
}

/// Whether a device is this hot spare, and nothing else since.
///
/// Both labels at its front must say so, or one there and one at its end; none may say anything
/// else. Nothing may precede the first. Labels of the pool itself are there if the power or the
/// device failed while the spare stepped in or was released.
pub(crate) fn is_spare(device: &dyn Device, labels: &Labels, spare: Guid, pool: Option<Guid>) -> bool {
    let own = |l: &PoolConfig| l.pool_guid.is_some() && l.pool_guid == pool;
    let says = |copy: &Result<PoolConfig, LabelError>| {
        copy.as_ref().is_ok_and(|l| l.guid == Some(spare) && (l.state == PoolState::Spare || own(l)))
    };
    let (front, back) = labels.copies.split_at(LABELS / 2);
    let foreign = labels.copies.iter().any(|copy| copy.is_ok() && !says(copy));
    // The labels at the end are elsewhere if the device has grown.
    let there = front.iter().all(says) || front.iter().any(says) && back.iter().any(says);
    !foreign && there && is_zero(device, 0, PAD_SIZE)
}
