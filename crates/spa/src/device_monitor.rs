//! A thread that sees to a pool's devices, and does what follows from a group and must be done outside of groups.
//!
//! # Theory
//! When a resilver is over, the devices that were replaced go. When a device has had too many errors, it is degraded or faulted ([`crate::device_monitor::diagnosis`]), and a hot spare
//! takes its place; when one is back, it is taken in again ([`crate::device_monitor::hotplug`]). All of that changes the pool's shape: who does it keeps all others out until it
//! is on disk, and so waits for groups, which neither the sync thread nor one that has just met an error can. So they leave word here: at the
//! bell of the tree ([`vdev::Bell`]).
//!
//! Devices that come back ring no bell, nor do those that grow. While one is missing it is looked for every few seconds, and so are spares asked again that could not step in, and with `autoexpand=on` so are sizes; with `autotrim=on` what was freed is discarded by and by
//! ([`crate::initialize_trim`]).
//!
//! # Life
//! The thread lives from when the pool is attended to until its writer is dropped. An errand that fails is done when the bell rings next, or with the next import.
//!
//! # See
//! OpenZFS `spa_async_thread` (`SPA_ASYNC_RESILVER_DONE`), and `zed` with its agents, which does there what is done here for devices.

pub(crate) mod blank_check;
pub(crate) mod deadman;
pub(crate) mod diagnosis;
pub(crate) mod hotplug;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use device::Device;
use ondisk::{Guid, VdevKind};
use parking_lot::Mutex;
use vdev::Tree;

use crate::create::claim_file;
use crate::engine::{Engine, PoolWriter};
use crate::txg::TxgHandle;

/// How often missing devices are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// Errands, and who runs them.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    replacements: AtomicBool,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held by whoever runs them.
    pub(crate) memory: Mutex<Memory>,
}

/// What is remembered from one errand to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Devices that were not well when the pool was imported, and since: nobody summons a spare for them.
    pub(crate) known: HashSet<Guid>,
    /// What was found at the path of a missing device, and could not take its place.
    pub(crate) refused: HashSet<(Guid, hotplug::Thing)>,
    /// A device needs a spare, and those that there are could not step in.
    pub(crate) spare_is_due: bool,
}

impl Errands {
    /// Asks for replacements to be ended that are done. Waits for nothing.
    pub(crate) fn end_replacements(&self, tree: &Tree) {
        self.replacements.store(true, Relaxed);
        tree.bell().ring();
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop(&self, tree: &Tree) {
        self.stop.store(true, Relaxed);
        tree.bell().ring();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }
}

impl Engine {
    /// How devices are opened that nobody named.
    pub(crate) fn claimer(&self) -> impl Fn(&Path) -> device::Result<(Arc<dyn Device>, VdevKind)> {
        let layer = self.world.layer();
        move |path| claim_file(path).map(|(device, kind)| (layer.around(device), kind))
    }

    fn run_errands(self: &Arc<Self>, txgs: &TxgHandle) {
        // All trees have the same; one that is held would keep devices open that have left.
        let bell = Arc::clone(self.tree().bell());
        let mut wait = None;
        loop {
            let rang = bell.wait(wait);
            if self.errands.stop.load(Relaxed) {
                return;
            }
            self.run_errand(txgs, rang);
            wait = (self.is_looking() || self.errands.memory.lock().spare_is_due).then_some(LOOK);
        }
    }

    /// Does what there is to do now. What can't be done now is no worse for it: the bell rings again.
    fn run_errand(self: &Arc<Self>, txgs: &TxgHandle, rang: bool) {
        let mut memory = self.errands.memory.lock();
        if txgs.check_suspended().is_err() {
            // Whoever clears it rings.
            return;
        }
        self.judge(txgs);
        self.look_for_devices(txgs, &mut memory);
        self.grow_by_itself(txgs);
        self.trim_by_itself();
        let asks_again = memory.spare_is_due;
        if rang || asks_again {
            self.send_spares(txgs, &mut memory);
        }
        if self.errands.replacements.swap(false, Relaxed) {
            // A refusal is of the next time; a pool that has stopped has no use for it.
            let _ = self.end_replacements(txgs);
        }
    }
}

impl PoolWriter {
    /// Starts the thread, and sends it at once: a replacement may have been done when the pool was let go.
    pub(crate) fn start_errands(&self, name: &str) {
        let engine = self.engine();
        let mut thread = engine.errands.thread.lock();
        if thread.is_some() {
            return;
        }
        engine.errands.stop.store(false, Relaxed);
        engine.load_limits();
        engine.errands.memory.lock().known = engine.not_well().into_iter().collect();
        let (engine, txgs) = (Arc::clone(engine), self.txgs().handle());
        let run = move || engine.run_errands(&txgs);
        let started = std::thread::Builder::new().name(format!("errands {name}")).spawn(run);
        *thread = Some(started.expect("the system has room for a thread"));
        self.engine().errands.end_replacements(&self.engine().tree());
    }

    /// Whether the pool's own thread looks every few seconds for what may have changed, though nothing tells it.
    pub fn looks_for_devices(&self) -> bool {
        self.engine().is_looking() || self.engine().errands.memory.lock().spare_is_due
    }

    /// Sees to the devices at once: what the pool's own thread does when something has happened, or every few seconds while a device is missing.
    pub fn see_to_devices(&self) {
        self.engine().run_errand(&self.txgs().handle(), true);
    }
}
