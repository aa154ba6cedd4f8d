//! A thread that does what follows from a group, and must be done outside of groups.
//!
//! # Theory
//! When a resilver is over, the devices that were replaced go. That changes the pool's shape: who does it keeps all others out until it is on disk, and so
//! waits for groups, which the sync thread can't. So it leaves word here.
//!
//! # Life
//! The thread lives from when the pool is attended to until its writer is dropped. An errand that fails is done when the next one is asked for, or with the next import.
//!
//! # See
//! OpenZFS `spa_async_thread` (`SPA_ASYNC_RESILVER_DONE`).

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::{Engine, Live};
use crate::txg::TxgHandle;

/// What is to be done.
#[derive(Debug, Default)]
struct Orders {
    replacements: bool,
    stop: bool,
}

/// Errands, and who runs them.
#[derive(Debug, Default)]
pub(super) struct Errands {
    orders: Mutex<Orders>,
    ordered: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Errands {
    /// Asks for replacements to be ended that are done. Waits for nothing.
    pub(super) fn end_replacements(&self) {
        self.orders.lock().replacements = true;
        self.ordered.notify_all();
    }

    /// Ends the thread, and waits for it.
    pub(super) fn stop(&self) {
        self.orders.lock().stop = true;
        self.ordered.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("a panic ends the program");
        }
    }
}

impl Engine {
    fn run_errands(self: &Arc<Self>, txgs: &TxgHandle) {
        loop {
            {
                let mut orders = self.errands.orders.lock();
                while !orders.stop && !orders.replacements {
                    self.errands.ordered.wait(&mut orders);
                }
                if orders.stop {
                    return;
                }
                orders.replacements = false;
            }
            // What can't be done now is no worse for it.
            let _ = self.end_replacements(txgs);
        }
    }
}

impl Live {
    /// Starts the thread, and sends it at once: a replacement may have been done when the pool was let go.
    pub(super) fn start_errands(&self, name: &str) {
        let mut thread = self.engine().errands.thread.lock();
        if thread.is_some() {
            return;
        }
        self.engine().errands.orders.lock().stop = false;
        let (engine, txgs) = (Arc::clone(self.engine()), self.txgs().handle());
        let run = move || engine.run_errands(&txgs);
        let started = std::thread::Builder::new().name(format!("errands {name}")).spawn(run);
        *thread = Some(started.expect("the system has room for a thread"));
        self.engine().errands.end_replacements();
    }
}
