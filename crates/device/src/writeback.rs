//! Starts the writeback of a file's dirty pages before a thread waits for it.
//!
//! # Theory
//! The system keeps written data in memory until it writes them back, at the latest at a flush.
//! Then all megabytes of a transaction group go to the device at once. Small writes of the log, for
//! which threads wait, queue behind them.
//!
//! So a large write starts its own writeback at once. It waits if more than a little is in
//! progress. Where the system keeps no data in memory, `zfs_vdev_async_write_max_active` has this
//! effect.
//!
//! # Absent
//! Durability is the task of the flush, and so is the report of errors. The system reports an error
//! once to each open file description, so this module has one of its own.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;

use observe::lock::Mutex;

/// Least bytes that are worth it: smaller writes are often followed by others beside them or over
/// them.
pub(crate) const WORTH: u64 = 128 << 10;
/// Most bytes in progress on which no thread has waited.
const UNDERWAY_MAX: u64 = 8 << 20;

/// Starts writebacks, and bounds those in progress.
#[derive(Debug)]
pub(crate) struct Writeback {
    file: File,
    underway: Mutex<InProgress>,
}

#[derive(Debug, Default)]
struct InProgress {
    ranges: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl InProgress {
    /// Adds a range, and removes the oldest ranges that are too many.
    fn add(&mut self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        self.ranges.push_back((offset, len));
        self.bytes += len;
        let mut over = Vec::new();
        while self.bytes > UNDERWAY_MAX.max(len)
            && let Some(range) = self.ranges.pop_front()
        {
            self.bytes -= range.1;
            over.push(range);
        }
        over
    }
}

impl Writeback {
    /// `file` is an open file description that nothing else uses.
    pub(crate) fn new(file: File) -> Self {
        Self { file, underway: Mutex::default() }
    }

    /// Starts the writeback of a range, and waits for earlier ones if too much is in progress.
    pub(crate) fn wrote(&self, offset: u64, len: u64) {
        self.range(offset, len, libc::SYNC_FILE_RANGE_WRITE);
        let over = self.underway.lock().add(offset, len);
        for (offset, len) in over {
            self.range(offset, len, libc::SYNC_FILE_RANGE_WAIT_BEFORE);
        }
    }

    // No safe form: neither the standard library nor rustix has this call.
    #[allow(unsafe_code)]
    fn range(&self, offset: u64, len: u64, flags: libc::c_uint) {
        let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
        // SAFETY: the call takes numbers only, and the descriptor is open as long as `self`.
        let done = unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, flags) };
        // Best effort: the flush writes what is not started now, and reports errors too.
        let _ = done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the waits are for the oldest writebacks, and leave only a little in progress; one
    /// large write alone waits for none.
    #[test]
    fn a_little_is_under_way() {
        const MIB: u64 = 1 << 20;
        let mut underway = InProgress::default();
        for n in 0..8 {
            assert_eq!(underway.add(n * MIB, MIB), []);
        }
        assert_eq!(underway.add(9 * MIB, MIB), [(0, MIB)]);
        assert_eq!(underway.add(10 * MIB, 2 * MIB), [(MIB, MIB), (2 * MIB, MIB)]);
        assert_eq!(underway.add(20 * MIB, 16 * MIB).len(), 7);
        assert_eq!(underway.bytes, 16 * MIB);
        assert_eq!(InProgress::default().add(0, 16 * MIB), []);
    }
}
