//! Running both sides in turns.

use super::cases::{Case, Places, Scale, cases};
use super::report::Report;
use super::{Answer, Knobs, Workload};
use crate::images::Images;
use crate::measure::{answer, median};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A run of the comparison.
#[derive(Debug, Clone)]
pub struct Run {
    /// The directories of images.
    pub places: Places,
    /// How large the workloads are.
    pub scale: Scale,
    /// Number of rounds. The report has the medians.
    pub rounds: usize,
    /// The peer's program. Without it, only ours is measured.
    pub peer: Option<PathBuf>,
    /// The name of the peer, in words.
    pub peer_name: String,
    /// The date, for the record.
    pub date: String,
    /// The command of this run, for the record.
    pub command: String,
    /// The groups or titles to run; all if empty.
    pub groups: Vec<String>,
}

/// The results of one side, by round.
#[derive(Debug, Default)]
pub(super) struct Side {
    rounds: Vec<Answer>,
    /// Why there are no more results.
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
    /// Runs all requested workloads.
    ///
    /// # Errors
    /// The path of this program is unknown, or a case has an invalid setting. The report has the
    /// failures of single workloads.
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
    /// Creates the images that both sides need, and adds their name to the settings.
    ///
    /// If that fails, our side counts as failed. Dropping the returned images removes them.
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
