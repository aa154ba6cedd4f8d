//! Operations that wait for their transaction group.

use std::sync::Arc;

use dsl::sync::SyncTask;
use dsl::{Error, Refusal};
use parking_lot::Mutex;

/// What became of an operation, to be asked when its group has synced.
#[derive(Debug, Clone, Default)]
pub struct Ticket(Arc<Mutex<Option<dsl::Result<()>>>>);

impl Ticket {
    /// The result; `None` while the group has not been synced.
    pub fn take(&self) -> Option<dsl::Result<()>> {
        self.0.lock().take()
    }

    pub(crate) fn settle(&self, result: dsl::Result<()>) {
        *self.0.lock() = Some(result);
    }
}

/// An operation in the queue of its group.
pub(crate) struct Queued {
    pub(crate) task: Box<dyn SyncTask + Send>,
    pub(crate) ticket: Ticket,
    /// Those that were given together have the same number.
    pub(crate) batch: u64,
    /// How many groups it may still wait for freed space to become free, and those after it in its
    /// batch with it. Only the first of a batch may: then nothing of the batch has been done.
    pub(crate) patience: u64,
}

impl Queued {
    /// Whether it is to be tried again in the next group, since it was refused for space that is
    /// about to become free.
    pub(crate) fn waits(&self, result: &dsl::Result<()>, waiting: u64) -> bool {
        let full = matches!(result, Err(Error::Refused { why: Refusal::NoSpace, .. }));
        full && waiting > 0 && self.patience > 0
    }
}
