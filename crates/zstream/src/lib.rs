//! Commands about stored send streams: `zstream`, with OpenZFS's output, and `poolhouse stream`.
//!
//! # Theory
//! `zstream` shows streams as OpenZFS 2.3 does, to the byte, since scripts and OpenZFS's own suite
//! parse it. Its exit codes are OpenZFS's too: it shows a damaged stream as far as it goes, and the
//! code is 0. [`files::run`] is for people who keep streams as backups: it names the files that are
//! whole, and its exit code says whether all are.
//!
//! # Absent
//! `zstream redup`, `decompress`, `recompress` and `drop_record`: each reports that.

mod dump;
pub mod files;

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
        Some((verb @ ("redup" | "decompress" | "recompress" | "drop_record"), _)) => {
            writeln!(
                io.err,
                "zstream {verb}: not in this release of Poolhouse; docs/reference lists the commands that it has"
            );
            1
        }
        _ => usage(io),
    }
}

fn usage(io: &mut Io<'_>) -> i32 {
    io.err.put(USAGE);
    1
}

/// `zstream token`: what a token says (`zstream_do_token`).
fn token(io: &mut Io<'_>, args: &[String]) -> i32 {
    let Some(token) = args.first() else {
        io.err.put("Need to pass the resume token\n");
        return usage(io);
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
