//! `poolhouse txgs`: the newest transaction groups, why each closed, and where its time went.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own. Its kstat `txgs` has the stages.

use crate::cx::{Cx, Outcome, Stop};
use crate::ops::{no_daemon, text, words};
use crate::top::table::{Cell, Column, Command, Form, Unit, column, interval, wrong_option};
use api::{TXGS_MAX, TxgRecord};
use console::getopt::{Found, Getopt, Long, Opt};
use std::collections::BTreeMap;

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse txgs [-j|-p] [-n COUNT] [POOL [INTERVAL]]";

const USAGE: &str = "\
usage: poolhouse txgs [-j|-p] [-n COUNT] [POOL [INTERVAL]]

Prints the newest transaction groups of a pool, or of all: why each closed, what it held, and where
the time of its sync went. With INTERVAL: each group once, when it is on disk, looking each INTERVAL
seconds until Ctrl-C.

    -n COUNT          the last COUNT groups of each pool (20); the daemon remembers zfs_txg_history
    -p, --parsable    one header, tabs between columns, and exact numbers
    -j, --json        one JSON document each time
";

const LONG: [Long; 3] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

const COLUMNS: [Column; 18] = [
    column("POOL", "pool", Unit::Text, "the pool"),
    column("TXG", "txg", Unit::Number, "its number"),
    column(
        "STAGE",
        "stage",
        Unit::Text,
        "open, quiescing, waiting (for the sync before), syncing, committed",
    ),
    column(
        "CLOSED BY",
        "closed",
        Unit::Text,
        "age: zfs_txg_timeout; dirty: zfs_dirty_data_sync_percent; full: zfs_dirty_data_max; request: \
         something waits for it, which is named; continued: work of the sync before goes on; export",
    ),
    column("DIRTY", "dirty", Unit::Bytes, "bytes that were changed in it"),
    column("IN", "read", Unit::Bytes, "bytes that devices read during its sync, for any purpose"),
    column("OUT", "written", Unit::Bytes, "bytes that devices wrote during its sync, for any purpose"),
    column("OPEN", "open_ns", Unit::Time, "how long it was open"),
    column("QUIESCE", "quiesce_ns", Unit::Time, "until the last change in it ended"),
    column("WAIT", "wait_ns", Unit::Time, "until the group before was on disk"),
    column("SYNC", "sync_ns", Unit::Time, "its sync; the next five are parts of it"),
    column("CPU", "cpu_ns", Unit::Time, "the sync thread computes, or waits for a processor or for memory"),
    column("READ", "read_ns", Unit::Time, "a device reads"),
    column("WRITE", "write_ns", Unit::Time, "a device writes"),
    column("FLUSH", "flush_ns", Unit::Time, "a device makes writes durable"),
    column("OTHER", "other_ns", Unit::Time, "locks, logs, threads that compute for it, a suspended pool"),
    column("LONGEST", "longest", Unit::Text, "the longest wait of its sync"),
    column("TIME LINE", "time_line", Unit::Text, "o open, q quiescing, w waiting, S syncing"),
];

/// The length of a time line.
const LINE: u64 = 24;

const COMMAND: Command =
    Command { name: "poolhouse txgs", rows: "txgs", usage: USAGE, columns: &COLUMNS, note: "" };

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    form: Form,
    count: usize,
    pool: Option<String>,
    interval: Option<f64>,
}

/// Runs `txgs` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    COMMAND.run(cx, args, |cx| show(cx, &read(args)?))
}

fn read(args: &[String]) -> Result<Asked, Stop> {
    let mut asked = Asked { form: Form::Text, count: 20, pool: None, interval: None };
    let mut g = Getopt::new(args, "pjn:", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(Opt::Short('n'), text) => {
                let wrong = || Stop::usage(format!("invalid count '{text}': choose 1 to {TXGS_MAX}\n"));
                let count = text.parse().ok().filter(|count| (1..=TXGS_MAX).contains(count));
                asked.count = count.ok_or_else(wrong)?;
            }
            Found::Is(..) => asked.form = Form::Json,
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    let mut operands = g.operands().into_iter();
    asked.pool = operands.next();
    asked.interval = operands.next().map(|word| interval(&word)).transpose()?;
    if operands.next().is_some() {
        return Err(Stop::usage("too many arguments\n"));
    }
    Ok(asked)
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for round in 1u64.. {
        let service = cx.service()?;
        let about = match &asked.pool {
            Some(pool) => format!("cannot read the transaction groups of '{pool}'"),
            None => "cannot read the transaction groups".to_owned(),
        };
        let reply = service.txgs(&asked.pool).map_err(|error| cx.fail(&about, &error))?;
        if reply.process == api::process_id() {
            return Err(no_daemon(cx));
        }
        let mut new = reply.txgs;
        // Another pool of that name, or one that went back, has lower numbers.
        seen.retain(|pool, last| new.iter().any(|txg| txg.pool == *pool && txg.txg >= *last));
        if asked.interval.is_some() {
            new.retain(|txg| {
                txg.stage == "committed" && seen.get(&txg.pool).is_none_or(|last| txg.txg > *last)
            });
        }
        for txg in &new {
            let last = seen.entry(txg.pool.clone()).or_default();
            *last = txg.txg.max(*last);
        }
        if round == 1 {
            last_of_each(&mut new, asked.count);
        }
        COMMAND.print(cx, asked.form, new.iter().map(row).collect(), round == 1);
        let Some(interval) = asked.interval else { break };
        if !cx.out.flush() {
            break;
        }
        (cx.sleep)(interval);
    }
    Ok(0)
}

/// Leaves the last `count` of each pool.
fn last_of_each(txgs: &mut Vec<TxgRecord>, count: usize) {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    txgs.reverse();
    txgs.retain(|txg| {
        let left = left.entry(txg.pool.clone()).or_insert(count);
        let is_shown = *left > 0;
        *left = left.saturating_sub(1);
        is_shown
    });
    txgs.reverse();
}

fn row(txg: &TxgRecord) -> Vec<Cell> {
    let [open, quiesce, wait, sync] = txg.took_ns;
    let of = |kind: &str| {
        let same = txg.waits.iter().filter(|(name, _)| name == kind);
        same.fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns))
    };
    let all = txg.waits.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let known = ["read", "write", "flush"].map(of);
    let others = known.iter().fold(all, |rest, ns| rest.saturating_sub(*ns));
    let closed = match txg.requested_by.as_str() {
        "" => txg.closed.clone(),
        by => format!("{}: {by}", txg.closed),
    };
    let mut row = vec![
        text(&txg.pool),
        txg.txg.into(),
        text(&txg.stage),
        text(&closed),
        txg.dirty.into(),
        txg.read.into(),
        txg.written.into(),
        open.into(),
        quiesce.into(),
        wait.into(),
        sync.into(),
    ];
    // The parts are known when it is over.
    match txg.stage.as_str() {
        "committed" => {
            row.push(sync.saturating_sub(all).into());
            row.extend(known.map(Cell::Number));
            row.push(others.into());
        }
        _ => row.extend([const { Cell::Nothing }; 5]),
    }
    row.push(txg.longest.as_ref().map_or(Cell::Nothing, |longest| words(longest).as_str().into()));
    row.push(time_line(txg.took_ns).as_str().into());
    row
}

/// The stages in proportion. A stage that took any time has at least one place.
fn time_line(took_ns: [u64; 4]) -> String {
    let all = took_ns.iter().map(|ns| u128::from(*ns)).sum::<u128>().max(1);
    let mut line = String::new();
    for (ns, sign) in took_ns.into_iter().zip(['o', 'q', 'w', 'S']) {
        let places = (u128::from(ns) * u128::from(LINE)).div_ceil(all);
        line.extend((0..places).map(|_| sign));
    }
    line
}

#[cfg(test)]
mod tests;
