//! `zpool get`.

use api::{Pool, PoolQuery, Source, Vdev};

use super::info::{self, Role};
use super::list::{LONG, need_json};
use super::{UsageProps, pools};
use crate::cx::{Cx, Outcome, Stop};
use crate::getprint::GetTable;
use crate::json::{self, Object};
use crate::proplist::{self, Column, Table};
use crate::props;
use crate::vdev_name::{NameFlags, vdev_name};
use console::getopt::{Found, Getopt, Opt};

#[derive(Default)]
struct Get {
    exact: bool,
    json: bool,
    as_int: bool,
    key_guid: bool,
    table: GetTable,
}

/// `zpool get` (`zpool_do_get`).
///
/// ```text
/// zpool get [-Hp] [-j ...] [-o "all" | field[,...]] <"all" | property[,...]> <pool>
///         [all-vdevs | vdev] ...
/// ```
pub fn run(cx: &mut Cx, args: &[String], shown: &mut UsageProps) -> Outcome {
    *shown = UsageProps::Pool;
    let mut get = Get::default();
    let mut g = Getopt::new(args, ":jHpo:", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('p'), _) => get.exact = true,
            Found::Is(Opt::Short('H'), _) => get.table.scripted = true,
            Found::Is(Opt::Short('j'), _) => get.json = true,
            Found::Is(Opt::Short(_), arg) => get.table.set_fields(&arg, false)?,
            Found::Is(Opt::Named("json-int"), _) => (get.as_int, get.exact) = (true, true),
            Found::Is(Opt::Named(_), _) => get.key_guid = true,
            Found::Missing(_) => {}
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut operands = g.operands();
    need_json(get.json, get.as_int, get.key_guid)?;
    if operands.is_empty() {
        return Err(Stop::usage("missing property argument\n"));
    }
    let list = operands.remove(0);
    let service = cx.service()?;
    let known = service.pool_names().map_err(|e| cx.fail("cannot list pools", &e))?;
    if operands.iter().all(|n| known.contains(n)) {
        let columns = proplist::parse(Table::Pool, &list)?;
        return of_pools(cx, &operands, columns, &mut get);
    }
    let (name, vdevs) = (operands.remove(0), operands);
    if !known.contains(&name) {
        writeln!(cx.err, "Cannot get properties of {name}: no such pool available.");
        return Ok(1);
    }
    let query = PoolQuery { vdev_props: true, ..PoolQuery::default() };
    let (found, _) = pools(cx, std::slice::from_ref(&name), query)?;
    let Some(pool) = found.first() else { return Ok(1) };
    let Some(targets) = resolve(pool, &vdevs) else {
        writeln!(cx.err, "Expected a list of vdevs in \"{name}\", but got:");
        for v in &vdevs {
            let what = match (known.contains(v), find(pool, v)) {
                (true, _) => "pool",
                (false, Some(_)) => "vdev in this pool",
                (false, None) => "unknown",
            };
            writeln!(cx.err, "\t{v} ({what})");
        }
        return Err(Stop::usage("\n"));
    };
    *shown = UsageProps::Vdev;
    let columns = proplist::parse(Table::Vdev, &list)?;
    of_vdevs(cx, pool, &targets, columns, &mut get)
}

fn with_name(columns: Vec<Column>, all: &[Column]) -> Vec<Column> {
    let name = all.iter().find(|c| c.name() == "name").cloned();
    name.into_iter().chain(columns).collect()
}

fn of_pools(cx: &mut Cx, names: &[String], columns: Vec<Column>, get: &mut Get) -> Outcome {
    let (found, failed) = pools(cx, names, PoolQuery { props: true, ..PoolQuery::default() })?;
    let all = proplist::expand_pool(Vec::new(), &found);
    let mut columns = if columns.is_empty() { all } else { with_name(columns, &all) };
    for c in &mut columns {
        for pool in &found {
            let text = if c.name() == "name" { Some(pool.name.as_str()) } else { None };
            if let Some(text) = text.or_else(|| pool.prop(c.name()).map(|p| p.value(get.exact))) {
                c.widen(text, get.exact);
            }
        }
    }
    get.table.measure(&columns);
    let mut list = Object::new();
    for pool in &found {
        let mut values = Object::new();
        for c in &columns[1..] {
            let (text, source) = match (c.name(), pool.prop(c.name())) {
                ("name", _) => (pool.name.as_str(), &Source::None),
                (_, Some(p)) => (p.value(get.exact), &p.source),
                // A user property that is not set (`zpool_get_userprop`).
                (name, None) if props::is_user(name) => ("-", &Source::Default),
                (_, None) => continue,
            };
            if !get.json {
                get.table.line(cx, &pool.name, c.name(), text, source, None);
            } else if get.table.wants(source) {
                values.object(c.name(), proplist::json_value(text, source, None, get.as_int));
            }
        }
        if !values.is_empty() {
            let mut o = Object::new();
            info::pool_info(&mut o, pool, true, get.as_int);
            o.object("properties", values);
            list.object(if get.key_guid { pool.guid.to_string() } else { pool.name.clone() }, o);
        }
    }
    if get.json && !failed {
        let mut root = json::schema("zpool get");
        root.object("pools", list);
        writeln!(cx.out, "{}", root.line());
    }
    Ok(i32::from(failed))
}

/// A vdev to show, under the name on the command line.
struct Target<'a> {
    name: String,
    vdev: &'a Vdev,
    parent: Option<&'a Vdev>,
}

/// All vdevs with properties, in OpenZFS's order.
///
/// OpenZFS takes spares and cache devices first, but they have no properties.
fn every<'a>(pool: &'a Pool, v: &'a Vdev, parent: Option<&'a Vdev>, into: &mut Vec<Target<'a>>) {
    if v.kind != "indirect" {
        let name = match parent {
            None => "root-0".to_owned(),
            Some(_) => vdev_name(Some(&pool.name), v, NameFlags::default().with_id()),
        };
        into.push(Target { name, vdev: v, parent });
    }
    for c in v.children.iter().filter(|c| !c.is_hole) {
        every(pool, c, Some(v), into);
    }
}

fn resolve<'a>(pool: &'a Pool, words: &[String]) -> Option<Vec<Target<'a>>> {
    match words {
        [word] if word == "all-vdevs" => {
            let mut all = Vec::new();
            every(pool, &pool.root, None, &mut all);
            Some(all)
        }
        [word] if word == "root" => {
            Some(vec![Target { name: "root-0".into(), vdev: &pool.root, parent: None }])
        }
        words => words.iter().map(|w| find(pool, w)).collect(),
    }
}

/// The guid of the vdev that a word names.
pub(super) fn guid_of(pool: &Pool, word: &str) -> Option<u64> {
    find(pool, word).map(|t| t.vdev.guid)
}

/// Finds the vdev that a word names: by name, path, path in `/dev`, or guid.
fn find<'a>(pool: &'a Pool, word: &str) -> Option<Target<'a>> {
    let mut all = Vec::new();
    every(pool, &pool.root, None, &mut all);
    let guid = word.parse::<u64>().ok();
    all.into_iter()
        .find(|t| {
            let path = t.vdev.path.as_deref();
            t.name == word
                || Some(t.vdev.guid) == guid
                || path == Some(word)
                || path.and_then(|p| p.strip_prefix("/dev/")) == Some(word)
        })
        .map(|t| Target { name: word.to_owned(), ..t })
}

fn of_vdevs(
    cx: &mut Cx,
    pool: &Pool,
    targets: &[Target<'_>],
    columns: Vec<Column>,
    get: &mut Get,
) -> Outcome {
    let all = columns.is_empty();
    let natives = proplist::expand_vdevs(Vec::new());
    let mut columns = if all { natives } else { with_name(columns, &natives) };
    for c in &mut columns {
        for t in targets {
            match t.vdev.props.iter().find(|p| p.name == c.name()) {
                _ if c.name() == "name" => c.widen(&t.name, false),
                Some(p) => c.widen(&p.text, false),
                None => {}
            }
        }
    }
    get.table.measure(&columns);
    let mut list = Object::new();
    for t in targets {
        if all {
            // OpenZFS adds the user properties of each vdev to the list, and shows them for the
            // vdevs after it too.
            let own = t.vdev.props.iter().filter(|p| props::is_user(&p.name));
            columns.extend(own.map(|p| Column::other(&p.name, true)));
        }
        let values = one_vdev(cx, t, &columns[1..], get);
        if !values.is_empty() {
            let mut o = Object::new();
            let role = t.parent.map_or(Role::Root, Role::Below);
            info::vdev_info(&mut o, &t.name, t.vdev, role, true, get.as_int);
            o.object("properties", values);
            list.object(t.name.clone(), o);
        }
    }
    if get.json {
        let mut root = json::schema("zpool get");
        let mut about = Object::new();
        info::pool_info(&mut about, pool, false, get.as_int);
        // OpenZFS adds the vdevs before the pool, and again after it if there are any.
        if list.is_empty() {
            root.object("vdevs", list);
            root.object("pool", about);
        } else {
            root.object("pool", about);
            root.object("vdevs", list);
        }
        writeln!(cx.out, "{}", root.line());
    }
    Ok(0)
}

/// The properties of one vdev, printed or as an object. A missing user property is a dash.
fn one_vdev(cx: &mut Cx, t: &Target<'_>, columns: &[Column], get: &mut Get) -> Object {
    let mut values = Object::new();
    for c in columns {
        let (text, source) = match t.vdev.props.iter().find(|p| p.name == c.name()) {
            Some(p) => (p.value(get.exact), &p.source),
            None if c.name() == "name" && !c.of_all => (t.name.as_str(), &Source::None),
            None if props::is_user(c.name()) => ("-", &Source::Default),
            None => continue,
        };
        if !get.json {
            get.table.line(cx, &t.name, c.name(), text, source, None);
        } else if get.table.wants(source) {
            values.object(c.name(), proplist::json_value(text, source, None, get.as_int));
        }
    }
    values
}
