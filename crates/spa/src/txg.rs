//! Transaction groups: what is written together appears together.
//!
//! # Theory
//! Every change belongs to a transaction group, a *txg*, and reaches the disk with all others of its group or not at all. Up to
//! three groups are alive: one is *open* and takes new holders, one is *quiescing* (closed, its last holders still at work) or
//! quiesced and waiting, one is *syncing*. So writers never wait for the disk, unless they outrun it.
//!
//! This module is the clockwork alone: who may join which group, when a group closes, who waits for whom. What syncing a group
//! means is [`Engine`]'s affair, and so it can be tested without a pool.
//!
//! # Life
//! `open` is closed by the quiescer when somebody waits for it ([`Txgs::wait_synced`]), when it holds much dirty data, or
//! when it is old (`zfs_txg_timeout`) and holds any. The quiescer waits for its holders, then hands it to the syncer, when that
//! is done with the one before. A group that nobody changed is not synced because of its age.
//!
//! # Throttle
//! A holder says how many bytes it is about to dirty. Above `zfs_delay_min_dirty_percent` of `zfs_dirty_data_max` each new holder is
//! delayed, the longer the fuller, so that writers slow down to what the disk takes instead of stopping dead; at the limit they
//! wait. A group closes early at `zfs_dirty_data_sync_percent`. When a holder leaves, what he did make dirty counts instead, until its
//! group has synced.
//!
//! # Failure
//! What devices fail at, or have wrong, makes the pool wait, not fail ([`zio::Suspension`]): the sync thread sleeps until somebody has seen to them, and so
//! does who wants to change anything, or is refused, by the pool's `failmode`. Who works for a
//! program that is killed meanwhile gives up (`caller`).
//!
//! When syncing fails for another reason, the pool stops: the group's changes are in memory only and no later group may reach the disk before
//! them. Waiters get [`Stopped`]; nothing on disk has changed, since the uberblock was not written.
//!
//! # Locks
//! One mutex, held for a few instructions; the engine is called without it.
//!
//! # See
//! OpenZFS `module/zfs/txg.c`, `dsl_pool.c` (`dsl_pool_need_dirty_delay`), `dmu_tx.c` (`dmu_tx_delay`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use observe::Site;
use ondisk::Txg;
use parking_lot::{Condvar, Mutex};
use vdev::Moved;
use zio::{Entry, Suspended, Suspension};

mod caller;
mod counts;
mod history;
#[cfg(test)]
mod tests;
mod tunables;

pub use caller::{CallerKilled, work_for};
use counts::Asker;
pub use counts::{Bar, TxCounts};
use history::History;
pub use history::{Group, HISTORY, Stage};
pub use tunables::{
    DELAY_MIN_DIRTY_PERCENT, DELAY_SCALE, DIRTY_DATA_MAX, DIRTY_DATA_SYNC_PERCENT, TXG_TIMEOUT, Tunables,
};

/// Groups that can be told apart at a time: three alive, and the one that has just synced (`TXG_SIZE`).
pub const TXG_SIZE: usize = 4;
/// Groups that pass before a freed block may be allocated again (`TXG_DEFER_SIZE`).
pub const TXG_DEFER_SIZE: u64 = 2;

/// What a group does when it syncs (`spa_sync`).
pub trait Engine: Send + Sync + 'static {
    /// Writes everything that belongs to `txg`. On return it is durable. The only caller is the sync thread, and groups come in order.
    ///
    /// # Errors
    /// Says why the pool must stop; it is never called again.
    fn sync(&self, txg: Txg) -> Result<After, Arc<dyn std::error::Error + Send + Sync>>;

    /// Whether the pool waits for its devices; one that never does by default.
    fn suspension(&self) -> Arc<Suspension> {
        Arc::default()
    }

    /// Where it is counted how many wait for a group, or for room to change more: what can be put off is then done in small parts.
    fn waiters(&self) -> Arc<AtomicU64> {
        Arc::default()
    }

    /// What its devices have moved so far; nothing by default.
    fn moved(&self) -> Moved {
        Moved::default()
    }

    /// Where it is counted how changes get into groups.
    fn counts(&self) -> Arc<TxCounts> {
        Arc::default()
    }
}

/// What a synced group leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Rest,
    /// Work that goes on in the next group, which is not to wait for its age.
    GoOn,
    /// Something that comes with groups passing, such as freed space becoming free: the next is to close of its age even if it is empty.
    Later,
}

/// The pool takes no writes: a group could not be synced, or ([`Suspended`] as its source) it is suspended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the pool has stopped writing")]
pub struct Stopped {
    /// Why; nothing if it was closed.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Stopped {
    /// Whether the pool is suspended, and why.
    pub fn suspended(&self) -> Option<Suspended> {
        self.source.as_ref()?.downcast_ref().copied()
    }

    /// Whether a group failed for another reason than its devices.
    pub fn is_broken(&self) -> bool {
        self.source.is_some() && self.suspended().is_none()
    }
}

#[derive(Default)]
struct Slot {
    holders: u64,
    dirty: u64,
    /// Somebody holds or held it for a change.
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
    /// Groups up to this one must be synced even if they are empty and young.
    wanted: Txg,
    slots: [Slot; TXG_SIZE],
    dirty: u64,
    closing: bool,
    /// No group after this one opens for holders.
    last: Option<Txg>,
    stopped: Option<Stopped>,
    tunables: Tunables,
    history: History,
}

impl State {
    fn slot(&mut self, txg: Txg) -> &mut Slot {
        &mut self.slots[txg.0 as usize % TXG_SIZE]
    }
}

/// Where the groups' own state is waited for.
static STATE: Site = Site::new("txg state");

/// Hears why no group is written any more.
type Witness = Box<dyn Fn(&Stopped) + Send>;

struct Shared {
    state: observe::Mutex<State>,
    /// Something changed that the two threads wait for.
    work: Condvar,
    /// Something changed that users wait for: a group synced, dirty data shrank, the pool stopped.
    done: Condvar,
    suspension: Arc<Suspension>,
    /// See [`Txgs::on_stop`].
    witness: Mutex<Option<Witness>>,
    /// See [`Engine::waiters`].
    waiters: Arc<AtomicU64>,
    /// See [`Engine::counts`].
    counts: Arc<TxCounts>,
}

/// The groups of one pool, with their two threads. Dropping it syncs what is open and stops them.
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

/// Keeps a group from being synced until it is dropped (`txg_handle_t`).
pub struct Hold {
    shared: Arc<Shared>,
    txg: Txg,
    /// What he said that he would make dirty; it counts until he is done.
    bytes: u64,
    /// What he did make dirty; it counts from then on.
    dirtied: AtomicU64,
}

impl Hold {
    /// The group.
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
        // Nobody waits for the last holder of a group that is still open.
        if full || last && s.quiescing == Some(self.txg) {
            shared.work.notify_all();
        }
        if dirtied < self.bytes {
            shared.done.notify_all();
        }
    }
}

impl Txgs {
    /// Starts the clockwork: `last` is the last synced group, the next one opens at once. `pool` names the threads.
    pub fn start(pool: &str, last: Txg, tunables: Tunables, engine: Arc<dyn Engine>) -> Txgs {
        let mut history = History::default();
        history.open(Txg(last.0 + 1));
        let state = State {
            open: Txg(last.0 + 1),
            quiescing: None,
            quiesced: None,
            syncing: None,
            synced: last,
            wanted: last,
            slots: Default::default(),
            dirty: 0,
            closing: false,
            last: None,
            stopped: None,
            tunables,
            history,
        };
        let shared = Arc::new(Shared {
            state: observe::Mutex::new(&STATE, state),
            work: Condvar::new(),
            done: Condvar::new(),
            suspension: engine.suspension(),
            witness: Mutex::default(),
            waiters: engine.waiters(),
            counts: engine.counts(),
        });
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let builder = std::thread::Builder::new().name(format!("{name}/{pool}"));
            builder.spawn(body).expect("a process that imports a pool can start a thread")
        };
        let (a, b) = (shared.clone(), shared.clone());
        let threads = vec![
            thread("txg_quiesce", Box::new(move || a.quiesce_loop())),
            thread("txg_sync", Box::new(move || b.sync_loop(&*engine))),
        ];
        Txgs { shared, threads }
    }

    /// Goes by these limits from now on.
    pub fn set_tunables(&self, tunables: Tunables) {
        self.shared.state.lock().tunables = tunables;
        // Who waits may have waited for this.
        self.shared.work.notify_all();
        self.shared.done.notify_all();
    }

    /// Joins the open group for a change that dirties about `bytes`; waits while too much is dirty, and while the group before still
    /// has holders (`dmu_tx_assign`). So a thread that holds a group must not ask for another.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn hold(&self, bytes: u64) -> Result<Hold, Stopped> {
        self.shared.hold(bytes)
    }

    /// The same for who asks for room besides, and says himself whether he got that ([`Txgs::counts`]). Without `patience`, for what is not worth
    /// waiting for, it is `None` while the pool is suspended or writers are held up.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn enter(&self, bytes: u64, patience: bool) -> Result<Option<Hold>, Stopped> {
        self.shared.enter(bytes, patience)
    }

    /// Where it is counted how changes get into groups.
    pub(crate) fn counts(&self) -> &TxCounts {
        &self.shared.counts
    }

    /// Waits until `txg` is on disk (`txg_wait_synced`); what is not open yet is opened for it.
    ///
    /// # Errors
    /// [`Stopped`]; then it never will be.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.shared.wait_synced(txg)
    }

    /// The same for who must not wait for somebody to see to devices that fail.
    ///
    /// # Errors
    /// [`Stopped`], with [`Suspended`] as its source if the pool is suspended before the group is on disk: it may be later.
    pub(crate) fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.shared.wait(txg, || self.check_suspended())
    }

    /// A handle of the groups for whoever must not keep them running.
    pub(crate) fn handle(&self) -> TxgHandle {
        TxgHandle(self.shared.clone())
    }

    /// Waits until everything that was changed before the call is on disk (`zpool sync`, `txg_wait_synced(dp, 0)`).
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn sync_all(&self) -> Result<(), Stopped> {
        let open = self.open();
        self.wait_synced(open)
    }

    /// Makes the open group the last one that takes holders, and tells which it is.
    ///
    /// # Errors
    /// [`Stopped`], also if it was called before.
    pub fn close(&self) -> Result<Txg, Stopped> {
        let txg = self.hold(0)?.txg();
        let mut s = self.shared.state.lock();
        // The group may have been closed meanwhile: then the next one is the last.
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

    /// Wakes whoever waits, to look at the pool's suspension again.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let Some(shared) = shared.upgrade() else { return };
            // Whoever has looked before, and is on the way to sleep, is asleep when the lock can be had.
            drop(shared.state.lock());
            shared.done.notify_all();
        }
    }

    /// From now on a group that devices don't take is given up, and the pool is left as after a crash: nobody is going to see to them.
    pub fn abandon(&self) {
        self.shared.suspension.let_go();
    }

    /// Refuses what is better not begun while the pool is suspended, whatever its `failmode` (`POOL_CHECK_SUSPENDED`).
    ///
    /// # Errors
    /// [`Stopped`] with [`Suspended`] as its source.
    pub(crate) fn check_suspended(&self) -> Result<(), Stopped> {
        self.handle().check_suspended()
    }

    /// From now on `witness` is called when a group can't be written. The sync thread calls it,
    /// with the state locked: it must wait for nothing and use no group.
    pub(crate) fn on_stop(&self, witness: impl Fn(&Stopped) + Send + 'static) {
        *self.shared.witness.lock() = Some(Box::new(witness));
    }

    /// The open group.
    pub fn open(&self) -> Txg {
        self.shared.state.lock().open
    }

    /// The last group on disk (`spa_last_synced_txg`).
    pub fn synced(&self) -> Txg {
        self.shared.state.lock().synced
    }

    /// Why nothing is written any more, if so.
    pub fn stopped(&self) -> Option<Stopped> {
        self.shared.state.lock().stopped.clone()
    }

    /// The newest groups, the oldest first, so many as [`HISTORY`] says.
    pub fn groups(&self) -> Vec<Group> {
        self.shared.state.lock().history.groups()
    }

    /// Bytes that are dirty (`dp_dirty_total`).
    pub fn dirty(&self) -> u64 {
        self.shared.state.lock().dirty
    }
}

/// The groups, for whoever uses them without keeping them running.
#[derive(Clone)]
pub(crate) struct TxgHandle(Arc<Shared>);

impl TxgHandle {
    /// See [`Txgs::hold`].
    pub(crate) fn hold(&self, bytes: u64) -> Result<Hold, Stopped> {
        self.0.hold(bytes)
    }

    /// See [`Txgs::wait_synced`].
    pub(crate) fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.0.wait_synced(txg)
    }

    /// See [`Txgs::wait_synced_unless_suspended`].
    pub(crate) fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.0.wait(txg, || self.check_suspended())
    }

    /// See [`Txgs::open`].
    pub(crate) fn open(&self) -> Txg {
        self.0.state.lock().open
    }

    /// See [`Txgs::synced`].
    pub(crate) fn synced(&self) -> Txg {
        self.0.state.lock().synced
    }

    /// Has the open group sync when it is old, though nobody holds it: there is something that it will write. Waits for nothing.
    pub(crate) fn touch(&self) {
        let mut s = self.0.state.lock();
        let txg = s.open;
        if s.closing || s.last.is_some_and(|last| txg > last) || s.slot(txg).changed {
            return;
        }
        s.slot(txg).changed = true;
        s.slot(txg).opened = Some(Instant::now());
        self.0.work.notify_all();
    }

    /// Has the open group sync at once, even if it is empty. Waits for nothing.
    pub(crate) fn kick(&self) {
        let mut s = self.0.state.lock();
        if !s.closing && s.last.is_none() {
            s.wanted = s.wanted.max(s.open);
            self.0.work.notify_all();
        }
    }

    /// See [`Txgs::check_suspended`].
    pub(crate) fn check_suspended(&self) -> Result<(), Stopped> {
        match self.0.suspension.reason() {
            None => Ok(()),
            Some(reason) => Err(Stopped { source: Some(Arc::new(Suspended { reason })) }),
        }
    }
}

impl Drop for Txgs {
    fn drop(&mut self) {
        {
            let mut s = self.shared.state.lock();
            s.closing = true;
            if s.slots.iter().any(|slot| slot.changed) {
                s.wanted = s.wanted.max(s.open);
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

    /// As [`Txgs::enter`].
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
                Entry::Wait if caller::is_known() => {
                    shared.done.wait_for(&mut s, caller::LOOK);
                    drop(s);
                    if caller::is_killed() {
                        return Err(Stopped { source: Some(Arc::new(CallerKilled)) });
                    }
                    s = shared.state.lock();
                    continue;
                }
                Entry::Wait => {
                    shared.done.wait(&mut s);
                    continue;
                }
            }
            // Objects must not be changed in an older group than the last one was: nobody enters the next group before
            // the last holder of the one before has left.
            if s.quiescing.is_some() {
                asker.meets(Bar::Group);
                shared.done.wait(&mut s);
                continue;
            }
            // One holder is let in whatever it wants, or a request beyond the limit would wait for ever.
            if s.dirty > 0 && s.dirty.saturating_add(bytes) > s.tunables.dirty_max {
                asker.meets(Bar::DirtyDelay);
                asker.meets(Bar::DirtyOverMax);
                if !patient {
                    return Ok(None);
                }
                s.wanted = s.wanted.max(s.open);
                shared.work.notify_all();
                let _waits = Waits::begin(&shared.waiters);
                shared.done.wait(&mut s);
                continue;
            }
            let pause = s.tunables.delay(s.dirty).filter(|_| !delayed && bytes > 0);
            let Some(pause) = pause else { break };
            asker.meets(Bar::DirtyDelay);
            if !patient {
                return Ok(None);
            }
            delayed = true;
            let _waits = Waits::begin(&shared.waiters);
            shared.done.wait_for(&mut s, pause);
        }
        let txg = s.open;
        s.dirty += bytes;
        let slot = s.slot(txg);
        slot.holders += 1;
        slot.dirty += bytes;
        if !slot.changed {
            slot.changed = true;
            slot.opened = Some(Instant::now());
            shared.work.notify_all();
        }
        drop(s);
        Ok(Some(Hold { shared: shared.clone(), txg, bytes, dirtied: AtomicU64::new(0) }))
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, || Ok(()))
    }

    /// Waits until `txg` is on disk, as long as `goes_on` has nothing against it.
    fn wait(&self, txg: Txg, goes_on: impl Fn() -> Result<(), Stopped>) -> Result<(), Stopped> {
        let _waits = Waits::begin(&self.waiters);
        let mut s = self.state.lock();
        s.wanted = s.wanted.max(txg);
        self.work.notify_all();
        while s.synced < txg {
            if let Some(stopped) = &s.stopped {
                return Err(stopped.clone());
            }
            goes_on()?;
            if self.suspension.reason().is_some() && caller::is_known() {
                self.done.wait_for(&mut s, caller::LOOK);
                drop(s);
                if caller::is_killed() {
                    return Err(Stopped { source: Some(Arc::new(CallerKilled)) });
                }
                s = self.state.lock();
                continue;
            }
            self.done.wait(&mut s);
        }
        Ok(())
    }

    /// Whether the open group should close now; if only its age is missing, how long.
    fn due(&self, s: &mut State) -> Result<(), Option<Duration>> {
        if s.stopped.is_some() {
            return Err(None);
        }
        let full = s.tunables.full();
        let timeout = s.tunables.timeout;
        let (wanted, open) = (s.wanted, s.open);
        let slot = s.slot(open);
        if wanted >= open || slot.dirty >= full {
            return Ok(());
        }
        match slot.opened {
            None => Err(None),
            Some(since) => match timeout.checked_sub(since.elapsed()) {
                None => Ok(()),
                Some(left) if left.is_zero() => Ok(()),
                Some(left) => Err(Some(left)),
            },
        }
    }

    fn quiesce_loop(&self) {
        let mut s = self.state.lock();
        loop {
            // The next group's slot is free once the one before the syncing group is gone.
            let room = s.quiescing.is_none() && s.quiesced.is_none();
            match if room { self.due(&mut s) } else { Err(None) } {
                Ok(()) => {}
                Err(_) if s.closing && room && (s.stopped.is_some() || s.wanted < s.open) => return,
                Err(Some(left)) => {
                    self.work.wait_for(&mut s, left);
                    continue;
                }
                Err(None) => {
                    self.work.wait(&mut s);
                    continue;
                }
            }
            let txg = s.open;
            s.open = Txg(txg.0 + 1);
            s.quiescing = Some(txg);
            s.history.enter(txg, Stage::Quiescing);
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

    fn sync_loop(&self, engine: &dyn Engine) {
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
            let before = engine.moved();
            // A panic of the engine is a broken invariant: nobody may wait for it to end.
            let guard = StopOnPanic(self);
            let result = engine.sync(txg);
            std::mem::forget(guard);
            let moved = engine.moved().since(&before);
            s = self.state.lock();
            s.syncing = None;
            match result {
                Ok(after) => {
                    s.synced = txg;
                    match after {
                        After::GoOn if !s.closing => s.wanted = s.wanted.max(s.open),
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
                s.history.committed(txg, slot.dirty, moved);
            }
            self.work.notify_all();
            self.done.notify_all();
        }
    }
}

/// Counts one that waits, as long as it lives.
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
