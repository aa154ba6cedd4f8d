//! Transaction groups: changes of one group reach the disk together.
//!
//! # Theory
//! Every change belongs to a transaction group, a *txg*. It reaches the disk with all others of its
//! txg or not at all. Up to three txgs exist at a time, so writers never wait for the disk unless
//! they outrun it:
//!
//! | state | meaning |
//! |---|---|
//! | *open* | new holders join it |
//! | *quiescing* | closed, with its last holders still at work; or quiesced and waiting |
//! | *syncing* | being written |
//!
//! This module is only the mechanism: which txg a holder joins, when a txg closes, and the order of
//! waits. What the sync of a txg does is up to [`SyncTxg`]. So this module is tested without a
//! pool.
//!
//! # Life
//! The quiescer closes the open txg in three cases:
//!
//! * a caller waits for it ([`Txgs::wait_synced`]);
//! * it holds much dirty data;
//! * it is old (`zfs_txg_timeout`) and holds dirty data.
//!
//! The quiescer waits for the holders, then hands the txg to the syncer when that has finished the
//! one before. A txg without changes is not synced because of its age.
//!
//! # Throttle
//! A holder declares how many bytes it is about to dirty. Above `zfs_delay_min_dirty_percent` of
//! `zfs_dirty_data_max` each new holder is delayed, the longer the more is dirty. So writers slow
//! down to the speed of the disk instead of stopping. At the limit they wait. A txg closes early at
//! `zfs_dirty_data_sync_percent`. When a holder leaves, the bytes that it really dirtied count
//! instead, until its txg has synced.
//!
//! # Failure
//! If devices fail or hold damaged data, the pool waits instead of failing ([`zio::Suspension`]).
//! The sync thread sleeps until the devices are fixed. A thread that wants to change anything
//! sleeps too, or is refused, by the pool's `failmode`. A thread that works for a program which is
//! killed meanwhile gives up (`caller`).
//!
//! If the sync fails for another reason, the pool stops. The txg's changes are in memory only, and
//! no later txg may reach the disk before them. Waiters get [`Stopped`]; the state on disk is
//! unchanged, since the uberblock was not written.
//!
//! # Locks
//! One mutex, held for a few instructions; the sync is called without it.
//!
//! # See
//! OpenZFS `module/zfs/txg.c`, `dsl_pool.c` (`dsl_pool_need_dirty_delay`), `dmu_tx.c`
//! (`dmu_tx_delay`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use observe::lock::{Condvar, Mutex, MutexGuard};
use observe::work::{self, Job, Task, TxgReason, Wait};
use observe::{Histogram, Site};
use ondisk::Txg;
use vdev::Moved;
use zio::{Entry, Suspended, Suspension};

mod caller;
mod counts;
mod handle;
mod history;
#[cfg(test)]
mod tests;
mod totals;
mod tunables;

pub use caller::{CallerKilled, work_for};
use counts::Asker;
pub use counts::{Bar, TxCounts};
pub(crate) use handle::TxgHandle;
use history::History;
pub use history::{Closed, Group, HISTORY, Stage};
pub use pool::alloc::TXG_DEFER_SIZE;
pub use totals::Totals;
pub use tunables::{
    DELAY_MIN_DIRTY_PERCENT, DELAY_SCALE, DIRTY_DATA_MAX, DIRTY_DATA_SYNC_PERCENT, TXG_TIMEOUT, Tunables,
};

/// Txgs that must be distinguished at a time: three that exist, and the last synced one
/// (`TXG_SIZE`).
pub const TXG_SIZE: usize = 4;

/// The sync of a txg (`spa_sync`).
pub trait SyncTxg: Send + Sync + 'static {
    /// Writes everything that belongs to `txg`; on return it is durable. The only caller is the
    /// sync thread, and txgs come in order.
    ///
    /// # Errors
    /// * Any error: the cause for which the pool must stop. It is not called again.
    fn sync(&self, txg: Txg) -> Result<After, Arc<dyn std::error::Error + Send + Sync>>;

    /// The pool's suspension state. By default the pool is never suspended.
    fn suspension(&self) -> Arc<Suspension> {
        Arc::default()
    }

    /// The counter of threads that wait for a txg, or for space to make more changes. While it is
    /// not 0, deferrable work is done in small parts.
    fn waiters(&self) -> Arc<AtomicU64> {
        Arc::default()
    }

    /// The bytes that its devices have moved so far; none by default.
    fn moved(&self) -> Moved {
        Moved::default()
    }

    /// The counters of changes and their delays (kstat `dmu_tx`).
    fn counts(&self) -> Arc<TxCounts> {
        Arc::default()
    }
}

/// The work that a synced txg leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Rest,
    /// Work that continues in the next txg, which must not wait for its age.
    GoOn,
    /// Something that needs further txgs, such as frees becoming usable: the next txg closes by age
    /// even if it is empty.
    Later,
}

/// The pool takes no writes.
///
/// | source | cause |
/// |---|---|
/// | none | the pool was closed |
/// | [`Suspended`] | it is suspended, and its `failmode` or the call does not wait |
/// | [`CallerKilled`] | it is suspended, and the calling program is being killed |
/// | another error | the sync of a txg failed with it |
#[derive(Debug, Clone, thiserror::Error)]
#[error("the pool has stopped writing")]
pub struct Stopped {
    /// The cause; `None` if the pool was closed.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Stopped {
    /// Whether the pool is suspended, and why.
    pub fn suspended(&self) -> Option<Suspended> {
        self.source.as_ref()?.downcast_ref().copied()
    }

    /// Whether a txg failed for a reason other than its devices.
    pub fn is_broken(&self) -> bool {
        self.source.is_some() && self.suspended().is_none()
    }
}

#[derive(Default)]
struct Slot {
    holders: u64,
    dirty: u64,
    /// A change holds or held it.
    changed: bool,
    opened: Option<Instant>,
}

struct State {
    open: Txg,
    /// Closed, but not handed to the syncer yet.
    quiescing: Option<Txg>,
    quiesced: Option<Txg>,
    syncing: Option<Txg>,
    synced: Txg,
    /// Txgs up to this one must be synced even if they are empty and young.
    wanted: Txg,
    /// Why the last of these must be.
    why: Closed,
    slots: [Slot; TXG_SIZE],
    dirty: u64,
    closing: bool,
    /// No txg after this one opens for holders.
    last: Option<Txg>,
    stopped: Option<Stopped>,
    tunables: Tunables,
    history: History,
}

impl State {
    fn slot(&mut self, txg: Txg) -> &mut Slot {
        &mut self.slots[txg.0 as usize % TXG_SIZE]
    }

    /// Has txgs up to this one close and sync, for this reason if no other came first.
    fn want(&mut self, txg: Txg, why: Closed) {
        if txg > self.wanted {
            (self.wanted, self.why) = (txg, why);
        }
    }

    /// Adds a holder to the open txg. True if it is the first that changes something.
    fn admit(&mut self, bytes: u64) -> bool {
        self.dirty += bytes;
        let slot = self.slot(self.open);
        slot.holders += 1;
        slot.dirty += bytes;
        let first = !slot.changed;
        if first {
            slot.changed = true;
            slot.opened = Some(Instant::now());
        }
        first
    }
}

/// The lock's site in the lock statistics.
static STATE: Site = Site::new("txg state");

/// Called with the cause when no txg is written any more.
type Witness = Box<dyn Fn(&Stopped) + Send>;

struct Shared {
    state: observe::Mutex<State>,
    /// Signals a change for the two threads.
    work: Condvar,
    /// Signals a change for callers: a txg synced, dirty data shrank, the pool stopped.
    done: Condvar,
    suspension: Arc<Suspension>,
    /// See [`Txgs::on_stop`].
    witness: Mutex<Option<Witness>>,
    /// See [`SyncTxg::waiters`].
    waiters: Arc<AtomicU64>,
    /// See [`SyncTxg::counts`].
    counts: Arc<TxCounts>,
    /// See [`Txgs::delays`].
    delays: Histogram,
}

/// The transaction groups of one pool, with their two threads. Dropping it syncs what is open and
/// stops the threads.
pub struct Txgs {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Txgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = self.shared.state.lock();
        write!(f, "Txgs(open {}, synced {})", s.open.0, s.synced.0)
    }
}

/// Keeps a txg from being synced until it is dropped (`txg_handle_t`).
pub struct Hold {
    shared: Arc<Shared>,
    txg: Txg,
    /// The bytes that the holder declared; they count until it is dropped.
    bytes: u64,
    /// The bytes that it really dirtied; they count from then on.
    dirtied: AtomicU64,
}

impl Hold {
    /// The txg.
    pub fn txg(&self) -> Txg {
        self.txg
    }
}

impl dmu::Hold for Hold {
    fn dirtied(&self, bytes: u64) {
        self.dirtied.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut s = shared.state.lock();
        let dirtied = self.dirtied.load(Relaxed);
        s.dirty = s.dirty - self.bytes + dirtied;
        let most = s.tunables.full();
        let slot = s.slot(self.txg);
        slot.dirty = slot.dirty - self.bytes + dirtied;
        slot.holders -= 1;
        let full = slot.dirty >= most;
        let last = slot.holders == 0;
        // No thread waits for the last holder of a txg that is still open.
        if full || last && s.quiescing == Some(self.txg) {
            shared.work.notify_all();
        }
        if dirtied < self.bytes {
            shared.done.notify_all();
        }
    }
}

impl Txgs {
    /// Starts the two threads, with names for `pool` (`txg_sync_start`). `last` is the last synced
    /// txg; the next one opens at once.
    pub fn start(pool: &str, last: Txg, tunables: Tunables, sync: Arc<dyn SyncTxg>) -> Txgs {
        let mut history = History::default();
        history.open(Txg(last.0 + 1));
        let state = State {
            open: Txg(last.0 + 1),
            quiescing: None,
            quiesced: None,
            syncing: None,
            synced: last,
            wanted: last,
            why: Closed::Age,
            slots: Default::default(),
            dirty: 0,
            closing: false,
            last: None,
            stopped: None,
            tunables,
            history,
        };
        let shared = Arc::new(Shared {
            state: observe::Mutex::of(&STATE, state),
            work: Condvar::new(),
            done: Condvar::new(),
            suspension: sync.suspension(),
            witness: Mutex::default(),
            waiters: sync.waiters(),
            counts: sync.counts(),
            delays: Histogram::new(),
        });
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let builder = std::thread::Builder::new().name(format!("{name}/{pool}"));
            builder.spawn(body).expect("a process that imports a pool can start a thread")
        };
        let (a, b) = (shared.clone(), shared.clone());
        let threads = vec![
            thread("txg_quiesce", Box::new(move || a.quiesce_loop())),
            thread("txg_sync", Box::new(move || b.sync_loop(&*sync))),
        ];
        Txgs { shared, threads }
    }

    /// Sets the tunables.
    pub fn set_tunables(&self, tunables: Tunables) {
        self.shared.state.lock().tunables = tunables;
        // A waiting thread may have waited for this.
        self.shared.work.notify_all();
        self.shared.done.notify_all();
    }

    /// Joins the open txg for a change that dirties about `bytes` (`dmu_tx_assign`).
    ///
    /// Waits while too much is dirty, and while the txg before still has holders. So a thread that
    /// holds a txg must not call this again.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool takes no writes; its source names the cause.
    pub fn hold(&self, bytes: u64) -> Result<Hold, Stopped> {
        self.shared.hold(bytes)
    }

    /// The same for a caller that also needs space, and counts the success itself
    /// ([`Txgs::counts`]).
    ///
    /// Without `patience` it never waits: `None` while the pool is suspended or writers are
    /// throttled.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool takes no writes; its source names the cause.
    pub(crate) fn enter(&self, bytes: u64, patience: bool) -> Result<Option<Hold>, Stopped> {
        self.shared.enter(bytes, patience)
    }

    /// The counters of changes and their delays (kstat `dmu_tx`).
    pub(crate) fn counts(&self) -> &TxCounts {
        &self.shared.counts
    }

    /// Waits until `txg` is on disk (`txg_wait_synced`). Opens the txgs up to it if necessary.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool takes no writes; its source names the cause. The txg will not be on
    ///   disk, except perhaps with [`CallerKilled`].
    pub fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.shared.wait_synced(txg)
    }

    /// The same for a caller that must not wait until failing devices are fixed.
    ///
    /// # Errors
    /// * [`Stopped`] with [`Suspended`] as its source: the pool is suspended; the txg may still
    ///   reach the disk later.
    /// * [`Stopped`] with another source: the pool takes no writes, for that cause.
    pub(crate) fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.shared.wait(txg, || self.check_suspended())
    }

    /// A handle of the txgs that does not keep their threads running.
    pub(crate) fn handle(&self) -> TxgHandle {
        TxgHandle(self.shared.clone())
    }

    /// Waits until all changes before the call are on disk (`txg_wait_synced(dp, 0)`).
    ///
    /// # Errors
    /// * [`Stopped`]: the pool takes no writes; its source names the cause.
    pub fn sync_all(&self) -> Result<(), Stopped> {
        let open = self.open();
        self.wait_synced(open)
    }

    /// Makes the open txg the last one that takes holders, and gives its number.
    ///
    /// # Errors
    /// * [`Stopped`]: the pool takes no writes, or this was called before.
    pub fn close(&self) -> Result<Txg, Stopped> {
        let txg = self.hold(0)?.txg();
        let mut s = self.shared.state.lock();
        // The txg may have been closed meanwhile: then the next one is the last.
        let last = s.open.max(txg);
        if s.last.is_some() {
            return Err(Stopped { source: None });
        }
        s.last = Some(last);
        if last > txg {
            s.slot(last).changed = true;
        }
        Ok(last)
    }

    /// A function that wakes all waiting threads, to check the pool's suspension again.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let Some(shared) = shared.upgrade() else { return };
            // A thread that checked before and is about to sleep is asleep once the lock is
            // available.
            drop(shared.state.lock());
            shared.done.notify_all();
        }
    }

    /// From now on a txg that devices don't take is abandoned, as no administrator will fix them:
    /// the pool is left as after a crash.
    pub fn abandon(&self) {
        self.shared.suspension.let_go();
    }

    /// Refuses operations that must not begin while the pool is suspended, whatever its `failmode`
    /// (`POOL_CHECK_SUSPENDED`).
    ///
    /// # Errors
    /// * [`Stopped`] with [`Suspended`] as its source: the pool is suspended.
    pub(crate) fn check_suspended(&self) -> Result<(), Stopped> {
        self.handle().check_suspended()
    }

    /// Sets the function to call when a txg can't be written. The sync thread calls it with the
    /// state locked: it must not wait, nor use a txg.
    pub(crate) fn on_stop(&self, witness: impl Fn(&Stopped) + Send + 'static) {
        *self.shared.witness.lock() = Some(Box::new(witness));
    }

    /// The open txg.
    pub fn open(&self) -> Txg {
        self.shared.state.lock().open
    }

    /// The last txg on disk (`spa_last_synced_txg`).
    pub fn synced(&self) -> Txg {
        self.shared.state.lock().synced
    }

    /// Why no txg is written any more, if so.
    pub fn stopped(&self) -> Option<Stopped> {
        self.shared.state.lock().stopped.clone()
    }

    /// The newest txgs, oldest first, as many as [`HISTORY`] says.
    pub fn groups(&self) -> Vec<Group> {
        self.last_groups(usize::MAX)
    }

    /// The newest of these, at most so many.
    pub fn last_groups(&self, most: usize) -> Vec<Group> {
        self.shared.state.lock().history.groups(most)
    }

    /// Dirty bytes (`dp_dirty_total`).
    pub fn dirty(&self) -> u64 {
        self.shared.state.lock().dirty
    }
}

impl Drop for Txgs {
    fn drop(&mut self) {
        {
            let mut s = self.shared.state.lock();
            s.closing = true;
            if s.slots.iter().any(|slot| slot.changed) {
                let open = s.open;
                s.want(open, Closed::Export);
            }
            self.shared.work.notify_all();
        }
        self.abandon();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of the transaction groups has panicked");
            }
        }
    }
}

impl Shared {
    fn hold(self: &Arc<Self>, bytes: u64) -> Result<Hold, Stopped> {
        let hold = self.enter(bytes, true)?.expect("who waits gets in");
        self.counts.assigned();
        Ok(hold)
    }

    /// Waits a moment for a change, unless the program that this thread works for is being killed.
    fn wait_unless_killed<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, Stopped> {
        self.done.wait_for(&mut state, caller::LOOK);
        drop(state);
        if caller::is_killed() {
            return Err(Stopped { source: Some(Arc::new(CallerKilled)) });
        }
        Ok(self.state.lock())
    }

    /// See [`Txgs::enter`].
    fn enter(self: &Arc<Self>, bytes: u64, patient: bool) -> Result<Option<Hold>, Stopped> {
        let shared = self;
        let mut asker = Asker::new(&shared.counts);
        let mut s = shared.state.lock();
        let mut delayed = false;
        loop {
            if let Some(stopped) = &s.stopped {
                return Err(stopped.clone());
            }
            if s.last.is_some_and(|last| s.open > last) {
                return Err(Stopped { source: None });
            }
            let entry = shared.suspension.entry();
            if !matches!(entry, Entry::Free) {
                asker.meets(Bar::Suspended);
            }
            match entry {
                Entry::Free => {}
                Entry::Refused(why) => return Err(Stopped { source: Some(Arc::new(why)) }),
                Entry::Wait if !patient => return Ok(None),
                Entry::Wait => {
                    let _waiting = work::wait(Wait::Suspended, 0);
                    match caller::is_known() {
                        true => s = shared.wait_unless_killed(s)?,
                        false => shared.done.wait(&mut s),
                    }
                    continue;
                }
            }
            // Objects must not be changed in an older txg than their last change. So no thread
            // enters the next txg before the last holder of the one before has left.
            if s.quiescing.is_some() {
                asker.meets(Bar::Group);
                let _waiting = work::wait_txg(TxgReason::Closing);
                shared.done.wait(&mut s);
                continue;
            }
            // One holder is always admitted, or a request beyond the limit would wait for ever.
            if s.dirty > 0 && s.dirty.saturating_add(bytes) > s.tunables.dirty_max {
                asker.meets(Bar::DirtyDelay);
                asker.meets(Bar::DirtyOverMax);
                if !patient {
                    return Ok(None);
                }
                let open = s.open;
                s.want(open, Closed::Full);
                shared.work.notify_all();
                shared.throttle(&mut s, None);
                continue;
            }
            let pause = s.tunables.delay(s.dirty).filter(|_| !delayed && bytes > 0);
            let Some(pause) = pause else { break };
            asker.meets(Bar::DirtyDelay);
            if !patient {
                return Ok(None);
            }
            delayed = true;
            shared.throttle(&mut s, Some(pause));
        }
        let txg = s.open;
        if s.admit(bytes) {
            shared.work.notify_all();
        }
        drop(s);
        if let Some(delayed) = asker.delayed() {
            shared.delays.record(u64::try_from(delayed.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(Some(Hold { shared: shared.clone(), txg, bytes, dirtied: AtomicU64::new(0) }))
    }

    /// Waits because so much is dirty: for this time at most, or until something changes.
    fn throttle(&self, state: &mut MutexGuard<'_, State>, most: Option<Duration>) {
        let _waits = Waits::begin(&self.waiters);
        let began = Instant::now();
        match most {
            Some(most) => {
                let _waiting = work::wait_txg(TxgReason::Delayed);
                self.done.wait_for(state, most);
            }
            None => {
                let _waiting = work::wait_txg(TxgReason::Full);
                self.done.wait(state);
            }
        }
        state.history.throttled(began.elapsed());
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, || Ok(()))
    }

    /// Waits until `txg` is on disk, or `goes_on` gives an error.
    fn wait(&self, txg: Txg, goes_on: impl Fn() -> Result<(), Stopped>) -> Result<(), Stopped> {
        let _waits = Waits::begin(&self.waiters);
        let _waiting = work::wait_txg(TxgReason::Synced);
        let mut s = self.state.lock();
        s.want(txg, Closed::Requested(work::current().map(|(job, _)| job)));
        self.work.notify_all();
        while s.synced < txg {
            if let Some(stopped) = &s.stopped {
                return Err(stopped.clone());
            }
            goes_on()?;
            if self.suspension.reason().is_some() && caller::is_known() {
                s = self.wait_unless_killed(s)?;
                continue;
            }
            self.done.wait(&mut s);
        }
        Ok(())
    }

    /// Why the open txg should close now; if only its age is missing, the time until then.
    fn due(&self, s: &mut State) -> Result<Closed, Option<Duration>> {
        if s.stopped.is_some() {
            return Err(None);
        }
        let full = s.tunables.full();
        let timeout = s.tunables.timeout;
        let (wanted, open) = (s.wanted, s.open);
        let slot = s.slot(open);
        if wanted >= open {
            return Ok(s.why);
        }
        if slot.dirty >= full {
            return Ok(Closed::Dirty);
        }
        match slot.opened {
            None => Err(None),
            Some(since) => match timeout.checked_sub(since.elapsed()) {
                None => Ok(Closed::Age),
                Some(left) if left.is_zero() => Ok(Closed::Age),
                Some(left) => Err(Some(left)),
            },
        }
    }

    fn quiesce_loop(&self) {
        let mut s = self.state.lock();
        loop {
            // The next txg's slot is free once the one before the syncing txg is gone.
            let room = s.quiescing.is_none() && s.quiesced.is_none();
            let why = match if room { self.due(&mut s) } else { Err(None) } {
                Ok(why) => why,
                // Behind a txg that could not be written, a quiesced one waits for ever.
                Err(_) if s.closing && (s.stopped.is_some() || room && s.wanted < s.open) => return,
                Err(Some(left)) => {
                    self.work.wait_for(&mut s, left);
                    continue;
                }
                Err(None) => {
                    self.work.wait(&mut s);
                    continue;
                }
            };
            let txg = s.open;
            s.open = Txg(txg.0 + 1);
            s.quiescing = Some(txg);
            s.history.closed(txg, why);
            s.history.open(Txg(txg.0 + 1));
            while s.slot(txg).holders > 0 {
                self.work.wait(&mut s);
            }
            s.quiescing = None;
            s.quiesced = Some(txg);
            s.history.enter(txg, Stage::Waiting);
            self.work.notify_all();
            self.done.notify_all();
        }
    }

    fn sync_loop(&self, sync: &dyn SyncTxg) {
        let mut s = self.state.lock();
        loop {
            let Some(txg) = s.quiesced.filter(|_| s.stopped.is_none()) else {
                let idle = s.quiescing.is_none() && s.wanted < s.open;
                if s.closing && (s.stopped.is_some() || idle) {
                    self.work.notify_all();
                    return;
                }
                self.work.wait(&mut s);
                continue;
            };
            s.quiesced = None;
            s.syncing = Some(txg);
            s.history.enter(txg, Stage::Syncing);
            self.work.notify_all();
            drop(s);
            let running = work::begin(Job::task(Task::Sync, txg.0));
            let before = sync.moved();
            // A panic of the sync is a broken invariant: no thread may wait for the txg then.
            let guard = StopOnPanic(self);
            let result = sync.sync(txg);
            std::mem::forget(guard);
            let moved = sync.moved().since(&before);
            let spent = work::current().map(|(_, spent)| spent).unwrap_or_default();
            drop(running);
            s = self.state.lock();
            s.syncing = None;
            match result {
                Ok(after) => {
                    s.synced = txg;
                    match after {
                        After::GoOn if !s.closing => {
                            let open = s.open;
                            s.want(open, Closed::GoOn);
                        }
                        After::Later => {
                            let open = s.open;
                            s.slot(open).opened.get_or_insert_with(Instant::now);
                        }
                        After::GoOn | After::Rest => {}
                    }
                }
                Err(source) => {
                    let stopped = Stopped { source: Some(source) };
                    if let Some(witness) = self.witness.lock().as_ref() {
                        witness(&stopped);
                    }
                    s.stopped = Some(stopped);
                }
            }
            let slot = std::mem::take(s.slot(txg));
            s.dirty -= slot.dirty;
            if s.stopped.is_none() {
                s.history.committed(txg, slot.dirty, moved, spent);
            }
            self.work.notify_all();
            self.done.notify_all();
        }
    }
}

/// Counts a waiting thread while it exists.
struct Waits<'a>(&'a AtomicU64);

impl<'a> Waits<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Relaxed);
        Waits(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stopped = Some(Stopped { source: None });
        self.0.done.notify_all();
        self.0.work.notify_all();
    }
}
