//! `poolhouse lockstat`: for which locks threads of the daemon wait, and where in its code.
//!
//! # Theory
//! The daemon counts each wait for a lock, by the lock and by the code that waits. This command
//! reads the counts twice, and prints what was added.
//!
//! # Absent
//! Times that locks are held, and who holds them. OpenZFS has no such command: Solaris `lockstat`
//! is the model.

use api::{Top, TopQuery, TopTimes, TopView};
use console::getopt::{Found, Getopt, Long, Opt};
use std::cmp::Reverse;

use crate::cx::{Cx, Outcome, Stop};
use crate::ops::no_daemon;
use crate::top::table::{Cell, Column, Command, Form, Times, Unit, column, interval, wrong_option};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse lockstat [-c] [-n SECONDS] [-j|-p]";

const USAGE: &str = "\
usage: poolhouse lockstat [-c] [-n SECONDS] [-j|-p]

Prints for which locks threads of the daemon wait: since its start, or with -n for SECONDS. Those with
the longest waits in all come first.

    -c, --callers     a row for each place in the code that waits
    -n SECONDS        waits of the next SECONDS
    -p, --parsable    one header, tabs between columns, and exact numbers
    -j, --json        JSON
";

const NOTE: &str = "\
\nA lock has the name of what it protects, or the file and line that make it. Times are milliseconds,
with -p nanoseconds. Waits in condition variables are no waits for locks.\n";

const LONG: [Long; 4] = [
    Long { name: "callers", val: Opt::Short('c'), arg: false },
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 10] = [
    column("COUNT", "count", Unit::Number, "how often a thread waited"),
    column("INDV", "share", Unit::Share, "of all waits, by time"),
    column("CUML", "cumulated", Unit::Share, "the same of this row and those above"),
    column("TOTAL", "total_ns", Unit::Time, "how long threads waited in all"),
    column("AVG", "mean_ns", Unit::Time, "mean time of a wait"),
    column("p50", "p50_ns", Unit::Time, "half of the waits took at most this; up to a quarter too large"),
    column("p99", "p99_ns", Unit::Time, "99 of 100 waits took at most this; up to a quarter too large"),
    column("MAX", "max_ns", Unit::Time, "the longest; up to a quarter too large with -n"),
    column("LOCK", "lock", Unit::Text, "what it protects, or the file and line that make it"),
    column("CALLER", "caller", Unit::Text, "the file and line that wait; only with -c"),
];

const COMMAND: Command =
    Command { name: "poolhouse lockstat", rows: "locks", usage: USAGE, columns: &COLUMNS, note: NOTE };

/// The request, from the command line.
#[derive(Debug, Default)]
struct Asked {
    form: Form,
    by_caller: bool,
    seconds: Option<f64>,
}

/// Runs `lockstat` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    COMMAND.run(cx, args, |cx| show(cx, &read(args)?))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked::default();
    let mut g = Getopt::new(args, "cn:pj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('c'), _) => asked.by_caller = true,
            Found::Is(Opt::Short('n'), text) => asked.seconds = Some(interval(&text)?),
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(_, _) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    if !g.operands().is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    Ok(asked)
}

fn ask(cx: &mut Cx) -> Result<Top, Stop> {
    let service = cx.service()?;
    let query = TopQuery { view: TopView::Locks, ..TopQuery::default() };
    let top = service.top(&query).map_err(|error| cx.fail("cannot read the waits for locks", &error))?;
    if top.process == api::process_id() {
        return Err(no_daemon(cx));
    }
    Ok(top)
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    let mut before = Top::default();
    if let Some(seconds) = asked.seconds {
        before = ask(cx)?;
        (cx.sleep)(seconds);
    }
    let now = ask(cx)?;
    if before.run != now.run {
        // Another daemon counts from zero.
        before = Top { clock_ns: now.began_ns, ..Top::default() };
    }
    let rows = rows(asked, &before, &now);
    if asked.form == Form::Text {
        let seconds = now.clock_ns.saturating_sub(before.clock_ns) as f64 / 1e9;
        let (count, total) = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.count, sum.1 + row.total));
        let (rate, waited) = (count as f64 / seconds.max(1e-9), total as f64 / 1e9);
        writeln!(
            cx.out,
            "{count} waits for locks in {seconds:.1} s ({rate:.1} per second), {waited:.3} s in all"
        );
    }
    let (all, mut cumulated) = (rows.iter().map(|row| row.total).sum::<u64>(), 0u64);
    let share = |part: u64| u64::try_from(u128::from(part) * 10_000 / u128::from(all.max(1))).unwrap_or(0);
    let mut cells = Vec::new();
    for row in rows {
        cumulated += row.total;
        let mut line: Vec<Cell> =
            vec![row.count.into(), share(row.total).into(), share(cumulated).into(), row.total.into()];
        line.extend(row.times);
        line.push(row.lock.as_str().into());
        line.push(row.caller.map_or(Cell::Nothing, |caller| caller.as_str().into()));
        cells.push(line);
    }
    if asked.form != Form::Text || !cells.is_empty() {
        COMMAND.print(cx, asked.form, cells, true);
    }
    Ok(0)
}

/// Waits for a lock, perhaps at one place in the code.
struct Row {
    count: u64,
    total: u64,
    /// Mean, p50, p99 and longest.
    times: [Cell; 4],
    lock: String,
    caller: Option<String>,
}

/// The rows, those with the longest waits in all first.
fn rows(asked: &Asked, before: &Top, now: &Top) -> Vec<Row> {
    let mut rows = Vec::new();
    for lock in &now.locks {
        let old = before.locks.iter().find(|old| old.name == lock.name);
        let mut add = |old: Option<&TopTimes>, new: &TopTimes, caller: Option<String>| {
            let times = Times::between(old, new);
            if times.count > 0 {
                let (count, total, lock) = (times.count, times.sum, lock.name.clone());
                rows.push(Row { count, total, times: times.cells(), lock, caller });
            }
        };
        if !asked.by_caller {
            add(old.map(|old| &old.waits), &lock.waits, None);
            continue;
        }
        for (caller, times) in &lock.callers {
            let known = old.and_then(|old| old.callers.iter().find(|(known, _)| known == caller));
            add(known.map(|(_, times)| times), times, Some(caller.clone()));
        }
    }
    rows.sort_by_key(|row| (Reverse(row.total), row.lock.clone(), row.caller.clone()));
    rows
}

#[cfg(test)]
mod tests;
