//! `poolhouse-bench [--rounds N] [--work NAME]... DIR...`: measures each workload on the pool in each folder, prints JSON.
//!
//! `poolhouse-bench work NAME DIR` does one workload once, and prints what it took; that is how the former calls itself.
//! `BENCH_TOOLS` is the root of unpacked OpenZFS tools, `BENCH_PEER` a program that does `NAME DIR` with another engine, `BENCH_SCRATCH` the
//! folder in which new pools are made (the system's for temporary files if it is not set).

#![allow(clippy::print_stdout, reason = "printing is what it does")]

use anyhow::{Context, Result, bail};
use bench::Work;
use bench::plan::Plan;
use std::path::PathBuf;

/// As the program that is measured.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut args = std::env::args_os().skip(1).peekable();
    let work = |name: &std::ffi::OsStr| {
        name.to_str().and_then(Work::by_name).with_context(|| format!("there is no work {}", name.display()))
    };
    if args.next_if(|a| a == "work").is_some() {
        let (Some(name), Some(dir)) = (args.next(), args.next()) else { bail!("usage: work NAME DIR") };
        println!("{}", work(&name)?.run(&PathBuf::from(dir), threads)?);
        return Ok(());
    }
    let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut plan = Plan {
        pools: Vec::new(),
        works: Vec::new(),
        makings: Vec::new(),
        scratch: from_env("BENCH_SCRATCH").unwrap_or_else(std::env::temp_dir),
        rounds: 5,
        threads,
        tools: from_env("BENCH_TOOLS"),
        peer: from_env("BENCH_PEER"),
    };
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--rounds") => {
                let n = args.next().context("--rounds wants a number")?;
                plan.rounds = n.to_str().and_then(|n| n.parse().ok()).context("--rounds wants a number")?;
            }
            Some("--work") => match work(&args.next().context("--work wants a name")?)? {
                making @ Work::Making(_) => plan.makings.push(making),
                reading => plan.works.push(reading),
            },
            _ => plan.pools.push(PathBuf::from(arg)),
        }
    }
    if plan.works.is_empty() && plan.makings.is_empty() {
        plan.works = Work::READING.to_vec();
        plan.makings = Work::MAKING.to_vec();
    }
    println!("{}", serde_json::to_string_pretty(&plan.run()?)?);
    Ok(())
}
