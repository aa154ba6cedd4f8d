//! Starting a daemon in the background.
//!
//! # Theory
//! The command runs its own program again as `poolhouse serve --background`, in a session of its own, with a pipe for its
//! standard output. The daemon writes one line there when it listens (or when it finds that another does) and lets the
//! pipe go. So the command waits for exactly that: a line, or the pipe's end if the daemon died, and never by asking
//! again and again.
//!
//! The daemon outlives the command by far, so it inherits no file of it but the pipe: a script's
//! lock (`flock FILE zpool import tank`) would be held, and its pipes open, until the daemon ends.

use crate::place::Place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The line that says that a daemon listens.
pub const READY: &[u8] = b"ready\n";
/// How long a daemon may take to listen, seconds. It has nothing to do but to bind, after a predecessor that is just
/// ending has let its mounts go.
const PATIENCE: i64 = 60;

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
    /// It ended, or said nothing for a minute.
    #[error("the daemon did not start; its log is {}", log.display())]
    Silent {
        /// Where it may have said why.
        log: PathBuf,
    },
}

/// Starts a daemon in `place` and returns when one listens there.
pub fn start(place: &Place, program: Option<&Path>) -> Result<(), StartError> {
    let program = match program {
        Some(program) => program.to_owned(),
        // The program that runs, even if its file was replaced meanwhile.
        None => PathBuf::from("/proc/self/exe"),
    };
    let failed = |source| StartError::Spawn { program: program.clone(), source };
    // Nothing that this command opened itself is passed on either.
    close_fds::set_fds_cloexec(3, &[]);
    let mut child = Command::new(&program)
        .arg0("poolhouse")
        .args(["serve", "--background"])
        .arg("--run-dir")
        .arg(place.dir())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut pipe = child.stdout.take().expect("it was asked for");
    let mut line = Vec::new();
    while line.len() < READY.len() {
        let timeout = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let mut bytes = [0; READY.len()];
        match pipe.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(len) => line.extend_from_slice(&bytes[..len]),
        }
    }
    if line == READY { Ok(()) } else { Err(StartError::Silent { log: place.log() }) }
}
