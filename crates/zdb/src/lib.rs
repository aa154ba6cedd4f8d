//! `zdb`: shows the contents of a pool's devices, without a daemon.
//!
//! # Theory
//! Each mode is a module that reads through the engine and prints. Below the modes are [`Ctx`], the
//! opened pool and the form of text. Above them, `target` and `whole` choose modes by the options.
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
mod ctx;
mod ddt;
mod dtl;
mod features;
mod files;
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
mod opened;
pub mod opts;
mod path;
mod ranges;
mod target;
pub mod text;
mod uberblock;
mod view;
mod viewer;
mod whole;
mod zap;
mod znode;

pub use ctx::{Ctx, Run, Stop};

use console::Clock;
use console::Out;
use opts::{Opts, Refused, USAGE};
use text::Numbers;

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
    let mut cx = Ctx { out, err, clock, opts, numbers, cache_bytes: opened::CACHE_BYTES, trouble: false };
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
    opened::set_tunables(cx)?;
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
