//! Comparison with peers: the same workloads, in turns, on one machine.
//!
//! # Theory
//! A peer is another engine behind a program of ours. The program has the same interface as this
//! one: `PROGRAM WORK DIR NAME=VALUE...`, and the reply is one line of JSON ([`Answer`]).
//!
//! * `cases` lists the workloads and their settings.
//! * [`Run`] runs both sides in turns, for several rounds, each time in a process of its own. So a
//!   busy or warm moment hits both. It takes the medians.
//! * `goals` says which ratio to the peer each figure must reach.
//! * [`Report`] has a table for people, a list for programs (`peers.json`), all figures
//!   (`peers-run.json`), and plots.
//!
//! Wall time says little on a busy machine. So every workload also measures CPU time, and the
//! report has the load.
//!
//! # See
//! `scripts/bench-peers.sh` builds the peer. `crates/bench/peers/libzpool.c` is one.

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
mod send;
mod stage;
mod storm;

pub use answer::Answer;
pub use cases::{Places, Scale};
pub use knobs::{Knob, Knobs};
pub use report::Report;
pub use run::Run;

use anyhow::{Context, Result, bail};
use knobs::{
    ASHIFT, BS, CACHE_MB, COUNT, DELAY_US, DISKS, FILE_MB, FORM, IMAGE, LOG, MSECS, OBJ_MB, OBJS, PREFILL,
    RS, SIZE_MB, STRIDE, THREADS, TITLE,
};
use mounted::Mounted;
use std::path::Path;

/// A workload that peers run too.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// The name of the workload.
    pub name: &'static str,
    /// A line that describes it.
    pub what: &'static str,
    knobs: &'static [Knob],
    does: Does,
}

/// The function that runs a workload.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// On a pool of its own, with images in a directory.
    Pool(fn(&Path, &Knobs) -> Result<Answer>),
    /// On a mounted file system.
    Mount(fn(&Mounted, &Knobs) -> Result<Answer>),
}

/// The settings of the pool that a workload creates.
const POOL: &[Knob] = &[SIZE_MB, PREFILL, ASHIFT, CACHE_MB, DELAY_US];

/// The settings of a scrub, and of the creation of its pool. Both get the same.
const SCRUB: &[Knob] = &[TITLE, RS, OBJ_MB, OBJS, IMAGE, DISKS];

/// The settings of sends, and of the creation of their pool.
const SEND: &[Knob] = &[TITLE, RS, OBJ_MB, OBJS, IMAGE, DISKS, FORM];

/// All workloads.
pub const WORKLOADS: [Workload; 11] = [
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
        name: "send-image",
        what: "makes the pool with a snapshot that send takes, and leaves it there",
        knobs: SEND,
        does: Does::Pool(send::make),
    },
    Workload {
        name: "send",
        what: "imports the pool that send-image left, and sends its snapshot to a pipe",
        knobs: SEND,
        does: Does::Pool(send::send),
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
    /// No workload has this name. The error lists the names.
    pub fn by_name(name: &str) -> Result<Workload> {
        WORKLOADS.into_iter().find(|w| w.name == name).with_context(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
            format!("there is no workload {name} for peers; there are {}", names.join(", "))
        })
    }

    /// The settings of the workload.
    pub fn knobs(&self) -> Vec<Knob> {
        let pool = if self.mounts() { &[] } else { POOL };
        self.knobs.iter().chain(pool).copied().collect()
    }

    /// Whether the workload needs a mounted file system.
    pub fn mounts(&self) -> bool {
        matches!(self.does, Does::Mount(_))
    }

    /// Runs the workload once, with images in the directory `dir`.
    ///
    /// `kind` is the file system to mount, for a workload that needs one. `set` has its settings,
    /// as `NAME=VALUE`.
    ///
    /// # Errors
    /// * A setting is malformed, or the workload does not have it.
    /// * `kind` is missing, or the workload does not mount a file system.
    /// * The workload failed.
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
