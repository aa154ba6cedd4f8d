//! `poolhouse ops`: what is under way now.
//!
//! # Theory
//! The daemon reads what its threads have noted, and takes no lock of a pool. So the command
//! answers while a device hangs.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own.

use crate::cx::{Cx, Outcome, Stop};
use crate::json::Json;
use crate::top::table::{Cell, Column, Span, Table, Unit, column, object};
use api::{Subject, UnderWay, Waited};
use console::getopt::{Found, Getopt, Long, Opt};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse ops [-j|-p] [INTERVAL [COUNT]]";

const USAGE: &str = "\
usage: poolhouse ops [-j|-p] [INTERVAL [COUNT]]

Prints what is under way now, the oldest first: operations of users, requests of commands, and tasks
of the engine. With INTERVAL: again each INTERVAL seconds, COUNT times or without end. Only for root
and the daemon's own user.

    -p, --parsable    one header, tabs between columns, and exact numbers
    -j, --json        one JSON document each time
";

const NOTE: &str = "\
\nReads that the kernel's page cache answers don't reach the daemon. Calls of AFS clients are not here.\n";

const LONG: [Long; 3] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 10] = [
    column("AGE", "age_ns", Unit::Time, "how long ago it began"),
    column("OP", "op", Unit::Text, "the operation, request or task"),
    column("VIA", "frontend", Unit::Text, "fuse, nbd, block, or control: a request of a command"),
    column("CLIENT", "client", Unit::Text, "the process that sent it, its number and user"),
    column("DATASET", "dataset", Unit::Text, "the dataset"),
    column("FILE", "file", Unit::Text, "the file, or the directory of a name, or its object number"),
    column("WAITS FOR", "wait", Unit::Text, "what it waits for, and what exactly; - if it computes"),
    column("SINCE", "wait_ns", Unit::Time, "how long it has waited for that"),
    column("THREADS", "threads", Unit::Number, "how many threads work for it"),
    column("THREAD", "thread", Unit::Text, "its thread, or the one whose wait is shown"),
];

/// How the operations are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Parsable,
    Json,
}

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    form: Form,
    interval: Option<f64>,
    /// How many times. `None`: without end, or once if there is no interval.
    count: Option<u64>,
}

/// Runs `ops` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        cx.out.put(USAGE);
        cx.out.put("\nThe columns:\n");
        COLUMNS.iter().for_each(|column| writeln!(cx.out, "    {:<12} {}", column.name, column.help));
        cx.out.put(NOTE);
        return 0;
    }
    match read(args).and_then(|asked| show(cx, &asked)) {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            cx.err.put(USAGE);
            2
        }
    }
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked { form: Form::Text, interval: None, count: None };
    let mut g = Getopt::new(args, "pj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(_, _) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(Stop::usage(format!("invalid option '{}'\n", g.word()))),
            Found::Missing(_) => {
                return Err(Stop::usage(format!("missing argument for option '{}'\n", g.word())));
            }
        }
    }
    let operands = g.operands();
    if operands.len() > 2 {
        return Err(Stop::usage("too many arguments\n"));
    }
    if let Some(word) = operands.first() {
        let interval = word.parse::<f64>().ok().filter(|s| (0.1..=86_400.0).contains(s));
        let wrong = || Stop::usage(format!("invalid interval '{word}': choose 0.1 to 86400 seconds\n"));
        asked.interval = Some(interval.ok_or_else(wrong)?);
    }
    if let Some(word) = operands.get(1) {
        let count = word.parse::<u64>().ok().filter(|count| *count > 0);
        asked.count = Some(count.ok_or_else(|| Stop::usage(format!("invalid count '{word}'\n")))?);
    }
    Ok(asked)
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    for round in 1u64.. {
        let service = cx.service()?;
        let all = service.under_way().map_err(|error| cx.fail("cannot read what is under way", &error))?;
        if all.process == api::process_id() {
            return Err(no_daemon(cx));
        }
        print(cx, asked.form, &all.ops, round == 1);
        let Some(interval) = asked.interval else { break };
        if !cx.out.flush() || asked.count == Some(round) {
            break;
        }
        (cx.sleep)(interval);
    }
    Ok(0)
}

/// Reports that there is no daemon.
pub(crate) fn no_daemon(cx: &mut Cx) -> Stop {
    cx.err.put("no poolhouse daemon runs: the first import of a pool starts one\n");
    Stop::Fail(1)
}

fn print(cx: &mut Cx, form: Form, ops: &[UnderWay], is_first: bool) {
    let table = Table::new(&COLUMNS, ops.iter().map(row).collect());
    let span = Span { ns: 0, is_total: true, began: 0 };
    match form {
        Form::Json => {
            let mut root = crate::json::schema("poolhouse ops");
            root.number("time", cx.clock.now());
            root.put("ops", Json::Objects(table.rows.iter().map(|row| object(&COLUMNS, row)).collect()));
            writeln!(cx.out, "{}", root.line());
        }
        Form::Parsable => {
            let time = cx.clock.now();
            cx.out.put(&table.parsable(&span, time, is_first));
        }
        Form::Text => {
            if !is_first {
                cx.out.put("\n");
            }
            match ops {
                [] => cx.out.put("nothing is under way\n"),
                _ => table.lines(&span).iter().for_each(|line| writeln!(cx.out, "{line}")),
            }
        }
    }
}

/// Text, or nothing if it is empty.
pub(crate) fn text(text: &str) -> Cell {
    if text.is_empty() { Cell::Nothing } else { text.into() }
}

/// The process that sent an operation: its name, number and user.
pub(crate) fn client(subject: &Subject) -> Cell {
    match subject.pid {
        // The kernel sends requests of its own, and a daemon in another namespace sees no number.
        0 => Cell::Nothing,
        pid => format!("{}[{pid}] u:{}", subject.process, subject.uid).as_str().into(),
    }
}

/// The file of an operation: its path, or the number of its object.
pub(crate) fn file(subject: &Subject) -> Cell {
    match (&subject.path, subject.object, subject.txg) {
        (Some(path), ..) => path.as_str().into(),
        (None, Some(object), _) => format!("object {object}").as_str().into(),
        (None, None, Some(txg)) => format!("txg {txg}").as_str().into(),
        (None, None, None) => Cell::Nothing,
    }
}

/// A wait in words.
pub(crate) fn words(waited: &Waited) -> String {
    if waited.what.is_empty() { waited.wait.clone() } else { format!("{}: {}", waited.wait, waited.what) }
}

fn row(op: &UnderWay) -> Vec<Cell> {
    let wait = op.wait.as_ref();
    vec![
        op.age_ns.into(),
        text(&op.subject.op),
        text(&op.subject.frontend),
        client(&op.subject),
        text(&op.subject.dataset),
        file(&op.subject),
        wait.map_or(Cell::Nothing, |wait| words(wait).as_str().into()),
        wait.map_or(Cell::Nothing, |wait| wait.ns.into()),
        op.helpers.saturating_add(1).into(),
        text(&op.thread),
    ]
}

#[cfg(test)]
mod tests;
