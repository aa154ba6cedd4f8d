//! The number of threads that mount and unmount.

use observe::{Tunable, Unit};

/// Most threads of one request: each needs a stack.
const MOUNT_THREADS_MAX: u32 = 4096;
/// The number of threads that read plans, mount and unmount, unless a request has a number
/// (`mount_tp_nthr`).
///
/// They wait for devices most of the time, so there are more of them than processors.
pub static MOUNT_TP_NTHR: Tunable = Tunable::new(
    "mount_tp_nthr",
    128,
    1..=MOUNT_THREADS_MAX as u64,
    Unit::Count,
    "number of threads that mount and unmount at a time",
);

/// The value of [`MOUNT_TP_NTHR`].
pub fn mount_threads() -> u32 {
    u32::try_from(MOUNT_TP_NTHR.get()).unwrap_or(MOUNT_THREADS_MAX)
}

/// The number of threads for a request, within the limits.
pub(crate) fn threads_for(asked: Option<u32>) -> usize {
    asked.unwrap_or_else(mount_threads).clamp(1, MOUNT_THREADS_MAX) as usize
}
