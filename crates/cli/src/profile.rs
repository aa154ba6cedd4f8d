//! `poolhouse profile`: what threads of the daemon do, by samples.
//!
//! # Theory
//! A session of the daemon sees 99 times a second what each thread works on, and what it waits for.
//! This command counts what was seen alike. So a thread that waits is as visible as one that
//! computes, without privileges and without signals.
//!
//! Files for other programs have the samples as stacks of four frames: the operation, its dataset,
//! the kind of the wait, and what it waits for.
//!
//! # Absent
//! Stacks of the code: `perf record --call-graph dwarf` has them. Firefox Profiler's own format: it
//! reads pprof. OpenZFS has no such command: Oracle's active session history is the model.

mod flame;
mod pprof;

use std::cmp::Reverse;
use std::io::Write;

use api::{TraceQuery, Traced};
use console::getopt::{Found, Getopt, Long, Opt};

use crate::cx::{Cx, Outcome, Stop};
use crate::ops::words;
use crate::top::table::{Cell, Column, Command, Form, Unit, column, interval, wrong_option};
use crate::trace::{ask, conditions};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str =
    "poolhouse profile [-n SECONDS] [-w CONDITION]... [-t ROWS] [-o FILE.svg|FILE.pb|FILE.folded] [-j|-p]";

const USAGE: &str = "\
usage: poolhouse profile [-n SECONDS] [-w CONDITION]... [-t ROWS] [-o FILE.svg|FILE.pb|FILE.folded]
                         [-j|-p]

Samples what threads of the daemon work on and wait for, 99 times a second. Only for root and the
daemon's own user.

    -n SECONDS        for so long (10)
    -w CONDITION      only samples with this: 'dataset~tank/db*', 'op=fsync', 'wait!=computes'
    -t ROWS           at most so many rows, those with the most samples (20)
    -o FILE           write a flame graph (.svg), or stacks for pprof (.pb) or others (.folded)
    -p, --parsable    one header, tabs between columns, and exact numbers
    -j, --json        JSON
";

const NOTE: &str = "\
\nA thread without an operation or task is not seen. 'computes' also is a wait for a processor. In a
flame graph the rows are the operation, its dataset, the kind of the wait, and what it waits for.
";

const LONG: [Long; 3] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 6] = [
    column("SHARE", "share", Unit::Share, "of all samples"),
    column("SAMPLES", "samples", Unit::Number, "how often this was seen"),
    column("THREADS", "threads", Unit::Text, "how many threads did this, on average"),
    column("OP", "op", Unit::Text, "the operation of a user, or the task of the daemon"),
    column("DATASET", "dataset", Unit::Text, "its dataset"),
    column("DOES", "does", Unit::Text, "what it waits for, or that it computes"),
];

const COMMAND: Command =
    Command { name: "poolhouse profile", rows: "samples", usage: USAGE, columns: &COLUMNS, note: NOTE };

/// Samples in a second, as the reference of the event says.
const RATE: f64 = 99.0;
/// The longest time between two readings, in seconds.
const PAUSE: f64 = 2.0;

/// What is written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Flame,
    Pprof,
    Folded,
}

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    query: TraceQuery,
    form: Form,
    seconds: f64,
    rows: usize,
    file: Option<(String, Format)>,
}

/// What was seen alike: frames from the outermost on, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stack {
    frames: [String; 4],
    count: u64,
}

impl Stack {
    /// The frames that say something.
    fn named(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().map(String::as_str).filter(|frame| !frame.is_empty())
    }
}

/// Runs `profile` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    COMMAND.run(cx, args, |cx| show(cx, read(args)?))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let query = TraceQuery {
        event: "sample".to_owned(),
        keys: ["op", "dataset", "wait", "what"].map(str::to_owned).into(),
        ..TraceQuery::default()
    };
    let mut asked = Asked { query, form: Form::Text, seconds: 10.0, rows: 20, file: None };
    let mut g = Getopt::new(args, "n:w:t:o:pj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('n'), text) => asked.seconds = interval(&text)?,
            Found::Is(Opt::Short('w'), text) => {
                asked.query.conditions.extend(conditions::read(&text).map_err(Stop::usage)?);
            }
            Found::Is(Opt::Short('t'), text) => {
                let wrong = || Stop::usage(format!("invalid number of rows '{text}'\n"));
                asked.rows = text.parse().ok().filter(|rows| *rows > 0).ok_or_else(wrong)?;
            }
            Found::Is(Opt::Short('o'), name) => asked.file = Some((name.clone(), format_of(&name)?)),
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(..) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    if g.operands().is_empty() { Ok(asked) } else { Err(Stop::usage("too many arguments\n")) }
}

/// The format that a file's name says.
fn format_of(name: &str) -> Result<Format, Stop> {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("svg") => Ok(Format::Flame),
        Some("pb") => Ok(Format::Pprof),
        Some("folded") => Ok(Format::Folded),
        _ => Err(Stop::usage(format!("'{name}' has no known format: end it with .svg, .pb or .folded\n"))),
    }
}

fn show(cx: &mut Cx, mut asked: Asked) -> Outcome {
    // Made first, so that no profile is lost to a wrong name.
    let mut file = match &asked.file {
        Some((name, _)) => Some(std::fs::File::create(name).map_err(|error| failed(cx, name, &error))?),
        None => None,
    };
    asked.query.session = Some(ask(cx, &asked.query)?.session);
    let mut left = asked.seconds;
    while left > PAUSE {
        (cx.sleep)(PAUSE);
        ask(cx, &asked.query)?;
        left -= PAUSE;
    }
    (cx.sleep)(left);
    asked.query.end = true;
    let traced = ask(cx, &asked.query)?;
    let stacks = stacks(&traced);
    if let (Some(file), Some((name, format))) = (&mut file, &asked.file) {
        let bytes = match format {
            Format::Flame => flame::graph(&stacks).into_bytes(),
            Format::Pprof => pprof::profile(&stacks, traced.ns),
            Format::Folded => folded(&stacks).into_bytes(),
        };
        file.write_all(&bytes).map_err(|error| failed(cx, name, &error))?;
        writeln!(cx.err, "wrote {} stacks to '{name}'", stacks.len());
    }
    let all: u64 = stacks.iter().map(|stack| stack.count).sum();
    let rows = stacks.iter().take(asked.rows).map(|stack| row(stack, all, asked.seconds));
    COMMAND.print(cx, asked.form, rows.collect(), true);
    if stacks.is_empty() && asked.form == Form::Text {
        cx.err.put("no thread was seen at work\n");
    }
    if traced.is_sampled {
        writeln!(cx.err, "the counts are estimates: not all operations were taken");
    }
    Ok(0)
}

fn failed(cx: &mut Cx, name: &str, error: &std::io::Error) -> Stop {
    writeln!(cx.err, "cannot write '{name}': {error}");
    Stop::Fail(1)
}

/// What was seen, the most frequent first.
fn stacks(traced: &Traced) -> Vec<Stack> {
    let stack = |keys: &[String], count| {
        let key = |at: usize| keys.get(at).map_or("", String::as_str);
        let op = if key(0).is_empty() { "other" } else { key(0) };
        let does = if key(2).is_empty() { "other" } else { key(2) };
        let frames = [op, key(1), does, key(3)].map(|text| console::escaped(text).into_owned());
        Stack { frames, count }
    };
    let mut all: Vec<Stack> = traced.groups.iter().map(|group| stack(&group.keys, group.count)).collect();
    all.extend(traced.others.iter().map(|others| stack(&[], others.count)));
    all.sort_by(|a, b| (Reverse(a.count), &a.frames).cmp(&(Reverse(b.count), &b.frames)));
    all
}

fn row(stack: &Stack, all: u64, seconds: f64) -> Vec<Cell> {
    let [op, dataset, wait, what] = &stack.frames;
    let share = u128::from(stack.count) * 10_000 / u128::from(all.max(1));
    let does = words(&api::Waited { wait: wait.clone(), what: what.clone(), ns: 0 });
    vec![
        u64::try_from(share).unwrap_or(10_000).into(),
        stack.count.into(),
        format!("{:.2}", stack.count as f64 / (seconds * RATE)).as_str().into(),
        op.as_str().into(),
        if dataset.is_empty() { Cell::Nothing } else { dataset.as_str().into() },
        does.as_str().into(),
    ]
}

/// Stacks in lines, as `flamegraph.pl` and speedscope read them.
fn folded(stacks: &[Stack]) -> String {
    let frame = |text: &str| text.replace([';', '\n'], "_");
    let line = |stack: &Stack| {
        let frames: Vec<String> = stack.named().map(frame).collect();
        format!("{} {}\n", frames.join(";"), stack.count)
    };
    stacks.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
