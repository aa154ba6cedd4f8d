//! Datasets with their properties.

use dsl::prop::is_user_property;
use dsl::{Bookmark, Dir, Dsl, Kind, ListOptions, Listed, Prop as Native, Property, Value};
use observe::lock::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::view::dataset as trouble;
use api::{
    Budget, Dataset, DatasetKind, DatasetList, DatasetQuery, Error, Granted, Hold, Prop, PropSelect, Reason,
    Source,
};

/// The properties that a file system's mount overrides, if it is mounted.
pub type Mounted<'a> = &'a (dyn Fn(&dsl::Dataset) -> Option<MountedAs> + Sync);

/// The properties that a mount's options decide, with their values.
pub type MountedAs = Vec<(Native, bool)>;

/// The properties that are mount options.
const MOUNT_OPTIONS: [Native; 7] = [
    Native::Atime,
    Native::Relatime,
    Native::Devices,
    Native::Exec,
    Native::Readonly,
    Native::Setuid,
    Native::Xattr,
];

/// The number of threads that list a pool.
const THREADS: usize = 4;

/// The datasets of one pool that match a query. `listsnapshots` is the pool's property.
///
/// Each name is returned once. Failures below the root are in the list.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: the root does not exist.
/// * [`Reason::TooMuch`]: the list exceeds the budget.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the root can't be read.
pub fn datasets(
    dsl: &Dsl,
    query: &DatasetQuery,
    listsnapshots: bool,
    mounted: Mounted<'_>,
    budget: &Budget,
) -> Result<DatasetList, Error> {
    let root = query.root.as_deref().unwrap_or(dsl.pool_name());
    let asked = Asked::new(dsl, query, listsnapshots, mounted);
    if let Some((head, mark)) = root.split_once('#') {
        let owner = dsl.dataset(head).map_err(|e| trouble(root, &e))?;
        let mark = owner.bookmark(mark).map_err(|e| trouble(root, &e))?;
        let mark = mark.ok_or_else(|| Error::new(root, Reason::NoSuchDataset))?;
        let found = asked.bookmark(&owner, &mark).map_err(|e| trouble(root, &e))?;
        return Ok(DatasetList::whole(found.into_iter().collect()));
    }
    let start = dsl.dataset(root).map_err(|e| trouble(root, &e))?;
    if start.is_snapshot() || query.depth == Some(0) {
        let found = asked.dataset(&start).map_err(|e| trouble(root, &e))?;
        found.iter().try_for_each(|found| budget.take(root, memory_of(found)))?;
        return Ok(DatasetList::whole(found.into_iter().collect()));
    }
    asked.below(start.dir().clone(), root, budget)
}

/// A query, with what its answer needs.
struct Asked<'a> {
    dsl: &'a Dsl,
    query: &'a DatasetQuery,
    snapshots: bool,
    bookmarks: bool,
    mounted: Mounted<'a>,
}

impl<'a> Asked<'a> {
    fn new(dsl: &'a Dsl, query: &'a DatasetQuery, listsnapshots: bool, mounted: Mounted<'a>) -> Self {
        let snapshots =
            if query.listsnapshots { listsnapshots } else { query.kinds.contains(&DatasetKind::Snapshot) };
        let bookmarks = query.kinds.contains(&DatasetKind::Bookmark);
        Self { dsl, query, snapshots, bookmarks, mounted }
    }

    /// All datasets below a directory, in one pass with several threads.
    fn below(&self, start: Dir, root: &str, budget: &Budget) -> Result<DatasetList, Error> {
        let limit = self.query.depth.map(|d| d as usize);
        let base = root.matches('/').count();
        let out = Mutex::new(DatasetList::default());
        let stopped = Mutex::new(None);
        let stop = AtomicBool::new(false);
        let add = |found: Vec<Dataset>| match budget.take(root, found.iter().map(memory_of).sum()) {
            Ok(()) => out.lock().datasets.extend(found),
            Err(error) => {
                stop.store(true, Ordering::Relaxed);
                *stopped.lock() = Some(error);
            }
        };
        let fail = |name: &str, e: &dsl::Error| out.lock().failures.push(trouble(name, e));
        let options = ListOptions {
            snapshots: self.snapshots,
            depth: limit,
            threads: THREADS,
            stop: Some(&stop),
            ..ListOptions::default()
        };
        let each = |listed: Listed| match listed {
            Listed::Failed { name, error } => fail(&name, &error),
            Listed::Dataset(d) => {
                // A snapshot or bookmark is one level below its dataset.
                let level = d.dir().name().matches('/').count() - base;
                let fits = |level: usize| limit.is_none_or(|l| level <= l);
                if fits(level + usize::from(d.is_snapshot())) {
                    match self.dataset(&d) {
                        Ok(found) => add(found.into_iter().collect()),
                        Err(e) => fail(&d.name(), &e),
                    }
                }
                if self.bookmarks && !d.is_snapshot() && fits(level + 1) {
                    let marks = d.bookmarks().and_then(|marks| {
                        let found =
                            marks.iter().map(|m| self.bookmark(&d, m)).collect::<dsl::Result<Vec<_>>>()?;
                        Ok(found.into_iter().flatten().collect::<Vec<_>>())
                    });
                    match marks {
                        Ok(found) => add(found),
                        Err(e) => fail(&d.name(), &e),
                    }
                }
            }
        };
        self.dsl.list(Some(start), &options, &each).map_err(|e| trouble(root, &e))?;
        match stopped.into_inner() {
            Some(error) => Err(error),
            None => Ok(out.into_inner()),
        }
    }

    /// Whether the query wants datasets of this kind.
    fn wants(&self, kind: DatasetKind) -> bool {
        self.query.kinds.contains(&kind) || (kind == DatasetKind::Snapshot && self.snapshots)
    }

    fn dataset(&self, d: &dsl::Dataset) -> dsl::Result<Option<Dataset>> {
        let (Some(kind), Some(head)) = (d.kind()?, d.head_kind()?) else { return Ok(None) };
        let (kind, head) = (kind_of(kind), kind_of(head));
        if !self.wants(kind) {
            return Ok(None);
        }
        let name = d.name();
        let mut props = Vec::new();
        match &self.query.props {
            PropSelect::None => {}
            PropSelect::All => {
                for p in d.properties()? {
                    props.push(self.prop(d, &p)?);
                }
                if self.query.received && self.query.stored {
                    for name in d.received_names()?.iter().filter(|name| is_user_property(name)) {
                        if !props.iter().any(|prop| prop.name == *name) {
                            props.extend(self.hidden(d, name)?);
                        }
                    }
                }
            }
            PropSelect::Named(names) => {
                for wanted in names {
                    if let Some(p) = self.named(d, wanted)? {
                        props.push(p);
                    }
                }
            }
        }
        Ok(Some(Dataset { name, kind, head, createtxg: d.phys().creation_txg.0, props }))
    }

    /// A property of any family, by name.
    fn named(&self, d: &dsl::Dataset, wanted: &str) -> dsl::Result<Option<Prop>> {
        if let Some(native) = Native::by_name(wanted) {
            return match d.property(native)? {
                Some(p) => Ok(Some(self.prop(d, &p)?)),
                None => Ok(None),
            };
        }
        if let Some(since) = wanted.strip_prefix("written") {
            let written = match since.split_at_checked(1) {
                Some(("@", snap)) => match self.snapshot_of(d, snap)? {
                    Some(snapshot) => d.written_since_snapshot(&snapshot)?,
                    None => None,
                },
                Some(("#", mark)) => match self.bookmark_of(d, mark)? {
                    Some(mark) => d.written_since(&mark.phys)?.map(|s| s.used),
                    None => None,
                },
                _ => None,
            };
            return Ok(written.map(|n| Prop::number(wanted, dsl::prop::text::nicebytes(n), n, Source::Local)));
        }
        if let Some(p) = crate::view::space::userquota(d, wanted) {
            return Ok(Some(p));
        }
        match d.user_property(wanted)? {
            Some(p) => Ok(Some(self.prop(d, &p)?)),
            None if self.query.received => self.hidden(d, wanted),
            None => Ok(None),
        }
    }

    /// A user property whose received value is excluded (`zfs receive -x`).
    fn hidden(&self, d: &dsl::Dataset, name: &str) -> dsl::Result<Option<Prop>> {
        let Some(value) = d.received(name)? else { return Ok(None) };
        let none = Value::Text("-".to_owned());
        let hidden = Property { name: name.to_owned(), prop: None, value: none, source: dsl::Source::None };
        let shown = Property { value, ..hidden.clone() };
        let received = (shown.text(&dsl::prop::text::NICE), shown.text(&dsl::prop::text::LITERAL));
        Ok(Some(Prop { received: Some(received), ..convert(&hidden) }))
    }

    /// The snapshot of `written@`: of this dataset, or of the one in its full name.
    fn snapshot_of(&self, d: &dsl::Dataset, snap: &str) -> dsl::Result<Option<dsl::Dataset>> {
        match snap.split_once('@') {
            Some(_) => self.dsl.dataset(snap).map(Some),
            None => match d.dir().head()? {
                Some(head) => head.snapshot(snap),
                None => Ok(None),
            },
        }
    }

    fn bookmark_of(&self, d: &dsl::Dataset, mark: &str) -> dsl::Result<Option<Bookmark>> {
        match mark.split_once('#') {
            Some((owner, mark)) => self.dsl.dataset(owner)?.bookmark(mark),
            None => d.bookmark(mark),
        }
    }

    fn prop(&self, d: &dsl::Dataset, p: &Property) -> dsl::Result<Prop> {
        let mut out = match self.overruled(d, p) {
            Some(overruled) => convert(&overruled),
            None => convert(p),
        };
        if self.query.stored && p.prop == Some(Native::Mountpoint) {
            self.unplaced(&mut out);
        }
        if p.prop == Some(Native::Mounted) {
            let mounted = (self.mounted)(d).is_some();
            (out.text, out.number) = ((if mounted { "yes" } else { "no" }).into(), Some(u64::from(mounted)));
            out.exact = None;
        }
        if self.query.received
            && let Some(value) = d.received(&p.name)?
        {
            let shown = Property { value, ..p.clone() };
            out.received = Some((shown.text(&dsl::prop::text::NICE), shown.text(&dsl::prop::text::LITERAL)));
        }
        Ok(out)
    }

    /// A mountpoint without the alternate root.
    fn unplaced(&self, out: &mut Prop) {
        let Some(root) = self.dsl.altroot().filter(|root| *root != "/") else { return };
        if let Some(stored) = out.text.strip_prefix(root) {
            out.text = if stored.is_empty() { "/".to_owned() } else { stored.to_owned() };
        }
    }

    /// The value of a property that mount options override (`get_numeric_property`).
    fn overruled(&self, d: &dsl::Dataset, p: &Property) -> Option<Property> {
        if self.query.stored {
            return None;
        }
        let (prop, Value::Number(n)) = (p.prop.filter(|p| MOUNT_OPTIONS.contains(p))?, &p.value) else {
            return None;
        };
        let (_, given) = (self.mounted)(d)?.into_iter().find(|(given, _)| *given == prop)?;
        let value = Value::Number(u64::from(given));
        (given != (*n != 0)).then(|| Property { value, source: dsl::Source::Temporary, ..p.clone() })
    }

    fn bookmark(&self, owner: &dsl::Dataset, mark: &Bookmark) -> dsl::Result<Option<Dataset>> {
        let Some(head) = owner.head_kind()? else { return Ok(None) };
        if !self.wants(DatasetKind::Bookmark) {
            return Ok(None);
        }
        let name = owner.name();
        let all = match &self.query.props {
            PropSelect::None => Vec::new(),
            PropSelect::All => mark.properties(self.dsl, &name)?,
            PropSelect::Named(names) => {
                let mut found = Vec::new();
                for native in names.iter().filter_map(|n| Native::by_name(n)) {
                    found.extend(mark.property(self.dsl, &name, native)?);
                }
                found
            }
        };
        Ok(Some(Dataset {
            name: format!("{name}#{}", mark.name),
            kind: DatasetKind::Bookmark,
            head: kind_of(head),
            createtxg: mark.phys.creation_txg,
            props: all.iter().map(convert).collect(),
        }))
    }
}

/// About how many bytes of memory a dataset in a list takes.
fn memory_of(dataset: &Dataset) -> u64 {
    /// The allocator's overhead for each text.
    const TEXT: usize = 16;
    let text = |text: &str| text.len() + TEXT;
    let prop = |prop: &Prop| {
        let received = prop.received.as_ref().map_or(0, |(nice, exact)| text(nice) + text(exact));
        let from = if let Source::Inherited(from) = &prop.source { text(from) } else { 0 };
        size_of::<Prop>()
            + text(&prop.name)
            + text(&prop.text)
            + prop.exact.as_deref().map_or(0, text)
            + received
            + from
    };
    let props: usize = dataset.props.iter().map(prop).sum();
    (size_of::<Dataset>() + text(&dataset.name) + props) as u64
}

fn kind_of(kind: Kind) -> DatasetKind {
    match kind {
        Kind::Filesystem => DatasetKind::Filesystem,
        Kind::Volume => DatasetKind::Volume,
        Kind::Snapshot => DatasetKind::Snapshot,
        Kind::Bookmark => DatasetKind::Bookmark,
    }
}

/// A property with both of its texts. Dates stay numbers, since only the reader knows the time
/// zone.
fn convert(p: &Property) -> Prop {
    let number = match &p.value {
        Value::Number(n) => Some(*n),
        Value::Text(_) => None,
    };
    let exact = p.text(&dsl::prop::text::LITERAL);
    let date = matches!(p.prop, Some(Native::Creation | Native::SnapshotsChanged));
    let text = if date { exact.clone() } else { p.text(&dsl::prop::text::NICE) };
    let exact = (exact != text).then_some(exact);
    Prop { name: p.name.clone(), text, exact, number, source: source(&p.source), received: None }
}

fn source(s: &dsl::Source) -> Source {
    match s {
        dsl::Source::None => Source::None,
        dsl::Source::Default => Source::Default,
        dsl::Source::Local => Source::Local,
        dsl::Source::Inherited(from) => Source::Inherited(from.clone()),
        dsl::Source::Received => Source::Received,
        dsl::Source::Temporary => Source::Temporary,
    }
}

/// The holds of a snapshot, in OpenZFS's order (`dsl_dataset_get_holds`).
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: there is no such snapshot.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the holds can't be read.
pub fn holds(dsl: &Dsl, snapshot: &str) -> Result<Vec<Hold>, Error> {
    let read = || dsl.dataset(snapshot)?.holds();
    let holds = read().map_err(|e| trouble(snapshot, &e))?;
    Ok(holds.into_iter().map(|h| Hold { snapshot: snapshot.to_owned(), tag: h.tag, time: h.time }).collect())
}

/// The grants at a dataset and at its parents (`dsl_deleg_get`).
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: there is no such dataset.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the grants can't be read.
pub fn grants(dsl: &Dsl, dataset: &str) -> Result<Vec<Granted>, Error> {
    let read = || {
        let found = dsl.dataset(dataset)?;
        let each = |dir: &dsl::Dir| Ok(Granted { dataset: dir.name().to_owned(), grants: dir.grants()? });
        found.dir().chain().map(each).collect::<dsl::Result<Vec<_>>>()
    };
    let mut all = read().map_err(|e| trouble(dataset, &e))?;
    all.retain(|at| !at.grants.is_empty());
    Ok(all)
}

/// The error for a refused key.
pub fn key_error(dataset: &str, error: &dsl::keys::KeyError) -> Error {
    Error::new(dataset, crate::replies::of_key(error))
}
