//! Changes of datasets: from a request to operations of the engine.
//!
//! # Theory
//! A request names datasets, properties and keys as the user gave them. [`tasks`] turns it into sync tasks: values checked, ancestors
//! filled in, keys derived. The pool does the tasks of a request in one transaction group, in their order, so that each finds what those
//! before it made. What must happen to mounts around that is [`Pools`](crate::pools::Pools)'s.
//!
//! # Absent
//! Whether an operation may be done: each task checks that itself, at the moment when it is done.

pub mod keys;
pub mod quotas;
pub mod tasks;
pub(crate) mod volume;

use dsl::SyncTask;

use crate::faults::of_dsl;
use api::{Error, Reason};

/// An operation that waits to be done.
pub type Task = Box<dyn SyncTask + Send>;

/// What an operation's failure is about, and why.
pub(crate) fn error_of(about: &str, error: &dsl::Error) -> Error {
    let name = match error {
        dsl::Error::Refused { name, .. }
        | dsl::Error::NoSuchDataset { name }
        | dsl::Error::BadName { name, .. }
        | dsl::Error::BadProperty { name, .. }
        | dsl::Error::Key { name, .. }
        | dsl::Error::Contents { name, .. } => name,
        _ => about,
    };
    match error {
        dsl::Error::Several(errors) => {
            let errors = errors.iter().map(|e| error_of(about, e)).collect();
            Error::new(about, Reason::Several { errors })
        }
        _ => Error::new(name, of_dsl(error)),
    }
}
