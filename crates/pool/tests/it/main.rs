//! The integration tests of this crate, as one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod allocate;
mod clones;
mod common;
mod errlog;
mod hostile;
mod lists;
mod load;
mod mos;
mod sync;
