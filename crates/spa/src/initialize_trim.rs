//! Initialize and TRIM: the free space of a device is written once, or discarded.
//!
//! # Theory
//! Both go through the metaslabs of the device's top-level vdev. They set one aside after another
//! ([`pool::alloc::Aside`]), and write or discard the free part that lies on this device. Each
//! device and kind has a thread ([`worker::run`]). It waits for no transaction group while it has
//! a metaslab aside, since the sync may need that metaslab. Initialize writes yield to foreground
//! I/O, as scans do ([`vdev::Pace`]), and scans don't yield to them. Discards do neither.
//!
//! # On disk
//! The state and progress of a device's work are in the leaf's ZAP, under OpenZFS's names. Threads
//! and commands change the state in memory first; each txg writes what has changed since the last
//! one ([`state`]). The offset is that of the last byte done, counted from the beginning of the
//! device. (OpenZFS compares it with offsets in the space behind the labels, and so skips 4 MiB
//! when it resumes; here they are done again.)
//!
//! # Life
//! As in OpenZFS, a work is *none*, *active*, *suspended*, *canceled* or *complete*. Cancelling
//! resets the progress of TRIM, but not of initialize, which only `zpool initialize -u` resets. An
//! active work continues after the next import, and when a faulted device becomes available again.
//!
//! # Locks
//! `commands` is held to start or stop threads, and to wait for them; `all`, below it, for a few
//! instructions.
//!
//! # Crash
//! Only space is touched that is free in the last synced txg and in those before it that an import
//! may rewind to. Work since the last txg is repeated.
//!
//! # Absent
//! Secure TRIM. Devices below a vdev that is being removed or expanded: such pools are not opened
//! for writing.
//!
//! # See
//! OpenZFS `vdev_initialize.c`, `vdev_trim.c`, `spa.c` (`spa_vdev_initialize`, `spa_vdev_trim`).

mod auto;
mod state;
mod worker;

pub use auto::BATCH as TRIM_BATCH;
pub use worker::{CHUNK, TRIM_MAX, TRIM_MIN, TRIM_SKIP, VALUE};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use observe::lock::{Condvar, Mutex};
use ondisk::{Guid, VdevConfig, VdevId, VdevKind};
use vdev::{Tree, VdevState};

use crate::pool_core::PoolCore;
use crate::txg::Stopped;

/// The work on the free space of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkKind {
    /// Write it.
    Initialize,
    /// Discard it.
    Trim,
}

/// The state of a device's work (`vdev_initializing_state_t`, `vdev_trim_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkState {
    /// Never begun, or reset.
    #[default]
    None = 0,
    /// Under way.
    Active = 1,
    /// Stopped for good.
    Canceled = 2,
    /// Stopped, to be resumed later.
    Suspended = 3,
    /// Done.
    Complete = 4,
}

/// A command for a device's work (`pool_initialize_func_t`, `pool_trim_func_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkCommand {
    /// Start or resume (`POOL_INITIALIZE_START`, `POOL_TRIM_START`).
    Start {
        /// TRIM's limit in bytes per second; 0 is no limit, or the one before.
        rate: u64,
        /// Discard so that nothing can be read again.
        secure: bool,
    },
    /// Stop for good (`POOL_INITIALIZE_CANCEL`, `POOL_TRIM_CANCEL`).
    Cancel,
    /// Stop, to resume later (`POOL_INITIALIZE_SUSPEND`, `POOL_TRIM_SUSPEND`).
    Suspend,
    /// Mark a device as never initialized (`POOL_INITIALIZE_UNINIT`).
    Undo,
}

/// Why a command was refused for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkRefusal {
    /// The pool has no such vdev (`ENODEV`).
    #[error("no such device in the pool")]
    NoDevice,
    /// The vdev is not a device, or not one that holds blocks (`EINVAL`).
    #[error("it is no device that holds blocks")]
    NotLeaf,
    /// The device is not writable (`EROFS`).
    #[error("the device takes no writes")]
    NotWritable,
    /// The device doesn't support TRIM, or not this kind (`EOPNOTSUPP`).
    #[error("the device can't do that")]
    Unsupported,
    /// It is under way already (`EBUSY`).
    #[error("it goes on already")]
    Busy,
    /// There is nothing to stop (`ESRCH`).
    #[error("nothing goes on")]
    Idle,
}

/// The state and progress of a device's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkStat {
    /// Its state.
    pub state: WorkState,
    /// When it was started, stopped or completed, seconds since 1970.
    pub action_time: u64,
    /// Bytes done, approximately.
    pub done: u64,
    /// Bytes to do in all, approximately.
    pub estimate: u64,
    /// Ranges that failed.
    pub errors: u64,
}

/// An event of a device or its work (`ESC_ZFS_TRIM_*`, `ESC_ZFS_VDEV_*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkNotice {
    /// The device.
    pub leaf: Guid,
    /// The path of a device that has left the pool, if it had one.
    pub path: Option<Vec<u8>>,
    /// The event's name: `trim_start`, `vdev_spare` and so on.
    pub what: &'static str,
    /// Time of the event.
    pub at: std::time::SystemTime,
}

/// Events that are kept until a caller takes them.
const NOTICES: usize = 256;

/// The controls of a worker thread.
#[derive(Debug, Default)]
struct Control {
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Control {
    fn is_stopped(&self) -> bool {
        *self.stop.lock()
    }

    fn stop(&self) {
        *self.stop.lock() = true;
        self.stopped.notify_all();
    }
}

/// One device's work.
#[derive(Debug, Default)]
struct Work {
    stat: WorkStat,
    /// The next byte to do, in the space behind the labels.
    next: u64,
    rate: u64,
    partial: bool,
    secure: bool,
    /// The next txg must write the state.
    dirty: bool,
    /// The progress is written too, though it is zero.
    reset: bool,
    /// Events for the history.
    told: Vec<(&'static str, String)>,
    thread: Option<(JoinHandle<()>, Arc<Control>)>,
}

impl Work {
    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|(thread, _)| !thread.is_finished())
    }
}

type Key = (Guid, WorkKind);

/// Initialize and TRIM of a pool's devices.
pub struct InitializeTrim {
    core: Arc<PoolCore>,
    works: Works,
}

/// The works of a pool's devices.
#[derive(Debug, Default)]
struct Works {
    commands: Mutex<()>,
    all: Mutex<BTreeMap<Key, Work>>,
    notices: Mutex<Vec<WorkNotice>>,
    /// The thread of automatic TRIM.
    auto: Mutex<Option<(JoinHandle<()>, Arc<Control>)>>,
    /// Number of automatic TRIM's rounds.
    round: AtomicU64,
}

/// The progress of a device's work at `next`: bytes done and in all
/// (`vdev_initialize_calculate_progress`).
fn progress(core: &PoolCore, tree: &Tree, top: VdevId, leaf: Guid, next: u64) -> (u64, u64) {
    let (mut done, mut all) = (0u64, 0u64);
    for ms in core.allocator.metaslab_figures(top) {
        let free = (ms.size - ms.allocated) / tree.spread(top).max(1);
        let (mut first, mut last) = (u64::MAX, 0);
        let mut span = |start: u64, end: u64| (first, last) = (first.min(start), last.max(end));
        if tree.translate(leaf, ms.start, ms.start + ms.size, &mut span).is_err() || first >= last {
            continue;
        }
        all += free;
        let passed = next.clamp(first, last) - first;
        done += (u128::from(free) * u128::from(passed) / u128::from(last - first)) as u64;
    }
    (done, all)
}

impl InitializeTrim {
    pub(crate) fn new(core: Arc<PoolCore>) -> InitializeTrim {
        InitializeTrim { core, works: Works::default() }
    }

    /// A device by its guid, if work on it is possible.
    fn worked(&self, guid: Guid) -> Result<(VdevConfig, VdevId), WorkRefusal> {
        let config = self.core.config_now();
        let root = config.root();
        let leaf = root.find(guid).ok_or(WorkRefusal::NoDevice)?;
        if !matches!(leaf.kind, VdevKind::Disk | VdevKind::File) || leaf.leaf_zap.is_none() {
            return Err(WorkRefusal::NotLeaf);
        }
        let tree = self.core.tree();
        let top = tree.top_of(guid).map_err(|_| WorkRefusal::NotLeaf)?;
        if !tree.holds_blocks(top) {
            return Err(WorkRefusal::NotLeaf);
        }
        if !tree.is_writable(guid) {
            return Err(WorkRefusal::NotWritable);
        }
        Ok((leaf.clone(), top))
    }

    /// Changes the state of a work (`vdev_initialize_change_state`, `vdev_trim_change_state`).
    /// False if it has that state.
    fn change_work(&self, key: Key, path: &str, to: WorkState) -> bool {
        let mut all = self.works.all.lock();
        let work = all.entry(key).or_default();
        let from = work.stat.state;
        // A work that was stopped just before its end stays stopped.
        if from == to || to == WorkState::Complete && from != WorkState::Active {
            return false;
        }
        if from != WorkState::Suspended {
            work.stat.action_time = self.core.world.now();
        }
        work.stat.state = to;
        work.dirty = true;
        let was_on = matches!(from, WorkState::Active | WorkState::Suspended);
        let (done, notice) = match to {
            WorkState::Active if from == WorkState::Suspended => (" activated", "trim_resume"),
            WorkState::Active => (" activated", "trim_start"),
            WorkState::Suspended => (" suspended", "trim_suspend"),
            WorkState::Canceled if was_on => (" canceled", "trim_cancel"),
            WorkState::Canceled => return true,
            WorkState::Complete => (" complete", "trim_finish"),
            WorkState::None => ("", ""),
        };
        let what = match key.1 {
            WorkKind::Trim => "trim",
            WorkKind::Initialize if to == WorkState::None => "uninitialize",
            WorkKind::Initialize => "initialize",
        };
        work.told.push((what, format!("vdev={path}{done}")));
        drop(all);
        if key.1 == WorkKind::Trim {
            self.notice(key.0, notice);
        }
        true
    }

    /// Cancels the work of a faulted device, whatever its thread is doing.
    fn cancel_if_faulted(&self, key: Key) {
        let active = self.works.all.lock().get(&key).is_some_and(|work| work.stat.state == WorkState::Active);
        if active && self.core.tree().state_of(key.0).is_ok_and(|(state, _)| state == VdevState::Faulted) {
            self.change_work(key, &worker::path_of(&self.core, key.0), WorkState::Canceled);
        }
    }

    /// The same for all works of a device that may just have been faulted.
    pub(crate) fn cancel_works_if_faulted(&self, leaf: Guid) {
        for kind in [WorkKind::Initialize, WorkKind::Trim] {
            self.cancel_if_faulted((leaf, kind));
        }
    }

    /// Records an event of a device.
    pub(crate) fn notice(&self, leaf: Guid, what: &'static str) {
        self.put_notice(WorkNotice { leaf, path: None, what, at: self.core.world.wall() });
    }

    /// Records that a device has left the pool.
    pub(crate) fn notice_gone(&self, guid: Guid, path: Option<Vec<u8>>, what: &'static str) {
        self.put_notice(WorkNotice { leaf: guid, path, what, at: self.core.world.wall() });
    }

    fn put_notice(&self, notice: WorkNotice) {
        let mut notices = self.works.notices.lock();
        if notices.len() < NOTICES {
            notices.push(notice);
        }
    }

    /// Starts a thread for an active work. The caller holds `commands`.
    fn start_work(self: &Arc<Self>, key: Key) {
        let control = Arc::new(Control::default());
        let (me, mine) = (Arc::clone(self), Arc::clone(&control));
        let name = match key.1 {
            WorkKind::Initialize => "vdev_initialize",
            WorkKind::Trim => "vdev_trim",
        };
        let builder = std::thread::Builder::new().name(format!("{name}/{}", self.core.dsl.pool_name()));
        let thread = builder.spawn(move || worker::run(&me, key, &mine));
        let thread = thread.expect("a process that imports a pool can start a thread");
        self.works.all.lock().entry(key).or_default().thread = Some((thread, control));
    }

    /// Stops threads and waits for them. The caller holds `commands`.
    fn join_works(&self, keys: &[Key]) {
        let threads: Vec<_> = {
            let mut all = self.works.all.lock();
            keys.iter().filter_map(|key| all.get_mut(key)?.thread.take()).collect()
        };
        threads.iter().for_each(|(_, control)| control.stop());
        for (thread, _) in threads {
            thread.join().expect("a panic ends the program");
        }
    }

    /// Stops all threads; active works stay active, to be resumed.
    pub(crate) fn stop_works(&self) {
        let _one = self.works.commands.lock();
        let keys: Vec<Key> = self.works.all.lock().keys().copied().collect();
        self.join_works(&keys);
        self.stop_trimming();
    }

    /// Resumes active works that have no thread. They were active when the pool was released, or
    /// when their device disappeared (`vdev_initialize_restart`, `vdev_trim_restart`).
    pub(crate) fn restart_works(self: &Arc<Self>) {
        let _one = self.works.commands.lock();
        // The pool may be another host's by now.
        if self.core.cache.zio().suspension().reason().is_some() {
            return;
        }
        self.load_works();
        let idle: Vec<Key> = {
            let all = self.works.all.lock();
            // A secure TRIM that OpenZFS began stays for software that supports it.
            let idle = all
                .iter()
                .filter(|(_, work)| work.stat.state == WorkState::Active && !work.runs() && !work.secure);
            idle.map(|(key, _)| *key).collect()
        };
        for key in idle {
            if self.worked(key.0).is_ok() {
                self.start_work(key);
            }
        }
    }

    /// Applies a command to a device; gives the work whose thread must end.
    fn command(
        self: &Arc<Self>,
        (guid, kind): Key,
        command: WorkCommand,
    ) -> Result<Option<Key>, WorkRefusal> {
        let (leaf, _) = self.worked(guid)?;
        let trim = kind == WorkKind::Trim;
        let secure = matches!(command, WorkCommand::Start { secure: true, .. });
        if trim && (secure || !self.core.tree().can_trim(guid)) {
            return Err(WorkRefusal::Unsupported);
        }
        let path = String::from_utf8_lossy(leaf.path.as_deref().unwrap_or(b"-")).into_owned();
        let key = (guid, kind);
        let (state, runs) = {
            let mut all = self.works.all.lock();
            let work = all.entry(key).or_default();
            (work.stat.state, work.runs())
        };
        match command {
            WorkCommand::Start { .. } | WorkCommand::Undo if runs => Err(WorkRefusal::Busy),
            WorkCommand::Start { rate, .. } => {
                self.join_works(&[key]);
                self.prepare(key, state, rate);
                self.change_work(key, &path, WorkState::Active);
                self.start_work(key);
                Ok(None)
            }
            WorkCommand::Undo => {
                self.change_work(key, &path, WorkState::None);
                if let Some(work) = self.works.all.lock().get_mut(&key) {
                    (work.next, work.stat) = (0, WorkStat::default());
                }
                Ok(None)
            }
            WorkCommand::Cancel if !matches!(state, WorkState::Active | WorkState::Suspended) => {
                Err(WorkRefusal::Idle)
            }
            WorkCommand::Suspend if state != WorkState::Active => Err(WorkRefusal::Idle),
            // A work whose device disappeared resumes when the device is available again.
            WorkCommand::Suspend if !runs => Ok(None),
            WorkCommand::Cancel => Ok(self.change_work(key, &path, WorkState::Canceled).then_some(key)),
            WorkCommand::Suspend => Ok(self.change_work(key, &path, WorkState::Suspended).then_some(key)),
        }
    }

    /// Sets the parameters of a work before it starts or resumes.
    fn prepare(&self, key: Key, state: WorkState, rate: u64) {
        let mut all = self.works.all.lock();
        let work = all.entry(key).or_default();
        if key.1 == WorkKind::Trim && matches!(state, WorkState::Complete | WorkState::Canceled) {
            (work.next, work.reset) = (0, true);
            (work.rate, work.partial, work.secure) = (0, false, false);
        }
        if rate != 0 {
            work.rate = rate;
        }
    }
}

impl InitializeTrim {
    /// Starts, stops or resets initialize or TRIM of devices (`spa_vdev_initialize`,
    /// `spa_vdev_trim`).
    ///
    /// Returns the refusals by index in `devices`, once the stopped threads have ended and the
    /// states are on disk.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn work(
        self: &Arc<Self>,
        devices: &[Guid],
        kind: WorkKind,
        command: WorkCommand,
    ) -> Result<Vec<(usize, WorkRefusal)>, Stopped> {
        self.core.txgs().check_suspended()?;
        let txgs = self.core.txgs();
        let mut refused = Vec::new();
        {
            let _one = self.works.commands.lock();
            let mut ended = Vec::new();
            for (at, guid) in devices.iter().enumerate() {
                match self.command((*guid, kind), command) {
                    Ok(end) => ended.extend(end),
                    Err(why) => refused.push((at, why)),
                }
            }
            self.join_works(&ended);
        }
        self.core.txgs().touch();
        txgs.sync_all()?;
        Ok(refused)
    }

    /// The state and progress of a device's work; the default if nothing is known.
    pub fn stat(&self, leaf: Guid, kind: WorkKind) -> WorkStat {
        self.works.all.lock().get(&(leaf, kind)).map(|work| work.stat).unwrap_or_default()
    }

    /// The events since the last call.
    pub fn take_notices(&self) -> Vec<WorkNotice> {
        std::mem::take(&mut *self.works.notices.lock())
    }
}
