//! Tests as processes.

use crate::cases::Case;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two checks of a process.
const LOOK: Duration = Duration::from_millis(5);
/// How long the runner waits for a killed process to end.
const END: Duration = Duration::from_secs(10);
/// How many bytes of a test's output are kept: its end.
const OUTPUT_MAX: u64 = 256 << 10;
/// The most bytes that a test may print.
const PRINTED_MAX: u64 = 256 << 20;

/// A test that has run.
pub struct Ran<'c> {
    pub case: &'c Case,
    pub took: Duration,
    /// The failure, if it failed.
    pub failure: Option<Failure>,
}

/// The failure of a test.
pub struct Failure {
    /// How the test ended.
    pub why: String,
    /// The end of its output.
    pub output: String,
}

impl Ran<'_> {
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// Runs tests, `jobs` at a time.
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

/// A test, or a reference to one.
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
        Ok((mut child, mut output)) => match wait(&mut child, &output, limit) {
            Ok(status) if status.success() => None,
            Ok(status) => failed(status.to_string(), text(&mut output)),
            Err(why) => failed(why, text(&mut output)),
        },
    };
    Ran { case, took: began.elapsed(), failure }
}

/// Starts a test. Its output goes to a file, not to a pipe: a background process that the test
/// leaves behind may keep a pipe open.
///
/// The test stays in the process group of this process. So an interrupt of the run also interrupts
/// the tests.
fn start(case: &Case) -> io::Result<(Child, File)> {
    let output = tempfile::tempfile()?;
    let mut command = case.command();
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    Ok((command.spawn()?, output))
}

/// Waits until a test ends.
///
/// A test that takes too long or prints too much is killed, with its children.
///
/// # Errors
/// A message: the limit that was exceeded, or the error of waiting.
fn wait(child: &mut Child, output: &File, limit: Duration) -> Result<ExitStatus, String> {
    let began = Instant::now();
    let ended = |child: &mut Child| child.try_wait().map_err(|e| format!("it can't be waited for: {e}"));
    let why = loop {
        if let Some(status) = ended(child)? {
            return Ok(status);
        }
        if began.elapsed() >= limit {
            break format!("it did not end in {} s", limit.as_secs());
        }
        if output.metadata().is_ok_and(|meta| meta.len() > PRINTED_MAX) {
            break format!("it printed more than {} MiB", PRINTED_MAX >> 20);
        }
        thread::sleep(LOOK);
    };
    for pid in family(child.id()) {
        // The process may have ended meanwhile.
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
    let killed = Instant::now();
    while ended(child)?.is_none() {
        if killed.elapsed() >= END {
            return Err(format!("{why}, and can't be ended"));
        }
        thread::sleep(LOOK);
    }
    Err(why)
}

/// A process and its descendants, as long as their parents still run.
fn family(pid: u32) -> Vec<Option<Pid>> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name comes before this in parentheses, and may contain parentheses itself.
        text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(one) = family.get(at).copied() {
        family.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid));
        at += 1;
    }
    family.into_iter().map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw)).collect()
}

/// The end of the output.
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

/// Prints a line about a test, with its output if it failed.
fn say(ran: &Ran) {
    let mut out = io::stdout().lock();
    let (name, took) = (ran.case.name(), ran.took.as_secs_f64());
    // The reader may be gone. That must not end the run.
    let _ = match &ran.failure {
        None => writeln!(out, "test {name} ... ok ({took:.2} s)"),
        Some(Failure { why, output }) => {
            writeln!(out, "test {name} ... FAILED ({took:.2} s): {why}\n{output}")
        }
    };
}
