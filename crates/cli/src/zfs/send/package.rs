//! Packages: `zfs send` with `-R`, `-I`, `-p`, `-h` and `-b`.
//!
//! # Theory
//! First the head of the package is written, then each stream, as the daemon makes it, and an END.
//! The streams follow from the tree alone ([`Plan::of`]): a dataset comes after its parent, and a
//! clone after its origin.
//!
//! The daemon keeps all of the snapshots until the last stream has been sent.
//!
//! # See
//! OpenZFS `zfs_send`, `send_prelim_records`, `dump_filesystems`.

use std::collections::{BTreeSet, HashSet};

use api::files::Denied;
use api::{DatasetKind as K, Error, SendRequest};
use ondisk::ByteOrder;
use ondisk::replay::{BACKUP_MAGIC, Begin, features};
use stream::Writer;

use super::{Options, broken};
use crate::cx::{Cx, Outcome, Stop};
use crate::zfs::open::{HEADS, head_of, open};
use crate::zfs::package::gather::{Tree, Wish, fits, gather};
use crate::zfs::package::{ByGuid, Member, Package};
use console::{numbers, words};

/// What libzfs says when the head of a package can't be made (`EZFS_BADBACKUP`).
const FAILED: &str = "backup failed";

/// The kind of a package's BEGIN (`DMU_COMPOUNDSTREAM`).
const COMPOUND: u64 = 2;

/// Sends several snapshots: `-R` or `-I` (`zfs_do_send`, `zfs_send`).
pub(super) fn run(cx: &mut Cx, mut options: Options, name: &str) -> Outcome {
    let from = options.from.take();
    if from.as_ref().is_some_and(|from| from.contains('#')) {
        cx.err.put("Error: multiple snapshots cannot be sent from a bookmark.\n");
        return Ok(1);
    }
    if options.redact.is_some() {
        cx.err.put("Error: multiple snapshots cannot be sent redacted.\n");
        return Ok(1);
    }
    let Some((top, to)) = name.split_once('@') else {
        cx.err.put("Error: Unsupported flag with filesystem or bookmark.\n");
        return Ok(1);
    };
    let head = open(cx, top, &HEADS, &["origin"])?;
    let origin = head.prop("origin").map(|p| p.value(true));
    let (mut from_origin, mut short) = (false, None);
    match from.as_deref() {
        Some(from) if from.contains('@') && origin == Some(from) => from_origin = true,
        Some(from) => short = Some(of_same(top, from)?.to_owned()),
        None => {}
    }
    options.all |= options.replicate && short.is_none();
    if let Some(from) = &short {
        if from.is_empty() {
            writeln!(cx.err, "cannot send '{top}': zero-length incremental source");
            return Ok(1);
        }
        open(cx, &format!("{top}@{from}"), &[K::Snapshot], &[])?;
    }
    open(cx, name, &[K::Snapshot], &[])?;
    let tree = Tree::read(cx, top, options.replicate)?;
    let members = write_head(cx, &options, &tree, name, short.as_deref())?;
    let plan = Plan::of(cx, &options, &tree, &members, Span { top, from: short.as_deref(), to, from_origin });
    let (verbose, mut total) = (options.is_verbose(), 0);
    if verbose {
        total = estimate(cx, &options, &plan);
    }
    if options.dry && (verbose || plan.seen_to) {
        return Ok(i32::from(!verbose && plan.failed));
    }
    if !plan.seen_to {
        return Ok(1);
    }
    let sent = streams(cx, &options, &plan, total);
    // Also after a failure: what was sent is whole.
    finish(cx, name)?;
    sent.map(|()| i32::from(plan.failed))
}

/// The short name of a snapshot that must be of the same dataset.
fn of_same<'f>(top: &str, from: &'f str) -> Result<&'f str, Stop> {
    let Some((head, short)) = from.split_once('@') else { return Ok(from) };
    if !head.is_empty() && head != top {
        return Err(Stop::usage("incremental source must be in same filesystem\n"));
    }
    if short.contains(['@', '/']) {
        return Err(Stop::usage("invalid incremental source\n"));
    }
    Ok(short)
}

/// Writes the head of a package of one snapshot (`zfs_send_one`).
pub(super) fn begin_one(cx: &mut Cx, options: &Options, name: &str) -> Result<(), Stop> {
    let tree = Tree::read(cx, head_of(name), false)?;
    write_head(cx, options, &tree, name, None).map(|_| ())
}

/// Writes the head of a package, unless this is a dry run (`send_prelim_records`). Returns what is
/// in the package.
fn write_head(
    cx: &mut Cx,
    options: &Options,
    tree: &Tree,
    name: &str,
    from: Option<&str>,
) -> Result<Vec<Member>, Stop> {
    let (top, to) = name.split_once('@').unwrap_or((name, ""));
    let several = options.replicate || options.all;
    let lists = options.replicate || options.props || options.holds || (options.backup && !several);
    let mut members = Vec::new();
    let mut list = Vec::new();
    if lists {
        let wish = Wish {
            top,
            from,
            to: Some(to),
            recursive: options.replicate,
            raw: options.forms.raw,
            all: options.all,
            skip_missing: options.skip_missing,
            verbose: options.is_verbose(),
            backup: options.backup,
            holds: options.holds,
            props: options.props,
        };
        let refused = |cx: &mut Cx, why: &str| {
            writeln!(cx.err, "warning: cannot send '{name}': {why}");
            Stop::Fail(1)
        };
        members = gather(cx, tree, &wish).map_err(|_| refused(cx, FAILED))?;
        let from = from.map(str::to_owned);
        let (recursive, raw) = (options.replicate, options.forms.raw);
        let package = Package { from, to: to.to_owned(), recursive, raw, members };
        list = package.encode();
        if !fits(&list) {
            let why = "the size of the list of snapshots and properties is too large to be received \
                       successfully.\nSelect a smaller number of snapshots to send.\n: out of space";
            return Err(refused(cx, why));
        }
        members = package.members;
    }
    if options.dry {
        return Ok(members);
    }
    let mut to_name = [0; 256];
    let Some(place) = to_name[..255].get_mut(..name.len()) else {
        writeln!(cx.err, "warning: cannot send '{name}': {FAILED}");
        return Err(Stop::Fail(1));
    };
    place.copy_from_slice(name.as_bytes());
    let features = if options.holds { features::HOLDS } else { 0 };
    let begin = Begin {
        magic: BACKUP_MAGIC,
        version_info: COMPOUND | features << Begin::FEATURES_SHIFT,
        creation_time: 0,
        objset_type: 0,
        flags: 0,
        to_guid: 0,
        from_guid: 0,
        to_name,
    };
    put(cx, name, |writer| {
        writer.begin(&begin, &list)?;
        writer.end_head()
    })?;
    Ok(members)
}

/// Writes the END of a package.
pub(super) fn finish(cx: &mut Cx, name: &str) -> Result<(), Stop> {
    put(cx, name, |writer| writer.end_package())
}

/// Writes records to standard output.
fn put(
    cx: &mut Cx,
    name: &str,
    write: impl FnOnce(&mut Writer<&mut Vec<u8>>) -> std::io::Result<()>,
) -> Result<(), Stop> {
    let mut bytes = Vec::new();
    let written = write(&mut Writer::new(&mut bytes, ByteOrder::Little));
    cx.out.put_raw(&bytes);
    if written.is_err() || !cx.out.flush() { Err(broken(cx, name)) } else { Ok(()) }
}

/// A stream of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// The snapshot.
    name: String,
    /// The snapshot of the same dataset on which it builds, without the dataset.
    from: Option<String>,
    /// The origin on which it builds.
    origin: Option<String>,
}

impl Step {
    /// The full name of the snapshot of the same dataset on which it builds.
    fn full_from(&self) -> Option<String> {
        self.from.as_ref().map(|from| format!("{}@{from}", head_of(&self.name)))
    }
}

/// The ends of a package.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    top: &'a str,
    from: Option<&'a str>,
    to: &'a str,
    /// It builds on the origin of the topmost dataset.
    from_origin: bool,
}

/// The streams of a package, in order.
#[derive(Debug, Default)]
struct Plan {
    steps: Vec<Step>,
    /// A dataset can't be sent, which was reported.
    failed: bool,
    /// The last dataset has the last snapshot.
    seen_to: bool,
}

impl Plan {
    /// Decides on the streams (`dump_filesystems`).
    fn of(cx: &mut Cx, options: &Options, tree: &Tree, members: &[Member], span: Span<'_>) -> Self {
        let mut plan = Self::default();
        if !options.replicate {
            plan.dataset(cx, options, tree, span.top, span, &HashSet::new());
            return plan;
        }
        let places = ByGuid::of(members);
        let owner = |guid: u64| places.find(guid).map(|(at, _)| at);
        let origins = members.iter().filter_map(|member| member.origin);
        let origins: HashSet<u64> = origins.filter(|guid| owner(*guid).is_some()).collect();
        let mut sent = vec![false; members.len()];
        loop {
            let mut progress = false;
            for (at, member) in members.iter().enumerate() {
                let waits = |guid: u64, sent: &[bool]| guid != 0 && owner(guid).is_some_and(|at| !sent[at]);
                let origin = member.origin.unwrap_or(0);
                if sent[at] || waits(member.parent_from, &sent) || waits(origin, &sent) {
                    continue;
                }
                plan.dataset(cx, options, tree, &member.name, span, &origins);
                (sent[at], progress) = (true, true);
            }
            if !progress || sent.iter().all(|sent| *sent) {
                return plan;
            }
        }
    }

    /// Adds the streams of one dataset (`dump_filesystem`, `dump_snapshot`).
    fn dataset(
        &mut self,
        cx: &mut Cx,
        options: &Options,
        tree: &Tree,
        name: &str,
        span: Span<'_>,
        origins: &HashSet<u64>,
    ) {
        let Some(head) = tree.head(name).filter(|head| head.snap(span.to).is_some()) else {
            writeln!(cx.err, "WARNING: could not send {name}@{}: does not exist", span.to);
            self.failed = true;
            return;
        };
        let lacks_from = span.from.is_none_or(|from| options.replicate && head.snap(from).is_none());
        let (mut seen_from, mut seen_to) = (lacks_from, false);
        let mut last: Option<&str> = None;
        for snap in &head.snaps {
            let is_from = span.from == Some(&*snap.name);
            if !seen_from && is_from {
                (seen_from, last) = (true, Some(&*snap.name));
                continue;
            }
            if seen_to || !seen_from {
                continue;
            }
            let is_to = snap.name == span.to;
            seen_to |= is_to;
            // Between the ends, only origins of clones are needed.
            let between = !options.all && !is_from && !is_to;
            let full = format!("{name}@{}", snap.name);
            if (between && !origins.contains(&snap.guid)) || options.excludes(&full) {
                continue;
            }
            let on_origin = last.is_none() && (span.from_origin || options.replicate);
            let origin = head.origin.clone().filter(|_| on_origin);
            self.steps.push(Step { name: full, from: last.map(str::to_owned), origin });
            last = Some(&*snap.name);
        }
        self.seen_to = seen_to;
        let why = match (seen_from, seen_to, span.from) {
            (true, true, _) => return,
            (false, _, from) => {
                format!("\nincremental source ({name}@{}) does not exist", from.unwrap_or_default())
            }
            (true, false, Some(from)) => {
                format!("\nincremental source ({name}@{from}) is not earlier than it")
            }
            (true, false, None) => " does not exist".to_owned(),
        };
        writeln!(cx.err, "WARNING: could not send {name}@{}:{why}", span.to);
        self.failed = true;
    }
}

/// Shows how large the streams will be (`send_print_verbose`), and returns it.
fn estimate(cx: &mut Cx, options: &Options, plan: &Plan) -> u64 {
    let mut total = 0;
    for step in &plan.steps {
        let request =
            SendRequest { dataset: step.name.clone(), from: step.full_from(), ..options.forms.clone() };
        let size = cx.service().map(|service| service.send_size(&request));
        let size = match size {
            Ok(Ok(size)) => size,
            Ok(Err(error)) => {
                not_estimated(cx, &step.name, &error);
                continue;
            }
            Err(_) => return total,
        };
        let name = &step.name;
        let line = match (&step.from, options.parsable) {
            (Some(from), true) => format!("incremental\t{from}\t{name}\t{size}\n"),
            (None, true) => format!("full\t{name}\t{size}\n"),
            (from, false) => {
                let begin = match from {
                    Some(from) => format!("send from @{from} to {name}"),
                    None => format!("full send of {name}"),
                };
                match size {
                    0 => format!("{begin}\n"),
                    size => format!("{begin} estimated size is {}\n", numbers::bytes(size)),
                }
            }
        };
        total += size;
        options.show(cx, &line);
    }
    let line = match options.parsable {
        true => format!("size\t{total}\n"),
        false => format!("total estimated size is {}\n", numbers::bytes(total)),
    };
    options.show(cx, &line);
    total
}

/// Reports a size that is not known. The stream is sent nevertheless.
fn not_estimated(cx: &mut Cx, name: &str, error: &Error) {
    let why = words::reason(&error.reason, &cx.clock);
    writeln!(cx.err, "warning: cannot estimate space for '{name}': {why}");
}

/// Sends the streams, of about this size together.
fn streams(cx: &mut Cx, options: &Options, plan: &Plan, total: u64) -> Result<(), Stop> {
    let origins = plan.steps.iter().filter_map(|step| step.full_from().or_else(|| step.origin.clone()));
    let names: BTreeSet<String> = plan.steps.iter().map(|step| step.name.clone()).chain(origins).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kept = (cx.keep)(options.forms.raw, &names);
    let _kept = kept.map_err(|denied| {
        let dataset = match &denied {
            Denied::Api(error) => error.about.clone(),
            _ => names.first().copied().unwrap_or_default().to_owned(),
        };
        super::refused(cx, &SendRequest { dataset, ..SendRequest::default() }, denied)
    })?;
    for step in &plan.steps {
        let request = SendRequest {
            dataset: step.name.clone(),
            from: step.full_from().or_else(|| step.origin.clone()),
            ..options.forms.clone()
        };
        super::send(cx, options, &request, total)?;
    }
    Ok(())
}
