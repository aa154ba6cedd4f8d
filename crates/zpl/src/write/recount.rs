//! Counting the space of users anew, in the background (`dmu_objset_upgrade_task_cb`).
//!
//! # Theory
//! A file system that arrived in a raw stream was not counted, nor was one of a pool before version
//! 15. It is counted from its first change on. A mount alone changes nothing, so that the next
//! increment still fits: OpenZFS counts at the mount, and then refuses the increment.
//!
//! Until the count is complete, [`FileSystem::space`] computes its answer from the files, and
//! quotas are not enforced. An unmount ends the count, and the first change after the next mount
//! begins it again.
//!
//! [`FileSystem::space`]: crate::FileSystem::space

use super::Writer;
use super::data::ATTR_BYTES;
use crate::Result;
use dmu::{Objset, Tx};
use dsl::Need;
use observe::lock::{Condvar, Mutex};
use ondisk::objset::{ACCOUNTING_FEATURES, ObjsetFlags};
use ondisk::{DmuType, ObjNum};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use zil::TxSource;

/// Files that are visited before the walk begins anew behind them. A walk must not last, because
/// the blocks of dnodes are written meanwhile.
const STRETCH: usize = 1024;
/// How long the thread waits when writers are throttled or the pool is suspended.
const PAUSE: Duration = Duration::from_millis(20);

/// Whether a file system is counted, and the thread that counts it.
pub(super) struct Recount {
    os: Objset,
    is_checked: AtomicBool,
    counter: Mutex<Option<Counter>>,
}

impl Recount {
    pub(super) fn new(os: &Objset) -> Recount {
        Recount { os: os.clone(), is_checked: AtomicBool::new(false), counter: Mutex::default() }
    }
}

impl Writer {
    /// Begins to count the space of users if that was not done. `tx` is about to change the file
    /// system.
    pub(super) fn count_users(&self, tx: &Tx) {
        let Recount { os, is_checked, counter } = &self.recount;
        if is_checked.load(Ordering::Relaxed) || self.replaying || is_checked.swap(true, Ordering::Relaxed) {
            return;
        }
        let (flags, has) = (self.txs.accounting(), os.phys().flags.0);
        if flags.0 & !has & ObjsetFlags::USERACCOUNTING_COMPLETE == 0 {
            return;
        }
        for (flag, feature) in ACCOUNTING_FEATURES {
            if flags.0 & !has & flag != 0 {
                self.txs.begin_feature(feature);
            }
        }
        let begun = os.begin_recount(tx, flags).map_err(std::io::Error::other);
        match begun.and_then(|()| Counter::start(os.clone(), self.txs.clone())) {
            Ok(started) => *counter.lock() = Some(started),
            Err(error) => tracing::warn!(%error, "space is not counted by user until the next mount"),
        }
    }
}

/// The thread. It ends when this is dropped.
struct Counter {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    fn pause(&self) {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, PAUSE);
        }
    }
}

impl Counter {
    fn start(os: Objset, txs: Arc<dyn TxSource>) -> std::io::Result<Counter> {
        let stop = Arc::<Stop>::default();
        let until = stop.clone();
        let run = move || {
            if let Err(error) = count(&os, &*txs, &until) {
                tracing::warn!(%error, "space is not counted by user until the next mount");
            }
        };
        let thread = std::thread::Builder::new().name("count-users".to_owned()).spawn(run)?;
        Ok(Counter { stop, thread: Some(thread) })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Marks all files as changed.
///
/// # Errors
/// * A file can't be read. Then the count must not become complete.
fn count(os: &Objset, txs: &dyn TxSource, stop: &Stop) -> Result<()> {
    let mut next = ObjNum(1);
    loop {
        let mut visited = 0;
        for dn in os.objects(next) {
            let dn = dn?;
            next = ObjNum(dn.object().0 + 1);
            if matches!(dn.bonus_kind(), DmuType::ZNODE | DmuType::SA) {
                // What can't be read would stop the pool when its txg is synced.
                dn.check_owner()?;
                let Some(tx) = transaction(txs, stop)? else { return Ok(()) };
                match os.dnode(dn.object()).and_then(|dn| dn.recount(&tx)) {
                    Ok(()) | Err(dmu::Error::NoSuchObject { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            visited += 1;
            if visited == STRETCH {
                break;
            }
        }
        if visited < STRETCH {
            let Some(tx) = transaction(txs, stop)? else { return Ok(()) };
            return Ok(os.end_recount(&tx)?);
        }
    }
}

/// A transaction; `None` if the thread is to end.
fn transaction(txs: &dyn TxSource, stop: &Stop) -> Result<Option<Tx>> {
    while !stop.is_set() {
        match txs.try_tx(Need::netfree(ATTR_BYTES))? {
            Some(tx) => return Ok(Some(tx)),
            None => stop.pause(),
        }
    }
    Ok(None)
}
