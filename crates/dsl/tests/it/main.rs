//! The integration tests of this crate, as one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

#[path = "../../../pool/tests/it/common/mod.rs"]
mod common;
mod hostile;
mod links;
mod operations;
mod transcripts;
mod world;
