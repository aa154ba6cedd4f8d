//! The integration tests of this crate, as one program.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests fail and speak as tests do"
)]

mod ask;
mod caretaker;
mod checkpoint;
mod clones;
mod collide;
mod dedup;
mod degraded;
mod encrypted;
mod errors;
mod faults;
mod features;
mod full;
mod group_seeks;
mod growth;
mod held;
mod injected;
mod io_class;
mod l2arc;
mod lacking;
mod life;
mod links;
mod log;
mod packed_cache;
mod rebuild;
mod reclaim;
mod requests;
mod scan;
mod scan_between;
mod scan_fragmented;
mod scan_pace;
mod scan_speed;
mod scan_waiting;
mod shape;
mod split;
mod stalls;
mod traverse;
mod wipe;
mod write;
