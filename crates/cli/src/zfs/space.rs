//! `zfs userspace`, `groupspace` and `projectspace`.

use std::cmp::Ordering;

use api::{DatasetKind as K, DatasetQuery, SpaceClass, SpaceEntry};

use super::datasets::{SortKey, of_path};
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use api::accounts;
use console::getopt::{Found, Getopt, Opt};
use console::numbers;

/// A column (`us_field_types`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjUsed,
    ObjQuota,
}

const FIELDS: [(&str, &str, Field); 6] = [
    ("type", "TYPE", Field::Type),
    ("name", "NAME", Field::Name),
    ("used", "USED", Field::Used),
    ("quota", "QUOTA", Field::Quota),
    ("objused", "OBJUSED", Field::ObjUsed),
    ("objquota", "OBJQUOTA", Field::ObjQuota),
];

/// The type of an entry: the bit by which types are sorted, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    PosixGroup,
    PosixUser,
    SmbGroup,
    SmbUser,
    Project,
}

impl Type {
    fn text(self) -> &'static str {
        match self {
            Self::PosixGroup => "POSIX Group",
            Self::PosixUser => "POSIX User",
            Self::SmbGroup => "SMB Group",
            Self::SmbUser => "SMB User",
            Self::Project => "Project",
        }
    }
}

/// A line of the table (`us_node_t`).
struct Row {
    kind: Type,
    id: u32,
    name: Option<String>,
    entry: SpaceEntry,
}

#[derive(Default)]
struct Space {
    scripted: bool,
    exact: bool,
    numeric: bool,
    types: Vec<Type>,
    fields: Vec<Field>,
    sort: Vec<SortKey>,
}

/// Runs `zfs userspace`, `groupspace` or `projectspace` (`zfs_do_userspace`).
///
/// ```text
/// zfs userspace [-Hinp] [-o field[,...]] [-s field] ... [-S field] ... [-t type[,...]]
///     <filesystem|snapshot|path>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, verb: &str, args: &[String]) -> Outcome {
    if args.is_empty() {
        return Err(Stop::usage("missing dataset name\n"));
    }
    let project = verb == "projectspace";
    let mut s = Space { numeric: project, ..Space::default() };
    s.types = match verb {
        "groupspace" => vec![Type::PosixGroup, Type::SmbGroup],
        "projectspace" => vec![Type::Project],
        _ => vec![Type::PosixUser, Type::SmbUser],
    };
    let (mut fields, mut types) = (None, None);
    let mut g = Getopt::new(args, "nHpo:s:S:t:i", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short(c @ ('n' | 't' | 'i')), _) if project => return Err(Stop::invalid(c)),
            Found::Is(Opt::Short('n'), _) => s.numeric = true,
            Found::Is(Opt::Short('H'), _) => s.scripted = true,
            Found::Is(Opt::Short('p'), _) => s.exact = true,
            Found::Is(Opt::Short('o'), arg) => fields = Some(arg),
            Found::Is(Opt::Short('t'), arg) => types = Some(arg),
            Found::Is(Opt::Short(c @ ('s' | 'S')), arg) => match SortKey::parse(&arg, c == 'S') {
                Some(key) => s.sort.push(key),
                None => return Err(Stop::usage(format!("invalid field '{arg}'\n"))),
            },
            // `-i` translates SIDs. There is no translation here, so SIDs are listed unchanged.
            Found::Is(..) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset name\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if let Err(message) = s.choose(fields.as_deref(), types.as_deref()) {
        cx.err.put(&message);
        return Ok(255);
    }
    let Some(dataset) = open(cx, name)? else { return Ok(1) };
    let mut classes = Vec::new();
    for (class, kinds) in [
        (SpaceClass::User, [Type::PosixUser, Type::SmbUser]),
        (SpaceClass::Group, [Type::PosixGroup, Type::SmbGroup]),
        (SpaceClass::Project, [Type::Project, Type::Project]),
    ] {
        if s.types.iter().any(|t| kinds.contains(t)) && (class != SpaceClass::Project || project) {
            classes.push(class);
        }
    }
    match cx.service()?.space(&dataset, &classes) {
        Ok(entries) => {
            let mut rows: Vec<Row> = entries.into_iter().map(|e| s.row(e)).collect();
            rows.sort_by(|a, b| s.order(a, b));
            s.print(cx, &rows);
            Ok(0)
        }
        Err(e) => Err(cx.fail(&format!("cannot get used/quota for {dataset}"), &e)),
    }
}

/// The file system or snapshot that is named, by name or by path.
fn open(cx: &mut Cx, name: &str) -> Result<Option<String>, Stop> {
    if name.starts_with('/') || name.starts_with("./") {
        return of_path(cx, name);
    }
    if let Some(fault) = names::dataset_name_fault(name, true, false) {
        writeln!(cx.err, "cannot open '{name}': {fault}");
        return Ok(None);
    }
    let kinds = vec![K::Filesystem, K::Volume, K::Snapshot];
    let query =
        DatasetQuery { root: Some(name.to_owned()), depth: Some(0), kinds, ..DatasetQuery::default() };
    match cx.service()?.datasets(&query).map(|list| list.datasets.into_iter().next()) {
        Ok(Some(d)) if d.kind == K::Volume => {
            writeln!(cx.err, "cannot open '{name}': operation not applicable to datasets of this type");
            Ok(None)
        }
        Ok(Some(d)) if d.head == K::Volume => {
            cx.err.put("operation is only applicable to filesystems and their snapshots\n");
            Ok(None)
        }
        Ok(Some(_)) => Ok(Some(name.to_owned())),
        Ok(None) => {
            writeln!(cx.err, "cannot open '{name}': dataset does not exist");
            Ok(None)
        }
        Err(e) => {
            cx.complain(&format!("cannot open '{name}'"), &e);
            Ok(None)
        }
    }
}

impl Space {
    /// Parses the arguments of `-o` and `-t`.
    fn choose(&mut self, fields: Option<&str>, types: Option<&str>) -> Result<(), String> {
        for word in fields.unwrap_or("type,name,used,quota,objused,objquota").split(',') {
            match FIELDS.iter().find(|f| f.0 == word) {
                Some(f) => self.fields.push(f.2),
                None => return Err(format!("invalid type '{word}' for -o option\n")),
            }
        }
        let Some(types) = types else { return Ok(()) };
        self.types.clear();
        for word in types.split(',') {
            self.types.extend(match word {
                "posixgroup" => vec![Type::PosixGroup],
                "posixuser" => vec![Type::PosixUser],
                "smbgroup" => vec![Type::SmbGroup],
                "smbuser" => vec![Type::SmbUser],
                "all" => {
                    vec![Type::PosixGroup, Type::PosixUser, Type::SmbGroup, Type::SmbUser, Type::Project]
                }
                _ => return Err(format!("invalid type '{word}' for -t option\n")),
            });
        }
        Ok(())
    }

    fn row(&self, entry: SpaceEntry) -> Row {
        let posix = entry.domain.is_empty();
        let (kind, name) = match (entry.class, posix) {
            (SpaceClass::User, true) if !self.numeric => (Type::PosixUser, accounts::user(entry.id)),
            (SpaceClass::Group, true) if !self.numeric => (Type::PosixGroup, accounts::group(entry.id)),
            (SpaceClass::User, true) => (Type::PosixUser, None),
            (SpaceClass::Group, true) => (Type::PosixGroup, None),
            (SpaceClass::User, false) => (Type::SmbUser, Some(format!("{}-{}", entry.domain, entry.id))),
            (SpaceClass::Group, false) => (Type::SmbGroup, Some(format!("{}-{}", entry.domain, entry.id))),
            (SpaceClass::Project, _) => (Type::Project, None),
        };
        Row { kind, id: entry.id, name, entry }
    }

    /// Compares by the requested columns, then by type and name. Names that are numbers compare as
    /// numbers.
    fn order(&self, a: &Row, b: &Row) -> Ordering {
        let number = |r: &Row, f: &str| match f {
            "used" => r.entry.used.unwrap_or(0),
            _ => r.entry.quota.unwrap_or(0),
        };
        let by_name = |a: &Row, b: &Row| match (&a.name, &b.name) {
            (Some(x), Some(y)) if !self.numeric => x.cmp(y),
            // To compare a name with a number, OpenZFS takes the name as 0.
            _ => {
                let n = |r: &Row| if r.name.is_some() { 0 } else { r.id };
                n(a).cmp(&n(b))
            }
        };
        for key in &self.sort {
            let o = match key.name() {
                "type" => a.kind.cmp(&b.kind),
                "name" => by_name(a, b),
                f @ ("used" | "quota") => number(a, f).cmp(&number(b, f)),
                _ => Ordering::Equal,
            };
            let o = if key.reverse { o.reverse() } else { o };
            if o != Ordering::Equal {
                return o;
            }
        }
        a.kind
            .cmp(&b.kind)
            .then_with(|| by_name(a, b))
            .then_with(|| a.name.cmp(&b.name))
            .then_with(|| a.id.cmp(&b.id))
    }

    fn text(&self, r: &Row, field: Field) -> String {
        let e = &r.entry;
        let size = |n: Option<u64>, other: Option<u64>, quota: bool, bytes: bool| match n.or(other.map(|_| 0))
        {
            None => "-".to_owned(),
            Some(n) if self.exact => n.to_string(),
            Some(0) if quota => "none".into(),
            Some(n) if bytes => numbers::bytes(n),
            Some(n) => numbers::num(n),
        };
        match field {
            Field::Type => r.kind.text().into(),
            Field::Name => r.name.clone().unwrap_or_else(|| r.id.to_string()),
            Field::Used => size(e.used, e.quota, false, true),
            Field::Quota => size(e.quota, e.used, true, true),
            Field::ObjUsed => size(e.objused, e.objquota, false, false),
            Field::ObjQuota => size(e.objquota, e.objused, true, false),
        }
    }

    /// The width of a value. As in OpenZFS, a quota of `none` counts with the width of its number.
    fn wants(&self, r: &Row, field: Field) -> usize {
        let e = &r.entry;
        let number = |n: Option<u64>, bytes: bool| {
            n.map_or(0, |n| {
                if self.exact {
                    n.to_string()
                } else if bytes {
                    numbers::bytes(n)
                } else {
                    numbers::num(n)
                }
                .len()
            })
        };
        match field {
            Field::Type | Field::Name => self.text(r, field).len(),
            Field::Used => number(e.used, true),
            Field::Quota => number(e.quota, true),
            Field::ObjUsed => number(e.objused, false),
            Field::ObjQuota => number(e.objquota, false),
        }
    }

    fn print(&self, cx: &mut Cx, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        let heads: Vec<&str> =
            self.fields.iter().map(|f| FIELDS.iter().find(|x| x.2 == *f).map_or("", |x| x.1)).collect();
        let widths: Vec<usize> = self
            .fields
            .iter()
            .zip(&heads)
            .map(|(f, h)| rows.iter().map(|r| self.wants(r, *f)).max().unwrap_or(0).max(h.len()))
            .collect();
        if !self.scripted {
            self.line(cx, &widths, |i| heads[i].to_owned());
        }
        for r in rows.iter().filter(|r| self.types.contains(&r.kind)) {
            self.line(cx, &widths, |i| self.text(r, self.fields[i]));
        }
    }

    fn line(&self, cx: &mut Cx, widths: &[usize], text: impl Fn(usize) -> String) {
        for (i, (field, &width)) in self.fields.iter().zip(widths).enumerate() {
            let text = text(i);
            let gap = if self.scripted { "\t" } else { "  " };
            cx.out.put(if i > 0 { gap } else { "" });
            match field {
                _ if self.scripted => cx.out.put(&text),
                Field::Type | Field::Name => write!(cx.out, "{text:<width$}"),
                _ => write!(cx.out, "{text:>width$}"),
            }
        }
        cx.out.put("\n");
    }
}
