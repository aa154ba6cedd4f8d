//! Open files that are kept back, so that a process without any left can still unmount and end.
//!
//! # Theory
//! Each mount is an open file, and so are devices, clients and logs. A process that has as many as
//! it may can't open the table of mounts, nor accept who asks it to unmount something. So it has a
//! few files open that it needs for nothing, and closes them for that.
//!
//! # Locks
//! Whoever works with the reserve has it alone.
//!
//! # Absent
//! Other processes' share of the files of the whole system.

use parking_lot::Mutex;
use std::fs::File;

/// How many are kept.
const KEPT: usize = 16;
/// How many are lent at a time: for a connection, and what it asks for.
const LENT: usize = 4;

/// The files; none where nothing is to be kept.
static SPARE: Mutex<Option<Vec<File>>> = Mutex::new(None);

fn fill(spare: &mut Option<Vec<File>>) {
    let Some(files) = spare else { return };
    while files.len() < KEPT {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            // There will be some again.
            Err(_) => return,
        }
    }
}

/// Keeps files back from now on.
pub fn keep() {
    let mut spare = SPARE.lock();
    *spare = Some(Vec::with_capacity(KEPT));
    fill(&mut spare);
}

/// Keeps none back any more: the process ends.
pub fn give_up() {
    *SPARE.lock() = None;
}

/// Frees a few for others; false if there are none. [`refill`] takes them back.
pub fn lend() -> bool {
    let Some(mut spare) = SPARE.try_lock() else { return false };
    let Some(files) = spare.as_mut().filter(|files| !files.is_empty()) else { return false };
    let left = files.len().saturating_sub(LENT);
    files.truncate(left);
    true
}

/// Keeps as many back again as there were.
pub fn refill() {
    if let Some(mut spare) = SPARE.try_lock() {
        fill(&mut spare);
    }
}

/// Does something with the reserve at hand.
pub(crate) fn with<R>(work: impl FnOnce() -> R) -> R {
    let mut spare = SPARE.lock();
    if let Some(files) = spare.as_mut() {
        files.clear();
    }
    let done = work();
    fill(&mut spare);
    done
}
