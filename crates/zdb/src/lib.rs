//! `zdb`: what is on a pool's devices, read without a daemon.
//!
//! # Theory
//! Each mode is a module that asks the engine and prints. Devices are opened for looking only, never locked, so that a pool in
//! use can be examined; what is read may then change underneath. What can't be read is reported on standard error, and the
//! mode goes on with what can, since this is the command for pools that are ill. The texts are those of OpenZFS 2.3, to the
//! byte where the values are the pool's own: people compare them.
//!
//! # Absent
//! Options that need a writer or that this release lacks say so: [`opts`] has the list. Progress lines are not printed.
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

/// What a mode writes to and what it was asked.
pub struct Ctx<'a> {
    /// Standard output.
    pub out: &'a mut Out,
    /// Standard error.
    pub err: &'a mut Out,
    /// The time zone.
    pub clock: &'a Clock,
    /// The command line.
    pub opts: Opts,
    /// How numbers are printed.
    pub numbers: Numbers,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether something could not be read.
    pub trouble: bool,
}

/// Why a mode stopped.
#[derive(Debug)]
pub enum Stop {
    /// The command is over; it has said why.
    Exit(i32),
    /// Something could not be read.
    Failed(anyhow::Error),
}

/// What a mode returns.
pub type Run<T = ()> = Result<T, Stop>;

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    fn from(e: E) -> Self {
        Stop::Failed(anyhow::Error::new(e))
    }
}

impl Ctx<'_> {
    /// Says that the command can't go on.
    pub fn fatal(&mut self, message: impl std::fmt::Display) -> Stop {
        writeln!(self.err, "zdb: {message}");
        Stop::Exit(1)
    }

    /// Reports what could not be read.
    pub fn report(&mut self, error: &anyhow::Error) {
        self.trouble = true;
        writeln!(self.err, "zdb: {error:#}");
    }

    /// Does a part of the work; when something can't be read, reports it and goes on without the rest of that part.
    pub fn part<T: Default>(&mut self, f: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        match f(self) {
            Err(Stop::Failed(e)) => {
                self.report(&e);
                Ok(T::default())
            }
            r => r,
        }
    }

    /// A number for people, or exact with `-P`.
    pub fn num(&self, n: u64) -> String {
        self.numbers.num(n)
    }
}

/// Runs the command; returns its exit code.
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
