//! Operations of several steps that are done entirely or not at all.
//!
//! # Theory
//! An operation reads everything that it will change before its first change. But blocks may have
//! to be read again, and a device may have failed meanwhile. So each step registers how to undo it.
//! If a later step fails, all are undone, the last first. Undoing changes only what this txg has
//! just changed, which is in memory.

use crate::Result;

/// The actions that undo the completed steps.
#[derive(Default)]
pub(super) struct Undo<'a>(Vec<Box<dyn FnOnce() -> Result<()> + 'a>>);

impl<'a> Undo<'a> {
    /// Registers the action that undoes a completed step.
    pub(super) fn by(&mut self, step: impl FnOnce() -> Result<()> + 'a) {
        self.0.push(Box::new(step));
    }
}

/// Runs `steps` entirely or not at all.
///
/// # Errors
/// The error of `steps`, or of an action that undoes a step.
pub(super) fn whole<'a, R>(steps: impl FnOnce(&mut Undo<'a>) -> Result<R>) -> Result<R> {
    let mut undo = Undo::default();
    let done = steps(&mut undo);
    if done.is_err() {
        undo.0.into_iter().rev().try_for_each(|step| step())?;
    }
    done
}
