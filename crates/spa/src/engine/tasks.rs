//! Operations that wait for their transaction group.

use std::sync::Arc;

use dsl::sync::SyncTask;
use parking_lot::Mutex;

/// What became of an operation, to be asked when its group has synced.
#[derive(Debug, Clone, Default)]
pub struct Ticket(Arc<Mutex<Option<dsl::Result<()>>>>);

impl Ticket {
    /// The result; `None` while the group has not been synced.
    pub fn take(&self) -> Option<dsl::Result<()>> {
        self.0.lock().take()
    }

    pub(super) fn settle(&self, result: dsl::Result<()>) {
        *self.0.lock() = Some(result);
    }
}

/// An operation in the queue of its group.
pub(crate) struct Queued {
    pub(crate) task: Box<dyn SyncTask + Send>,
    pub(crate) ticket: Ticket,
}
