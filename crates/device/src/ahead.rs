//! Having the system write what it holds of a file before anybody waits for it.
//!
//! # Theory
//! What is written to a file lies in memory until the system writes it, at the latest when somebody flushes: then all of a group's megabytes go to the device
//! at once, and small writes that somebody waits for, those of logs, stand in the device's queue behind them. So whoever writes much has it written at once,
//! and waits when more than a little is on its way (`zfs_vdev_async_write_max_active` does that where the system has no memory of its own).
//!
//! # Absent
//! Durability, which is the flush's, and errors, which the flush tells: the system tells of each once to whoever asks through one opening of the file, so this has
//! one of its own.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;

use parking_lot::Mutex;

/// Least bytes that are worth it: smaller writes are often followed by others beside them, or over them.
pub(crate) const WORTH: u64 = 128 << 10;
/// Most bytes on their way of which nobody has waited for any.
const UNDERWAY_MAX: u64 = 8 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ahead {
    file: File,
    underway: Mutex<Underway>,
}

#[derive(Debug, Default)]
struct Underway {
    ranges: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Underway {
    /// Adds a range, and takes out those that are too many.
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

impl Ahead {
    /// `file` is an opening that nobody else uses.
    pub(crate) fn new(file: File) -> Self {
        Self { file, underway: Mutex::default() }
    }

    /// Has the system begin to write a range, and waits for earlier ones while too much is on its way.
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
        // SAFETY: the call is given numbers alone, and the descriptor is open as long as `self`.
        let done = unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, flags) };
        // Best effort: what is not begun now is written by the flush, which tells of errors too.
        let _ = done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is waited for is what was begun first, and no more than leaves a little under way; one large write alone waits for none.
    #[test]
    fn a_little_is_under_way() {
        const MIB: u64 = 1 << 20;
        let mut underway = Underway::default();
        for n in 0..8 {
            assert_eq!(underway.add(n * MIB, MIB), []);
        }
        assert_eq!(underway.add(9 * MIB, MIB), [(0, MIB)]);
        assert_eq!(underway.add(10 * MIB, 2 * MIB), [(MIB, MIB), (2 * MIB, MIB)]);
        assert_eq!(underway.add(20 * MIB, 16 * MIB).len(), 7);
        assert_eq!(underway.bytes, 16 * MIB);
        assert_eq!(Underway::default().add(0, 16 * MIB), []);
    }
}
