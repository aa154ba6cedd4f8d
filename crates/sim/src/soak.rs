//! Soak: pools live long lives under seeded operations and kills, held to a model all the time; our own `ztest`.
//!
//! # Theory
//! A life is a list of steps that follows from a seed alone: each step is chosen among what the model's state allows, done to the
//! pool, and acknowledged when it is on disk. So whoever knows the seed and the number of a step knows what the pool must then hold. An actor does the steps in a process of its own,
//! which is killed (`SIGKILL`) at any moment; the pool that it left must show the state after the last acknowledged step or after the one
//! that was begun, and the life goes on from there.
//!
//! # Absent
//! Power failures, where writes that were not flushed are lost: [`crate::crash`]. Faulty devices.

mod model;
mod pool;

pub use model::{Model, Op};
pub use pool::{Life, Shape};
