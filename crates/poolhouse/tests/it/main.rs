//! The integration tests of this crate, as one program.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod common;
mod corrective;
mod cut;
mod differences;
mod differing;
mod fixtures;
mod follow;
mod log_devices;
mod oracle;
mod outrun;
mod promise;
mod receive;
mod records;
mod redact;
mod replace;
mod replay;
mod rewrite;
mod send;
mod sizes;
mod volume;
