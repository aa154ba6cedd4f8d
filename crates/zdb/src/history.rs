//! `zdb -h`: the pool's history.

use super::ctx::{Ctx, Run};
use super::opened::Opened;
use super::text::{lossy, nvlist};
use ondisk::{Nvlist, Value};
use pool::history::LEGACY_EVENTS;

/// Shows the history (`dump_history`).
pub fn show(cx: &mut Ctx<'_>, pool: &Opened) -> Run {
    let Some(history) = pool.spa.mos().history()? else {
        writeln!(cx.err, "Unable to read history: error 2");
        return Ok(());
    };
    cx.out.put("\nHistory:\n");
    for event in history {
        let event = event?;
        let known = one(cx, &event);
        if cx.opts.count('h') > 1 {
            if !known {
                cx.out.put("unrecognized record:\n");
            }
            nvlist(cx.out, &event, 2);
        }
    }
    Ok(())
}

fn one(cx: &mut Ctx<'_>, e: &Nvlist) -> bool {
    let time = e.u64("history time").map_or_else(String::new, |t| cx.clock.history(t));
    let text = |name: &str| e.string(name).map(|s| lossy(s).into_owned());
    let txg = e.u64("history txg").unwrap_or(0);
    let what = text("history internal str").unwrap_or_default();
    if let Some(command) = text("history command") {
        writeln!(cx.out, "{time} {command}");
    } else if let Some(n) = e.u64("history internal event") {
        let Some(name) = LEGACY_EVENTS.get(n as usize) else { return false };
        writeln!(cx.out, " {time} [internal {name} txg:{txg}] {what}");
    } else if let Some(name) = text("internal_name") {
        write!(cx.out, "{time} [txg:{txg}] {name}");
        if let Some(ds) = text("dsname") {
            write!(cx.out, " {ds} ({})", e.u64("dsid").unwrap_or(0));
        }
        writeln!(cx.out, " {what}");
    } else if let Some(ioctl) = text("ioctl") {
        writeln!(cx.out, "{time} ioctl {ioctl}");
        for (key, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
            if let Some(list) = e.list(key) {
                writeln!(cx.out, "    {title}:");
                nvlist(cx.out, list, 8);
            }
        }
        if let Some(Value::Int64(errno)) = e.get("errno") {
            writeln!(cx.out, "    errno: {errno}");
        }
    } else {
        return false;
    }
    true
}
