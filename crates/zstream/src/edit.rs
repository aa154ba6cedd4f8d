//! What the verbs share that write a changed stream.
//!
//! # Theory
//! Each verb is a function from a record to a [`Change`]; [`edit`] does the rest. OpenZFS's verbs
//! sum up anew whatever they read, so damage in their input gets right checksums. These verify the
//! input, and end with an error before the damage could be received: the result has no END.

use std::io::{self, Read, Write};

use console::Out;
use console::getopt::{Found, Getopt};
use stream::rewrite::{Change, rewrite};
use stream::{Error, Packet};

use crate::{Io, usage};

/// Why a verb can't go on with a record. Texts that OpenZFS has are OpenZFS's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// The record refers to an earlier one.
    #[error("Deduplicated streams are not supported")]
    Deduplicated,
    /// No compressor has this number.
    #[error("Invalid compression type in stream: {0}")]
    Compression(u8),
    /// The payload can't be decompressed.
    #[error("zstream: decompression type {kind} failed for ino {object} offset {offset}")]
    Decompression {
        /// The compressor's number.
        kind: u8,
        /// The object.
        object: u64,
        /// The place in the object, in bytes.
        offset: u64,
    },
    /// The record refers to a block that no record before it has.
    #[error("no record before has the block at offset {offset} of object {object} of snapshot {guid:#x}")]
    Missing {
        /// The snapshot.
        guid: u64,
        /// The object there.
        object: u64,
        /// The place in the object, in bytes.
        offset: u64,
    },
    /// The file can't be read again where an earlier record is.
    #[error("Error while reading file: {}", again(.0))]
    Reread(#[source] io::Error),
    /// Where an earlier record was is another one now.
    #[error("the file has changed since it was read at byte {0}")]
    Changed(u64),
}

impl Why {
    /// The exit code of OpenZFS's verb.
    fn code(&self) -> i32 {
        match self {
            Self::Deduplicated | Self::Missing { .. } | Self::Reread(_) | Self::Changed(_) => 1,
            Self::Compression(_) => 3,
            Self::Decompression { .. } => 4,
        }
    }
}

/// Why a verb ends before its input does.
enum Stop {
    Stream(Error),
    Refused { why: Why, record: u64, at: u64 },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Stream(error)
    }
}

/// Standard output, which reports its failures as files do.
struct Sink<'a>(&'a mut Out);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put_raw(bytes);
        if self.0.has_failed() {
            return Err(io::Error::other("standard output takes no more"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to standard output what `change` makes of each record of `input`. Returns the exit code.
pub(crate) fn edit(
    io: &mut Io<'_>,
    input: impl Read,
    mut change: impl FnMut(&mut Out, &Packet<'_>) -> Result<Change, Why>,
) -> i32 {
    let (out, err) = (&mut *io.out, &mut *io.err);
    let changed = rewrite(input, Sink(out), |packet| {
        change(err, packet).map_err(|why| Stop::Refused { why, record: packet.number, at: packet.at })
    });
    match changed {
        Ok(()) if out.flush() => 0,
        Ok(()) => {
            err.put("zstream: standard output takes no more\n");
            1
        }
        Err(Stop::Stream(error)) => {
            if let Error::Io { source, .. } = &error {
                writeln!(err, "Error while reading file: {}", console::words::io(source));
            }
            writeln!(err, "zstream: {:#}", anyhow::Error::new(error));
            1
        }
        Err(Stop::Refused { why, record, at }) => {
            writeln!(err, "{why}");
            writeln!(err, "zstream: stopped at record {record} at byte {at}");
            why.code()
        }
    }
}

/// Takes standard input as a stream, and holds that standard output can take one.
///
/// # Errors
/// The exit code, if one of them is a terminal.
pub(crate) fn standard_input<'a>(io: &mut Io<'a>) -> Result<Box<dyn Read + 'a>, i32> {
    if io.terminal {
        io.err.put(
            "Error: The send stream is a binary format and can not be read from a\n\
             terminal.  Standard input must be redirected.\n",
        );
        return Err(1);
    }
    refuse_terminal(io)?;
    Ok(std::mem::replace(&mut io.input, Box::new(io::empty())))
}

/// Holds that standard output is no terminal, which bytes of a stream could steer.
///
/// # Errors
/// The exit code, if it is one.
pub(crate) fn refuse_terminal(io: &mut Io<'_>) -> Result<(), i32> {
    if io.out.is_terminal() {
        io.err.put(
            "Error: Stream can not be written to a terminal.\n\
             You must redirect standard output.\n",
        );
        return Err(1);
    }
    Ok(())
}

/// Reads the command line of a verb whose only option is `-v`: whether it is there, and the
/// operands.
///
/// # Errors
/// The exit code, if there is another option.
pub(crate) fn verbose(io: &mut Io<'_>, verb: &str, args: &[String]) -> Result<(bool, Vec<String>), i32> {
    let mut verbose = false;
    let mut g = Getopt::new(args, "v", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => verbose = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(invalid(io, verb, c, "invalid option")),
        }
    }
    Ok((verbose, g.operands()))
}

/// Reports an option that is wrong as C's `getopt` does, and then as OpenZFS does. Returns the exit
/// code.
pub(crate) fn invalid(io: &mut Io<'_>, verb: &str, option: char, why: &str) -> i32 {
    // A long option, which `getopt` reads as a cluster of short ones.
    let option = if option == '\0' { '-' } else { option };
    writeln!(io.err, "{verb}: {why} -- '{option}'");
    writeln!(io.err, "invalid option '{option}'");
    usage(io, verb)
}

/// Reads `OBJECT,OFFSET` and what is behind another comma.
///
/// # Errors
/// The exit code, if it has another form.
pub(crate) fn place<'w>(
    io: &mut Io<'_>,
    verb: &str,
    word: &'w str,
) -> Result<((u64, u64), Option<&'w str>), i32> {
    let Some((object, rest)) = word.split_once(',') else { return Err(usage(io, verb)) };
    let (offset, more) = match rest.split_once(',') {
        Some((offset, more)) => (offset, Some(more)),
        None => (rest, None),
    };
    let mut number = |what: &str, word: &str| {
        number(word).ok_or_else(|| {
            writeln!(io.err, "zstream: invalid value for {what}");
            1
        })
    };
    Ok(((number("object", object)?, number("offset", offset)?), more))
}

/// Parses a number as C's `strtoull` does with base 0, where all of the word has to be a number.
/// An empty word is 0, and a negative number wraps.
fn number(word: &str) -> Option<u64> {
    if word.is_empty() {
        return Some(0);
    }
    let word = word.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let (negative, digits) = match word.strip_prefix(['-', '+']) {
        Some(digits) => (word.starts_with('-'), digits),
        None => (false, word),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, base) = match hexadecimal {
        Some(rest) => (rest, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // `from_str_radix` takes a sign of its own.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The text of a failure to read an earlier part of the file.
fn again(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "short read".to_owned(),
        _ => console::words::io(error),
    }
}

#[cfg(test)]
mod tests;
