//! `poolhouse cost`: what a command costs the daemon.
//!
//! # Theory
//! A session of the daemon counts the operations of this process and of those below it: the command
//! and its children. A second one counts what devices do meanwhile, for all.
//!
//! # Absent
//! OpenZFS has no such command: `ptime` and DTrace's `@[probefunc, errno]` are the models. Signals
//! that end the command from the terminal also end this one.

use api::{TraceGroup, TraceQuery, Traced};
use std::cmp::Reverse;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::cx::{Cx, Outcome, Stop};
use crate::json::{Json, Object, schema};
use crate::top::table::{Cell, Column, Form, NO_SPAN, Table, Unit, column, object};
use crate::trace::{ask, begin_both};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse cost [-j] [--] COMMAND [ARGUMENT]...";

const USAGE: &str = "\
usage: poolhouse cost [-j] [--] COMMAND [ARGUMENT]...

Runs COMMAND, and prints to standard error what it and the processes that it starts cost: the time,
and their operations on mounted file systems, by kind and error. Returns COMMAND's exit code. Only
for root and the daemon's own user.

    -j, --json  print JSON instead
";

const NOTE: &str = "\
\nTimes are milliseconds. CPU is what is no wait. Reads that the kernel's page cache answers don't reach
the daemon, and the kernel writes the pages of a file later, in no process's name.
";

/// The waits of operations that have a column.
const WAITS: [&str; 7] = ["queue", "lock", "txg", "log", "read", "write", "flush"];

const COLUMNS: [Column; 14] = [
    column("OP", "op", Unit::Text, "the operation, by the name of its system call"),
    column("VIA", "frontend", Unit::Text, "fuse: a mounted file system; block: an attached volume"),
    column("ERROR", "error", Unit::Text, "the errno with which it failed"),
    column("COUNT", "count", Unit::Number, "how many"),
    column("BYTES", "bytes", Unit::Number, "bytes read or written"),
    column("TOOK", "took_ns", Unit::Time, "how long they took in all"),
    column("CPU", "cpu_ns", Unit::Time, "what is no wait"),
    column("QUEUE", "queue_ns", Unit::Time, "until a thread took them"),
    column("LOCK", "lock_ns", Unit::Time, "locks, or ranges of objects"),
    column("TXG", "txg_ns", Unit::Time, "room in a transaction group, or the end of one"),
    column("LOG", "log_ns", Unit::Time, "another thread wrote the intent log for them"),
    column("READ", "read_ns", Unit::Time, "devices read"),
    column("WRITE", "write_ns", Unit::Time, "devices wrote"),
    column("FLUSH", "flush_ns", Unit::Time, "devices made writes durable"),
];

/// Seconds between two looks whether the command has ended.
const PAUSE: f64 = 0.02;
/// How often the sessions are read, so that they do not end.
const READ: Duration = Duration::from_secs(2);
/// Clock ticks of the system in a second (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Runs `cost` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    let mut form = Form::Text;
    let mut words = args;
    while let Some((first, rest)) = words.split_first() {
        match first.as_str() {
            "--help" | "-h" => {
                help(cx);
                return 0;
            }
            "-j" | "--json" => form = Form::Json,
            "--" => {
                words = rest;
                break;
            }
            option if option.starts_with('-') => {
                writeln!(cx.err, "invalid option '{option}'");
                cx.err.put(USAGE);
                return 2;
            }
            _ => break,
        }
        words = rest;
    }
    let Some((program, rest)) = words.split_first() else {
        cx.err.put("missing command\n");
        cx.err.put(USAGE);
        return 2;
    };
    match measure(cx, form, program, rest) {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            2
        }
    }
}

fn help(cx: &mut Cx) {
    cx.out.put(USAGE);
    cx.out.put("\nThe columns:\n");
    COLUMNS.iter().for_each(|column| writeln!(cx.out, "    {:<12} {}", column.name, column.help));
    cx.out.put(NOTE);
}

/// The session of the command's operations.
fn operations() -> TraceQuery {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    TraceQuery {
        event: "op_done".to_owned(),
        under: true,
        keys: texts(&["frontend", "op", "errno"]),
        sums: texts(&[&["bytes", "ns", "cpu"][..], &WAITS].concat()),
        ..TraceQuery::default()
    }
}

/// The session of what devices do.
fn devices() -> TraceQuery {
    let (keys, sums) = (vec!["work".to_owned()], vec!["bytes".to_owned()]);
    TraceQuery { event: "dev_io".to_owned(), keys, sums, ..TraceQuery::default() }
}

fn measure(cx: &mut Cx, form: Form, program: &str, args: &[String]) -> Outcome {
    let mut sessions = [operations(), devices()];
    begin_both(cx, &mut sessions)?;
    let (began, before) = (Instant::now(), children());
    let mut child = match Command::new(program).args(args).spawn() {
        Ok(child) => child,
        Err(error) => {
            writeln!(cx.err, "cannot run '{program}': {error}");
            end(cx, &mut sessions)?;
            return Err(Stop::Fail(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let (status, counting) = wait(cx, &mut child, &sessions)?;
    let took = began.elapsed();
    let used = children();
    let Ok([ops, io]) = counting.and_then(|()| end(cx, &mut sessions)) else {
        cx.err.put("the daemon's counts are lost; the command ended by itself\n");
        return Ok(code(status));
    };
    let times = Times { real: took.as_secs_f64(), user: used.0 - before.0, system: used.1 - before.1 };
    match form {
        Form::Json => json(cx, &times, &ops, &io),
        Form::Text | Form::Parsable => text(cx, &times, &ops, &io),
    }
    Ok(code(status))
}

/// Ends the sessions, and returns what they have counted.
fn end(cx: &mut Cx, sessions: &mut [TraceQuery; 2]) -> Result<[Traced; 2], Stop> {
    sessions.iter_mut().for_each(|session| session.end = true);
    let [ops, io] = sessions;
    Ok([ask(cx, ops)?, ask(cx, io)?])
}

/// Waits until the command has ended. Returns also whether the sessions were readable until then:
/// a daemon that goes away does not end the command.
fn wait(
    cx: &mut Cx,
    child: &mut Child,
    sessions: &[TraceQuery; 2],
) -> Result<(ExitStatus, Result<(), Stop>), Stop> {
    let mut read = Instant::now();
    let mut counting = Ok(());
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok((status, counting)),
            Ok(None) => {}
            Err(error) => {
                writeln!(cx.err, "cannot wait for the command: {error}");
                return Err(Stop::Fail(1));
            }
        }
        (cx.sleep)(PAUSE);
        if counting.is_ok() && read.elapsed() >= READ {
            read = Instant::now();
            counting = sessions.iter().try_for_each(|session| ask(cx, session).map(drop));
        }
    }
}

/// The exit code that a shell has for a status.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Seconds that children of this process computed, and the system for them.
fn children() -> (f64, f64) {
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // proc_pid_stat(5): field 3 follows the name, which may have parentheses and spaces.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field =
        |number: usize| rest.split_ascii_whitespace().nth(number - 3).and_then(|text| text.parse().ok());
    let seconds = |number| field(number).map_or(0.0, |ticks: f64| ticks / TICKS);
    (seconds(16), seconds(17))
}

/// Seconds of the command.
struct Times {
    real: f64,
    user: f64,
    system: f64,
}

/// The operations, those that took the longest first.
fn rows(ops: &Traced) -> Vec<Vec<Cell>> {
    let sum = |group: &TraceGroup, at: usize| group.sums.get(at).copied().unwrap_or(0);
    let mut groups: Vec<&TraceGroup> = ops.groups.iter().collect();
    groups.sort_by_key(|group| (Reverse(sum(group, 1)), group.keys.clone()));
    let row = |group: &TraceGroup| {
        let key = |at: usize| group.keys.get(at).map_or("", String::as_str);
        let error = if key(2) == "0" { Cell::Nothing } else { key(2).into() };
        let mut row: Vec<Cell> = vec![key(1).into(), key(0).into(), error, group.count.into()];
        row.extend((0..3 + WAITS.len()).map(|at| Cell::Number(sum(group, at))));
        row
    };
    groups.into_iter().map(row).collect()
}

/// What devices did: the count and the bytes of a kind of work.
fn done(io: &Traced, work: &str) -> (u64, u64) {
    let of = io.groups.iter().find(|group| group.keys.first().is_some_and(|key| key == work));
    of.map_or((0, 0), |group| (group.count, group.sums.first().copied().unwrap_or(0)))
}

fn text(cx: &mut Cx, times: &Times, ops: &Traced, io: &Traced) {
    let Times { real, user, system } = times;
    let cpu = ops.cpu_ns as f64 / 1e9;
    writeln!(
        cx.err,
        "\nreal {real:.3} s   user {user:.2} s   sys {system:.2} s   the daemon's processor time {cpu:.3} s, for all"
    );
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let ((reads, read), (writes, written), (flushes, _)) =
        (done(io, "read"), done(io, "write"), done(io, "flush"));
    writeln!(
        cx.err,
        "devices, for all: {reads} reads ({:.1} MB), {writes} writes ({:.1} MB), {flushes} flushes",
        mib(read),
        mib(written)
    );
    let rows = rows(ops);
    if rows.is_empty() {
        cx.err.put("no operation of the command reached the daemon\n");
    } else {
        let table = Table::new(&COLUMNS, rows);
        table.lines(&NO_SPAN).iter().for_each(|line| writeln!(cx.err, "{line}"));
    }
    if ops.is_sampled || io.is_sampled {
        writeln!(cx.err, "the counts are estimates: not all operations were taken");
    }
}

fn json(cx: &mut Cx, times: &Times, ops: &Traced, io: &Traced) {
    let mut root = schema("poolhouse cost");
    root.decimal("real", times.real);
    root.decimal("user", times.user);
    root.decimal("sys", times.system);
    root.number("daemon_cpu_ns", ops.cpu_ns);
    root.put("sampled", Json::Bool(ops.is_sampled || io.is_sampled));
    let mut all = Object::new();
    for work in ["read", "write", "flush", "trim"] {
        let (count, bytes) = done(io, work);
        all.number(format!("{work}s"), count);
        all.number(format!("{work}_bytes"), bytes);
    }
    root.object("devices", all);
    root.put("ops", Json::Objects(rows(ops).iter().map(|row| object(&COLUMNS, row)).collect()));
    writeln!(cx.err, "{}", root.line());
}

#[cfg(test)]
mod tests;
