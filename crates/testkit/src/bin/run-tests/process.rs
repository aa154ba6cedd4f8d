//! Tests as processes.

use crate::cases::Case;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process is let alone before it is looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// The most of a test's output that is kept, bytes: its end.
const OUTPUT_MAX: u64 = 256 << 10;

/// A test that ran.
pub struct Ran<'c> {
    pub case: &'c Case,
    pub took: Duration,
    /// What is wrong, if it failed.
    pub failure: Option<Failure>,
}

/// What is wrong with a test.
pub struct Failure {
    /// How it ended.
    pub why: String,
    /// What it printed.
    pub output: String,
}

impl Ran<'_> {
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// Runs tests, so many at a time.
pub fn run_all<'c, C: AsCase + Sync>(cases: &'c [C], jobs: usize, limit: Duration) -> Vec<Ran<'c>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ran = run(case.as_case(), limit);
            say(&ran);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(ran);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Something that is a test.
pub trait AsCase {
    fn as_case(&self) -> &Case;
}

impl AsCase for Case {
    fn as_case(&self) -> &Case {
        self
    }
}

impl AsCase for &Case {
    fn as_case(&self) -> &Case {
        self
    }
}

fn run(case: &Case, limit: Duration) -> Ran<'_> {
    let began = Instant::now();
    let failed = |why: String, output: String| Some(Failure { why, output });
    let failure = match start(case) {
        Err(error) => failed(format!("it can't be started: {error}"), String::new()),
        Ok((mut child, mut output)) => match wait(&mut child, began + limit) {
            Ok(Some(status)) if status.success() => None,
            Ok(Some(status)) => failed(status.to_string(), text(&mut output)),
            Ok(None) => failed(format!("it did not end in {} s", limit.as_secs()), text(&mut output)),
            Err(error) => failed(format!("it can't be waited for: {error}"), text(&mut output)),
        },
    };
    Ran { case, took: began.elapsed(), failure }
}

/// Starts a test. What it prints goes to a file: what it leaves behind in the background may hold that open.
fn start(case: &Case) -> io::Result<(Child, File)> {
    let output = tempfile::tempfile()?;
    let mut command = case.command();
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    // All that it starts ends with it.
    Ok((command.process_group(0).spawn()?, output))
}

/// Waits for a test to end; after the limit it is killed with what it started, and `None` comes back.
fn wait(child: &mut Child, limit: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= limit {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// The end of what was printed.
fn text(output: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = output.seek(SeekFrom::End(0)).and_then(|end| {
        output.seek(SeekFrom::Start(end.saturating_sub(OUTPUT_MAX)))?;
        output.read_to_end(&mut bytes)
    });
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if let Err(error) = read {
        text.push_str(&format!("\n(its output can't be read: {error})\n"));
    }
    text
}

/// One line for a test, with its output if it failed.
fn say(ran: &Ran) {
    let mut out = io::stdout().lock();
    let (name, took) = (ran.case.name(), ran.took.as_secs_f64());
    // Nobody may be left to read it.
    let _ = match &ran.failure {
        None => writeln!(out, "test {name} ... ok ({took:.2} s)"),
        Some(Failure { why, output }) => {
            writeln!(out, "test {name} ... FAILED ({took:.2} s): {why}\n{output}")
        }
    };
}
