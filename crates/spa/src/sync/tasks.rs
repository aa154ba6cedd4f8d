//! Operations that wait for their transaction group.

use std::collections::VecDeque;
use std::sync::Arc;

use dsl::sync::SyncTask;
use dsl::{Error, Refusal};
use observe::lock::Mutex;

/// The result of an operation, available when its txg has synced.
#[derive(Debug, Clone, Default)]
pub struct Ticket(Arc<Mutex<Option<dsl::Result<()>>>>);

impl Ticket {
    /// The result; `None` until the txg has synced.
    pub fn take(&self) -> Option<dsl::Result<()>> {
        self.0.lock().take()
    }

    /// Whether there is a result.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.lock().is_some()
    }

    pub(crate) fn settle(&self, result: dsl::Result<()>) {
        *self.0.lock() = Some(result);
    }
}

/// Operations of which each needs the one before it.
pub(crate) type Chain = VecDeque<Box<dyn SyncTask + Send>>;

/// An operation in the queue of its txg, or a chain of them.
pub(crate) struct Queued {
    /// What is still to be done. It is never empty.
    pub(crate) chain: Chain,
    pub(crate) ticket: Ticket,
    /// Operations of one call have the same number.
    pub(crate) batch: u64,
    /// How many txgs it may still wait for freed space, together with those after it in its batch.
    /// Only the first of a batch may wait for space: then nothing of the batch has been done.
    pub(crate) patience: u64,
}

impl Queued {
    /// Calls `run` for each operation, until one is refused. Returns the result of the last call.
    pub(crate) fn run<E>(
        &mut self,
        mut run: impl FnMut(&mut dyn SyncTask) -> Result<dsl::Result<()>, E>,
    ) -> Result<dsl::Result<()>, E> {
        let mut result = Ok(());
        while let Some(task) = self.chain.front_mut() {
            result = run(&mut **task)?;
            if result.is_err() {
                break;
            }
            self.chain.pop_front();
            // Something is done already.
            self.patience = 0;
        }
        Ok(result)
    }

    /// The operation for the next txg, if it is to be tried again there; otherwise it is settled.
    ///
    /// It was refused for space that is about to become free, or because each of its datasets
    /// already got a snapshot in this txg (`EAGAIN`).
    pub(crate) fn again(self, result: &dsl::Result<()>, waiting: u64) -> Result<Queued, Ticket> {
        match result {
            Err(Error::Refused { why: Refusal::NoSpace, .. }) if waiting > 0 && self.patience > 0 => {
                Ok(Queued { patience: self.patience - 1, ..self })
            }
            Err(error) if is_early(error) => Ok(self),
            _ => Err(self.ticket),
        }
    }
}

/// Whether the next txg can take what this one refused.
fn is_early(error: &Error) -> bool {
    match error {
        Error::Refused { why, .. } => *why == Refusal::Again,
        Error::Several(errors) => errors.iter().all(is_early),
        _ => false,
    }
}
