//! The daemon's messages, and their limits.
//!
//! # Theory
//! Unknown clients can cause messages: a refused request and a broken connection are both logged.
//! So the log has limits, and a log that fails stops nothing:
//!
//! 1. A message is one line of at most [`LINE_MAX`] bytes. Control characters in it are escaped.
//! 2. Each place in the code may log [`BURST`] messages at once, and [`RATE`] a second from then
//!    on. The next message of that place reports how many were left out. One place can't silence
//!    another.
//! 3. The log file of a daemon in the background holds at most [`FILE_MAX`] bytes. Then it becomes
//!    `log.old`, and replaces the one before. While a new file can't be opened, messages are
//!    dropped.
//! 4. A message that can't be written is dropped. Causes are a dead or slow reader of a pipe, a
//!    full file system, or the limit of file sizes. Writing neither waits nor panics.
//!
//! # Absent
//! Messages of the level `debug` and below have no rate: only the daemon's owner can enable them.

use crate::control::service_manager;
use observe::lock::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of one message. A pipe takes this much as a whole or not at all (`PIPE_BUF`).
const LINE_MAX: usize = 4096;
/// How many messages of one place in the code may pass at once.
const BURST: f64 = 200.0;
/// How many messages of one place in the code may pass each second after that.
const RATE: f64 = 5.0;
/// Most bytes of the log file, and of the one before it.
const FILE_MAX: u64 = 2 << 20;

/// Sends the daemon's messages to standard error, from the level in `POOLHOUSE_LOG` on (default
/// `info`).
///
/// With `file`, that file becomes standard error. If it can't be opened, standard error stays.
pub(crate) fn start(file: Option<PathBuf>) {
    let level = std::env::var("POOLHOUSE_LOG").ok().and_then(|level| level.parse().ok());
    let level = level.unwrap_or(tracing::level_filters::LevelFilter::INFO);
    let opened = file.as_deref().map(to_standard_error);
    let failed = opened.and_then(Result::err);
    let file = file.filter(|_| failed.is_none());
    let log = Log {
        journal: file.is_none() && service_manager::is_journal(),
        file,
        places: Mutex::default(),
        turn: Mutex::default(),
    };
    let journal = log.journal;
    let lines = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).log_internal_errors(false);
    let started = if journal {
        lines.without_time().with_level(false).with_writer(log).try_init()
    } else {
        lines.with_writer(log).try_init()
    };
    // This fails in a program that embeds the daemon and has its own subscriber.
    if started.is_err() {
        tracing::debug!("messages go where they went before");
    }
    if let Some(error) = failed {
        tracing::warn!(%error, "the log can't be opened; messages go to standard error");
    }
}

/// Makes a file standard error, and appends to it.
fn to_standard_error(file: &Path) -> io::Result<()> {
    rustix::stdio::dup2_stderr(&open(file)?)?;
    Ok(())
}

fn open(file: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    Ok(rustix::fs::open(file, flags, Mode::from_raw_mode(0o600))?)
}

/// Standard error with its limits.
struct Log {
    /// Standard error is the journal: each line begins with its level, as in `sd-daemon`.
    journal: bool,
    /// Standard error is this file, which is replaced when it is full.
    file: Option<PathBuf>,
    /// How many more messages each place in the code may log.
    places: Mutex<HashMap<Identifier, CallSite>>,
    /// Held while a line is written or a full file is replaced.
    turn: Mutex<()>,
}

/// How many more messages one place in the code may log.
struct CallSite {
    passes: f64,
    since: Instant,
    left_out: u64,
}

impl CallSite {
    fn new(now: Instant) -> Self {
        Self { passes: BURST, since: now, left_out: 0 }
    }

    /// Whether one more message passes now, and how many before it did not.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.passes = (self.passes + passed * RATE).min(BURST);
        self.since = now;
        if self.passes < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.passes -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, level: Level::INFO, left_out: Some(0) }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line<'a> {
        let level = *meta.level();
        let left_out = if level > Level::INFO {
            Some(0)
        } else {
            let now = Instant::now();
            self.places.lock().entry(meta.callsite()).or_insert_with(|| CallSite::new(now)).pass(now)
        };
        Line { log: self, level, left_out }
    }
}

/// The writer of one message.
struct Line<'a> {
    log: &'a Log,
    level: Level,
    /// How many messages were left out before this one. `None` if this one is left out too.
    left_out: Option<u64>,
}

impl Write for Line<'_> {
    /// A message arrives as a whole, and always counts as written.
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        if let Some(left_out) = self.left_out {
            let prefix = if self.log.journal { journal_level(self.level) } else { "" };
            self.log.put(line(prefix, message, left_out).as_bytes());
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn journal_level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// A message as one line of at most [`LINE_MAX`] bytes.
fn line(prefix: &str, message: &[u8], left_out: u64) -> String {
    const CUT: &str = "…";
    let tail = match left_out {
        0 => "\n".to_owned(),
        n => format!(" ({n} messages of this kind before it were left out)\n"),
    };
    let room = LINE_MAX - tail.len() - CUT.len();
    let mut line = prefix.to_owned();
    for c in String::from_utf8_lossy(message.strip_suffix(b"\n").unwrap_or(message)).chars() {
        let before = line.len();
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
        if line.len() > room {
            line.truncate(before);
            line.push_str(CUT);
            break;
        }
    }
    line + &tail
}

impl Log {
    /// Writes a line to standard error, or drops it.
    fn put(&self, line: &[u8]) {
        let stderr = rustix::stdio::stderr();
        let _turn = self.turn.lock();
        if let Some(file) = &self.file {
            let len = rustix::fs::fstat(stderr).map_or(0, |stat| stat.st_size.cast_unsigned());
            if len + line.len() as u64 > FILE_MAX && replace(file).is_err() {
                return;
            }
        }
        if takes_more(stderr) {
            let mut rest = line;
            while let Ok(written @ 1..) = rustix::io::retry_on_intr(|| rustix::io::write(stderr, rest)) {
                rest = &rest[written..];
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

/// Whether a line can be written without waiting for a reader.
fn takes_more(to: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&to, PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    ready.is_ok_and(|ready| ready > 0) && fds[0].revents().contains(PollFlags::OUT)
}

/// Renames a full log file to `.old`, and makes a new one standard error.
fn replace(file: &Path) -> io::Result<()> {
    rustix::stdio::dup2_stderr(&renewed(file)?)?;
    Ok(())
}

/// Renames a full log file to `.old`, and opens a new one.
///
/// The new file is opened before any name changes. So a daemon without free descriptors continues
/// with the old file until it has one.
fn renewed(file: &Path) -> io::Result<OwnedFd> {
    let new = file.with_extension("new");
    let opened = open(&new)?;
    match std::fs::rename(file, file.with_extension("old")) {
        // An earlier call stopped here, or the file was removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => result?,
    }
    std::fs::rename(&new, file)?;
    Ok(opened)
}

#[cfg(test)]
mod tests;
