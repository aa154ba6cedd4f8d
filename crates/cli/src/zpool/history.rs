//! `zpool history`.

use api::{HistoryKind, HistoryRecord, PoolQuery};

use super::pools;
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};
use pool::history::LEGACY_EVENTS;

/// `zpool history [-il] [<pool>] ...` (`zpool_do_history`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut long, mut internal) = (false, false);
    let mut g = Getopt::new(args, "li", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('l'), _) => long = true,
            Found::Is(..) => internal = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    let (found, mut failed) = pools(cx, &names, PoolQuery::default())?;
    if names.is_empty() && found.is_empty() {
        cx.err.put("no pools available\n");
        return Ok(0);
    }
    let service = cx.service()?;
    for pool in &found {
        writeln!(cx.out, "History for '{}':", pool.name);
        if pool.version < 4 {
            let name = &pool.name;
            writeln!(
                cx.err,
                "cannot get history for pool '{name}', pool must be upgraded: unsupported version or feature"
            );
            return Ok(1);
        }
        let mut from = Some(0);
        while let Some(begin) = from {
            match service.history(&pool.name, &begin) {
                Ok(page) => {
                    for r in &page.records {
                        record(cx, r, long, internal);
                    }
                    // Each page must begin after the previous one; otherwise the end is reached.
                    from = page.next.filter(|next| *next > begin);
                    if from.is_none() {
                        cx.out.put("\n");
                    }
                }
                Err(e) => {
                    cx.complain(&format!("cannot show history for '{}'", pool.name), &e);
                    (failed, from) = (true, None);
                }
            }
        }
    }
    Ok(i32::from(failed))
}

/// Shows a record (`print_history_records`).
fn record(cx: &mut Cx, r: &HistoryRecord, long: bool, internal: bool) {
    if !internal && !matches!(r.what, HistoryKind::Command(_)) {
        return;
    }
    let mut when = r.time.map(|t| cx.clock.history(t)).unwrap_or_default();
    if let Some(ns) = r.elapsed_ns {
        when += &format!(" ({}ms)", ns / 1_000_000);
    }
    match &r.what {
        // Newlines within a command are escaped, so that none of it looks like another record.
        HistoryKind::Command(line) => write!(cx.out, "{when} {}", line.replace('\n', "\\012")),
        HistoryKind::LegacyEvent { event, txg, text } => {
            match usize::try_from(*event).ok().and_then(|e| LEGACY_EVENTS.get(e)) {
                Some(name) => write!(cx.out, "{when} [internal {name} txg:{txg}] {text}"),
                None => return write!(cx.out, "{when} unrecognized record:\n{text}"),
            }
        }
        HistoryKind::Internal { name, txg, dataset, text } => {
            write!(cx.out, "{when} [txg:{txg}] {name}");
            if let Some((dataset, object)) = dataset {
                write!(cx.out, " {dataset} ({object})");
            }
            write!(cx.out, " {}", text.replace('\n', "\\012"));
        }
        HistoryKind::Ioctl { name, input, output, output_size, errno } => {
            writeln!(cx.out, "{when} ioctl {name}");
            for (title, dump) in [("input", input), ("output", output)] {
                if let Some(dump) = dump {
                    write!(cx.out, "    {title}:\n{dump}");
                }
            }
            if let Some(size) = output_size {
                writeln!(cx.out, "    output nvlist omitted; original size: {}KB", size / 1024);
            }
            if let Some(errno) = errno {
                writeln!(cx.out, "    errno: {errno}");
            }
        }
        HistoryKind::Unknown(dump) => write!(cx.out, "{when} unrecognized record:\n{dump}"),
    }
    if long {
        cx.out.put(" [");
        if let Some(who) = r.who {
            write!(cx.out, "user {} ", who as i32);
            if let Some(name) = u32::try_from(who).ok().and_then(api::accounts::user) {
                write!(cx.out, "({name}) ");
            }
        }
        if let Some(host) = &r.host {
            write!(cx.out, "on {host}");
        }
        if let Some(zone) = &r.zone {
            write!(cx.out, ":{zone}");
        }
        cx.out.put("]");
    }
    cx.out.put("\n");
}
