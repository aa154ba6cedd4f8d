//! A pool whose devices no longer take its writes, and waits for somebody to see to them.
//!
//! # Theory
//! What a group changed is in memory, and nothing is lost as long as whoever writes it does not
//! give up. So a write that works nowhere, a flush that fails, a label that too few devices take,
//! and a read that a sync can't do without, all end in [`Suspension::wait`]: their thread sleeps,
//! with all its state, until the pool is cleared, and then tries again. Such a read has the flag
//! [`crate::IoFlags::MUST_SUCCEED`]: it waits whether devices are gone, fail or have wrong bytes.
//! What a sync can do without has [`crate::IoFlags::CAN_FAIL`] too, and waits only for devices that
//! are gone. Only the sync of a group waits here. A change of the pool asks [`Suspension::entry`]
//! first, which says by `failmode` whether to wait too, or to fail.
//!
//! # Life
//! A pool that nobody attends (one that is being made, or is only read) is never suspended: its errors go to its caller at once. [`Suspension::attend`] begins
//! the watch, [`Suspension::let_go`] ends it: whoever sleeps then gives up.
//!
//! # Locks
//! One mutex, held for a few instructions. Nothing is called with it held.
//!
//! # See
//! OpenZFS `zio_suspend`, `zio_resume`, `zio_resume_wait`, `dmu_tx_try_assign`.

use parking_lot::{Condvar, Mutex};

/// What becomes of a pool whose devices fail (`zio_failure_mode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// Whoever writes waits until the pool is cleared.
    #[default]
    Wait,
    /// New writes fail; what is in memory waits.
    Continue,
    /// The process ends.
    Panic,
}

impl FailMode {
    /// The mode that the pool property `failmode` has this value for.
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

/// The pool is suspended, and does not take what was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pool I/O is currently suspended")]
pub struct Suspended {
    /// Why.
    pub reason: Reason,
}

/// Whether a change may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Yes.
    Free,
    /// When the pool has been cleared.
    Wait,
    /// No.
    Refused(Suspended),
}

#[derive(Debug, Default)]
struct State {
    attended: bool,
    mode: FailMode,
    reason: Option<Reason>,
    /// How often it was cleared: a sleeper goes on when this has grown.
    clears: u64,
}

type Listener = Box<dyn Fn() + Send + Sync>;
type Witness = Box<dyn Fn(Reason) + Send + Sync>;

/// Whether a pool is suspended, and who waits for it.
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
    /// From now on somebody is there who can clear the pool `name`; `listener` is called whenever it is suspended, cleared or let go.
    pub fn attend(&self, name: &str, mode: FailMode, listener: Listener) {
        name.clone_into(&mut self.name.lock());
        *self.listener.lock() = Some(listener);
        let mut state = self.state.lock();
        (state.attended, state.mode) = (true, mode);
    }

    /// From now on `witness` is called whenever the pool is suspended, by the thread that failed:
    /// it must wait for nothing.
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

    /// Why the pool is suspended, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.state.lock().reason
    }

    /// Whether somebody is there who can clear the pool.
    pub fn is_attended(&self) -> bool {
        self.state.lock().attended
    }

    /// Whether a change may begin.
    pub fn entry(&self) -> Entry {
        let state = self.state.lock();
        match (state.reason, state.mode) {
            (None, _) => Entry::Free,
            (Some(reason), FailMode::Continue) => Entry::Refused(Suspended { reason }),
            (Some(_), _) => Entry::Wait,
        }
    }

    /// Suspends the pool without waiting: for who is not the one that has to try again.
    ///
    /// # Panics
    /// Ends the process when the pool's `failmode` says so.
    pub fn suspend(&self, reason: Reason) {
        self.enter(reason);
    }

    /// Suspends the pool; says how often it had been cleared before.
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
                // The daemon's last words: what it logs may lie on the pool.
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

    /// Suspends the pool and sleeps until it is cleared. True: try again. False: give up, as nobody attends the pool any more.
    #[must_use]
    pub fn wait(&self, reason: Reason) -> bool {
        let clears = self.enter(reason);
        self.sleep(clears)
    }

    /// Sleeps while the pool is suspended. False: give up.
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
            self.changed.wait(&mut state);
        }
        state.attended
    }

    /// Lets everybody try again (`zio_resume`).
    pub fn clear(&self) {
        {
            let mut state = self.state.lock();
            state.reason = None;
            state.clears += 1;
        }
        self.tell();
    }

    /// Nobody attends the pool any more: whoever waits gives up.
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
