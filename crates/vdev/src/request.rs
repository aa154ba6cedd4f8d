//! What travels with each request to a device.
//!
//! # Theory
//! A [`Request`] says three things:
//!
//! * what an operation is for ([`Priority`]);
//! * whether it yields to foreground I/O ([`Pace`]);
//! * which ranges were fetched before ([`Fetched`]).
//!
//! It is passed down to the leaf by reference. A leaf is neither read nor written without it: there
//! is no default class. Threads that work for a request get the same reference.
//!
//! # Absent
//! Flushes and discards have no request. They do not yield, and have counters of their own.
//!
//! # See
//! OpenZFS `zio_priority_t`, `io_priority` of `zio_t`.

use std::sync::Arc;

use crate::pace::Pace;
use crate::write::Fetched;

/// What an operation is for (`zio_priority_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A caller waits for this read (`ZIO_PRIORITY_SYNC_READ`).
    SyncRead,
    /// A caller waits for this write (`ZIO_PRIORITY_SYNC_WRITE`).
    SyncWrite,
    /// A read that no caller waits for, of a block that is needed (`ZIO_PRIORITY_ASYNC_READ`).
    AsyncRead,
    /// A write of a transaction group (`ZIO_PRIORITY_ASYNC_WRITE`).
    AsyncWrite,
    /// A scrub, its repairs too (`ZIO_PRIORITY_SCRUB`).
    Scrub,
    /// A resilver, its writes too; OpenZFS uses its scrub class for both.
    Resilver,
    /// A sequential rebuild, its writes too (`ZIO_PRIORITY_REBUILD`).
    Rebuild,
    /// A discard (`ZIO_PRIORITY_TRIM`).
    Trim,
    /// A write to free space that initialises a device (`ZIO_PRIORITY_INITIALIZING`).
    Initialize,
    /// A read of a block that a caller may need later; OpenZFS uses asynchronous reads.
    Prefetch,
    /// A write of the intent log; OpenZFS uses synchronous writes.
    Log,
}

/// The context of a request. See the module.
#[derive(Debug, Clone)]
pub struct Request {
    priority: Priority,
    pace: Option<Pace>,
    fetched: Option<Arc<Fetched>>,
}

impl Request {
    /// A request of the foreground: it waits for no other.
    pub const fn new(priority: Priority) -> Self {
        Self { priority, pace: None, fetched: None }
    }

    /// A request of the background: it yields to foreground I/O as `pace` says.
    pub const fn paced(priority: Priority, pace: Pace) -> Self {
        Self { priority, pace: Some(pace), fetched: None }
    }

    /// The same request, answered from `fetched` where that has all bytes of a read.
    #[must_use]
    pub fn with_fetched(&self, fetched: Arc<Fetched>) -> Self {
        Self { fetched: Some(fetched), ..self.clone() }
    }

    /// What it is for.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Whether it yields to foreground I/O.
    pub fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// The same request, which does not yield while `hurries` returns true.
    #[must_use]
    pub fn hurried_by(&self, hurries: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { pace: self.pace.as_ref().map(|pace| pace.hurried_by(hurries)), ..self.clone() }
    }

    /// How it yields; `None` for a request of the foreground.
    pub(crate) fn pace(&self) -> Option<&Pace> {
        self.pace.as_ref()
    }

    /// The ranges that were fetched for it.
    pub(crate) fn fetched(&self) -> Option<&Fetched> {
        self.fetched.as_deref()
    }
}
