//! One dataset by name, and what depends on it.

use std::collections::HashSet;

use api::{Changed, Dataset, DatasetChange, DatasetKind as K, DatasetQuery, Error, PropSelect, Reason};

use super::mount::failures;
use crate::cx::{Cx, Stop};
use crate::names;
use console::words;

/// File systems and volumes.
pub const HEADS: [K; 2] = [K::Filesystem, K::Volume];

fn query(name: &str, depth: Option<u32>, kinds: &[K], props: &[&str]) -> DatasetQuery {
    let names: Vec<String> = props.iter().map(|p| (*p).to_owned()).collect();
    let props = if names.is_empty() { PropSelect::None } else { PropSelect::Named(names) };
    DatasetQuery {
        root: Some(name.to_owned()),
        depth,
        kinds: kinds.to_vec(),
        props,
        ..DatasetQuery::default()
    }
}

/// The dataset with this name, if it has one of these kinds (`zfs_open`).
///
/// # Errors
/// * [`Stop::Fail`]: the name is invalid, there is no such dataset, or the service can't read it.
///   That is reported.
pub fn open(cx: &mut Cx, name: &str, kinds: &[K], props: &[&str]) -> Result<Dataset, Stop> {
    let what = format!("cannot open '{name}'");
    let fault = names::dataset_name_fault(name, kinds.contains(&K::Snapshot), kinds.contains(&K::Bookmark));
    if let Some(fault) = fault {
        writeln!(cx.err, "{what}: {fault}");
        return Err(Stop::Fail(1));
    }
    let all = [K::Filesystem, K::Volume, K::Snapshot, K::Bookmark];
    let found = cx.service()?.datasets(&query(name, Some(0), &all, props));
    match found {
        Ok(list) => match list.datasets.into_iter().next() {
            Some(d) if kinds.contains(&d.kind) => return Ok(d),
            Some(_) => writeln!(cx.err, "{what}: operation not applicable to datasets of this type"),
            None => writeln!(cx.err, "{what}: dataset does not exist"),
        },
        Err(e) if matches!(e.reason, Reason::NoSuchPool) => {
            writeln!(cx.err, "{what}: dataset does not exist")
        }
        Err(e) => cx.complain(&what, &e),
    }
    Err(Stop::Fail(1))
}

/// Whether a dataset with this name and one of these kinds exists (`zfs_dataset_exists`).
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached or can't read the dataset. That is reported.
pub fn exists(cx: &mut Cx, name: &str, kinds: &[K]) -> Result<bool, Stop> {
    match cx.service()?.datasets(&query(name, Some(0), kinds, &[])) {
        Ok(list) => Ok(!list.datasets.is_empty()),
        Err(e) if matches!(e.reason, Reason::NoSuchDataset | Reason::NoSuchPool | Reason::InvalidName) => {
            Ok(false)
        }
        Err(e) => Err(cx.fail(&format!("cannot open '{name}'"), &e)),
    }
}

/// A dataset and those below it of these kinds, in no particular order.
///
/// A command that changes datasets must know all of them, so one that can't be read is an error.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached, or a dataset can't be read. That is reported.
pub fn below(
    cx: &mut Cx,
    name: &str,
    depth: Option<u32>,
    kinds: &[K],
    props: &[&str],
) -> Result<Vec<Dataset>, Stop> {
    match cx.service()?.datasets(&query(name, depth, kinds, props)) {
        Ok(list) => match list.failures.first() {
            None => Ok(list.datasets),
            Some(e) => Err(cx.fail(&format!("cannot open '{}'", e.about), e)),
        },
        Err(e) => Err(cx.fail(&format!("cannot open '{name}'"), &e)),
    }
}

/// A dataset's name without its snapshot or bookmark.
pub fn head_of(name: &str) -> &str {
    &name[..name.find(['@', '#']).unwrap_or(name.len())]
}

/// The dependents of a dataset; see [`dependents`].
pub struct Dependents {
    /// The dependents. Each comes after everything that depends on it.
    pub list: Vec<Dataset>,
    /// A file system or volume that depends on itself. No order can destroy all of them.
    pub cycle: Option<String>,
}

impl Dependents {
    /// The dependents in the order in which they can be destroyed.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: something depends on itself. That is reported.
    pub fn in_order(self, cx: &mut Cx) -> Result<Vec<Dataset>, Stop> {
        let Some(name) = self.cycle else { return Ok(self.list) };
        writeln!(cx.err, "cannot determine dependent datasets: recursive dependency at '{name}'");
        Err(Stop::Fail(1))
    }
}

/// The dependents of a dataset (`zfs_iter_dependents`).
///
/// They are its children with theirs, its snapshots, and the clones of these wherever they are.
/// Each comes after everything that depends on it, so that they can be destroyed in this order. The
/// dataset itself is not among them.
///
/// # Errors
/// * [`Stop::Fail`]: a dataset or snapshot can't be read. That is reported.
pub fn dependents(cx: &mut Cx, name: &str) -> Result<Dependents, Stop> {
    let mut order = Order { seen: HashSet::new(), open: HashSet::new(), list: Vec::new(), cycle: None };
    if name.contains('@') {
        let snapshot = open(cx, name, &[K::Snapshot], &["clones"])?;
        order.clones(cx, &snapshot)?;
    } else {
        order.tree(cx, name)?;
        order.list.retain(|d| d.name != name);
    }
    Ok(Dependents { list: order.list, cycle: order.cycle })
}

struct Order {
    seen: HashSet<String>,
    /// Heads whose dependents are being gathered.
    ///
    /// After a promotion, a head may be a clone of something below it, and so depend on itself.
    open: HashSet<String>,
    list: Vec<Dataset>,
    cycle: Option<String>,
}

impl Order {
    /// Adds everything at and below a head.
    fn tree(&mut self, cx: &mut Cx, root: &str) -> Result<(), Stop> {
        let kinds = [K::Filesystem, K::Volume, K::Snapshot];
        let mut all = below(cx, root, None, &kinds, &["clones", "encryptionroot"])?;
        // Heads by path, each followed by its snapshots in the order of their creation.
        all.sort_by(|a, b| {
            let key = |d: &Dataset| (head_of(&d.name).replace('/', "\0"), d.kind == K::Snapshot, d.createtxg);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        let mut open: Vec<(Dataset, Vec<Dataset>)> = Vec::new();
        for d in all {
            if d.kind == K::Snapshot {
                if let Some((_, snapshots)) = open.last_mut() {
                    snapshots.push(d);
                }
                continue;
            }
            // A head's children come before its own snapshots.
            while open.last().is_some_and(|(head, _)| !d.name.starts_with(&format!("{}/", head.name))) {
                let (head, snapshots) = open.pop().expect("just seen");
                self.close(cx, head, snapshots)?;
            }
            if !self.open.insert(d.name.clone()) {
                self.cycle.get_or_insert(d.name.clone());
            }
            open.push((d, Vec::new()));
        }
        while let Some((head, snapshots)) = open.pop() {
            self.close(cx, head, snapshots)?;
        }
        Ok(())
    }

    fn close(&mut self, cx: &mut Cx, head: Dataset, snapshots: Vec<Dataset>) -> Result<(), Stop> {
        for snapshot in snapshots {
            self.clones(cx, &snapshot)?;
            self.push(snapshot);
        }
        self.open.remove(&head.name);
        self.push(head);
        Ok(())
    }

    fn clones(&mut self, cx: &mut Cx, snapshot: &Dataset) -> Result<(), Stop> {
        let clones = snapshot.prop("clones").map_or("", |p| p.value(true)).to_owned();
        for clone in clones.split(',').filter(|c| !c.is_empty() && *c != "-") {
            if self.open.contains(clone) {
                self.cycle.get_or_insert(clone.to_owned());
            } else if !self.seen.contains(clone) {
                self.tree(cx, clone)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, d: Dataset) {
        if self.seen.insert(d.name.clone()) {
            self.list.push(d);
        }
    }
}

/// Requests a change.
///
/// If it fails, the message begins with `what`. `why` may replace the words for a reason.
///
/// # Errors
/// * [`Stop::Fail`]: the service can't be reached or refuses the change. That is reported.
pub fn ask(
    cx: &mut Cx,
    change: &DatasetChange,
    what: &str,
    why: &dyn Fn(&Error) -> Option<String>,
) -> Result<Changed, Stop> {
    match cx.service()?.change(change) {
        Ok(changed) => {
            cx.made(change.subject());
            Ok(changed)
        }
        Err(e) => {
            let text = why(&e).unwrap_or_else(|| words::reason(&e.reason, &cx.clock));
            writeln!(cx.err, "{what}: {text}");
            Err(Stop::Fail(1))
        }
    }
}

/// Reports what is not mounted although it should be. Returns the exit code.
pub fn report(cx: &mut Cx, changed: Changed, done: &str) -> i32 {
    if changed.unmounted.is_empty() {
        return 0;
    }
    // The user may create file systems, but not mount them.
    if changed.unmounted.iter().all(|f| f.error.reason == Reason::Permission) {
        writeln!(cx.err, "filesystem successfully {done}, but it may only be mounted by root");
        return 1;
    }
    let report = api::MountReport { failures: changed.unmounted, ..Default::default() };
    failures(cx, "mount", &report);
    writeln!(cx.err, "filesystem successfully {done}, but not mounted");
    1
}

/// Reads `name=value` into a list, where a name may occur once (`parseprop`).
///
/// # Errors
/// * [`Stop::Fail`]: there is no `=`, or the name is in the list already. That is reported.
pub fn parse_prop(cx: &mut Cx, list: &mut api::Settings, arg: &str) -> Result<(), Stop> {
    let Some((name, value)) = arg.split_once('=') else {
        cx.err.put("missing '=' for property=value argument\n");
        return Err(Stop::Fail(1));
    };
    if list.iter().any(|(n, _)| n == name) {
        writeln!(cx.err, "property '{name}' specified multiple times");
        return Err(Stop::Fail(1));
    }
    list.push((name.to_owned(), value.to_owned()));
    Ok(())
}
