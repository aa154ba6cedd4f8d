//! `zfs get`.

use api::{Dataset, DatasetKind as K, Source};

use super::datasets::{self, Gather, gather, value};
use super::list::{LONG, expand, only_below, select};
use crate::cx::{Cx, Outcome, Stop};
use crate::getprint::GetTable;
use crate::json::{self, Object};
use crate::proplist::{self, Column, Table};
use console::getopt::{Found, Getopt, Opt};

#[derive(Default)]
struct Get {
    exact: bool,
    json: bool,
    as_int: bool,
    table: GetTable,
}

/// Runs `zfs get` (`zfs_do_get`).
///
/// ```text
/// zfs get [-rHp] [-j [--json-int]] [-d max] [-o "all" | field[,...]] [-t type[,...]]
///     [-s source[,...]] <"all" | property[,...]> [dataset] ...
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut get = Get::default();
    let mut how = Gather {
        kinds: vec![K::Filesystem, K::Volume, K::Snapshot, K::Bookmark],
        paths: true,
        ..Gather::default()
    };
    let mut g = Getopt::new(args, ":d:o:s:jrt:Hp", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('p'), _) => get.exact = true,
            Found::Is(Opt::Short('d'), arg) => {
                (how.depth, how.recurse) = (Some(datasets::parse_depth(&arg)?), true)
            }
            Found::Is(Opt::Short('r'), _) => how.recurse = true,
            Found::Is(Opt::Short('H'), _) => get.table.scripted = true,
            Found::Is(Opt::Short('j'), _) => get.json = true,
            Found::Is(Opt::Short('o'), arg) => get.table.set_fields(&arg, true)?,
            Found::Is(Opt::Short('s'), arg) => get.table.set_sources(&arg)?,
            Found::Is(Opt::Short(_), arg) => how.kinds = datasets::parse_types(&arg)?,
            Found::Is(Opt::Named(_), _) => (get.as_int, get.exact) = (true, true),
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    if names.is_empty() {
        return Err(Stop::usage("missing property argument\n"));
    }
    if !get.json && get.as_int {
        return Err(Stop::usage("'--json-int' only works with '-j' option\n"));
    }
    only_below(&mut how, names.len() > 1);
    let columns = proplist::parse(Table::Dataset, &names.remove(0))?;
    how.props = select(&columns, &[]);
    how.received = get.table.received();
    let gathered = gather(cx, &names, &how)?;
    let (failed, unopened, found) = (gathered.failed(), gathered.unopened, gathered.found);
    let columns = columns_for(cx, columns, &found, get.exact);
    get.table.measure(&columns);
    let mut list = Object::new();
    for d in &found {
        let values = one(cx, d, &columns[1..], &mut get);
        if !values.is_empty() {
            let mut o = Object::new();
            datasets::info(&mut o, d, get.as_int);
            o.object("properties", values);
            list.push(d.name.clone(), json::Json::Object(o));
        }
    }
    if get.json && !unopened {
        let mut root = json::schema("zfs get");
        root.object("datasets", list);
        writeln!(cx.out, "{}", root.line());
    }
    Ok(i32::from(failed))
}

/// The columns, as wide as their values. The first column of every table has the datasets' names.
fn columns_for(cx: &Cx, columns: Vec<Column>, found: &[Dataset], exact: bool) -> Vec<Column> {
    let columns = if columns.is_empty() {
        columns
    } else {
        let name = proplist::parse(Table::Dataset, "name").unwrap_or_default();
        name.into_iter().chain(columns).collect()
    };
    let mut columns = expand(cx, columns, found, exact);
    for c in &mut columns {
        let received = found.iter().filter_map(|d| d.prop(c.name())?.received.as_ref());
        c.received_width =
            received.map(|(text, raw)| if exact { raw.len() } else { text.len() }).max().unwrap_or(0);
    }
    columns
}

/// Prints the properties of one dataset, or returns them as an object.
fn one(cx: &mut Cx, d: &Dataset, columns: &[Column], get: &mut Get) -> Object {
    let mut values = Object::new();
    for c in columns {
        let name = c.name();
        let (text, source) = match value(cx, d, name, get.exact) {
            Some(v) => v,
            None if c.of_all => continue,
            None => {
                if let Ok(desc) = &c.what
                    && ![K::Filesystem, K::Volume, K::Snapshot].into_iter().any(|kind| desc.applies(kind))
                {
                    writeln!(cx.err, "No such property '{name}'");
                    continue;
                }
                ("-".to_owned(), Source::None)
            }
        };
        let received =
            d.prop(name).and_then(|p| p.received.as_ref()).map(|r| if get.exact { &r.1 } else { &r.0 });
        let received = received.filter(|_| get.table.received()).map(String::as_str);
        if !get.json {
            get.table.line(cx, &d.name, name, &text, &source, received);
        } else if get.table.wants(&source) {
            values.object(name, proplist::json_value(&text, &source, received, get.as_int));
        }
    }
    values
}
