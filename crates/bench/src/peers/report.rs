//! The result of a run: a table, lists, and plots.

use super::Answer;
use super::cases::Case;
use super::goals::Row;
use super::plot::{Plot, Scale};
use super::run::{Run, Side};
use crate::measure::round;
use crate::plan::machine;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The workloads that have plots, by the kind of plot.
const CACHED: &[&str] = &["cached-read", "cached-read-large"];
const STORMS: &[&str] = &["fsync-storm-disk", "fsync-storm-memory", "fsync-storm-5ms"];
const MOUNTED: &[&str] = &["fuse-read-cold", "fuse-read-hot", "mail", "mail-log-device"];

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    machine: Value,
    peer: String,
    date: String,
    command: String,
    rounds: usize,
    cpus: usize,
    ours: Answer,
    theirs: Answer,
    /// The failures: the title of the workload, the side, and the reason.
    failed: Vec<(String, &'static str, String)>,
}

impl Report {
    pub(super) fn new(run: &Run, cpus: usize) -> Report {
        let (ours, theirs, failed) = Default::default();
        Report {
            machine: machine(),
            peer: run.peer_name.clone(),
            date: run.date.clone(),
            command: run.command.clone(),
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

    /// Whether every workload was measured.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    /// The list of rows, for programs.
    pub fn list(&self) -> Value {
        self.rows().iter().map(Row::to_json).collect()
    }

    /// All measured figures.
    pub fn whole(&self) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(title, who, why)| json!({ "workload": title, "whose": who, "why": why }))
            .collect();
        json!({
            "machine": self.machine,
            "peer": self.peer,
            "date": self.date,
            "command": self.command,
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
        out.push_str(&self.scaling());
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

    /// How reads from memory scale with the number of threads, beside plain copies, which share
    /// nothing.
    fn scaling(&self) -> String {
        let mut out = "\nHow much of one thread's pace each keeps with as many threads as processors, and how much of all their pace is left with twice as many:\n\n| workload | each | all |\n|---|---|---|\n".to_owned();
        for title in CACHED
            .iter()
            .flat_map(|t| ["", "-by-reference", "-memory-control"].map(|end| format!("{t}{end}")))
        {
            let pace = |threads: usize| self.ours.figures.get(&format!("{title}.t{threads}.ops_s"));
            if let (Some(one), Some(each), Some(twice)) = (pace(1), pace(self.cpus), pace(self.cpus * 2)) {
                let kept = each / one / self.cpus as f64 * 100.0;
                let _ = writeln!(out, "| {title} | {kept:.0} % | {:.0} % |", twice / each * 100.0);
            }
        }
        out
    }

    /// Writes figures and plots into a directory. `scripts/results.py` makes the page about them.
    ///
    /// # Errors
    /// The directory or a file can't be created or written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let put = |name: &str, text: String| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        put("peers.json", format!("{:#}\n", self.list()))?;
        put("peers-run.json", format!("{}\n", self.whole()))?;
        for (name, plot) in self.plots() {
            put(&name, plot.svg())?;
        }
        Ok(())
    }

    fn plots(&self) -> Vec<(String, Plot)> {
        let mut out = Vec::new();
        for title in CACHED.iter().chain(STORMS).chain(MOUNTED) {
            let mut plot = Plot::new(&format!("{title}: operations/s by threads"), "threads", "operations/s");
            plot.x = Scale::Log2;
            for (who, side) in self.sides() {
                plot.line(who, by_threads(side, title));
            }
            for (name, end) in [("ours, by reference", "-by-reference"), ("memory copy", "-memory-control")] {
                plot.line(name, by_threads(&self.ours, &format!("{title}{end}")));
            }
            out.push((format!("{title}-by-threads.svg"), plot));
        }
        for title in STORMS.iter().chain(MOUNTED) {
            let mut plot = Plot::new(&format!("{title}: latency"), "µs", "share done");
            plot.x = Scale::Log10;
            for (who, side) in self.sides() {
                let start = format!("{title}.t");
                let curves = side.curves.iter().filter_map(|(name, curve)| {
                    let threads = name.strip_prefix(&start)?.strip_suffix(".latency_us")?;
                    Some((threads.parse::<usize>().ok()?, curve))
                });
                for (threads, curve) in curves.collect::<BTreeMap<_, _>>() {
                    plot.line(&format!("{who}, {threads}"), curve.clone());
                }
            }
            out.push((format!("{title}-latency.svg"), plot));
        }
        for (name, title, figure, scale) in [
            ("free-by-cached-blocks", "freeing one block amid cached ones: µs of CPU", "one_cpu_us", None),
            (
                "free-all-by-cached-blocks",
                "freeing a whole object: µs of CPU a block",
                "all_cpu_s",
                Some(1e6),
            ),
        ] {
            let mut plot = Plot::new(title, "cached blocks", "µs");
            plot.x = Scale::Log10;
            for (who, side) in self.sides() {
                let points = side.figures.iter().filter_map(|(name, value)| {
                    let count: f64 =
                        name.strip_prefix("free-")?.strip_suffix(figure)?.strip_suffix('.')?.parse().ok()?;
                    Some((count, scale.map_or(*value, |s| value * s / count)))
                });
                plot.line(who, sorted(points.collect()));
            }
            out.push((format!("{name}.svg"), plot));
        }
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

/// Operations per second of a workload, by its number of threads.
fn by_threads(side: &Answer, title: &str) -> Vec<(f64, f64)> {
    let points = side.figures.iter().filter_map(|(name, value)| {
        let threads = name.strip_prefix(title)?.strip_prefix(".t")?.strip_suffix(".ops_s")?;
        Some((threads.parse().ok()?, *value))
    });
    sorted(points.collect())
}

/// A number, rounded for people.
fn short(v: f64) -> String {
    match v.abs() {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(figures: &[(&str, f64)]) -> Report {
        let ours = Answer {
            figures: figures.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect(),
            ..Answer::default()
        };
        let (theirs, failed) = (ours.clone(), Vec::new());
        Report {
            machine: Value::Null,
            peer: String::new(),
            date: String::new(),
            command: String::new(),
            rounds: 1,
            cpus: 2,
            ours,
            theirs,
            failed,
        }
    }

    /// Goal: the table shows how much of its pace a thread keeps beside others. It also shows how
    /// much of the total is left with more threads than processors.
    #[test]
    fn threads_beside_each_other() {
        let figures = [
            ("cached-read.t1.ops_s", 100.0),
            ("cached-read.t2.ops_s", 180.0),
            ("cached-read.t4.ops_s", 171.0),
        ];
        assert!(
            report(&figures).table().contains("| cached-read | 90 % | 95 % |"),
            "{}",
            report(&figures).table()
        );
        assert!(!report(&figures[..2]).table().contains("| cached-read | 9"));
    }

    /// Goal: measured figures are plotted, and nothing else. A whole object is plotted by the cost
    /// of a block.
    #[test]
    fn plotted() {
        let names = |figures: &[(&str, f64)]| {
            let plots = report(figures).plots().into_iter();
            plots.map(|(name, plot)| (name, plot.svg())).collect::<Vec<_>>()
        };
        let plots = names(&[("mail.t1.ops_s", 5.0), ("free-1000.all_cpu_s", 0.001)]);
        let found: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["mail-by-threads.svg", "free-all-by-cached-blocks.svg"]);
        // A microsecond for each block: the top grid line.
        assert!(plots[1].1.contains("points=\"80.0,40.0\""), "{}", plots[1].1);
        assert!(names(&[]).is_empty());
    }
}
