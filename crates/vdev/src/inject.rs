//! Injected faults (`zinject`): of devices, of parts of labels, of blocks of an object, and of MOS
//! objects of a type.
//!
//! # Theory
//! A process has one list of faults, and every read and write checks it. While the list is empty, a
//! check costs one load.
//!
//! | function | checks |
//! |---|---|
//! | `strike` | an operation on a leaf |
//! | [`is_gone`] | opening a leaf |
//! | `strike_label` | an operation on a leaf's labels |
//! | [`spoil`] | a copy of a block |
//!
//! A fault of a device changes the outcome of an operation, and nothing of the device itself. It
//! returns an error in place of the operation, changes bytes that were read, or reports a write
//! that was not done.
//!
//! A device's faults spare its labels, as in OpenZFS: they test how blocks fare, not whether a pool
//! is found. But a device whose fault says that it is gone can't be opened again. Labels have
//! faults of their own, one for each part of a label.
//!
//! # Locks
//! The list's own lock, for a few instructions. A delay is waited for without it.
//!
//! # Absent
//! These faults do not exist here: decompression of what the cache holds compressed, panics, and a
//! pretended lack of space.
//!
//! # See
//! OpenZFS `zio_inject.c`.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use device::{DeviceError, Op};
use observe::lock::Mutex;
use ondisk::label::{BOOT_ENV_OFFSET, LABEL_SIZE, PHYS_OFFSET, RING_OFFSET};
use ondisk::{DmuType, Guid, Txg};

/// The kind of operation on a leaf, as far as faults distinguish it (`zio_type_t`, and probes).
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
    /// A probe: a check whether the device still works.
    Probe,
}

/// What goes wrong on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It fails with this error of the operating system.
    Error(i32),
    /// One bit of the bytes that were read is flipped (`-e corrupt`).
    Corrupt,
    /// The operation is not done, and success is reported (`-e noop`).
    Noop,
    /// The operation takes this long, and so many run at a time (`-D`).
    Delay {
        /// Time of one operation.
        each: Duration,
        /// How many run at a time.
        lanes: u32,
    },
}

/// How a block is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// It can't be read.
    Io,
    /// Its checksum does not match.
    Checksum,
    /// It can't be decrypted: it has another MAC than it should.
    Decrypt,
    /// It can't be decompressed.
    Decompress,
}

/// Which blocks of an object are wrong.
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
    /// How they are wrong.
    pub how: Bad,
}

/// A part that each label has (`vdev_label_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The pad in front, which is not used (`vl_pad1`).
    Pad1,
    /// The boot environment, which probes of devices use (`vl_be`).
    Pad2,
    /// The config (`vl_vdev_phys`).
    Nvlist,
    /// The ring of uberblocks (`vl_uberblock`).
    Uber,
}

impl Part {
    /// Where it is in a label, bytes.
    fn range(self) -> Range<u64> {
        match self {
            Part::Pad1 => 0..BOOT_ENV_OFFSET,
            Part::Pad2 => BOOT_ENV_OFFSET..PHYS_OFFSET,
            Part::Nvlist => PHYS_OFFSET..RING_OFFSET,
            Part::Uber => RING_OFFSET..LABEL_SIZE,
        }
    }
}

/// Which blocks of the MOS are wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MosBlocks {
    /// Those of objects of this type; otherwise all.
    pub kind: Option<DmuType>,
    /// See [`Blocks::copies`].
    pub copies: u32,
    /// See [`Blocks::how`].
    pub how: Bad,
}

/// A block that is read, as far as faults distinguish it.
#[derive(Debug, Clone, Copy)]
pub struct InjectedBlock {
    /// Object set; the MOS is 0.
    pub objset: u64,
    /// Object.
    pub object: u64,
    /// Level in its tree.
    pub level: u8,
    /// Block of that level.
    pub blkid: u64,
    /// Type of the object, as the block's pointer has it.
    pub kind: DmuType,
}

/// How long a pool's devices lose writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spell {
    /// For this time.
    Time(Duration),
    /// For so many txgs after the first.
    Groups(u64),
}

/// What a fault affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A device of a pool.
    Leaf {
        /// The device.
        leaf: Guid,
        /// The kind of operation; `None` is every kind except probes.
        on: Option<On>,
        /// What goes wrong.
        wrong: Wrong,
    },
    /// A part of all labels of a device.
    Label {
        /// The device.
        leaf: Guid,
        /// The part.
        part: Part,
        /// Reads, writes, or those of a probe; `None` is all of them.
        on: Option<On>,
        /// What goes wrong; a delay is not supported.
        wrong: Wrong,
    },
    /// Blocks of an object, when they are read.
    Data(Blocks),
    /// Blocks of the MOS by their types, when they are read.
    Mos(MosBlocks),
    /// Writes of blocks, on any device of the pool: success is reported, and nothing is written
    /// (`ZINJECT_IGNORED_WRITES`).
    Writes(Spell),
}

/// An injected fault (`zinject_record_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The pool, by its guid.
    pub pool: Guid,
    /// What it affects.
    pub target: Target,
    /// How often it strikes, in parts of [`ALWAYS`].
    pub often: u32,
}

/// The value of [`Fault::often`] for every time (`ZI_PERCENTAGE_MAX`).
pub const ALWAYS: u32 = u32::MAX;
/// The object set of the pool itself (`DMU_META_OBJSET`).
const MOS: u64 = 0;
/// The error of a device that is gone (`ENXIO`).
const GONE: i32 = 6;
/// Most faults at a time.
const MOST: usize = 4096;

struct Handler {
    id: u64,
    fault: Fault,
    /// When each lane of a delay becomes free.
    lanes: Vec<Instant>,
    /// When a spell began, and in which txg.
    since: Option<(Instant, Txg)>,
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

/// Injects a fault; returns its number, or `None` if there are too many (`zio_inject_fault`).
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
    list.all.push(Handler { id: list.last, fault, lanes, since: None, hits: 0 });
    COUNT.store(list.all.len(), Relaxed);
    Some(list.last)
}

/// A number for something that is no fault of a device or block, but is listed and cancelled beside
/// them.
pub fn number() -> u64 {
    let list = &mut *LIST.lock();
    list.last += 1;
    list.last
}

/// Cancels one fault, or all; returns how many there were (`zio_clear_fault`).
pub fn cancel(id: Option<u64>) -> usize {
    let list = &mut *LIST.lock();
    let before = list.all.len();
    list.all.retain(|h| id.is_some_and(|id| id != h.id));
    COUNT.store(list.all.len(), Relaxed);
    before - list.all.len()
}

/// Cancels all faults of a pool that is no longer imported.
pub fn forget(pool: Guid) {
    let list = &mut *LIST.lock();
    list.all.retain(|h| h.fault.pool != pool);
    COUNT.store(list.all.len(), Relaxed);
}

/// All faults, with their numbers and how often each has struck (`zio_inject_list_next`).
pub fn list() -> Vec<(u64, Fault, u64)> {
    LIST.lock().all.iter().map(|h| (h.id, h.fault.clone(), h.hits)).collect()
}

impl List {
    /// Whether a fault strikes this time.
    fn chance(&mut self, often: u32) -> bool {
        if often == ALWAYS {
            return true;
        }
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % u64::from(ALWAYS) < u64::from(often)
    }
}

/// The fault that an operation on a leaf meets (`zio_handle_device_injection`). Waits for delays.
pub(crate) fn strike(pool: impl Fn() -> Guid, leaf: Guid, on: On) -> Option<Wrong> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let pool = pool();
    struck(on, |fault| match fault.target {
        Target::Leaf { leaf: of, on: which, wrong } if fault.pool == pool && of == leaf => {
            which.map_or(on != On::Probe, |which| which == on).then_some(wrong)
        }
        Target::Writes(_) if fault.pool == pool && on == On::Write => Some(Wrong::Noop),
        _ => None,
    })
}

/// Whether opening a leaf fails with `ENXIO` by a fault of any kind of operation
/// (`zio_handle_device_injection` in `vdev_open`).
pub fn is_gone(pool: Guid, leaf: Guid) -> bool {
    if COUNT.load(Relaxed) == 0 {
        return false;
    }
    let gone = |fault: &Fault| match fault.target {
        Target::Leaf { leaf: of, wrong: wrong @ Wrong::Error(GONE), .. }
            if fault.pool == pool && of == leaf =>
        {
            Some(wrong)
        }
        _ => None,
    };
    struck(On::Read, gone).is_some()
}

/// The fault that a read or write meets that begins at byte `at` of any of the four labels
/// (`zio_handle_label_injection`). A guid is enough, since pools have no leaf in common.
pub(crate) fn strike_label(leaf: Guid, at: u64, on: On, probing: bool) -> Option<Wrong> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    struck(on, |fault| match fault.target {
        Target::Label { leaf: of, part, on: which, wrong } if of == leaf && part.range().contains(&at) => {
            which.is_none_or(|which| which == on || probing && which == On::Probe).then_some(wrong)
        }
        _ => None,
    })
}

/// The outcome of the faults for which `meant` returns something, for an operation of this kind.
/// Waits for delays.
fn struck(on: On, meant: impl Fn(&Fault) -> Option<Wrong>) -> Option<Wrong> {
    let (mut until, mut struck) = (None, None);
    let mut guard = LIST.lock();
    let list = &mut *guard;
    for at in 0..list.all.len() {
        let Some(wrong) = meant(&list.all[at].fault) else { continue };
        let often = list.all[at].fault.often;
        if !list.chance(often) {
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

/// Waits for a time, or until all faults are cancelled.
fn wait(until: Instant) {
    while let Some(left) = until.checked_duration_since(Instant::now())
        && COUNT.load(Relaxed) > 0
    {
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Whether a spell of lost writes is over when a txg is about to be synced
/// (`spa_handle_ignored_writes`).
///
/// The lost writes can't be recovered, so nothing may be built on them. The first txg that calls
/// this begins the spell.
pub fn is_over(pool: impl Fn() -> Guid, txg: Txg) -> bool {
    if COUNT.load(Relaxed) == 0 {
        return false;
    }
    let (pool, now) = (pool(), Instant::now());
    let mut over = false;
    for handler in LIST.lock().all.iter_mut().filter(|h| h.fault.pool == pool) {
        let Target::Writes(spell) = handler.fault.target else { continue };
        let (since, first) = *handler.since.get_or_insert((now, txg));
        over |= match spell {
            Spell::Time(time) => now.duration_since(since) > time,
            Spell::Groups(groups) => txg.0 > first.0.saturating_add(groups),
        };
    }
    over
}

/// Whether a fault exists for any copy of a block, whether it strikes now or another time. What
/// fails by such a fault will not fail once it is cancelled.
pub fn is_asked(pool: impl Fn() -> Guid, block: &InjectedBlock) -> bool {
    if COUNT.load(Relaxed) == 0 {
        return false;
    }
    let pool = pool();
    LIST.lock().all.iter().any(|h| h.fault.pool == pool && h.fault.target.of(block).is_some())
}

/// Whether a fault strikes a copy of a block (`zio_handle_fault_injection`): `Some(true)` for its
/// checksum, `Some(false)` if it can't be read.
pub fn spoil(pool: impl Fn() -> Guid, block: &InjectedBlock, copy: impl Fn() -> usize) -> Option<bool> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let (pool, copy) = (pool(), copy());
    let list = &mut *LIST.lock();
    for at in 0..list.all.len() {
        let fault = &list.all[at].fault;
        let Some((how, copies)) = fault.target.of(block) else { continue };
        let meant = matches!(how, Bad::Io | Bad::Checksum);
        let copies = copies == 0 || copy < 32 && copies & 1 << copy != 0;
        let often = fault.often;
        if fault.pool == pool && meant && copies && list.chance(often) {
            list.all[at].hits += 1;
            return Some(how == Bad::Checksum);
        }
    }
    None
}

/// Whether a fault strikes a block that was read as it was written
/// (`zio_handle_decrypt_injection`). `way` is [`Bad::Decrypt`] or [`Bad::Decompress`].
pub fn baffles(pool: impl Fn() -> Guid, block: &InjectedBlock, way: Bad) -> bool {
    if COUNT.load(Relaxed) == 0 {
        return false;
    }
    let pool = pool();
    let list = &mut *LIST.lock();
    for at in 0..list.all.len() {
        let fault = &list.all[at].fault;
        let meant = fault.pool == pool && fault.target.of(block).is_some_and(|(how, _)| how == way);
        let often = fault.often;
        if meant && list.chance(often) {
            list.all[at].hits += 1;
            return true;
        }
    }
    false
}

impl Target {
    /// How a block is wrong by this target, and which copies, as in [`Blocks::copies`].
    fn of(&self, block: &InjectedBlock) -> Option<(Bad, u32)> {
        match self {
            Target::Data(b) => b.has(block).then_some((b.how, b.copies)),
            Target::Mos(b) => b.has(block).then_some((b.how, b.copies)),
            Target::Leaf { .. } | Target::Label { .. } | Target::Writes(_) => None,
        }
    }
}

impl Blocks {
    fn has(&self, block: &InjectedBlock) -> bool {
        let of = (block.objset, block.object, block.level);
        of == (self.objset, self.object, self.level) && self.blkid.contains(&block.blkid)
    }
}

impl MosBlocks {
    fn has(&self, block: &InjectedBlock) -> bool {
        block.objset == MOS && self.kind.is_none_or(|kind| kind == block.kind)
    }
}

/// The error that a fault reports.
pub(crate) fn error(code: i32, op: Op, device: &str, offset: u64, len: u64) -> DeviceError {
    let source = io::Error::from_raw_os_error(code);
    DeviceError::Io { op, device: device.to_owned(), offset, len, source }
}

#[cfg(test)]
mod tests;
