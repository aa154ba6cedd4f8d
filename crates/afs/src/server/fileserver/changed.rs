//! Promises for files that a call has changed.
//!
//! # Theory
//! A call that changes files may fail after the change: a status can't be read, or the change can't
//! be made durable. Readers see it all the same, so the promises for these files must be broken.
//!
//! A call that was refused breaks none: otherwise anyone could have promises broken.

use crate::errors::errno;
use crate::server::callbacks::VolumeCallBacks;
use crate::server::fileserver::Outcome;
use crate::server::hosts::Host;
use crate::types::{Unique, Vnode};

/// The files that a call has changed.
#[derive(Debug, Default)]
pub struct Changed(Vec<(Vnode, Unique)>);

impl Changed {
    /// Notes that an operation with this result has changed files. One that was refused has not.
    /// One that failed may have.
    ///
    /// # Errors
    /// That of the operation.
    pub fn by<T>(&mut self, files: &[(Vnode, Unique)], done: Outcome<T>) -> Outcome<T> {
        if matches!(done, Ok(_) | Err(errno::EIO)) {
            self.0.extend_from_slice(files);
        }
        done
    }
}

/// Makes a change, and breaks the promises for what it changed, except those of `by`. If it fails
/// after that, `by` does not know what changed, and loses its promises, too.
///
/// # Errors
/// That of the change.
pub fn changing<T>(
    callbacks: &VolumeCallBacks,
    by: Option<&Host>,
    change: impl FnOnce(&mut Changed) -> Outcome<T>,
) -> Outcome<T> {
    let mut changed = Changed::default();
    let done = change(&mut changed);
    if !changed.0.is_empty() {
        callbacks.changed(&changed.0, by.filter(|_| done.is_ok()));
    }
    done
}
