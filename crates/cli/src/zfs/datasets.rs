//! The datasets that a command applies to, in order (`zfs_for_each`).

use std::cmp::Ordering;

use api::{Dataset, DatasetKind as K, DatasetList, DatasetQuery, PropSelect, Reason, Source};
use dsl::prop::parse::ZFS_MAXPROPLEN;

use crate::cx::{Cx, Stop};
use crate::json::Object;
use crate::names;
use crate::props::{self, PropDesc};

/// Which datasets to gather.
#[derive(Debug, Clone, Default)]
pub struct Gather {
    /// The kinds to return.
    pub kinds: Vec<K>,
    /// Also gather the datasets below.
    pub recurse: bool,
    /// The deepest level to gather, if there is a limit.
    pub depth: Option<u32>,
    /// Gather snapshots only if the pool's `listsnapshots` is on (`zfs list` without `-t`).
    pub listsnapshots: bool,
    /// Whether arguments may be paths in mounted file systems.
    pub paths: bool,
    /// The properties to read.
    pub props: PropSelect,
    /// Also read received values.
    pub received: bool,
    /// How to sort.
    pub sort: Vec<SortKey>,
}

/// A column to sort by (`zfs_sort_column_t`).
#[derive(Debug, Clone)]
pub struct SortKey {
    /// The native property, or the name of a user property.
    pub what: Result<&'static PropDesc, String>,
    /// Sort in descending order.
    pub reverse: bool,
}

impl SortKey {
    /// Parses the argument of `-s` or `-S`. `None` if there is no such property
    /// (`zfs_add_sort_column`).
    pub fn parse(name: &str, reverse: bool) -> Option<Self> {
        let what = match props::find(props::DATASET, name) {
            Some(desc) => Ok(desc),
            None if props::is_user(name) => Err(name.to_owned()),
            None => return None,
        };
        Some(Self { what, reverse })
    }

    /// The property's name.
    pub fn name(&self) -> &str {
        match &self.what {
            Ok(d) => d.name,
            Err(name) => name,
        }
    }
}

/// Parses the words of `-t` into the kinds that they stand for.
///
/// # Errors
/// * [`Stop::Usage`]: a word is not a type.
pub fn parse_types(list: &str) -> Result<Vec<K>, Stop> {
    let mut kinds = Vec::new();
    for word in list.split(',') {
        let more: &[K] = match word {
            "filesystem" | "fs" => &[K::Filesystem],
            "volume" | "vol" => &[K::Volume],
            "snapshot" | "snap" => &[K::Snapshot],
            "bookmark" => &[K::Bookmark],
            "all" => &[K::Filesystem, K::Volume, K::Snapshot, K::Bookmark],
            _ => return Err(Stop::usage(format!("invalid type '{word}'\n"))),
        };
        kinds.extend(more.iter().filter(|k| !kinds.contains(*k)).copied().collect::<Vec<_>>());
    }
    Ok(kinds)
}

/// Parses the argument of `-d`.
///
/// # Errors
/// * [`Stop::Usage`]: the argument is not a number, or it is negative.
pub fn parse_depth(arg: &str) -> Result<u32, Stop> {
    match arg.parse::<i64>() {
        Ok(n) if n < 0 => Err(Stop::usage("Depth can not be negative.\n")),
        Ok(n) => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
        Err(_) => Err(Stop::usage(format!("{arg} is not an integer\n"))),
    }
}

/// The gathered datasets. Failures are already reported.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// The datasets, sorted.
    pub found: Vec<Dataset>,
    /// Whether an argument could not be opened.
    pub unopened: bool,
    /// Whether something below the arguments could not be read.
    pub damaged: bool,
}

impl Gathered {
    /// Whether anything is missing.
    pub fn failed(&self) -> bool {
        self.unopened || self.damaged
    }

    /// Adds the datasets found below one argument, and reports what could not be read there.
    fn take(&mut self, cx: &mut Cx, list: DatasetList) {
        self.found.extend(list.datasets);
        self.damaged |= !list.failures.is_empty();
        let mut failures = list.failures;
        failures.sort_by(|a, b| a.about.cmp(&b.about));
        for e in &failures {
            cx.complain(&format!("cannot open '{}'", e.about), e);
        }
    }
}

/// Gathers and sorts the datasets.
///
/// An argument that can't be opened is reported and skipped.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached, or it can't list datasets or mounts. That is
///   reported.
pub fn gather(cx: &mut Cx, args: &[String], g: &Gather) -> Result<Gathered, Stop> {
    let service = cx.service()?;
    let query = DatasetQuery {
        root: None,
        depth: g.depth,
        kinds: g.kinds.clone(),
        listsnapshots: g.listsnapshots,
        props: g.props.clone(),
        received: g.received,
        stored: false,
    };
    let mut out = Gathered::default();
    if args.is_empty() {
        match service.datasets(&query) {
            Ok(list) => out.take(cx, list),
            Err(e) => return Err(cx.fail("cannot list datasets", &e)),
        }
    }
    for arg in args {
        let Some(name) = open(cx, arg, g)? else {
            out.unopened = true;
            continue;
        };
        let depth = if g.recurse { g.depth } else { Some(0) };
        match service.datasets(&DatasetQuery { root: Some(name.clone()), depth, ..query.clone() }) {
            Ok(list) => out.take(cx, list),
            Err(e) => {
                cx.complain(&format!("cannot open '{name}'"), &e);
                out.unopened = true;
            }
        }
    }
    let mut keyed: Vec<(Vec<Key>, Dataset)> =
        out.found.drain(..).map(|d| (g.sort.iter().map(|k| key(k, &d)).collect(), d)).collect();
    keyed.sort_by(|a, b| order(&g.sort, a, b));
    keyed.dedup_by(|a, b| a.1.name == b.1.name);
    out.found.extend(keyed.into_iter().map(|k| k.1));
    Ok(out)
}

/// The dataset that an argument names, if it exists and has a kind that the command accepts
/// (`zfs_open`).
fn open(cx: &mut Cx, arg: &str, g: &Gather) -> Result<Option<String>, Stop> {
    let service = cx.service()?;
    if g.paths && (arg.starts_with('/') || arg.starts_with("./")) {
        return of_path(cx, arg);
    }
    let mut kinds = g.kinds.clone();
    if g.recurse {
        kinds.push(K::Filesystem);
        if g.kinds.iter().any(|k| matches!(k, K::Snapshot | K::Bookmark)) {
            kinds.push(K::Volume);
        }
    }
    let fault = names::dataset_name_fault(arg, kinds.contains(&K::Snapshot), kinds.contains(&K::Bookmark));
    if let Some(fault) = fault {
        writeln!(cx.err, "cannot open '{arg}': {fault}");
        return Ok(None);
    }
    let all = vec![K::Filesystem, K::Volume, K::Snapshot, K::Bookmark];
    let query =
        DatasetQuery { root: Some(arg.to_owned()), depth: Some(0), kinds: all, ..DatasetQuery::default() };
    match service.datasets(&query) {
        Ok(list) if list.datasets.iter().any(|d| kinds.contains(&d.kind)) => Ok(Some(arg.to_owned())),
        Ok(list) if list.datasets.is_empty() => {
            writeln!(cx.err, "cannot open '{arg}': dataset does not exist");
            Ok(None)
        }
        Ok(_) => {
            writeln!(cx.err, "cannot open '{arg}': operation not applicable to datasets of this type");
            Ok(None)
        }
        Err(e) => {
            let what = format!("cannot open '{arg}'");
            match e.reason {
                Reason::NoSuchPool => writeln!(cx.err, "{what}: dataset does not exist"),
                _ => cx.complain(&what, &e),
            }
            Ok(None)
        }
    }
}

/// The file system that contains a path, if a pool's file system does (`zfs_path_to_zhandle`).
///
/// `None` is reported.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached or can't list mounts. That is reported.
pub fn of_path(cx: &mut Cx, path: &str) -> Result<Option<String>, Stop> {
    let service = cx.service()?;
    let Ok(real) = std::fs::canonicalize(path) else {
        writeln!(cx.err, "cannot open '{path}': No such file or directory");
        return Ok(None);
    };
    let mounts = service.mounts().map_err(|e| cx.fail("cannot list mounts", &e))?;
    let best = mounts
        .iter()
        .filter(|m| real.starts_with(&m.mountpoint))
        .max_by_key(|m| m.mountpoint.len())
        .map(|m| m.dataset.clone());
    if best.is_none() {
        writeln!(cx.err, "'{path}': not a ZFS filesystem");
    }
    Ok(best)
}

/// The sort key of a dataset in one column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Text(String),
    Number(u64),
    /// The property doesn't apply. Such datasets come last in either direction.
    Without,
}

fn key(sort: &SortKey, d: &Dataset) -> Key {
    let prop = d.prop(sort.name());
    match (&sort.what, sort.name()) {
        (_, "name") => Key::Text(d.name.clone()),
        (_, "type") => Key::Text(kind_name(d.kind).into()),
        // Properties with words sort as text, not by their numbers (`zfs_prop_is_string`).
        (Ok(desc), _) if matches!(desc.kind, props::Kind::Number) => {
            if desc.applies(d.kind) {
                Key::Number(prop.and_then(|p| p.number).unwrap_or(0))
            } else {
                Key::Without
            }
        }
        (Ok(desc), _) if !desc.applies(d.kind) => Key::Without,
        _ => prop.map_or(Key::Without, |p| Key::Text(p.value(true).to_owned())),
    }
}

fn order(sort: &[SortKey], a: &(Vec<Key>, Dataset), b: &(Vec<Key>, Dataset)) -> Ordering {
    for (i, s) in sort.iter().enumerate() {
        let o = match (&a.0[i], &b.0[i]) {
            (Key::Without, Key::Without) => Ordering::Equal,
            (Key::Without, _) => Ordering::Greater,
            (_, Key::Without) => Ordering::Less,
            (x, y) if s.reverse => y.cmp(x),
            (x, y) => x.cmp(y),
        };
        if o != Ordering::Equal {
            return o;
        }
    }
    by_name(&a.1, &b.1)
}

/// Compares by name (`zfs_compare`). A dataset comes before its snapshots, which are in the order
/// of their creation.
fn by_name(a: &Dataset, b: &Dataset) -> Ordering {
    let (a_head, a_snap) = split(&a.name);
    let (b_head, b_snap) = split(&b.name);
    a_head.cmp(b_head).then_with(|| match (a_snap, b_snap) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(x), Some(y)) => a.createtxg.cmp(&b.createtxg).then_with(|| x.cmp(y)),
    })
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((head, snap)) => (head, Some(snap)),
        None => (name, None),
    }
}

/// A kind of dataset, as the property `type` names it (`zfs_type_to_name`).
pub fn kind_name(kind: K) -> &'static str {
    match kind {
        K::Filesystem => "filesystem",
        K::Volume => "volume",
        K::Snapshot => "snapshot",
        K::Bookmark => "bookmark",
    }
}

/// A property of a dataset as text, with its source.
///
/// Name and type are always available. Others are if they were read and apply to the dataset.
pub fn value(cx: &Cx, d: &Dataset, name: &str, exact: bool) -> Option<(String, Source)> {
    match name {
        "name" => return Some((d.name.clone(), Source::None)),
        "type" => return Some((kind_name(d.kind).into(), Source::None)),
        _ => {}
    }
    let p = d.prop(name)?;
    let text = match (name, p.number, exact) {
        ("creation", Some(t), false) => cx.clock.creation(t),
        ("snapshots_changed", Some(t), false) => cx.clock.changed(t),
        _ => cut(p.value(exact)).to_owned(),
    };
    Some((text, p.source.clone()))
}

/// Cuts a value at OpenZFS's limit, which includes a final NUL. The list of a snapshot's clones may
/// exceed it.
fn cut(value: &str) -> &str {
    &value[..value.floor_char_boundary(ZFS_MAXPROPLEN - 1)]
}

/// Adds the first pairs of a dataset's JSON object (`fill_dataset_info`).
pub fn info(o: &mut Object, d: &Dataset, as_int: bool) {
    o.text("name", &d.name);
    o.text("type", kind_name(d.kind).to_ascii_uppercase());
    o.text("pool", d.pool());
    o.int("createtxg", d.createtxg, as_int);
    if let (K::Snapshot, Some((head, snap))) = (d.kind, d.name.split_once('@')) {
        o.text("dataset", head);
        o.text("snapshot_name", snap);
    }
}
