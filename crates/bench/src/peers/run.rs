//! Everybody asked in turns.

use super::cases::{Case, Places, Scale, cases};
use super::report::Report;
use super::{Answer, Knobs, Workload};
use crate::images::Images;
use crate::measure::{answer, median};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// See the module.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where images lie.
    pub places: Places,
    /// How much is done.
    pub scale: Scale,
    /// Rounds; the medians count.
    pub rounds: usize,
    /// The peer's program; without it ours is measured alone.
    pub peer: Option<PathBuf>,
    /// What the peer is, in words.
    pub peer_name: String,
    /// The day, for the record.
    pub date: String,
    /// The command that asked for this run, for the record.
    pub command: String,
    /// Groups of workloads; all if there are none.
    pub groups: Vec<String>,
}

/// What one side said, round by round.
#[derive(Debug, Default)]
pub(super) struct Side {
    rounds: Vec<Answer>,
    /// Why it said nothing.
    pub(super) failed: Option<String>,
}

impl Side {
    fn ask(&mut self, command: &mut Command) {
        if self.failed.is_some() {
            return;
        }
        match answer(command).and_then(|value| Answer::of_json(&value)) {
            Ok(one) => self.rounds.push(one),
            Err(e) => self.failed = Some(format!("{e:#}")),
        }
    }

    /// The median of each figure, and the curves of the last round.
    pub(super) fn medians(&self) -> Answer {
        let mut all: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
        for (name, value) in self.rounds.iter().flat_map(|r| &r.figures) {
            all.entry(name).or_default().push(*value);
        }
        let figures = all.into_iter().map(|(name, mut values)| (name.clone(), median(&mut values))).collect();
        Answer { figures, curves: self.rounds.last().map(|r| r.curves.clone()).unwrap_or_default() }
    }
}

impl Run {
    /// Measures everything that is asked for.
    ///
    /// # Errors
    /// When not even this program can be found. What goes wrong with a workload is in the report.
    pub fn run(&self) -> Result<Report> {
        let me = std::env::current_exe().context("find this program")?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut report = Report::new(self, cpus);
        for case in cases(&self.places, self.scale, cpus) {
            if !self.groups.is_empty() && !self.groups.iter().any(|g| g == case.group || *g == case.title) {
                continue;
            }
            let (mut ours, mut peers) = (Side::default(), Side::default());
            let (case, _images) = self.prepared(case, &me, &mut ours)?;
            for _ in 0..if case.once { 1 } else { self.rounds } {
                if case.mounted {
                    ours.ask(command(&mut Command::new(&me), &["peers", "mount", "poolhouse"], &case));
                    peers.ask(command(&mut Command::new(&me), &["peers", "mount", "zfs-fuse"], &case));
                    continue;
                }
                ours.ask(command(&mut Command::new(&me), &["peers", "work"], &case));
                if let Some(peer) = &self.peer {
                    peers.ask(command(&mut Command::new(peer), &[], &case));
                }
            }
            report.add(&case, &ours, &peers);
        }
        Ok(report)
    }
}

impl Run {
    /// A workload with the images that both sides need; if they can't be made that is ours which failed. They are there until what this gives is dropped.
    fn prepared(&self, mut case: Case, me: &Path, ours: &mut Side) -> Result<(Case, Option<Images>)> {
        let Some(word) = case.made_by else { return Ok((case, None)) };
        case.knobs.push(format!("image={}-{}", case.title, std::process::id()));
        let images =
            super::scrub::images(&case.dir, &Knobs::parse(Workload::by_name(word)?.knobs(), &case.knobs)?)?;
        let making = Case { work: word, ..case.clone() };
        if let Err(e) = answer(command(&mut Command::new(me), &["peers", "work"], &making)) {
            ours.failed = Some(format!("make its images: {e:#}"));
        }
        Ok((case, Some(images)))
    }
}

fn command<'a>(command: &'a mut Command, words: &[&str], case: &Case) -> &'a mut Command {
    command.args(words).arg(case.work).arg(&case.dir);
    command.arg(format!("title={}", case.title)).args(&case.knobs)
}
