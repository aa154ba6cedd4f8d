//! The integration tests of this crate, as one program.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod afs;
mod common;
mod create;
mod datasets;
mod halves;
mod hostile;
mod large;
mod log;
mod model;
mod old;
mod old_pools;
mod owners;
#[path = "../../../pool/tests/it/common/mod.rs"]
mod pools;
mod quota;
mod rig;
mod semantics;
mod write;
