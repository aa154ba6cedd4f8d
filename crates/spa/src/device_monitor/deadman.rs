//! The deadman: reports I/O that hangs and txgs that take too long, and may fault their devices.
//!
//! # Theory
//! A thread polls the operations under way ([`Tree::find_hung`](vdev::Tree::find_hung)), because a
//! thread that waits for a hung device can't. It reads no device and waits for no txg.
//!
//! | what | reported |
//! |---|---|
//! | an operation | after [`HANGS_MS`], then every [`CHECK_MS`] |
//! | a txg whose sync takes [`SYNC_MS`] | then every [`CHECK_MS`] until it is on disk |
//!
//! Of a slow txg, the report names the operations that have been under way for [`SYNC_MS`],
//! whatever [`HANGS_MS`] says. If there are none, it reports the txg itself: its thread makes no
//! progress.
//!
//! Nothing is reported of a suspended pool: the cause is known. Status queries show both
//! ([`Deadman::slow_group`]).
//!
//! With [`FAILMODE`] 1 the deadman faults the device of a hung operation, if the pool can do
//! without it. Then no other thread uses the device. The hung operation can't be cancelled, and its
//! thread waits on. With 2 the process ends.
//!
//! # See
//! OpenZFS `spa_deadman`, `vdev_deadman`, `zio_deadman`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex};
use observe::{Tunable, Unit};
use vdev::Hung;

use crate::pool_core::PoolCore;

/// 1: hung I/O is reported (`zfs_deadman_enabled`).
pub static ENABLED: Tunable = Tunable::new("zfs_deadman_enabled", 1, 0..=1, Unit::Flag, "1: report hung I/O");
/// Interval of the reports of a hung operation, milliseconds (`zfs_deadman_checktime_ms`).
pub static CHECK_MS: Tunable = Tunable::new(
    "zfs_deadman_checktime_ms",
    60_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time between two reports of the same hung I/O or transaction group",
);
/// Duration after which an operation counts as hung, milliseconds (`zfs_deadman_ziotime_ms`).
pub static HANGS_MS: Tunable = Tunable::new(
    "zfs_deadman_ziotime_ms",
    300_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time after which an I/O of a device counts as hung",
);
/// Duration after which the sync of a txg counts as hung, milliseconds (`zfs_deadman_synctime_ms`).
pub static SYNC_MS: Tunable = Tunable::new(
    "zfs_deadman_synctime_ms",
    600_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time after which a transaction group counts as hung",
);
/// What follows from hung I/O (`zfs_deadman_failmode`).
///
/// * 0, `wait`: only a report.
/// * 1, `continue`: its device is faulted too.
/// * 2, `panic`: the process ends.
pub static FAILMODE: Tunable = Tunable::in_words(
    "zfs_deadman_failmode",
    0,
    &["wait", "continue", "panic"],
    "wait: only report a hung I/O; continue: fault its device; panic: end the daemon",
);

/// Longest time between two polls, so that reports and changed tunables take effect soon.
const LOOK: Duration = Duration::from_secs(1);

/// The thread that polls.
pub struct Deadman {
    core: Arc<PoolCore>,
    stop: Mutex<bool>,
    stopping: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    group: Mutex<Option<Group>>,
}

/// A txg whose sync is under way.
#[derive(Debug)]
struct Group {
    began: Instant,
    /// When its slowness was last reported.
    told: Option<Instant>,
}

/// The sync of a txg is under way until this is dropped.
pub(crate) struct Writing<'a>(&'a Deadman);

impl Deadman {
    pub(crate) fn new(core: Arc<PoolCore>) -> Deadman {
        let (stop, stopping) = (Mutex::default(), Condvar::default());
        Deadman { core, stop, stopping, thread: Mutex::default(), group: Mutex::default() }
    }

    /// Ends the thread, and waits for its end; the thread itself waits for nothing.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.stopping.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }

    /// The sync of a txg begins.
    pub(crate) fn writing(&self) -> Writing<'_> {
        *self.group.lock() = Some(Group { began: Instant::now(), told: None });
        Writing(self)
    }

    /// The duration of the current sync, if it exceeds `longer` and was not reported within
    /// `again`. Notes it as reported now.
    fn newly_slow(&self, longer: Duration, again: Duration) -> Option<Duration> {
        let mut group = self.group.lock();
        let group = group.as_mut()?;
        let now = Instant::now();
        let told = group.told.is_some_and(|told| now.duration_since(told) < again);
        let took = now.duration_since(group.began);
        let slow = took >= longer && !told;
        if slow {
            group.told = Some(now);
        }
        slow.then_some(took)
    }

    /// The duration of the current sync; `None` if there is none.
    fn took(&self) -> Option<Duration> {
        self.group.lock().as_ref().map(|group| group.began.elapsed())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        *self.0.group.lock() = None;
    }
}

fn ms(tunable: &Tunable) -> Duration {
    Duration::from_millis(tunable.get().max(1))
}

impl Deadman {
    fn watch_for_hung(&self, name: &str) {
        loop {
            {
                let mut stop = self.stop.lock();
                if !*stop {
                    let pause = LOOK.min(ms(&CHECK_MS)).min(ms(&HANGS_MS)).min(ms(&SYNC_MS));
                    self.stopping.wait_for(&mut stop, pause);
                }
                if *stop {
                    return;
                }
            }
            self.look_at_deadman(name);
        }
    }

    fn look_at_deadman(&self, name: &str) {
        if ENABLED.get() == 0 || self.core.cache.zio().suspension().reason().is_some() {
            return;
        }
        let (again, give_up) = (ms(&CHECK_MS), FAILMODE.get() == 1);
        let mut hung = self.find_hung(ms(&HANGS_MS), again, give_up);
        if let Some(took) = self.newly_slow(ms(&SYNC_MS), again) {
            hung.extend(self.find_hung(ms(&SYNC_MS), Duration::ZERO, give_up));
            // A hung operation explains the slow sync.
            if hung.is_empty() {
                self.core.tree().report_slow_group(took);
            }
        }
        if FAILMODE.get() == 2 && !hung.is_empty() {
            // The process's last words go to stderr: its log may lie on the pool.
            let words =
                format!("I/O to pool '{name}' appears to be hung, and zfs_deadman_failmode is panic.\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
            std::process::abort();
        }
    }

    fn find_hung(&self, longer: Duration, again: Duration, give_up: bool) -> Vec<Hung> {
        let tree = self.core.tree();
        let hung = tree.find_hung(longer, again);
        if give_up {
            hung.iter().for_each(|hung| tree.give_up(hung.leaf));
        }
        hung
    }
}

impl Deadman {
    /// Starts the thread.
    pub(crate) fn start(self: &Arc<Self>, name: &str) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        *self.stop.lock() = false;
        let me = Arc::clone(self);
        let pool = name.to_owned();
        let run = move || me.watch_for_hung(&pool);
        let started = std::thread::Builder::new().name(format!("deadman {name}")).spawn(run);
        *thread = Some(started.expect("the system has room for a thread"));
    }

    /// The duration of the current sync, if it exceeds [`SYNC_MS`]. A suspended pool waits for a
    /// known reason and is not slow. Does not wait.
    pub fn slow_group(&self) -> Option<Duration> {
        let took = self.took().filter(|took| *took >= ms(&SYNC_MS))?;
        (ENABLED.get() != 0 && self.core.cache.zio().suspension().reason().is_none()).then_some(took)
    }

    /// The operations under way for longer than this, each of which is reported (`vdev_deadman`).
    /// With `give_up`, their devices are faulted if the pool can do without them. Does not wait.
    pub fn look_for_hung(&self, longer: Duration, give_up: bool) -> Vec<Hung> {
        self.find_hung(longer, Duration::ZERO, give_up)
    }
}
