//! `zfs diff`.

use api::{DatasetKind as K, DiffRequest, FileAt, FileChange, Reason, Refusal};

use super::open::open;
use crate::cx::{Color, Cx, Outcome, Stop};
use crate::names;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// How to print changes.
#[derive(Default)]
struct Look {
    classify: bool,
    scripted: bool,
    timed: bool,
    raw: bool,
    /// The mountpoint. Empty for `/`.
    mountpoint: Vec<u8>,
}

/// `zfs diff [-FHth] <snapshot> [snapshot|filesystem]` (`zfs_do_diff`).
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut look = Look::default();
    let mut g = Getopt::new(args, "FHth", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('F'), _) => look.classify = true,
            Found::Is(Opt::Short('H'), _) => look.scripted = true,
            Found::Is(Opt::Short('t'), _) => look.timed = true,
            Found::Is(..) => look.raw = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let (from, to) = match &operands[..] {
        [] => return Err(Stop::usage("must provide at least one snapshot name\n")),
        [from] => (from.as_str(), None),
        [from, to] => (from.as_str(), Some(to.as_str())),
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let first = if from.starts_with('@') { to } else { Some(from) };
    let Some(first) = first else {
        return Err(Stop::usage("a snapshot without a dataset needs another name after it\n"));
    };
    open(cx, head_of(first), &[K::Filesystem], &[])?;
    let (from, to) = states(cx, from, to)?;
    look.mountpoint = mountpoint(cx, head_of(&to))?;
    show(cx, &look, DiffRequest { from, to, first: 0 })
}

fn head_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The full names of the two states to compare (`get_snapshot_names`).
fn states(cx: &mut Cx, from: &str, to: Option<&str>) -> Result<(String, String), Stop> {
    let bad = |cx: &mut Cx, what: &str| {
        writeln!(cx.err, "{what}");
        Err(Stop::Fail(1))
    };
    let Some(to) = to else {
        let missing = (!from.contains('@')).then(|| "missing '@' delimiter in snapshot name".to_owned());
        let fault = missing.or_else(|| names::new_name_fault(from, true));
        return match fault {
            None => Ok((from.to_owned(), head_of(from).to_owned())),
            Some(fault) => bad(cx, &format!("Badly formed snapshot name {from}: {fault}")),
        };
    };
    let (from_fs, to_fs) = (head_of(from), head_of(to));
    let (from_snap, to_snap) = (&from[from_fs.len()..], &to[to_fs.len()..]);
    if from_snap.len() <= 1 || to_snap.len() == 1 || (from_fs.is_empty() && to_fs.is_empty()) {
        return bad(cx, "Unable to determine which snapshots to compare: invalid name");
    }
    if !from_fs.is_empty() && !to_fs.is_empty() && from_fs != to_fs && !descends(cx, to_fs, from_fs)? {
        return bad(cx, "Not an earlier snapshot from the same fs: invalid name");
    }
    let fs = if from_fs.is_empty() { to_fs } else { from_fs };
    let to_fs = if to_fs.is_empty() { fs } else { to_fs };
    Ok((format!("{fs}{from_snap}"), format!("{to_fs}{to_snap}")))
}

/// Whether a file system is a clone of another one's snapshot, directly or through further clones.
fn descends(cx: &mut Cx, fs: &str, of: &str) -> Result<bool, Stop> {
    let mut at = fs.to_owned();
    let mut seen = std::collections::BTreeSet::new();
    while seen.insert(at.clone()) {
        let dataset = open(cx, &at, &[K::Filesystem], &["origin"])?;
        let origin = dataset.prop("origin").map_or("", |p| p.value(true));
        let Some((head, _)) = origin.split_once('@') else { return Ok(false) };
        if head == of {
            return Ok(true);
        }
        head.clone_into(&mut at);
    }
    Ok(false)
}

/// The mountpoint of a file system.
fn mountpoint(cx: &mut Cx, fs: &str) -> Result<Vec<u8>, Stop> {
    let mounts = cx.service()?.mounts().map_err(|e| cx.fail("cannot list mounts", &e))?;
    match mounts.iter().find(|m| m.dataset == fs) {
        Some(m) if m.mountpoint == "/" => Ok(Vec::new()),
        Some(m) => Ok(m.mountpoint.clone().into_bytes()),
        None => {
            cx.err.put(
                "Cannot diff an unmounted snapshot: operation not applicable to datasets of this type\n",
            );
            Err(Stop::Fail(1))
        }
    }
}

fn show(cx: &mut Cx, look: &Look, mut request: DiffRequest) -> Outcome {
    let service = cx.service()?;
    let mut failed = false;
    loop {
        let part = service.diff(&request).map_err(|e| {
            let why = match e.reason {
                Reason::Refused { why: Refusal::NotBefore } => {
                    "\n   Not an earlier snapshot from the same fs".to_owned()
                }
                Reason::NoSuchDataset => words::errno(rustix::io::Errno::NOENT.raw_os_error()),
                Reason::Permission => "\n   The sys_mount privilege or diff delegated permission is needed\n   to execute the diff ioctl".into(),
                reason => words::reason(&reason, &cx.clock),
            };
            writeln!(cx.err, "Unable to obtain diffs: {why}");
            Stop::Fail(1)
        })?;
        for change in &part.changes {
            line(cx, look, change);
        }
        for (object, e) in &part.failures {
            let what = format!("Unable to determine path or stats for object {object} in {}", e.about);
            cx.complain(&what, e);
            failed = true;
        }
        let Some(next) = part.next else { return Ok(i32::from(failed)) };
        if !cx.out.flush() {
            return Ok(1);
        }
        request = next;
    }
}

fn line(cx: &mut Cx, look: &Look, change: &FileChange) {
    let (letter, color, file) = match change {
        FileChange::Added(file) => ('+', Color::Green, file),
        FileChange::Removed(file) => ('-', Color::Red, file),
        FileChange::Modified(file) | FileChange::Linked { file, .. } => ('M', Color::Yellow, file),
        FileChange::Renamed { to, .. } => ('R', Color::BoldBlue, to),
    };
    let mut text = Vec::new();
    if look.timed {
        text.extend(format!("{:>10}.{:09}\t", file.ctime.0, file.ctime.1).bytes());
    }
    text.extend(format!("{letter}\t").bytes());
    if look.classify {
        text.extend(format!("{}\t", class(file)).bytes());
    }
    if let FileChange::Renamed { from, .. } = change {
        path(look, from.bytes(), &mut text);
        text.extend(if look.scripted { &b"\t"[..] } else { &b" -> "[..] });
    }
    path(look, file.path.bytes(), &mut text);
    if let FileChange::Linked { by, .. } = change {
        text.extend(format!("\t({by:+})").bytes());
    }
    text.push(b'\n');
    cx.colored_bytes(color, &text);
}

/// The letter for a file's type (`get_what`).
fn class(file: &FileAt) -> char {
    match file.mode & 0o170_000 {
        0o060_000 => 'B',
        0o020_000 => 'C',
        0o040_000 => '/',
        0o010_000 => '|',
        0o120_000 => '@',
        0o140_000 => '=',
        0o100_000 => 'F',
        _ => '?',
    }
}

/// Adds a path as seen from outside the mount, with octal for what is not plain ASCII
/// (`stream_bytes`).
fn path(look: &Look, path: &[u8], into: &mut Vec<u8>) {
    for &b in look.mountpoint.iter().chain(path) {
        if look.raw || (b.is_ascii_graphic() && b != b'\\') {
            into.push(b);
        } else {
            into.extend(format!("\\{b:04o}").bytes());
        }
    }
}
