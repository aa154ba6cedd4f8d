//! The program `poolhouse-bench`.
//!
//! | command | what it does |
//! |---|---|
//! | `poolhouse-bench [--rounds N] [--work NAME]... DIR...` | measures workloads, prints JSON |
//! | `poolhouse-bench peers [OPTION]... [GROUP]...` | measures the engine beside a peer |
//! | `poolhouse-bench observe [GROUPS]` | measures what it costs to count operations |
//! | `poolhouse-bench --help` | lists all options, workloads and their settings |
//! | `poolhouse-bench null DIR` | mounts a file system that does nothing |
//!
//! With these commands it calls itself; each runs one workload once, and prints its times:
//!
//! * `poolhouse-bench work NAME DIR`
//! * `poolhouse-bench streams NAME DIR`
//! * `poolhouse-bench drive NAME DIR PID`, where PID serves the mount (0: the kernel)
//! * `poolhouse-bench peers work NAME DIR [KNOB=VALUE]...`
//! * `poolhouse-bench peers mount KIND NAME DIR [KNOB=VALUE]...`
//!
//! | environment | meaning |
//! |---|---|
//! | `BENCH_MOUNTS` | the script that mounts the compared file systems |
//! | `BENCH_TOOLS` | the root of unpacked OpenZFS tools |
//! | `BENCH_PEER` | a program that runs `NAME DIR` with another engine |
//! | `BENCH_SCRATCH` | the directory for new pools; default: that for temporary files |
//! | `PEER_PROGRAM`, `PEER_NAME` | the peer ([`bench::peers`]), and its name in words |
//! | `BENCH_MEMORY`, `BENCH_DISK` | directories for images, in memory and on a disk |
//! | `BENCH_DATE`, `BENCH_COMMAND` | recorded in the JSON of `peers` |

#![allow(clippy::print_stdout, reason = "printing is what it does")]

use anyhow::{Context, Result, bail};
use bench::Work;
use bench::drive::Group;
use bench::help::{self, Found};
use bench::peers::{Places, Run, Scale, Workload};
use bench::plan::Plan;
use bench::streams::Part;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The same allocator as that of the measured program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|a| a == "--help" || a == "-h" || a == "help").is_some() {
        print!("{}", help::text());
        return Ok(());
    }
    if args.next_if(|a| a == "work").is_some() {
        let (Some(name), Some(dir)) = (args.next(), args.next()) else { bail!("usage: work NAME DIR") };
        println!("{}", help::work(&name)?.run(&PathBuf::from(dir), threads)?);
        return Ok(());
    }
    let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let scratch = from_env("BENCH_SCRATCH").unwrap_or_else(std::env::temp_dir);
    if args.next_if(|a| a == "streams").is_some() {
        return streams(args);
    }
    if args.next_if(|a| a == "drive").is_some() {
        return drive(args);
    }
    if args.next_if(|a| a == "observe").is_some() {
        return observe(args, &scratch);
    }
    if args.next_if(|a| a == "peers").is_some() {
        let words = args.map(|a| a.into_string().map_err(|a| anyhow::anyhow!("{} is no text", a.display())));
        return peers(&words.collect::<Result<Vec<_>>>()?);
    }
    if args.next_if(|a| a == "null").is_some() {
        return bench::null::serve(&PathBuf::from(args.next().context("usage: null DIR")?));
    }
    let plan = plan(args, scratch, threads)?;
    println!("{}", serde_json::to_string_pretty(&plan.run()?)?);
    Ok(())
}

/// The workloads that the arguments name, or all.
fn plan(mut args: impl Iterator<Item = OsString>, scratch: PathBuf, threads: usize) -> Result<Plan> {
    let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut plan = Plan {
        pools: Vec::new(),
        works: Vec::new(),
        makings: Vec::new(),
        groups: Vec::new(),
        streams: Vec::new(),
        scratch,
        rounds: 5,
        threads,
        tools: from_env("BENCH_TOOLS"),
        peer: from_env("BENCH_PEER"),
        mounts: from_env("BENCH_MOUNTS"),
    };
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--rounds") => {
                let n = args.next().context("--rounds wants a number")?;
                plan.rounds = n.to_str().and_then(|n| n.parse().ok()).context("--rounds wants a number")?;
            }
            Some("--work") => {
                let name = args.next().context("--work wants a name")?;
                match help::find(&name)? {
                    Found::Groups(groups) => plan.groups.extend(groups),
                    Found::Streams(parts) => plan.streams.extend(parts),
                    Found::Work(work) if work.makes => plan.makings.push(work),
                    Found::Work(work) => plan.works.push(work),
                }
            }
            Some(option) if option.starts_with('-') => bail!("there is no option {option}; --help lists all"),
            _ => plan.pools.push(PathBuf::from(arg)),
        }
    }
    let nothing = plan.works.is_empty() && plan.makings.is_empty() && plan.streams.is_empty();
    if nothing && plan.groups.is_empty() {
        plan.streams = Part::ALL.to_vec();
        plan.groups = Group::ALL.to_vec();
        (plan.makings, plan.works) = Work::ALL.iter().partition(|work| work.makes);
    }
    Ok(plan)
}

/// Measures what it costs to count operations.
fn observe(mut args: impl Iterator<Item = OsString>, scratch: &Path) -> Result<()> {
    let groups = args.next().unwrap_or_else(|| "40".into());
    let groups = groups.to_str().and_then(|groups| groups.parse().ok()).filter(|n| (1..=1000).contains(n));
    let groups = groups.context("usage: observe [GROUPS], 1 to 1000")?;
    println!("{}", serde_json::to_string_pretty(&bench::observe::run(scratch, groups)?)?);
    Ok(())
}

/// Runs a group on a mounted file system once.
fn drive(mut args: impl Iterator<Item = OsString>) -> Result<()> {
    let (Some(name), Some(dir), Some(pid)) = (args.next(), args.next(), args.next()) else {
        bail!("usage: drive NAME DIR PID")
    };
    let pid: u32 = pid.to_str().and_then(|p| p.parse().ok()).context("PID is a number")?;
    println!("{}", help::group(&name)?.drive(&PathBuf::from(dir), Some(pid).filter(|p| *p != 0))?);
    Ok(())
}

/// Runs a part of send and receive once.
fn streams(mut args: impl Iterator<Item = OsString>) -> Result<()> {
    let (Some(name), Some(dir)) = (args.next(), args.next()) else { bail!("usage: streams NAME DIR") };
    println!("{}", help::part(&name)?.run(&PathBuf::from(dir))?);
    Ok(())
}

/// Runs `poolhouse-bench peers`.
fn peers(words: &[String]) -> Result<()> {
    let answer = match words {
        [work, name, dir, knobs @ ..] if work == "work" => {
            Some(Workload::by_name(name)?.run(None, &PathBuf::from(dir), knobs)?)
        }
        [mount, kind, name, dir, knobs @ ..] if mount == "mount" => {
            Some(Workload::by_name(name)?.run(Some(kind), &PathBuf::from(dir), knobs)?)
        }
        _ => None,
    };
    if let Some(answer) = answer {
        println!("{}", answer.to_json());
        return Ok(());
    }
    let folder = |name, otherwise: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map_or_else(|| PathBuf::from(otherwise), PathBuf::from)
    };
    let places =
        Places { memory: folder("BENCH_MEMORY", "/dev/shm"), disk: folder("BENCH_DISK", "/var/tmp") };
    let peer = std::env::var_os("PEER_PROGRAM").filter(|v| !v.is_empty()).map(PathBuf::from);
    let named = |name, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (peer_name, date) = (named("PEER_NAME", "none"), named("BENCH_DATE", "unknown"));
    let command = named("BENCH_COMMAND", "poolhouse-bench peers");
    let (groups, rounds, scale) = (Vec::new(), 3, Scale::Normal);
    let mut run = Run { places, scale, rounds, peer, peer_name, date, command, groups };
    let mut out = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a word"));
        match word.as_str() {
            "--rounds" => run.rounds = value()?.parse().context("--rounds wants a number")?,
            "--out" => out = Some(PathBuf::from(value()?)),
            "--scale" => {
                run.scale = match value()?.as_str() {
                    "smoke" => Scale::Smoke,
                    "normal" => Scale::Normal,
                    "full" => Scale::Full,
                    other => bail!("there is no scale {other}"),
                }
            }
            group => run.groups.push(group.to_owned()),
        }
    }
    let report = run.run()?;
    println!("{}", report.table());
    if let Some(out) = out {
        report.write(&out)?;
    }
    if !report.is_whole() {
        bail!("not everything could be measured");
    }
    Ok(())
}
