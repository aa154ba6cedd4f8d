//! `zfs list`.

use api::{Dataset, DatasetKind as K, PropSelect, Source};

use super::datasets::{self, Gather, SortKey, gather, value};
use crate::cx::{Color, Cx, Outcome, Stop};
use crate::json::{self, Object};
use crate::proplist::{self, Column, Table};
use console::getopt::{Found, Getopt, Long, Opt};

pub(super) const LONG: &[Long] = &[
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "json-int", val: Opt::Named("json-int"), arg: false },
];

#[derive(Default)]
struct List {
    scripted: bool,
    exact: bool,
    json: bool,
    as_int: bool,
}

/// Runs `zfs list` (`zfs_do_list`).
///
/// ```text
/// zfs list [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...
///     [-S property]... [-t type[,...]] [dataset] ...
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut l = List::default();
    let mut how = Gather {
        kinds: vec![K::Filesystem, K::Volume, K::Snapshot],
        listsnapshots: true,
        paths: true,
        ..Gather::default()
    };
    let (mut fields, mut typed) = ("name,used,available,referenced,mountpoint".to_owned(), false);
    let mut g = Getopt::new(args, "jHS:d:o:prs:t:", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('o'), arg) => fields = arg,
            Found::Is(Opt::Short('p'), _) => l.exact = true,
            Found::Is(Opt::Short('d'), arg) => {
                (how.depth, how.recurse) = (Some(datasets::parse_depth(&arg)?), true)
            }
            Found::Is(Opt::Short('r'), _) => how.recurse = true,
            Found::Is(Opt::Short('j'), _) => l.json = true,
            Found::Is(Opt::Short('H'), _) => l.scripted = true,
            Found::Is(Opt::Short(c @ ('s' | 'S')), arg) => match SortKey::parse(&arg, c == 'S') {
                Some(key) => how.sort.push(key),
                None => return Err(Stop::usage(format!("invalid property '{arg}'\n"))),
            },
            Found::Is(Opt::Short(_), arg) => {
                (how.kinds, typed, how.listsnapshots) = (datasets::parse_types(&arg)?, true, false);
            }
            Found::Is(Opt::Named(_), _) => (l.as_int, l.exact) = (true, true),
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    if !l.json && l.as_int {
        return Err(Stop::usage("'--json-int' only works with '-j' option\n"));
    }
    if fields == "space" && !typed {
        how.kinds.retain(|k| *k != K::Snapshot);
    }
    only_below(&mut how, !names.is_empty());
    let columns = proplist::parse(Table::Dataset, &fields)?;
    how.props = select(&columns, &how.sort);
    let gathered = gather(cx, &names, &how)?;
    let (failed, unopened, found) = (gathered.failed(), gathered.unopened, gathered.found);
    let columns = expand(cx, columns, &found, l.exact);
    if l.json {
        if !unopened {
            let o = to_json(cx, &found, &columns, &l);
            writeln!(cx.out, "{}", o.line());
        }
    } else {
        if !l.scripted && !found.is_empty() {
            header(cx, &columns);
        }
        for d in &found {
            line(cx, d, &columns, &l);
        }
    }
    if !failed && found.is_empty() && !l.scripted {
        cx.err.put("no datasets available\n");
    }
    Ok(i32::from(failed))
}

/// For snapshots alone or bookmarks alone of named datasets, limits the search to one level below
/// them.
pub(super) fn only_below(how: &mut Gather, named: bool) {
    let alone = how.kinds == [K::Snapshot] || how.kinds == [K::Bookmark];
    if alone && named && !how.recurse {
        (how.recurse, how.depth) = (true, Some(1));
    }
}

/// The properties to request: those that are shown, and those that are sorted by.
pub(super) fn select(columns: &[Column], sort: &[SortKey]) -> PropSelect {
    if columns.is_empty() {
        return PropSelect::All;
    }
    let mut names = proplist::names(columns);
    for key in sort {
        if key.name() != "name" && !names.iter().any(|n| n == key.name()) {
            names.push(key.name().to_owned());
        }
    }
    names.retain(|n| n != "type");
    PropSelect::Named(names)
}

/// Expands `all`, and makes columns as wide as their values.
pub(super) fn expand(cx: &Cx, columns: Vec<Column>, found: &[Dataset], exact: bool) -> Vec<Column> {
    let mut columns = proplist::expand_datasets(columns, found.iter());
    for c in &mut columns {
        for d in found {
            if let Some((text, _)) = value(cx, d, c.name(), exact) {
                c.widen(&text, exact);
            }
        }
    }
    columns
}

fn header(cx: &mut Cx, columns: &[Column]) {
    let mut text = String::new();
    for (i, c) in columns.iter().enumerate() {
        text += if i > 0 { "  " } else { "" };
        let width = c.width;
        text += &match (c.right(), i + 1 == columns.len()) {
            (true, _) => format!("{:>width$}", c.header()),
            (false, true) => c.header(),
            (false, false) => format!("{:<width$}", c.header()),
        };
    }
    cx.colored(Some(Color::Bold), &text);
    cx.out.put("\n");
}

fn line(cx: &mut Cx, d: &Dataset, columns: &[Column], l: &List) {
    for (i, c) in columns.iter().enumerate() {
        let gap = if l.scripted { "\t" } else { "  " };
        cx.out.put(if i > 0 { gap } else { "" });
        let text = value(cx, d, c.name(), l.exact).map_or_else(|| "-".to_owned(), |v| v.0);
        let text = cx.out.cell(&text);
        let color = if cx.color && c.name() == "available" { avail_color(d) } else { None };
        let width = c.width;
        match (l.scripted, c.right(), i + 1 == columns.len()) {
            (true, _, _) | (false, false, true) => cx.out.put(&text),
            (false, true, _) => cx.colored(color, &format!("{text:>width$}")),
            (false, false, false) => write!(cx.out, "{text:<width$}"),
        }
    }
    cx.out.put("\n");
}

/// Yellow if less than a fifth of the space is left, red if less than a tenth.
fn avail_color(d: &Dataset) -> Option<Color> {
    let (used, avail) = (d.number("used")?, d.number("available")?);
    let percent = avail as f64 / (avail.saturating_add(used).max(1)) as f64 * 100.0;
    match percent as u64 {
        21.. => None,
        11..=20 => Some(Color::Yellow),
        _ => Some(Color::Red),
    }
}

fn to_json(cx: &Cx, found: &[Dataset], columns: &[Column], l: &List) -> Object {
    let mut list = Object::new();
    for d in found {
        let mut o = Object::new();
        datasets::info(&mut o, d, l.as_int);
        let mut values = Object::new();
        for c in columns.iter().filter(|c| c.name() != "name") {
            let (text, source) =
                value(cx, d, c.name(), l.exact).unwrap_or_else(|| ("-".into(), Source::None));
            values.object(c.name(), proplist::json_value(&text, &source, None, l.as_int));
        }
        o.object("properties", values);
        list.push(d.name.clone(), json::Json::Object(o));
    }
    let mut root = json::schema("zfs list");
    root.object("datasets", list);
    root
}
