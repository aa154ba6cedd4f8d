//! Secrets and keys from the user's terminal, or secrets from a pipe.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The source of keys whose location is `prompt`.
pub trait Secrets {
    /// Whether standard input is a terminal, so that a user can try again.
    fn interactive(&self) -> bool;
    /// Reads a line.
    ///
    /// From a terminal: without echo, after writing the prompt. Otherwise: a line of standard
    /// input.
    ///
    /// # Errors
    /// Any [`io::Error`] of the terminal or of standard input.
    fn line(&mut self, prompt: &str) -> io::Result<Vec<u8>>;
    /// Reads at most this many bytes of standard input.
    ///
    /// # Errors
    /// Any [`io::Error`] of standard input.
    fn bytes(&mut self, at_most: usize) -> io::Result<Vec<u8>>;
}

/// Standard input.
pub struct Stdin;

/// Rows and columns of standard output, if it is a terminal that reports them.
pub fn screen() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout().as_fd()).ok()?;
    Some((size.ws_row.into(), size.ws_col.into()))
}

/// A terminal that gives each key at once, Ctrl-C too. Dropping this turns that off again.
pub struct Keys {
    before: Termios,
}

impl Keys {
    /// The keys of standard input. `None`: it is no terminal.
    ///
    /// # Errors
    /// Any [`io::Error`] of the terminal.
    pub fn new() -> io::Result<Option<Keys>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &modes)?;
        Ok(Some(Keys { before }))
    }

    /// Waits for a key that `is_wanted`, or for this time. Returns whether there was one. The end
    /// of standard input counts as one.
    pub fn wait(&self, time: Duration, is_wanted: impl Fn(u8) -> bool) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            // A time that the system can't represent is as good as none.
            let left = Timespec::try_from(left).ok();
            let ready = rustix::io::retry_on_intr(|| poll(&mut fds, left.as_ref()));
            if !ready.is_ok_and(|ready| ready > 0) {
                return false;
            }
            let mut key = [0];
            match rustix::io::retry_on_intr(|| rustix::io::read(stdin.as_fd(), &mut key)) {
                Ok(1..) if !is_wanted(key[0]) => {}
                _ => return true,
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If the terminal has disappeared, there is nothing to restore.
        _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}

/// A terminal without echo. Dropping this turns the echo on again.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn new() -> io::Result<Quiet> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK);
        tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, &quiet)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // If the terminal has disappeared, there is nothing to restore.
        _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, &self.before);
    }
}

/// Longest line that is read, bytes.
const LINE_MAX: usize = 4096;

/// A line of standard input without its end.
fn line() -> io::Result<Vec<u8>> {
    read(LINE_MAX, Some(b'\n'))
}

/// Reads up to `end`, which is dropped, or at most `at_most` bytes.
///
/// Reads byte by byte, because what follows belongs to the next reader.
fn read(at_most: usize, end: Option<u8>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while bytes.len() < at_most {
        let read = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin().as_fd(), &mut byte))?;
        if read == 0 || end == Some(byte[0]) {
            break;
        }
        bytes.push(byte[0]);
    }
    Ok(bytes)
}

impl Secrets for Stdin {
    fn interactive(&self) -> bool {
        io::stdin().is_terminal()
    }

    fn line(&mut self, prompt: &str) -> io::Result<Vec<u8>> {
        if !self.interactive() {
            return line();
        }
        let mut terminal = io::stderr();
        write!(terminal, "{prompt}")?;
        terminal.flush()?;
        let quiet = Quiet::new()?;
        let line = line();
        drop(quiet);
        writeln!(terminal)?;
        line
    }

    fn bytes(&mut self, at_most: usize) -> io::Result<Vec<u8>> {
        read(at_most, None)
    }
}
