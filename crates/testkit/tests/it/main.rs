//! The integration tests of this crate, as one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod fixtures;
mod modules;
mod ratchet;
mod scripts;
mod tidy;
