//! What comes of a run: a table, lists, and plots.

use super::Answer;
use super::cases::Case;
use super::goals::Row;
use super::plot::{Plot, Scale};
use super::run::{Run, Side};
use crate::measure::round;
use crate::plan::machine;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// See the module.
#[derive(Debug)]
pub struct Report {
    machine: Value,
    peer: String,
    rounds: usize,
    cpus: usize,
    ours: Answer,
    theirs: Answer,
    /// Titles of workloads that failed, whose side, and why.
    failed: Vec<(String, &'static str, String)>,
}

impl Report {
    pub(super) fn new(run: &Run, cpus: usize) -> Report {
        let (ours, theirs, failed) = Default::default();
        Report {
            machine: machine(),
            peer: run.peer_name.clone(),
            rounds: run.rounds,
            cpus,
            ours,
            theirs,
            failed,
        }
    }

    pub(super) fn add(&mut self, case: &Case, ours: &Side, theirs: &Side) {
        for (who, side) in [("ours", ours), ("the peer's", theirs)] {
            if let Some(why) = &side.failed {
                self.failed.push((case.title.clone(), who, why.clone()));
            }
        }
        self.ours.extend(ours.medians());
        self.theirs.extend(theirs.medians());
    }

    fn rows(&self) -> Vec<Row> {
        let both = self.ours.figures.iter().filter_map(|(name, ours)| {
            let peer = self.theirs.figures.get(name)?;
            Row::new(name, round(*ours), round(*peer))
        });
        both.collect()
    }

    /// Whether everything was measured.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    /// The list of rows, for programs.
    pub fn list(&self) -> Value {
        self.rows().iter().map(Row::to_json).collect()
    }

    /// Everything that was measured.
    pub fn whole(&self) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(title, who, why)| json!({ "workload": title, "whose": who, "why": why }))
            .collect();
        json!({
            "machine": self.machine,
            "peer": self.peer,
            "rounds": self.rounds,
            "failed": failed,
            "ours": self.ours.to_json(),
            "theirs": self.theirs.to_json(),
        })
    }

    /// The table, for people.
    pub fn table(&self) -> String {
        let mut out = format!(
            "# Beside the peer\n\nMade by `make bench-peers`. Peer: {}. {} CPUs ({}), load {} when it began; medians of {} rounds in turns.\nA ratio above 1 is ours ahead.\n\n",
            self.peer,
            self.cpus,
            self.machine["cpu"].as_str().unwrap_or("unknown"),
            self.machine["load"].as_str().unwrap_or("unknown"),
            self.rounds
        );
        out.push_str(
            "| workload | ours | peer | unit | ratio | goal | met |\n|---|---|---|---|---|---|---|\n",
        );
        for row in self.rows() {
            let met = if row.is_met() { "yes" } else { "no" };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {:.2} | {} | {met} |",
                row.workload,
                short(row.ours),
                short(row.peer),
                row.unit,
                row.ratio(),
                row.goal
            );
        }
        let alone = self.ours.figures.iter().filter(|(name, _)| !self.theirs.figures.contains_key(*name));
        out.push_str("\nOurs alone:\n\n| figure | value |\n|---|---|\n");
        for (name, value) in alone {
            let _ = writeln!(out, "| {name} | {} |", short(round(*value)));
        }
        for (title, who, why) in &self.failed {
            let _ = writeln!(out, "\nNot measured: {title}, {who}: {why}");
        }
        out
    }

    /// Writes all of it into a folder.
    ///
    /// # Errors
    /// As writing fails.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let put = |name: &str, text: String| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        put("peers.json", format!("{:#}\n", self.list()))?;
        put("peers-run.json", format!("{}\n", self.whole()))?;
        put("peers.md", self.table())?;
        for (name, plot) in self.plots() {
            put(&name, plot.svg())?;
        }
        Ok(())
    }

    fn plots(&self) -> Vec<(String, Plot)> {
        let mut out = Vec::new();
        for title in
            ["cached-read", "cached-read-large", "fsync-storm-disk", "fsync-storm-memory", "fsync-storm-5ms"]
        {
            let mut plot = Plot::new(&format!("{title}: operations/s by threads"), "threads", "operations/s");
            plot.x = Scale::Log2;
            for (who, side) in self.sides() {
                plot.line(who, by_threads(side, title));
            }
            if title.starts_with("cached") {
                plot.line("ours, by reference", by_threads(&self.ours, &format!("{title}-by-reference")));
            }
            out.push((format!("{title}-by-threads.svg"), plot));
        }
        for title in ["fsync-storm-disk", "fsync-storm-memory", "fsync-storm-5ms"] {
            let mut plot = Plot::new(&format!("{title}: latency of a commit"), "µs", "share done");
            plot.x = Scale::Log10;
            for (who, side) in self.sides() {
                for threads in [1, 8, 64] {
                    if let Some(curve) = side.curves.get(&format!("{title}.t{threads}.latency_us")) {
                        plot.line(&format!("{who}, {threads}"), curve.clone());
                    }
                }
            }
            out.push((format!("{title}-latency.svg"), plot));
        }
        let mut plot = Plot::new("freeing one block amid cached ones", "cached blocks", "µs of CPU");
        plot.x = Scale::Log10;
        for (who, side) in self.sides() {
            let points = side.figures.iter().filter_map(|(name, value)| {
                let count = name.strip_prefix("free-")?.strip_suffix(".one_cpu_us")?;
                Some((count.parse().ok()?, *value))
            });
            plot.line(who, sorted(points.collect()));
        }
        out.push(("free-by-cached-blocks.svg".to_owned(), plot));
        out.retain(|(_, plot)| !plot.is_empty());
        out
    }

    fn sides(&self) -> [(&'static str, &Answer); 2] {
        [("ours", &self.ours), ("peer", &self.theirs)]
    }
}

fn sorted(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Operations a second of a workload by its threads.
fn by_threads(side: &Answer, title: &str) -> Vec<(f64, f64)> {
    let points = side.figures.iter().filter_map(|(name, value)| {
        let threads = name.strip_prefix(title)?.strip_prefix(".t")?.strip_suffix(".ops_s")?;
        Some((threads.parse().ok()?, *value))
    });
    sorted(points.collect())
}

/// A number as people read it.
fn short(v: f64) -> String {
    match v.abs() {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.3}"),
    }
}
