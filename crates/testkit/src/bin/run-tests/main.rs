//! Runs each test in a process of its own, with a time limit. Failed tests can run again, alone.
//!
//! Usage: `run-tests [--jobs N] [--limit SECONDS] [--retry] [--rounds N] [--any] --out DIR
//! [FILTER...] < MESSAGES`
//!
//! # Theory
//! `MESSAGES` is the output of `cargo test --no-run --message-format=json`. It names the test
//! programs. Each program lists its tests. A test in a process of its own shares no counters,
//! limits or threads with others. If it hangs, it ends alone.
//!
//! * `--jobs N`: how many tests run at once. The default is the number of processors.
//! * `--limit SECONDS`: how long a test may take.
//! * `--retry`: a failed test runs again after all others. If it passes then, it is `FLAKY`, and
//!   the run has not failed.
//! * `--rounds N`: all tests run so many times. The run lists tests that passed in one round and
//!   failed in another.
//! * `--any`: a run without a matching test is no failure.
//! * `--out DIR`: the directory for the output of failures, and for the list of flaky tests
//!   (`DIR/list`).
//!
//! The name of a test is its program and its path there: `spa::it scan::pauses`. A filter is a part
//! of the name. `=NAME` is the whole name.
//!
//! # Absent
//! Tests in documentation: `cargo test --doc` runs them.

mod cases;
mod process;
mod report;

use cases::Case;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The default time limit of a test.
const LIMIT: Duration = Duration::from_secs(300);

/// The options of the command line.
struct Options {
    jobs: usize,
    limit: Duration,
    retry: bool,
    any: bool,
    rounds: u32,
    out: PathBuf,
    filters: Vec<String>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Self {
            jobs,
            limit: LIMIT,
            retry: false,
            any: false,
            rounds: 1,
            out: PathBuf::new(),
            filters: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| {
                let number = text.parse::<u32>().ok().filter(|n| *n > 0);
                number.ok_or_else(|| format!("{text} is no number above 0"))
            };
            match word.as_str() {
                "--jobs" => options.jobs = number(value()?)? as usize,
                "--limit" => options.limit = Duration::from_secs(number(value()?)?.into()),
                "--rounds" => options.rounds = number(value()?)?,
                "--out" => options.out = value()?.into(),
                "--retry" => options.retry = true,
                "--any" => options.any = true,
                word if word.starts_with('-') => return Err(format!("there is no option {word}")),
                _ => options.filters.push(word),
            }
        }
        if options.out.as_os_str().is_empty() { Err("--out is missing".into()) } else { Ok(options) }
    }

    fn wants(&self, case: &Case) -> bool {
        let name = case.name();
        let is = |filter: &String| match filter.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(filter.as_str()),
        };
        self.filters.is_empty() || self.filters.iter().any(is)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| run(&options));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            let _ = writeln!(io::stderr(), "run-tests: {why}");
            ExitCode::from(2)
        }
    }
}

/// Runs the selected tests. Returns whether all of them passed.
fn run(options: &Options) -> Result<bool, String> {
    std::fs::create_dir_all(&options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;
    let programs = cases::programs(BufReader::new(io::stdin().lock()))?;
    let mut all = Vec::new();
    for program in &programs {
        all.extend(program.cases()?);
    }
    let (ignored, cases): (Vec<Case>, Vec<Case>) =
        all.into_iter().filter(|case| options.wants(case)).partition(|case| case.ignored);
    if cases.is_empty() && options.any {
        return Ok(true);
    }
    if cases.is_empty() {
        return Err("no test has such a name".into());
    }
    report::clear(&options.out)?;
    let began = Instant::now();
    let mut rounds = report::Rounds::default();
    for round in 1..=options.rounds {
        let ran = process::run_all(&cases, options.jobs, options.limit);
        let failed: Vec<&Case> = ran.iter().filter(|ran| !ran.passed()).map(|ran| ran.case).collect();
        let again = if options.retry { process::run_all(&failed, 1, options.limit) } else { Vec::new() };
        for (ran, alone) in ran.iter().map(|ran| (ran, "")).chain(again.iter().map(|ran| (ran, ".alone"))) {
            report::keep(&options.out, &format!("{round}{alone}"), ran)?;
        }
        rounds.add(&ran, &again);
    }
    rounds.end(&options.out, began.elapsed(), ignored.len())
}
