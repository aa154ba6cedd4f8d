//! The handle of a pool that is open for writing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use dmu::Tx;
use dsl::sync::SyncTask;
use dsl::{Dsl, Need, ReserveOutcome};
use ondisk::config::PoolState;
use ondisk::{Blkptr, Guid, Nvlist, RootedConfig, Txg, Uberblock};
use zio::{FailMode, Reason};

use crate::checkpoint::Checkpoints;
use crate::device_monitor::DeviceMonitor;
use crate::device_monitor::deadman::Deadman;
use crate::device_monitor::heartbeat::Beating;
use crate::engine::parts::Parts;
use crate::initialize_trim::InitializeTrim;
use crate::intent_logs::IntentLogs;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::ShapeError;
use crate::pool_core::state::{Command, Logged, Recorded, Synced};
use crate::scan::{ScanCommand, ScanDone, ScanRefusal, Scans};
use crate::sync::tasks::{Chain, Queued, Ticket};
use crate::txg::{Bar, Hold, Stopped, TXG_DEFER_SIZE, TXG_SIZE, Tunables, Txgs};
use crate::vdev_ops::Vdevs;

/// A pool that is open for writing.
///
/// Dropping it syncs the open txg. The pool is then as after a crash, and can be imported again.
/// [`PoolWriter::export`] releases it in order.
pub struct PoolWriter {
    /// Dropped first: threads that work on devices end before the last txg.
    _keeper: Keeper,
    txgs: Txgs,
    parts: Parts,
    /// Multihost heartbeat until the last txg has synced.
    beating: OnceLock<Beating>,
}

impl std::fmt::Debug for PoolWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolWriter({}, {:?})", self.parts.core.dsl.pool_name(), self.txgs)
    }
}

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The operation is refused; nothing has changed.
    #[error(transparent)]
    Refused(dsl::Error),
    /// The pool has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Operations that were queued ([`PoolWriter::queue_in_order`]). They run, whether it is dropped or
/// not.
#[derive(Debug, Default)]
pub struct Pending {
    txg: Txg,
    /// `None`: there are no operations.
    ticket: Option<Ticket>,
}

/// Why errors were not cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// There is no such vdev.
    #[error(transparent)]
    Vdev(#[from] vdev::VdevError),
    /// The pool can't be changed.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Another host has taken the pool meanwhile, or its activity can't be checked (`EREMOTEIO`).
    #[error("the pool may be in use by another host")]
    Active(#[from] crate::SpaError),
}

/// The reservation and the txg of one transaction. The reservation is dropped first, before the txg
/// may sync.
struct Granted {
    reservation: dsl::Reservation,
    hold: Hold,
}

/// Whether there is space for a change.
enum Room {
    /// There is space.
    For(Tx),
    /// Perhaps after a txg has synced; see [`ReserveOutcome::Again`].
    Later { full: bool },
}

impl dmu::Hold for Granted {
    fn dirtied(&self, bytes: u64) {
        self.reservation.dirtied(bytes);
        self.hold.dirtied(bytes);
    }
}

/// Stops the threads that work on devices when it is dropped.
struct Keeper {
    core: Arc<PoolCore>,
    scans: Arc<Scans>,
    works: Arc<InitializeTrim>,
    monitor: Arc<DeviceMonitor>,
    deadman: Arc<Deadman>,
}

impl Keeper {
    fn of(parts: &Parts) -> Keeper {
        let Parts { core, scans, works, monitor, deadman, .. } = parts;
        Keeper {
            core: core.clone(),
            scans: scans.clone(),
            works: works.clone(),
            monitor: monitor.clone(),
            deadman: deadman.clone(),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.scans.scan.be_quiet(true);
        self.deadman.stop();
        // No administrator will fix the devices now: a task that waits for a suspended pool gives
        // up.
        self.core.cache.zio().suspension().let_go();
        self.monitor.stop();
        self.works.stop_works();
    }
}

impl PoolWriter {
    pub(crate) fn start(name: &str, last: Txg, parts: Parts) -> PoolWriter {
        let core = &parts.core;
        parts.sync.update_space(&core.mos);
        parts.scans.load_scan();
        parts.scans.load_rebuilds(last);
        let tunables = Tunables::for_memory(core.world.memory());
        let txgs = Txgs::start(name, last, tunables, parts.sync.clone());
        core.set_txgs(txgs.handle());
        PoolWriter { _keeper: Keeper::of(&parts), txgs, parts, beating: OnceLock::new() }
    }

    /// From now on the pool waits for failing devices, because an administrator may fix them.
    pub(crate) fn attend(&self, name: &str) {
        let waker = Box::new(self.txgs.waker());
        let core = &self.parts.core;
        core.cache.zio().suspension().attend(name, PoolCore::failmode(&core.mos), waker);
        self.beating.get_or_init(|| Beating::start(name, core));
        self.keep_error_logs();
        self.parts.works.restart_works();
        self.parts.scans.resume();
        self.parts.deadman.start(name);
        self.parts.monitor.start(name);
    }

    /// Sets the tunables of transaction groups.
    pub fn set_tunables(&self, tunables: Tunables) {
        self.txgs.set_tunables(tunables);
    }

    /// Why the pool is suspended, if it is (`spa_suspended`).
    pub fn suspended(&self) -> Option<Reason> {
        self.parts.core.cache.zio().suspension().reason()
    }

    /// Why the pool will never write again, if so: a txg could not be written for a reason other
    /// than its devices.
    pub fn broken(&self) -> Option<Stopped> {
        self.txgs.stopped().filter(Stopped::is_broken)
    }

    /// Calls `tell` once the pool is [broken](PoolWriter::broken). The sync thread calls it, so it
    /// must not wait.
    pub fn on_break(&self, tell: impl Fn(&Stopped) + Send + 'static) {
        self.txgs.on_stop(move |stopped| {
            if stopped.is_broken() {
                tell(stopped);
            }
        });
    }

    /// Calls `tell` whenever the pool is suspended, with the reason and the devices that had no
    /// space. The thread that failed calls it, so it must not wait.
    pub fn on_suspend(&self, tell: impl Fn(Reason, Vec<String>) + Send + Sync + 'static) {
        let core = Arc::downgrade(&self.parts.core);
        let witness = move |reason| {
            let full = core.upgrade().map(|core| crate::vdev_ops::reopen::without_room(&core.tree()));
            tell(reason, full.unwrap_or_default());
        };
        self.parts.core.cache.zio().suspension().on_suspend(Box::new(witness));
    }

    /// What the pool does if its devices fail (`spa_get_failmode`).
    pub fn failmode(&self) -> FailMode {
        self.parts.core.cache.zio().suspension().mode()
    }

    /// Reopens missing devices ([`Vdevs::reopen`]), clears the errors of a vdev or of all, and
    /// resumes a suspended pool (`zfs_ioc_clear`).
    ///
    /// A suspended pool with `multihost=on` is watched first: another host may have taken it.
    ///
    /// # Errors
    /// * [`ClearError::Vdev`]: there is no such vdev.
    /// * [`ClearError::Shape`]: the vdev tree cannot be changed.
    /// * [`ClearError::Active`]: another host may have taken the pool.
    pub fn clear(&self, guid: Option<Guid>) -> Result<(), ClearError> {
        let Parts { core, vdevs, works, .. } = &self.parts;
        vdevs.clear_faults(guid)?;
        vdevs.open_again(guid, true)?;
        let zio = core.cache.zio();
        if zio.suspension().reason().is_some()
            && let Some(last) = core.heart.last()
        {
            let tree = zio.tree();
            let config = self.config();
            let root = config.root();
            tree.clear(None)?;
            crate::import::uberblock::check_still_ours(&tree, root, &last)?;
        }
        let given_up = zio.tree().given_up();
        zio.tree().clear(guid)?;
        given_up.iter().for_each(|device| zio.doubt(*device));
        core.allocator.retry();
        zio.suspension().clear();
        // An unchanged device is not healthy just because its errors are cleared.
        given_up.iter().try_for_each(|device| vdevs.close_lost(Some(*device)))?;
        works.restart_works();
        let config = self.config();
        let within = guid.and_then(|guid| config.root().find(guid));
        vdevs.unspare(&|leaf| guid.is_none() || within.is_some_and(|vdev| vdev.find(leaf.guid).is_some()));
        // A device that became available during the suspension has missed txgs, and rang no bell. A
        // pool that stops meanwhile doesn't need this.
        let _ = vdevs.heal();
        core.request_end_of_replacements();
        Ok(())
    }

    /// The datasets.
    pub fn dsl(&self) -> &Dsl {
        &self.parts.core.dsl
    }

    /// The transaction groups.
    pub fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    /// The config as of the last txg (`spa_config`).
    pub fn config(&self) -> Arc<RootedConfig> {
        self.parts.core.synced.read().config.clone()
    }

    /// The uberblock of the last txg (`spa_ubsync`).
    pub fn uberblock(&self) -> Uberblock {
        self.parts.core.synced.read().uberblock.clone()
    }

    /// The pool as of the last txg.
    pub(crate) fn synced(&self) -> Synced {
        self.parts.core.synced.read().clone()
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The operations on its vdevs.
    pub fn vdevs(&self) -> &Arc<Vdevs> {
        &self.parts.vdevs
    }

    /// Scrub, resilver and sequential rebuild.
    pub fn scans(&self) -> &Arc<Scans> {
        &self.parts.scans
    }

    /// Initialize and TRIM.
    pub fn initialize_trim(&self) -> &Arc<InitializeTrim> {
        &self.parts.works
    }

    /// The checkpoint.
    pub fn checkpoints(&self) -> &Arc<Checkpoints> {
        &self.parts.checkpoints
    }

    /// The intent logs of open datasets.
    pub fn logs(&self) -> &Arc<IntentLogs> {
        &self.parts.logs
    }

    /// The monitor of its devices.
    pub fn monitor(&self) -> &Arc<DeviceMonitor> {
        &self.parts.monitor
    }

    /// The watch for operations that hang.
    pub fn deadman(&self) -> &Arc<Deadman> {
        &self.parts.deadman
    }

    /// Starts, pauses or stops a scan; the result is on disk when this returns (`dsl_scan`,
    /// `spa_scrub_pause_resume`, `spa_scan_stop`).
    ///
    /// # Errors
    /// * [`ScanRefusal::Idle`]: there is nothing to pause or stop.
    /// * [`ScanRefusal::Busy`]: a scan is running.
    /// * [`ScanRefusal::Unsupported`]: a required feature is not enabled.
    /// * [`ScanRefusal::Stopped`]: the pool has stopped.
    pub fn scan(&self, command: ScanCommand) -> Result<ScanDone, ScanRefusal> {
        let scans = &self.parts.scans;
        if let Some(done) = scans.check(command)? {
            return Ok(done);
        }
        if !matches!(command, ScanCommand::Pause | ScanCommand::Stop) && self.suspended().is_none() {
            // As in OpenZFS, devices that are available again take part. A device that can't be
            // reopened counts as absent.
            let _ = self.parts.vdevs.reopen(None);
        }
        scans.run(command)
    }

    /// Removes blocks that no dataset holds any more from the logs, with the next txg
    /// (`spa_remove_error`).
    pub(crate) fn forget_errors(&self, gone: Vec<ondisk::scan::ErrBookmark>) {
        self.parts.core.error_logs.forget(gone);
        self.txgs.handle().touch();
    }

    /// From now on a damaged block causes a txg, so that it is soon logged. So does a block with a
    /// wrong copy, so that it is soon repaired.
    fn keep_error_logs(&self) {
        let zio = self.parts.core.cache.zio();
        for list in [zio.damage(), zio.unhealed()] {
            let handle = self.txgs.handle();
            list.listen(move || handle.touch());
        }
    }

    /// Runs `read` while no operation changes datasets, so that everything it reads fits together
    /// (`dsl_pool_config_enter`).
    pub fn read<R>(&self, read: impl FnOnce(&Dsl) -> R) -> R {
        let _config = self.parts.core.datasets.read();
        read(&self.parts.core.dsl)
    }

    /// Starts a transaction for a change that dirties about `bytes` (`dmu_tx_assign`). Waits while
    /// too much is dirty.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn tx(&self, bytes: u64) -> Result<Tx, Stopped> {
        let hold = self.txgs.hold(bytes)?;
        Ok(Tx::new(hold.txg(), Some(Box::new(hold))))
    }

    /// Starts a transaction for a change to a dataset that has space for it (`dmu_tx_assign` with
    /// `dsl_dir_tempreserve_space`).
    ///
    /// Call it before the change. It waits while too much is dirty, and while changes in flight may
    /// take the last of the space.
    ///
    /// # Errors
    /// * [`TaskError::Refused`] with [`dsl::Refusal::Quota`]: a quota would be exceeded.
    /// * [`TaskError::Refused`] with [`dsl::Refusal::NoSpace`]: the pool has no space.
    /// * [`TaskError::Refused`] with another error: the dataset's space cannot be read.
    /// * [`TaskError::Stopped`]: the pool has stopped.
    pub fn tx_for(&self, head: &dsl::Owned, need: Need) -> Result<Tx, TaskError> {
        let mut full_for = 0;
        loop {
            let hold = self.txgs.enter(need.bytes, true)?.expect("who waits gets in");
            let txg = hold.txg();
            let full = match self.make_room(hold, head, need)? {
                Room::For(tx) => return Ok(tx),
                Room::Later { full } => full,
            };
            full_for += u64::from(full);
            if full_for > 2 * TXG_DEFER_SIZE {
                return Err(TaskError::Refused(self.parts.core.dsl.full(head.object())));
            }
            // Reservations of the open txg end with its sync; frees need further txgs.
            self.txgs.wait_synced(txg)?;
        }
    }

    /// Like [`PoolWriter::tx_for`], but never waits. `None` while the pool is suspended, writers
    /// are throttled, or the last of the space may be taken.
    ///
    /// # Errors
    /// * [`TaskError::Refused`] with [`dsl::Refusal::Quota`]: a quota would be exceeded.
    /// * [`TaskError::Refused`] with [`dsl::Refusal::NoSpace`]: the pool has no space.
    /// * [`TaskError::Refused`] with another error: the dataset's space cannot be read.
    /// * [`TaskError::Stopped`]: the pool has stopped.
    pub fn try_tx_for(&self, head: &dsl::Owned, need: Need) -> Result<Option<Tx>, TaskError> {
        let Some(hold) = self.txgs.enter(need.bytes, false)? else { return Ok(None) };
        Ok(match self.make_room(hold, head, need)? {
            Room::For(tx) => Some(tx),
            Room::Later { .. } => None,
        })
    }

    /// Reserves space for a change that has its txg.
    fn make_room(&self, hold: Hold, head: &dsl::Owned, need: Need) -> Result<Room, TaskError> {
        let (txg, counts) = (hold.txg(), self.txgs.counts());
        match self.parts.core.dsl.reserve(head.object(), txg, need) {
            Ok(ReserveOutcome::Granted(reservation)) => {
                counts.assigned();
                Ok(Room::For(Tx::new(txg, Some(Box::new(Granted { reservation, hold })))))
            }
            Ok(ReserveOutcome::Again { full }) => {
                counts.note(Bar::Quota);
                Ok(Room::Later { full })
            }
            Err(why) => {
                let refused = matches!(why, dsl::Error::Refused { .. });
                counts.note(if refused { Bar::Quota } else { Bar::Error });
                Err(TaskError::Refused(why))
            }
        }
    }

    /// Frees blocks of a log in the txg of a transaction that removes the last reference to them
    /// (`zio_free`).
    pub fn free_log(&self, tx: &Tx, blocks: Vec<Blkptr>) {
        self.parts.sync.log_frees[tx.txg().0 as usize % TXG_SIZE].lock().extend(blocks);
    }

    /// Runs an operation on datasets, and waits until it is on disk (`dsl_sync_task`).
    ///
    /// # Errors
    /// * [`TaskError::Refused`]: the check of the operation failed, for the reason inside.
    /// * [`TaskError::Stopped`]: the pool has stopped.
    pub fn run(&self, task: Box<dyn SyncTask + Send>) -> Result<(), TaskError> {
        let done = self.run_all(vec![task])?;
        done.into_iter().next().expect("one result for one task").map_err(TaskError::Refused)
    }

    /// Runs operations in order, and waits until they are on disk.
    ///
    /// One that is refused doesn't affect the others. All run in one txg, unless one makes a second
    /// snapshot of a dataset in that txg: it and those after it then run in the next one.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped, and none of them is on disk.
    pub fn run_all(&self, tasks: Vec<Box<dyn SyncTask + Send>>) -> Result<Vec<dsl::Result<()>>, Stopped> {
        self.run_chains(tasks.into_iter().map(|task| Chain::from([task])).collect())
    }

    /// Runs operations in order, and waits until they are on disk. When one is refused, those after
    /// it don't run.
    ///
    /// All run in one txg, unless one of them needs a txg of its own.
    ///
    /// # Errors
    /// * [`TaskError::Refused`]: an operation is refused, for the reason inside.
    /// * [`TaskError::Stopped`]: the pool has stopped.
    pub fn run_in_order(&self, tasks: Vec<Box<dyn SyncTask + Send>>) -> Result<(), TaskError> {
        self.queue_in_order(tasks).map_err(TaskError::Stopped).and_then(|queued| self.finish(queued))
    }

    /// Queues operations for the open txg, or a later one, as [`PoolWriter::run_in_order`] does.
    /// It waits for none. Changes that come later are in the same txg, or in a later one.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped, and none of them is queued.
    pub fn queue_in_order(&self, tasks: Vec<Box<dyn SyncTask + Send>>) -> Result<Pending, Stopped> {
        if tasks.is_empty() {
            return Ok(Pending::default());
        }
        let (txg, tickets) = self.queue_chains(vec![tasks.into()])?;
        Ok(Pending { txg, ticket: tickets.into_iter().next() })
    }

    /// Waits until queued operations are on disk.
    ///
    /// # Errors
    /// Those of [`PoolWriter::run_in_order`].
    pub fn finish(&self, pending: Pending) -> Result<(), TaskError> {
        let Pending { mut txg, ticket } = pending;
        let Some(ticket) = ticket else { return Ok(()) };
        self.wait_for(&mut txg, &ticket)?.map_err(TaskError::Refused)
    }

    /// Whether [`PoolWriter::finish`] would wait for no operation.
    pub fn is_finished(&self, pending: &Pending) -> bool {
        pending.ticket.as_ref().is_none_or(|ticket| ticket.is_settled() && self.txgs.synced() >= pending.txg)
    }

    fn run_chains(&self, chains: Vec<Chain>) -> Result<Vec<dsl::Result<()>>, Stopped> {
        let (mut txg, tickets) = self.queue_chains(chains)?;
        tickets.iter().map(|ticket| self.wait_for(&mut txg, ticket)).collect()
    }

    fn queue_chains(&self, chains: Vec<Chain>) -> Result<(Txg, Vec<Ticket>), Stopped> {
        self.txgs.check_suspended()?;
        let hold = self.txgs.hold(0)?;
        let txg = hold.txg();
        let batch = self.parts.sync.batches.fetch_add(1, Ordering::Relaxed);
        let mut patience = 2 * TXG_DEFER_SIZE;
        let mut queue = self.parts.sync.tasks[txg.0 as usize % TXG_SIZE].lock();
        let enter = |chain| {
            let ticket = Ticket::default();
            let patience = std::mem::take(&mut patience);
            queue.push(Queued { chain, ticket: ticket.clone(), batch, patience });
            ticket
        };
        Ok((txg, chains.into_iter().map(enter).collect()))
    }

    /// Waits for the result of an operation that was queued for a txg.
    fn wait_for(&self, txg: &mut Txg, ticket: &Ticket) -> Result<dsl::Result<()>, Stopped> {
        loop {
            self.txgs.wait_synced(*txg)?;
            match ticket.take() {
                Some(result) => return Ok(result),
                // The operation waits for freed space, which the next txg brings nearer, or for a
                // txg of its own.
                None => *txg = Txg(txg.0 + 1),
            }
        }
    }

    /// Writes a command to the pool's history with the next txg (`zpool_log_history`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn log_command(&self, line: &str, uid: u32) -> Result<(), Stopped> {
        self.log(Command { what: Logged::Line(line.to_owned()), uid })
    }

    /// Writes a request with its input to the pool's history with the next txg, under the name of
    /// OpenZFS's ioctl (`zfsdev_ioctl_common`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn log_request(&self, name: &'static str, input: Nvlist, uid: u32) -> Result<(), Stopped> {
        self.log(Command { what: Logged::Request(name, input), uid })
    }

    fn log(&self, command: Command) -> Result<(), Stopped> {
        self.txgs.check_suspended()?;
        let _hold = self.txgs.hold(0)?;
        self.parts.core.history.commands.lock().push(command);
        Ok(())
    }

    /// The history records of operations since the last call, or since the pool was opened
    /// (`spa_history_log_notify`).
    ///
    /// Users' commands are not among them. Beyond a thousand records only the newest are kept.
    pub fn take_recorded(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.parts.core.history.recorded.lock()).into()
    }

    /// Waits until all changes before the call are on disk (`zpool sync`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn sync_all(&self) -> Result<(), Stopped> {
        self.txgs.sync_all()
    }

    /// Like [`PoolWriter::sync_all`], but does not wait while the pool is suspended.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped, or is suspended.
    pub fn sync_all_unless_suspended(&self) -> Result<(), Stopped> {
        self.txgs.wait_synced_unless_suspended(self.txgs.open())
    }

    /// Like [`PoolWriter::sync_all`], but syncs a txg even if nothing has changed (`zpool sync
    /// -f`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool has stopped.
    pub fn sync_anew(&self) -> Result<(), Stopped> {
        // Writes the config unchanged.
        self.parts.core.edit_config(|_| {});
        self.txgs.handle().touch();
        self.txgs.sync_all()
    }

    pub(crate) fn sync_first(&self, txg: Txg) -> Result<(), Stopped> {
        drop(self.txgs.hold(1)?);
        self.txgs.wait_synced(txg)
    }

    /// Exports the pool: its labels say that it is not in use, and nothing is written any more
    /// (`spa_export_common`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool stays as its last txg left it, still marked as in use.
    pub fn export(&self) -> Result<(), Stopped> {
        self.leave(PoolState::Exported)
    }

    /// Destroys the pool: its labels say so (`spa_destroy`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool stays as its last txg left it, still marked as in use.
    pub fn destroy(&self) -> Result<(), Stopped> {
        self.leave(PoolState::Destroyed)
    }

    fn leave(&self, state: PoolState) -> Result<(), Stopped> {
        self.txgs.check_suspended()?;
        let Parts { core, monitor, works, scans, .. } = &self.parts;
        monitor.stop();
        works.stop_works();
        scans.scan.be_quiet(true);
        let left = self.leave_now(state);
        if left.is_err() && self.txgs.stopped().is_none() {
            scans.scan.be_quiet(false);
            works.restart_works();
            scans.resume();
            monitor.start(core.dsl.pool_name());
        }
        left
    }

    fn leave_now(&self, state: PoolState) -> Result<(), Stopped> {
        self.parts.logs.close_all()?;
        // A pool whose devices fail now stays, until an administrator fixes them.
        self.txgs.wait_synced_unless_suspended(self.txgs.open())?;
        self.parts.sync.unsettled.hurry();
        self.parts.core.edit_config(|config| config.state = state);
        let txg = self.txgs.close()?;
        self.txgs.wait_synced(txg)?;
        if let Some(beating) = self.beating.get() {
            beating.stop();
        }
        Ok(())
    }
}
