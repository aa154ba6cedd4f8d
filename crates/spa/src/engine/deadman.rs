//! Operations of devices that never end: told, and their devices given up if that is wanted.
//!
//! # Theory
//! A thread of its own looks from time to time at what is under way ([`Tree::find_hung`](vdev::Tree::find_hung)): whoever waits for a device that hangs can't. It reads no device and waits for no group. With
//! [`FAILMODE`] 1 the device of what hangs is faulted as far as the pool can do without it, so that nobody else asks it; what hangs can't be called back, and whoever
//! waits for it waits on.
//!
//! # Absent
//! There is no `panic` mode, and no limit of its own for a group that takes too long (`zfs_deadman_synctime_ms`): a group waits for operations.
//!
//! # See
//! OpenZFS `spa_deadman`, `vdev_deadman`, `zio_deadman`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use observe::Tunable;
use parking_lot::{Condvar, Mutex};
use vdev::Hung;

use super::{Engine, Live};

/// 1: what hangs is looked for (`zfs_deadman_enabled`).
pub static ENABLED: Tunable = Tunable::new(1);
/// How often that is looked for, milliseconds (`zfs_deadman_checktime_ms`).
pub static CHECK_MS: Tunable = Tunable::new(60_000);
/// From when on an operation hangs, milliseconds (`zfs_deadman_ziotime_ms`).
pub static HANGS_MS: Tunable = Tunable::new(300_000);
/// 0: what hangs is only told (`zfs_deadman_failmode=wait`); 1: its device is given up too (`continue`).
pub static FAILMODE: Tunable = Tunable::new(0);

/// The thread that looks.
#[derive(Debug, Default)]
pub(super) struct Deadman {
    stop: Mutex<bool>,
    stopping: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Deadman {
    /// Ends the thread, and waits for it, which waits for nothing.
    pub(super) fn stop(&self) {
        *self.stop.lock() = true;
        self.stopping.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }
}

impl Engine {
    fn watch_for_hung(&self) {
        loop {
            {
                let mut stop = self.deadman.stop.lock();
                if !*stop {
                    self.deadman.stopping.wait_for(&mut stop, Duration::from_millis(CHECK_MS.get().max(1)));
                }
                if *stop {
                    return;
                }
            }
            if ENABLED.get() != 0 {
                self.look_for_hung(Duration::from_millis(HANGS_MS.get()), FAILMODE.get() == 1);
            }
        }
    }

    fn look_for_hung(&self, longer: Duration, give_up: bool) -> Vec<Hung> {
        let tree = self.tree();
        let hung = tree.find_hung(longer);
        if give_up {
            hung.iter().for_each(|hung| tree.give_up(hung.leaf));
        }
        hung
    }
}

impl Live {
    /// Starts the thread.
    pub(super) fn start_deadman(&self, name: &str) {
        let mut thread = self.engine().deadman.thread.lock();
        if thread.is_some() {
            return;
        }
        *self.engine().deadman.stop.lock() = false;
        let engine = Arc::clone(self.engine());
        let run = move || engine.watch_for_hung();
        let started = std::thread::Builder::new().name(format!("deadman {name}")).spawn(run);
        *thread = Some(started.expect("the system has room for a thread"));
    }

    /// The operations that have been under way for longer than this, each of which is reported; with `give_up`, their devices are faulted as far as the pool can do
    /// without them. What the pool's own thread does from time to time. Waits for nothing.
    pub fn look_for_hung(&self, longer: Duration, give_up: bool) -> Vec<Hung> {
        self.engine().look_for_hung(longer, give_up)
    }
}
