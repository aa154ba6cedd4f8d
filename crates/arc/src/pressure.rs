//! Reserving memory: threads that need memory wait for the eviction (`arc_wait_for_eviction`).
//!
//! # Theory
//! Memory is reserved before a block is entered, and never more than there is. So the limit is
//! never passed. If it is set lower than what is held, no thread reserves more until enough is
//! evicted. The owner sets the limit (`store::limit`).
//!
//! Half-way from a low mark to the limit, the evict thread is woken. It evicts down to the low
//! mark. The bytes between the marks (`zfs_arc_overflow_shift`) are what other threads may reserve
//! meanwhile without waiting.
//!
//! A thread that finds no free memory waits until there is some, or until two rounds of eviction
//! have ended. Then one of these began after the wait, and freed too little, so the thread
//! continues without.
//!
//! # Locks
//! The mutex is taken when the marks are passed, never while memory is free.

use observe::work::{self, Wait};

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

/// The reservations of a store; see the module.
pub(crate) struct Pressure {
    size: AtomicU64,
    max: AtomicU64,
    low: AtomicU64,
    /// The evict thread was woken, and has not begun.
    told: AtomicBool,
    state: Mutex<State>,
    /// There is something to evict.
    work: Condvar,
    /// Memory was freed, or a round has ended.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Rounds that have ended.
    rounds: u64,
    /// A round is under way.
    running: bool,
    waiters: usize,
    closing: bool,
}

/// The outcome of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Reserved without waiting.
    Yes,
    /// Reserved after waiting.
    Waited,
    /// Not reserved.
    No,
}

impl Pressure {
    pub(crate) fn new(max: u64, low: u64) -> Self {
        Self {
            size: AtomicU64::new(0),
            max: AtomicU64::new(max),
            low: AtomicU64::new(low),
            told: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Bytes that are reserved.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// Bytes that may be reserved.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::SeqCst)
    }

    /// Bytes down to which the eviction goes.
    pub(crate) fn low(&self) -> u64 {
        self.low.load(Ordering::SeqCst)
    }

    /// Changes the limit. The next round evicts what is above it.
    pub(crate) fn set(&self, max: u64, low: u64) {
        self.max.store(max, Ordering::SeqCst);
        self.low.store(low, Ordering::SeqCst);
    }

    /// Bytes from which the evict thread is woken: half-way, so that it is not woken for each
    /// block.
    fn wake_mark(&self) -> u64 {
        let low = self.low();
        low + self.max().saturating_sub(low) / 2
    }

    /// Reserves memory if it is free.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let max = self.max();
        let more = |size: u64| size.checked_add(bytes).filter(|size| *size <= max);
        let took = self.size.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        took.is_ok()
    }

    /// Reserves memory that is free without urgency: half of the bytes between the marks stay for
    /// threads that must have memory. `wake` is that of [`Pressure::take`].
    pub(crate) fn take_idle(&self, bytes: u64, wake: impl Fn() -> bool) -> bool {
        if !self.is_roomy(bytes) {
            return false;
        }
        self.take_if_free(bytes, wake)
    }

    /// Whether so many more bytes are free before memory is needed for threads that must have it.
    pub(crate) fn is_roomy(&self, bytes: u64) -> bool {
        let mark = self.max() - (self.max().saturating_sub(self.wake_mark())) / 2;
        self.size().saturating_add(bytes) <= mark
    }

    fn take_if_free(&self, bytes: u64, wake: impl Fn() -> bool) -> bool {
        let took = self.try_take(bytes);
        if took && self.size() > self.wake_mark() && !self.told.swap(true, Ordering::SeqCst) {
            wake();
            self.tell();
        }
        took
    }

    /// Reserves memory, and waits for it if needed.
    ///
    /// `wake` is called, without a lock, when the evict thread is needed and has not been woken. It
    /// starts that thread, and returns whether there is one. If there is none, `wake` has evicted
    /// itself.
    pub(crate) fn take(&self, bytes: u64, wake: impl Fn() -> bool) -> Reserved {
        if bytes > self.max() {
            return Reserved::No;
        }
        if self.take_if_free(bytes, &wake) {
            return Reserved::Yes;
        }
        if !wake() {
            return if self.try_take(bytes) { Reserved::Waited } else { Reserved::No };
        }
        let mut s = self.state.lock();
        let patience = s.rounds + 2;
        s.waiters += 1;
        let _waiting = work::wait(Wait::Cache, 0);
        let taken = loop {
            if self.try_take(bytes) {
                break Reserved::Waited;
            }
            if s.closing || s.rounds >= patience {
                break Reserved::No;
            }
            self.told.store(true, Ordering::SeqCst);
            self.work.notify_one();
            self.room.wait(&mut s);
        };
        s.waiters -= 1;
        taken
    }

    /// Starts a round, without waiting for it.
    pub(crate) fn call(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.tell();
    }

    fn tell(&self) {
        let _s = self.state.lock();
        self.work.notify_one();
    }

    /// Releases memory.
    pub(crate) fn give(&self, bytes: u64) {
        self.size.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Wakes the threads that wait for memory.
    pub(crate) fn hint(&self) {
        let s = self.state.lock();
        if s.waiters > 0 {
            self.room.notify_all();
        }
    }

    /// Waits until there is something to evict; returns false when the thread is to end.
    pub(crate) fn await_work(&self) -> bool {
        let mut s = self.state.lock();
        while !s.closing && !self.told.load(Ordering::SeqCst) {
            self.work.wait(&mut s);
        }
        self.told.store(false, Ordering::SeqCst);
        s.running = !s.closing;
        s.running
    }

    /// Records the end of a round.
    pub(crate) fn end_round(&self) {
        let mut s = self.state.lock();
        s.rounds += 1;
        s.running = false;
        self.room.notify_all();
    }

    /// Waits until no round is under way or about to begin. There must be an evict thread.
    #[cfg(test)]
    pub(crate) fn await_rest(&self) {
        let mut s = self.state.lock();
        while s.running || self.told.load(Ordering::SeqCst) {
            self.room.wait(&mut s);
        }
    }

    /// Waits until a round that begins from now on has ended, or there will be none. There must be
    /// an evict thread.
    pub(crate) fn await_round(&self) {
        let mut s = self.state.lock();
        let patience = s.rounds + 2;
        let _waiting = work::wait(Wait::Cache, 0);
        while !s.closing && s.rounds < patience && self.size() > self.low() {
            self.told.store(true, Ordering::SeqCst);
            self.work.notify_one();
            self.room.wait(&mut s);
        }
    }

    /// Ends the eviction for good.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_all();
        self.room.notify_all();
    }
}
