//! Scrub and resilver: every block that the pool refers to is looked at.
//!
//! # Theory
//! A scan walks the MOS and then each dataset, older snapshots first, and passes over what an older snapshot owns, so that a block is looked at once. A
//! scrub compares every copy of every block and its parity with what they should be; a resilver reads blocks born in groups that a device has missed, and writes them
//! to it. What is wrong is written again where it is.
//!
//! That is safe only while nobody frees the block: its place may be given to another, and a repair would go over that. So a scan works in *slices*, and each is done by the sync
//! thread before its group frees or writes anything ([`Engine::scan_slice`]). It walks what the last uberblock reaches. Of that nothing is freed but by
//! the sync thread itself, and what only open groups know is not met. So a walk locks nothing, and keeps only numbers between slices: which
//! dataset, and the first block in it that was not met. Datasets that come, go or are renamed between slices need no message to the scan: it asks anew ([`plan`]).
//!
//! What a walk meets waits ([`queue`]), over as many slices as there is room for, so that files that were written in any order are read in the order of the devices all the same. What is freed
//! meanwhile is taken out of what waits, before its place is free. When there is no more room, or nothing more to be met, all that waits is looked at ([`drain`]), some at a time ([`issue`]), each top-level
//! vdev from one end to the other; then the walk goes on. A slice is short while somebody waits for a group, or for room to change more, and some seconds otherwise.
//! Whoever else asks for devices goes first ([`vdev::Pace`]); nobody waits for a group because of that, since a slice makes way for nobody while somebody waits for it.
//!
//! # On disk
//! `scan` in the MOS's directory ([`ScanPhys`]) has the state, the range of groups and the position; a ZAP has the datasets to come, as OpenZFS wants them: those
//! whose predecessor is not among them too, since it enters a successor itself. Both say how the walk stood when nothing waited, and are written when that is another than before. So
//! each software goes on with what the other began. OpenZFS looks at deduplicated blocks by their table first; here each is met where it is referred to, and the record
//! says so (its class of tables is 0), so that OpenZFS passes over none.
//!
//! # Life
//! A scan is *scanning* (perhaps *paused*), *finished* or *canceled*. A resilver that is needed takes the place of a scrub. When a scan ends that covered what a device missed,
//! that is forgotten of the device's DTL, but for blocks that could not be written, or not be looked at: below a pointer that can't be read, all that may be there. A device
//! that was not there all the time keeps all of its DTL. What was not looked at or not put right is an error of the scan too, and so known after an import, which
//! knows no more of it: a scan that has errors then shortens no DTL.
//!
//! # Locks
//! `errors`, and `state` after it, are held for a few instructions, by whoever asks or starts; `walk` by the sync thread alone. What waits has a lock of its own, the last.
//!
//! # Crash
//! The position on disk is that when nothing waited, and what was met after it is met again, as it is after an export. It is no older than `zfs_scan_checkpoint_intval` and what it takes to look at all that waits then.
//! An import lets little wait at first, so that a program that ends again and again comes to its end with a scan, too.
//!
//! # Absent
//! Blocks that only a checkpoint refers to: while there is one, no DTL is shortened. Copies that a dedup table added after a block was first referred to. A block to which a clone or a deduplicated write made
//! a reference behind the scan is left to the next scan, and its group stays in DTLs. Sequential rebuild is elsewhere ([`crate::scan::rebuild`]).
//!
//! # See
//! OpenZFS `module/zfs/dsl_scan.c`, `vdev.c` (`vdev_dtl_reassess`, `vdev_resilver_needed`).

mod defer;
mod drain;
mod errors;
mod issue;
mod order;
mod queue;
pub(crate) mod rebuild;
mod repair;
mod slice;
mod sync;
mod walk;
mod windows;

use crate::txg::TxgHandle;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use observe::{Counter, Parameter, Unit};
use ondisk::scan::{DSF_SCRUB_PAUSED, ErrorScrubPhys, ScanFunc, ScanPhys, ScanState};
use ondisk::{Guid, Txg};
use parking_lot::{Condvar, Mutex};
use vdev::{Pace, TxgRanges};

pub use queue::{SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT};

use crate::engine::{Engine, PoolWriter};
use crate::txg::Stopped;
pub use defer::DEFER_PERCENT;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanCommand {
    /// Begin a scrub, or go on with one that is paused (`POOL_SCAN_SCRUB`, `POOL_SCRUB_NORMAL`).
    Scrub,
    /// Begin a scrub of what was born since the last one that came to its end (`POOL_SCRUB_FROM_LAST_TXG`).
    ScrubOn,
    /// Begin the resilver from its beginning, if a device needs one (`POOL_SCAN_RESILVER`).
    Resilver,
    /// Begin a scrub of what the log of damaged blocks names, or go on with one that is paused (`POOL_SCAN_ERRORSCRUB`).
    ErrorScrub,
    /// Pause the scrub (`POOL_SCRUB_PAUSE`).
    Pause,
    /// Stop the scrub for good (`POOL_SCAN_NONE`).
    Stop,
}

/// Why nothing was done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ScanRefusal {
    /// There is nothing to pause or stop (`ENOENT`).
    #[error("no scrub is going on")]
    Idle,
    /// One goes on (`EBUSY`).
    #[error("a scan is going on")]
    Busy,
    /// The feature that it takes is not enabled: `resilver_defer` for a resilver, `head_errlog` for an error scrub (`ENOTSUP`).
    #[error("the feature {feature} is not enabled")]
    Unsupported {
        /// Its short name.
        feature: &'static str,
    },
    /// The pool has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDone {
    /// It was begun, paused or stopped.
    Done,
    /// A paused scrub goes on (`ECANCELED`).
    Resumed,
    /// No device needs it.
    Nothing,
}

/// A scan as people see it (`pool_scan_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanStat {
    /// What is on disk of it, or will be with the next group.
    pub phys: ScanPhys,
    /// When this import began with it, seconds since 1970.
    pub pass_start: u64,
    /// Bytes met since then.
    pub pass_examined: u64,
    /// Bytes looked at since then.
    pub pass_issued: u64,
    /// Bytes looked at in all.
    pub issued: u64,
    /// Since when it is paused; 0 if it isn't.
    pub paused_at: u64,
    /// Seconds that it was paused since this import began with it.
    pub spent_paused: u64,
}

impl ScanStat {
    /// Whether it goes on, or is paused.
    pub fn is_scanning(&self) -> bool {
        self.phys.state == ScanState::Scanning
    }

    /// Whether it is a resilver that goes on.
    pub fn is_resilvering(&self) -> bool {
        self.is_scanning() && self.phys.func == ScanFunc::Resilver
    }
}

/// Something that happened to a scan, for whoever wants to know (`ESC_ZFS_SCRUB_*`, `ESC_ZFS_RESILVER_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanNotice {
    /// `scrub_start`, `resilver_finish` and so on.
    pub what: &'static str,
    /// The top-level vdev that is rebuilt sequentially; of scans nothing.
    pub rebuilt: Option<Guid>,
    /// When.
    pub at: std::time::SystemTime,
}

/// Notices that are kept until somebody takes them.
const NOTICES: usize = 64;

/// What changes of a scan.
#[derive(Debug, Default)]
struct State {
    stat: Option<ScanStat>,
    /// As what one that ended in the group that syncs is told, until that is on disk.
    ending: Option<ScanStat>,
    /// The next group has something to write of it.
    dirty: bool,
    /// What this import has written of it last, and bytes met and looked at when a group came last.
    put: Option<(ScanPhys, [u64; 2])>,
    /// The walk came to its end: the next group says so.
    over: bool,
    /// It was begun by this import, so that `behind` has all.
    ours: bool,
    /// Groups of blocks that could not be written to a device.
    behind: HashMap<Guid, TxgRanges>,
    /// Groups of blocks of which no copy was right, or that could not be looked at.
    lost: TxgRanges,
    /// Groups of blocks that got another reference meanwhile, which may be where the scan has been already.
    moved: TxgRanges,
    /// Devices that have been there since it was begun, or loaded.
    present: BTreeSet<Guid>,
    notices: Vec<ScanNotice>,
}

/// The scan of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    state: Mutex<State>,
    walk: Mutex<walk::Walk>,
    /// What is to be looked at.
    queue: Arc<queue::Queue>,
    /// Bytes of memory that it may take; 0 is the default.
    queue_memory: AtomicU64,
    /// Nothing that waits is looked at.
    looks_held: AtomicBool,
    /// So that nothing goes on at all.
    stands_still: AtomicBool,
    /// The scrub of what is known to be damaged; locked before `state`.
    errors: Mutex<errors::ErrorScrub>,
    /// A resilver is asked for.
    pub(crate) wanted: AtomicBool,
    /// Devices are being attached or brought back, after which one will be asked for if they lack something.
    coming: AtomicU64,
    /// The group that syncs begins or ends one: neither `wanted` nor `state` says so yet, or all of it.
    turning: AtomicBool,
    /// Something has begun or ended; goes with `state`.
    turned: Condvar,
    /// One is to follow the one that goes on.
    pub(crate) deferred: AtomicBool,
    /// The pool is being let go: nothing is looked at any more.
    pub(crate) quiet: Arc<AtomicBool>,
    /// Nothing is looked at, though scans go on (`zfs_scan_suspend_progress`).
    pub(crate) held: AtomicBool,
    /// Milliseconds of a slice (`zfs_scrub_min_time_ms`, `zfs_resilver_min_time_ms`); 0 is the default.
    slice_ms: [AtomicU64; 2],
    /// Most blocks that a slice comes to; 0 is no limit.
    pub(crate) slice_blocks: AtomicU64,
    /// Bytes for each device that are read at a time (`zfs_scan_vdev_limit`); 0 is the default.
    bytes: AtomicU64,
    /// The group that syncs has made, changed or destroyed datasets.
    replan: AtomicBool,
    /// How many wait for a group.
    waiters: Arc<AtomicU64>,
    /// Nanoseconds that operations of scans and rebuilds have waited for others.
    waited_ns: Arc<Counter>,
}

/// Milliseconds of a slice that nobody waits for, where nothing was set: as long as a group may be open (`zfs_txg_timeout`).
const SLICE_MS: u64 = 5000;
/// Milliseconds of a slice of a scrub that nobody waits for, as OpenZFS has them (`zfs_scrub_min_time_ms`).
pub const SCRUB_MS: u64 = 1000;
/// The same of a resilver (`zfs_resilver_min_time_ms`).
pub const RESILVER_MS: u64 = 3000;
/// How far beyond its time a slice goes on making way.
const LATE: Duration = Duration::from_millis(SLICE_MS);
/// Bytes for each device that a scan reads at a time (`zfs_scan_vdev_limit`).
pub const SCAN_VDEV_LIMIT: u64 = 16 << 20;

/// Least time of a scrub's slice.
pub const SCRUB_MIN_TIME: Parameter = Parameter {
    name: "zfs_scrub_min_time_ms",
    range: 1..=60_000,
    unit: Unit::Milliseconds,
    text: "shortest slice of a scrub in a transaction group that no caller waits for",
};
/// Least time of a resilver's slice.
pub const RESILVER_MIN_TIME: Parameter = Parameter {
    name: "zfs_resilver_min_time_ms",
    range: 1..=60_000,
    unit: Unit::Milliseconds,
    text: "shortest slice of a resilver in a transaction group that no caller waits for",
};
/// How much a scan reads at a time.
pub const SCAN_VDEV_BYTES: Parameter = Parameter {
    name: "zfs_scan_vdev_limit",
    range: 1 << 10..=1 << 30,
    unit: Unit::Bytes,
    text: "most data of a device that a scrub or resilver reads at a time",
};
/// Whether scans stand still.
pub const SCAN_SUSPEND_PROGRESS: Parameter = Parameter {
    name: "zfs_scan_suspend_progress",
    range: 0..=1,
    unit: Unit::Flag,
    text: "1: scrubs and resilvers make no progress",
};

/// How often who waits for a scan looks whether the pool has stopped.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

impl Scan {
    /// How many wait for a group: for whoever makes groups.
    pub(crate) fn waiters(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.waiters)
    }

    /// From now on nothing is looked at, or it goes on.
    pub(crate) fn be_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// A block that a group wrote before gets another reference, cloned or deduplicated, which the scan may have been past; the others may be gone before it
    /// comes to them.
    pub(crate) fn moved(&self, birth: Txg) {
        let mut state = self.state.lock();
        let covered = state.stat.is_some_and(|s| s.is_scanning() && covers(&s.phys, birth));
        if covered && !state.moved.contains(birth.0) {
            state.moved.add(birth.0);
        }
    }

    /// Datasets may have been made, changed or destroyed in the group that syncs.
    pub(crate) fn replan(&self) {
        self.replan.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stat(&self) -> Option<ScanStat> {
        self.state.lock().stat
    }

    /// Whether something is to be looked at.
    fn goes_on(&self) -> bool {
        let state = self.state.lock();
        let runs = state.stat.is_some_and(|s| s.is_scanning() && s.phys.flags & DSF_SCRUB_PAUSED == 0);
        runs && !state.over
    }

    /// Whether groups are to follow one another, since each does a slice; while a vdev is rebuilt, a resilver that is wanted waits.
    fn is_busy(&self, rebuilding: bool) -> bool {
        let ours = !self.quiet.load(Ordering::Relaxed);
        ours && (self.wanted.load(Ordering::Relaxed) && !rebuilding
            || self.state.lock().over
            || self.errors.lock().is_over()
            || (self.goes_on() && !self.stands_still.load(Ordering::Relaxed) || self.errors.lock().goes_on())
                && !self.held.load(Ordering::Relaxed))
    }

    /// An allocator that tells the scan of what is given up.
    pub(crate) fn watched(&self, space: Arc<dyn zio::Space>) -> queue::Watched {
        queue::Watched { space, queue: Arc::clone(&self.queue) }
    }

    /// How long a slice is that nobody waits for.
    pub(crate) fn long(&self, look: zio::Look) -> std::time::Duration {
        let (which, default) = if look == zio::Look::Scrub { (0, SCRUB_MS) } else { (1, RESILVER_MS) };
        std::time::Duration::from_millis(match self.slice_ms[which].load(Ordering::Relaxed) {
            0 => SLICE_MS,
            // It is the least that is to be done.
            set if set >= default => set.max(SLICE_MS),
            set => set,
        })
    }

    /// Tells of the rebuild of a top-level vdev.
    pub(crate) fn notice_rebuild(&self, what: &'static str, top: Guid, at: std::time::SystemTime) {
        let mut state = self.state.lock();
        if state.notices.len() < NOTICES {
            state.notices.push(ScanNotice { what, rebuilt: Some(top), at });
        }
    }

    /// A resilver may be asked for until what this gives is dropped: whoever waits for one waits for it from when the devices show.
    pub(crate) fn comes(&self) -> Coming<'_> {
        self.coming.fetch_add(1, Ordering::SeqCst);
        Coming(self)
    }

    /// Whether one is asked for, or may be in a moment. Who asks whether one goes on asks this first.
    fn is_awaited(&self) -> bool {
        self.coming.load(Ordering::SeqCst) > 0 || self.is_turning()
    }

    /// Whether a resilver is wanted that has not begun, or one is beginning or ending just now. Who asks whether one goes on asks this first.
    pub(crate) fn is_turning(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) || self.turning.load(Ordering::SeqCst)
    }

    /// What a group did is on disk: what ended in it is told from now on.
    pub(crate) fn on_disk(&self) {
        let mut state = self.state.lock();
        state.ending = None;
        self.turned.notify_all();
    }

    /// What changes a scan is done: who waits for that looks again.
    fn turned(&self) {
        let _state = self.state.lock();
        self.turning.store(false, Ordering::SeqCst);
        self.turned.notify_all();
    }

    /// Whether what is met belongs in the log that a scan fills (`spa_scrub_active`).
    pub(crate) fn is_scanning(&self) -> bool {
        self.stat().is_some_and(|s| s.is_scanning()) || self.errors.lock().is_running()
    }
}

impl State {
    /// How it is told: what is not on disk has not ended.
    fn told(&self) -> Option<ScanStat> {
        self.ending.or(self.stat)
    }

    fn notice(&mut self, what: &'static str, at: std::time::SystemTime) {
        if self.notices.len() < NOTICES {
            self.notices.push(ScanNotice { what, rebuilt: None, at });
        }
    }
}

impl Engine {
    /// Whether groups are to follow one another for scans.
    pub(crate) fn is_scanning_now(&self) -> bool {
        self.scan.is_busy(self.rebuilds.any())
    }

    /// Whether a slice that began then is to end: somebody waits, or nothing goes on any more.
    pub(crate) fn is_called_off(&self, since: std::time::Instant) -> bool {
        let scan = &self.scan;
        scan.quiet.load(Ordering::Relaxed)
            || since.elapsed() >= slice::HURRIED && scan.waiters.load(Ordering::Relaxed) > 0
            || self.cache.zio().suspension().reason().is_some()
    }

    /// How threads work that look at blocks in a slice, or copy them, which began then and takes so long: they make way for whoever asks for devices, unless somebody waits for the group, or for
    /// space that is being copied, or the slice is late, or nothing goes on any more.
    pub(crate) fn pace(&self, since: Instant, long: Duration) -> Pace {
        let scan = &self.scan;
        let (cache, waiters, quiet) =
            (Arc::clone(&self.cache), Arc::clone(&scan.waiters), Arc::clone(&scan.quiet));
        let hurries = move || {
            let zio = cache.zio();
            waiters.load(Ordering::Relaxed) > 0
                || quiet.load(Ordering::Relaxed)
                || since.elapsed() >= long.saturating_add(LATE)
                || zio.cordon().is_awaited()
                || zio.suspension().reason().is_some()
        };
        Pace::new(Arc::clone(&self.clock), Arc::clone(&scan.waited_ns), hurries)
    }

    /// The groups, from the first to before the second, that devices which are there have missed (`vdev_resilver_needed`).
    pub(crate) fn missing(&self) -> Option<(u64, u64)> {
        let tree = self.tree();
        let spans = tree.behind().into_iter().filter_map(|guid| {
            let missed = tree.dtl(guid).ok()?;
            let first = missed.iter().next()?.0;
            Some((first, missed.iter().last()?.1))
        });
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// As [`PoolWriter::request_resilver`].
    pub(crate) fn request_resilver(&self, txgs: &TxgHandle) {
        if self.missing().is_some() {
            self.scan.wanted.store(true, Ordering::Relaxed);
            txgs.kick();
        }
    }
}

impl PoolWriter {
    /// Says that devices which are there have missed groups: a resilver is begun, or begun anew, with the next group. Where `resilver_defer` is enabled,
    /// one that goes on comes to its end first. Does nothing if no device has missed anything. Waits for nothing and takes no lock that is held while a group
    /// syncs, so that whoever changes the pool's shape may call it (`spa_async_request(SPA_ASYNC_RESILVER)`).
    pub fn request_resilver(&self) {
        self.engine().request_resilver(&self.txgs().handle());
    }

    /// Begins, pauses or stops a scan; on disk when it returns (`dsl_scan`, `spa_scrub_pause_resume`, `spa_scan_stop`).
    ///
    /// # Errors
    /// [`ScanRefusal`].
    pub fn scan(&self, command: ScanCommand) -> Result<ScanDone, ScanRefusal> {
        let engine = self.engine();
        if command == ScanCommand::Resilver {
            if !engine.mos.feature_enabled("com.datto:resilver_defer").unwrap_or(false) {
                return Err(ScanRefusal::Unsupported { feature: "resilver_defer" });
            }
            if engine.missing().is_none() {
                return Ok(ScanDone::Nothing);
            }
        }
        if command == ScanCommand::ErrorScrub && !engine.may_scrub_errors() {
            return Err(ScanRefusal::Unsupported { feature: "head_errlog" });
        }
        if !matches!(command, ScanCommand::Pause | ScanCommand::Stop) && self.suspended().is_none() {
            // As OpenZFS does: what came back meanwhile takes part. A device that can't be reopened is one that is not there.
            let _ = self.reopen(None);
        }
        let said = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&said);
        self.change_pool(Box::new(move |engine, tx| {
            let (result, events) = engine.obey(tx, command)?;
            *answer.lock() = Some(result);
            Ok(events)
        }))?;
        // A slice has room from now on.
        self.txgs().handle().kick();
        said.lock().take().expect("a synced group has done its tasks")
    }

    /// Whether a resilver is wanted that has not begun yet: it does with a group to come; or may be wanted when a device that is being attached or brought back is there. Who asks whether one goes on
    /// asks this first, so that he misses none in between.
    pub fn awaits_resilver(&self) -> bool {
        self.engine().scan.is_awaited()
    }

    /// Waits until no scrub, resilver or rebuild goes on or is wanted, but for those that are paused, and that is on disk (`spa_wait`).
    ///
    /// # Errors
    /// The pool has stopped.
    pub fn wait_for_scans(&self) -> Result<(), Stopped> {
        let scan = &self.engine().scan;
        let mut state = scan.state.lock();
        loop {
            let runs = state.told().is_some_and(|s| s.is_scanning() && s.phys.flags & DSF_SCRUB_PAUSED == 0);
            if !runs && !scan.is_awaited() && !self.engine().rebuilds.any_told() {
                return Ok(());
            }
            if let Some(stopped) = self.txgs().stopped() {
                return Err(stopped);
            }
            // Who stops a pool rings no bell here.
            scan.turned.wait_for(&mut state, LOOK);
        }
    }

    /// How the last or current scan stands; nothing if there never was one. It goes on until its end is on disk.
    pub fn scan_stat(&self) -> Option<ScanStat> {
        self.engine().scan.state.lock().told()
    }

    /// How the last or current scrub of the log of damaged blocks stands, and since when it is paused (0 if it isn't); nothing if there was none since the last scan.
    pub fn error_scrub_stat(&self) -> Option<(ErrorScrubPhys, u64)> {
        let scrub = self.engine().scan.errors.lock();
        (scrub.phys.func == ScanFunc::ErrorScrub).then_some((scrub.phys, scrub.paused_at))
    }

    /// Nanoseconds that operations of scans and rebuilds have waited since the import, all devices together, since others asked for these.
    pub fn scans_waited_ns(&self) -> u64 {
        self.engine().scan.waited_ns.get()
    }

    /// What happened to scans since the last call.
    pub fn take_scan_notices(&self) -> Vec<ScanNotice> {
        std::mem::take(&mut self.engine().scan.state.lock().notices)
    }

    /// Has scans go on without looking at anything, or look again (`zfs_scan_suspend_progress`).
    pub fn hold_scans(&self, hold: bool) {
        let scan = &self.engine().scan;
        let rebuilds = &self.engine().rebuilds;
        let goes_on = || scan.goes_on() || scan.errors.lock().goes_on() || rebuilds.any();
        if scan.held.swap(hold, Ordering::Relaxed) && !hold && goes_on() {
            self.txgs().handle().kick();
        }
    }

    /// How many milliseconds a slice of a scrub and of a resilver takes that nobody waits for (`zfs_scrub_min_time_ms`,
    /// `zfs_resilver_min_time_ms`).
    pub fn set_scan_slices(&self, scrub: u64, resilver: u64) {
        let [a, b] = &self.engine().scan.slice_ms;
        a.store(scrub, Ordering::Relaxed);
        b.store(resilver, Ordering::Relaxed);
    }

    /// How many bytes a scan reads at a time for each device (`zfs_scan_vdev_limit`), at least a block; 0 is the default.
    pub fn limit_scan_bytes(&self, bytes: u64) {
        self.engine().scan.bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many blocks a slice comes to at most, so that a test sees what happens between any two; 0 is no limit.
    pub fn limit_scan_slices(&self, blocks: u64) {
        self.engine().scan.slice_blocks.store(blocks, Ordering::Relaxed);
    }

    /// How many bytes of memory what waits to be looked at may take; 0 is the default, a part of the machine's (`zfs_scan_mem_lim_fact`).
    pub fn limit_scan_queue(&self, bytes: u64) {
        self.engine().scan.queue_memory.store(bytes, Ordering::Relaxed);
    }

    /// Has scans gather what is to be looked at, and look at nothing, or look again: so that a test sees what happens to what waits.
    pub fn hold_scan_looks(&self, hold: bool) {
        let scan = &self.engine().scan;
        if scan.looks_held.swap(hold, Ordering::Relaxed) && !hold {
            scan.stands_still.store(false, Ordering::Relaxed);
            self.txgs().handle().kick();
        }
    }

    /// Goes on with what was scanning when the pool was let go, and begins a resilver that is needed.
    pub(crate) fn resume_scan(&self) {
        let engine = self.engine();
        let stat = engine.scan.stat();
        let resilvering = stat.filter(|s| s.is_scanning() && s.phys.func == ScanFunc::Resilver);
        let beyond = |s: ScanStat, (_, end): (u64, u64)| end > s.phys.max_txg;
        let needed = engine.missing().is_some_and(|m| resilvering.is_none_or(|s| beyond(s, m)));
        // What a rebuild leaves is seen when it is over.
        if needed && !engine.rebuilds.any() {
            engine.scan.wanted.store(true, Ordering::Relaxed);
        }
        if engine.is_scanning_now() || engine.is_rebuilding_now() {
            self.txgs().handle().kick();
        }
    }
}

/// That a resilver may be asked for ([`Scan::comes`]).
pub(crate) struct Coming<'a>(&'a Scan);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::SeqCst);
        self.0.turned.notify_all();
    }
}

/// A range that a scan covers: blocks whose physical birth lies between (`scn_min_txg`, `scn_max_txg`), both excluded.
fn covers(phys: &ScanPhys, birth: Txg) -> bool {
    birth.0 > phys.min_txg && birth.0 < phys.max_txg
}
