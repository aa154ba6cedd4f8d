//! The start of a daemon in the background.
//!
//! # Theory
//! The command runs its own program again as `poolhouse serve --background`, in a session of its
//! own, with a pipe as standard output. The daemon writes lines to the pipe:
//!
//! * notes about its folder;
//! * at last, that it listens (or that another daemon does), or why it can't.
//!
//! Then it closes the pipe. So the command waits for exactly that, or for the pipe's end if the
//! daemon died. It never polls. Until then the daemon's standard error is the same pipe. So what
//! its process writes there (a missing library, a panic) is reported as a reason too.
//!
//! The daemon outlives the command by far, so it inherits no file of the command but the pipe.
//! Otherwise a script's lock (`flock FILE zpool import tank`) would stay held, and its pipes open,
//! until the daemon ends.

use crate::run_dir::RunDir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The line that reports that a daemon listens.
pub const READY: &str = "ready";
/// The prefix of the line that reports why no daemon listens.
pub const FAILED: &str = "failed: ";
/// The prefix of lines that the command passes on.
pub const NOTE: &str = "note: ";
/// How long a daemon may take to listen. It only has to bind its sockets, after a predecessor that
/// is ending has released its mounts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes to read of its output.
const SAID_MAX: usize = 1 << 16;

/// Why a daemon did not start.
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
    /// The daemon reported why.
    #[error("the daemon did not start: {why}")]
    Failed {
        /// The daemon's message.
        why: String,
    },
    /// The daemon ended without a message, or wrote nothing for a minute.
    #[error("the daemon did not start, and did not say why{}", Log(log.as_deref()))]
    Silent {
        /// Its log, if its folder is known.
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

/// Starts a daemon in `place`, or in a folder that it chooses. Returns when one listens there.
///
/// The daemon runs `program`, or this process's own program if absent.
///
/// # Errors
/// * [`StartError::Spawn`]: the pipe can't be created, or the program can't be run.
/// * [`StartError::Failed`]: the daemon reported why it can't listen, or wrote other output.
/// * [`StartError::Silent`]: the daemon ended or took a minute without any output.
pub fn start(place: Option<&RunDir>, program: Option<&Path>) -> Result<(), StartError> {
    let program = match program {
        Some(program) => program.to_owned(),
        // The running program, even if its file was replaced meanwhile. Without `/proc` it is found
        // by its name.
        None => Some(PathBuf::from("/proc/self/exe"))
            .filter(|link| link.exists())
            .or_else(|| std::env::current_exe().ok())
            .unwrap_or_else(|| std::env::args_os().next().unwrap_or_else(|| "poolhouse".into()).into()),
    };
    let failed = |source| StartError::Spawn { program: program.clone(), source };
    // The child must not inherit files that this command opened itself either.
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
            None => StartError::Silent { log: place.map(RunDir::log) },
        }
    })
}

/// Waits for a daemon to listen, and passes on its notes. The error is the output of a daemon that
/// doesn't listen.
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
                // Standard error may be closed. `poolhouse doctor` shows the note too.
                std::io::stderr().write_all(&said[passed..=passed + len]).unwrap_or_default();
            }
            passed += len + 1;
        }
    }
    Err(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests;
