//! Faults that somebody asks for (`zinject`): errors and delays of a device, and errors of blocks of an object.
//!
//! # Theory
//! A process has one list of them, and whoever reads or writes asks it: [`strike`] for an operation on a leaf, [`spoil`] for a copy of a block. While nobody has
//! asked for anything, that costs a look at one number. A fault of a device changes the outcome of an operation, nothing of the device itself: an error is told
//! instead of it, bytes that were read are changed on their way up, a write is told to have been done. Labels are spared, as OpenZFS spares them: what is
//! tried is how blocks fare, not whether a pool is found.
//!
//! # Locks
//! The list's own lock, for a few instructions; a delay is waited for without it.
//!
//! # Absent
//! Faults of a crypt or decompression layer of their own, of indirect blocks by level of the MOS, panics, and what pretends to be out of space.
//!
//! # See
//! OpenZFS `zio_inject.c`.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use device::{DeviceError, Op};
use ondisk::Guid;
use parking_lot::Mutex;

/// What is asked of a leaf, as far as faults tell it apart (`zio_type_t`, and probes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Free,
    /// Asking whether it still works.
    Probe,
}

/// What goes wrong on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It fails with this error of the operating system.
    Error(i32),
    /// One bit that was read is another (`-e corrupt`).
    Corrupt,
    /// Nothing is done, and nobody told (`-e noop`).
    Noop,
    /// It takes this long, and so many at a time are under way (`-D`).
    Delay {
        /// Time that one takes.
        each: Duration,
        /// How many at a time.
        lanes: u32,
    },
}

/// Which blocks of an object are found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Object set.
    pub objset: u64,
    /// Object.
    pub object: u64,
    /// Level in its tree.
    pub level: u8,
    /// Blocks of that level.
    pub blkid: Range<u64>,
    /// Copies, a bit for each; 0 is all.
    pub copies: u32,
    /// Their checksum does not match; otherwise they can't be read.
    pub checksum: bool,
}

/// What a fault befalls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A device of a pool.
    Leaf {
        /// Which.
        leaf: Guid,
        /// What is asked of it; nothing is everything but probes.
        on: Option<On>,
        /// What goes wrong.
        wrong: Wrong,
    },
    /// Blocks of an object, when they are read.
    Data(Blocks),
}

/// A fault that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The pool, by its guid.
    pub pool: Guid,
    /// What it befalls.
    pub target: Target,
    /// How often, in a hundred thousand.
    pub often: u32,
}

/// All of [`Fault::often`].
pub const ALWAYS: u32 = 100_000;
/// Faults at a time.
const MOST: usize = 4096;

struct Handler {
    id: u64,
    fault: Fault,
    /// When each lane of a delay is free.
    lanes: Vec<Instant>,
    hits: u64,
}

#[derive(Default)]
struct List {
    last: u64,
    rng: u64,
    all: Vec<Handler>,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<List> = Mutex::new(List { last: 0, rng: 0x9e37_79b9_7f4a_7c15, all: Vec::new() });

/// Asks for a fault; gives its number, or nothing if there are too many.
pub fn add(fault: Fault) -> Option<u64> {
    let list = &mut *LIST.lock();
    if list.all.len() == MOST {
        return None;
    }
    list.last += 1;
    let lanes = match &fault.target {
        Target::Leaf { wrong: Wrong::Delay { lanes, .. }, .. } => vec![Instant::now(); *lanes as usize],
        _ => Vec::new(),
    };
    list.all.push(Handler { id: list.last, fault, lanes, hits: 0 });
    COUNT.store(list.all.len(), Relaxed);
    Some(list.last)
}

/// Takes back one, or all; how many there were.
pub fn cancel(id: Option<u64>) -> usize {
    let list = &mut *LIST.lock();
    let before = list.all.len();
    list.all.retain(|h| id.is_some_and(|id| id != h.id));
    COUNT.store(list.all.len(), Relaxed);
    before - list.all.len()
}

/// Takes back all of a pool, which is gone.
pub fn forget(pool: Guid) {
    let list = &mut *LIST.lock();
    list.all.retain(|h| h.fault.pool != pool);
    COUNT.store(list.all.len(), Relaxed);
}

/// All that are asked for, with their numbers and how often each has struck.
pub fn list() -> Vec<(u64, Fault, u64)> {
    LIST.lock().all.iter().map(|h| (h.id, h.fault.clone(), h.hits)).collect()
}

impl List {
    /// Whether one strikes that does so only now and then.
    fn chance(&mut self, often: u32) -> bool {
        if often >= ALWAYS {
            return true;
        }
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % u64::from(ALWAYS) < u64::from(often)
    }
}

/// What an operation on a leaf comes to. Waits for delays.
pub(crate) fn strike(pool: impl Fn() -> Guid, leaf: Guid, on: On) -> Option<Wrong> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let pool = pool();
    let (mut until, mut struck) = (None, None);
    let mut guard = LIST.lock();
    let list = &mut *guard;
    for at in 0..list.all.len() {
        let Target::Leaf { leaf: of, on: which, wrong } = list.all[at].fault.target else { continue };
        let asked = which.map_or(on != On::Probe, |which| which == on);
        let often = list.all[at].fault.often;
        if list.all[at].fault.pool != pool || of != leaf || !asked || !list.chance(often) {
            continue;
        }
        let handler = &mut list.all[at];
        match wrong {
            Wrong::Delay { each, .. } => {
                let now = Instant::now();
                if let Some(lane) = handler.lanes.iter_mut().min() {
                    *lane = (*lane).max(now) + each;
                    until = until.max(Some(*lane));
                }
            }
            // Bytes that were not read can't be changed.
            Wrong::Corrupt if on != On::Read => continue,
            Wrong::Noop if on == On::Read => continue,
            wrong if struck.is_none() => struck = Some(wrong),
            _ => continue,
        }
        handler.hits += 1;
    }
    drop(guard);
    if let Some(until) = until {
        wait(until);
    }
    struck
}

/// Waits for a time, or until all faults are taken back.
fn wait(until: Instant) {
    while let Some(left) = until.checked_duration_since(Instant::now())
        && COUNT.load(Relaxed) > 0
    {
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Whether a copy of a block is to be found wrong: `Some(true)` for its checksum, `Some(false)` if it can't be read.
pub fn spoil(
    pool: impl Fn() -> Guid,
    (objset, object, level, blkid): (u64, u64, u8, u64),
    copy: impl Fn() -> usize,
) -> Option<bool> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let (pool, copy) = (pool(), copy());
    let list = &mut *LIST.lock();
    for at in 0..list.all.len() {
        let fault = &list.all[at].fault;
        let Target::Data(b) = &fault.target else { continue };
        let meant = (b.objset, b.object, b.level) == (objset, object, level) && b.blkid.contains(&blkid);
        let copies = b.copies == 0 || copy < 32 && b.copies & 1 << copy != 0;
        let (often, checksum) = (fault.often, b.checksum);
        if fault.pool == pool && meant && copies && list.chance(often) {
            list.all[at].hits += 1;
            return Some(checksum);
        }
    }
    None
}

/// The error that a fault tells of.
pub(crate) fn error(code: i32, op: Op, device: &str, offset: u64, len: u64) -> DeviceError {
    let source = io::Error::from_raw_os_error(code);
    DeviceError::Io { op, device: device.to_owned(), offset, len, source }
}

#[cfg(test)]
mod tests;
