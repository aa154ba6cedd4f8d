//! `poolhouse ls`, `poolhouse cp` and `poolhouse send`: getting data out of a pool, and files into
//! one, without a mount. `poolhouse afs export` gets volumes of AFS out, and `poolhouse afs adopt`
//! takes them in from partitions of OpenAFS. `poolhouse stream ls` lists what is in a stored
//! stream.
//!
//! # Theory
//! A rescue must get everything that can be read, and report what can't. So these commands:
//!
//! * read the devices themselves, and lock nothing that they don't need to lock;
//! * open any pool that can be read at all: last used by another host, with missing devices, or at
//!   an older transaction group;
//! * continue after unreadable data. Each failure is a line with path and offset, and the exit code
//!   shows that there was one.
//!
//! The exception is a pool that the daemon holds: the daemon provides its files (`held`).
//! Everything else is the same. Both are [`api::files::Files`].
//!
//! What is copied may be hostile: the pool decides names and links. So the destination is only
//! entered through open folders, never by path, and no link in it is followed (`dest`).
//!
//! # Absent
//! OpenZFS has no such commands: the grammar is our own, and close to `ls` and `cp`.

mod afs_adopt;
mod afs_export;
mod args;
mod cp;
mod dest;
mod find;
mod held;
mod into;
mod ls;
mod nested;
mod progress;
mod send;
mod stream_ls;
mod target;

use api::files::{Denied, Opened, Opening, Visit};
use api::{AfsAdopt, Requests};
use args::{Args, Usage};
use console::Out;

/// The input and output of a rescue.
pub struct Io {
    /// Standard output.
    pub out: Out,
    /// Standard error.
    pub err: Out,
    /// Whether standard error is a terminal. Only then a progress line is drawn.
    pub terminal: bool,
    /// The daemon of this user, which may hold the pool. A rescue doesn't start it.
    pub service: Box<dyn Requests>,
    /// Standard output without a buffer, for a stream.
    pub stream: fn() -> std::io::Result<std::fs::File>,
    /// Opens a dataset of a pool that the daemon holds.
    pub visit: fn(&Opening) -> Result<(Visit, Opened), Denied>,
    /// Has the daemon make a volume of AFS from a dump.
    pub adopt: Adopt,
}

/// Has the daemon make a volume of AFS from a dump, which the second argument writes.
pub type Adopt =
    fn(&AfsAdopt, &mut dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()>) -> Result<(), Denied>;

/// Runs `poolhouse ls` with the arguments after its name. Returns the exit code.
pub fn ls(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::Ls, words, ls::run)
}

/// Runs `poolhouse cp` with the arguments after its name. Returns the exit code.
pub fn cp(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::Cp, words, cp::run)
}

/// Runs `poolhouse send` with the arguments after its name. Returns the exit code.
pub fn send(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::Send, words, send::run)
}

/// Runs `poolhouse afs export` with the arguments after its name. Returns the exit code.
pub fn afs_export(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::AfsExport, words, afs_export::run)
}

/// Runs `poolhouse afs adopt` with the arguments after its name. Returns the exit code.
pub fn afs_adopt(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::AfsAdopt, words, afs_adopt::run)
}

/// Runs `poolhouse stream ls` with the arguments after its name. Returns the exit code.
pub fn stream_ls(io: &mut Io, words: &[String]) -> i32 {
    with_args(io, args::Command::StreamLs, words, stream_ls::run)
}

fn with_args(
    io: &mut Io,
    command: args::Command,
    words: &[String],
    run: fn(&mut Io, &Args) -> Result<bool, target::Error>,
) -> i32 {
    match Args::parse(command, words) {
        Ok(args) => match run(io, &args) {
            Ok(whole) => i32::from(!whole),
            Err(e) => {
                // A pool that isn't found may be one of a daemon that does not answer.
                if let target::Error::Pool(poolhouse::Error::NoSuchPool { .. }) = e {
                    report_unasked(io, command);
                }
                writeln!(io.err, "poolhouse {}: {}", command.name(), Chain(&e));
                if e.is_in_use() {
                    writeln!(io.err, "poolhouse {}: --peek reads it all the same", command.name());
                }
                1
            }
        },
        Err(Usage::Help) => {
            io.out.put(command.usage());
            0
        }
        Err(Usage::Bad(why)) => {
            write!(io.err, "poolhouse {}: {why}\n{}", command.name(), command.usage());
            2
        }
    }
}

/// Reports why this user's daemon does not list its pools. Returns `true` if it does, or if there
/// is none.
fn report_unasked(io: &mut Io, command: args::Command) -> bool {
    let Err(error) = io.service.pool_names() else { return true };
    let why = console::words::reason(&error.reason, &console::Clock::system());
    writeln!(io.err, "poolhouse {}: the daemon can't be asked for pools: {why}", command.name());
    false
}

/// Reports which datasets could not be listed. Returns `true` if there are none.
fn report_unlisted(io: &mut Io, found: &poolhouse::DatasetNames) -> bool {
    for (name, error) in &found.failures {
        writeln!(io.err, "poolhouse ls: {name}: {}", Chain(error));
    }
    found.failures.is_empty()
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a (dyn std::error::Error + 'a));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&api::chain(self.0))
    }
}
