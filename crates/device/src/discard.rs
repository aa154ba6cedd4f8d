//! Telling a block device that a range holds nothing of use (`BLKDISCARD`).

use std::fs::File;

use rustix::io::Result;
use rustix::ioctl::{Setter, ioctl, opcode};

use crate::file::queue_limit;

/// `BLKDISCARD`, whose argument is a start and a length.
const DISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);

/// Whether the device is known to be able to.
pub(crate) fn may_discard(file: &File) -> bool {
    queue_limit(file, "discard_max_bytes").is_some_and(|most| most > 0)
}

/// Discards a range. What the system has cached of it goes too.
#[allow(unsafe_code)]
pub(crate) fn discard(file: &File, offset: u64, len: u64) -> Result<()> {
    // SAFETY: the system reads two 64-bit numbers and keeps no reference to them.
    unsafe { ioctl(file, Setter::<DISCARD, [u64; 2]>::new([offset, len])) }
}
