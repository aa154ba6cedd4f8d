//! `zpool events`: shows what happened to pools.

use api::{Event, EventQuery, EventValue, VdevAux, VdevState};

use super::info;
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};

/// Longest pause between two queries with `-f`, in seconds.
const LOOK: f64 = 0.25;
/// Pause after a query that returned events, in seconds.
const LOOK_AGAIN: f64 = 0.01;

/// `zpool events [-vHf [pool] | -c]` (`zpool_do_events`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut verbose, mut scripted, mut follow, mut clear) = (false, false, false, false);
    let mut g = Getopt::new(args, "vHfc", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('v'), _) => verbose = true,
            Found::Is(Opt::Short('H'), _) => scripted = true,
            Found::Is(Opt::Short('f'), _) => follow = true,
            Found::Is(..) => clear = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let pool = match &operands[..] {
        [] => None,
        [pool] if names::pool_name_fault(pool, false).is_some() => {
            return Err(Stop::usage(format!("invalid pool name '{pool}'\n")));
        }
        [pool] => Some(pool.as_str()),
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if clear && (pool.is_some() || verbose || scripted || follow) {
        return Err(Stop::usage("invalid options combined with -c\n"));
    }
    let service = cx.service()?;
    let mut query = EventQuery { clear, ..EventQuery::default() };
    let mut page = service.events(&query).map_err(|e| cx.fail("cannot read events", &e))?;
    if clear {
        writeln!(cx.out, "cleared {} events", page.cleared);
        return Ok(0);
    }
    if !scripted {
        writeln!(cx.out, "{:<30} CLASS", "TIME");
    }
    let mut pause = LOOK_AGAIN;
    loop {
        if page.teller != query.teller {
            // A new daemon numbers its events from the start.
            (query.teller, query.after) = (page.teller, 0);
        }
        if page.dropped > 0 {
            writeln!(cx.out, "dropped {} events", page.dropped);
        }
        for event in &page.events {
            query.after = event.eid;
            if pool.is_none_or(|pool| pool == event.pool) {
                show(cx, event, verbose, scripted);
            }
        }
        if !cx.out.flush() {
            return Ok(1);
        }
        if !follow {
            return Ok(0);
        }
        // While events arrive, the next query follows at once.
        pause = if page.events.is_empty() { (pause * 2.0).min(LOOK) } else { LOOK_AGAIN };
        (cx.sleep)(pause);
        page = service.events(&query).map_err(|e| cx.fail("cannot read events", &e))?;
    }
}

fn show(cx: &mut Cx, event: &Event, verbose: bool, scripted: bool) {
    // Takes the parts from `Sun Nov 22 14:52:42 2026`.
    let date = cx.clock.ctime(event.time.0);
    let piece = |from: usize, to: usize| date.get(from..to).unwrap_or_default();
    let (day, year, hour) = (piece(4, 10), piece(20, 24), piece(11, 19));
    let apart = if scripted { '\t' } else { ' ' };
    writeln!(cx.out, "{day} {year} {hour}.{:09}{apart}{}", event.time.1, event.class);
    if verbose {
        list(cx, &event.details, 8);
        cx.out.put("\n");
    }
}

/// Shows names and values, one a line (`zpool_do_events_nvprint`).
fn list(cx: &mut Cx, details: &[(String, EventValue)], depth: usize) {
    for (name, value) in details {
        write!(cx.out, "{:depth$}{name} = ", "");
        match value {
            EventValue::Number(n) => write!(cx.out, "{n:#x}"),
            EventValue::Numbers(all) => all.iter().for_each(|n| write!(cx.out, "{n:#x} ")),
            EventValue::Text(text) => {
                let text = cx.out.cell(text);
                write!(cx.out, "\"{text}\"");
            }
            EventValue::State(n) => {
                write!(cx.out, "\"{}\" ({n:#x})", info::state_name(state(*n), VdevAux::None))
            }
            EventValue::List(inner) => {
                cx.out.put("(embedded nvlist)\n");
                list(cx, inner, depth + 8);
                write!(cx.out, "{:depth$}(end {name})", "");
            }
        }
        cx.out.put("\n");
    }
}

/// A vdev state by its number (`vdev_state_t`).
fn state(n: u64) -> VdevState {
    match n {
        1 => VdevState::Closed,
        2 => VdevState::Offline,
        3 => VdevState::Removed,
        4 => VdevState::CantOpen,
        5 => VdevState::Faulted,
        6 => VdevState::Degraded,
        7 => VdevState::Healthy,
        _ => VdevState::Unknown,
    }
}
