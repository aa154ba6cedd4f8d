//! Scrub and resilver: a scan reads and verifies every block that the pool references.
//!
//! # Theory
//! A scan walks the MOS and then each dataset, older snapshots first. It skips what an older
//! snapshot owns, so that each block is verified once. A scrub compares every copy of every block
//! and its parity with what they should be. A resilver reads blocks born in txgs that a device has
//! missed, and writes them to it. What is wrong is rewritten in place.
//!
//! That is safe only while the block is not freed: its place may be reused, and a repair would
//! overwrite the new block. So a scan works in *slices*. The sync thread runs each slice before its
//! txg frees or writes anything ([`Scans::scan_slice`]). A slice walks what the last uberblock
//! reaches. Only the sync thread frees any of that, and the walk does not find what only open txgs
//! know.
//!
//! So a walk takes no locks, and keeps only numbers between slices: the dataset, and the first
//! block in it that was not found yet. The scan needs no message about datasets that are created,
//! destroyed or renamed between slices: it lists them again ([`plan`](walk::Walk::plan)).
//!
//! The blocks that a walk finds wait in a queue ([`queue`]), over as many slices as memory allows.
//! So files that were written in any order are still read in the order of the devices. Blocks that
//! are freed meanwhile leave the queue before their space is free. When memory is full, or the walk
//! is at its end, all queued blocks are verified ([`drain`]), some at a time ([`issue`]). Each
//! top-level vdev is read from one end to the other. Then the walk continues.
//!
//! A slice is short while a caller waits for a txg, or for space to make more changes, and some
//! seconds long otherwise. A slice yields to foreground I/O ([`vdev::Pace`]), but not while a
//! caller waits for its txg. So no txg waits for that reason.
//!
//! # On disk
//! `scan` in the MOS's directory ([`ScanPhys`]) has the state, the range of txgs and the position.
//! A ZAP has the datasets to come. As OpenZFS requires, it holds only those whose predecessor is
//! not in it too, since OpenZFS enters a successor itself. Both give the walk's state when the
//! queue was last empty, and are written if that has changed. So each software can resume what the
//! other began.
//!
//! OpenZFS verifies deduplicated blocks by their table first. Here each is found where it is
//! referenced, and the record says so (its class of tables is 0), so that OpenZFS skips none.
//!
//! # Life
//! A scan is *scanning* (perhaps *paused*), *finished* or *canceled*. A needed resilver replaces a
//! scrub. When a scan ends that covered what a device missed, the device's DTL is cleared of that.
//! The DTL keeps the births of blocks that could not be written or verified. Below a pointer that
//! can't be read, that means all blocks that may be there. A device that was absent for part of the
//! scan keeps all of its DTL.
//!
//! What was not verified or repaired is also an error of the scan, and so still known after an
//! import. The import knows no more of it: a scan with such errors then shortens no DTL.
//!
//! # Locks
//! `errors`, and `state` after it, are held for a few instructions, by status queries and commands;
//! `walk` by the sync thread alone. The queue has a lock of its own, the last.
//!
//! # Crash
//! The position on disk is the one when the queue was last empty. The blocks after it are found
//! again after a crash, as after an export. The position is no older than
//! `zfs_scan_checkpoint_intval` and the time to verify what is queued then. After an import the
//! queue is kept short at first, so that even a program that ends again and again completes a scan.
//!
//! # Absent
//! * Blocks that only a checkpoint references: while there is one, no DTL is shortened.
//! * Copies that a dedup table added after a block was first referenced.
//! * A block that gets a reference behind the scan, by a clone or a deduplicated write. It is left
//!   to the next scan, and its birth stays in DTLs.
//! * Sequential rebuild: see [`crate::scan::rebuild`].
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

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};
use observe::{Counter, Parameter, Unit};
use ondisk::scan::{DSF_SCRUB_PAUSED, ErrorScrubPhys, ScanFunc, ScanPhys, ScanState};
use ondisk::{Guid, Txg};
use vdev::{Pace, TxgRanges};

pub use queue::{SCAN_CHECKPOINT_INTVAL, SCAN_MEM_LIM_FACT};

use crate::pool_core::PoolCore;
use crate::txg::Stopped;
pub use defer::DEFER_PERCENT;

/// A command for scans (`pool_scan_func_t`, `pool_scrub_cmd_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanCommand {
    /// Start a scrub, or resume a paused one (`POOL_SCAN_SCRUB`, `POOL_SCRUB_NORMAL`).
    Scrub,
    /// Start a scrub of what was born since the last finished one (`POOL_SCRUB_FROM_LAST_TXG`).
    ScrubOn,
    /// Restart the resilver, if a device needs one (`POOL_SCAN_RESILVER`).
    Resilver,
    /// Start a scrub of the blocks in the error log, or resume a paused one
    /// (`POOL_SCAN_ERRORSCRUB`).
    ErrorScrub,
    /// Pause the scrub (`POOL_SCRUB_PAUSE`).
    Pause,
    /// Cancel the scrub (`POOL_SCAN_NONE`).
    Stop,
}

/// Why a command was refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ScanRefusal {
    /// There is nothing to pause or stop (`ENOENT`).
    #[error("no scrub is going on")]
    Idle,
    /// A scan is running (`EBUSY`).
    #[error("a scan is going on")]
    Busy,
    /// The required feature is not enabled: `resilver_defer` for a resilver, `head_errlog` for an
    /// error scrub (`ENOTSUP`).
    #[error("the feature {feature} is not enabled")]
    Unsupported {
        /// The feature's short name.
        feature: &'static str,
    },
    /// The pool has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDone {
    /// The scan was started, paused or canceled.
    Done,
    /// A paused scrub was resumed (`ECANCELED`).
    Resumed,
    /// No device needs a resilver.
    Nothing,
}

/// The state of a scan for status queries (`pool_scan_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanStat {
    /// Its record on disk, or as the next txg writes it.
    pub phys: ScanPhys,
    /// When this import started or resumed it, seconds since 1970.
    pub pass_start: u64,
    /// Bytes found by the walk since then.
    pub pass_examined: u64,
    /// Bytes verified since then.
    pub pass_issued: u64,
    /// Bytes verified in all.
    pub issued: u64,
    /// When it was paused; 0 if it is not.
    pub paused_at: u64,
    /// Seconds of pauses since this import started or resumed it.
    pub spent_paused: u64,
}

impl ScanStat {
    /// Whether it is running or paused.
    pub fn is_scanning(&self) -> bool {
        self.phys.state == ScanState::Scanning
    }

    /// Whether it is a running resilver.
    pub fn is_resilvering(&self) -> bool {
        self.is_scanning() && self.phys.func == ScanFunc::Resilver
    }
}

/// An event of a scan (`ESC_ZFS_SCRUB_*`, `ESC_ZFS_RESILVER_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanNotice {
    /// The event's name: `scrub_start`, `resilver_finish` and so on.
    pub what: &'static str,
    /// The top-level vdev of a sequential rebuild; `None` for scans.
    pub rebuilt: Option<Guid>,
    /// Time of the event.
    pub at: std::time::SystemTime,
}

/// Events that are kept until a caller takes them.
const NOTICES: usize = 64;

/// The state of a scan.
#[derive(Debug, Default)]
struct State {
    stat: Option<ScanStat>,
    /// The reported state of a scan that ended in the syncing txg, until that is on disk.
    ending: Option<ScanStat>,
    /// The next txg must write the state.
    dirty: bool,
    /// The record that this import wrote last, and the bytes found and verified at the last txg.
    put: Option<(ScanPhys, [u64; 2])>,
    /// The walk is at its end: the next txg ends the scan.
    over: bool,
    /// This import began it, so `behind` is complete.
    ours: bool,
    /// Births of blocks that could not be written to a device.
    behind: HashMap<Guid, TxgRanges>,
    /// Births of blocks with no good copy, or that could not be verified.
    lost: TxgRanges,
    /// Births of blocks that got another reference meanwhile, perhaps behind the scan's position.
    moved: TxgRanges,
    /// Devices that have been present since it began, or was loaded.
    present: BTreeSet<Guid>,
    notices: Vec<ScanNotice>,
}

/// The scans of an open pool: scrub, resilver, sequential rebuild.
pub struct Scans {
    pub(crate) core: Arc<PoolCore>,
    pub(crate) scan: Scan,
    pub(crate) rebuilds: rebuild::Rebuilds,
}

/// The scan of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    state: Mutex<State>,
    walk: Mutex<walk::Walk>,
    /// Blocks that wait to be verified.
    queue: Arc<queue::Queue>,
    /// Bytes of memory for the queue; 0 is the default.
    queue_memory: AtomicU64,
    /// The queue is not drained.
    looks_held: AtomicBool,
    /// Not even the walk runs.
    stands_still: AtomicBool,
    /// The error scrub; locked before `state`.
    errors: Mutex<errors::ErrorScrub>,
    /// A resilver is requested.
    pub(crate) wanted: AtomicBool,
    /// Number of devices that are being attached or reopened, after which a resilver may be
    /// requested.
    coming: AtomicU64,
    /// The syncing txg begins or ends a scan: `wanted` and `state` don't show that yet, or only in
    /// part.
    turning: AtomicBool,
    /// A scan has begun or ended; goes with `state`.
    turned: Condvar,
    /// Another resilver follows the current one.
    pub(crate) deferred: AtomicBool,
    /// The pool is being released: nothing is verified any more.
    pub(crate) quiet: Arc<AtomicBool>,
    /// Scans are suspended (`zfs_scan_suspend_progress`).
    pub(crate) held: AtomicBool,
    /// Milliseconds of a slice (`zfs_scrub_min_time_ms`, `zfs_resilver_min_time_ms`); 0 is the
    /// default.
    slice_ms: [AtomicU64; 2],
    /// Most blocks of a slice; 0 is no limit.
    pub(crate) slice_blocks: AtomicU64,
    /// Bytes of each device that are read at a time (`zfs_scan_vdev_limit`); 0 is the default.
    bytes: AtomicU64,
    /// The syncing txg has created, changed or destroyed datasets.
    replan: AtomicBool,
    /// Number of callers that wait for a txg.
    waiters: Arc<AtomicU64>,
    /// Nanoseconds that scans and rebuilds have yielded to foreground I/O.
    waited_ns: Arc<Counter>,
}

/// Milliseconds of a slice without waiting callers, by default: as long as a txg may be open
/// (`zfs_txg_timeout`).
const SLICE_MS: u64 = 5000;
/// OpenZFS's milliseconds of a scrub's slice (`zfs_scrub_min_time_ms`).
pub const SCRUB_MS: u64 = 1000;
/// OpenZFS's milliseconds of a resilver's slice (`zfs_resilver_min_time_ms`).
pub const RESILVER_MS: u64 = 3000;
/// Time beyond its duration during which a slice still yields.
const LATE: Duration = Duration::from_millis(SLICE_MS);
/// Bytes of each device that a scan reads at a time (`zfs_scan_vdev_limit`).
pub const SCAN_VDEV_LIMIT: u64 = 16 << 20;

/// Least duration of a scrub's slice.
pub const SCRUB_MIN_TIME: Parameter = Parameter {
    name: "zfs_scrub_min_time_ms",
    range: 1..=60_000,
    unit: Unit::Milliseconds,
    text: "shortest slice of a scrub in a transaction group that no caller waits for",
};
/// Least duration of a resilver's slice.
pub const RESILVER_MIN_TIME: Parameter = Parameter {
    name: "zfs_resilver_min_time_ms",
    range: 1..=60_000,
    unit: Unit::Milliseconds,
    text: "shortest slice of a resilver in a transaction group that no caller waits for",
};
/// Bytes that a scan reads at a time.
pub const SCAN_VDEV_BYTES: Parameter = Parameter {
    name: "zfs_scan_vdev_limit",
    range: 1 << 10..=1 << 30,
    unit: Unit::Bytes,
    text: "most data of a device that a scrub or resilver reads at a time",
};
/// Whether scans are suspended.
pub const SCAN_SUSPEND_PROGRESS: Parameter = Parameter {
    name: "zfs_scan_suspend_progress",
    range: 0..=1,
    unit: Unit::Flag,
    text: "1: scrubs and resilvers make no progress",
};

/// Interval at which a caller that waits for a scan checks whether the pool has stopped.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

impl Scan {
    /// The counter of callers that wait for a txg: the transaction groups count them there.
    pub(crate) fn waiters(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.waiters)
    }

    /// Stops or resumes all verifying.
    pub(crate) fn be_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    /// Notes a new reference to a block of an earlier txg, by a clone or deduplication. It may be
    /// behind the scan, and the older references may be gone before the scan finds them.
    pub(crate) fn moved(&self, birth: Txg) {
        let mut state = self.state.lock();
        let covered = state.stat.is_some_and(|s| s.is_scanning() && covers(&s.phys, birth));
        if covered && !state.moved.contains(birth.0) {
            state.moved.add(birth.0);
        }
    }

    /// Notes that the syncing txg may have created, changed or destroyed datasets.
    pub(crate) fn replan(&self) {
        self.replan.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stat(&self) -> Option<ScanStat> {
        self.state.lock().stat
    }

    /// Whether there is something to verify.
    fn goes_on(&self) -> bool {
        let state = self.state.lock();
        let runs = state.stat.is_some_and(|s| s.is_scanning() && s.phys.flags & DSF_SCRUB_PAUSED == 0);
        runs && !state.over
    }

    /// Whether txgs must follow one another at once, since each runs a slice. During a rebuild, a
    /// requested resilver waits.
    fn is_busy(&self, rebuilding: bool) -> bool {
        let ours = !self.quiet.load(Ordering::Relaxed);
        ours && (self.wanted.load(Ordering::Relaxed) && !rebuilding
            || self.state.lock().over
            || self.errors.lock().is_over()
            || (self.goes_on() && !self.stands_still.load(Ordering::Relaxed) || self.errors.lock().goes_on())
                && !self.held.load(Ordering::Relaxed))
    }

    /// An allocator that reports frees to the scan.
    pub(crate) fn watched(&self, space: Arc<dyn zio::Space>) -> queue::Watched {
        queue::Watched { space, queue: Arc::clone(&self.queue) }
    }

    /// Duration of a slice without waiting callers.
    pub(crate) fn long(&self, look: zio::ExamineKind) -> std::time::Duration {
        let (which, default) = if look == zio::ExamineKind::Scrub { (0, SCRUB_MS) } else { (1, RESILVER_MS) };
        std::time::Duration::from_millis(match self.slice_ms[which].load(Ordering::Relaxed) {
            0 => SLICE_MS,
            // The tunable is the least duration.
            set if set >= default => set.max(SLICE_MS),
            set => set,
        })
    }

    /// Records an event of a top-level vdev's rebuild.
    pub(crate) fn notice_rebuild(&self, what: &'static str, top: Guid, at: std::time::SystemTime) {
        let mut state = self.state.lock();
        if state.notices.len() < NOTICES {
            state.notices.push(ScanNotice { what, rebuilt: Some(top), at });
        }
    }

    /// Marks that a resilver may be requested, until the result is dropped. So callers that wait
    /// for scans wait from the moment when the devices appear.
    pub(crate) fn comes(&self) -> Coming<'_> {
        self.coming.fetch_add(1, Ordering::SeqCst);
        Coming(self)
    }

    /// Whether a resilver is requested, or may be in a moment. A caller checks this before
    /// [`Scan::is_scanning`], so that it misses none in between.
    fn is_awaited(&self) -> bool {
        self.coming.load(Ordering::SeqCst) > 0 || self.is_turning()
    }

    /// Whether a requested resilver has not begun, or one is beginning or ending now. A caller
    /// checks this before [`Scan::is_scanning`].
    pub(crate) fn is_turning(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) || self.turning.load(Ordering::SeqCst)
    }

    /// The txg is on disk: status queries now report what ended in it as ended.
    pub(crate) fn on_disk(&self) {
        let mut state = self.state.lock();
        state.ending = None;
        self.turned.notify_all();
    }

    /// Wakes the callers that wait for a change of scans.
    fn turned(&self) {
        let _state = self.state.lock();
        self.turning.store(false, Ordering::SeqCst);
        self.turned.notify_all();
    }

    /// Whether damaged blocks belong in the log that a scan fills (`spa_scrub_active`).
    pub(crate) fn is_scanning(&self) -> bool {
        self.stat().is_some_and(|s| s.is_scanning()) || self.errors.lock().is_running()
    }
}

impl State {
    /// The reported state: a scan has ended only once its end is on disk.
    fn told(&self) -> Option<ScanStat> {
        self.ending.or(self.stat)
    }

    fn notice(&mut self, what: &'static str, at: std::time::SystemTime) {
        if self.notices.len() < NOTICES {
            self.notices.push(ScanNotice { what, rebuilt: None, at });
        }
    }
}

impl Scans {
    pub(crate) fn new(core: Arc<PoolCore>, scan: Scan) -> Scans {
        Scans { core, scan, rebuilds: rebuild::Rebuilds::default() }
    }

    /// Whether txgs must follow one another at once for scans.
    pub(crate) fn is_scanning_now(&self) -> bool {
        self.scan.is_busy(self.rebuilds.any())
    }

    /// Whether a slice that began at `since` must end: a caller waits, or nothing more may be
    /// verified.
    pub(crate) fn is_called_off(&self, since: std::time::Instant) -> bool {
        let scan = &self.scan;
        scan.quiet.load(Ordering::Relaxed)
            || since.elapsed() >= slice::HURRIED && scan.waiters.load(Ordering::Relaxed) > 0
            || self.core.cache.zio().suspension().reason().is_some()
    }

    /// The pace of I/O in a slice that began at `since` and takes `long`: it yields to foreground
    /// I/O.
    ///
    /// It does not yield in these cases:
    ///
    /// * a caller waits for the txg, or for space that is being copied;
    /// * the slice is late;
    /// * the scan must stop, or the pool is suspended.
    pub(crate) fn pace(&self, since: Instant, long: Duration) -> Pace {
        let scan = &self.scan;
        let (cache, waiters, quiet) =
            (Arc::clone(&self.core.cache), Arc::clone(&scan.waiters), Arc::clone(&scan.quiet));
        let hurries = move || {
            let zio = cache.zio();
            waiters.load(Ordering::Relaxed) > 0
                || quiet.load(Ordering::Relaxed)
                || since.elapsed() >= long.saturating_add(LATE)
                || zio.closed_ranges().is_awaited()
                || zio.suspension().reason().is_some()
        };
        Pace::new(Arc::clone(&self.core.clock), Arc::clone(&scan.waited_ns), hurries)
    }

    /// The txgs, from the first to before the second, that present devices have missed
    /// (`vdev_resilver_needed`).
    pub(crate) fn missing(&self) -> Option<(u64, u64)> {
        let tree = self.core.tree();
        let spans = tree.behind().into_iter().filter_map(|guid| {
            let missed = tree.dtl(guid).ok()?;
            let first = missed.iter().next()?.0;
            Some((first, missed.iter().last()?.1))
        });
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

impl Scans {
    /// Requests a resilver because present devices have missed txgs
    /// (`spa_async_request(SPA_ASYNC_RESILVER)`).
    ///
    /// The next txg starts one, or restarts it. With `resilver_defer` enabled, a running one
    /// completes first. Does nothing if no device has missed anything. It does not wait, and takes
    /// no lock that is held while a txg syncs, so a change of the vdev tree may call it.
    pub fn request_resilver(&self) {
        if self.missing().is_some() {
            self.scan.wanted.store(true, Ordering::Relaxed);
            self.core.txgs().kick();
        }
    }

    /// Refuses a command that the pool does not support. `Some` if there is nothing to do.
    ///
    /// # Errors
    /// * [`ScanRefusal::Unsupported`]: a required feature is not enabled.
    pub(crate) fn check(&self, command: ScanCommand) -> Result<Option<ScanDone>, ScanRefusal> {
        if command == ScanCommand::Resilver {
            if !self.core.mos.feature_enabled("com.datto:resilver_defer").unwrap_or(false) {
                return Err(ScanRefusal::Unsupported { feature: "resilver_defer" });
            }
            if self.missing().is_none() {
                return Ok(Some(ScanDone::Nothing));
            }
        }
        if command == ScanCommand::ErrorScrub && !self.may_scrub_errors() {
            return Err(ScanRefusal::Unsupported { feature: "head_errlog" });
        }
        Ok(None)
    }

    /// Starts, pauses or stops a scan; the result is on disk when this returns. The caller has
    /// [checked](Scans::check) the command.
    ///
    /// # Errors
    /// * [`ScanRefusal::Idle`]: there is nothing to pause or stop.
    /// * [`ScanRefusal::Busy`]: a scan is running.
    /// * [`ScanRefusal::Stopped`]: the pool has stopped.
    pub(crate) fn run(self: &Arc<Self>, command: ScanCommand) -> Result<ScanDone, ScanRefusal> {
        let said = Arc::new(Mutex::new(None));
        let (me, answer) = (Arc::clone(self), Arc::clone(&said));
        self.core.change_pool(Box::new(move |_, tx| {
            let (result, events) = me.obey(tx, command)?;
            *answer.lock() = Some(result);
            Ok(events)
        }))?;
        // A slice has memory from now on.
        self.core.txgs().kick();
        said.lock().take().expect("a synced group has done its tasks")
    }

    /// Whether a resilver is requested that has not begun, or may be requested once a device is
    /// attached or reopened.
    ///
    /// A caller checks this before [`Scans::stat`], so that it misses none in between.
    pub fn awaits_resilver(&self) -> bool {
        self.scan.is_awaited()
    }

    /// Waits until no scrub, resilver or rebuild is running or requested, except paused ones, and
    /// that is on disk (`spa_wait`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn wait(&self) -> Result<(), Stopped> {
        let scan = &self.scan;
        let mut state = scan.state.lock();
        loop {
            let runs = state.told().is_some_and(|s| s.is_scanning() && s.phys.flags & DSF_SCRUB_PAUSED == 0);
            if !runs && !scan.is_awaited() && !self.rebuilds.any_told() {
                return Ok(());
            }
            if let Some(stopped) = self.core.txgs().stopped() {
                return Err(stopped);
            }
            // A pool that stops does not signal this condition.
            scan.turned.wait_for(&mut state, LOOK);
        }
    }

    /// The state of the last or current scan; `None` if there never was one. A scan runs until its
    /// end is on disk.
    pub fn stat(&self) -> Option<ScanStat> {
        self.scan.state.lock().told()
    }

    /// The state of the last or current error scrub, and when it was paused (0 if it is not).
    /// `None` if there was none since the last scan.
    pub fn error_scrub_stat(&self) -> Option<(ErrorScrubPhys, u64)> {
        let scrub = self.scan.errors.lock();
        (scrub.phys.func == ScanFunc::ErrorScrub).then_some((scrub.phys, scrub.paused_at))
    }

    /// Nanoseconds that scans and rebuilds have yielded to foreground I/O since the import, over
    /// all devices.
    pub fn waited_ns(&self) -> u64 {
        self.scan.waited_ns.get()
    }

    /// The events of scans since the last call.
    pub fn take_notices(&self) -> Vec<ScanNotice> {
        std::mem::take(&mut self.scan.state.lock().notices)
    }

    /// Suspends scans, or resumes them (`zfs_scan_suspend_progress`).
    pub fn hold(&self, hold: bool) {
        let scan = &self.scan;
        let rebuilds = &self.rebuilds;
        let goes_on = || scan.goes_on() || scan.errors.lock().goes_on() || rebuilds.any();
        if scan.held.swap(hold, Ordering::Relaxed) && !hold && goes_on() {
            self.core.txgs().kick();
        }
    }

    /// Sets the milliseconds of a slice without waiting callers (`zfs_scrub_min_time_ms`,
    /// `zfs_resilver_min_time_ms`).
    pub fn set_slices(&self, scrub: u64, resilver: u64) {
        let [a, b] = &self.scan.slice_ms;
        a.store(scrub, Ordering::Relaxed);
        b.store(resilver, Ordering::Relaxed);
    }

    /// Sets the bytes of each device that a scan reads at a time (`zfs_scan_vdev_limit`), at least
    /// a block; 0 is the default.
    pub fn limit_bytes(&self, bytes: u64) {
        self.scan.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets the most blocks of a slice, so that a test can check the state between any two; 0 is no
    /// limit.
    pub fn limit_slices(&self, blocks: u64) {
        self.scan.slice_blocks.store(blocks, Ordering::Relaxed);
    }

    /// Sets the bytes of memory for the queue; 0 is the default, a part of the machine's memory
    /// (`zfs_scan_mem_lim_fact`).
    pub fn limit_queue(&self, bytes: u64) {
        self.scan.queue_memory.store(bytes, Ordering::Relaxed);
    }

    /// Makes scans queue blocks without verifying them, or verify again, so that a test can check
    /// what happens to queued blocks.
    pub fn hold_looks(&self, hold: bool) {
        let scan = &self.scan;
        if scan.looks_held.swap(hold, Ordering::Relaxed) && !hold {
            scan.stands_still.store(false, Ordering::Relaxed);
            self.core.txgs().kick();
        }
    }

    /// Resumes what was scanning when the pool was released, and starts a resilver that is needed.
    pub(crate) fn resume(&self) {
        let stat = self.scan.stat();
        let resilvering = stat.filter(|s| s.is_scanning() && s.phys.func == ScanFunc::Resilver);
        let beyond = |s: ScanStat, (_, end): (u64, u64)| end > s.phys.max_txg;
        let needed = self.missing().is_some_and(|m| resilvering.is_none_or(|s| beyond(s, m)));
        // When the rebuild ends, it checks whether a resilver is needed.
        if needed && !self.rebuilds.any() {
            self.scan.wanted.store(true, Ordering::Relaxed);
        }
        if self.is_scanning_now() || self.is_rebuilding_now() {
            self.core.txgs().kick();
        }
    }
}

/// The mark that a resilver may be requested ([`Scan::comes`]).
pub(crate) struct Coming<'a>(&'a Scan);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.coming.fetch_sub(1, Ordering::SeqCst);
        self.0.turned.notify_all();
    }
}

/// Whether a scan covers blocks of this physical birth (`scn_min_txg`, `scn_max_txg`): both ends
/// are excluded.
fn covers(phys: &ScanPhys, birth: Txg) -> bool {
    birth.0 > phys.min_txg && birth.0 < phys.max_txg
}
