//! Soak: pools live long lives under seeded operations and kills, held to a model all the time; our own `ztest`.
//!
//! # Theory
//! A life is a list of steps that follows from a seed alone: each step is chosen among what the model's state allows, done to the
//! pool, and acknowledged when it is on disk. So whoever knows the seed and the number of a step knows what the pool must then hold. An actor does the steps in a process of its own,
//! which is killed (`SIGKILL`) at any moment; the pool that it left must show the state after the last acknowledged step or after the one
//! that was begun, and the life goes on from there.
//!
//! Something befalls the devices too, if that is asked for ([`slots`]): they are pulled and put back, taken out of use, replaced, given wrong bytes, also in labels, fail, lose writes, are full or slow, never more of
//! them than redundancy makes up for; and what a device was not asked to flush is lost with the actor ([`disk`]).
//!
//! # Absent
//! Crashes at every place of a workload: [`crate::crash`].

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

/// Anything that goes wrong ends a soak.
pub type Failure = Box<dyn std::error::Error>;
