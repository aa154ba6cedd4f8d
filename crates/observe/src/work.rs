//! What threads work on, and what they wait for.
//!
//! # Theory
//! One thread does an operation from its begin to its end. A thread has a *slot*: the operation
//! that it works on, what it waits for now, and since when. Only the thread itself writes there,
//! and it takes no lock. Any thread may read all slots at any time. So a reader sees what is under
//! way while a device hangs.
//!
//! A layer that waits says so with [`wait`], and for what: a [`Wait`]. The clock is read only
//! there, where time is lost anyway. The times of an operation's waits are added up ([`Spent`]).
//! Of a wait within another, the inner one counts. So the waits never take longer than the
//! operation. The rest of its time is computing, or waiting for a processor.
//!
//! Threads that share the work of one operation form a [`Team`]. The operation's own thread waits
//! for them. That time is divided as theirs was.
//!
//! The numbers of places, nodes and devices mean nothing here. A front end registers a [`Place`],
//! which knows what its nodes are called.
//!
//! # See
//! Solaris `prstat -m` (microstates), Oracle's wait events. OpenZFS has no counterpart.

use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::event::{self, WaitDone};
use crate::op::{Frontend, Op, nanos};

named! {
    /// What a thread waits for.
    Wait {
        /// A worker of the front end.
        Queue "queue",
        /// A lock, or a range of an object.
        Lock "lock",
        /// Room in a transaction group, or the end of one.
        Txg "txg",
        /// Another thread, which writes the intent log.
        Log "log",
        /// Room in the cache.
        Cache "cache",
        /// A read of a device, also one that another thread began.
        Read "read",
        /// A write to a device.
        Write "write",
        /// A flush of a device.
        Flush "flush",
        /// A discard.
        Discard "discard",
        /// Its turn after foreground I/O.
        Pace "pace",
        /// Other threads, which compute for the operation.
        Workers "workers",
        /// A suspended pool.
        Suspended "suspended",
    }
}

/// The number of kinds of waits.
pub const WAITS: usize = Wait::ALL.len();

named! {
    /// Work for no user's operation.
    Task {
        /// Writes a transaction group.
        Sync "sync",
        /// Reads ahead.
        Prefetch "prefetch",
        /// Answers a request of a command; the job's node is the number of its method.
        Command "command",
    }
}

named! {
    /// Why a thread waits for a transaction group.
    TxgReason {
        /// It closes now, and the next one can't be entered yet.
        Closing "closing",
        /// There are too many changes that are not on disk (`dmu_tx_dirty_over_max`).
        Full "dirty data at its limit",
        /// There are many changes, so writers are slowed down (`dmu_tx_dirty_delay`).
        Delayed "dirty data slows writers",
        /// Its changes must be on disk.
        Synced "its sync",
    }
}

/// What a thread works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An operation of a user.
    Request(Frontend, Op),
    /// A task of the engine.
    Task(Task),
}

impl Kind {
    /// Not 0.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Task(task) => 1 + task as u64,
            Self::Request(frontend, op) => 1 << 16 | (frontend as u64) << 8 | op as u64,
        }
    }

    pub(crate) fn of_code(code: u64) -> Option<Self> {
        let byte = |at: u64| usize::from((code >> at) as u8);
        match code >> 16 {
            0 => Task::ALL.get((code as usize).checked_sub(1)?).map(|task| Self::Task(*task)),
            _ => Some(Self::Request(*Frontend::ALL.get(byte(8))?, *Op::ALL.get(byte(0))?)),
        }
    }
}

/// An operation or task that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    /// What it is.
    pub kind: Kind,
    /// The [`Place`] of its node; 0 for a task.
    pub place: u64,
    /// What it is about, by the place's number; the txg of a sync.
    pub node: u64,
    /// The process or thread that sent it, as this program sees it; 0: unknown.
    pub pid: u32,
    /// The user of that process.
    pub uid: u32,
    /// The number of its client ([`crate::clients::by_number`]), if it came by a connection; or 0.
    pub client: u64,
    /// When it reached the program.
    pub began: Instant,
}

impl Job {
    /// A task that begins now.
    pub fn task(task: Task, number: u64) -> Self {
        // Readers reckon from the epoch, so it must not be later than the begin.
        epoch();
        let began = Instant::now();
        Self { kind: Kind::Task(task), place: 0, node: number, pid: 0, uid: 0, client: 0, began }
    }
}

/// The longest wait of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Longest {
    /// What it was.
    pub wait: Wait,
    /// What it waited for: see [`wait`].
    pub what: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// Where the time of an operation went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Nanoseconds of waits, in the order of [`Wait::ALL`].
    pub ns: [u64; WAITS],
    /// The longest wait.
    pub longest: Option<Longest>,
}

impl Spent {
    /// Nanoseconds of this kind of waits.
    pub fn of(&self, wait: Wait) -> u64 {
        self.ns[wait as usize]
    }
}

/// Where nodes have names: a mount, or an export.
pub trait Place: Send + Sync {
    /// The dataset of a node, and the node's object in it. This waits for nothing.
    fn dataset(&self, node: u64) -> Option<(String, Option<u64>)>;

    /// The path of a node in its dataset. This may read from devices, so it may wait for long.
    fn path(&self, node: u64) -> Option<Vec<u8>>;
}

static PLACES: OnceLock<Mutex<HashMap<u64, Weak<dyn Place>>>> = OnceLock::new();
static NEXT_PLACE: AtomicU64 = AtomicU64::new(1);

/// The number of a [`Place`], until it is dropped.
#[derive(Debug)]
pub struct Registered(u64);

impl Registered {
    /// The number.
    pub fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        places().lock().remove(&self.0);
    }
}

fn places() -> &'static Mutex<HashMap<u64, Weak<dyn Place>>> {
    PLACES.get_or_init(Mutex::default)
}

/// Gives a place a number.
pub fn register(place: Weak<dyn Place>) -> Registered {
    let number = NEXT_PLACE.fetch_add(1, Relaxed);
    places().lock().insert(number, place);
    Registered(number)
}

/// The place with this number, while it exists.
pub fn place(number: u64) -> Option<Arc<dyn Place>> {
    places().lock().get(&number).and_then(Weak::upgrade)
}

/// When nanoseconds of this module begin.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Nanoseconds from the epoch until this time; at least 1.
pub(crate) fn stamp(at: Instant) -> u64 {
    nanos(at.saturating_duration_since(epoch())).saturating_add(1)
}

/// The time of a [`stamp`].
fn time_of(stamp: u64) -> Instant {
    epoch() + Duration::from_nanos(stamp.saturating_sub(1))
}

/// What other threads may read of a thread.
struct Slot {
    tid: u32,
    name: String,
    /// Odd while the job or the wait changes.
    version: AtomicU32,
    /// [`Kind::code`]; 0 without a job.
    kind: AtomicU64,
    place: AtomicU64,
    node: AtomicU64,
    /// The pid, and above it the user.
    process: AtomicU64,
    client: AtomicU64,
    began: AtomicU64,
    /// The wait's number and 1; 0 while it doesn't wait.
    wait: AtomicU64,
    what: AtomicU64,
    since: AtomicU64,
    /// Nanoseconds of all waits since the thread's first.
    waited: [AtomicU64; WAITS],
}

static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

/// A wait that has not ended.
#[derive(Debug, Clone, Copy)]
struct Now {
    wait: Wait,
    what: u64,
    since: Instant,
}

/// A thread's own part.
struct Mine {
    slot: Arc<Slot>,
    job: Cell<Option<Job>>,
    /// The innermost wait.
    wait: Cell<Option<Now>>,
    /// Whether the rest is not empty.
    has_waited: Cell<bool>,
    spent: [Cell<u64>; WAITS],
    longest: Cell<Option<Longest>>,
}

thread_local! {
    static MINE: Mine = Mine::new();
}

impl Mine {
    fn new() -> Self {
        let slot = Arc::new(Slot {
            tid: u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or_default(),
            name: std::thread::current().name().unwrap_or_default().to_owned(),
            version: AtomicU32::new(0),
            kind: AtomicU64::default(),
            place: AtomicU64::default(),
            node: AtomicU64::default(),
            process: AtomicU64::default(),
            client: AtomicU64::default(),
            began: AtomicU64::default(),
            wait: AtomicU64::default(),
            what: AtomicU64::default(),
            since: AtomicU64::default(),
            waited: [const { AtomicU64::new(0) }; WAITS],
        });
        let mut slots = SLOTS.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        drop(slots);
        let spent = [const { Cell::new(0) }; WAITS];
        let (job, wait, longest) = (Cell::new(None), Cell::new(None), Cell::new(None));
        Self { slot, job, wait, has_waited: Cell::new(false), spent, longest }
    }

    fn begin(&self, job: Job) {
        self.job.set(Some(job));
        if self.has_waited.get() {
            self.take_spent();
        }
        let slot = &*self.slot;
        slot.change(|| {
            slot.kind.store(job.kind.code(), Relaxed);
            slot.place.store(job.place, Relaxed);
            slot.node.store(job.node, Relaxed);
            slot.process.store(u64::from(job.uid) << 32 | u64::from(job.pid), Relaxed);
            slot.client.store(job.client, Relaxed);
            slot.began.store(stamp(job.began), Relaxed);
        });
    }

    fn end(&self) {
        self.job.set(None);
        // The rest of the slot still is that job's, so no reader sees a part of another.
        self.slot.kind.store(0, Relaxed);
    }

    fn add(&self, wait: Wait, what: u64, ns: u64) {
        self.has_waited.set(true);
        let spent = &self.spent[wait as usize];
        spent.set(spent.get().saturating_add(ns));
        // No other thread writes there.
        let waited = &self.slot.waited[wait as usize];
        waited.store(waited.load(Relaxed).wrapping_add(ns), Relaxed);
        if ns > self.longest.get().map_or(0, |longest| longest.ns) {
            self.longest.set(Some(Longest { wait, what, ns }));
        }
    }

    fn set_wait(&self, wait: Option<Now>) -> Option<Now> {
        let (code, what, since) =
            wait.map_or((0, 0, 0), |now| (1 + now.wait as u64, now.what, stamp(now.since)));
        let slot = &*self.slot;
        slot.change(|| {
            slot.since.store(since, Relaxed);
            slot.what.store(what, Relaxed);
            slot.wait.store(code, Relaxed);
        });
        self.wait.replace(wait)
    }

    /// Begins a wait. Returns the one around it, whose time until now is counted.
    fn enter(&self, wait: Wait, what: u64, at: Instant) -> Option<Now> {
        let outer = self.set_wait(Some(Now { wait, what, since: at }))?;
        self.add(outer.wait, outer.what, nanos(at.saturating_duration_since(outer.since)));
        Some(outer)
    }

    /// Ends the present wait, and continues the one around it. Returns what has ended, and its
    /// nanoseconds, which are not counted yet.
    fn leave(&self, outer: Option<Now>) -> Option<(Now, u64)> {
        let now = Instant::now();
        let ended = self.set_wait(outer.map(|outer| Now { since: now, ..outer }))?;
        Some((ended, nanos(now.saturating_duration_since(ended.since))))
    }

    fn take_spent(&self) -> Spent {
        let spent = self.spent();
        self.spent.iter().for_each(|spent| spent.set(0));
        self.longest.set(None);
        self.has_waited.set(false);
        spent
    }

    fn spent(&self) -> Spent {
        let mut ns = [0; WAITS];
        ns.iter_mut().zip(&self.spent).for_each(|(ns, spent)| *ns = spent.get());
        Spent { ns, longest: self.longest.get() }
    }
}

/// A job of this thread, until this is dropped.
#[derive(Debug)]
pub struct Running(PhantomData<*const ()>);

/// Begins a job on this thread, which has none.
pub fn begin(job: Job) -> Running {
    MINE.with(|mine| mine.begin(job));
    Running(PhantomData)
}

/// Begins a job that waited for this thread until now.
pub fn begin_queued(job: Job) -> Running {
    let queued = nanos(job.began.elapsed());
    MINE.with(|mine| {
        mine.begin(job);
        mine.add(Wait::Queue, 0, queued);
    });
    Running(PhantomData)
}

impl Drop for Running {
    fn drop(&mut self) {
        // A thread that ends has no job.
        let _ = MINE.try_with(Mine::end);
    }
}

/// The job of this thread, and where its time went until now.
pub fn current() -> Option<(Job, Spent)> {
    MINE.try_with(|mine| mine.job.get().map(|job| (job, mine.spent()))).ok().flatten()
}

/// The job of this thread.
pub(crate) fn job() -> Option<Job> {
    MINE.try_with(|mine| mine.job.get()).ok().flatten()
}

/// The number of this thread in the system; 0: it ends.
pub(crate) fn tid() -> u32 {
    MINE.try_with(|mine| mine.slot.tid).unwrap_or(0)
}

/// What a thread does: it waits, or computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// The number of the wait; [`WAITS`]: it computes.
    pub(crate) wait: u64,
    pub(crate) what: u64,
    /// Since when, in nanoseconds; since the job's begin if it computes.
    pub(crate) ns: u64,
    pub(crate) tid: u32,
}

/// Calls `see` for each thread that has a job, as if this thread had that job.
pub(crate) fn visit(mut see: impl FnMut(Seen)) {
    let slots: Vec<Arc<Slot>> = SLOTS.lock().iter().filter_map(Weak::upgrade).collect();
    let now = stamp(Instant::now());
    MINE.with(|mine| {
        let own = mine.job.take();
        for slot in slots.iter().filter(|slot| slot.kind.load(Relaxed) != 0) {
            let Some((kind, job, [code, what, since])) = slot.numbers() else { continue };
            let Some(job) = Slot::job(kind, job) else { continue };
            let wait = code.checked_sub(1);
            let since = if wait.is_some() { since } else { stamp(job.began) };
            mine.job.set(Some(job));
            let wait = wait.unwrap_or(WAITS as u64);
            see(Seen { wait, what, ns: now.saturating_sub(since), tid: slot.tid });
        }
        mine.job.set(own);
    });
}

/// A wait of this thread, until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    outer: Option<Now>,
    here: PhantomData<*const ()>,
}

/// Begins a wait.
///
/// `what` is what it waits for: the guid of a device, the number of a [`TxgReason`] or of a lock's
/// site ([`crate::site_name`]). 0: unknown.
pub fn wait(wait: Wait, what: u64) -> Waiting {
    wait_since(wait, what, Instant::now())
}

/// Begins a wait for this reason.
pub fn wait_txg(reason: TxgReason) -> Waiting {
    wait(Wait::Txg, reason as u64)
}

/// A wait that began at this moment, which was just now.
pub fn wait_since(wait: Wait, what: u64, at: Instant) -> Waiting {
    // The waits of a thread that ends don't count.
    let outer = MINE.try_with(|mine| mine.enter(wait, what, at)).ok().flatten();
    Waiting { outer, here: PhantomData }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let ended = MINE.try_with(|mine| {
            let (ended, ns) = mine.leave(self.outer)?;
            mine.add(ended.wait, ended.what, ns);
            Some((ended, ns))
        });
        if let Ok(Some((ended, ns))) = ended {
            event::wait_done(|| WaitDone { wait: ended.wait as u64, what: ended.what, ns });
        }
    }
}

/// Threads that work for the job of one.
#[derive(Debug, Default)]
pub struct Team {
    job: Option<Job>,
    /// Nanoseconds that the others worked and waited, and those of their waits.
    worked: AtomicU64,
    waited: [AtomicU64; WAITS],
    longest: Mutex<Option<Longest>>,
}

/// The work of a thread for a [`Team`], until this is dropped.
#[derive(Debug)]
pub struct Helping<'a> {
    team: &'a Team,
    since: Cell<Instant>,
    _running: Running,
}

impl Team {
    /// A team for this thread's job.
    pub fn new() -> Self {
        let job = MINE.try_with(|mine| mine.job.get()).ok().flatten();
        Self { job, ..Self::default() }
    }

    /// Begins work of this thread for the job. `None` if there is no job.
    pub fn help(&self) -> Option<Helping<'_>> {
        let running = begin(self.job?);
        Some(Helping { team: self, since: Cell::new(Instant::now()), _running: running })
    }

    /// Has the thread with the job wait for the others with `rest`. The time counts as that of the
    /// others did: their waits, and [`Wait::Workers`].
    pub fn wait<R>(&self, rest: impl FnOnce() -> R) -> R {
        let outer = MINE.with(|mine| mine.enter(Wait::Workers, 0, Instant::now()));
        let result = rest();
        MINE.with(|mine| {
            let took = mine.leave(outer).map_or(0, |(_, ns)| ns);
            let longest = *self.longest.lock();
            let worked = u128::from(self.worked.load(Acquire).max(1));
            let mut left = took;
            for (wait, waited) in Wait::ALL.iter().zip(&self.waited) {
                let share = u128::from(took) * u128::from(waited.load(Relaxed)) / worked;
                let share = u64::try_from(share).unwrap_or(u64::MAX).min(left);
                let what = longest.filter(|longest| longest.wait == *wait).map_or(0, |longest| longest.what);
                mine.add(*wait, what, share);
                left -= share;
            }
            mine.add(Wait::Workers, 0, left);
        });
        result
    }
}

impl Helping<'_> {
    /// Counts the time until now, before the thread with the job may continue.
    pub fn report(&self) {
        let now = Instant::now();
        let Ok(spent) = MINE.try_with(Mine::take_spent) else { return };
        for (sum, ns) in self.team.waited.iter().zip(spent.ns) {
            sum.fetch_add(ns, Relaxed);
        }
        if let Some(longest) = spent.longest {
            let mut known = self.team.longest.lock();
            if known.is_none_or(|known| known.ns < longest.ns) {
                *known = Some(longest);
            }
        }
        let worked = now.saturating_duration_since(self.since.replace(now));
        self.team.worked.fetch_add(nanos(worked), Release);
    }
}

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// A thread at one moment.
#[derive(Debug, Clone)]
pub struct ThreadState {
    /// Its number in the system.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it works on.
    pub job: Option<Job>,
    /// What it waits for, and since when: see [`wait`].
    pub wait: Option<(Wait, u64, Duration)>,
    /// Nanoseconds of all waits that have ended, in the order of [`Wait::ALL`].
    pub waited: [u64; WAITS],
}

/// A job and a wait as numbers.
type Numbers = (u64, [u64; 5], [u64; 3]);

impl Slot {
    /// Changes the job or the wait. Only the thread itself does.
    fn change(&self, stores: impl FnOnce()) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        stores();
        self.version.store(version.wrapping_add(2), Release);
    }

    /// The job and the wait of one moment.
    fn numbers(&self) -> Option<Numbers> {
        // A change takes a few nanoseconds, so another try nearly always works.
        for _ in 0..16 {
            let version = self.version.load(Acquire);
            let load = |number: &AtomicU64| number.load(Relaxed);
            let job = [&self.place, &self.node, &self.process, &self.client, &self.began].map(load);
            let wait = [&self.wait, &self.what, &self.since].map(load);
            let kind = load(&self.kind);
            fence(Acquire);
            if version.is_multiple_of(2) && version == self.version.load(Relaxed) {
                return Some((kind, job, wait));
            }
            std::hint::spin_loop();
        }
        None
    }

    /// A job from its numbers. `None`: there is none.
    fn job(kind: u64, [place, node, process, client, began]: [u64; 5]) -> Option<Job> {
        let (pid, uid, began) = (process as u32, (process >> 32) as u32, time_of(began));
        Kind::of_code(kind).map(|kind| Job { kind, place, node, pid, uid, client, began })
    }

    fn state(&self) -> ThreadState {
        let (kind, job, [code, what, since]) = self.numbers().unwrap_or_default();
        let job = Self::job(kind, job);
        let wait = usize::try_from(code).ok().and_then(|code| Wait::ALL.get(code.checked_sub(1)?));
        let wait = wait.map(|wait| (*wait, what, time_of(since).elapsed()));
        let mut waited = [0; WAITS];
        waited.iter_mut().zip(&self.waited).for_each(|(to, from)| *to = from.load(Relaxed));
        ThreadState { tid: self.tid, name: self.name.clone(), job, wait, waited }
    }
}

/// All threads that have worked on a job, or waited.
pub fn threads() -> Vec<ThreadState> {
    let slots: Vec<Arc<Slot>> = SLOTS.lock().iter().filter_map(Weak::upgrade).collect();
    slots.iter().map(|slot| slot.state()).collect()
}

#[cfg(test)]
mod tests;
