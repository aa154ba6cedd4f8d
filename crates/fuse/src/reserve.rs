//! Spare open files, so that a process at its limit can still unmount and exit.
//!
//! # Theory
//! Each mount needs an open file, and so do devices, clients and logs. A process at its limit of
//! open files can't open the table of mounts, nor accept a client that requests an unmount. So the
//! process keeps a few files open without use, and closes them for these purposes.
//!
//! # Locks
//! One thread uses the reserve at a time.
//!
//! # Absent
//! The system-wide limit of open files, which other processes share.

use observe::lock::Mutex;
use std::fs::File;

/// Number of spare files.
const KEPT: usize = 16;
/// Number of files that [`lend`] closes: for a connection and its request.
const LENT: usize = 4;

/// The files. `None` while no reserve is kept.
static SPARE: Mutex<Option<Vec<File>>> = Mutex::new(None);

fn fill(spare: &mut Option<Vec<File>>) {
    let Some(files) = spare else { return };
    while files.len() < KEPT {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            // A later call can fill the rest.
            Err(_) => return,
        }
    }
}

/// Starts to keep a reserve.
pub fn keep() {
    let mut spare = SPARE.lock();
    *spare = Some(Vec::with_capacity(KEPT));
    fill(&mut spare);
}

/// Closes the reserve for good: the process is about to exit.
pub fn give_up() {
    *SPARE.lock() = None;
}

/// Closes a few spare files, so that others can be opened. Returns false if there are none.
///
/// [`refill`] opens them again.
pub fn lend() -> bool {
    let Some(mut spare) = SPARE.try_lock() else { return false };
    let Some(files) = spare.as_mut().filter(|files| !files.is_empty()) else { return false };
    let left = files.len().saturating_sub(LENT);
    files.truncate(left);
    true
}

/// Opens spare files until the reserve is complete.
pub fn refill() {
    if let Some(mut spare) = SPARE.try_lock() {
        fill(&mut spare);
    }
}

/// Runs `work` with the whole reserve closed, and fills it again afterwards.
pub(crate) fn with<R>(work: impl FnOnce() -> R) -> R {
    let mut spare = SPARE.lock();
    if let Some(files) = spare.as_mut() {
        files.clear();
    }
    let done = work();
    fill(&mut spare);
    done
}
