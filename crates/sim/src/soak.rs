//! Soak: pools live long under seeded operations and kills, and are compared with a model
//! (`ztest`).
//!
//! # Theory
//! A life is a list of steps that follows from a seed alone. Each step is one that the state of the
//! model allows. It is done to the pool, and acknowledged when it is on disk. So the seed and the
//! number of a step determine what the pool must then hold.
//!
//! An actor does the steps in a process of its own, which is killed (`SIGKILL`) at any moment. The
//! pool must then show the state after the last acknowledged step, or after the step that had
//! begun. The life continues from there.
//!
//! With faults enabled (in the private module `slots`), devices suffer too:
//!
//! * They are pulled and put back, taken offline, or replaced.
//! * They get wrong bytes, also in their labels.
//! * They fail, lose writes, are full, or are slow.
//!
//! Never more devices suffer than redundancy makes up for. Writes that a device was not requested
//! to flush are lost with the actor (private module `disk`).
//!
//! With a second pool (private modules `streams` and `receives`), snapshots of one pool are
//! received in the other. Each pool has its own devices, faults and model:
//!
//! * A whole stream becomes a new head. An increment replaces what is newer than its base.
//! * Streams break off, and their receives are resumed or given up some steps later.
//! * A small second pool is filled up before a receive, which then runs out of space.
//!
//! After a kill in a receive, the pool shows nothing of it but a part that can be resumed.
//!
//! # Absent
//! Crashes at every point of a workload: [`crate::crash`].

mod devices;
mod disk;
mod life;
mod model;
mod pool;
mod receives;
mod shape;
mod slots;
mod streams;
mod terms;
mod transfer;

pub use life::{Life, plan};
pub use model::{Model, Op};
pub use shape::Shape;
pub use slots::{DeviceOp, Faults};
pub use terms::{Second, Terms};
pub use transfer::Transfer;

/// Any failure ends a soak.
pub type Failure = Box<dyn std::error::Error>;
