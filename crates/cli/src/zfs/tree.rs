//! `zfs clone`, `promote` and `rename`.

use api::{DatasetChange, DatasetKind as K, Error, Reason, Refusal, Settings};

use super::create::{above, check_name, parent};
use super::open::{HEADS, ask, exists, head_of, open, parse_prop, report};
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};

/// The two operands of a command.
fn two(operands: &[String]) -> Result<(&String, &String), Stop> {
    match operands {
        [] => Err(Stop::usage("missing source dataset argument\n")),
        [_] => Err(Stop::usage("missing target dataset argument\n")),
        [from, to] => Ok((from, to)),
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// `zfs clone [-p] [-o property=value] ... <snapshot> <filesystem|volume>` (`zfs_do_clone`).
///
/// # Errors
/// See [`Outcome`].
pub fn clone(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut parents, mut props) = (false, Settings::new());
    let mut g = Getopt::new(args, "o:pu", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('o'), arg) => parse_prop(cx, &mut props, &arg)?,
            Found::Is(Opt::Short('p'), _) => parents = true,
            Found::Is(Opt::Short(c), _) => return Err(Stop::invalid(c)),
            Found::Is(Opt::Named(_), _) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let (origin, name) = two(&operands)?;
    open(cx, origin, &[K::Snapshot], &[])?;
    if parents && names::dataset_name_fault(name, false, false).is_none() && exists(cx, name, &HEADS)? {
        return Ok(0);
    }
    let what = format!("cannot create '{name}'");
    check_name(cx, &what, name)?;
    parent(cx, &what, name, parents)?;
    let change = DatasetChange::Clone { origin: origin.clone(), name: name.clone(), props, parents };
    let changed = ask(cx, &change, &what, &|e| match &e.reason {
        Reason::Refused { why: Refusal::CrossDevice } => Some("source and target pools differ".into()),
        reason => above(name, reason),
    })?;
    Ok(report(cx, changed, "created"))
}

/// `zfs promote <clone-filesystem>` (`zfs_do_promote`).
///
/// # Errors
/// See [`Outcome`].
pub fn promote(cx: &mut Cx, args: &[String]) -> Outcome {
    if let Some(option) = args.first().and_then(|a| a.strip_prefix('-')) {
        return Err(Stop::invalid(option.chars().next().unwrap_or('\0')));
    }
    let name = match args {
        [] => return Err(Stop::usage("missing clone filesystem argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let clone = open(cx, name, &HEADS, &["origin"])?;
    let what = format!("cannot promote '{name}'");
    let origin = clone.prop("origin").map_or("", |p| p.value(true)).to_owned();
    if matches!(origin.as_str(), "" | "-") {
        writeln!(cx.err, "{what}: not a cloned filesystem");
        return Ok(1);
    }
    ask(cx, &DatasetChange::Promote { name: name.clone() }, &what, &|e| match &e.reason {
        Reason::Refused { why: Refusal::SnapshotConflict } => {
            Some(format!("conflicting snapshot '{}' from parent '{origin}'", e.about))
        }
        Reason::Refused { why: Refusal::Key } => {
            Some("cannot promote dataset outside its encryption root".into())
        }
        _ => None,
    })?;
    Ok(0)
}

/// Why a head can't move from this name to that one.
fn place_fault(from: &str, to: &str) -> Option<&'static str> {
    if from.split('/').next() != to.split('/').next() {
        return Some("datasets must be within same pool");
    }
    to.strip_prefix(from)
        .is_some_and(|rest| rest.starts_with('/'))
        .then_some("New dataset name cannot be a descendant of current dataset name")
}

fn complain_of_rename(cx: &mut Cx, from: &str, to: &str, e: &Error) {
    if let Some(why) = above(to, &e.reason) {
        writeln!(cx.err, "cannot create '{to}': {why}");
    } else if e.about.starts_with('/') {
        cx.complain(&format!("cannot unmount '{}'", e.about), e);
    } else if e.reason == (Reason::Refused { why: Refusal::Key }) {
        writeln!(
            cx.err,
            "cannot rename '{from}': cannot move encrypted child outside of its encryption root"
        );
    } else {
        cx.complain(&format!("cannot rename '{from}'"), e);
    }
}

/// `zfs rename [-f] [-p | -u | -r] <filesystem|volume|snapshot> <filesystem|volume|snapshot>`
/// (`zfs_do_rename`).
///
/// # Errors
/// See [`Outcome`].
pub fn rename(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut parents, mut recursive, mut keep_mounted, mut force) = (false, false, false, false);
    let mut g = Getopt::new(args, "pruf", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('p'), _) => parents = true,
            Found::Is(Opt::Short('r'), _) => recursive = true,
            Found::Is(Opt::Short('u'), _) => keep_mounted = true,
            Found::Is(..) => force = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let (from, to) = two(&operands)?;
    if recursive && parents {
        return Err(Stop::usage("-p and -r options are mutually exclusive\n"));
    }
    if keep_mounted && parents {
        return Err(Stop::usage("-u and -p options are mutually exclusive\n"));
    }
    if recursive && !from.contains('@') {
        return Err(Stop::usage("source dataset for recursive rename must be a snapshot\n"));
    }
    let kinds: &[K] = if keep_mounted {
        &[K::Filesystem]
    } else if parents {
        &HEADS
    } else {
        &[K::Filesystem, K::Volume, K::Snapshot]
    };
    open(cx, from, kinds, &[])?;
    if from == to {
        return Ok(0);
    }
    if from.contains('@') {
        return rename_snapshot(cx, from, to, recursive);
    }
    let what = format!("cannot rename to '{to}'");
    // Messages about the new name and its parents have the words of `zfs create`.
    if let Some(fault) = names::new_name_fault(to, false) {
        writeln!(cx.err, "{what}: {fault}");
        return Ok(1);
    }
    check_name(cx, &format!("cannot create '{to}'"), to)?;
    if let Some(fault) = place_fault(from, to) {
        writeln!(cx.err, "{what}: {fault}");
        return Ok(1);
    }
    let change = DatasetChange::Rename { from: from.clone(), to: to.clone(), parents, keep_mounted, force };
    let service = cx.service()?;
    match service.change(&change) {
        Ok(changed) => {
            cx.made(from);
            Ok(report(cx, changed, "renamed"))
        }
        Err(e) => {
            complain_of_rename(cx, from, to, &e);
            Ok(1)
        }
    }
}

/// Renames a snapshot. The new name may be short: `b`, `@b`, or the whole name.
fn rename_snapshot(cx: &mut Cx, from: &str, to: &str, recursive: bool) -> Outcome {
    let (head, old) = from.split_once('@').unwrap_or((from, ""));
    let full = match to.split_once('@') {
        None => format!("{head}@{to}"),
        Some(("", new)) => format!("{head}@{new}"),
        Some(_) => to.to_owned(),
    };
    let what = format!("cannot rename to '{to}'");
    if head_of(&full) != head {
        writeln!(cx.err, "{what}: snapshots must be part of same dataset");
        return Ok(1);
    }
    if let Some(fault) = names::new_name_fault(&full, true) {
        writeln!(cx.err, "{what}: {fault}");
        return Ok(1);
    }
    let new = full.split_once('@').map_or("", |(_, s)| s);
    let change = DatasetChange::RenameSnapshot {
        dataset: head.to_owned(),
        from: old.to_owned(),
        to: new.to_owned(),
        recursive,
    };
    let service = cx.service()?;
    match service.change(&change) {
        Ok(_) => {
            cx.changed(head);
            Ok(0)
        }
        Err(e) => {
            let about = if e.about.contains('@') && recursive { e.about.clone() } else { from.to_owned() };
            let what = format!("cannot rename '{about}'");
            match &e.reason {
                Reason::Refused { why: Refusal::Exists } if recursive => {
                    writeln!(cx.err, "{what}: a child dataset already has a snapshot with the new name");
                }
                _ => cx.complain(&what, &e),
            }
            Ok(1)
        }
    }
}
