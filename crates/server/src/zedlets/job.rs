//! One zedlet at one event: a process, its output, and its end.
//!
//! # Theory
//! The process leads a group of its own, and is watched by a thread that waits for three things at once: what it says, line by line for the log; its end; and the end of its time, or the daemon's, at which the whole
//! group is killed. Its number is its own until it is waited for, which happens last: nobody else's group is killed. What it leaves in the background when it ends by itself goes on, unheard.

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

/// Bytes of a line in the log; what is more of it begins another.
const LINE: usize = 1 << 10;
/// Bytes of one run that are logged.
const SAID: usize = 16 << 10;

pub(super) struct Job {
    pub(super) path: PathBuf,
    pub(super) eid: u64,
    pub(super) variables: Vec<(String, OsString)>,
    pub(super) limit: Duration,
    /// Rings, by being closed at its other end, when everything is to be killed.
    pub(super) bell: Arc<PipeReader>,
}

/// One that was begun.
pub(super) struct Running {
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
    pub(super) fn begin(self) -> io::Result<Running> {
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

/// What a zedlet is waited for.
struct Woken {
    ended: bool,
    heard: bool,
    /// Its time is over, or everybody's.
    over: bool,
}

impl Running {
    /// Sees it to its end.
    pub(super) fn watch(mut self) {
        let (name, eid) = (self.name.clone(), self.eid);
        let mut said = Said::default();
        let (mut open, mut killed) = (true, false);
        loop {
            let woken = self.wait(open, killed).unwrap_or_else(|error| {
                tracing::warn!(zedlet = name, eid, %error, "cannot be watched");
                Woken { ended: killed, heard: false, over: true }
            });
            // Also what it said last.
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

    /// Waits until something is to be done. Who was killed is waited for alone, and a pipe that is closed is heard no more: it would tell of that for ever.
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

/// Kills a zedlet's group. Its leader has not been waited for, so the number is its own.
fn kill(child: &Child, name: &str) {
    if let Err(errno) = rustix::process::kill_process_group(pid(child), Signal::KILL) {
        tracing::warn!(zedlet = name, %errno, "it can't be killed");
    }
}

fn log(zedlet: &str, eid: u64, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    tracing::info!(zedlet, eid, "{}", line.escape_debug());
}

/// What a zedlet has said, as it becomes lines.
#[derive(Default)]
struct Said {
    line: Vec<u8>,
    logged: usize,
    /// Bytes that are not logged, as there were too many before them.
    passed: usize,
}

impl Said {
    /// Takes what is there; whether there may be more some day.
    fn hear(&mut self, output: &mut PipeReader, mut log: impl FnMut(&[u8])) -> bool {
        let mut bytes = [0; 4 << 10];
        // So many at once, that who talks without end is looked after between.
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
