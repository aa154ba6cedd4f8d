//! `zdb`: shows the contents of a pool's devices, without a daemon.
//!
//! # Theory
//! Each mode is a module that reads through the engine and prints.
//!
//! * Devices are opened read-only and never locked, so that zdb can examine a pool in use. The data
//!   may then change while zdb reads it.
//! * The command is for damaged pools. It reports read errors on standard error, and continues with
//!   the rest of the mode.
//! * Where the output shows the pool's own values, it equals that of OpenZFS 2.3 to the byte,
//!   because people compare the two.
//!
//! # Absent
//! Options that need a writer, or that this release lacks, fail with a message; [`opts`] has the
//! list. zdb prints no progress lines.
//!
//! # See
//! OpenZFS `cmd/zdb/zdb.c`, `cmd/zdb/zdb_il.c`, `zdb(8)`.

mod block;
mod blocks;
mod bplists;
mod brt;
mod config;
mod ddt;
mod dtl;
mod features;
mod history;
mod intent_log;
mod io_stats;
mod label;
mod livelist;
mod lookup;
mod metaslabs;
mod mosrefs;
mod object;
mod objset;
pub mod opts;
mod path;
mod ranges;
mod target;
pub mod text;
mod uberblock;
mod viewer;
mod whole;
mod zap;
mod znode;

use console::Clock;
use console::Out;
use opts::{Opts, Refused, USAGE};
use text::Numbers;

/// The outputs and the options of one run.
pub struct Ctx<'a> {
    /// Standard output.
    pub out: &'a mut Out,
    /// Standard error.
    pub err: &'a mut Out,
    /// The clock, with the time zone to print in.
    pub clock: &'a Clock,
    /// The parsed command line.
    pub opts: Opts,
    /// The form of printed numbers.
    pub numbers: Numbers,
    /// Size of the block cache in bytes.
    pub cache_bytes: u64,
    /// Whether something could not be read. The exit code is then not 0.
    pub trouble: bool,
}

/// The reason why a mode stopped early.
#[derive(Debug)]
pub enum Stop {
    /// The command ends with this exit code. It has printed the reason.
    Exit(i32),
    /// An object, block or device could not be read, or does not decode.
    Failed(anyhow::Error),
}

/// The result of a mode.
///
/// # Errors
/// * [`Stop::Failed`]: an object, block or device can't be read, or does not decode.
/// * [`Stop::Exit`]: the command can't continue, and has printed the reason. A function that fails
///   so says when.
pub type Run<T = ()> = Result<T, Stop>;

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    fn from(e: E) -> Self {
        Stop::Failed(anyhow::Error::new(e))
    }
}

impl Ctx<'_> {
    /// Prints that the command can't continue, and returns the error for it: exit code 1 (`fatal`).
    pub fn fatal(&mut self, message: impl std::fmt::Display) -> Stop {
        writeln!(self.err, "zdb: {message}");
        Stop::Exit(1)
    }

    /// Reports a read error on standard error, and sets [`Ctx::trouble`].
    pub fn report(&mut self, error: &anyhow::Error) {
        self.trouble = true;
        writeln!(self.err, "zdb: {error:#}");
    }

    /// Runs a part of a mode, and reports its read error instead of failing.
    ///
    /// After such an error, the rest of that part is left out.
    ///
    /// # Errors
    /// * [`Stop::Exit`]: `f` ended the command.
    pub fn part<T: Default>(&mut self, f: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        match f(self) {
            Err(Stop::Failed(e)) => {
                self.report(&e);
                Ok(T::default())
            }
            r => r,
        }
    }

    /// A number in readable form, or exact with `-P` (`zdb_nicenum`).
    pub fn num(&self, n: u64) -> String {
        self.numbers.num(n)
    }
}

/// Runs the command with these arguments (without its name), and returns the exit code.
pub fn run(args: &[String], out: &mut Out, err: &mut Out, clock: &Clock) -> i32 {
    let opts = match Opts::parse(args) {
        Ok(o) => o,
        Err(Refused::Usage(message)) => {
            err.put(&message);
            err.put(USAGE);
            return 1;
        }
        Err(Refused::Absent(message)) => {
            writeln!(err, "zdb: {message}");
            return 1;
        }
    };
    let numbers = Numbers { exact: opts.has('P') };
    let mut cx = Ctx { out, err, clock, opts, numbers, cache_bytes: target::CACHE_BYTES, trouble: false };
    let code = match dispatch(&mut cx) {
        Ok(code) | Err(Stop::Exit(code)) => code,
        Err(Stop::Failed(e)) => {
            cx.report(&e);
            1
        }
    };
    let code = if code == 0 && cx.trouble { 1 } else { code };
    if cx.out.flush() && cx.err.flush() { code } else { code.max(1) }
}

fn dispatch(cx: &mut Ctx<'_>) -> Run<i32> {
    target::set_tunables(cx)?;
    if cx.opts.has('E') {
        return match &cx.opts.operands.clone()[..] {
            [words] => block::embedded(cx, words),
            _ => {
                cx.err.put(USAGE);
                Ok(1)
            }
        };
    }
    let Some(target) = cx.opts.operands.first().cloned() else {
        if cx.opts.has('C') && !cx.opts.has('e') {
            return config::cachefile(cx);
        }
        cx.err.put(USAGE);
        return Ok(1);
    };
    if cx.opts.has('l') {
        return label::run(cx, &target);
    }
    target::run(cx, &target)
}
