//! What requests change: pools, vdevs, datasets, and their properties.
//!
//! # Theory
//! A module here turns a request of the control protocol into operations of the engine. It holds
//! no rule of the engine: what may be changed is decided below.

pub mod dataset;
pub mod pool;
pub(crate) mod vdev;
