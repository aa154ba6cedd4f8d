//! `zfs receive`.
//!
//! # Theory
//! The command reads BEGIN, and decides on everything that libzfs decides: the target's name, the
//! origin, and whether the target may be overwritten (`plan`). Then it gives standard input to the
//! daemon, which reads the rest. So the command copies nothing.
//!
//! A package is several streams behind one another. The command reads its head and the BEGIN of
//! each stream, and the daemon reads each stream up to its END (`package`).
//!
//! # See
//! OpenZFS `zfs_do_receive`, `zfs_receive_impl`, `zfs_receive_one`.

use std::fmt::Display;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::time::Instant;

use api::{DatasetChange, DatasetKind as K, MountReport, Reason, ReceiveRequest, Refusal};
use ondisk::replay::Record;
use stream::Reader;

use super::mount_failures;
use super::open::{HEADS, below, exists, head_of, open};
use crate::cx::{Cx, Outcome, Stop};
use begin::Head;
use console::getopt::{Found, Getopt, Opt};
use console::numbers;
use package::Inside;
use plan::Plan;
use props::{Given, Wanted};

mod begin;
mod failures;
mod keys;
mod package;
mod plan;
mod props;
mod replicate;

/// What libzfs says before it knows more.
const CANNOT: &str = "cannot receive";

/// The options of a receive.
#[derive(Debug, Default)]
struct Options {
    verbose: bool,
    dry: bool,
    resumable: bool,
    unmounted: bool,
    force: bool,
    /// The target gets the sent name without its pool (`-d`).
    prefix: bool,
    /// The target gets the last part of the sent name (`-e`).
    tail: bool,
    abort: bool,
    /// Damaged blocks of a snapshot are written again (`-c`).
    corrective: bool,
    /// Holds of a package are left out (`-h`).
    skip_holds: bool,
    origin: Option<String>,
    /// Properties (`-o`, `-x`).
    given: Given,
}

/// Runs `zfs receive` (`zfs_do_receive`).
///
/// ```text
/// zfs receive [-vMnsFhu] [-o property=value] ... [-x property] ... <filesystem|volume|snapshot>
/// zfs receive [-vMnsFhu] [-o property=value] ... [-x property] ... [-d | -e] <filesystem>
/// zfs receive -A <filesystem|volume>
/// zfs receive -c [-vn] <filesystem|snapshot>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut options = Options::default();
    let mut given = Given::default();
    let mut g = Getopt::new(args, ":o:x:dehMnuvFsAc", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short(letter @ ('o' | 'x')), arg) => given.add(&arg, letter == 'x')?,
            Found::Is(Opt::Short('d'), _) if options.tail => return Err(exclusive()),
            Found::Is(Opt::Short('e'), _) if options.prefix => return Err(exclusive()),
            Found::Is(Opt::Short('d'), _) => options.prefix = true,
            Found::Is(Opt::Short('e'), _) => options.tail = true,
            Found::Is(Opt::Short('n'), _) => options.dry = true,
            Found::Is(Opt::Short('u'), _) => options.unmounted = true,
            Found::Is(Opt::Short('v'), _) => options.verbose = true,
            Found::Is(Opt::Short('s'), _) => options.resumable = true,
            Found::Is(Opt::Short('F'), _) => options.force = true,
            Found::Is(Opt::Short('A'), _) => options.abort = true,
            Found::Is(Opt::Short('h'), _) => options.skip_holds = true,
            Found::Is(Opt::Short('c'), _) => options.corrective = true,
            // Linux unmounts nothing that is in use, also by force.
            Found::Is(Opt::Short('M'), _) => {}
            Found::Is(Opt::Short(letter), _) => return absent(cx, &format!("-{letter}")),
            Found::Is(Opt::Named(_), _) => unreachable!("there are no long options"),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
            Found::Missing(c) => return Err(Stop::missing(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        [] => return Err(Stop::usage("missing snapshot argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    if options.abort {
        return abort(cx, &options, name);
    }
    options.origin = given.take("origin");
    options.given = given;
    let Ok(input) = (cx.input)() else {
        return Err(refuse(cx, CANNOT, "failed to read from stream"));
    };
    if input.is_terminal() {
        cx.err.put(
            "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.\n",
        );
        return Ok(1);
    }
    receive(cx, &options, name, &input)
}

fn exclusive() -> Stop {
    Stop::usage("invalid option combination: -d and -e are mutually exclusive\n")
}

/// Reports something of OpenZFS that this release lacks.
fn absent(cx: &mut Cx, what: &str) -> Outcome {
    writeln!(
        cx.err,
        "zfs receive {what}: not in this release of Poolhouse; docs/reference lists the options that it has"
    );
    Ok(1)
}

/// Reports what can't be done, and why.
fn refuse(cx: &mut Cx, what: &str, why: impl Display) -> Stop {
    cx.out.flush();
    writeln!(cx.err, "{what}: {why}");
    Stop::Fail(1)
}

/// Destroys what was received in part (`zfs receive -A`).
fn abort(cx: &mut Cx, options: &Options, name: &str) -> Outcome {
    if options.prefix || options.tail || options.dry || options.resumable || options.unmounted {
        return Err(Stop::usage("invalid option\n"));
    }
    open(cx, name, &HEADS, &[]).map_err(|_| Stop::usage(""))?;
    match cx.service()?.receive_abort(name) {
        Ok(()) => {
            cx.changed(name);
            Ok(0)
        }
        Err(error) if matches!(error.reason, Reason::NoSuchDataset) => {
            writeln!(cx.err, "'{name}' does not have any resumable receive state to abort");
            Ok(1)
        }
        Err(error) => Err(cx.fail(&format!("cannot destroy '{name}'"), &error)),
    }
}

/// Receives a stream or a package from standard input (`zfs_receive`).
fn receive(cx: &mut Cx, options: &Options, name: &str, input: &File) -> Outcome {
    let mut session = Session { options, arg: name, input, top: None, mounts: false };
    // The END of a package alone ends without a message.
    Ok(session.stream(cx, None)?.unwrap_or(1))
}

/// The receives of one command.
#[derive(Debug)]
struct Session<'a> {
    options: &'a Options,
    /// The target as it was given.
    arg: &'a str,
    input: &'a File,
    /// The first dataset that was received (`top_zfs`).
    top: Option<String>,
    /// A package brought a file system.
    mounts: bool,
}

impl Session<'_> {
    /// Receives the next stream (`zfs_receive_impl`). `None`: there is the END of a package.
    fn stream(&mut self, cx: &mut Cx, inside: Option<&Inside>) -> Result<Option<i32>, Stop> {
        let (options, name) = (self.options, self.arg);
        let datasets = [K::Filesystem, K::Volume, K::Snapshot];
        options.given.check(cx)?;
        if (options.prefix || options.tail) && !exists(cx, name, &datasets)? {
            return Err(refuse(cx, CANNOT, format_args!("specified fs ({name}) does not exist")));
        }
        if let Some(origin) = options.origin.as_ref().filter(|_| inside.is_none())
            && !exists(cx, origin, &datasets)?
        {
            return Err(refuse(cx, CANNOT, format_args!("specified origin fs ({origin}) does not exist")));
        }
        let Some(head) = Head::read(cx, self.input)? else { return Ok(None) };
        match (head.is_package(), inside) {
            (false, _) => self.one(cx, head, inside).map(Some),
            (true, None) => package::receive(cx, self, &head).map(Some),
            (true, Some(_)) => Err(refuse(cx, CANNOT, "invalid stream (a package in a package)")),
        }
    }

    /// Receives one stream whose BEGIN was read (`zfs_receive_one`).
    fn one(&mut self, cx: &mut Cx, mut head: Head, inside: Option<&Inside>) -> Outcome {
        let (options, begun) = (self.options, Instant::now());
        let plan = Plan::of(cx, options, self.arg, &head, inside)?;
        if options.verbose {
            let verb = if options.dry { "would receive" } else { "receiving" };
            let kind = if head.begin.from_guid == 0 { "full" } else { "incremental" };
            let corrective = if options.corrective { "corrective " } else { "" };
            writeln!(cx.out, "{verb} {corrective}{kind} stream of {} into {}", head.name, plan.snapshot);
            cx.out.flush();
        }
        if self.top.is_none() {
            self.top = Some(plan.head().to_owned());
        }
        if !head.is_volume() && !head.is_filesystem() {
            let why = format!("invalid record type: 0x{}", head.begin.objset_type);
            return Err(refuse(cx, plan.what, why));
        }
        let top = self.top.as_deref() == Some(plan.head());
        let wanted = Wanted::of(cx, &options.given, (&head, &plan), inside, top)?;
        let whole = head.read_list(cx, plan.what, self.input)?;
        if options.dry {
            if !whole {
                return Err(refuse(cx, CANNOT, "failed to read from stream"));
            }
            return skip(cx, &head, self.input);
        }
        if !whole {
            return Err(refuse(cx, plan.what, "incomplete stream"));
        }
        self.mounts |= inside.is_some() && head.is_filesystem();
        deliver(cx, options, (&plan, inside, wanted), &head, (self.input, begun))
    }
}

/// Has the daemon receive the rest of the stream.
fn deliver(
    cx: &mut Cx,
    options: &Options,
    (plan, inside, wanted): (&Plan, Option<&Inside>, Wanted),
    head: &Head,
    (input, begun): (&File, Instant),
) -> Outcome {
    let Wanted { received, local, inherited, snapshot, encryption, key } = wanted;
    let request = ReceiveRequest {
        target: plan.snapshot.clone(),
        origin: plan.origin.clone(),
        force: options.force,
        resumable: options.resumable,
        corrective: options.corrective,
        // What a package brought is mounted at its end.
        unmounted: options.unmounted || inside.is_some(),
        received,
        local,
        inherited,
        snapshot,
        encryption,
        key,
    };
    let received = match (cx.deliver)(&request, &head.bytes, input) {
        Ok(received) => received,
        Err(denied) => {
            if !options.corrective
                && failures::is_there(&denied)
                && has_snapshot(cx, plan, head.begin.to_guid)?
            {
                if options.verbose {
                    writeln!(cx.out, "snap {} already exists; ignoring", plan.snapshot);
                }
                return skip(cx, head, input);
            }
            return Err(failures::report(cx, options, plan, denied));
        }
    };
    let whole = received.unmounted.is_empty();
    if !options.corrective {
        cx.made(&plan.snapshot);
    }
    for failure in &received.failures {
        // A dataset may exceed its quota until its last snapshot.
        let last = inside.is_none_or(|inside| plan.snapshot.ends_with(&format!("@{}", inside.last)));
        if last || failure.name != "refquota" {
            let what = format!("cannot receive {} property on {}", failure.name, plan.head());
            cx.complain(&what, &failure.error);
        }
    }
    let holds = inside.map(|inside| inside.holds(head.begin.to_guid)).unwrap_or_default();
    hold(cx, &plan.snapshot, holds)?;
    mount_failures(cx, "mount", &MountReport { failures: received.unmounted, ..MountReport::default() });
    if whole && options.verbose {
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        let (bytes, speed) = (received.bytes, received.bytes as f64 / seconds);
        let (bytes, speed) = (numbers::bytes(bytes), numbers::bytes(speed as u64));
        writeln!(cx.out, "received {bytes} stream in {seconds:.2} seconds ({speed}/sec)");
    }
    Ok(i32::from(!whole))
}

/// Places the holds of a package. OpenZFS does not report those that fail.
fn hold(cx: &mut Cx, snapshot: &str, tags: Vec<String>) -> Result<(), Stop> {
    let service = cx.service()?;
    for tag in tags {
        let change = DatasetChange::Hold { snapshots: vec![snapshot.to_owned()], tag };
        // It may be there already.
        let _ = service.change(&change);
    }
    Ok(())
}

/// Whether the target has the stream's snapshot already.
fn has_snapshot(cx: &mut Cx, plan: &Plan, guid: u64) -> Result<bool, Stop> {
    let name = plan.head();
    if !exists(cx, name, &HEADS)? {
        return Ok(false);
    }
    let all = below(cx, name, Some(1), &[K::Snapshot], &["guid"])?;
    Ok(all.iter().any(|one| head_of(&one.name) == name && one.number("guid") == Some(guid)))
}

/// Reads the rest of a stream, and does nothing with it (`recv_skip`).
fn skip(cx: &mut Cx, head: &Head, input: &File) -> Outcome {
    let mut records = Reader::unchecked(head.bytes.chain(input));
    loop {
        match records.next_packet() {
            Ok(Some(packet)) if matches!(packet.record, Record::End(_)) => return Ok(0),
            Ok(Some(_)) => {}
            Err(stream::Error::Record { .. }) => return Err(refuse(cx, CANNOT, "invalid record type")),
            Ok(None) | Err(_) => return Err(refuse(cx, CANNOT, "failed to read from stream")),
        }
    }
}

/// The refusals that mean that the target's snapshot may be there (`EEXIST`, `ENOENT`).
fn may_be_there(reason: &Reason) -> bool {
    matches!(reason, Reason::NoSuchDataset | Reason::Refused { why: Refusal::Exists | Refusal::NoParent })
}

#[cfg(test)]
mod tests;
