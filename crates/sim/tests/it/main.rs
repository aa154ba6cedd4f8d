//! The integration tests of this crate, as one program.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod crash;
mod logs;
mod open;
mod receives;
mod redundancy;
mod restores;
mod soak;
