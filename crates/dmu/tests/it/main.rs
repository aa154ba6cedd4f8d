//! The integration tests of this crate, as one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod ahead;
mod common;
mod foreign;
mod hostile;
mod judge;
mod oldmos;
mod paced;
mod pools;
#[allow(dead_code, reason = "others use the rest")]
mod rig;
mod sawrite;
mod write;
mod zap;
mod zaproom;
mod zapwrite;
