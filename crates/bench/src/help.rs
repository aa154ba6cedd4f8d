//! The list of all workloads: look-up by name, and the help text. It comes from the tables that the
//! benchmarks use.

use crate::drive::Group;
use crate::peers::WORKLOADS;
use crate::streams::Part;
use crate::work::Work;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write;

/// The name that stands for all groups on mounted file systems.
const MOUNTS: &str = "mounts";
/// The name that stands for all parts of send and receive.
const STREAMS: &str = "streams";

const USAGE: &str = "\
usage: poolhouse-bench [--rounds N] [--work NAME]... [DIR]...
       poolhouse-bench work NAME DIR
       poolhouse-bench streams NAME DIR
       poolhouse-bench drive NAME DIR PID
       poolhouse-bench null DIR
       poolhouse-bench observe [GROUPS]
       poolhouse-bench peers [--rounds N] [--scale smoke|normal|full] [--out DIR] [GROUP]...
       poolhouse-bench peers work NAME DIR [KNOB=VALUE]...
       poolhouse-bench peers mount KIND NAME DIR [KNOB=VALUE]...

Measures workloads in rounds (5, or 3 beside peers), all if none is named, and prints JSON; `work`,
`streams`, `drive`, `peers work` and `peers mount` do one once.
";

/// What a name stands for.
#[derive(Debug)]
pub enum Found {
    /// One workload on a pool.
    Work(Work),
    /// Groups of phases on a mounted file system.
    Groups(Vec<Group>),
    /// Parts of send and receive.
    Streams(Vec<Part>),
}

/// Finds a workload or group by its name.
///
/// # Errors
/// No workload has this name. The error lists the names.
pub fn find(name: &OsStr) -> Result<Found> {
    if name == MOUNTS {
        return Ok(Found::Groups(Group::ALL.to_vec()));
    }
    if name == STREAMS {
        return Ok(Found::Streams(Part::ALL.to_vec()));
    }
    if let Ok(part) = part(name) {
        return Ok(Found::Streams(vec![part]));
    }
    match group(name) {
        Ok(group) => Ok(Found::Groups(vec![group])),
        Err(_) => work(name).map(Found::Work).or_else(|_| {
            let all = groups().chain(works()).chain(parts()).chain([MOUNTS, STREAMS]);
            bail!("there is no workload {}; there are {}", name.display(), listed(all))
        }),
    }
}

/// Finds a workload on a pool by its name.
///
/// # Errors
/// No workload on a pool has this name. The error lists the names.
pub fn work(name: &OsStr) -> Result<Work> {
    let found = name.to_str().and_then(Work::by_name);
    found.with_context(|| {
        format!("there is no workload {} on a pool; there are {}", name.display(), listed(works()))
    })
}

/// Finds a part of send and receive by its name.
///
/// # Errors
/// No part has this name. The error lists the names.
pub fn part(name: &OsStr) -> Result<Part> {
    let found = Part::ALL.into_iter().find(|part| name == part.name());
    found.with_context(|| {
        format!("there is no workload {} of streams; there are {}", name.display(), listed(parts()))
    })
}

/// Finds a group by its name.
///
/// # Errors
/// No group has this name. The error lists the names.
pub fn group(name: &OsStr) -> Result<Group> {
    let found = name.to_str().and_then(Group::by_name);
    found.with_context(|| {
        format!(
            "there is no workload {} on a mounted file system; there are {}",
            name.display(),
            listed(groups())
        )
    })
}

fn works() -> impl Iterator<Item = &'static str> {
    Work::ALL.iter().map(|w| w.name)
}

fn groups() -> impl Iterator<Item = &'static str> {
    Group::ALL.iter().map(|g| g.name)
}

fn parts() -> impl Iterator<Item = &'static str> {
    Part::ALL.iter().map(|part| part.name())
}

fn listed(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The help text: the usage, and a line about each workload.
pub fn text() -> String {
    let mut text = USAGE.to_owned();
    let mut list = |title: &str, of: &mut dyn Iterator<Item = (&str, &str)>| {
        let _ = writeln!(text, "\n{title}");
        of.for_each(|(name, what)| {
            let _ = writeln!(text, "  {name:<15} {what}");
        });
    };
    let works = |makes: bool| Work::ALL.iter().filter(move |w| w.makes == makes).map(|w| (w.name, w.what));
    list("On the pool in each DIR:", &mut works(false));
    list("On a new pool in BENCH_SCRATCH, with nothing to set:", &mut works(true));
    list(
        "On mounted file systems, which the script BENCH_MOUNTS mounts; `mounts` is all of them:",
        &mut Group::ALL.iter().map(|g| (g.name, g.what)),
    );
    list(
        "Send and receive, on new pools in BENCH_SCRATCH; `streams` is all of them:",
        &mut Part::ALL.iter().map(|part| (part.name(), part.what())),
    );
    text += "\nBeside a peer (`peers`, which asks PEER_PROGRAM too), with what may be set:\n";
    for w in WORKLOADS {
        let _ = writeln!(text, "  {:<15} {}", w.name, w.what);
        for k in w.knobs() {
            let _ = writeln!(text, "      {:<20} {}", format!("{}={}", k.name, k.otherwise), k.what);
        }
    }
    text
}
