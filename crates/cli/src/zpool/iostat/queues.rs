//! OpenZFS's queues: which classes of I/O the columns of `zpool iostat` have.
//!
//! # Theory
//! The engine has more classes than OpenZFS's command has columns. Each goes to the column where
//! OpenZFS counts the same I/O:
//!
//! | class | reads | writes |
//! |---|---|---|
//! | `sync_read` | sync_read | |
//! | `prefetch`, `async_read` | async_read | |
//! | `sync_write`, `log` | | sync_write |
//! | `async_write`, `initialize` | | async_write |
//! | `scrub`, `resilver` | scrub | async_write |
//! | `rebuild` | rebuild | rebuild |
//!
//! So what a scrub or resilver repairs counts as an asynchronous write, as in OpenZFS, whose
//! titles say `scrubq_read`. Discards are in the columns of `trim`.
//!
//! # See
//! OpenZFS `vdev_stat_update`, `zio_priority_t`.

use api::{ClassIo, IoStat, add_histogram};

/// A pair of columns, or one, in OpenZFS's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    SyncRead,
    SyncWrite,
    AsyncRead,
    AsyncWrite,
    Scrub,
    Trim,
    Rebuild,
}

impl Queue {
    pub const ALL: [Self; 7] = [
        Self::SyncRead,
        Self::SyncWrite,
        Self::AsyncRead,
        Self::AsyncWrite,
        Self::Scrub,
        Self::Trim,
        Self::Rebuild,
    ];

    /// Where operations count. A class of a newer daemon counts as asynchronous.
    fn of(one: &ClassIo) -> Self {
        match (one.class.as_str(), one.io.as_str()) {
            (_, "trim") => Self::Trim,
            ("rebuild", _) => Self::Rebuild,
            ("scrub" | "resilver", "read") => Self::Scrub,
            ("sync_read", "read") => Self::SyncRead,
            ("sync_write" | "log", "write") => Self::SyncWrite,
            (_, "read") => Self::AsyncRead,
            (_, _) => Self::AsyncWrite,
        }
    }
}

/// The I/O of a vdev by queues.
pub struct Queues<'a>(Vec<(Queue, &'a ClassIo)>);

impl<'a> Queues<'a> {
    pub fn of(io: &'a IoStat) -> Self {
        Self(io.classes.iter().map(|one| (Queue::of(one), one)).collect())
    }

    fn classes(&self, queue: Queue) -> impl Iterator<Item = &'a ClassIo> {
        self.0.iter().filter(move |(its, _)| *its == queue).map(|(_, one)| *one)
    }

    pub fn sum(&self, queue: Queue, of: fn(&ClassIo) -> u64) -> u64 {
        self.classes(queue).map(of).sum()
    }

    pub fn histogram(&self, queue: Queue, of: fn(&ClassIo) -> &[u64]) -> Vec<u64> {
        let mut sum = Vec::new();
        self.classes(queue).for_each(|one| add_histogram(&mut sum, of(one)));
        sum
    }
}
