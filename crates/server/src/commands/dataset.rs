//! Changes of datasets: from a request to operations of the engine.
//!
//! # Theory
//! A request names datasets, properties and keys as the user gave them. [`tasks`] turns it into
//! sync tasks: it checks values, adds missing parents, and derives keys. The pool runs the tasks of
//! a request in one transaction group, in their order. So each task finds the results of those
//! before it. [`Pools`](crate::pools::Pools) adapts the mounts.
//!
//! # Absent
//! Whether an operation is allowed: each task checks that itself, when it runs.

pub mod keys;
pub mod quotas;
pub mod tasks;
pub(crate) mod volume;

use dsl::SyncTask;

/// An operation that waits to run (`dsl_sync_task_t`).
pub type Task = Box<dyn SyncTask + Send>;
