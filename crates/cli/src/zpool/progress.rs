//! Scans, removals, expansions and checkpoints in `zpool status`.

use api::{
    CheckpointStat, CheckpointState, ExpandStat, Pool, RebuildStat, RebuildState, RemovalStat, ScanFunc,
    ScanStat, ScanState,
};

use crate::cx::{Color, Cx};
use crate::vdev_name::{NameFlags, vdev_name};
use console::numbers;

/// Formats a duration: `3 days 02:03:04`, `02:03:04` (`secs_to_dhms`).
fn span(total: u64) -> String {
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    let clock = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

fn size(n: u64) -> String {
    let mut s = numbers::bytes(n);
    s.truncate(6);
    s
}

fn count(n: u64) -> String {
    numbers::num_cut(n, 6)
}

fn label(cx: &mut Cx, indent: &str, text: &str) {
    cx.out.put(indent);
    cx.colored(Some(Color::Bold), text);
}

/// Shows the lines of scans (`print_scan_status`).
pub fn scan(cx: &mut Cx, pool: &Pool) {
    let none = ScanStat::default();
    let s = pool.scan.as_ref().unwrap_or(&none);
    let resilver = s.func == ScanFunc::Resilver;
    let resilver_end = if resilver { s.end_time } else { 0 };
    let active_resilver = resilver && s.state == ScanState::Scanning;
    let rebuilds = || pool.root.children.iter().filter_map(|v| v.rebuild.as_ref());
    let active_rebuild = rebuilds().any(|r| r.state == RebuildState::Active);
    let rebuild_end = if active_rebuild { 0 } else { rebuilds().map(|r| r.end_time).max().unwrap_or(0) };

    let error_scrub = s.error_scrub_func == ScanFunc::ErrorScrub;
    if s.func == ScanFunc::Scrub && s.start_time > s.error_scrub_start {
        scrub_or_resilver(cx, s);
    } else if error_scrub && s.error_scrub_start >= s.start_time {
        error_scrub_lines(cx, s);
    }
    if active_resilver || (!active_rebuild && resilver && resilver_end > rebuild_end) {
        scrub_or_resilver(cx, s);
    } else if active_rebuild || rebuild_end > resilver_end {
        for v in &pool.root.children {
            if let Some(r) = v.rebuild.as_ref().filter(|r| r.state != RebuildState::None) {
                let name = vdev_name(Some(&pool.name), v, NameFlags::default().with_id());
                rebuild(cx, r, &name);
            }
        }
    }
    checkpoint_warning(cx, pool);
}

fn scrub_or_resilver(cx: &mut Cx, s: &ScanStat) {
    label(cx, "  ", "scan:");
    let (end, start) = (cx.clock.ctime(s.end_time), cx.clock.ctime(s.start_time));
    let resilver = s.func == ScanFunc::Resilver;
    let processed = size(s.processed);
    match s.state {
        ScanState::Finished => {
            let verb = if resilver { "resilvered" } else { "scrub repaired" };
            let took = span(s.end_time.wrapping_sub(s.start_time));
            return writeln!(cx.out, " {verb} {processed} in {took} with {} errors on {end}", s.errors);
        }
        ScanState::Canceled => {
            return writeln!(cx.out, " {} canceled on {end}", if resilver { "resilver" } else { "scrub" });
        }
        _ => {}
    }
    let pause = if resilver { 0 } else { s.pass_scrub_pause };
    if resilver {
        writeln!(cx.out, " resilver in progress since {start}");
    } else if pause == 0 {
        writeln!(cx.out, " scrub in progress since {start}");
    } else {
        let since = cx.clock.ctime(pause);
        write!(cx.out, " scrub paused since {since}\n\tscrub started on {start}\n");
    }
    let pause = s.pass_scrub_pause;
    let total = s.to_examine.saturating_sub(s.skipped);
    let elapsed =
        cx.clock.now().saturating_sub(s.pass_start).saturating_sub(s.pass_scrub_spent_paused).max(1);
    let (scan_rate, issue_rate) = (s.pass_exam / elapsed, s.pass_issued / elapsed);
    let rate = |r: u64| if pause == 0 && r > 0 { format!(" at {}/s", size(r)) } else { String::new() };
    write!(cx.out, "\t{} / {} scanned{}", size(s.examined), size(s.to_examine), rate(scan_rate));
    writeln!(cx.out, ", {} / {} issued{}", size(s.issued), size(total), rate(issue_rate));
    let done = 100.0 * s.issued as f64 / total as f64;
    write!(cx.out, "\t{processed} {}, {done:.2}% done", if resilver { "resilvered" } else { "repaired" });
    let worth = (resilver && s.processed > 0) || (!resilver && s.issued > 0);
    if pause != 0 {
        cx.out.put("\n");
    } else if total >= s.issued && issue_rate >= 10 << 20 && worth {
        writeln!(cx.out, ", {} to go", span((total - s.issued) / issue_rate));
    } else {
        cx.out.put(", no estimated completion time\n");
    }
}

fn error_scrub_lines(cx: &mut Cx, s: &ScanStat) {
    cx.out.put(" scrub: ");
    let end = cx.clock.ctime(s.error_scrub_end);
    match s.error_scrub_state {
        ScanState::Finished => {
            let took = s.error_scrub_end.wrapping_sub(s.error_scrub_start);
            let (days, hours, minutes, seconds) =
                (took / 86_400, took / 3600 % 24, took / 60 % 60, took % 60);
            let n = s.error_scrub_examined;
            return writeln!(
                cx.out,
                "scrubbed {n} error blocks in {days} days {hours:02}:{minutes:02}:{seconds:02} on {end}"
            );
        }
        ScanState::Canceled => return writeln!(cx.out, "error scrub canceled on {end}"),
        _ => {}
    }
    let start = cx.clock.ctime(s.error_scrub_start);
    if s.pass_error_scrub_pause == 0 {
        writeln!(cx.out, "error scrub in progress since {start}");
    } else {
        let pause = cx.clock.ctime(s.pass_error_scrub_pause);
        write!(cx.out, "error scrub paused since {pause}\n\terror scrub started on {start}\n");
    }
    let n = s.error_scrub_examined;
    let done = 100.0 * n as f64 / (s.error_scrub_to_be_examined.saturating_add(n)) as f64;
    writeln!(cx.out, "\t{done:.2}% done, issued I/O for {n} error blocks");
}

fn rebuild(cx: &mut Cx, r: &RebuildStat, name: &str) {
    label(cx, "  ", "scan:");
    let (start, end) = (cx.clock.ctime(r.start_time), cx.clock.ctime(r.end_time));
    match r.state {
        RebuildState::Complete => {
            let took = span(r.scan_time_ms / 1000);
            let bytes = size(r.bytes_rebuilt);
            return writeln!(
                cx.out,
                " resilvered ({name}) {bytes} in {took} with {} errors on {end}",
                r.errors
            );
        }
        RebuildState::Canceled => return writeln!(cx.out, " resilver ({name}) canceled on {end}"),
        _ => writeln!(cx.out, " resilver ({name}) in progress since {start}"),
    }
    let per_second = |n: u64| (n / (r.pass_time_ms + 1)).saturating_mul(1000);
    let (scan_rate, issue_rate) = (per_second(r.pass_bytes_scanned), per_second(r.pass_bytes_issued));
    let rate = |n: u64| if n > 0 { format!(" at {}/s", size(n)) } else { String::new() };
    let issue_total = r.bytes_est.saturating_sub(r.pass_bytes_skipped);
    write!(cx.out, "\t{} / {} scanned{}", size(r.bytes_scanned), size(r.bytes_est), rate(scan_rate));
    writeln!(cx.out, ", {} / {} issued{}", size(r.bytes_issued), size(issue_total), rate(issue_rate));
    let done = (r.bytes_scanned as f64 * 100.0 / (r.bytes_est as f64 + 1.0)).min(100.0);
    write!(cx.out, "\t{} resilvered, {done:.2}% done", size(r.bytes_rebuilt));
    if r.bytes_est >= r.bytes_scanned && scan_rate >= 10 << 20 {
        writeln!(cx.out, ", {} to go", span((r.bytes_est - r.bytes_scanned) / scan_rate));
    } else {
        cx.out.put(", no estimated completion time\n");
    }
}

/// Warns that a scan skips blocks that only the checkpoint holds (`print_checkpoint_scan_warning`).
fn checkpoint_warning(cx: &mut Cx, pool: &Pool) {
    let (Some(s), Some(c)) = (&pool.scan, &pool.checkpoint) else { return };
    let over = matches!(s.state, ScanState::Finished | ScanState::Canceled);
    if c.state != CheckpointState::Exists || s.state == ScanState::None || (over && s.end_time < c.start_time)
    {
        return;
    }
    let verb = if over { "skipped" } else { "skipping" };
    writeln!(cx.out, "    scan warning: {verb} blocks that are only referenced by the checkpoint.");
}

/// Shows the lines of a device removal (`print_removal_status`).
pub fn removal(cx: &mut Cx, pool: &Pool, r: &RemovalStat) {
    if r.state == ScanState::None {
        return;
    }
    let at = usize::try_from(r.removing_vdev).unwrap_or(usize::MAX);
    let name = pool.root.children.get(at).map_or_else(
        || format!("vdev {}", r.removing_vdev),
        |v| vdev_name(Some(&pool.name), v, NameFlags { path: true, ..NameFlags::default() }),
    );
    label(cx, "", "remove: ");
    let (start, end) = (cx.clock.ctime(r.start_time), cx.clock.ctime(r.end_time));
    match r.state {
        ScanState::Finished => {
            let minutes = r.end_time.wrapping_sub(r.start_time) / 60;
            let copied = count(r.copied);
            writeln!(
                cx.out,
                "Removal of vdev {} copied {copied} in {}h{}m, completed on {end}",
                r.removing_vdev,
                minutes / 60,
                minutes % 60
            );
        }
        ScanState::Canceled => writeln!(cx.out, "Removal of {name} canceled on {end}"),
        _ => {
            writeln!(cx.out, "Evacuation of {name} in progress since {start}");
            let copied = r.copied.max(1);
            let rate = (copied / cx.clock.now().saturating_sub(r.start_time).max(1)).max(1);
            let minutes = r.to_copy.saturating_sub(copied) / rate / 60;
            let done = 100.0 * copied as f64 / r.to_copy as f64;
            let (c, t, r) = (count(copied), count(r.to_copy), count(rate));
            write!(cx.out, "\t{c} copied out of {t} at {r}/s, {done:.2}% done");
            if minutes / 60 < 30 * 24 {
                writeln!(cx.out, ", {}h{}m to go", minutes / 60, minutes % 60);
            } else {
                cx.out.put(", (copy is slow, no estimated time)\n");
            }
        }
    }
    if r.mapping_memory > 0 {
        writeln!(cx.out, "\t{} memory used for removed device mappings", count(r.mapping_memory));
    }
}

/// Shows the line of a checkpoint (`print_checkpoint_status`).
pub fn checkpoint(cx: &mut Cx, c: &CheckpointStat) {
    let space = count(c.space);
    match c.state {
        CheckpointState::None => {}
        CheckpointState::Exists => {
            let when = cx.clock.ctime(c.start_time);
            writeln!(cx.out, "checkpoint: created {when}, consumes {space}");
        }
        CheckpointState::Discarding => writeln!(cx.out, "checkpoint: discarding, {space} remaining."),
    }
}

/// Shows the lines of a raidz expansion (`print_raidz_expand_status`).
pub fn expansion(cx: &mut Cx, pool: &Pool, e: &ExpandStat) {
    if e.state == ScanState::None {
        return;
    }
    let at = usize::try_from(e.expanding_vdev).unwrap_or(usize::MAX);
    let Some(v) = pool.root.children.get(at) else { return };
    let name = format!("{}-{}", vdev_name(Some(&pool.name), v, NameFlags::default()), e.expanding_vdev);
    label(cx, "", "expand: ");
    if e.state == ScanState::Finished {
        let end = cx.clock.ctime(e.end_time);
        let took = span(e.end_time.wrapping_sub(e.start_time));
        return writeln!(cx.out, "expanded {name} copied {} in {took}, on {end}", count(e.reflowed));
    }
    let start = cx.clock.ctime(e.start_time);
    writeln!(cx.out, "expansion of {name} in progress since {start}");
    let copied = e.reflowed.max(1);
    let rate = (copied / cx.clock.now().saturating_sub(e.start_time).max(1)).max(1);
    let left = e.to_reflow.saturating_sub(copied) / rate;
    let done = 100.0 * copied as f64 / e.to_reflow as f64;
    let (c, t, r) = (count(copied), count(e.to_reflow), count(rate));
    write!(cx.out, "\t{c} / {t} copied at {r}/s, {done:.2}% done");
    if e.waiting_for_resilver {
        cx.out.put(", paused for resilver or clear\n");
    } else if left < 30 * 24 * 3600 {
        writeln!(cx.out, ", {} to go", span(left));
    } else {
        cx.out.put(", (copy is slow, no estimated time)\n");
    }
}

#[cfg(test)]
mod tests;
