//! Secrets from the user's terminal or from a pipe.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

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
