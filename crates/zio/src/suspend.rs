//! A pool that is suspended: its devices fail, and its writes wait until the pool is cleared.
//!
//! # Theory
//! The changes of a txg are in memory, and nothing is lost while the sync thread keeps trying.
//! These failures end in [`Suspension::wait`]:
//!
//! * a write that no device takes;
//! * a flush that fails;
//! * a label that too few devices take;
//! * a read that a sync needs.
//!
//! The thread sleeps with all its state until the pool is cleared, and then tries again. A read
//! that a sync needs has the flag [`crate::IoFlags::MUST_SUCCEED`]. It waits whether devices are
//! missing, fail or return wrong bytes. A read that a sync can do without has
//! [`crate::IoFlags::CAN_FAIL`] too, and waits only for missing devices.
//!
//! Only the sync of a txg waits here. A change of the pool first calls [`Suspension::entry`], which
//! decides by `failmode` whether to wait too, or to fail.
//!
//! # Life
//! A pool without an *attendant*, a service that can clear it, is never suspended: its errors go to
//! the caller at once. That is so while a pool is created, or only read. [`Suspension::attend`]
//! begins the attendance, [`Suspension::let_go`] ends it. Threads that sleep then give up.
//!
//! # Locks
//! One mutex, held for a few instructions. Nothing is called with it held.
//!
//! # See
//! OpenZFS `zio_suspend`, `zio_resume`, `zio_resume_wait`, `dmu_tx_try_assign`.

use observe::lock::{Condvar, Mutex};
use observe::work::{self, Wait};

/// What happens to a pool whose devices fail: the pool property `failmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// Writers wait until the pool is cleared (`ZIO_FAILURE_MODE_WAIT`).
    #[default]
    Wait,
    /// New writes fail; changes in memory wait (`ZIO_FAILURE_MODE_CONTINUE`).
    Continue,
    /// The process ends (`ZIO_FAILURE_MODE_PANIC`).
    Panic,
}

impl FailMode {
    /// The mode for this value of the pool property `failmode`.
    pub fn from_disk(value: u64) -> FailMode {
        match value {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }
}

/// Why a pool is suspended (`zio_suspend_reason_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its devices fail (`ZIO_SUSPEND_IOERR`).
    Io,
    /// It could not show other hosts for too long that it is in use (`ZIO_SUSPEND_MMP`).
    Mmp,
}

/// The pool is suspended, and refuses the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pool I/O is currently suspended")]
pub struct Suspended {
    /// The reason.
    pub reason: Reason,
}

/// Whether a change may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It may begin.
    Free,
    /// It may begin once the pool has been cleared.
    Wait,
    /// It is refused.
    Refused(Suspended),
}

#[derive(Debug, Default)]
struct State {
    attended: bool,
    mode: FailMode,
    reason: Option<Reason>,
    /// How often the pool was cleared. A sleeper continues when this has grown.
    clears: u64,
}

type Listener = Box<dyn Fn() + Send + Sync>;
type Witness = Box<dyn Fn(Reason) + Send + Sync>;

/// Whether a pool is suspended, and the threads that wait for it.
#[derive(Default)]
pub struct Suspension {
    name: Mutex<String>,
    state: Mutex<State>,
    changed: Condvar,
    listener: Mutex<Option<Listener>>,
    witness: Mutex<Option<Witness>>,
}

impl std::fmt::Debug for Suspension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Suspension({:?})", self.state.lock())
    }
}

impl Suspension {
    /// Begins the attendance of the pool `name`, which can be cleared from now on. `listener` is
    /// called whenever the pool is suspended or cleared, and when the attendance ends.
    pub fn attend(&self, name: &str, mode: FailMode, listener: Listener) {
        name.clone_into(&mut self.name.lock());
        *self.listener.lock() = Some(listener);
        let mut state = self.state.lock();
        (state.attended, state.mode) = (true, mode);
    }

    /// Sets `witness`, called whenever the pool is suspended, by the thread that failed. It must
    /// not wait.
    pub fn on_suspend(&self, witness: Witness) {
        *self.witness.lock() = Some(witness);
    }

    /// Sets the pool's `failmode`.
    pub fn set_mode(&self, mode: FailMode) {
        self.state.lock().mode = mode;
        self.tell();
    }

    /// The pool's `failmode`.
    pub fn mode(&self) -> FailMode {
        self.state.lock().mode
    }

    /// Why the pool is suspended; `None` if it is not.
    pub fn reason(&self) -> Option<Reason> {
        self.state.lock().reason
    }

    /// Whether the pool has an attendant that can clear it.
    pub fn is_attended(&self) -> bool {
        self.state.lock().attended
    }

    /// Whether a change may begin (`dmu_tx_try_assign`).
    pub fn entry(&self) -> Entry {
        let state = self.state.lock();
        match (state.reason, state.mode) {
            (None, _) => Entry::Free,
            (Some(reason), FailMode::Continue) => Entry::Refused(Suspended { reason }),
            (Some(_), _) => Entry::Wait,
        }
    }

    /// Suspends the pool without waiting (`zio_suspend`). For callers that have nothing to try
    /// again.
    ///
    /// With `failmode=panic` this ends the process.
    pub fn suspend(&self, reason: Reason) {
        self.enter(reason);
    }

    /// Suspends the pool; returns how often it had been cleared before.
    fn enter(&self, reason: Reason) -> u64 {
        let clears;
        {
            let mut state = self.state.lock();
            clears = state.clears;
            if !state.attended || state.reason.is_some() {
                return clears;
            }
            if state.mode == FailMode::Panic {
                let name = self.name.lock();
                // The last message goes to standard error, since the daemon's log may be on this
                // pool.
                let words = format!(
                    "Pool '{name}' has encountered an uncorrectable I/O failure and the failure mode property \
                     for this pool is set to panic.\n"
                );
                let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
                std::process::abort();
            }
            state.reason = Some(reason);
        }
        self.tell();
        if let Some(witness) = &*self.witness.lock() {
            witness(reason);
        }
        clears
    }

    /// Suspends the pool and sleeps until it is cleared (`zio_suspend`). True: try again. False:
    /// give up, since the attendance ended.
    ///
    /// With `failmode=panic` this ends the process.
    #[must_use]
    pub fn wait(&self, reason: Reason) -> bool {
        let clears = self.enter(reason);
        self.sleep(clears)
    }

    /// Sleeps while the pool is suspended (`zio_resume_wait`). False: give up.
    #[must_use]
    pub fn pass(&self) -> bool {
        let state = self.state.lock();
        let (clears, suspended) = (state.clears, state.reason.is_some());
        drop(state);
        !suspended || self.sleep(clears)
    }

    fn sleep(&self, clears: u64) -> bool {
        let mut state = self.state.lock();
        while state.attended && state.clears == clears {
            let _waiting = work::wait(Wait::Suspended, 0);
            self.changed.wait(&mut state);
        }
        state.attended
    }

    /// Clears the pool: all sleepers try again (`zio_resume`).
    pub fn clear(&self) {
        {
            let mut state = self.state.lock();
            state.reason = None;
            state.clears += 1;
        }
        self.tell();
    }

    /// Ends the attendance: all sleepers give up.
    pub fn let_go(&self) {
        self.state.lock().attended = false;
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_all();
        if let Some(listener) = &*self.listener.lock() {
            listener();
        }
    }
}

#[cfg(test)]
mod tests;
