//! `poolhouse top`: what the daemon does, by datasets, operations, clients and so on.
//!
//! # Theory
//! The daemon has numbers that only grow. This command reads them once, and shows the totals. Or it
//! reads them each interval, and shows what was added. A view makes a [`Table`] of two readings;
//! the table knows how to print itself.
//!
//! On a terminal, an interval's table takes the place of the one before, until the user presses `q`
//! or Ctrl-C.
//!
//! # Absent
//! OpenZFS has no such command: the grammar is our own.

mod afs_clients;
mod attach;
mod calls;
mod clients;
mod datasets;
mod locks;
mod ops;
mod promises;
pub(crate) mod table;
mod threads;
mod vms;
mod volumes;

use api::{TOP_MAX, Top, TopQuery, TopView};
use console::getopt::{Found, Getopt, Long, Opt};
use std::time::Duration;

use crate::cx::{Cx, Outcome, Stop};
use crate::json::Json;
use crate::terminal::Keys;
use table::{Form, Span, Table};

/// The command with its options, for the manual.
pub const SYNOPSIS: &str = "poolhouse top [-v VIEW] [-j|-p] [--limit N] [--op NAME] [--call NAME] [--client ADDRESS] [--volume ID] [INTERVAL [COUNT]]";

const USAGE: &str = "\
usage: poolhouse top [-v VIEW] [-j|-p] [--limit N] [--op NAME] [--call NAME] [--client ADDRESS]
                     [--volume ID] [INTERVAL [COUNT]]

Shows what the daemon does. Without INTERVAL: once, since the start. With it: what was added in each
interval of INTERVAL seconds, COUNT times or without end. On a terminal, q or Ctrl-C ends it.

    -v, --view VIEW   datasets: what users do with each file system and volume (the default)
                      ops: operations by kind, and how long they took
                      clients: what each client does: a process that uses mounts, a peer of a
                      volume, a user of the control socket; only for root and the daemon's own user
                      vms: what each client of a volume reads and writes; also only for them
                      calls: calls of the AFS server by name, and how long they took
                      afs-clients: what each client of the AFS file server does
                      volumes: what clients do with each volume
                      attach: how often volumes come into use
                      locks: how long threads of the daemon waited for its locks
                      promises: which client has promises for which volume, now; also only for them
                      threads: what each thread of the daemon computes and waits for; also only for them
    -p, --parsable    one header, tabs between columns, the time first, and exact numbers
    -j, --json        one JSON document for each interval, with exact numbers
    --limit N         at most N rows; the sums are of all
    --op NAME         how the times of this operation are distributed, of the view ops
    --call NAME       how the times of this call are distributed, of the view calls
    --client ADDRESS  promises to this client
    --volume ID       promises for this volume

The columns:
";

const LONG: [Long; 8] = [
    Long { name: "view", val: Opt::Short('v'), arg: true },
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "limit", val: Opt::Named("limit"), arg: true },
    Long { name: "op", val: Opt::Named("op"), arg: true },
    Long { name: "call", val: Opt::Named("call"), arg: true },
    Long { name: "client", val: Opt::Named("client"), arg: true },
    Long { name: "volume", val: Opt::Named("volume"), arg: true },
];

/// The views by name, with their columns.
const VIEWS: [(&str, TopView, &[table::Column]); 11] = [
    ("datasets", TopView::Datasets, &datasets::COLUMNS),
    ("ops", TopView::Ops, &ops::COLUMNS),
    ("clients", TopView::Clients, &clients::COLUMNS),
    ("vms", TopView::Vms, &vms::COLUMNS),
    ("calls", TopView::Calls, &calls::COLUMNS),
    ("afs-clients", TopView::AfsClients, &afs_clients::COLUMNS),
    ("volumes", TopView::Volumes, &volumes::COLUMNS),
    ("attach", TopView::Attach, &attach::COLUMNS),
    ("locks", TopView::Locks, &locks::COLUMNS),
    ("promises", TopView::Promises, &promises::COLUMNS),
    ("threads", TopView::Threads, &threads::COLUMNS),
];

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    query: TopQuery,
    form: Form,
    /// The most rows.
    limit: usize,
    /// The operation or call whose times are wanted.
    one: Option<String>,
    /// Seconds between readings. `None`: the totals, once.
    interval: Option<f64>,
    /// How many intervals. `None`: without end.
    count: Option<u64>,
}

/// Runs `top` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        help(cx);
        return 0;
    }
    match read(args).and_then(|asked| show(cx, &asked)) {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            // The columns would hide the message.
            cx.err.put(USAGE.split("\nThe columns").next().unwrap_or(USAGE));
            2
        }
    }
}

fn help(cx: &mut Cx) {
    cx.out.put(USAGE);
    for (name, _, columns) in VIEWS {
        writeln!(cx.out, "  {name}");
        for column in columns {
            writeln!(cx.out, "    {:<12} {}", column.name, column.help);
        }
    }
    cx.out.put(
        "\nNumbers are per second in an interval, and totals without one. MB are 1,048,576 bytes, times are\n\
         milliseconds. With -p, times are nanoseconds, and MB are bytes. Reads that the kernel's page cache\n\
         answers don't reach the daemon, so they are in no view.\n",
    );
}

/// Parses the arguments.
fn read(args: &[String]) -> Result<Asked, Stop> {
    let (query, form, limit) = (TopQuery::default(), Form::Text, TOP_MAX);
    let mut asked = Asked { query, form, limit, one: None, interval: None, count: None };
    let (mut view, mut implied) = (None, Vec::new());
    let mut g = Getopt::new(args, "v:pj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('v'), name) => {
                let names = VIEWS.map(|(name, ..)| name).join(", ");
                let found = VIEWS.iter().find(|(known, ..)| *known == name);
                let wrong = || Stop::usage(format!("unknown view '{name}': choose {names}\n"));
                view = Some(found.ok_or_else(wrong)?.1);
            }
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(Opt::Short('j'), _) => asked.form = Form::Json,
            Found::Is(Opt::Named("limit"), number) => {
                let wrong =
                    || format!("invalid value '{number}' of option '--limit': choose 1 to {TOP_MAX}\n");
                let limit = number.parse().ok().filter(|limit| (1..=TOP_MAX).contains(limit));
                asked.limit = limit.ok_or_else(|| Stop::usage(wrong()))?;
            }
            Found::Is(Opt::Named("client"), address) => {
                asked.query.client = Some(address);
                implied.push(("client", TopView::Promises));
            }
            Found::Is(Opt::Named("volume"), id) => {
                let number = id.parse().ok().filter(|number| *number != 0);
                let wrong = || Stop::usage(format!("'{id}' is no volume: give its number\n"));
                asked.query.volume = Some(number.ok_or_else(wrong)?);
                implied.push(("volume", TopView::Promises));
            }
            Found::Is(Opt::Named("op"), name) => {
                asked.one = Some(name);
                implied.push(("op", TopView::Ops));
            }
            Found::Is(_, name) => {
                asked.one = Some(name);
                implied.push(("call", TopView::Calls));
            }
            Found::Invalid(_) => return Err(table::wrong_option(&g, false)),
            Found::Missing(_) => return Err(table::wrong_option(&g, true)),
        }
    }
    intervals(&g.operands(), &mut asked)?;
    asked.query.last = asked.interval.is_some();
    asked.query.view = view.or(implied.first().map(|(_, view)| *view)).unwrap_or_default();
    if asked.query.view == TopView::Datasets && asked.interval.is_none() {
        // Of an interval, the busiest are known only when all are.
        asked.query.limit = asked.limit as u64;
    }
    match implied.iter().find(|(_, view)| *view != asked.query.view) {
        Some((option, view)) => {
            let (other, name) = (name_of(asked.query.view), name_of(*view));
            Err(Stop::usage(format!("option '--{option}' is for the view {name}, not {other}\n")))
        }
        None => Ok(asked),
    }
}

/// Reads the interval and the count.
fn intervals(operands: &[String], asked: &mut Asked) -> Result<(), Stop> {
    asked.interval = operands.first().map(|word| table::interval(word)).transpose()?;
    asked.count = operands.get(1).map(|word| table::count(word)).transpose()?;
    if operands.len() > 2 {
        return Err(Stop::usage("too many arguments\n"));
    }
    Ok(())
}

fn name_of(view: TopView) -> &'static str {
    VIEWS.iter().find(|(_, known, _)| *known == view).map_or("", |(name, ..)| *name)
}

/// Reads the numbers.
fn ask(cx: &mut Cx, asked: &Asked) -> Result<Top, Stop> {
    let service = cx.service()?;
    let top =
        service.top(&asked.query).map_err(|error| cx.fail("cannot read what the daemon does", &error))?;
    let why = if top.process == api::process_id() {
        "no poolhouse daemon runs: the first import of a pool starts one\n"
    } else if !top.afs && asked.query.view.is_of_afs() {
        "the daemon has no AFS server: 'poolhouse afs enable' starts it with a partition\n"
    } else {
        return Ok(top);
    };
    cx.err.put(why);
    Err(Stop::Fail(1))
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    let first = ask(cx, asked)?;
    let Some(interval) = asked.interval else {
        let table = table(asked, &since_start(&first), &first);
        print(cx, asked, &Span::total(&first), &table, true);
        return Ok(0);
    };
    watch(cx, asked, first, interval)
}

/// The reading when all counters began, for one of later.
fn since_start(now: &Top) -> Top {
    Top { clock_ns: now.began_ns, run: now.run, ..Top::default() }
}

/// Shows what was added in each interval.
fn watch(cx: &mut Cx, asked: &Asked, mut before: Top, interval: f64) -> Outcome {
    let is_live = asked.form == Form::Text && cx.out.is_terminal();
    if is_live {
        let table = table(asked, &since_start(&before), &before);
        redraw(cx, asked, &Span::total(&before), table);
    }
    for round in 1u64.. {
        if is_ended(cx, is_live, interval) {
            break;
        }
        let now = ask(cx, asked)?;
        if now.run != before.run {
            // Another server counts from zero.
            before = since_start(&now);
        }
        let (span, table) = (Span::between(&before, &now), table(asked, &before, &now));
        match is_live {
            true => redraw(cx, asked, &span, table),
            false => print(cx, asked, &span, &table, round == 1),
        }
        if !cx.out.flush() || asked.count == Some(round) {
            break;
        }
        before = now;
    }
    Ok(0)
}

/// Waits for the next reading. Returns whether the user ends the command before.
fn is_ended(cx: &Cx, is_live: bool, interval: f64) -> bool {
    /// `q`, Ctrl-C, Ctrl-D.
    const ENDS: [u8; 4] = [b'q', b'Q', 3, 4];
    // Only for the wait: during a request, and where keys can't be read, the terminal's own Ctrl-C
    // ends the command.
    match is_live.then(|| Keys::new().ok().flatten()).flatten() {
        Some(keys) => keys.wait(Duration::from_secs_f64(interval), |key| ENDS.contains(&key)),
        None => {
            (cx.sleep)(interval);
            false
        }
    }
}

/// The table of a view.
fn table(asked: &Asked, before: &Top, now: &Top) -> Table {
    let mut table = match (asked.query.view, &asked.one) {
        (TopView::Datasets, _) => datasets::table(before, now),
        (TopView::Ops, None) => ops::table(before, now),
        (TopView::Ops, Some(name)) => return ops::times_of(before, now, name),
        (TopView::Calls, None) => calls::table(before, now),
        (TopView::Calls, Some(name)) => return calls::times_of(before, now, name),
        (TopView::Clients, _) => clients::table(before, now),
        (TopView::Vms, _) => vms::table(before, now),
        (TopView::AfsClients, _) => afs_clients::table(before, now),
        (TopView::Volumes, _) => volumes::table(before, now),
        (TopView::Attach, _) => attach::table(before, now),
        (TopView::Locks, _) => locks::table(before, now),
        (TopView::Promises, _) => promises::table(now),
        (TopView::Threads, _) => threads::table(before, now),
    };
    table.limit(asked.limit);
    table
}

/// Prints a table after those before.
fn print(cx: &mut Cx, asked: &Asked, span: &Span, table: &Table, is_first: bool) {
    match asked.form {
        Form::Json => {
            let mut root = crate::json::schema("poolhouse top");
            root.text("view", name_of(asked.query.view));
            root.number("time", cx.clock.now());
            root.number("ns", span.ns);
            root.put("total", Json::Bool(span.is_total));
            table.json(&mut root);
            writeln!(cx.out, "{}", root.line());
        }
        Form::Parsable => {
            let time = cx.clock.now();
            cx.out.put(&table.parsable(span, time, is_first));
        }
        Form::Text => {
            if !is_first {
                cx.out.put("\n");
            }
            let title = title(cx, asked, span);
            writeln!(cx.out, "{title}");
            table.lines(span).iter().for_each(|line| writeln!(cx.out, "{line}"));
        }
    }
}

/// The line above a table.
fn title(cx: &Cx, asked: &Asked, span: &Span) -> String {
    let now = cx.clock.ctime(cx.clock.now());
    let of = match (asked.query.view, span.is_total) {
        // They are of this moment.
        (TopView::Promises, _) => String::new(),
        (_, true) => format!("  since {}", cx.clock.ctime(span.began)),
        (_, false) => format!("  +{:.1} s", span.seconds()),
    };
    format!("poolhouse top  {}  {now}{of}", name_of(asked.query.view))
}

/// Shows a table in the place of the one before.
fn redraw(cx: &mut Cx, asked: &Asked, span: &Span, mut table: Table) {
    /// Lines above the rows, and those of a sum below them. The last line is for the cursor.
    const FRAME: (usize, usize) = (3, 3);
    let (rows, columns) = (cx.screen)().filter(|(rows, _)| *rows > 3).unwrap_or((24, 80));
    let frame = FRAME.0 + if table.sum.is_some() { FRAME.1 } else { 0 };
    table.limit(rows.saturating_sub(frame).max(1));
    let title = title(cx, asked, span);
    cx.out.put_raw(b"\x1b[H\x1b[2J");
    for line in std::iter::once(title).chain(table.lines(span)).take(rows - 1) {
        let line: String = line.chars().take(columns).collect();
        writeln!(cx.out, "{line}");
    }
    cx.out.flush();
}

#[cfg(test)]
mod tests;
