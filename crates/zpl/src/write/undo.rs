//! Operations of several steps that are done whole or not at all.
//!
//! # Theory
//! An operation looks at what it is going to change before it changes anything; but what it has seen may have to be read again, and the device may have
//! failed meanwhile. So each step that is done says how it is undone, and where a later one fails they all are, the last first. Undoing changes
//! what this group has just changed, which is in memory.

use crate::Result;

/// How the steps that were done are undone.
#[derive(Default)]
pub(super) struct Undo<'a>(Vec<Box<dyn FnOnce() -> Result<()> + 'a>>);

impl<'a> Undo<'a> {
    /// A step has been done, and this undoes it.
    pub(super) fn by(&mut self, step: impl FnOnce() -> Result<()> + 'a) {
        self.0.push(Box::new(step));
    }
}

/// Does what `steps` does whole or not at all.
///
/// # Errors
/// As `steps`; as undoing fails.
pub(super) fn whole<'a, R>(steps: impl FnOnce(&mut Undo<'a>) -> Result<R>) -> Result<R> {
    let mut undo = Undo::default();
    let done = steps(&mut undo);
    if done.is_err() {
        undo.0.into_iter().rev().try_for_each(|step| step())?;
    }
    done
}
