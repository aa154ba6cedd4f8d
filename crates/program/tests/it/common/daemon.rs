//! A daemon in the foreground, and commands sent to it.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A test's own daemon, in the foreground.
pub struct Daemon {
    pub child: Child,
    dir: PathBuf,
}

/// The first command of a shell in its own mount namespace. It unmounts copies of other tests'
/// mounts, which would keep these busy. An outer mount takes the inner ones with it, so some are
/// gone by their turn.
pub const DROP_COPIES: &str = "cut -d' ' -f2,3 /proc/self/mounts | grep ' fuse.poolhouse$' | cut -d' ' -f1 | \
                               xargs -r -n1 umount -l 2>/dev/null;";

/// A command of this program, with the daemon's directory in its environment.
pub fn command(dir: &Path, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(&mut words).env("POOLHOUSE_RUN_DIR", dir.join("run")).current_dir("/");
    command
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A command that blocks in the middle of its work, because its output is not read.
pub fn stuck(dir: &Path, line: &str) -> Child {
    let mut command = command(dir, line);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().expect("it runs");
    let wchan = format!("/proc/{}/wchan", child.id());
    let since = Instant::now();
    while !fs::read_to_string(&wchan).is_ok_and(|at| at.contains("pipe")) {
        assert!(since.elapsed().as_secs() < 60, "it does not wait for its reader");
        std::thread::yield_now();
    }
    child
}

impl Daemon {
    /// Starts a daemon in a directory, and waits until it listens.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[]).expect("the daemon ended")
    }

    /// As `start`, with more words on the command line. Returns `None` if the daemon ends instead.
    pub fn start_with(dir: &Path, words: &[&str]) -> Option<Self> {
        Self::start_as(Path::new(env!("CARGO_BIN_EXE_poolhouse")), dir, words)
    }

    /// As `start_with`, with another program.
    pub fn start_as(program: &Path, dir: &Path, words: &[&str]) -> Option<Self> {
        let log = fs::File::options().append(true).create(true).open(dir.join("log")).expect("a log");
        let child = Command::new(program)
            .args(["serve", "--run-dir"])
            .current_dir("/")
            .arg(dir.join("run"))
            .args(words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let mut daemon = Self { child: child.expect("a daemon"), dir: dir.to_owned() };
        while UnixStream::connect(dir.join("run/control.sock")).is_err() {
            if daemon.child.try_wait().expect("a child").is_some() {
                return None;
            }
            std::thread::yield_now();
        }
        Some(daemon)
    }

    pub fn ran(&self, line: &str) -> Output {
        command(&self.dir, line).output().expect("it runs")
    }

    pub fn good(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert!(ran.status.success(), "{line}: {}", said(&ran));
        String::from_utf8(ran.stdout).expect("text")
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(sent.success(), "kill -s {name}");
    }

    /// Waits up to two minutes for the daemon's end.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            if since.elapsed() > Duration::from_secs(120) {
                self.child.kill().expect("a child");
                panic!("the daemon does not end: {}", self.child.wait().expect("a child"));
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let pid = self.child.id().to_string();
        for signal in ["CONT", "TERM"] {
            let _ = Command::new("kill").args(["-s", signal, &pid]).status();
        }
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read(self.dir.join("log")).unwrap_or_default();
            eprintln!("the daemon's log:\n{}", String::from_utf8_lossy(&log));
        }
    }
}

pub fn image(path: &Path) {
    fs::File::create(path).expect("an image").set_len(128 << 20).expect("room");
}

/// A directory with a pool `tank` that is mounted on `mnt` and recorded in the cache file `cache`.
/// Returns `None` if mounting is not possible.
pub fn tank() -> Option<(tempfile::TempDir, Daemon)> {
    let dir = tempfile::tempdir().expect("a folder");
    let daemon = Daemon::start(dir.path());
    let at = dir.path().display();
    image(&dir.path().join("d0"));
    let made = daemon.ran(&format!("zpool create -o cachefile={at}/cache -m {at}/mnt tank {at}/d0"));
    if !made.status.success() {
        eprintln!("nothing can be mounted here: {}", said(&made));
        return None;
    }
    daemon.good("zfs create tank/home");
    Some((dir, daemon))
}
