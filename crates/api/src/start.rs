//! Starting a daemon in the background.
//!
//! # Theory
//! The command runs its own program again as `poolhouse serve --background`, in a session of its own, with a pipe for its
//! standard output. The daemon writes lines there: notes about its folder, and at last that it listens (or that another
//! does), or why it can't. Then it lets the pipe go. So the command waits for exactly that, or for the pipe's end if the
//! daemon died, and never by asking again and again. What the daemon's process writes to its standard error until then
//! (a missing library, a panic) comes by the same pipe, and is a reason too.
//!
//! The daemon outlives the command by far, so it inherits no file of it but the pipe: a script's
//! lock (`flock FILE zpool import tank`) would be held, and its pipes open, until the daemon ends.

use crate::place::Place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The line that says that a daemon listens.
pub const READY: &str = "ready";
/// What the line begins with that says why none does.
pub const FAILED: &str = "failed: ";
/// What a line begins with that the command passes on.
pub const NOTE: &str = "note: ";
/// How long a daemon may take to listen. It has nothing to do but to bind, after a predecessor that is just
/// ending has let its mounts go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes that are read of what it says.
const SAID_MAX: usize = 1 << 16;

/// A daemon that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program can't be run.
    #[error("cannot run {} serve", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It said why.
    #[error("the daemon did not start: {why}")]
    Failed {
        /// In its words.
        why: String,
    },
    /// It ended, or said nothing for a minute.
    #[error("the daemon did not start, and did not say why{}", Log(log.as_deref()))]
    Silent {
        /// Where it may have said why, if its folder is known.
        log: Option<PathBuf>,
    },
}

struct Log<'a>(Option<&'a Path>);

impl std::fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(log) => write!(f, "; its log is {}", log.display()),
            None => write!(f, "; `poolhouse serve` does in the foreground"),
        }
    }
}

/// Starts a daemon in `place`, or in the folder that it chooses, and returns when one listens there.
pub fn start(place: Option<&Place>, program: Option<&Path>) -> Result<(), StartError> {
    let program = match program {
        Some(program) => program.to_owned(),
        // The program that runs, even if its file was replaced meanwhile. Without /proc it is found by its name.
        None => Some(PathBuf::from("/proc/self/exe"))
            .filter(|link| link.exists())
            .or_else(|| std::env::current_exe().ok())
            .unwrap_or_else(|| std::env::args_os().next().unwrap_or_else(|| "poolhouse".into()).into()),
    };
    let failed = |source| StartError::Spawn { program: program.clone(), source };
    // Nothing that this command opened itself is passed on either.
    close_fds::set_fds_cloexec(3, &[]);
    let (pipe, out) = std::io::pipe().map_err(failed)?;
    let err = out.try_clone().map_err(failed)?;
    let mut command = Command::new(&program);
    command.arg0("poolhouse").args(["serve", "--background"]);
    if let Some(place) = place {
        command.arg("--run-dir").arg(place.dir());
    }
    let child = command.current_dir("/").stdin(Stdio::null()).stdout(out).stderr(err).spawn();
    drop(command);
    child.map_err(failed)?;
    hear(pipe).map_err(|said| {
        let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with(NOTE)).collect();
        let told = lines.iter().find_map(|line| line.strip_prefix(FAILED));
        match told.map(str::to_owned).or_else(|| (!lines.is_empty()).then(|| lines.join("; "))) {
            Some(why) => StartError::Failed { why },
            None => StartError::Silent { log: place.map(Place::log) },
        }
    })
}

/// Waits for a daemon to listen, and passes on what it notes. Fails with what it said if it doesn't.
fn hear(mut pipe: PipeReader) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let (mut said, mut passed) = (Vec::new(), 0);
    while said.len() < SAID_MAX {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let mut bytes = [0; 4096];
        match pipe.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(len) => said.extend_from_slice(&bytes[..len]),
        }
        while let Some(len) = said[passed..].iter().position(|byte| *byte == b'\n') {
            let line = &said[passed..passed + len];
            if line == READY.as_bytes() {
                return Ok(());
            }
            if line.starts_with(NOTE.as_bytes()) {
                // Standard error may be closed; `poolhouse doctor` says it too.
                std::io::stderr().write_all(&said[passed..=passed + len]).unwrap_or_default();
            }
            passed += len + 1;
        }
    }
    Err(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests;
