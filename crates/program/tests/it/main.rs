//! The integration tests of this crate, as one program.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests fail and speak as tests do"
)]

mod afs;
mod allow;
mod caretaker;
mod changes;
#[path = "../../../nbd/tests/client/mod.rs"]
mod client;
mod clients;
mod common;
mod counted;
#[path = "common/daemon.rs"]
mod daemon;
mod daemon_log;
mod damage;
mod damaged;
mod diff;
mod elsewhere;
mod files;
mod grammar;
mod help;
mod imports;
mod injected;
mod json;
mod leaf_work;
mod mounted;
mod mounting;
mod nameless;
mod nested;
mod observed;
mod packages;
mod paper;
mod project;
mod properties;
mod rebuild;
mod receive;
mod redact;
mod refusals;
mod rescue;
mod rescue_nested;
mod rescue_send;
mod rollback;
mod scan;
mod send;
mod service;
mod sick;
mod slow;
mod split;
mod suite;
mod suite_pools;
mod traced;
mod transcripts;
mod users;
mod volumes;
mod watch;
mod web;
mod writes;
