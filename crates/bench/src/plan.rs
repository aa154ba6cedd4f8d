//! Which workloads run on which pools, and which peers run beside them.

use crate::drive::Group;
use crate::measure::{Took, answer, program, round, summary};
use crate::streams::{self, Part};
use crate::{Work, mounts};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A plan of measurements.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directories, each with the devices of one pool.
    pub pools: Vec<PathBuf>,
    /// The workloads on each of these pools.
    pub works: Vec<Work>,
    /// The workloads on new pools.
    pub makings: Vec<Work>,
    /// The workloads on mounted file systems.
    pub groups: Vec<Group>,
    /// The parts of send and receive.
    pub streams: Vec<Part>,
    /// The directory for new pools.
    pub scratch: PathBuf,
    /// Number of rounds. The report has the medians.
    pub rounds: usize,
    /// Threads of a traversal, and of a mount.
    pub threads: usize,
    /// Root directory of unpacked OpenZFS tools, if there are any: `sbin/zdb` and its libraries.
    pub tools: Option<PathBuf>,
    /// A program that runs `WORK DIR` with another engine. It prints JSON with `wall_s` and
    /// `cpu_s`.
    pub peer: Option<PathBuf>,
    /// The script that mounts the compared file systems. Without it, none is mounted.
    pub mounts: Option<PathBuf>,
}

/// One of the compared programs.
struct Contender {
    name: &'static str,
    rounds: Vec<Took>,
    /// The reply of its last round without the times, or the error.
    done: Result<Value, String>,
}

impl Plan {
    /// Runs the plan, and returns the report.
    ///
    /// # Errors
    /// The path of this program is unknown, or the scratch directory can't be used. The report has
    /// the failures of single benchmarks.
    pub fn run(&self) -> Result<Value> {
        let me = std::env::current_exe().context("find this program")?;
        let mut results = Vec::new();
        match &self.mounts {
            Some(script) if !self.groups.is_empty() => {
                results.extend(mounts::measure(script, &me, &self.scratch, &self.groups, self.rounds)?);
            }
            None if !self.groups.is_empty() => {
                results.push(json!({ "work": "mounts", "skipped": "BENCH_MOUNTS names no script" }));
            }
            _ => {}
        }
        results.extend(streams::measure(&me, &self.scratch, &self.streams, self.rounds));
        for work in &self.makings {
            results.push(self.measure(&me, *work, &self.scratch));
        }
        for pool in &self.pools {
            for work in &self.works {
                results.push(self.measure(&me, *work, pool));
            }
        }
        Ok(
            json!({ "machine": machine(), "rounds": self.rounds, "threads": self.threads, "results": results }),
        )
    }

    fn measure(&self, me: &Path, work: Work, pool: &Path) -> Value {
        let mut contenders: Vec<Contender> = ["poolhouse", "zdb -bcc", "zdb -bccL", "peer"]
            .into_iter()
            .filter(|name| match *name {
                "poolhouse" => true,
                "peer" => self.peer.is_some(),
                _ => self.tools.is_some() && work.zdb,
            })
            .map(|name| Contender { name, rounds: Vec::new(), done: Ok(Value::Null) })
            .collect();
        for _ in 0..self.rounds {
            for c in contenders.iter_mut().filter(|c| c.done.is_ok()) {
                let done = match c.name {
                    "poolhouse" => {
                        answer(Command::new(me).arg("work").arg(work.name).arg(pool)).and_then(told)
                    }
                    "peer" => answer(
                        Command::new(self.peer.as_deref().unwrap_or(Path::new(""))).arg(work.name).arg(pool),
                    )
                    .and_then(told),
                    zdb => self.zdb(zdb, pool).map(|took| (took, Value::Null)),
                };
                match done {
                    Ok((took, done)) => {
                        c.rounds.push(took);
                        c.done = Ok(done);
                    }
                    Err(e) => c.done = Err(format!("{e:#}")),
                }
            }
        }
        report(work, pool, &contenders)
    }

    fn zdb(&self, how: &str, pool: &Path) -> Result<Took> {
        let tools = self.tools.as_deref().unwrap_or(Path::new(""));
        let mode = how.trim_start_matches("zdb ");
        let mut command = Command::new(tools.join("sbin/zdb"));
        command.env("LD_LIBRARY_PATH", tools.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)));
        let name = pool_name(pool)?;
        program(command.arg("-e").arg("-p").arg(pool).arg(mode).arg(name))
    }
}

/// Takes the times out of a reply.
fn told(mut answer: Value) -> Result<(Took, Value)> {
    let mut take = |field| {
        let value = answer.get_mut(field).map(Value::take);
        value.and_then(|v| v.as_f64()).with_context(|| format!("its answer lacks {field}"))
    };
    let took = Took { wall_s: take("wall_s")?, cpu_s: take("cpu_s")? };
    if let Some(fields) = answer.as_object_mut() {
        fields.retain(|_, v| !v.is_null());
    }
    Ok((took, answer))
}

/// The name of the pool in a directory.
fn pool_name(dir: &Path) -> Result<String> {
    let scan = poolhouse::spa::discover(&[dir]);
    let candidate = scan.pools.first().with_context(|| format!("no pool in {}", dir.display()))?;
    Ok(candidate.name.clone())
}

fn report(work: Work, pool: &Path, contenders: &[Contender]) -> Value {
    let mut out = Map::new();
    let pool = pool.file_name().unwrap_or_default().to_string_lossy();
    out.insert("work".into(), work.name.into());
    out.insert("pool".into(), pool.into());
    let ours = contenders.first().filter(|c| c.done.is_ok()).map(|c| summary(&c.rounds));
    for (i, c) in contenders.iter().enumerate() {
        let entry = match &c.done {
            Err(why) => json!({ "skipped": why }),
            Ok(done) => {
                let mut entry = summary(&c.rounds);
                if let Some(bytes) = done.get("bytes").and_then(Value::as_f64).filter(|b| *b > 0.0) {
                    let (cpu, wall) = (entry["cpu_s"].as_f64(), entry["wall_s"].as_f64());
                    entry["cpu_s_per_gb"] = json!(cpu.map(|s| round(s / (bytes / 1e9))));
                    entry["mb_per_s"] = json!(wall.filter(|w| *w > 0.0).map(|s| (bytes / 1e6 / s).round()));
                }
                for (name, value) in done.as_object().into_iter().flatten() {
                    entry[name] = value.clone();
                }
                if let (true, Some(ours)) = (i > 0, &ours) {
                    entry["ratio_wall"] = json!(ratio(&entry, ours, "wall_s"));
                    entry["ratio_cpu"] = json!(ratio(&entry, ours, "cpu_s"));
                }
                entry
            }
        };
        out.insert(c.name.into(), entry);
    }
    Value::Object(out)
}

/// How many times as long as ours the other took.
fn ratio(theirs: &Value, ours: &Value, field: &str) -> Option<f64> {
    let (theirs, ours) = (theirs[field].as_f64()?, ours[field].as_f64()?);
    (ours > 0.0).then(|| round(theirs / ours))
}

/// The machine: processor, number of CPUs, load.
pub(crate) fn machine() -> Value {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = text("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|l| l.strip_prefix("model name")).map(|l| l.trim_matches([' ', '\t', ':']));
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({ "cpu": model, "cpus": cpus, "load": text("/proc/loadavg").split(' ').next() })
}
