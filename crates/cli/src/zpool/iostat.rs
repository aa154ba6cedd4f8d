//! `zpool iostat`: the I/O statistics of pools and devices.
//!
//! # Theory
//! The first round shows the statistics since the import, each later round those since the previous
//! one. All are rates per second, except for the histograms of the first round. Columns come in
//! groups; [`columns`] has their layout, and this file fills them.
//!
//! [`queues`] says which classes of I/O each column has.
//!
//! # Absent
//! I/O queues: only operations of the background wait, until it is their turn. All others go to the
//! device at once, and count as a wait of no time, in the first row of a histogram.

mod columns;
mod queues;

use std::rc::Rc;

use api::{IoStat, Pool, PoolQuery, Reason, Vdev, VdevStat};

use super::list::{CLASSES, class, max_width};
use super::scripts::Scripts;
use super::{Stamp, get, interval, skipped};
use crate::cx::{Cx, Outcome, Stop};
use crate::vdev_name::{NameFlags, vdev_name};
use columns::{Group, Number};
use console::getopt::{Found, Getopt, Opt};
use queues::{Queue, Queues};

/// The options (`iostat_cbdata_t`).
#[derive(Default)]
struct Look {
    /// Whether vdevs are shown too.
    verbose: bool,
    /// Whether `-v` was given; other options can imply [`Look::verbose`].
    asked_verbose: bool,
    scripted: bool,
    exact: bool,
    skip_first: bool,
    headers_once: bool,
    stamp: Stamp,
    flags: NameFlags,
    groups: Vec<Group>,
    /// The guids of the only vdevs to show; empty for all.
    only: Vec<u64>,
    width: usize,
    /// The scripts of `-c`.
    scripts: Option<Scripts>,
}

impl Look {
    fn histogram(&self) -> bool {
        self.groups.iter().any(|g| g.is_histogram())
    }
}

/// `zpool iostat` (`zpool_do_iostat`).
///
/// ```text
/// zpool iostat [[-lq]|[-r|-w]] [-T d | u] [-ghHLpPvy]
///         [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]
/// ```
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut look = Look::default();
    let (mut latency, mut queues, mut l_histo, mut rq_histo) = (false, false, false, false);
    let mut scripts = None;
    let mut g = Getopt::new(args, "c:gLPT:vyhplqrwnH", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('c'), list) => scripts = Some(Scripts::parse(cx, "iostat", Some(&list))?),
            Found::Missing('c') => scripts = Some(Scripts::parse(cx, "iostat", None)?),
            Found::Is(Opt::Short('g'), _) => look.flags.guid = true,
            Found::Is(Opt::Short('L'), _) => look.flags.follow = true,
            Found::Is(Opt::Short('P'), _) => look.flags.path = true,
            Found::Is(Opt::Short('T'), arg) => look.stamp = Stamp::parse(&arg)?,
            Found::Is(Opt::Short('v'), _) => (look.verbose, look.asked_verbose) = (true, true),
            Found::Is(Opt::Short('y'), _) => look.skip_first = true,
            Found::Is(Opt::Short('p'), _) => look.exact = true,
            Found::Is(Opt::Short('l'), _) => latency = true,
            Found::Is(Opt::Short('q'), _) => queues = true,
            Found::Is(Opt::Short('r'), _) => rq_histo = true,
            Found::Is(Opt::Short('w'), _) => l_histo = true,
            Found::Is(Opt::Short('n'), _) => look.headers_once = true,
            Found::Is(Opt::Short('H'), _) => look.scripted = true,
            Found::Is(..) => return Err(Stop::usage("")),
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    let all = everything(cx)?;
    let (every, rounds) = times(&mut names, &all, look.flags.guid)?;
    let wanted = targets(cx, &names, &all, &mut look)?;
    if all.is_empty() && every == 0.0 {
        cx.err.put("no pools available\n");
        return Ok(1);
    }
    if (l_histo || rq_histo) && (latency || queues || scripts.is_some()) {
        return Err(Stop::usage("[-r|-w] isn't allowed with [-c|-l|-q]\n"));
    }
    if l_histo && rq_histo {
        return Err(Stop::usage("Only one of [-r|-w] can be passed at a time\n"));
    }
    look.groups = match (l_histo, rq_histo) {
        (true, _) => vec![Group::Latencies],
        (_, true) => vec![Group::Sizes],
        _ => {
            let more = [(latency, Group::Latency), (queues, Group::Queues)];
            let more = more.into_iter().filter(|(on, _)| *on).map(|(_, g)| g);
            std::iter::once(Group::Default).chain(more).collect()
        }
    };
    look.flags = look.flags.with_env(cx);
    // Scripts run for each device, so devices must be shown.
    look.verbose |= scripts.is_some();
    look.scripts = scripts;
    watch(cx, &mut look, wanted, every, rounds)
}

const QUERY: PoolQuery =
    PoolQuery { props: false, vdev_props: false, errors: false, dedup_cached: false, io: true };

/// The present state of all pools.
fn everything(cx: &mut Cx) -> Result<Vec<Pool>, Stop> {
    let names = cx.service()?.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    let names: Vec<String> = names.into_iter().filter(|n| !skipped(cx, n)).collect();
    refresh(cx, &names)
}

/// The present state of these pools, without those that no longer exist.
fn refresh(cx: &mut Cx, names: &[String]) -> Result<Vec<Pool>, Stop> {
    let service = cx.service()?;
    let mut pools = Vec::new();
    for name in names {
        match service.pool(name, &QUERY) {
            Ok(pool) => pools.push(pool),
            Err(e) if matches!(e.reason, Reason::NoSuchPool) => {}
            Err(e) => cx.complain(&format!("cannot open '{name}'"), &e),
        }
    }
    Ok(pools)
}

/// Takes `[interval [count]]` off the end of the operands (`get_interval_count_filter_guids`).
///
/// With `by_guid`, the guid of a vdev is neither.
fn times(names: &mut Vec<String>, all: &[Pool], by_guid: bool) -> Result<(f64, u64), Stop> {
    if !by_guid {
        return interval(names);
    }
    let is_guid = |w: &String| w.parse::<u64>().is_ok() && all.iter().any(|p| get::guid_of(p, w).is_some());
    let keep = names.iter().rposition(is_guid).map_or(0, |at| at + 1);
    let mut rest = names.split_off(keep);
    let times = interval(&mut rest)?;
    names.append(&mut rest);
    Ok(times)
}

/// The pools that the operands name. Named vdevs go to [`Look::only`].
fn targets(cx: &mut Cx, names: &[String], all: &[Pool], look: &mut Look) -> Result<Vec<String>, Stop> {
    let is_pool = |name: &String| all.iter().any(|p| p.name == *name);
    let in_any = |name: &String| all.iter().find_map(|p| get::guid_of(p, name));
    if names.iter().all(is_pool) {
        let mut wanted =
            if names.is_empty() { all.iter().map(|p| p.name.clone()).collect() } else { names.to_vec() };
        wanted.sort();
        wanted.dedup();
        return Ok(wanted);
    }
    look.verbose |= names.iter().all(|n| in_any(n).is_some()) || is_pool(&names[0]);
    if names.iter().all(|n| in_any(n).is_some()) {
        look.only = names.iter().filter_map(in_any).collect();
        return Ok(all.iter().map(|p| p.name.clone()).collect());
    }
    let Some(pool) = all.iter().find(|p| p.name == names[0]) else {
        cx.err.put("Unable to parse pools/vdevs list.\n\n");
        return Err(Stop::Fail(1));
    };
    let here: Vec<u64> = names[1..].iter().filter_map(|n| get::guid_of(pool, n)).collect();
    if here.len() == names.len() - 1 {
        look.only = here;
        return Ok(vec![names[0].clone()]);
    }
    let mut text =
        format!("Expected either a list of pools, or list of vdevs in \"{}\", but got:\n", names[0]);
    for name in &names[1..] {
        let what = match name {
            _ if is_pool(name) => "pool",
            _ if get::guid_of(pool, name).is_some() => "vdev in this pool",
            _ if in_any(name).is_some() => "vdev in another pool",
            _ => "unknown",
        };
        text += &format!("\t{name} ({what})\n");
    }
    Err(Stop::usage(text + "\n"))
}

/// Shows rounds until the requested number is reached.
fn watch(cx: &mut Cx, look: &mut Look, names: Vec<String>, every: f64, rounds: u64) -> Outcome {
    let mut before: Vec<Pool> = Vec::new();
    let mut left = rounds;
    for round in 1u64.. {
        let pools = refresh(cx, &names)?;
        if pools.is_empty() {
            cx.err.put("no pools available\n");
        } else {
            cx.scripts = look.scripts.as_ref().map(|scripts| Rc::new(scripts.run(&pools)));
            let screen = (cx.screen)();
            look.width = width(&pools, look, screen.map_or(999, |s| s.1));
            if let Some(text) = look.stamp.text(cx) {
                writeln!(cx.out, "{text}");
            }
            let skip = look.skip_first && round == 1;
            let again = screen
                .is_some_and(|(rows, _)| !look.headers_once && rows > 0 && round.is_multiple_of(rows as u64));
            let header = (round == 1 && !skip) || skip != look.asked_verbose || again;
            if header && !look.histogram() && !look.scripted {
                columns::header(cx, &head(look), None);
            }
            if skip {
                before = pools;
                cx.out.flush();
                (cx.sleep)(every);
                continue;
            }
            for pool in &pools {
                let old = before.iter().find(|p| p.guid == pool.guid);
                one_pool(cx, look, pool, old);
            }
            let apart = pools.len() > 1 && !look.asked_verbose;
            if (apart || !look.only.is_empty()) && !look.histogram() && !look.scripted {
                columns::dashes(cx, &head(look), None);
                cx.out.put("\n");
            }
            before = pools;
        }
        if every == 0.0 || left == 1 {
            break;
        }
        left = left.saturating_sub(1);
        cx.out.flush();
        (cx.sleep)(every);
    }
    Ok(0)
}

fn head(look: &Look) -> columns::Head<'_> {
    let title = if look.only.is_empty() { "pool" } else { "vdev" };
    columns::Head { groups: &look.groups, exact: look.exact, title, width: look.width, forced: None }
}

/// The width of the column of names (`get_namewidth_iostat`).
fn width(pools: &[Pool], look: &Look, screen: usize) -> usize {
    let available = screen.saturating_sub(42);
    pools.iter().fold(0, |least, pool| {
        let wide = if look.verbose {
            max_width(Some(&pool.name), pool, least, look.flags.with_id()).max(pool.name.len())
        } else {
            pool.name.len().max(least)
        };
        wide.min(available).max(10)
    })
}

fn one_pool(cx: &mut Cx, look: &Look, pool: &Pool, old: Option<&Pool>) {
    let at = At { pool, old, depth: 0 };
    let lines = one(cx, look, &at, &pool.name, &pool.root);
    if lines != 0 && !look.histogram() && !look.scripted && look.verbose && look.only.is_empty() {
        columns::dashes(cx, &head(look), None);
        cx.out.put("\n");
    }
}

/// The position of a vdev.
#[derive(Clone, Copy)]
struct At<'a> {
    pool: &'a Pool,
    /// The pool in the previous round.
    old: Option<&'a Pool>,
    depth: usize,
}

impl At<'_> {
    fn below(self) -> Self {
        Self { depth: self.depth + 2, ..self }
    }

    /// The statistics of a vdev in the previous round.
    fn stat_before(&self, v: &Vdev) -> Option<&VdevStat> {
        fn find(at: &Vdev, guid: u64) -> Option<&Vdev> {
            if at.guid == guid { Some(at) } else { at.children.iter().find_map(|c| find(c, guid)) }
        }
        let old = self.old?;
        if v.kind == "root" {
            return Some(&old.root.stat);
        }
        let cache = || old.l2cache.iter().find(|c| c.guid == v.guid);
        find(&old.root, v.guid).or_else(cache).map(|v| &v.stat)
    }
}

/// Shows a vdev, and with `-v` those below it; returns the number of lines (`print_vdev_stats`).
fn one(cx: &mut Cx, look: &Look, at: &At<'_>, name: &str, v: &Vdev) -> usize {
    if name == "indirect" {
        return 0;
    }
    let mut at = *at;
    let chosen = look.only.contains(&v.guid);
    if chosen {
        at.depth = 0;
    }
    let mut lines = 0;
    if look.only.is_empty() || chosen {
        numbers(cx, look, &at, name, v);
        lines = 1;
    }
    if look.verbose {
        lines += children(cx, look, &at, v);
    }
    lines
}

fn children(cx: &mut Cx, look: &Look, at: &At<'_>, v: &Vdev) -> usize {
    let mut lines = 0;
    let below = at.below();
    let name = |v: &Vdev, flags| vdev_name(Some(&at.pool.name), v, flags);
    for c in v.children.iter().filter(|c| !c.is_hole && class(c).is_none()) {
        lines += one(cx, look, &below, &name(c, look.flags.with_id()), c);
    }
    let group = |cx: &mut Cx, title: &str| {
        if !look.histogram() && !look.scripted && look.only.is_empty() {
            columns::dashes(cx, &head(look), Some(title));
        }
        cx.out.put("\n");
    };
    for title in CLASSES {
        let members = v.children.iter().filter(|c| class(c) == Some(title));
        let members: Vec<&Vdev> = members.filter(|c| c.is_log || c.kind != "indirect").collect();
        if !members.is_empty() {
            group(cx, title);
        }
        for c in members {
            lines += one(cx, look, &below, &name(c, look.flags.with_id()), c);
        }
    }
    if v.kind == "root" && !at.pool.l2cache.is_empty() {
        group(cx, "cache");
        for c in &at.pool.l2cache {
            lines += one(cx, look, &below, &name(c, look.flags), c);
        }
    }
    lines
}

fn numbers(cx: &mut Cx, look: &Look, at: &At<'_>, name: &str, v: &Vdev) {
    let blank = VdevStat::default();
    let before = at.stat_before(v);
    let old = before.unwrap_or(&blank);
    let elapsed = v.stat.timestamp_ns.saturating_sub(old.timestamp_ns);
    let scale =
        if elapsed == 0 || (before.is_none() && look.histogram()) { 1.0 } else { 1e9 / elapsed as f64 };
    let none = IoStat::default();
    let io = |stat: &VdevStat| stat.io.as_deref().unwrap_or(&none).clone();
    let io = io(&v.stat).since(&io(old));
    if look.histogram() {
        cx.out.put("\n");
        return histogram(cx, look, name, &io, scale);
    }
    if look.scripted {
        cx.out.put(name);
    } else {
        let (depth, pad) = (at.depth, look.width.saturating_sub(at.depth));
        write!(cx.out, "{:depth$}{name:<pad$}", "");
    }
    for group in &look.groups {
        let row = columns::Row { exact: look.exact, scripted: look.scripted, width: group.width(look.exact) };
        match group {
            Group::Default => plain(cx, &row, &v.stat, old, scale),
            Group::Latency => latency(cx, &row, &io),
            Group::Queues => queues(cx, &row, &io),
            Group::Latencies | Group::Sizes => {}
        }
    }
    if let Some(answers) = cx.scripts.clone() {
        answers.row(cx, v, look.scripted);
    }
    cx.out.put("\n");
}

/// Shows capacity, operations and bandwidth (`print_iostat_default`).
fn plain(cx: &mut Cx, row: &columns::Row, new: &VdevStat, old: &VdevStat, scale: f64) {
    // Only top-level vdevs have space.
    if new.space == 0 {
        let none = if row.exact { "0" } else { "-" };
        row.text(cx, none);
        row.text(cx, none);
    } else {
        row.number(cx, new.alloc, Number::Count);
        row.number(cx, new.space.saturating_sub(new.alloc), Number::Count);
    }
    let rate = |new: u64, old: u64| (new.saturating_sub(old) as f64 * scale) as u64;
    row.number(cx, rate(new.ops[1], old.ops[1]), Number::Count);
    row.number(cx, rate(new.ops[2], old.ops[2]), Number::Count);
    row.number(cx, rate(new.bytes[1], old.bytes[1]), Number::Count);
    row.number(cx, rate(new.bytes[2], old.bytes[2]), Number::Count);
}

/// The histograms of times: total, at the device, and waits for it.
fn latencies(io: &IoStat) -> Vec<Vec<u64>> {
    let mut all = Vec::from(["read", "write"].map(|kind| io.histogram(kind, |one| &one.total)));
    all.extend(["read", "write"].map(|kind| io.histogram(kind, |one| &one.disk)));
    let queues = Queues::of(io);
    all.extend(Queue::ALL.map(|queue| queues.histogram(queue, |one| &one.wait)));
    all
}

/// The histograms of sizes: of single and of joined operations, for each queue.
fn sizes(io: &IoStat) -> Vec<Vec<u64>> {
    let queues = Queues::of(io);
    let both =
        |queue| [queues.histogram(queue, |one| &one.single), queues.histogram(queue, |one| &one.joined)];
    Queue::ALL.into_iter().flat_map(both).collect()
}

/// Shows average times: total, at the device, and of waits for it (`print_iostat_latency`).
fn latency(cx: &mut Cx, row: &columns::Row, io: &IoStat) {
    for histogram in latencies(io) {
        row.number(cx, average(&histogram), Number::Time);
    }
}

/// Shows the waiting and active operations of each queue (`print_iostat_queues`).
fn queues(cx: &mut Cx, row: &columns::Row, io: &IoStat) {
    let queues = Queues::of(io);
    for queue in Queue::ALL {
        row.number(cx, queues.sum(queue, |one| one.waiting), Number::Count);
        row.number(cx, queues.sum(queue, |one| one.active), Number::Count);
    }
}

/// The average of a histogram, with the middle of each bucket as its value
/// (`single_histo_average`).
fn average(histogram: &[u64]) -> u64 {
    let mut sum = (0u128, 0u128);
    for (i, n) in histogram.iter().enumerate() {
        // Operations of the foreground wait for nothing.
        let middle = if i == 0 { 0 } else { (1u128 << i) + (1u128 << i) / 2 };
        sum = (sum.0 + u128::from(*n) * middle, sum.1 + u128::from(*n));
    }
    sum.0.checked_div(sum.1).and_then(|a| u64::try_from(a).ok()).unwrap_or(0)
}

/// Shows a vdev's histograms, a line for each power of two (`print_iostat_histos`).
fn histogram(cx: &mut Cx, look: &Look, name: &str, io: &IoStat, scale: f64) {
    let by_time = look.groups.contains(&Group::Latencies);
    let series = if by_time { latencies(io) } else { sizes(io) };
    let most = series.iter().flat_map(|s| s.iter()).copied().max().unwrap_or(0);
    let column = if look.exact { most.max(1).ilog10() as usize + 1 } else { 0 }.max(5);
    let title = if by_time { "latency" } else { "req_size" };
    let head = columns::Head { title, forced: Some(column), ..head(look) };
    if look.scripted {
        writeln!(cx.out, "{name}");
    } else {
        columns::header(cx, &head, Some(name));
    }
    let row = columns::Row { exact: look.exact, scripted: look.scripted, width: column };
    let width = look.width.max(title.len());
    let (first, end) = if by_time { (0, 37) } else { (9, 25) };
    for i in first..end {
        let (bound, text) = if by_time {
            let bound = (1u64 << (i + 1)) - 1;
            (bound, console::numbers::time_ns(bound))
        } else {
            (1u64 << i, console::numbers::num(1 << i))
        };
        if look.scripted {
            write!(cx.out, "{bound}");
        } else {
            write!(cx.out, "{text:<width$}");
        }
        for one in &series {
            let n = one.get(i).copied().unwrap_or(0);
            row.number(cx, (n as f64 * scale) as u64, Number::Count);
        }
        cx.out.put("\n");
    }
    if !look.scripted {
        let all = width + (column + 2) * series.len();
        writeln!(cx.out, "{}", "-".repeat(all));
    }
}
