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
mod scrub;
mod stage;
mod storm;

pub use answer::Answer;
pub use cases::{Places, Scale};
pub use knobs::{Knob, Knobs};
pub use report::Report;
pub use run::Run;

use anyhow::{Context, Result, bail};
use knobs::{
    ASHIFT, BS, CACHE_MB, COUNT, DELAY_US, DISKS, FILE_MB, IMAGE, LOG, MSECS, OBJ_MB, OBJS, PREFILL, RS,
    SIZE_MB, STRIDE, THREADS, TITLE,
};
use mounted::Mounted;
use std::path::Path;

/// A workload that peers do too.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    knobs: &'static [Knob],
    does: Does,
}

/// What does it.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// On a pool of its own, with images in a folder.
    Pool(fn(&Path, &Knobs) -> Result<Answer>),
    /// On a mounted file system.
    Mount(fn(&Mounted, &Knobs) -> Result<Answer>),
}

/// What may be set of the pool that a workload makes.
const POOL: &[Knob] = &[SIZE_MB, PREFILL, ASHIFT, CACHE_MB, DELAY_US];

/// What may be set of a scrub, and of the making of its pool: both are told the same.
const SCRUB: &[Knob] = &[TITLE, RS, OBJ_MB, OBJS, IMAGE, DISKS];

/// All of them.
pub const WORKLOADS: [Workload; 9] = [
    Workload {
        name: "reads",
        what: "reads cached blocks at random places: copied, as references, and beside them plain memory",
        knobs: &[TITLE, THREADS, MSECS, BS, OBJ_MB, OBJS],
        does: Does::Pool(reads::reads),
    },
    Workload {
        name: "storm",
        what: "writes blocks, each thread to an object of its own, and makes each durable",
        knobs: &[TITLE, THREADS, MSECS, BS, OBJ_MB],
        does: Does::Pool(storm::storm),
    },
    Workload {
        name: "free",
        what: "frees single blocks amid many cached ones, then the whole object",
        knobs: &[TITLE, RS, COUNT],
        does: Does::Pool(free::free),
    },
    Workload {
        name: "unmap",
        what: "frees an object of which one block in some was written",
        knobs: &[TITLE, RS, COUNT, STRIDE],
        does: Does::Pool(free::unmap),
    },
    Workload {
        name: "overwrite",
        what: "writes over parts of blocks at random places",
        knobs: &[TITLE, BS, RS, COUNT, OBJ_MB],
        does: Does::Pool(overwrite::overwrite),
    },
    Workload {
        name: "scrub-image",
        what: "makes the pool that scrub takes, and leaves it there",
        knobs: SCRUB,
        does: Does::Pool(scrub::make),
    },
    Workload {
        name: "scrub",
        what: "imports the pool that scrub-image left, and scrubs it",
        knobs: SCRUB,
        does: Does::Pool(scrub::scrub),
    },
    Workload {
        name: "fio",
        what: "fio reads 8 KiB at random places of a file on a mount, past the kernel's cache and from it",
        knobs: &[TITLE, THREADS, MSECS, FILE_MB, LOG],
        does: Does::Mount(fio::fio),
    },
    Workload {
        name: "mail",
        what: "delivers, appends to, reads and removes messages on a mount, as a mail server does",
        knobs: &[TITLE, THREADS, MSECS, LOG],
        does: Does::Mount(mail::mail),
    },
];

impl Workload {
    /// The workload of that name.
    ///
    /// # Errors
    /// If there is none; the error names those that exist.
    pub fn by_name(name: &str) -> Result<Workload> {
        WORKLOADS.into_iter().find(|w| w.name == name).with_context(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
            format!("there is no workload {name} for peers; there are {}", names.join(", "))
        })
    }

    /// What may be set of it.
    pub fn knobs(&self) -> Vec<Knob> {
        let pool = if self.mounts() { &[] } else { POOL };
        self.knobs.iter().chain(pool).copied().collect()
    }

    /// Whether it is done to a mounted file system.
    pub fn mounts(&self) -> bool {
        matches!(self.does, Does::Mount(_))
    }

    /// Does it once, with images in folder `dir`, on a file system of this kind if it needs a mounted one.
    ///
    /// # Errors
    /// As it fails, or when something is set that it does not know.
    pub fn run(&self, kind: Option<&str>, dir: &Path, set: &[String]) -> Result<Answer> {
        let knobs = Knobs::parse(self.knobs(), set)?;
        match (self.does, kind) {
            (Does::Pool(work), None) => work(dir, &knobs),
            (Does::Mount(work), Some(kind)) => mounted::on(kind, dir, &knobs, work),
            (Does::Pool(_), Some(_)) => bail!("{} makes a pool of its own, and mounts nothing", self.name),
            (Does::Mount(_), None) => bail!("{} is done on a mount: peers mount KIND {0} DIR", self.name),
        }
    }
}
