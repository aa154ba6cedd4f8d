//! The device monitor: a thread that reacts to faulty, missing and returning devices.
//!
//! # Theory
//! The monitor does this:
//!
//! * A finished resilver: it detaches the replaced devices.
//! * Too many errors: it degrades or faults the device, and a hot spare takes its place
//!   ([`crate::device_monitor::diagnosis`]).
//! * A device that becomes available again: it reopens it ([`crate::device_monitor::hotplug`]).
//!
//! All of these change the vdev tree. Such a change excludes other changes until it is on disk, and
//! so waits for transaction groups. The sync thread must not wait for these, nor a thread that has
//! just had an I/O error. So these threads ring the tree's bell ([`vdev::AlarmQueue`]), and the
//! monitor does the work.
//!
//! Devices that become available again or grow ring no bell. While a device is missing, the monitor
//! looks for it every few seconds, and tries again the spares that could not step in. With
//! `autoexpand=on` it checks sizes too. With `autotrim=on` it starts the discarding of freed space
//! ([`crate::initialize_trim`]).
//!
//! # Life
//! The thread lives from [`crate::engine::PoolWriter::attend`] until the pool's writer is dropped.
//! A task that fails is tried when the bell rings next, or at the next import.
//!
//! # See
//! OpenZFS `spa_async_thread` (`SPA_ASYNC_RESILVER_DONE`), and the agents of `zed`.

pub(crate) mod deadman;
pub(crate) mod diagnosis;
pub(crate) mod heartbeat;
pub(crate) mod hotplug;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use device::Device;
use observe::lock::Mutex;
use ondisk::{Guid, VdevKind};

use crate::initialize_trim::InitializeTrim;
use crate::new_vdevs::claim_file;
use crate::pool_core::PoolCore;
use crate::vdev_ops::{Vdevs, error_limits};

/// Interval of the search for missing devices.
const LOOK: Duration = Duration::from_secs(5);

/// The monitor of an open pool's devices.
pub struct DeviceMonitor {
    core: Arc<PoolCore>,
    vdevs: Arc<Vdevs>,
    works: Arc<InitializeTrim>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while the tasks run.
    memory: Mutex<Memory>,
}

/// What the monitor remembers from one turn to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Devices that are unhealthy since the import: no spare steps in for them.
    pub(crate) known: HashSet<Guid>,
    /// What was found at the path of a missing device, and could not take its place.
    pub(crate) refused: HashSet<(Guid, hotplug::Thing)>,
    /// A device needs a spare, and no spare could step in.
    pub(crate) spare_is_due: bool,
}

impl DeviceMonitor {
    pub(crate) fn new(core: Arc<PoolCore>, vdevs: Arc<Vdevs>, works: Arc<InitializeTrim>) -> DeviceMonitor {
        let (stop, thread, memory) = (AtomicBool::default(), Mutex::default(), Mutex::default());
        DeviceMonitor { core, vdevs, works, stop, thread, memory }
    }

    /// Opens the devices that the pool uses without a command.
    pub(crate) fn claimer(&self) -> impl Fn(&Path) -> device::Result<(Arc<dyn Device>, VdevKind)> {
        let layer = self.core.world.layer();
        move |path| claim_file(path).map(|(device, kind)| (layer.around(device), kind))
    }

    fn run(&self) {
        // All trees share one bell. Holding a tree would keep detached devices open.
        let bell = Arc::clone(self.core.tree().bell());
        let mut wait = None;
        loop {
            let rang = bell.wait(wait);
            if self.stop.load(Relaxed) {
                return;
            }
            self.run_once(rang);
            wait = (self.is_looking() || self.memory.lock().spare_is_due).then_some(LOOK);
        }
    }

    /// Does what is due. What can't be done now stays due: the bell rings again.
    fn run_once(&self, rang: bool) {
        let mut memory = self.memory.lock();
        if self.core.txgs().check_suspended().is_err() {
            // `clear` rings the bell.
            return;
        }
        self.judge();
        self.look_for_devices(&mut memory);
        self.vdevs.grow_by_itself();
        self.works.trim_by_itself();
        let asks_again = memory.spare_is_due;
        if rang || asks_again {
            self.send_spares(&mut memory);
        }
        if self.core.replacements_end.swap(false, Relaxed) {
            // What is refused now is tried next time; a stopped pool doesn't need it.
            let _ = self.vdevs.end_replacements();
        }
    }

    /// Starts the thread, and wakes it at once: a replacement may have finished before the last
    /// export.
    pub(crate) fn start(self: &Arc<Self>, name: &str) {
        let mut thread = self.thread.lock();
        if thread.is_some() {
            return;
        }
        self.stop.store(false, Relaxed);
        error_limits::load(&self.core);
        self.memory.lock().known = self.not_well().into_iter().collect();
        let me = Arc::clone(self);
        let started = std::thread::Builder::new().name(format!("monitor {name}")).spawn(move || me.run());
        *thread = Some(started.expect("the system has room for a thread"));
        self.core.request_end_of_replacements();
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.core.tree().bell().ring();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }

    /// Whether the monitor polls every few seconds for changes that ring no bell.
    pub fn is_polling(&self) -> bool {
        self.is_looking() || self.memory.lock().spare_is_due
    }

    /// Runs the monitor's tasks now. Its thread runs them after events, and every few seconds while
    /// a device is missing.
    pub fn run_now(&self) {
        self.run_once(true);
    }
}
