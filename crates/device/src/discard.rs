//! Discards of a block device, which tell it that a range holds no data (`BLKDISCARD`).

use std::fs::File;

use rustix::io::Result;
use rustix::ioctl::{Setter, ioctl, opcode};

use crate::file::queue_limit;

/// `BLKDISCARD`, whose argument is an offset and a length.
const DISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);

/// True if sysfs says that the device can discard.
pub(crate) fn may_discard(file: &File) -> bool {
    queue_limit(file, "discard_max_bytes").is_some_and(|most| most > 0)
}

/// Discards a range, also from the system's cache.
#[allow(unsafe_code)]
pub(crate) fn discard(file: &File, offset: u64, len: u64) -> Result<()> {
    // SAFETY: the system reads two 64-bit numbers and keeps no reference to them.
    unsafe { ioctl(file, Setter::<DISCARD, [u64; 2]>::new([offset, len])) }
}
