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
//! Flushes and discards have no request, and do not yield. Discards count as [`Priority::Trim`].
//!
//! # See
//! OpenZFS `zio_priority_t`, `io_priority` of `zio_t`.

use std::sync::Arc;

use crate::pace::Pace;
use crate::stats::IoType;
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

impl Priority {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 11] = [
        Self::SyncRead,
        Self::SyncWrite,
        Self::AsyncRead,
        Self::AsyncWrite,
        Self::Scrub,
        Self::Resilver,
        Self::Rebuild,
        Self::Trim,
        Self::Initialize,
        Self::Prefetch,
        Self::Log,
    ];

    /// Its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SyncRead => "sync_read",
            Self::SyncWrite => "sync_write",
            Self::AsyncRead => "async_read",
            Self::AsyncWrite => "async_write",
            Self::Scrub => "scrub",
            Self::Resilver => "resilver",
            Self::Rebuild => "rebuild",
            Self::Trim => "trim",
            Self::Initialize => "initialize",
            Self::Prefetch => "prefetch",
            Self::Log => "log",
        }
    }

    /// Whether operations of this class may be of this type.
    pub(crate) const fn has(self, io: IoType) -> bool {
        match self {
            Self::SyncRead | Self::AsyncRead | Self::Prefetch => matches!(io, IoType::Read),
            Self::SyncWrite | Self::AsyncWrite | Self::Log | Self::Initialize => matches!(io, IoType::Write),
            Self::Scrub | Self::Resilver | Self::Rebuild => matches!(io, IoType::Read | IoType::Write),
            Self::Trim => matches!(io, IoType::Trim),
        }
    }
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

    /// The request for writes that repair what this one read: of the same class if that writes
    /// too, or else asynchronous writes.
    #[must_use]
    pub(crate) fn for_repair(&self) -> Self {
        match self.priority.has(IoType::Write) {
            true => self.clone(),
            false => self.with_priority(Priority::AsyncWrite),
        }
    }

    /// The same request for another class.
    #[must_use]
    pub fn with_priority(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
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
