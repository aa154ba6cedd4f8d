//! Commands about stored send streams: `zstream`, with OpenZFS's output, and `poolhouse stream`.
//!
//! # Theory
//! `zstream` shows and changes streams as OpenZFS 2.3 does, to the byte, since scripts and
//! OpenZFS's own suite parse it. Its exit codes are OpenZFS's too: `dump` shows a damaged stream as
//! far as it goes, and the code is 0.
//!
//! The verbs that change a stream refuse a damaged one: a pool could receive what they write.
//! OpenZFS's verbs take it.
//!
//! [`files::run`] is for people who keep streams as backups: it names the files that are whole, and
//! its exit code says whether all are.
//!
//! # Absent
//! What OpenZFS's development branch has besides `drop_record`. Blocks that `recompress` makes are
//! OpenZFS's byte for byte for `zle` only: the other compressors have other implementations, and
//! what OpenZFS's LZJB writes depends on addresses.

mod decompress;
mod drop_record;
mod dump;
mod edit;
pub mod files;
mod recompress;
mod redup;

use std::io::Read;

use console::Out;

/// What OpenZFS 2.3 prints for a wrong command line (`zstream_usage`).
const USAGE: &str = "usage: zstream command args ...
Available commands are:

\tzstream dump [-vCd] FILE
\t... | zstream dump [-vCd]

\tzstream decompress [-v] [OBJECT,OFFSET[,TYPE]] ...

\tzstream recompress [ -l level] TYPE

\tzstream token resume_token

\tzstream redup [-v] FILE | ...
";

/// Where a command reads and writes.
pub struct Io<'a> {
    /// Standard output.
    pub out: &'a mut Out,
    /// Standard error.
    pub err: &'a mut Out,
    /// Standard input.
    pub input: Box<dyn Read + 'a>,
    /// Whether standard input is a terminal, which no stream comes from.
    pub terminal: bool,
}

/// Runs `zstream` with its arguments. Returns the exit code.
pub fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    match args.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        Some(("dump", rest)) => dump::run(io, rest),
        Some(("token", rest)) => token(io, rest),
        Some(("redup", rest)) => redup::run(io, rest),
        Some(("decompress", rest)) => decompress::run(io, rest),
        Some(("recompress", rest)) => recompress::run(io, rest),
        Some(("drop_record", rest)) => drop_record::run(io, rest),
        _ => usage(io, ""),
    }
}

/// Prints what there is, after a wrong command line of `verb`. Returns the exit code.
fn usage(io: &mut Io<'_>, verb: &str) -> i32 {
    if verb == "drop_record" {
        // OpenZFS 2.3 lacks it; this is where later releases list it.
        let next = "\tzstream recompress";
        let line = "\tzstream drop_record [-v] [OBJECT,OFFSET] ...\n\n";
        io.err.put(&USAGE.replacen(next, &[line, next].concat(), 1));
    } else {
        io.err.put(USAGE);
    }
    1
}

/// `zstream token`: what a token says (`zstream_do_token`).
fn token(io: &mut Io<'_>, args: &[String]) -> i32 {
    let Some(token) = args.first() else {
        io.err.put("Need to pass the resume token\n");
        return usage(io, "token");
    };
    match stream::token::decode(token) {
        Ok(list) => {
            write!(io.out, "{list:5}");
            0
        }
        Err(error) => {
            writeln!(io.err, "Unable to parse resume token: {error}");
            1
        }
    }
}
