//! What else than the server uses the datasets of a partition.

use std::sync::OnceLock;

/// What else uses the datasets of a partition: mounts do.
pub trait Beside: Send + Sync {
    /// A volume or clone of this name is about to be destroyed, or to become another one. All other
    /// use of it ends before this returns.
    fn ends(&self, dataset: &str);

    /// A file system has another name now. So have its snapshots.
    fn renamed(&self, from: &str, to: &str);
}

/// What else uses the datasets, if anything does.
#[derive(Default)]
pub(super) struct Others(OnceLock<Box<dyn Beside>>);

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Others {
    pub(super) fn set(&self, beside: Box<dyn Beside>) {
        let _ = self.0.set(beside);
    }

    pub(super) fn end(&self, dataset: &str) {
        if let Some(beside) = self.0.get() {
            beside.ends(dataset);
        }
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        if let Some(beside) = self.0.get() {
            beside.renamed(from, to);
        }
    }
}
