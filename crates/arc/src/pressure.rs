//! Who wants room waits for who makes it (`arc_wait_for_eviction`).
//!
//! # Theory
//! Room is taken before a block is entered, and never more than there is: nobody passes the limit, and where it is set lower than what is held, nobody takes more until that is evicted. What the limit is, its owner
//! decides (`store::limit`). Half-way from a low mark to the limit somebody is told to make room, who
//! does so on a thread of its own, down to the low mark; what lies between the marks (`zfs_arc_overflow_shift`) is what others may take meanwhile without waiting. Who finds no room at
//! all waits until there is some, or until two rounds of making room have ended: then one began after he asked, and made too little, so that he goes without.
//!
//! # Locks
//! The mutex is taken when the marks are passed, never when there is room.

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

/// See the module.
pub(crate) struct Pressure {
    size: AtomicU64,
    max: AtomicU64,
    low: AtomicU64,
    /// Somebody was told to make room, and has not begun.
    told: AtomicBool,
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// There is room, or a round is over.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Rounds that are over.
    rounds: u64,
    waiters: usize,
    closing: bool,
}

/// Whether there was room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There is, and nobody waited.
    Yes,
    /// There is, after waiting for it.
    Waited,
    /// There is none.
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

    /// Bytes that are taken.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// Bytes that may be taken.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::SeqCst)
    }

    /// Bytes down to which room is made.
    pub(crate) fn low(&self) -> u64 {
        self.low.load(Ordering::SeqCst)
    }

    /// Changes the limit. What is above it is for the next round.
    pub(crate) fn set(&self, max: u64, low: u64) {
        self.max.store(max, Ordering::SeqCst);
        self.low.store(low, Ordering::SeqCst);
    }

    /// Bytes from which somebody is told: half-way, so that he is not told for each block.
    fn wake_mark(&self) -> u64 {
        let low = self.low();
        low + self.max().saturating_sub(low) / 2
    }

    /// Takes room if there is some.
    pub(crate) fn try_take(&self, bytes: u64) -> bool {
        let max = self.max();
        let more = |size: u64| size.checked_add(bytes).filter(|size| *size <= max);
        let took = self.size.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        took.is_ok()
    }

    /// Takes room that is free without anybody having to hurry: half of what lies between the marks is left to those who can't do without. `wake` as in [`Pressure::take`].
    pub(crate) fn take_idle(&self, bytes: u64, wake: impl Fn() -> bool) -> bool {
        if !self.is_roomy(bytes) {
            return false;
        }
        self.take_if_free(bytes, wake)
    }

    /// Whether there is room for so many bytes more before it is needed for those who can't do without.
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

    /// Takes room, waiting for it if need be. `wake` is called, without a lock, when somebody has to make room and has not been told: it starts the thread that does,
    /// and says whether there is one; without, it has made room itself.
    pub(crate) fn take(&self, bytes: u64, wake: impl Fn() -> bool) -> Taken {
        if bytes > self.max() {
            return Taken::No;
        }
        if self.take_if_free(bytes, &wake) {
            return Taken::Yes;
        }
        if !wake() {
            return if self.try_take(bytes) { Taken::Waited } else { Taken::No };
        }
        let mut s = self.state.lock();
        let patience = s.rounds + 2;
        s.waiters += 1;
        let taken = loop {
            if self.try_take(bytes) {
                break Taken::Waited;
            }
            if s.closing || s.rounds >= patience {
                break Taken::No;
            }
            self.told.store(true, Ordering::SeqCst);
            self.work.notify_one();
            self.room.wait(&mut s);
        };
        s.waiters -= 1;
        taken
    }

    /// Has a round begin, without waiting for it.
    pub(crate) fn call(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.tell();
    }

    fn tell(&self) {
        let _s = self.state.lock();
        self.work.notify_one();
    }

    /// Gives room back.
    pub(crate) fn give(&self, bytes: u64) {
        self.size.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Says to those who wait that there is room.
    pub(crate) fn hint(&self) {
        let s = self.state.lock();
        if s.waiters > 0 {
            self.room.notify_all();
        }
    }

    /// Waits until there is something to do; false when there never will be.
    pub(crate) fn await_work(&self) -> bool {
        let mut s = self.state.lock();
        while !s.closing && !self.told.load(Ordering::SeqCst) {
            self.work.wait(&mut s);
        }
        self.told.store(false, Ordering::SeqCst);
        !s.closing
    }

    /// A round is over.
    pub(crate) fn end_round(&self) {
        let mut s = self.state.lock();
        s.rounds += 1;
        self.room.notify_all();
    }

    /// Waits until a round that begins from now on is over, or there never will be one. There must be somebody who makes room.
    pub(crate) fn await_round(&self) {
        let mut s = self.state.lock();
        let patience = s.rounds + 2;
        while !s.closing && s.rounds < patience && self.size() > self.low() {
            self.told.store(true, Ordering::SeqCst);
            self.work.notify_one();
            self.room.wait(&mut s);
        }
    }

    /// Nobody makes room any more.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_all();
        self.room.notify_all();
    }
}
