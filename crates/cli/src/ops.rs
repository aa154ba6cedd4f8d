//! `poolhouse ops`: what is under way now.
//!
//! # Theory
//! The daemon reads what its threads have noted, and takes no lock of a pool. So the command
//! answers while a device hangs.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own.

use crate::cx::{Cx, Outcome, Stop};
use crate::top::table::{Cell, Column, Command, Form, Unit, column, count, interval, wrong_option};
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
    column("CLIENT", "client", Unit::Text, "the process that sent it, its number and user; or an address"),
    column("DATASET", "dataset", Unit::Text, "the dataset"),
    column("FILE", "file", Unit::Text, "the file, or the directory of a name, or its object number"),
    column("WAITS FOR", "wait", Unit::Text, "what it waits for, and what exactly; - if it computes"),
    column("SINCE", "wait_ns", Unit::Time, "how long it has waited for that"),
    column("THREADS", "threads", Unit::Number, "how many threads work for it"),
    column("THREAD", "thread", Unit::Text, "its thread, or the one whose wait is shown"),
];

const COMMAND: Command =
    Command { name: "poolhouse ops", rows: "ops", usage: USAGE, columns: &COLUMNS, note: NOTE };

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
    COMMAND.run(cx, args, |cx| show(cx, &read(args)?))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked { form: Form::Text, interval: None, count: None };
    let mut g = Getopt::new(args, "pj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(_, _) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    let operands = g.operands();
    if operands.len() > 2 {
        return Err(Stop::usage("too many arguments\n"));
    }
    asked.interval = operands.first().map(|word| interval(word)).transpose()?;
    asked.count = operands.get(1).map(|word| count(word)).transpose()?;
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
    if form == Form::Text && !is_first {
        cx.out.put("\n");
    }
    match (form, ops) {
        (Form::Text, []) => cx.out.put("nothing is under way\n"),
        // People see another table each time.
        _ => COMMAND.print(cx, form, ops.iter().map(row).collect(), is_first || form == Form::Text),
    }
}

/// Text, or nothing if it is empty.
pub(crate) fn text(text: &str) -> Cell {
    if text.is_empty() { Cell::Nothing } else { text.into() }
}

/// The client that sent an operation: its address, or its process with its number and user.
pub(crate) fn client(subject: &Subject) -> Cell {
    match (subject.pid, &subject.address) {
        (0, Some(address)) => address.as_str().into(),
        // The kernel sends requests of its own, and a daemon in another namespace sees no number.
        (0, None) => Cell::Nothing,
        (pid, _) => format!("{}[{pid}] u:{}", subject.process, subject.uid).as_str().into(),
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
