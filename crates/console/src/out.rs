//! The output of commands.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

/// An output that remembers failures instead of returning them, as C's `stdout` does.
///
/// Names, properties and lines of history can hold any byte, and other users choose them. On a
/// terminal, control characters therefore appear as octal numbers, as `ls` shows them. Tabs and
/// newlines are excepted.
pub struct Out {
    sink: Box<dyn io::Write>,
    terminal: bool,
    failed: bool,
    /// What the sink writes to.
    file: Option<OwnedFd>,
}

impl Out {
    /// An output to a sink that is no terminal.
    pub fn new(sink: Box<dyn io::Write>) -> Self {
        Self { sink, terminal: false, failed: false, file: None }
    }

    /// An output to a terminal.
    pub fn terminal(sink: Box<dyn io::Write>) -> Self {
        Self { terminal: true, ..Self::new(sink) }
    }

    /// The same output, whose sink writes to this file.
    pub fn with_file(self, file: OwnedFd) -> Self {
        Self { file: Some(file), ..self }
    }

    /// The file that the sink writes to, if it is known, for another process. The caller flushes
    /// the sink first.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Whether the sink is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether a write has failed. A sink with a buffer may report this late.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Writes formatted text; `write!` and `writeln!` call this.
    pub fn write_fmt(&mut self, args: fmt::Arguments<'_>) {
        if self.terminal {
            self.put(&args.to_string());
        } else {
            self.failed |= self.sink.write_fmt(args).is_err();
        }
    }

    /// Writes text.
    pub fn put(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    /// Writes bytes. Names on disk need not be text.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        let shown = if self.terminal { shown(bytes, &['\n', '\t']) } else { bytes.into() };
        self.put_raw(&shown);
    }

    /// The text of one cell of a table: on a terminal it can't begin another line or column.
    pub fn cell<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.terminal { escaped(text) } else { text.into() }
    }

    /// Writes bytes unchanged, to a terminal too: colour codes and raw blocks.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.failed |= self.sink.write_all(bytes).is_err();
    }

    /// Flushes the sink. Returns whether all writes so far succeeded.
    pub fn flush(&mut self) -> bool {
        self.failed |= self.sink.flush().is_err();
        !self.failed
    }
}

/// Text without control characters, which become octal numbers: one cell of a table, for a terminal
/// or a script.
pub fn escaped(text: &str) -> Cow<'_, str> {
    match shown(text.as_bytes(), &[]) {
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Cow::Borrowed(_) => text.into(),
    }
}

/// The bytes in a form that a terminal may get.
///
/// Control characters, other than those in `but`, and invalid UTF-8 become octal numbers.
fn shown<'b>(bytes: &'b [u8], but: &[char]) -> Cow<'b, [u8]> {
    let harmless = |c: char| !c.is_control() || but.contains(&c);
    if std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(harmless)) {
        return bytes.into();
    }
    let mut shown = Vec::with_capacity(bytes.len() * 2);
    let octal = |shown: &mut Vec<u8>, bytes: &[u8]| {
        bytes.iter().for_each(|byte| shown.extend_from_slice(format!("\\{byte:03o}").as_bytes()));
    };
    for part in bytes.utf8_chunks() {
        for c in part.valid().chars() {
            let mut buffer = [0; 4];
            let encoded = c.encode_utf8(&mut buffer).as_bytes();
            if harmless(c) { shown.extend_from_slice(encoded) } else { octal(&mut shown, encoded) }
        }
        octal(&mut shown, part.invalid());
    }
    shown.into()
}

#[cfg(test)]
mod tests;
