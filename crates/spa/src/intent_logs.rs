//! The intent logs of open datasets.
//!
//! # Life
//! A log is in the table from [`IntentLogs::open`] until the txg has synced in which its handle was
//! dropped. Until then it holds blocks and its dataset is dirty, and so it must stay the one open
//! object set of that dataset. A log with nothing left may go sooner. The txg that it would have
//! waited for is remembered, so that the next log of its dataset waits for it.
//!
//! A log that was never written, or whose chain has ended, goes when its handle is dropped. So a
//! file system that was only read is not written when it is closed.
//!
//! # Locks
//! One mutex for the table, held for look-ups. The sync of a log may wait for its blocks, so the
//! mutex is not held then. The list of busy logs comes after it, and after the locks of a log.

use crate::pool_core::PoolCore;
use crate::pool_core::errors::ShapeError;
use crate::txg::{Stopped, TxgHandle};
use dmu::Tx;
use observe::lock::Mutex;
use ondisk::feature::Feature;
use ondisk::objset::ObjsetKind;
use ondisk::{DnodePhys, Txg, VdevId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zil::{Groups, UseSaXattrs, Zilog};

mod table;

use table::Listed;

/// The intent logs of a pool's open datasets.
pub struct IntentLogs {
    core: Arc<PoolCore>,
    /// The logs, by dataset.
    open: Listed,
    /// The txgs that contain the changes logged by closed logs.
    owed: Mutex<BTreeMap<u64, Txg>>,
    busy: Arc<Busy>,
}

/// The logs for which syncs have something to do, by dataset. A sync must not take longer because
/// thousands of logs are open that rest.
type Busy = Mutex<BTreeSet<u64>>;

/// The intent log of an open dataset. Dropping it closes the log; it must be dropped before the
/// dataset's owner is.
#[derive(Debug)]
pub struct LogHandle {
    log: Arc<Zilog>,
    logs: std::sync::Weak<IntentLogs>,
    groups: TxgGroups,
}

impl std::ops::Deref for LogHandle {
    type Target = Zilog;

    fn deref(&self) -> &Zilog {
        &self.log
    }
}

impl Drop for LogHandle {
    fn drop(&mut self) {
        let Some(logs) = self.logs.upgrade() else { return };
        let id = self.log.objset().id();
        if logs.drop_at_rest(id, &self.log) {
            return;
        }
        // This must not wait for a suspended pool.
        let ready = self.groups.txgs.check_suspended().map_err(stopped).and_then(|()| self.groups.hold());
        // All changes under the log came before this, and so are in no later txg. The next log of
        // the dataset opens only after this one is closed.
        let txg = ready.as_ref().map_or_else(|_| self.groups.txgs.open(), Tx::txg);
        logs.owed.lock().insert(id, txg);
        // A log that can't be closed is left as after a crash, and must not be used again.
        if ready.and_then(|tx| self.log.close(&tx)).is_err() {
            self.log.give_up();
            logs.open.lock().remove(id);
        }
    }
}

/// The transaction groups, for logs.
struct TxgGroups {
    txgs: TxgHandle,
    busy: Arc<Busy>,
}

impl std::fmt::Debug for TxgGroups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TxgGroups")
    }
}

fn stopped(e: Stopped) -> zil::Error {
    zil::Error::Stopped { source: Arc::new(e) }
}

impl Groups for TxgGroups {
    fn hold(&self) -> zil::Result<Tx> {
        let hold = self.txgs.hold(0).map_err(stopped)?;
        Ok(Tx::new(hold.txg(), Some(Box::new(hold))))
    }

    fn open(&self) -> Txg {
        self.txgs.open()
    }

    fn synced(&self) -> Txg {
        self.txgs.synced()
    }

    fn wait(&self, txg: Txg) -> zil::Result<()> {
        self.txgs.wait_synced(txg).map_err(stopped)
    }

    fn note_work(&self, objset: u64) {
        self.busy.lock().insert(objset);
    }
}

impl IntentLogs {
    pub(crate) fn new(core: Arc<PoolCore>) -> IntentLogs {
        IntentLogs { core, open: Listed::new(), owed: Mutex::default(), busy: Arc::default() }
    }

    fn all(&self) -> Vec<Arc<Zilog>> {
        self.open.lock().values().cloned().collect()
    }

    /// The logs for which syncs have something to do.
    fn busy(&self) -> Vec<(u64, Arc<Zilog>)> {
        let busy: Vec<u64> = self.busy.lock().iter().copied().collect();
        let open = self.open.lock();
        busy.into_iter().filter_map(|id| Some((id, Arc::clone(open.get(&id)?)))).collect()
    }

    /// Whether syncs have nothing to do for all other logs. Some may have got work since.
    fn others_rest(&self, busy: &[(u64, Arc<Zilog>)]) -> bool {
        let mut others: BTreeMap<u64, Arc<Zilog>> = BTreeMap::clone(&self.open.lock());
        busy.iter().for_each(|(id, _)| drop(others.remove(id)));
        others.iter().all(|(id, log)| log.rests() || self.busy.lock().contains(id))
    }

    /// Removes the log of a dataset, if nothing is left of it. Returns whether it did.
    fn drop_at_rest(&self, id: u64, log: &Zilog) -> bool {
        // A new log of the dataset must not be noted as busy before this one is gone.
        let mut open = self.open.lock();
        let Some(unlogged) = log.leave() else { return false };
        open.remove(id);
        self.busy.lock().remove(&id);
        if unlogged > self.core.txgs().synced() {
            let mut owed = self.owed.lock();
            let txg = owed.entry(id).or_insert(unlogged);
            *txg = unlogged.max(*txg);
        }
        true
    }

    /// Does what the txg of `tx` does to logs, before anything of it is written.
    pub(crate) fn sync(&self, tx: &Tx) -> zil::Result<()> {
        let busy = self.busy();
        debug_assert!(self.others_rest(&busy), "a log has work and did not note it");
        busy.iter().try_for_each(|(_, log)| log.sync(tx))?;
        let mut open = self.open.lock();
        for (id, _) in busy {
            if open.get(&id).is_some_and(|log| log.is_gone()) {
                open.remove(id);
                self.busy.lock().remove(&id);
            }
        }
        Ok(())
    }

    /// Forgets what was kept until the txg was on disk.
    pub(crate) fn clean(&self, synced: Txg) {
        for (id, log) in self.busy() {
            log.clean(synced, || {
                self.busy.lock().remove(&id);
            });
        }
        self.owed.lock().retain(|_, txg| *txg > synced);
    }
}

/// The feature that records of extended attributes need, if it is enabled.
fn sa_xattrs(core: &PoolCore, head: &dsl::Owned) -> Option<UseSaXattrs> {
    let feature = Feature::by_name("zilsaxattr")?;
    let enabled = core.mos.feature_refcount(feature).is_ok_and(|users| users.is_some());
    if !enabled || head.objset().kind() != ObjsetKind::Zfs {
        return None;
    }
    let (heads, object) = (core.dsl.heads().clone(), head.object());
    Some(Arc::new(move |uses| match uses {
        true => heads.begin_feature(object, feature.name),
        false => heads.end_feature(object, feature.name),
    }))
}

impl IntentLogs {
    /// Makes the logs with a block on a vdev start new chains (`spa_reset_logs`). The old blocks
    /// are freed in the txgs that contain the logged changes.
    pub(crate) fn end_chains(&self, vdev: VdevId) -> Result<(), ShapeError> {
        let txgs = self.core.txgs().clone();
        for log in self.all().iter().filter(|log| log.lies_on(vdev)) {
            let hold = txgs.hold(0)?;
            // Only a read-only object set refuses, and it has no log.
            let _ = log.begin_anew(&Tx::new(hold.txg(), Some(Box::new(hold))));
        }
        Ok(())
    }
}

impl IntentLogs {
    /// Opens the log of a dataset (`zil_open`). Its owner drops the log before the dataset.
    pub fn open(self: &Arc<Self>, head: &dsl::Owned) -> LogHandle {
        let groups = || TxgGroups { txgs: self.core.txgs().clone(), busy: Arc::clone(&self.busy) };
        let log = self.reopen(head.object()).unwrap_or_else(|| {
            // Made without the lock, as many datasets are opened at once. Only the owner of a
            // dataset opens its log, so no other one appears meanwhile.
            let log = self.new_log(head, groups());
            self.enter(head.object(), &log);
            log
        });
        LogHandle { log, logs: Arc::downgrade(self), groups: groups() }
    }

    /// The log of a dataset that was closed and has something left.
    fn reopen(&self, id: u64) -> Option<Arc<Zilog>> {
        let all = self.open.lock();
        let log = all.get(&id).filter(|log| !log.is_gone())?;
        log.reopen();
        Some(Arc::clone(log))
    }

    /// Puts the new log of a dataset into the table.
    fn enter(&self, id: u64, log: &Arc<Zilog>) {
        let mut all = self.open.lock();
        if let Some(txg) = self.owed.lock().remove(&id) {
            log.owe(txg);
        }
        all.insert(id, Arc::clone(log));
        self.busy.lock().insert(id);
    }

    fn new_log(&self, head: &dsl::Owned, groups: TxgGroups) -> Arc<Zilog> {
        let world = self.core.world.clone();
        let random = Arc::new(move || world.random());
        let log = Zilog::new(head.objset().clone(), Arc::new(groups), random, sa_xattrs(&self.core, head));
        let (heads, object) = (self.core.dsl.heads().clone(), head.object());
        let policy = Arc::new(move |kind, dnode: &DnodePhys| heads.write_policy(object, kind, dnode));
        Arc::new(log.with_early_writes(policy))
    }

    /// The counters of the open logs, by dataset object.
    pub fn stats(&self) -> Vec<(u64, zil::Stats)> {
        self.open.lock().iter().map(|(object, log)| (*object, log.stats())).collect()
    }

    /// The sum of the counters of all logs since the pool's import, also of closed ones.
    pub fn sum(&self) -> zil::Stats {
        self.open.lock().sum()
    }

    /// The same of all pools of this process, also of released ones.
    pub fn sum_of_process() -> zil::Stats {
        table::sum_of_process()
    }

    /// The counters of a dataset's log, by dataset object; `None` if no log is open.
    pub fn stats_of(&self, object: u64) -> Option<zil::Stats> {
        self.open.lock().get(&object).map(|log| log.stats())
    }

    /// Whether a dataset's log is open, or was and is not closed yet.
    pub fn is_open(&self, head: &dsl::Owned) -> bool {
        self.open.lock().contains_key(&head.object())
    }

    /// Closes all logs before the pool is released.
    pub(crate) fn close_all(&self) -> Result<(), Stopped> {
        let txgs = self.core.txgs().clone();
        for log in self.all() {
            let hold = txgs.hold(0)?;
            // Only a read-only object set refuses, and it has no log.
            let _ = log.close(&Tx::new(hold.txg(), Some(Box::new(hold))));
        }
        Ok(())
    }
}
