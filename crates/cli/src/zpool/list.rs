//! `zpool list`.

use api::{Pool, PoolQuery, Source, Vdev, VdevAux, VdevState};

use super::info::{self, Role};
use super::{Stamp, interval, pools};
use crate::cx::{Cx, Outcome, Stop};
use crate::json::{self, Json, Object};
use crate::proplist::{self, Column, Table};
use crate::props;
use crate::vdev_name::{NameFlags, vdev_name};
use console::getopt::{Found, Getopt, Long, Opt};
use console::numbers;

const DEFAULT: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

pub(super) const LONG: &[Long] = &[
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "json-int", val: Opt::Named("json-int"), arg: false },
    Long { name: "json-pool-key-guid", val: Opt::Named("json-pool-key-guid"), arg: false },
];

#[derive(Default)]
struct List {
    scripted: bool,
    exact: bool,
    verbose: bool,
    json: bool,
    as_int: bool,
    key_guid: bool,
    flags: NameFlags,
    width: usize,
}

/// `zpool list` (`zpool_do_list`).
///
/// ```text
/// zpool list [-gHLpPv] [-o property[,...]] [-j ...] [-T d|u] [pool] [interval [count]]
/// ```
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut l = List::default();
    let mut columns = DEFAULT.to_owned();
    let mut stamp = Stamp::None;
    let mut g = Getopt::new(args, ":gjHLo:pPT:v", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('g'), _) => l.flags.guid = true,
            Found::Is(Opt::Short('H'), _) => l.scripted = true,
            Found::Is(Opt::Short('L'), _) => l.flags.follow = true,
            Found::Is(Opt::Short('o'), arg) => columns = arg,
            Found::Is(Opt::Short('P'), _) => l.flags.path = true,
            Found::Is(Opt::Short('p'), _) => l.exact = true,
            Found::Is(Opt::Short('j'), _) => l.json = true,
            Found::Is(Opt::Named("json-int"), _) => (l.as_int, l.exact) = (true, true),
            Found::Is(Opt::Named(_), _) => l.key_guid = true,
            Found::Is(Opt::Short('T'), arg) => stamp = Stamp::parse(&arg)?,
            Found::Is(Opt::Short(_), _) => l.verbose = true,
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    need_json(l.json, l.as_int, l.key_guid)?;
    let (every, mut rounds) = interval(&mut names)?;
    let columns = proplist::parse(Table::Pool, &columns)?;
    l.flags = l.flags.with_env(cx);

    let mut first = true;
    loop {
        let (found, failed) = pools(cx, &names, PoolQuery { props: true, ..PoolQuery::default() })?;
        if found.is_empty() {
            if !names.is_empty() || l.scripted || l.json {
                return Ok(i32::from(failed));
            }
            cx.out.put("no pools available\n");
            cx.tell_whom_was_asked();
            return Ok(0);
        }
        let columns = expand(columns.clone(), &found, l.exact);
        l.width = found.iter().fold(0, |w, p| name_width(p, w, &l));
        if l.json {
            let o = to_json(cx, &found, &columns, &l, stamp);
            // If a pool is missing, the exit code is still that of the others: 0.
            writeln!(cx.out, "{}", o.line());
        } else {
            if let Some(text) = stamp.text(cx) {
                writeln!(cx.out, "{text}");
            }
            if !l.scripted && (first || l.verbose) {
                header(cx, &columns, &l);
                first = false;
            }
            for pool in &found {
                line(cx, pool, &columns, &l);
                if l.verbose {
                    vdevs(cx, &mut None, pool, &l);
                }
            }
        }
        if every == 0.0 || rounds == 1 {
            return Ok(0);
        }
        rounds = rounds.saturating_sub(1);
        cx.out.flush();
        (cx.sleep)(every);
    }
}

pub(super) fn need_json(json: bool, as_int: bool, key_guid: bool) -> Result<(), Stop> {
    if !json && as_int {
        return Err(Stop::usage("'--json-int' only works with '-j' option\n"));
    }
    if !json && key_guid {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option\n"));
    }
    Ok(())
}

/// Expands `all`, and widens the columns to their values.
fn expand(columns: Vec<Column>, found: &[Pool], exact: bool) -> Vec<Column> {
    let mut columns = proplist::expand_pool(columns, found);
    for c in &mut columns {
        for pool in found {
            let value = value(pool, c, exact).0;
            c.widen(&value, exact);
        }
    }
    columns
}

/// A property's value as text, and its source; `-` if the pool lacks it.
fn value(pool: &Pool, column: &Column, exact: bool) -> (String, Source) {
    if column.name() == "name" {
        return (pool.name.clone(), Source::None);
    }
    match pool.prop(column.name()) {
        Some(p) => (p.value(exact).to_owned(), p.source.clone()),
        None => ("-".into(), Source::None),
    }
}

fn name_width(pool: &Pool, width: usize, l: &List) -> usize {
    let w = if l.verbose { max_width(Some(&pool.name), pool, width, l.flags.with_id()) } else { width };
    w.max(pool.name.len()).max(9)
}

/// The width that the names of all vdevs need, each indented by its depth (`max_width`).
pub(super) fn max_width(name: Option<&str>, pool: &Pool, least: usize, flags: NameFlags) -> usize {
    fn walk(name: Option<&str>, v: &Vdev, depth: usize, max: usize, flags: NameFlags) -> usize {
        let own = max.max(vdev_name(name, v, flags).len() + depth);
        v.children.iter().fold(own, |m, c| walk(name, c, depth + 2, m, flags))
    }
    let tree = walk(name, &pool.root, 0, least, flags);
    pool.spares.iter().chain(&pool.l2cache).fold(tree, |m, v| walk(name, v, 2, m, flags))
}

fn header(cx: &mut Cx, columns: &[Column], l: &List) {
    for (i, c) in columns.iter().enumerate() {
        let width = if i == 0 && l.verbose { l.width } else { c.width };
        let title = c.header();
        cell(cx, i, columns.len(), &title, c.right(), width);
    }
    cx.out.put("\n");
}

fn line(cx: &mut Cx, pool: &Pool, columns: &[Column], l: &List) {
    for (i, c) in columns.iter().enumerate() {
        let text = value(pool, c, l.exact).0;
        let text = cx.out.cell(&text);
        if l.scripted {
            cx.out.put(if i > 0 { "\t" } else { "" });
            cx.out.put(&text);
        } else {
            let width = if i == 0 && l.verbose { l.width } else { c.width };
            cell(cx, i, columns.len(), &text, c.right(), width);
        }
    }
    cx.out.put("\n");
}

/// Prints one cell of a table. The last cell is not padded, unless it is aligned to the right.
fn cell(cx: &mut Cx, at: usize, of: usize, text: &str, right: bool, width: usize) {
    cx.out.put(if at > 0 { "  " } else { "" });
    match (right, at + 1 == of) {
        (true, _) => write!(cx.out, "{text:>width$}"),
        (false, true) => cx.out.put(text),
        (false, false) => write!(cx.out, "{text:<width$}"),
    }
}

/// The classes of top-level vdevs that are listed after the normal one.
pub(super) const CLASSES: [&str; 3] = ["dedup", "special", "logs"];

/// The class of a top-level vdev; `None` for the normal one.
pub(super) fn class(v: &Vdev) -> Option<&str> {
    if v.is_log { Some("logs") } else { v.alloc_bias.as_deref() }
}

/// Prints the rows of a pool's vdevs, or adds their objects to `into`.
fn vdevs(cx: &mut Cx, into: &mut Option<Object>, pool: &Pool, l: &List) {
    children(cx, into, pool, &pool.root, l, 2);
    for name in CLASSES {
        let members: Vec<&Vdev> = pool.root.children.iter().filter(|v| class(v) == Some(name)).collect();
        let members: Vec<&Vdev> = members.into_iter().filter(|v| v.is_log || v.kind != "indirect").collect();
        group(cx, into, pool, l, name, name, &members, |_| Role::Below(&pool.root), true);
    }
    let cache: Vec<&Vdev> = pool.l2cache.iter().collect();
    group(cx, into, pool, l, "cache", "l2cache", &cache, |_| Role::Cache, false);
    let spares: Vec<&Vdev> = pool.spares.iter().collect();
    group(cx, into, pool, l, "spare", "spares", &spares, |_| Role::Spare, false);
}

#[allow(clippy::too_many_arguments, reason = "two callers, and each argument differs between the groups")]
fn group<'a>(
    cx: &mut Cx,
    into: &mut Option<Object>,
    pool: &'a Pool,
    l: &List,
    title: &str,
    key: &str,
    members: &[&'a Vdev],
    role: impl Fn(&Vdev) -> Role<'a>,
    with_id: bool,
) {
    if members.is_empty() {
        return;
    }
    let mut inner = into.is_some().then(Object::new);
    if inner.is_none() {
        let width = l.width;
        writeln!(
            cx.out,
            "{title:<width$}      -      -      -        -         -      -      -      -         -"
        );
    }
    for v in members {
        one(cx, &mut inner, pool, v, role(v), l, 2, with_id);
    }
    if let (Some(outer), Some(inner)) = (into, inner) {
        outer.object(key, inner);
    }
}

fn children(cx: &mut Cx, into: &mut Option<Object>, pool: &Pool, v: &Vdev, l: &List, depth: usize) {
    for c in &v.children {
        if !c.is_hole && !c.is_log && c.alloc_bias.is_none() {
            one(cx, into, pool, c, Role::Below(v), l, depth, true);
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "one recursion, whose arguments all vary")]
fn one(
    cx: &mut Cx,
    into: &mut Option<Object>,
    pool: &Pool,
    v: &Vdev,
    role: Role<'_>,
    l: &List,
    depth: usize,
    with_id: bool,
) {
    let name = vdev_name(Some(&pool.name), v, if with_id { l.flags.with_id() } else { l.flags });
    if name == "indirect" {
        return;
    }
    let cells = cells(v, role, l.exact);
    match into {
        None => {
            let name = cx.out.cell(&name);
            if l.scripted {
                write!(cx.out, "\t{name}");
            } else {
                let width = l.width.saturating_sub(depth);
                write!(cx.out, "{:depth$}{name:<width$}", "");
            }
            for (prop, text) in &cells {
                let width = if *prop == "health" {
                    8
                } else {
                    props::find(props::POOL, prop).map_or(5, props::PropDesc::width)
                };
                if l.scripted { write!(cx.out, "\t{text}") } else { write!(cx.out, "  {text:>width$}") }
            }
            cx.out.put("\n");
            children(cx, &mut None, pool, v, l, depth + 2);
        }
        Some(outer) => {
            let mut o = Object::new();
            info::vdev_info(&mut o, &name, v, role, false, l.as_int);
            let mut values = Object::new();
            for (prop, text) in &cells {
                values.object(*prop, proplist::json_value(text, &Source::None, None, l.as_int));
            }
            o.object("properties", values);
            let mut below = Some(Object::new());
            children(cx, &mut below, pool, v, l, depth + 2);
            if let Some(below) = below.filter(|b| !b.is_empty()) {
                o.object("vdevs", below);
            }
            outer.object(name, o);
        }
    }
}

/// The columns of a vdev, which don't depend on `-o` (`collect_list_stats`).
fn cells(v: &Vdev, role: Role<'_>, exact: bool) -> Vec<(&'static str, String)> {
    let s = &v.stat;
    let top = s.space != 0;
    let number = |n: u64| if exact { n.to_string() } else { numbers::num(n) };
    let or_dash = |n: u64| if n == 0 { "-".into() } else { number(n) };
    let if_top = |text: String| if top { text } else { "-".into() };
    let size = if s.pspace != 0 { number(s.pspace) } else { if_top(or_dash(s.space)) };
    let fragmentation = match s.fragmentation {
        Some(f) if exact => f.to_string(),
        Some(f) => format!("{f}%"),
        None => "-".into(),
    };
    let health = match (role, s.state) {
        (Role::Spare, _) if s.aux == VdevAux::Spared => "INUSE",
        (Role::Spare, VdevState::Healthy) => "AVAIL",
        _ => info::state_name(s.state, s.aux),
    };
    vec![
        ("size", size),
        ("allocated", if_top(number(s.alloc))),
        ("free", if_top(number(s.space.saturating_sub(s.alloc)))),
        ("checkpoint", if_top(or_dash(s.checkpoint_space))),
        ("expandsize", or_dash(s.esize)),
        ("fragmentation", if_top(fragmentation)),
        ("capacity", if_top(capacity(s.alloc, s.space, exact))),
        ("dedupratio", "-".into()),
        ("health", health.into()),
    ]
}

/// The allocated share of the space in percent, with as many decimals as fit.
fn capacity(alloc: u64, space: u64, exact: bool) -> String {
    let share = if space == 0 {
        0
    } else {
        u64::try_from(u128::from(alloc) * 10_000 / u128::from(space)).unwrap_or(u64::MAX)
    };
    let percent = share as f64 / 100.0;
    match share {
        _ if exact => (share / 100).to_string(),
        0..1000 => format!("{percent:1.2}%"),
        1000..10_000 => format!("{percent:2.1}%"),
        _ => format!("{percent:3.0}%"),
    }
}

fn to_json(cx: &mut Cx, found: &[Pool], columns: &[Column], l: &List, stamp: Stamp) -> Object {
    let mut root = json::schema("zpool list");
    let mut list = Object::new();
    for pool in found {
        let mut o = Object::new();
        info::pool_info(&mut o, pool, true, l.as_int);
        let mut values = Object::new();
        for c in columns.iter().filter(|c| c.name() != "name") {
            let (text, source) = value(pool, c, l.exact);
            values.object(c.name(), proplist::json_value(&text, &source, None, l.as_int));
        }
        o.object("properties", values);
        if l.verbose {
            let mut tree = Some(Object::new());
            vdevs(cx, &mut tree, pool, l);
            o.object("vdevs", tree.unwrap_or_default());
        }
        list.object(if l.key_guid { pool.guid.to_string() } else { pool.name.clone() }, o);
    }
    let time = stamp.text(cx).map(|text| match stamp {
        _ if l.as_int => Json::Number(cx.clock.now()),
        _ => Json::Text(text),
    });
    // With `-v`, OpenZFS adds the pools again at the end, after the time.
    match time {
        Some(t) if l.verbose => {
            root.put("time", t);
            root.object("pools", list);
        }
        Some(t) => {
            root.object("pools", list);
            root.put("time", t);
        }
        None => root.object("pools", list),
    }
    root
}
