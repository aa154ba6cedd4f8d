//! Ours beside the peers: the same workloads, in turns, on one machine.
//!
//! # Theory
//! A peer is somebody else's engine behind a program of ours that is asked as this one asks itself: `PROGRAM WORK DIR NAME=VALUE...`, and one line of
//! JSON comes back ([`Answer`]). [`cases`] says what is asked of whom; [`Run`] asks everybody in turns, several rounds, each time in a process of its
//! own, so that a busy or warm moment meets both, and takes medians. [`goals`] says which figure is to be how many times the peer's. What comes of
//! it is a table for people, a list for programs (`peers.json`), everything that was measured (`peers-run.json`), and plots.
//!
//! Wall time on a busy machine says little; CPU time of an operation is asked for beside it everywhere, and the load is in the report.
//!
//! # See
//! `scripts/bench-peers.sh`, which builds the peer; `crates/bench/peers/libzpool.c`, which is one.

mod answer;
mod cases;
mod fio;
mod free;
mod goals;
mod knobs;
mod mail;
mod mounted;
mod overwrite;
mod plot;
mod reads;
mod report;
mod run;
mod stage;
mod storm;

pub use answer::Answer;
pub use cases::{Places, Scale};
pub use knobs::Knobs;
pub use mounted::work as work_mounted;
pub use report::Report;
pub use run::Run;

use anyhow::{Result, bail};
use std::path::Path;

/// Does workload `name` of ours once, with its images in folder `dir`.
///
/// # Errors
/// As it fails, or when there is none of that name.
pub fn work(name: &str, dir: &Path, knobs: &Knobs) -> Result<Answer> {
    match name {
        "reads" => reads::reads(dir, knobs),
        "storm" => storm::storm(dir, knobs),
        "free" => free::free(dir, knobs),
        "unmap" => free::unmap(dir, knobs),
        "overwrite" => overwrite::overwrite(dir, knobs),
        _ => bail!("there is no work {name}"),
    }
}
