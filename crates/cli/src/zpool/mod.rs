//! `zpool`: pools, their devices and their health.
//!
//! # Theory
//! Each verb has a function in a module here. It gets the words after the verb, and returns an
//! `Outcome`: the exit code, or one of these errors.
//!
//! * `Stop::Usage`: the command line is wrong. `run` prints the message and the usage text.
//! * `Stop::Fail`: the command failed, and has printed the reason.

mod absent;
mod add;
mod change;
mod config;
mod create;
mod ddtprune;
mod device_life;
mod devices;
mod events;
mod export;
mod foreign;
mod get;
pub(crate) mod history;
mod import;
mod info;
mod iostat;
mod labelclear;
mod leaf_work;
mod list;
mod progress;
mod reason;
mod remove;
mod replication;
mod scan;
mod scripts;
mod settings;
mod show_import;
mod spec;
mod split;
mod status;
mod status_json;
mod upgrade;
mod usage;
mod wait;

use api::{Pool, PoolQuery};

use change::open;
pub(crate) use usage::COMMANDS;

use crate::cx::{Cx, Outcome, Stop};
use crate::props::{self, Edit, PropDesc};
use crate::{names, version};
use console::numbers;

/// The properties that a usage text lists: those that the command takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageProps {
    /// None.
    None,
    /// Properties of pools.
    Pool,
    /// Properties of vdevs.
    Vdev,
}

/// Runs `zpool` with these arguments (without its name), and returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    let Some(verb) = args.first() else {
        cx.err.put("missing command\n");
        usage(cx, None, UsageProps::None, false);
        return 2;
    };
    match verb.as_str() {
        "-?" | "--help" => {
            usage(cx, None, UsageProps::None, true);
            return 0;
        }
        "-V" | "--version" => return version::print(cx),
        "help" => return version::man(cx, "zpool", &["concepts", "props"], args.get(1)),
        _ => {}
    }
    cx.begin("zpool", args);
    // `zpool NAME=VALUE ...` is `zpool set` (`find_command_idx`).
    let (verb, rest) = if verb.contains('=') && !verb.starts_with('-') {
        ("set", args)
    } else {
        (verb.as_str(), &args[1..])
    };
    let mut shown = UsageProps::None;
    let outcome = command(cx, verb, rest, &mut shown);
    cx.finish(outcome, |cx| {
        let command = usage::COMMANDS.iter().flatten().find(|c| c.0 == verb);
        usage(cx, command.map(|c| c.1), shown, false);
    })
}

/// Runs a command. Sets `shown` to the properties that its usage text lists.
fn command(cx: &mut Cx, verb: &str, rest: &[String], shown: &mut UsageProps) -> Outcome {
    match verb {
        "create" => create::run(cx, rest),
        "destroy" => change::destroy(cx, rest),
        "add" => add::run(cx, rest),
        "remove" => remove::run(cx, rest),
        "offline" => device_life::offline(cx, rest),
        "online" => device_life::online(cx, rest),
        "attach" => device_life::attach(cx, rest),
        "replace" => device_life::replace(cx, rest),
        "detach" => device_life::detach(cx, rest),
        "split" => split::run(cx, rest),
        "set" => {
            *shown = UsageProps::Pool;
            change::set(cx, rest)
        }
        "upgrade" => upgrade::run(cx, rest),
        "labelclear" => labelclear::run(cx, rest),
        "reguid" => change::reguid(cx, rest),
        "sync" => change::sync(cx, rest),
        "checkpoint" => change::checkpoint(cx, rest),
        "reopen" => change::reopen(cx, rest),
        "prefetch" => change::prefetch(cx, rest),
        "clear" => change::clear(cx, rest),
        "import" => import::run(cx, rest),
        "export" => export::run(cx, rest),
        "list" => {
            *shown = UsageProps::Pool;
            list::run(cx, rest)
        }
        "status" => status::run(cx, rest),
        "get" => get::run(cx, rest, shown),
        "iostat" => iostat::run(cx, rest),
        "initialize" => leaf_work::initialize(cx, rest),
        "trim" => leaf_work::trim(cx, rest),
        "ddtprune" => ddtprune::run(cx, rest),
        "scrub" => scan::scrub(cx, rest),
        "resilver" => scan::resilver(cx, rest),
        "wait" => wait::run(cx, rest),
        "events" => events::run(cx, rest),
        "history" => history::run(cx, rest),
        "version" => version::run(cx, "zpool version", rest),
        other => absent::run(cx, other),
    }
}

/// Writes the usage text of one command, or of all (`usage`).
fn usage(cx: &mut Cx, command: Option<&str>, properties: UsageProps, requested: bool) {
    let mut s = String::new();
    match command {
        None => {
            s += "usage: zpool command args ...\nwhere 'command' is one of the following:\n\n";
            for c in usage::COMMANDS {
                s += c.map_or("\n", |c| c.1);
            }
            s += "\nFor further help on a command or topic, run: zpool help [<topic>]\n";
        }
        Some(text) => {
            s += "usage:\n";
            s += text;
        }
    }
    let table: &[PropDesc] = match properties {
        UsageProps::None => &[],
        UsageProps::Pool => props::POOL,
        UsageProps::Vdev => props::VDEV,
    };
    if !table.is_empty() {
        s += "\nthe following properties are supported:\n";
        s += &format!("\n\t{:<19}  EDIT   VALUES\n\n", "PROPERTY");
        for p in props::ordered(table) {
            let edit = if p.edit == Edit::ReadOnly { "  NO   " } else { " YES   " };
            s += &format!("\t{:<19}  {edit}{}\n", p.name, if p.values.is_empty() { "-" } else { p.values });
        }
    }
    if properties == UsageProps::Pool {
        s += &format!("\t{:<19}   YES   disabled | enabled | active\n", "feature@...");
        s += "\nThe feature@ properties must be appended with a feature name.\nSee zpool-features(7).\n";
    }
    if requested { cx.out.put(&s) } else { cx.err.put(&s) }
}

/// Queries the named pools, or all; sorted by name (`for_each_pool`).
///
/// Also returns whether a pool could not be queried, which is reported.
fn pools(cx: &mut Cx, args: &[String], query: PoolQuery) -> Result<(Vec<Pool>, bool), Stop> {
    let service = cx.service()?;
    let mut failed = false;
    let wanted: Vec<String> = if args.is_empty() {
        match service.pool_names() {
            Ok(names) => names.into_iter().filter(|n| !skipped(cx, n)).collect(),
            Err(e) => return Err(cx.fail("cannot list pools", &e)),
        }
    } else {
        args.to_vec()
    };
    let mut found: Vec<Pool> = Vec::new();
    for name in &wanted {
        if found.iter().any(|p| p.name == *name) {
            failed = true;
            continue;
        }
        if let Some(fault) = names::pool_name_fault(name, false) {
            writeln!(cx.err, "cannot open '{name}': {fault}");
            failed = true;
            continue;
        }
        match service.pool(name, &query) {
            Ok(pool) => found.push(pool),
            Err(e) => {
                cx.complain(&format!("cannot open '{name}'"), &e);
                failed = true;
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((found, failed))
}

/// Whether the environment hides a pool from lists (`zpool_skip_pool`).
fn skipped(cx: &Cx, name: &str) -> bool {
    let listed = |var: &str| (cx.env)(var).map(|v| v.split(' ').any(|w| w == name));
    listed("__ZFS_POOL_RESTRICT").is_some_and(|yes| !yes) || listed("__ZFS_POOL_EXCLUDE").unwrap_or(false)
}

/// Takes `[interval [count]]` off the end of the operands (`get_interval_count`).
fn interval(operands: &mut Vec<String>) -> Result<(f64, u64), Stop> {
    let zero = || Stop::usage("interval cannot be zero\n");
    let take = |operands: &mut Vec<String>| -> Result<f64, Stop> {
        match operands.last().filter(|w| numbers::is_number(w)).and_then(|w| w.parse::<f64>().ok()) {
            Some(0.0) => Err(zero()),
            Some(n) => {
                operands.pop();
                Ok(n)
            }
            None => Ok(0.0),
        }
    };
    let last = take(operands)?;
    let before = if operands.last().is_some_and(|w| numbers::is_number(w)) { take(operands)? } else { 0.0 };
    Ok(if before != 0.0 { (before, last as u64) } else { (last, 0) })
}

/// The form of the time before each round (`-T`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stamp {
    #[default]
    None,
    Unix,
    Date,
}

impl Stamp {
    fn parse(arg: &str) -> Result<Self, Stop> {
        match arg.chars().next() {
            Some('u') => Ok(Self::Unix),
            Some('d') => Ok(Self::Date),
            _ => Err(Stop::usage(format!("invalid format of times '{arg}': it is 'u' or 'd'\n"))),
        }
    }

    fn text(self, cx: &Cx) -> Option<String> {
        match self {
            Self::None => None,
            Self::Unix => Some(cx.clock.now().to_string()),
            Self::Date => Some(cx.clock.ctime(cx.clock.now())),
        }
    }
}
