//! `zfs snapshot`, `rollback`, `bookmark`, `hold` and `release`.

use api::{Dataset, DatasetChange, DatasetKind as K, Error, Reason, Refusal, Settings};

use super::open::{HEADS, ask, below, dependents, head_of, open, parse_prop};
use crate::cx::{Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// How many newer snapshots and bookmarks a refused rollback lists.
const YOUNGER_MAX: usize = 32;

/// `zfs snapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...` (`zfs_do_snapshot`).
///
/// # Errors
/// See [`Outcome`].
pub fn snapshot(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut recursive, mut props) = (false, Settings::new());
    let mut g = Getopt::new(args, "ro:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('o'), arg) => parse_prop(cx, &mut props, &arg)?,
            Found::Is(..) => recursive = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    if operands.is_empty() {
        return Err(Stop::usage("missing snapshot argument\n"));
    }
    let several = recursive || operands.len() > 1;
    let mut all: Vec<String> = Vec::new();
    for word in &operands {
        let Some((head, snap)) = word.split_once('@') else {
            return Err(Stop::usage(format!("'{word}' is not the name of a snapshot: it has no '@'\n")));
        };
        open(cx, head, &HEADS, &[]).map_err(|_| Stop::usage(""))?;
        if recursive {
            let heads = below(cx, head, None, &HEADS, &["inconsistent"])?;
            let whole = heads.into_iter().filter(|d| d.number("inconsistent").unwrap_or(0) == 0);
            all.extend(whole.map(|d| format!("{}@{snap}", d.name)));
        } else {
            all.push(word.clone());
        }
    }
    all.sort();
    all.dedup();
    for name in &all {
        if let Some(fault) = names::new_name_fault(name, true) {
            writeln!(cx.err, "cannot create snapshot '{name}': {fault}");
            return none_made(cx, several);
        }
    }
    let heads: std::collections::HashSet<&str> = all.iter().map(|name| head_of(name)).collect();
    if heads.len() != all.len() {
        cx.err.put("cannot create snapshots : multiple snapshots of same fs not allowed\n");
        return none_made(cx, several);
    }
    let change = DatasetChange::Snapshot { names: all, props };
    let service = cx.service()?;
    match service.change(&change) {
        Ok(_) => {
            cx.changed(change.subject());
            Ok(0)
        }
        Err(e) => {
            let one = |cx: &mut Cx, e: &Error| {
                let why = words::reason(&e.reason, &cx.clock);
                if e.about.contains('@') {
                    writeln!(cx.err, "cannot create snapshot '{}': {why}", e.about);
                } else {
                    writeln!(cx.err, "cannot create snapshots : {why}");
                }
            };
            match &e.reason {
                Reason::Several { errors } => errors.iter().for_each(|e| one(cx, e)),
                _ => one(cx, &e),
            }
            none_made(cx, several)
        }
    }
}

fn none_made(cx: &mut Cx, several: bool) -> Outcome {
    if several {
        cx.err.put("no snapshots were created\n");
    }
    Ok(1)
}

/// Snapshots and bookmarks of `head` that are younger than `target`: snapshots, then bookmarks,
/// each from the oldest.
fn younger_than(cx: &mut Cx, target: &Dataset, head: &str) -> Result<Vec<Dataset>, Stop> {
    let mut younger = below(cx, head, Some(1), &[K::Snapshot, K::Bookmark], &["clones"])?;
    younger.retain(|d| head_of(&d.name) == head && d.createtxg > target.createtxg);
    younger.sort_by_key(|d| (d.kind == K::Bookmark, d.createtxg));
    Ok(younger)
}

/// Says that a rollback needs `-r`, because it would destroy these.
fn refuse_younger(cx: &mut Cx, name: &str, younger: &[Dataset]) {
    writeln!(
        cx.err,
        "cannot rollback to '{name}': more recent snapshots or bookmarks exist\nuse '-r' to force deletion of the following \
         snapshots and bookmarks:"
    );
    for d in younger.iter().take(YOUNGER_MAX) {
        writeln!(cx.err, "{}", d.name);
    }
    if younger.len() >= YOUNGER_MAX {
        writeln!(cx.err, "Output limited to {YOUNGER_MAX} snapshots/bookmarks");
    }
}

/// `zfs rollback [-rRf] <snapshot>` (`zfs_do_rollback`).
///
/// # Errors
/// See [`Outcome`].
pub fn rollback(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut recursive, mut clones, mut force) = (false, false, false);
    let mut g = Getopt::new(args, "rRf", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('r'), _) => recursive = true,
            Found::Is(Opt::Short('R'), _) => (recursive, clones) = (true, true),
            Found::Is(..) => force = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing dataset argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let target = open(cx, name, &[K::Snapshot], &[])?;
    let head = head_of(name);
    let younger = younger_than(cx, &target, head)?;
    if !younger.is_empty() && !recursive {
        refuse_younger(cx, name, &younger);
        return Ok(1);
    }
    let mut destroy: Vec<String> = Vec::new();
    for snapshot in younger.iter().filter(|d| d.kind == K::Snapshot) {
        let more = dependents(cx, &snapshot.name)?;
        let more = if clones { more.in_order(cx)? } else { more.list };
        destroy.extend(more.into_iter().map(|d| d.name).filter(|n| !destroy.contains(n)).collect::<Vec<_>>());
    }
    if !clones && !destroy.is_empty() {
        writeln!(
            cx.err,
            "cannot rollback to '{name}': clones of previous snapshots exist\nuse '-R' to force deletion of the following clones and \
             dependents:"
        );
        for name in &destroy {
            writeln!(cx.err, "{name}");
        }
        return Ok(1);
    }
    destroy.extend(younger.into_iter().map(|d| d.name));
    let change = DatasetChange::Rollback { snapshot: name.clone(), destroy, force };
    let changed = ask(cx, &change, &format!("cannot rollback '{head}'"), &|e| match &e.reason {
        Reason::Refused { why: Refusal::NotLatest } => {
            Some(format!("there is a snapshot or bookmark more recent than '{name}'"))
        }
        Reason::Refused { why: Refusal::NoSnapshot } => {
            Some(format!("'{name}' is not found among snapshots of '{head}'"))
        }
        _ => None,
    })?;
    // The rollback is done. Mounts within the file system may have lost their mountpoints.
    for lost in &changed.unmounted {
        let (name, why) = (&lost.name, words::reason(&lost.error.reason, &cx.clock));
        writeln!(
            cx.err,
            "warning: '{name}' is no longer mounted: {why}. Make room for its mountpoint, then run 'zfs mount {name}'"
        );
    }
    Ok(0)
}

/// `zfs bookmark <snapshot|bookmark> <newbookmark>` (`zfs_do_bookmark`).
///
/// # Errors
/// See [`Outcome`].
pub fn bookmark(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut g = Getopt::new(args, "", &[]);
    if let Some(Found::Is(Opt::Short(c), _) | Found::Invalid(c) | Found::Missing(c)) = g.next() {
        return Err(Stop::invalid(c));
    }
    let operands = g.operands();
    let (source, name) = match &operands[..] {
        [] => return Err(Stop::usage("missing source argument\n")),
        [_] => return Err(Stop::usage("missing bookmark argument\n")),
        [source, name, ..] => (source, name),
    };
    if !source.contains(['@', '#']) {
        return Err(Stop::usage(format!("invalid source name '{source}': must contain a '@' or '#'\n")));
    }
    if !name.contains('#') {
        return Err(Stop::usage(format!("invalid bookmark name '{name}': must contain a '#'\n")));
    }
    // One of the two may lack its dataset. Then the other one's dataset applies.
    let (source, name) = match (head_of(source), head_of(name)) {
        ("", "") => {
            return Err(Stop::usage("either source or bookmark must be specified as full dataset paths"));
        }
        ("", head) => (format!("{head}{source}"), name.clone()),
        (head, "") => (source.clone(), format!("{head}{name}")),
        _ => (source.clone(), name.clone()),
    };
    let kind = if source.contains('@') { K::Snapshot } else { K::Bookmark };
    open(cx, &source, &[kind], &[]).map_err(|_| Stop::usage(""))?;
    let change = DatasetChange::Bookmark { source, name: name.clone() };
    ask(cx, &change, &format!("cannot create bookmark '{name}'"), &|e| {
        let why = match &e.reason {
            Reason::Refused { why } => match why {
                Refusal::Exists => "bookmark exists",
                Refusal::NotBefore => "source is not an ancestor of the new bookmark's dataset",
                Refusal::CrossDevice => "bookmark is in a different pool",
                Refusal::Feature => "bookmark feature not enabled",
                _ => return None,
            },
            Reason::InvalidName => "invalid argument",
            _ => return None,
        };
        Some(why.to_owned())
    })?;
    Ok(0)
}

/// `zfs hold [-r] <tag> <snapshot> ...` and `zfs release [-r] <tag> <snapshot> ...` (`zfs_do_hold`,
/// `zfs_do_release`).
///
/// # Errors
/// See [`Outcome`].
pub fn hold(cx: &mut Cx, args: &[String], holding: bool) -> Outcome {
    let mut recursive = false;
    // OpenZFS also accepts `-t` for holds, which once made them temporary, and ignores it.
    let mut g = Getopt::new(args, "r", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => recursive = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let [tag, words @ ..] = &operands[..] else { return Err(Stop::usage("missing tag argument\n")) };
    if words.is_empty() {
        return Err(Stop::usage("missing snapshot argument\n"));
    }
    if holding && tag.starts_with('.') {
        return Err(Stop::usage("tag may not start with '.'\n"));
    }
    let mut failed = false;
    for word in words {
        failed |= match hold_one(cx, word, tag, recursive, holding) {
            Ok(failed) => failed,
            Err(Stop::Fail(_)) => true,
            Err(stop) => return Err(stop),
        };
    }
    Ok(i32::from(failed))
}

/// Holds or releases one snapshot, or with `recursive` also those of the same name below. Returns
/// whether that failed.
fn hold_one(cx: &mut Cx, word: &str, tag: &str, recursive: bool, holding: bool) -> Result<bool, Stop> {
    let Some((head, snap)) = word.split_once('@') else {
        writeln!(cx.err, "'{word}' is not a snapshot");
        return Ok(true);
    };
    open(cx, head, &HEADS, &[])?;
    let verb = if holding { "hold snapshot" } else { "release hold from snapshot" };
    let named = |d: &Dataset| d.name.split_once('@').is_some_and(|(_, s)| s == snap);
    let depth = if recursive { None } else { Some(1) };
    let mut found = below(cx, head, depth, &[K::Snapshot], &[])?;
    found.retain(|d| named(d) && (recursive || head_of(&d.name) == head));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mut snapshots: Vec<String> = found.into_iter().map(|d| d.name).collect();
    if snapshots.is_empty() {
        writeln!(cx.err, "cannot {verb} '{head}@{snap}': dataset does not exist");
        return Ok(true);
    }
    if !holding && recursive {
        // Snapshots without the tag are skipped, as long as one has it.
        let service = cx.service()?;
        snapshots.retain(|s| service.holds(s).is_ok_and(|holds| holds.iter().any(|h| h.tag == tag)));
        if snapshots.is_empty() {
            writeln!(cx.err, "cannot {verb} '{head}@{snap}': no such tag on this dataset");
            return Ok(true);
        }
    }
    let change = if holding {
        DatasetChange::Hold { snapshots, tag: tag.to_owned() }
    } else {
        DatasetChange::Release { snapshots, tag: tag.to_owned() }
    };
    let service = cx.service()?;
    let errors = match service.change(&change) {
        Ok(_) => {
            cx.changed(change.subject());
            return Ok(false);
        }
        Err(Error { reason: Reason::Several { errors }, .. }) => errors,
        // A failure that concerns none of the snapshots.
        Err(e) if !e.about.contains('@') => {
            cx.complain(if holding { "cannot hold" } else { "cannot release" }, &e);
            return Ok(true);
        }
        Err(e) => vec![e],
    };
    for e in errors {
        cx.complain(&format!("cannot {verb} '{}'", e.about), &e);
    }
    Ok(true)
}
