//! One zedlet at one event: a process, its output, and its end.
//!
//! # Theory
//! The process leads its own process group. A thread waits for three things at once:
//!
//! * its output, which goes to the log line by line;
//! * its end;
//! * the end of its time, or the daemon's end. Then the whole group is killed.
//!
//! The thread waits for the process (`wait`) at last. Until then no other process can have its
//! number, so no other group is killed. What it leaves in the background when it ends by itself
//! continues, and its output is ignored.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::ffi::OsString;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of a line in the log. The rest of a longer one begins another line.
const LINE: usize = 1 << 10;
/// Most bytes to log of one run.
const SAID: usize = 16 << 10;

pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) eid: u64,
    pub(crate) variables: Vec<(String, OsString)>,
    pub(crate) limit: Duration,
    /// Closing the other end of this pipe kills everything.
    pub(crate) bell: Arc<PipeReader>,
}

/// A zedlet that was started.
pub(crate) struct Running {
    name: String,
    eid: u64,
    limit: Duration,
    bell: Arc<PipeReader>,
    began: Instant,
    child: Child,
    ends: OwnedFd,
    output: PipeReader,
}

impl Job {
    /// Starts the process.
    ///
    /// # Errors
    /// The system's error: the pipe, the process or its pidfd can't be created.
    pub(crate) fn begin(self) -> io::Result<Running> {
        let (output, input) = io::pipe()?;
        let flags = rustix::fs::fcntl_getfl(&output)?;
        rustix::fs::fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
        let mut child = Command::new(&self.path)
            .env_clear()
            .envs(self.variables)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0)
            .spawn()?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tracing::debug!(zedlet = name, eid = self.eid, pid = child.id(), "run");
        let ends = match rustix::process::pidfd_open(pid(&child), PidfdFlags::empty()) {
            Ok(ends) => ends,
            Err(errno) => {
                kill(&child, &name);
                child.wait()?;
                return Err(errno.into());
            }
        };
        let (eid, limit, bell) = (self.eid, self.limit, self.bell);
        Ok(Running { name, eid, limit, bell, began: Instant::now(), child, ends, output })
    }
}

/// What woke up the thread of a zedlet.
struct Woken {
    ended: bool,
    heard: bool,
    /// The zedlet's time is over, or the daemon's.
    over: bool,
}

impl Running {
    /// Watches the process until its end.
    pub(crate) fn watch(mut self) {
        let (name, eid) = (self.name.clone(), self.eid);
        let mut said = Said::default();
        let (mut open, mut killed) = (true, false);
        loop {
            let woken = self.wait(open, killed).unwrap_or_else(|error| {
                tracing::warn!(zedlet = name, eid, %error, "cannot be watched");
                Woken { ended: killed, heard: false, over: true }
            });
            // This includes its last output.
            if open && (woken.heard || woken.ended) {
                open = said.hear(&mut self.output, |line| log(&name, eid, line));
            }
            if woken.ended {
                break;
            }
            if woken.over && !killed {
                killed = true;
                let seconds = self.began.elapsed().as_secs();
                tracing::warn!(zedlet = name, eid, seconds, "killed, since it did not end");
                kill(&self.child, &name);
            }
        }
        said.finish(|line| log(&name, eid, line));
        match self.child.wait() {
            Ok(status) if status.success() => tracing::debug!(zedlet = name, eid, "done"),
            Ok(status) => match status.signal() {
                Some(signal) => tracing::warn!(zedlet = name, eid, signal, "ended by a signal"),
                None => tracing::warn!(zedlet = name, eid, code = status.code(), "failed"),
            },
            Err(error) => tracing::warn!(zedlet = name, eid, %error, "its end can't be told"),
        }
    }

    /// Waits until there is something to do.
    ///
    /// For a killed process, it waits only for the end. It does not poll a closed pipe, which would
    /// wake it up at once each time.
    fn wait(&self, open: bool, killed: bool) -> io::Result<Woken> {
        let mut fds = vec![PollFd::new(&self.ends, PollFlags::IN)];
        if open {
            fds.push(PollFd::new(&self.output, PollFlags::IN));
        }
        if !killed {
            fds.push(PollFd::new(&*self.bell, PollFlags::IN));
        }
        let left = self.limit.saturating_sub(self.began.elapsed());
        let left = (!killed).then(|| Timespec::try_from(left).ok()).flatten();
        rustix::io::retry_on_intr(|| poll(&mut fds, left.as_ref()))?;
        let awake = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        let rung = !killed && awake(1 + usize::from(open));
        let over = rung || self.began.elapsed() >= self.limit;
        Ok(Woken { ended: awake(0), heard: open && awake(1), over })
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Kills a zedlet's group. Its leader was not waited for, so the number is still its own.
fn kill(child: &Child, name: &str) {
    if let Err(errno) = rustix::process::kill_process_group(pid(child), Signal::KILL) {
        tracing::warn!(zedlet = name, %errno, "it can't be killed");
    }
}

fn log(zedlet: &str, eid: u64, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    tracing::info!(zedlet, eid, "{}", line.escape_debug());
}

/// The output of a zedlet, on its way to lines.
#[derive(Default)]
struct Said {
    line: Vec<u8>,
    logged: usize,
    /// The number of bytes that were not logged because of the limit.
    passed: usize,
}

impl Said {
    /// Reads the available output. Returns whether there may be more later.
    fn hear(&mut self, output: &mut PipeReader, mut log: impl FnMut(&[u8])) -> bool {
        let mut bytes = [0; 4 << 10];
        // The limit lets the thread check the other events in between.
        for _ in 0..16 {
            match output.read(&mut bytes) {
                Ok(0) => return false,
                Ok(len) => bytes[..len].iter().for_each(|byte| self.take(*byte, &mut log)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn take(&mut self, byte: u8, log: &mut impl FnMut(&[u8])) {
        if self.logged >= SAID {
            self.passed += 1;
            return;
        }
        self.logged += 1;
        if byte != b'\n' {
            self.line.push(byte);
        }
        if byte == b'\n' || self.line.len() >= LINE {
            log(&std::mem::take(&mut self.line));
        }
    }

    fn finish(self, mut log: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            log(&self.line);
        }
        if self.passed > 0 {
            log(format!("({} bytes more)", self.passed).as_bytes());
        }
    }
}
