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
//! # Absent
//! Crashes at every point of a workload: [`crate::crash`].

mod devices;
mod disk;
mod model;
mod pool;
mod shape;
mod slots;

pub use model::{Model, Op};
pub use pool::{Life, Terms, plan};
pub use shape::Shape;
pub use slots::{DeviceOp, Faults};

/// Any failure ends a soak.
pub type Failure = Box<dyn std::error::Error>;
