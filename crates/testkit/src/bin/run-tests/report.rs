//! The results of a run.

use crate::process::Ran;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// The results of each test.
#[derive(Default)]
pub struct Rounds {
    tests: BTreeMap<String, Fate>,
}

#[derive(Default)]
struct Fate {
    passed: u32,
    failed: u32,
    /// Number of failures that passed when the test ran alone.
    forgiven: u32,
    slowest: Duration,
}

impl Fate {
    /// Whether it passed in one round, and failed in another or passed only alone.
    fn wavers(&self) -> bool {
        self.forgiven > 0 || self.passed > 0 && self.failed > 0
    }
}

/// Removes the output of an earlier run.
///
/// # Errors
/// A message: the directory can't be read, or a file can't be removed.
pub fn clear(out: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", out.display());
    for entry in std::fs::read_dir(out).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "log") {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Writes the output of a failure to a file.
///
/// # Errors
/// A message: the file can't be written.
pub fn keep(out: &Path, round: &str, ran: &Ran) -> Result<(), String> {
    let Some(failure) = &ran.failure else { return Ok(()) };
    let name = ran.case.name();
    let word = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let file = out.join(format!("{}.{round}.log", name.chars().map(word).collect::<String>()));
    let text = format!("{name}: {}\n{}", failure.why, failure.output);
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

impl Rounds {
    /// Adds a round, and the tests of it that ran again, alone.
    pub fn add(&mut self, ran: &[Ran], again: &[Ran]) {
        for ran in ran {
            let name = ran.case.name();
            let alone = again.iter().find(|other| other.case.name() == name);
            let fate = self.tests.entry(name).or_default();
            fate.slowest = fate.slowest.max(ran.took);
            match (ran.passed(), alone.map(Ran::passed)) {
                (true, _) => fate.passed += 1,
                (false, Some(true)) => fate.forgiven += 1,
                (false, _) => fate.failed += 1,
            }
        }
    }

    /// Prints the results. Returns whether no test has failed.
    ///
    /// # Errors
    /// A message: the list of flaky tests, or standard output, can't be written.
    pub fn end(&self, out: &Path, took: Duration, ignored: usize) -> Result<bool, String> {
        let wavering: Vec<String> = self
            .tests
            .iter()
            .filter(|(_, fate)| fate.wavers())
            .map(|(name, fate)| {
                let runs = fate.passed + fate.failed + fate.forgiven;
                format!("FLAKY {name}: failed {} of {runs} times", fate.failed + fate.forgiven)
            })
            .collect();
        let list = out.join("list");
        let text: String = wavering.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&list, text).map_err(|e| format!("{}: {e}", list.display()))?;
        let failed: Vec<&String> =
            self.tests.iter().filter(|(_, fate)| fate.failed > 0).map(|(name, _)| name).collect();
        self.print(&wavering, &failed, took, ignored).map_err(|e| format!("standard output: {e}"))?;
        Ok(failed.is_empty())
    }

    fn print(
        &self,
        wavering: &[String],
        failed: &[&String],
        took: Duration,
        ignored: usize,
    ) -> io::Result<()> {
        let mut to = io::stdout().lock();
        let mut slowest: Vec<(&String, Duration)> =
            self.tests.iter().map(|(name, fate)| (name, fate.slowest)).collect();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        writeln!(to, "\nthe slowest tests:")?;
        for (name, took) in slowest.into_iter().take(SLOWEST) {
            writeln!(to, "  {:6.1} s  {name}", took.as_secs_f64())?;
        }
        for line in wavering {
            writeln!(to, "{line}")?;
        }
        for name in failed {
            writeln!(to, "FAILED {name}")?;
        }
        let word = if failed.is_empty() { "ok" } else { "FAILED" };
        writeln!(
            to,
            "test result: {word}. {} passed; {} failed; {ignored} ignored; finished in {:.1}s",
            self.tests.len() - failed.len(),
            failed.len(),
            took.as_secs_f64()
        )
    }
}
