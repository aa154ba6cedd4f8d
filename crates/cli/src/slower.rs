//! `poolhouse slower`: which operations were slow, and where their time went.
//!
//! # Theory
//! The daemon keeps the slowest operations of each minute for a day, and for a reader all that take
//! longer than a given time. While the command runs, it reads those again and again. The daemon
//! forgets a reader that stays away.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own. bcc's `zfsslower` is the model.

use crate::cx::{Cx, Outcome, Stop};
use crate::ops::{client, file, no_daemon, text, words};
use crate::top::table::{
    Cell, Column, Command, Form, NO_SPAN, Unit, column, exact, object, shown, wrong_option,
};
use api::{SlowOp, SlowOps, SlowQuery};
use console::getopt::{Found, Getopt, Long, Opt};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str =
    "poolhouse slower [-j|-p] [-n SECONDS] [--last TIME] [--op OP[,OP]...] [--dataset NAME] [MS]";

const USAGE: &str = "\
usage: poolhouse slower [-j|-p] [-n SECONDS] [--last TIME] [--op OP[,OP]...] [--dataset NAME] [MS]

Prints operations of users that take MS milliseconds (10) or longer, as they end, and where their
time goes. With --last: those of the past, the 16 slowest of each minute, for a day. Only for root
and the daemon's own user.

    --last TIME       of the past: 90s, 10m, 2h, 1d
    --op OP           only these operations, by the names of 'poolhouse top -v ops'
    --dataset NAME    only this dataset and those below it
    -n SECONDS        end after so long; otherwise, Ctrl-C ends the command
    -p, --parsable    tabs between columns, and exact numbers
    -j, --json        one JSON object a line
";

const NOTE: &str = "\
\nThe times are milliseconds, with -p nanoseconds. CPU is what is no wait: computing, and waiting for
a processor or for memory. Reads that the kernel's page cache answers don't reach the daemon. Calls
of AFS clients are not here: see 'poolhouse top -v calls'.\n";

const LONG: [Long; 6] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "last", val: Opt::Named("last"), arg: true },
    Long { name: "op", val: Opt::Named("op"), arg: true },
    Long { name: "dataset", val: Opt::Named("dataset"), arg: true },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 19] = [
    column("TIME", "time", Unit::Text, "when it ended"),
    column("TOOK", "took_ns", Unit::Time, "how long it took"),
    column("CPU", "cpu_ns", Unit::Time, "what is no wait"),
    column("QUEUE", "queue_ns", Unit::Time, "until a thread took it"),
    column("LOCK", "lock_ns", Unit::Time, "a lock, or a range of an object"),
    column("TXG", "txg_ns", Unit::Time, "room in a transaction group, or the end of one"),
    column("LOG", "log_ns", Unit::Time, "another thread wrote the intent log for it"),
    column("READ", "read_ns", Unit::Time, "a device read"),
    column("WRITE", "write_ns", Unit::Time, "a device wrote"),
    column("FLUSH", "flush_ns", Unit::Time, "a device made writes durable"),
    column("OTHER", "other_ns", Unit::Time, "room in the cache, other threads, a suspended pool"),
    column("OP", "op", Unit::Text, "the operation, by the name of its system call or NBD command"),
    column(
        "VIA",
        "frontend",
        Unit::Text,
        "fuse: a mounted file system; nbd: a volume; block: an attached one",
    ),
    column("BYTES", "bytes", Unit::Number, "bytes read or written"),
    column("ERROR", "error", Unit::Text, "the errno with which it failed"),
    column("CLIENT", "client", Unit::Text, "the process that sent it, its number and user; or an address"),
    column("DATASET", "dataset", Unit::Text, "the dataset"),
    column("FILE", "file", Unit::Text, "the file, or the directory of a name, or its object number"),
    column("LONGEST", "longest", Unit::Text, "its longest wait, and what for"),
];

/// Columns of text are at least so wide. Lines come one by one, so they can't be as wide as the
/// longest.
const WIDTHS: [usize; 19] = [12, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 5, 9, 6, 22, 16, 16, 0];

/// The kinds of waits that have a column.
const WAITS: [&str; 7] = ["queue", "lock", "txg", "log", "read", "write", "flush"];

/// Seconds between two readings.
const PAUSE: f64 = 0.5;

const COMMAND: Command =
    Command { name: "poolhouse slower", rows: "ops", usage: USAGE, columns: &COLUMNS, note: NOTE };

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    form: Form,
    least_ns: u64,
    /// Seconds of the past.
    last: Option<u64>,
    ops: Vec<String>,
    dataset: Option<String>,
    seconds: Option<f64>,
}

/// Runs `slower` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    COMMAND.run(cx, args, |cx| show(cx, &read(args)?))
}

/// Seconds from a number and `s`, `m`, `h` or `d`; a number alone is seconds.
fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3600),
        (at, 'd') => (&text[..at], 86_400),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|seconds| (1..=86_400).contains(seconds))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let (form, ops) = (Form::Text, Vec::new());
    let mut asked = Asked { form, least_ns: 10_000_000, last: None, ops, dataset: None, seconds: None };
    let mut g = Getopt::new(args, "pjn:", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(Opt::Short('j'), _) => asked.form = Form::Json,
            Found::Is(Opt::Short('n'), text) => {
                let found = text.parse::<f64>().ok().filter(|s| (0.1..=86_400.0).contains(s));
                let wrong = || Stop::usage(format!("invalid time '{text}': choose 0.1 to 86400 seconds\n"));
                asked.seconds = Some(found.ok_or_else(wrong)?);
            }
            Found::Is(Opt::Named("last"), text) => {
                let wrong = || Stop::usage(format!("invalid time '{text}': choose 1s to 1d\n"));
                asked.last = Some(seconds(&text).ok_or_else(wrong)?);
            }
            Found::Is(Opt::Named("op"), names) => {
                asked.ops.extend(names.split(',').map(str::to_ascii_lowercase));
            }
            Found::Is(_, name) => asked.dataset = Some(name),
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    let operands = g.operands();
    if operands.len() > 1 {
        return Err(Stop::usage("too many arguments\n"));
    }
    if let Some(word) = operands.first() {
        let ms = word.parse::<f64>().ok().filter(|ms| (0.0..=1e9).contains(ms));
        let wrong = || Stop::usage(format!("invalid time '{word}': give milliseconds\n"));
        asked.least_ns = (ms.ok_or_else(wrong)? * 1e6) as u64;
    }
    if asked.last.is_some() && asked.seconds.is_some() {
        return Err(Stop::usage("'-n' is for operations from now on, '--last' for those of the past\n"));
    }
    Ok(asked)
}

fn ask(cx: &mut Cx, query: &SlowQuery) -> Result<SlowOps, Stop> {
    let service = cx.service()?;
    let reply = service.slow(query).map_err(|error| cx.fail("cannot read the slow operations", &error))?;
    if reply.process == api::process_id() { Err(no_daemon(cx)) } else { Ok(reply) }
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    let (least_ns, ops, dataset) = (asked.least_ns, asked.ops.clone(), asked.dataset.clone());
    let mut query = SlowQuery { least_ns, ops, dataset, ..SlowQuery::default() };
    if let Some(last) = asked.last {
        query.since_ns = Some(cx.clock.now().saturating_sub(last).saturating_mul(1_000_000_000));
        let reply = ask(cx, &query)?;
        heads(cx, asked.form);
        reply.ops.iter().for_each(|op| print(cx, asked.form, op));
        missed(cx, reply.lost);
        return Ok(0);
    }
    let mut reply = ask(cx, &query)?;
    heads(cx, asked.form);
    let mut left = asked.seconds;
    while cx.out.flush() && left.is_none_or(|left| left > 0.0) {
        let pause = left.map_or(PAUSE, |left| left.min(PAUSE));
        (cx.sleep)(pause);
        left = left.map(|left| left - pause);
        query.next = reply.next;
        reply = ask(cx, &query)?;
        reply.ops.iter().for_each(|op| print(cx, asked.form, op));
        missed(cx, reply.lost);
    }
    Ok(0)
}

/// Reports operations that the daemon did not keep or send.
fn missed(cx: &mut Cx, lost: u64) {
    if lost > 0 {
        writeln!(cx.err, "up to {lost} operations are not shown: too many at a time");
    }
}

/// Prints the names of the columns.
fn heads(cx: &mut Cx, form: Form) {
    let name = |column: &Column| match column.unit {
        Unit::Time if column.name == "TOOK" && form == Form::Text => "TOOK ms".to_owned(),
        _ => column.name.to_owned(),
    };
    let names: Vec<String> = COLUMNS.iter().map(name).collect();
    line(cx, form, names);
}

fn line(cx: &mut Cx, form: Form, cells: Vec<String>) {
    match form {
        Form::Json => {}
        Form::Parsable => writeln!(cx.out, "{}", cells.join("\t")),
        Form::Text => {
            let pad = |((cell, column), width): ((String, &Column), &usize)| match column.unit {
                Unit::Text => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            let cells: Vec<String> = cells.into_iter().zip(&COLUMNS).zip(&WIDTHS).map(pad).collect();
            writeln!(cx.out, "{}", cells.join(" ").trim_end());
        }
    }
}

fn print(cx: &mut Cx, form: Form, op: &SlowOp) {
    let cells = cells(cx, form, op);
    if form == Form::Json {
        writeln!(cx.out, "{}", object(&COLUMNS, &cells).line());
        return;
    }
    let text = |(column, cell): (&Column, &Cell)| match form {
        Form::Parsable => exact(column.unit, cell, &NO_SPAN),
        _ => shown(column.unit, cell, &NO_SPAN),
    };
    let cells = COLUMNS.iter().zip(&cells).map(text).collect();
    line(cx, form, cells);
}

fn cells(cx: &Cx, form: Form, op: &SlowOp) -> Vec<Cell> {
    let of = |kind: &str| {
        let same = op.waits.iter().filter(|(name, _)| name == kind);
        same.fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns))
    };
    let all = op.waits.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let known = WAITS.map(of);
    let others = known.iter().fold(all, |rest, ns| rest.saturating_sub(*ns));
    let time = match form {
        Form::Text => {
            let ms = op.at_ns / 1_000_000;
            format!("{}.{:03}", cx.clock.time(ms / 1000), ms % 1000)
        }
        Form::Parsable | Form::Json => String::new(),
    };
    let time = if form == Form::Text { time.as_str().into() } else { Cell::Number(op.at_ns) };
    let mut cells = vec![time, op.took_ns.into(), op.took_ns.saturating_sub(all).into()];
    cells.extend(known.map(Cell::Number));
    cells.extend([
        others.into(),
        text(&op.subject.op),
        text(&op.subject.frontend),
        op.bytes.into(),
        text(op.error.as_deref().unwrap_or_default()),
        client(&op.subject),
        text(&op.subject.dataset),
        file(&op.subject),
        op.longest.as_ref().map_or(Cell::Nothing, |longest| words(longest).as_str().into()),
    ]);
    cells
}

#[cfg(test)]
mod tests;
