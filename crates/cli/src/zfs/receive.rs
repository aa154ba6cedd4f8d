//! `zfs receive`.
//!
//! # Theory
//! The command reads BEGIN, and decides on everything that libzfs decides: the target's name, the
//! origin, and whether the target may be overwritten (`plan`). Then it gives standard input to the
//! daemon, which reads the rest. So the command copies nothing.
//!
//! # Absent
//! Packages, and options about properties.
//!
//! # See
//! OpenZFS `zfs_do_receive`, `zfs_receive_impl`, `zfs_receive_one`.

use std::fmt::Display;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::time::Instant;

use api::{DatasetKind as K, MountReport, Reason, ReceiveRequest, Refusal, Settings};
use ondisk::replay::Record;
use stream::Reader;

use super::mount_failures;
use super::open::{HEADS, below, exists, head_of, open, parse_prop};
use crate::cx::{Cx, Outcome, Stop};
use begin::Head;
use console::getopt::{Found, Getopt, Opt};
use console::numbers;
use plan::Plan;

mod begin;
mod failures;
mod plan;

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
    origin: Option<String>,
}

/// Runs `zfs receive` (`zfs_do_receive`).
///
/// ```text
/// zfs receive [-vnsFu] [-o origin=<snapshot>] <filesystem|volume|snapshot>
/// zfs receive [-vnsFu] [-o origin=<snapshot>] [-d | -e] <filesystem>
/// zfs receive -A <filesystem|volume>
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut options = Options::default();
    let mut props = Settings::new();
    let mut g = Getopt::new(args, ":o:x:dehMnuvFsAc", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('o'), arg) => {
                parse_prop(cx, &mut props, &arg).map_err(|_| Stop::usage(""))?
            }
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
    for (property, value) in props {
        if property != "origin" {
            return absent(cx, &format!("-o {property}"));
        }
        options.origin = Some(value);
    }
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

/// Receives a stream from standard input (`zfs_receive`).
fn receive(cx: &mut Cx, options: &Options, name: &str, input: &File) -> Outcome {
    if (options.prefix || options.tail) && !exists(cx, name, &[K::Filesystem, K::Volume, K::Snapshot])? {
        return Err(refuse(cx, CANNOT, format_args!("specified fs ({name}) does not exist")));
    }
    if let Some(origin) = &options.origin
        && !exists(cx, origin, &[K::Filesystem, K::Volume, K::Snapshot])?
    {
        return Err(refuse(cx, CANNOT, format_args!("specified origin fs ({origin}) does not exist")));
    }
    let mut head = Head::read(cx, input)?;
    let begun = Instant::now();
    let plan = Plan::of(cx, options, name, &head)?;
    if options.verbose {
        let verb = if options.dry { "would receive" } else { "receiving" };
        let kind = if head.begin.from_guid == 0 { "full" } else { "incremental" };
        writeln!(cx.out, "{verb} {kind} stream of {} into {}", head.name, plan.snapshot);
        cx.out.flush();
    }
    if !head.is_volume() && !head.is_filesystem() {
        let why = format!("invalid record type: 0x{}", head.begin.objset_type);
        return Err(refuse(cx, plan.what, why));
    }
    let whole = head.read_list(cx, &plan, input)?;
    if options.dry {
        if !whole {
            return Err(refuse(cx, CANNOT, "failed to read from stream"));
        }
        return skip(cx, &head, input);
    }
    if !whole {
        return Err(refuse(cx, plan.what, "incomplete stream"));
    }
    deliver(cx, options, &plan, &head, input, begun)
}

/// Has the daemon receive the rest of the stream.
fn deliver(
    cx: &mut Cx,
    options: &Options,
    plan: &Plan,
    head: &Head,
    input: &File,
    begun: Instant,
) -> Outcome {
    let request = ReceiveRequest {
        target: plan.snapshot.clone(),
        origin: plan.origin.clone(),
        force: options.force,
        resumable: options.resumable,
        unmounted: options.unmounted,
    };
    let received = match (cx.deliver)(&request, &head.bytes, input) {
        Ok(received) => received,
        Err(denied) => {
            if failures::is_there(&denied) && has_snapshot(cx, plan, head.begin.to_guid)? {
                if options.verbose {
                    writeln!(cx.out, "snap {} already exists; ignoring", plan.snapshot);
                }
                return skip(cx, head, input);
            }
            return Err(failures::report(cx, options, plan, denied));
        }
    };
    let whole = received.unmounted.is_empty();
    cx.made(&plan.snapshot);
    mount_failures(cx, "mount", &MountReport { failures: received.unmounted, ..MountReport::default() });
    if whole && options.verbose {
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        let (bytes, speed) = (received.bytes, received.bytes as f64 / seconds);
        let (bytes, speed) = (numbers::bytes(bytes), numbers::bytes(speed as u64));
        writeln!(cx.out, "received {bytes} stream in {seconds:.2} seconds ({speed}/sec)");
    }
    Ok(i32::from(!whole))
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
