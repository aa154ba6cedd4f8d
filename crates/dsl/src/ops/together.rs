//! Several operations as one.

use crate::Result;
use crate::sync::{SyncTask, Syncing, TaskNeed};
use pool::space::SpaceCheck;

/// Operations of which either all are done, or none.
///
/// All are checked before the first one is done. So none may need what another one changes.
pub struct Together {
    /// The operations, in their order.
    pub tasks: Vec<Box<dyn SyncTask + Send>>,
}

impl SyncTask for Together {
    fn need(&self) -> TaskNeed {
        let blocks = self.tasks.iter().map(|task| task.need().blocks).sum();
        TaskNeed { blocks, check: SpaceCheck::Normal }
    }

    fn check(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        self.tasks.iter_mut().try_for_each(|task| task.check(s))
    }

    fn sync(&mut self, s: &mut Syncing<'_>) -> Result<()> {
        self.tasks.iter_mut().try_for_each(|task| task.sync(s))
    }
}
