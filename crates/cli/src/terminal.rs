//! Secrets from whoever sits at the terminal, or from what is piped in.

use crate::cx::Secrets;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;

/// Standard input.
pub struct Stdin;

/// A terminal that does not echo; it echoes again when this is dropped.
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
        // Nothing better can be done if the terminal has gone.
        _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, &self.before);
    }
}

/// A line of standard input without its end, byte by byte: what follows it is the next reader's.
fn line() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while rustix::io::read(io::stdin().as_fd(), &mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    Ok(line)
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
        let mut bytes = Vec::new();
        io::stdin().lock().take(at_most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
