//! Operations of devices that never end, and groups that take too long: told, and their devices given up if that is wanted.
//!
//! # Theory
//! A thread of its own looks from time to time at what is under way ([`Tree::find_hung`](vdev::Tree::find_hung)): whoever waits for a device that hangs can't. It reads no device and waits for no group.
//! An operation is told when it has taken [`HANGS_MS`], and again every [`CHECK_MS`] as long as it lasts. When a group has taken [`SYNC_MS`] to be written, what has been under way for as long is told
//! too, whatever [`HANGS_MS`] says, and so every [`CHECK_MS`] until the group is on disk. What a suspended pool waits for is known, so nothing is told of it.
//! Where nothing hangs, the group itself is reported: its thread makes no progress. Status queries
//! show both ([`PoolWriter::slow_group`]).
//!
//! With [`FAILMODE`] 1 the device of what hangs is faulted as far as the pool can do without it, so that nobody else asks it; what hangs can't be called back, and whoever
//! waits for it waits on. With 2 the process ends.
//!
//! # See
//! OpenZFS `spa_deadman`, `vdev_deadman`, `zio_deadman`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use observe::{Tunable, Unit};
use parking_lot::{Condvar, Mutex};
use vdev::Hung;

use crate::engine::{Engine, PoolWriter};

/// 1: what hangs is looked for (`zfs_deadman_enabled`).
pub static ENABLED: Tunable = Tunable::new("zfs_deadman_enabled", 1, 0..=1, Unit::Flag, "1: report hung I/O");
/// How often what hangs is told, milliseconds (`zfs_deadman_checktime_ms`).
pub static CHECK_MS: Tunable = Tunable::new(
    "zfs_deadman_checktime_ms",
    60_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time between two reports of the same hung I/O or transaction group",
);
/// From when on an operation hangs, milliseconds (`zfs_deadman_ziotime_ms`).
pub static HANGS_MS: Tunable = Tunable::new(
    "zfs_deadman_ziotime_ms",
    300_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time after which an I/O of a device counts as hung",
);
/// From when on a group hangs, milliseconds (`zfs_deadman_synctime_ms`).
pub static SYNC_MS: Tunable = Tunable::new(
    "zfs_deadman_synctime_ms",
    600_000,
    1..=u32::MAX as u64,
    Unit::Milliseconds,
    "time after which a transaction group counts as hung",
);
/// 0: what hangs is only told (`zfs_deadman_failmode=wait`); 1: its device is given up too (`continue`); 2: the process ends (`panic`).
pub static FAILMODE: Tunable = Tunable::in_words(
    "zfs_deadman_failmode",
    0,
    &["wait", "continue", "panic"],
    "wait: only report a hung I/O; continue: fault its device; panic: end the daemon",
);

/// Between two looks at most, so that what hangs is told soon, and numbers that are set count soon.
const LOOK: Duration = Duration::from_secs(1);

/// The thread that looks.
#[derive(Debug, Default)]
pub(crate) struct Deadman {
    stop: Mutex<bool>,
    stopping: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
    group: Mutex<Option<Group>>,
}

/// A group that is being written.
#[derive(Debug)]
struct Group {
    began: Instant,
    /// When it was last told that it takes long.
    told: Option<Instant>,
}

/// A group is being written until this is dropped.
pub(crate) struct Writing<'a>(&'a Deadman);

impl Deadman {
    /// Ends the thread, and waits for it, which waits for nothing.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.stopping.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }

    /// A group begins to be written.
    pub(crate) fn writing(&self) -> Writing<'_> {
        *self.group.lock() = Some(Group { began: Instant::now(), told: None });
        Writing(self)
    }

    /// How long the group that is written has taken, if that is longer than this and was not told
    /// within the last `again`; it is told now.
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

    /// How long the group that is written has taken; `None` if none is.
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

impl Engine {
    fn watch_for_hung(&self, name: &str) {
        loop {
            {
                let mut stop = self.deadman.stop.lock();
                if !*stop {
                    let pause = LOOK.min(ms(&CHECK_MS)).min(ms(&HANGS_MS)).min(ms(&SYNC_MS));
                    self.deadman.stopping.wait_for(&mut stop, pause);
                }
                if *stop {
                    return;
                }
            }
            self.look_at_deadman(name);
        }
    }

    fn look_at_deadman(&self, name: &str) {
        if ENABLED.get() == 0 || self.cache.zio().suspension().reason().is_some() {
            return;
        }
        let (again, give_up) = (ms(&CHECK_MS), FAILMODE.get() == 1);
        let mut hung = self.look_for_hung(ms(&HANGS_MS), again, give_up);
        if let Some(took) = self.deadman.newly_slow(ms(&SYNC_MS), again) {
            hung.extend(self.look_for_hung(ms(&SYNC_MS), Duration::ZERO, give_up));
            // What hangs explains it.
            if hung.is_empty() {
                self.tree().report_slow_group(took);
            }
        }
        if FAILMODE.get() == 2 && !hung.is_empty() {
            // The daemon's last words: what it logs may lie on the pool.
            let words =
                format!("I/O to pool '{name}' appears to be hung, and zfs_deadman_failmode is panic.\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
            std::process::abort();
        }
    }

    fn look_for_hung(&self, longer: Duration, again: Duration, give_up: bool) -> Vec<Hung> {
        let tree = self.tree();
        let hung = tree.find_hung(longer, again);
        if give_up {
            hung.iter().for_each(|hung| tree.give_up(hung.leaf));
        }
        hung
    }
}

impl PoolWriter {
    /// Starts the thread.
    pub(crate) fn start_deadman(&self, name: &str) {
        let mut thread = self.engine().deadman.thread.lock();
        if thread.is_some() {
            return;
        }
        *self.engine().deadman.stop.lock() = false;
        let engine = Arc::clone(self.engine());
        let pool = name.to_owned();
        let run = move || engine.watch_for_hung(&pool);
        let started = std::thread::Builder::new().name(format!("deadman {name}")).spawn(run);
        *thread = Some(started.expect("the system has room for a thread"));
    }

    /// How long the group that is written has taken, if that is longer than [`SYNC_MS`]. A
    /// suspended pool waits for a known reason and is not slow. Waits for nothing.
    pub fn slow_group(&self) -> Option<Duration> {
        let engine = self.engine();
        let took = engine.deadman.took().filter(|took| *took >= ms(&SYNC_MS))?;
        (ENABLED.get() != 0 && engine.cache.zio().suspension().reason().is_none()).then_some(took)
    }

    /// The operations that have been under way for longer than this, each of which is reported; with `give_up`, their devices are faulted as far as the pool can do
    /// without them. Waits for nothing.
    pub fn look_for_hung(&self, longer: Duration, give_up: bool) -> Vec<Hung> {
        self.engine().look_for_hung(longer, Duration::ZERO, give_up)
    }
}
