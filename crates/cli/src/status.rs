//! `poolhouse status`: one line for each pool, with what limits it now.
//!
//! # Theory
//! For a second, two sessions of the daemon count the operations of users: how long they took, and
//! what they waited for. A pool is limited by what its operations waited for the longest. What they
//! did not wait for, they computed.
//!
//! A pool that users don't use is idle, whatever its devices do for a scrub.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own. FoundationDB's `performance_limited_by` is
//! the model.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::{Pool, PoolQuery, ScanFunc, ScanState, TraceGroup, TraceQuery, Traced};
use console::getopt::{Found, Getopt, Long, Opt};

use crate::cx::{Cx, Outcome, Stop};
use crate::top::table::{Cell, Column, Command, Form, Unit, column, interval, wrong_option};
use crate::trace::{ask, begin_both};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse status [-j|-p] [-n SECONDS] [POOL]...";

const USAGE: &str = "\
usage: poolhouse status [-j|-p] [-n SECONDS] [POOL]...

Prints a line for each pool, or for those that are named: what users do now, and what limits them. Only
for root and the daemon's own user.

    -n SECONDS        look for so long (1)
    -p, --parsable    one header, tabs between columns, and exact numbers
    -j, --json        JSON
";

const NOTE: &str = "\
\nA share is of the time of all operations. Reads that the kernel's page cache answers don't reach the
daemon. zpool status says what is wrong with a pool.
";

const LONG: [Long; 3] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 8] = [
    column("POOL", "pool", Unit::Text, "the pool"),
    column("HEALTH", "health", Unit::Text, "its state, as zpool list has it"),
    column("CAP", "capacity", Unit::Text, "space in use"),
    column("OPS/s", "ops_per_second", Unit::Number, "operations of users that ended"),
    column("BUSY", "busy", Unit::Text, "operations under way, on average"),
    column("AVG", "mean_ns", Unit::Time, "mean time of an operation"),
    column("LIMITED BY", "limited_by", Unit::Text, "what operations waited for the longest, and its share"),
    column("WORK", "work", Unit::Text, "scrub or resilver, and its progress"),
];

const COMMAND: Command =
    Command { name: "poolhouse status", rows: "pools", usage: USAGE, columns: &COLUMNS, note: NOTE };

/// A wait below this share in per cent is not named.
const LEAST_SHARE: f64 = 10.0;

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    form: Form,
    seconds: f64,
    pools: Vec<String>,
}

/// Runs `status` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    COMMAND.run(cx, args, |cx| show(cx, read(args)?))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked { form: Form::Text, seconds: 1.0, pools: Vec::new() };
    let mut g = Getopt::new(args, "pjn:", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(Opt::Short('n'), text) => asked.seconds = interval(&text)?,
            Found::Is(..) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    asked.pools = g.operands();
    Ok(asked)
}

/// The session of operations, by datasets.
fn operations() -> TraceQuery {
    TraceQuery {
        event: "op_done".to_owned(),
        keys: vec!["dataset".to_owned()],
        measure: "sum:ns".to_owned(),
        sums: vec!["cpu".to_owned()],
        ..TraceQuery::default()
    }
}

/// The session of what they wait for.
fn waits() -> TraceQuery {
    TraceQuery {
        event: "wait_done".to_owned(),
        keys: ["dataset", "wait", "what"].map(str::to_owned).into(),
        measure: "sum:ns".to_owned(),
        ..TraceQuery::default()
    }
}

fn show(cx: &mut Cx, asked: Asked) -> Outcome {
    let service = cx.service()?;
    let names = match asked.pools.is_empty() {
        true => service.pool_names().map_err(|error| cx.fail("cannot list pools", &error))?,
        false => asked.pools,
    };
    let mut sessions = [operations(), waits()];
    begin_both(cx, &mut sessions)?;
    (cx.sleep)(asked.seconds);
    sessions.iter_mut().for_each(|session| session.end = true);
    let [ops, waits] = sessions;
    let (ops, waits) = (ask(cx, &ops)?, ask(cx, &waits)?);
    let (mut rows, mut code) = (Vec::new(), 0);
    for name in names {
        match service.pool(&name, &PoolQuery { props: true, ..PoolQuery::default() }) {
            Ok(pool) => rows.push(row(&pool, &ops, &waits)),
            Err(error) => {
                cx.fail(&format!("cannot read the state of '{name}'"), &error);
                code = 1;
            }
        }
    }
    COMMAND.print(cx, asked.form, rows, true);
    if ops.is_sampled || waits.is_sampled {
        writeln!(cx.err, "the numbers are estimates: not all operations were taken");
    }
    Ok(code)
}

/// What operations of a pool did in a span of time.
#[derive(Debug, Default)]
struct Load {
    count: u64,
    /// Nanoseconds that they took, together.
    took: u64,
    /// Nanoseconds in which they did not wait.
    cpu: u64,
    /// Nanoseconds of waits, by kind and by what exactly.
    waits: BTreeMap<(String, String), u64>,
}

impl Load {
    fn of(pool: &str, ops: &Traced, waits: &Traced) -> Self {
        let mut load = Self::default();
        let is_here = |group: &&TraceGroup| {
            let dataset = group.keys.first().map_or("", String::as_str);
            dataset.split(['/', '@']).next() == Some(pool)
        };
        for group in ops.groups.iter().filter(is_here) {
            load.count += group.count;
            load.took = load.took.saturating_add(group.sum);
            load.cpu = load.cpu.saturating_add(group.sums.first().copied().unwrap_or(0));
        }
        for group in waits.groups.iter().filter(is_here) {
            let [_, wait, what] = &group.keys[..] else { continue };
            let sum = load.waits.entry((wait.clone(), what.clone())).or_default();
            *sum = sum.saturating_add(group.sum);
        }
        load
    }

    /// What limits it: the longest waits, each with its share, the longest first.
    fn limits(&self) -> Vec<(f64, String)> {
        let whole = self.took.max(1) as f64;
        let mut limits: Vec<(f64, String)> = Vec::new();
        for ((wait, what), ns) in &self.waits {
            let name = if what.is_empty() || what == "-" { wait.clone() } else { format!("{wait} {what}") };
            limits.push((100.0 * *ns as f64 / whole, name));
        }
        limits.push((100.0 * self.cpu as f64 / whole, "processor".to_owned()));
        limits.retain(|(share, _)| *share >= LEAST_SHARE);
        limits.sort_by_key(|(share, name)| (Reverse((share * 100.0) as u64), name.clone()));
        limits
    }
}

/// The progress of a scan.
fn work(pool: &Pool) -> Cell {
    let Some(scan) = pool.scan.as_ref().filter(|scan| scan.state == ScanState::Scanning) else {
        return Cell::Nothing;
    };
    let name = if scan.func == ScanFunc::Scrub { "scrub" } else { "resilver" };
    let whole = scan.to_examine.saturating_sub(scan.skipped).max(1);
    let paused = if scan.pass_scrub_pause != 0 { ", paused" } else { "" };
    format!("{name} {:.0} %{paused}", 100.0 * scan.issued.min(whole) as f64 / whole as f64).as_str().into()
}

fn row(pool: &Pool, ops: &Traced, waits: &Traced) -> Vec<Cell> {
    let load = Load::of(&pool.name, ops, waits);
    let prop = |name: &str| pool.prop(name).map_or("-", |prop| prop.text.as_str()).into();
    let ns = ops.ns.max(1);
    let limit = match load.limits()[..] {
        _ if pool.suspended.is_some() => format!("it is suspended: zpool clear {}", pool.name),
        _ if load.count == 0 => "idle".to_owned(),
        [] => "many short waits".to_owned(),
        ref limits => {
            let text = |(share, name): &(f64, String)| format!("{name} {share:.0} %");
            limits.iter().take(3).map(text).collect::<Vec<_>>().join(", ")
        }
    };
    vec![
        pool.name.as_str().into(),
        prop("health"),
        prop("capacity"),
        (u128::from(load.count) * 1_000_000_000 / u128::from(ns)).try_into().unwrap_or(u64::MAX).into(),
        format!("{:.2}", load.took as f64 / ns as f64).as_str().into(),
        load.took.checked_div(load.count).map_or(Cell::Nothing, Cell::Number),
        limit.as_str().into(),
        work(pool),
    ]
}

#[cfg(test)]
mod tests;
