//! Comparison of mounted file systems: Poolhouse, zfs-fuse, ext4 and a FUSE that does nothing.
//!
//! # Theory
//! A script (`scripts/bench-mount.sh`) mounts each of them anew. It prints the server's process and
//! the directory, and unmounts when its input ends. Then a process of its own drives each [`Group`]
//! on each of them in turns, for several rounds. The report has the medians of the rounds for each
//! operation. It names each file system that is missing on this machine, with the reason.

use crate::drive::Group;
use crate::measure::{answer, median, round};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The compared file systems, in turns; Poolhouse first.
const NAMES: [&str; 4] = ["poolhouse", "zfs-fuse", "ext4", "null"];
/// The goals: how many times as fast as each Poolhouse must be.
const GOALS: [(&str, f64); 3] = [("zfs-fuse", 3.0), ("ext4", 0.8), ("null", 0.8)];

/// A file system that stays mounted until this is dropped.
pub(crate) struct Stand {
    child: Child,
    /// The process that serves it; `None` for the kernel.
    server: Option<u32>,
    dir: PathBuf,
}

impl Stand {
    /// Mounts a file system in the directory `room`, which this creates.
    ///
    /// With `log`, its pool has a log device, if it has a pool.
    pub(crate) fn new(script: &Path, me: &Path, name: &str, room: &Path, log: bool) -> Result<Self> {
        std::fs::create_dir(room).with_context(|| format!("make {}", room.display()))?;
        let said = room.with_extension("said");
        let mut command = Command::new(script);
        command
            .arg(name)
            .arg(room)
            .env("BENCH", me)
            .env("LOG", if log { "1" } else { "" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child =
            command.stderr(File::create(&said)?).spawn().context("start the script that mounts")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it was asked for")?).read_line(&mut line)?;
        let words = std::fs::read_to_string(&said);
        // Best effort, as everything in the scratch directory is temporary.
        let _ = std::fs::remove_file(&said);
        let place = line.trim_end().split_once(' ').and_then(|(pid, dir)| Some((pid.parse().ok()?, dir)));
        let Some((pid, dir)) = place else {
            drop(child.stdin.take());
            child.wait()?;
            anyhow::bail!("{}", words?.lines().last().unwrap_or("it says nothing"));
        };
        Ok(Self { child, server: Some(pid).filter(|pid| *pid != 0), dir: PathBuf::from(dir) })
    }

    /// Where it is mounted.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process that serves it; `None` for the kernel.
    pub(crate) fn server(&self) -> Option<u32> {
        self.server
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The script has already reported its errors.
        let _ = self.child.wait();
    }
}

/// One of the compared file systems.
struct Contender {
    name: &'static str,
    stand: Result<Stand>,
    /// The rounds, by group and phase.
    rounds: BTreeMap<(&'static str, String), Vec<Value>>,
    /// The groups that failed, with the error.
    failed: BTreeMap<&'static str, String>,
}

/// Drives `groups` on every file system that can be mounted, and returns an entry for each phase.
///
/// # Errors
/// The scratch directory can't be used. The report has the failures of single file systems.
pub fn measure(
    script: &Path,
    me: &Path,
    scratch: &Path,
    groups: &[Group],
    rounds: usize,
) -> Result<Vec<Value>> {
    let room = tempfile::Builder::new().prefix("bench-mounts.").tempdir_in(scratch)?;
    let mut contenders = NAMES.map(|name| Contender {
        name,
        stand: Stand::new(script, me, name, &room.path().join(name), false),
        rounds: BTreeMap::new(),
        failed: BTreeMap::new(),
    });
    for _ in 0..rounds {
        for group in groups {
            for contender in &mut contenders {
                contender.drive(me, *group);
            }
        }
    }
    Ok(groups.iter().flat_map(|group| report(*group, &contenders)).collect())
}

impl Contender {
    fn drive(&mut self, me: &Path, group: Group) {
        let Ok(stand) = &self.stand else { return };
        if self.failed.contains_key(group.name) {
            return;
        }
        let mut command = Command::new(me);
        command.arg("drive").arg(group.name).arg(&stand.dir);
        command.arg(stand.server.map_or("0".to_owned(), |pid| pid.to_string()));
        match answer(&mut command) {
            Ok(done) => {
                for phase in done["phases"].as_array().into_iter().flatten() {
                    let name = phase["phase"].as_str().unwrap_or_default().to_owned();
                    self.rounds.entry((group.name, name)).or_default().push(phase.clone());
                }
            }
            Err(error) => {
                self.failed.insert(group.name, format!("{error:#}"));
            }
        }
    }

    /// The medians of its rounds of a phase, or the reason why there are none.
    fn summary(&self, group: Group, phase: &str) -> Value {
        if let Err(why) = &self.stand {
            return json!({ "absent": format!("{why:#}") });
        }
        if let Some(why) = self.failed.get(group.name) {
            return json!({ "failed": why });
        }
        let rounds = self.rounds.get(&(group.name, phase.to_owned())).map_or(&[][..], Vec::as_slice);
        let middle = |of: &dyn Fn(&Value) -> Option<f64>| {
            let mut values: Vec<f64> = rounds.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| round(median(&mut values)))
        };
        let each_us = |field: &'static str| {
            middle(&move |r| Some(r[field].as_f64()? * 1e6 / r["ops"].as_f64().filter(|n| *n > 0.0)?))
        };
        let mut out = Map::new();
        let mut put = |name: &str, value: Option<f64>| value.map(|v| out.insert(name.to_owned(), json!(v)));
        let us = each_us("wall_s");
        put("us", us);
        put("per_s", us.filter(|us| *us > 0.0).map(|us| (1e6 / us).round()));
        put("mb_per_s", middle(&|r| Some((r["bytes"].as_f64()? / 1e6 / r["wall_s"].as_f64()?).round())));
        put("client_cpu_us", each_us("client_cpu_s"));
        put("server_cpu_us", each_us("server_cpu_s"));
        for field in ["p50_us", "p99_us", "sync_s"] {
            put(field, middle(&|r| r[field].as_f64()));
        }
        Value::Object(out)
    }
}

fn report(group: Group, contenders: &[Contender]) -> Vec<Value> {
    let mut phases: Vec<&str> = Vec::new();
    for phase in contenders.iter().flat_map(|c| c.rounds.iter()).filter(|((g, _), _)| *g == group.name) {
        if !phases.contains(&phase.0.1.as_str()) {
            phases.push(&phase.0.1);
        }
    }
    phases.into_iter().map(|phase| entry(group, phase, contenders)).collect()
}

/// The report of a phase: the figures of all file systems, the ratio of each to Poolhouse's, and
/// the goals that are met.
fn entry(group: Group, phase: &str, contenders: &[Contender]) -> Value {
    let mut out = Map::new();
    out.insert("work".into(), group.name.into());
    out.insert("phase".into(), phase.into());
    let mut met = Vec::new();
    let ours = contenders.first().map(|c| c.summary(group, phase)).unwrap_or_default();
    let cpu = |v: &Value| Some(v["client_cpu_us"].as_f64()? + v["server_cpu_us"].as_f64()?);
    for contender in contenders {
        let mut theirs = contender.summary(group, phase);
        let times = |a: Option<f64>, b: Option<f64>| Some(round(a? / b.filter(|b| *b > 0.0)?));
        if contender.name != NAMES[0] {
            let pace = times(theirs["us"].as_f64(), ours["us"].as_f64());
            if let Some(pace) = pace {
                theirs["ratio"] = json!(pace);
                theirs["ratio_cpu"] = json!(times(cpu(&theirs), cpu(&ours)));
            }
            let goal = GOALS.iter().find(|(name, _)| *name == contender.name);
            if goal.zip(pace).is_some_and(|((_, goal), pace)| pace >= *goal) {
                met.push(contender.name);
            }
        }
        out.insert(contender.name.into(), theirs);
    }
    out.insert("met_beside".into(), json!(met));
    Value::Object(out)
}
