//! The contents of a transaction group: what the sync thread writes, pass by pass.
//!
//! [`PoolSync`] runs the passes. Then [`labels`] makes the result the
//! pool's state. The other modules write a part each:
//!
//! | module | what it writes |
//! |---|---|
//! | [`pool_metadata`] | config, vdevs, history |
//! | [`dtl`] | dirty time logs |
//! | [`dedup_and_clones`] | the dedup tables and the block reference table |
//! | [`tasks`] | operations on datasets that wait for their txg |
//! | [`write_policy`] | how the MOS's blocks are stored |
//!
//! See `crate::engine` for the theory of the passes.

pub(crate) mod dedup_and_clones;
pub(crate) mod dtl;
pub(crate) mod labels;
pub(crate) mod pool_metadata;
pub(crate) mod tasks;
mod write_policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dmu::{SyncSink, Tx};
use dsl::Delta;
use dsl::sync::{Env, Syncing};
use observe::lock::Mutex;
use observe::{Tunable, Unit};
use ondisk::feature::Feature;
use ondisk::{Blkptr, DmuType, DnodePhys, Level, ObjNum, Txg, mos};
use pool::Mos;
use pool::alloc::ClassKind;
use pool::space::PoolSpace;
use zio::{ClassHint, Suspension, WritePolicy};

use crate::checkpoint::Checkpoints;
use crate::device_monitor::deadman::Deadman;
use crate::import::unsettled::Keeper;
use crate::initialize_trim::InitializeTrim;
use crate::intent_logs::IntentLogs;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::{MAX_PASSES, SyncError};
use crate::scan::Scans;
use crate::sync::dedup_and_clones::Shared;
use crate::sync::tasks::{Queued, Ticket};
use crate::txg;
use crate::txg::{After, TXG_SIZE};
use crate::vdev_ops::Vdevs;

/// Most blocks of destroyed datasets that one txg frees (`zfs_async_block_max_blocks`), so that
/// none takes too long.
pub static FREE_BUDGET: Tunable = Tunable::new(
    "zfs_async_block_max_blocks",
    100_000,
    1..=u64::MAX,
    Unit::Count,
    "most blocks of destroyed datasets that one transaction group frees",
);
/// Most of them in the txg that destroys the first one.
const FIRST_FREES: u64 = 1000;
/// `obsolete_counts`: the list of obsolete blocks counts as one of its users.
const OBSOLETE_COUNTS: &str = "com.delphix:obsolete_counts";

/// From this pass on, frees of the MOS wait for the next txg (`zfs_sync_pass_deferred_free`).
pub(crate) const DEFERRED_FREE_PASS: u32 = 2;

/// The sync of transaction groups.
pub(crate) struct PoolSync {
    pub(crate) core: Arc<PoolCore>,
    scans: Arc<Scans>,
    works: Arc<InitializeTrim>,
    vdevs: Arc<Vdevs>,
    checkpoints: Arc<Checkpoints>,
    logs: Arc<IntentLogs>,
    deadman: Arc<Deadman>,
    pub(crate) shared: Shared,
    /// Operations by txg.
    pub(crate) tasks: [Mutex<Vec<Queued>>; TXG_SIZE],
    /// Number of batches of operations.
    pub(crate) batches: AtomicU64,
    /// Operations wait for the next txg and the space that it frees.
    retries: AtomicBool,
    /// Destroyed datasets are not all freed yet.
    to_free: AtomicBool,
    /// The list of blocks to free in the next txg (`spa_deferred_bpobj`).
    deferred: ObjNum,
    /// Blocks that claimed logs reference from the next txg on.
    pub(crate) claimed: Mutex<Vec<Blkptr>>,
    /// Log blocks to free, by txg.
    pub(crate) log_frees: [Mutex<Vec<Blkptr>>; TXG_SIZE],
    /// The list of datasets that an import must look at.
    pub(crate) unsettled: Keeper,
}

impl PoolSync {
    /// The sync of a pool's txgs. `deferred` is its list of blocks to free in the next txg.
    ///
    /// # Errors
    /// * [`pool::Error`]: the tables of shared blocks cannot be read.
    #[allow(clippy::too_many_arguments, reason = "one caller, and each argument has another type")]
    pub(crate) fn new(
        core: Arc<PoolCore>,
        scans: Arc<Scans>,
        works: Arc<InitializeTrim>,
        vdevs: Arc<Vdevs>,
        checkpoints: Arc<Checkpoints>,
        logs: Arc<IntentLogs>,
        deadman: Arc<Deadman>,
        deferred: ObjNum,
    ) -> pool::Result<PoolSync> {
        let shared = Shared::open(&core)?;
        Ok(PoolSync {
            core,
            scans,
            works,
            vdevs,
            checkpoints,
            logs,
            deadman,
            shared,
            tasks: Default::default(),
            batches: AtomicU64::default(),
            retries: AtomicBool::default(),
            to_free: AtomicBool::default(),
            deferred,
            claimed: Mutex::default(),
            log_frees: Default::default(),
            unsettled: Keeper::default(),
        })
    }
}

/// The space accounting of MOS writes: `$MOS` is charged, and replaced blocks are freed after the
/// pass.
struct MosSink<'a> {
    core: &'a PoolCore,
    policy: WritePolicy,
    delta: Delta,
    dead: Vec<Blkptr>,
}

impl SyncSink for MosSink<'_> {
    fn policy(&self, kind: DmuType, _: Level, _: &DnodePhys) -> WritePolicy {
        let class = if kind == DmuType::DDT_ZAP { ClassHint::Dedup } else { self.policy.class };
        WritePolicy { class, ..self.policy }
    }

    fn dsize(&self, bp: &Blkptr) -> u64 {
        self.core.dsize(bp)
    }

    fn hole_birth(&self) -> bool {
        self.policy.hole_birth
    }

    fn born(&mut self, bp: &Blkptr) {
        self.delta += Delta::of(bp, self.core.dsize(bp));
    }

    /// The MOS has no large dnodes.
    fn large_dnode(&mut self) {}

    fn kill(&mut self, bp: &Blkptr) {
        self.delta += -Delta::of(bp, self.core.dsize(bp));
        self.dead.push(*bp);
    }
}

impl txg::SyncTxg for PoolSync {
    fn sync(&self, txg: Txg) -> Result<After, Arc<dyn std::error::Error + Send + Sync>> {
        if vdev::inject::is_over(|| self.core.tree().root_guid(), txg) {
            self.end_all(txg);
        }
        let _writing = self.deadman.writing();
        self.scans.scan_slice(txg);
        self.scans.rebuild_slice(txg);
        let tasks = std::mem::take(&mut *self.tasks[txg.0 as usize % TXG_SIZE].lock());
        let mut results = Vec::new();
        let done = self.sync_group(txg, tasks, &mut results);
        // Callers get their results only now that the txg is on disk; if it is not, they get that
        // error.
        if done.is_ok() {
            self.logs.clean(txg);
            self.scans.rebuilds.on_disk();
            self.scans.scan.on_disk();
            self.vdevs.update_cache_devices();
            for (ticket, result) in results {
                ticket.settle(result);
            }
        }
        done.map(|()| self.after()).map_err(|e| Arc::new(e) as _)
    }

    fn suspension(&self) -> Arc<Suspension> {
        self.core.cache.zio().suspension().clone()
    }

    fn waiters(&self) -> Arc<AtomicU64> {
        self.scans.scan.waiters()
    }

    fn moved(&self) -> vdev::Moved {
        self.core.tree().moved()
    }

    fn counts(&self) -> Arc<txg::TxCounts> {
        Arc::clone(txg::TxCounts::of_process())
    }
}

impl PoolSync {
    /// Ends the process: fault injection makes the pool lose its writes, and then nothing may
    /// follow.
    fn end_all(&self, txg: Txg) -> ! {
        let name = self.core.config_now().name.clone().unwrap_or_default();
        let words =
            format!("Pool '{name}' has lost writes, as was asked for, and ends before group {}.\n", txg.0);
        // The process's last words go to stderr: its log may lie on the pool.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
        std::process::abort();
    }
}

type Results = Vec<(Ticket, dsl::Result<()>)>;

impl PoolSync {
    fn sync_group(&self, txg: Txg, tasks: Vec<Queued>, results: &mut Results) -> Result<(), SyncError> {
        let tx = Tx::new(txg, None);
        let os = self.core.sync_mos.objset();
        let mut tasks = Some(tasks);
        let mut paid = Delta::default();
        let now = self.core.world.now();
        let unsettled = self.unsettled.due(&self.core.dsl, &tx, now);
        if self.core.run_early_tasks(&tx)? {
            self.scans.scan.replan();
        }
        self.begin_shared(txg)?;
        let freed = std::mem::take(&mut *self.log_frees[txg.0 as usize % TXG_SIZE].lock());
        freed.iter().try_for_each(|bp| self.core.free(txg, bp))?;
        for pass in 1..=MAX_PASSES {
            self.datasets(&tx, pass, paid, tasks.take().unwrap_or_default(), results)?;
            self.sync_shared(&tx)?;
            if pass == 1 {
                if self.core.run_pool_tasks(&tx)? {
                    self.scans.scan.replan();
                }
                self.works.sync_works(&tx)?;
                let scanning = self.scans.scan.is_scanning();
                self.scans.sync_scan(&tx)?;
                let (damage, mos) = (self.core.cache.zio().damage(), self.core.check_dsl.mos());
                self.core.error_logs.sync(&tx, damage, mos, scanning);
                self.checkpoints.sync(&tx)?;
            }
            let renamed = self.write_dtls(&tx, pass)?;
            if pass == 1 || renamed {
                self.write_config(&tx)?;
            }
            if pass == 1 {
                if !os.is_dirty(txg) && !self.core.allocator.is_dirty(txg) {
                    // Nothing has changed: the last uberblock is still complete. But freed space
                    // has waited a txg longer.
                    self.core.allocator.sync_done(txg, &self.core.sync_mos);
                    return Ok(());
                }
                self.free_deferred(&tx)?;
                self.note_obsolete(&tx)?;
                if let Some(words) = &unsettled {
                    let written = self.unsettled.write(&self.core.sync_mos, &tx, words, now);
                    written.map_err(|source| SyncError::Metadata { txg, source })?;
                }
            }
            self.core
                .allocator
                .sync(&tx, &self.core.sync_mos, pass)
                .map_err(|source| SyncError::Metadata { txg, source })?;
            let features = self.mos_features().map_err(|source| SyncError::Metadata { txg, source })?;
            let policy = self.mos_policy(features);
            let mut sink = MosSink { core: &self.core, policy, delta: Delta::default(), dead: Vec::new() };
            let root = os.sync(&tx, pass, &mut sink, &self.core.cache.zio().workers());
            let root = root.map_err(|source| SyncError::Mos { txg, source })?;
            paid = sink.delta;
            self.bury(&tx, pass, &sink.dead)?;
            if !os.is_dirty(txg) && !self.core.allocator.is_dirty(txg) && self.write_held(&tx, pass)? {
                self.commit(txg, &root)?;
                self.core.allocator.sync_done(txg, &self.core.sync_mos);
                self.shared_synced();
                return Ok(());
            }
        }
        Err(SyncError::Endless { txg })
    }

    /// Writes the txg's deferred metadata writes. False if a device has missed some; another pass
    /// must record that in this txg.
    fn write_held(&self, tx: &Tx, pass: u32) -> Result<bool, SyncError> {
        let txg = tx.txg();
        self.core.cache.zio().write_held().map_err(|source| SyncError::Write { txg, source })?;
        if self.write_dtls(tx, pass)? {
            self.write_config(tx)?;
        }
        Ok(!self.core.sync_mos.objset().is_dirty(txg))
    }

    /// Writes the changed datasets, and in the first pass runs the operations.
    fn datasets(
        &self,
        tx: &Tx,
        pass: u32,
        paid: Delta,
        tasks: Vec<Queued>,
        results: &mut Results,
    ) -> Result<(), SyncError> {
        let txg = tx.txg();
        let fail = |source| SyncError::Datasets { txg, source };
        let mut random = || self.core.world.random();
        let dsize = |bp: &Blkptr| self.core.dsize(bp);
        let env = Env { now: self.core.world.now(), random: &mut random, dsize: &dsize };
        let log_blocks = |os: &dmu::Objset| self.log_blocks(os, txg);
        let mut s = Syncing::new(&self.core.sync_dsl, tx, env)
            .with_checks(&self.core.check_dsl)
            .with_logs(&log_blocks);
        s.mos_diduse(paid).map_err(fail)?;
        if pass == 1 {
            self.logs.sync(tx).map_err(|source| SyncError::Log { txg, source })?;
        }
        // Writing blocks may have to wait for devices; status queries must not wait for that too.
        s.sync_heads(pass).map_err(fail)?;
        let mut config = self.core.datasets.write();
        let owed = pass == 1 && s.has_to_free().map_err(fail)?;
        let has_tasks = !tasks.is_empty();
        if has_tasks {
            self.scans.scan.replan();
        }
        let mut again: Vec<Queued> = Vec::new();
        for mut queued in tasks {
            if again.last().is_some_and(|before| before.batch == queued.batch) {
                again.push(queued);
                continue;
            }
            let result = queued.run(|task| s.run(task)).map_err(fail)?;
            match queued.again(&result, self.core.dsl.space().waiting) {
                Ok(queued) => again.push(queued),
                Err(ticket) => results.push((ticket, result)),
            }
        }
        if has_tasks {
            // What the operations changed is written in this pass, not in one more. Readers that
            // come meanwhile see whole operations.
            s.flush().map_err(fail)?;
            drop(config);
            s.sync_heads(pass + 1).map_err(fail)?;
            config = self.core.datasets.write();
        }
        if pass == 1 {
            self.retries.store(!again.is_empty(), Ordering::Relaxed);
            // Before those that came later.
            self.tasks[(txg.0 + 1) as usize % TXG_SIZE].lock().splice(..0, again);
        }
        let mut to_free = false;
        if pass == 1 && s.has_to_free().map_err(fail)? {
            // The callers of the operations wait for this txg.
            let most = if owed { u64::MAX } else { FIRST_FREES };
            let freed = s.free_destroyed(FREE_BUDGET.get().clamp(1, most)).map_err(fail)?;
            to_free = freed > 0 && s.has_to_free().map_err(fail)?;
        }
        if pass == 1 {
            self.to_free.store(to_free, Ordering::Relaxed);
        }
        let events = s.finish().map_err(fail)?;
        let logged = self.core.log_events(tx, &events);
        drop(config);
        logged
    }

    /// The blocks that a log references, when it is destroyed with its dataset: it will not be
    /// replayed.
    fn log_blocks(&self, os: &dmu::Objset, txg: Txg) -> dsl::Result<Vec<Blkptr>> {
        let Ok(Some(log)) = zil::Log::open(os, txg.0, 0) else { return Ok(Vec::new()) };
        Ok(log.references())
    }

    /// The work left after a txg; updates the pool's space first.
    fn after(&self) -> After {
        self.update_space(&self.core.sync_mos);
        let scans = self.scans.is_scanning_now() || self.scans.is_rebuilding_now();
        let retries = self.retries.load(Ordering::Relaxed);
        match retries || self.to_free.load(Ordering::Relaxed) || self.checkpoints.is_going() || scans {
            true => After::GoOn,
            false if self.core.allocator.is_waiting() => After::Later,
            false => After::Rest,
        }
    }

    /// Passes the pool's space to the datasets (`spa_update_dspace`).
    pub(crate) fn update_space(&self, mos: &Mos) {
        let totals = self.core.allocator.totals();
        let room = totals.rdspace();
        let deferred = mos.bpobj(self.deferred).map_or(0, |list| list.bytes);
        self.core.dsl.set_space(PoolSpace {
            rdspace: room,
            dspace: room.saturating_add(self.shared_saved()),
            embedded_log: totals.of(ClassKind::EmbeddedLog).dspace,
            checkpoint: self.core.allocator.checkpoint_space(),
            deferred,
            waiting: totals.of(ClassKind::Normal).deferred,
        });
    }

    /// Frees blocks of the MOS in the first pass. Later frees would change space maps again and
    /// again, so they go to the list for the next txg.
    fn bury(&self, tx: &Tx, pass: u32, dead: &[Blkptr]) -> Result<(), SyncError> {
        let txg = tx.txg();
        if pass < DEFERRED_FREE_PASS {
            return dead.iter().try_for_each(|bp| self.core.free(txg, bp));
        }
        let dsize = |bp: &Blkptr| self.core.dsize(bp);
        let list = self.core.sync_mos.bpobj_append(tx, self.deferred, dead, false, &dsize);
        list.map_err(|source| SyncError::Metadata { txg, source })
    }

    /// Frees what the last txg deferred (`spa_sync_deferred_frees`).
    fn free_deferred(&self, tx: &Tx) -> Result<(), SyncError> {
        let txg = tx.txg();
        let mut list = Vec::new();
        let dsize = |bp: &Blkptr| self.core.dsize(bp);
        let mut each = |bp: &Blkptr, _| {
            list.push(*bp);
            Ok(())
        };
        self.core
            .sync_mos
            .bpobj_take(tx, self.deferred, u64::MAX, &dsize, &mut each)
            .map_err(|source| SyncError::Metadata { txg, source })?;
        list.iter().try_for_each(|bp| self.core.free(txg, bp))
    }

    /// Records blocks of removed devices whose last references destroyed snapshots held
    /// (`dsl_scan_obsolete_block_cb`).
    fn note_obsolete(&self, tx: &Tx) -> Result<(), SyncError> {
        let txg = tx.txg();
        let metadata = |source| SyncError::Metadata { txg, source };
        let Some(list) = self.core.sync_mos.dir(mos::OBSOLETE_BPOBJ).map_err(metadata)? else {
            return Ok(());
        };
        let dsize = |bp: &Blkptr| self.core.dsize(bp);
        let mut each = |bp: &Blkptr, _| {
            let copies = bp.stored().into_iter().flat_map(|s| s.copies());
            copies.take(1).for_each(|dva| self.core.allocator.mark_obsolete(dva, txg));
            Ok(())
        };
        let (_, done) = self
            .core
            .sync_mos
            .bpobj_take(tx, list, FREE_BUDGET.get().max(1), &dsize, &mut each)
            .map_err(metadata)?;
        if done {
            self.core.sync_mos.unlink(tx, mos::OBSOLETE_BPOBJ).map_err(metadata)?;
            self.core.sync_mos.destroy_bpobj(tx, list).map_err(metadata)?;
            let feature = Feature::by_guid(OBSOLETE_COUNTS).expect("it is in the table");
            self.core.sync_mos.feature_decr(tx, feature).map_err(metadata)?;
        }
        Ok(())
    }
}
