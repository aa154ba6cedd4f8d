//! `zfs destroy`.

use std::collections::HashSet;

use api::{Changed, Dataset, DatasetChange, DatasetKind as K, Error, Reason, Refusal};

use super::open::{HEADS, below, dependents, exists, head_of, open};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};
use console::numbers;
use console::words;

/// The options.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    verbose: bool,
    parseable: bool,
    dry_run: bool,
    defer: bool,
    force: bool,
    recursive: bool,
    clones: bool,
}

/// Runs `zfs destroy` (`zfs_do_destroy`).
///
/// ```text
/// zfs destroy [-Rfnprv] <filesystem|volume>
/// zfs destroy [-Rdnprv] <filesystem|volume>@<snap>[%<snap>][,...]
/// zfs destroy <filesystem|volume>#<bookmark>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut f = Flags::default();
    let mut g = Getopt::new(args, "vpndfrR", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('v'), _) => f.verbose = true,
            Found::Is(Opt::Short('p'), _) => (f.verbose, f.parseable) = (true, true),
            Found::Is(Opt::Short('n'), _) => f.dry_run = true,
            Found::Is(Opt::Short('d'), _) => f.defer = true,
            Found::Is(Opt::Short('f'), _) => f.force = true,
            Found::Is(Opt::Short('r'), _) => f.recursive = true,
            Found::Is(..) => (f.recursive, f.clones) = (true, true),
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if let Some((head, spec)) = name.split_once('@') {
        snapshots(cx, f, head, spec)
    } else if name.contains('#') {
        bookmark(cx, f, name)
    } else {
        tree(cx, f, name)
    }
}

fn announce(cx: &mut Cx, f: Flags, name: &str) {
    if f.verbose {
        match (f.parseable, f.dry_run) {
            (true, _) => writeln!(cx.out, "destroy\t{name}"),
            (false, true) => writeln!(cx.out, "would destroy {name}"),
            (false, false) => writeln!(cx.out, "will destroy {name}"),
        }
    }
}

/// The snapshots of one dataset that a specification names (`zfs_iter_snapspec`).
///
/// A specification is `a`, `a%b`, `%b`, `a%`, `%`, or a list of these. Names that do not exist are
/// skipped.
fn chosen(spec: &str, snapshots: &[Dataset]) -> Vec<Dataset> {
    let short = |d: &Dataset| d.name.split_once('@').map_or_else(String::new, |(_, s)| s.to_owned());
    let mut all = Vec::new();
    for part in spec.split(',') {
        match part.split_once('%') {
            None => all.extend(snapshots.iter().find(|d| short(d) == part).cloned()),
            Some((first, last)) => {
                let at = |name: &str| snapshots.iter().position(|d| short(d) == name);
                let ends = (
                    if first.is_empty() { Some(0) } else { at(first) },
                    if last.is_empty() { Some(snapshots.len()) } else { at(last).map(|i| i + 1) },
                );
                match ends {
                    (Some(from), Some(to)) if from < to => all.extend(snapshots[from..to].iter().cloned()),
                    _ => {}
                }
            }
        }
    }
    all
}

fn snapshots(cx: &mut Cx, f: Flags, head: &str, spec: &str) -> Outcome {
    open(cx, head, &HEADS, &[])?;
    let heads = if f.recursive { None } else { Some(0) };
    let mut datasets = below(cx, head, heads, &HEADS, &[])?;
    datasets.sort_by(|a, b| a.name.cmp(&b.name));
    let mut found: Vec<Dataset> = Vec::new();
    let mut refused = false;
    let mut reclaimed = 0;
    for dataset in &datasets {
        let mut own = below(cx, &dataset.name, Some(1), &[K::Snapshot], &["clones"])?;
        own.retain(|d| head_of(&d.name) == dataset.name);
        own.sort_by_key(|d| d.createtxg);
        let chosen = chosen(spec, &own);
        if !f.clones && !f.defer {
            for snapshot in &chosen {
                refused |= has_clones(cx, snapshot)?;
            }
        }
        if f.verbose && !refused {
            let listed: Vec<&Dataset> =
                own.iter().filter(|d| chosen.iter().any(|c| c.name == d.name)).collect();
            for d in &listed {
                announce(cx, f, &d.name);
            }
            reclaimed += reclaim(cx, &own, &chosen)?;
        }
        found.extend(chosen);
    }
    if refused {
        return Ok(1);
    }
    if found.is_empty() {
        cx.err.put("could not find any snapshots to destroy; check snapshot names.\n");
        return Ok(1);
    }
    if f.verbose {
        let size = numbers::bytes(reclaimed);
        match (f.parseable, f.dry_run) {
            (true, _) => writeln!(cx.out, "reclaim\t{reclaimed}"),
            (false, true) => writeln!(cx.out, "would reclaim {size}"),
            (false, false) => writeln!(cx.out, "will reclaim {size}"),
        }
    }
    let mut names: Vec<String> = Vec::new();
    if f.clones {
        for snapshot in &found {
            for d in dependents(cx, &snapshot.name)?.in_order(cx)? {
                announce(cx, f, &d.name);
                if !names.contains(&d.name) {
                    names.push(d.name);
                }
            }
        }
    }
    if f.dry_run {
        return Ok(0);
    }
    names.extend(found.into_iter().map(|d| d.name));
    destroy(cx, f, names)
}

/// The bytes that destroying these snapshots frees. Each run of neighbours frees what only its
/// members reference.
fn reclaim(cx: &mut Cx, own: &[Dataset], chosen: &[Dataset]) -> Result<u64, Stop> {
    let mut total = 0;
    let mut run: Option<(String, String)> = None;
    let service = cx.service()?;
    let mut close = |cx: &mut Cx, run: &mut Option<(String, String)>| -> Result<(), Stop> {
        if let Some((first, last)) = run.take() {
            match service.reclaimed(&first, &last) {
                Ok(bytes) => total += bytes,
                Err(e) => return Err(cx.fail(&format!("cannot destroy '{first}'"), &e)),
            }
        }
        Ok(())
    };
    for d in own {
        if chosen.iter().any(|c| c.name == d.name) {
            let first = run.take().map_or_else(|| d.name.clone(), |(first, _)| first);
            run = Some((first, d.name.clone()));
        } else {
            close(cx, &mut run)?;
        }
    }
    close(cx, &mut run)?;
    Ok(total)
}

/// Whether clones prevent destroying a snapshot. That is reported.
fn has_clones(cx: &mut Cx, snapshot: &Dataset) -> Result<bool, Stop> {
    if snapshot.prop("clones").is_none_or(|p| matches!(p.value(true), "" | "-")) {
        return Ok(false);
    }
    let name = &snapshot.name;
    let clones = dependents(cx, name)?.list;
    writeln!(
        cx.err,
        "cannot destroy '{name}': snapshot has dependent clones\nuse '-R' to destroy the following datasets:"
    );
    for d in clones {
        writeln!(cx.err, "{}", d.name);
    }
    Ok(true)
}

fn bookmark(cx: &mut Cx, f: Flags, name: &str) -> Outcome {
    for (set, what) in [(f.dry_run, "dryrun"), (f.defer, "defer destroy"), (f.recursive, "recursive")] {
        if set {
            writeln!(cx.err, "{what} is not supported with bookmark");
            return Ok(255);
        }
    }
    if !exists(cx, name, &[K::Bookmark])? {
        writeln!(cx.err, "bookmark '{name}' does not exist.");
        return Ok(1);
    }
    let change = DatasetChange::DestroyBookmarks { names: vec![name.to_owned()] };
    super::open::ask(cx, &change, "cannot destroy bookmark", &|_| None)?;
    Ok(0)
}

fn tree(cx: &mut Cx, f: Flags, name: &str) -> Outcome {
    let kinds: &[K] = if f.defer { &[K::Snapshot] } else { &HEADS };
    let target = open(cx, name, kinds, &["encryptionroot"])?;
    let kind = super::datasets::kind_name(target.kind);
    if !f.recursive && !name.contains('/') {
        writeln!(
            cx.err,
            "cannot destroy '{name}': operation does not apply to pools\nuse 'zfs destroy -r {name}' to destroy all datasets in the \
             pool\nuse 'zpool destroy {name}' to destroy the pool itself"
        );
        return Ok(1);
    }
    let dependents = dependents(cx, name)?;
    if !f.clones {
        let inside = |d: &&Dataset| {
            d.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/') || rest.starts_with('@'))
        };
        let (what, flag, list): (_, _, Vec<&Dataset>) = if f.recursive {
            ("dependent clones", 'R', dependents.list.iter().filter(|d| !inside(d)).collect())
        } else {
            ("children", 'r', dependents.list.iter().filter(inside).collect())
        };
        if !list.is_empty() {
            writeln!(
                cx.err,
                "cannot destroy '{name}': {kind} has {what}\nuse '-{flag}' to destroy the following datasets:"
            );
            for d in list {
                writeln!(cx.err, "{}", d.name);
            }
            return Ok(1);
        }
    }
    let mut all = dependents.in_order(cx)?;
    // The pool's root dataset stays. Its contents are destroyed.
    all.push(target);
    if keeps_a_key(cx, &all)? {
        return Ok(1);
    }
    let mut names: Vec<String> = all.into_iter().map(|d| d.name).collect();
    for name in &names {
        announce(cx, f, name);
    }
    names.retain(|name| name.contains(['/', '@']));
    if f.dry_run || names.is_empty() {
        return Ok(0);
    }
    destroy(cx, f, names)
}

/// Whether a dataset to be destroyed is the encryption root of a dataset that stays.
///
/// Such a dataset can't be destroyed. This reports it before any other dataset is destroyed.
fn keeps_a_key(cx: &mut Cx, all: &[Dataset]) -> Result<bool, Stop> {
    let root_of = |d: &Dataset| d.prop("encryptionroot").map_or("", |p| p.value(true)).to_owned();
    let roots: HashSet<&str> =
        all.iter().map(|d| d.name.as_str()).filter(|name| name.contains('/')).collect();
    if !all.iter().any(|d| !d.name.contains('@') && root_of(d) == d.name) {
        return Ok(false);
    }
    let pool = head_of(&all[0].name).split('/').next().unwrap_or_default().to_owned();
    let others = below(cx, &pool, None, &HEADS, &["encryptionroot"])?;
    let mut kept = others.iter().filter(|d| !roots.contains(d.name.as_str()));
    let Some(user) = kept.find(|d| roots.contains(root_of(d).as_str())) else { return Ok(false) };
    let root = root_of(user);
    writeln!(
        cx.err,
        "cannot destroy '{root}': it is the encryption root of '{}', which has to be destroyed\nor get a key of its own first",
        user.name
    );
    Ok(true)
}

fn destroy(cx: &mut Cx, f: Flags, names: Vec<String>) -> Outcome {
    let change = DatasetChange::Destroy { names, force: f.force, defer: f.defer };
    let service = cx.service()?;
    match service.change(&change) {
        Ok(Changed { failures, .. }) => {
            cx.changed(change.subject());
            for failure in &failures {
                complain(cx, &failure.error);
            }
            Ok(i32::from(!failures.is_empty()))
        }
        Err(e) => {
            match &e.reason {
                Reason::Several { errors } => errors.iter().for_each(|e| complain(cx, e)),
                _ => complain(cx, &e),
            }
            Ok(1)
        }
    }
}

fn complain(cx: &mut Cx, e: &Error) {
    let name = &e.about;
    let why = match &e.reason {
        Reason::Refused { why: Refusal::HasClones } if name.contains('@') => "snapshot is cloned".to_owned(),
        reason => words::reason(reason, &cx.clock),
    };
    if name.contains('@') {
        writeln!(cx.err, "cannot destroy snapshot {name}: {why}");
    } else if name.starts_with('/') {
        writeln!(cx.err, "cannot unmount '{name}': {why}");
    } else {
        writeln!(cx.err, "cannot destroy '{name}': {why}");
    }
}
