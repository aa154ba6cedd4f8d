//! Why the daemon did not receive a stream, in libzfs's words.

use api::files::Denied;
use api::{Error, Reason, Refusal, StreamFault};
use rustix::io::Errno;

use super::plan::Plan;
use super::{Options, may_be_there, refuse};
use crate::cx::{Cx, Stop};
use crate::zfs::open::{HEADS, open};
use console::words;

/// What libzfs says of an error without a text of its own (`EZFS_BADSTREAM`).
const INVALID: &str = "invalid backup stream";

/// Whether the target's snapshot may be there already.
pub(super) fn is_there(denied: &Denied) -> bool {
    matches!(denied, Denied::Api(error) if may_be_there(&error.reason))
}

/// Reports why a stream was not received (`zfs_receive_one`).
pub(super) fn report(cx: &mut Cx, options: &Options, plan: &Plan, denied: Denied) -> Stop {
    let error = match denied {
        Denied::Api(error) => error,
        Denied::Socket { source, .. } if has_ended(&source) => {
            let why = "the daemon ended it: the pool is exported, or the daemon stops";
            return refuse(cx, plan.what, why);
        }
        denied => return refuse(cx, plan.what, api::chain(&denied)),
    };
    let (error, kept) = match error.reason {
        Reason::Kept { reason } => (Error::new(error.about, *reason), true),
        _ => (error, false),
    };
    let dataset = plan.head();
    if options.corrective
        && let Some(why) = uncorrected(&error.reason)
    {
        return refuse(cx, plan.what, why);
    }
    match &error.reason {
        Reason::Stream { fault: fault @ (StreamFault::Truncated | StreamFault::Checksum), .. } => {
            let fault =
                if *fault == StreamFault::Checksum { "checksum mismatch" } else { "incomplete stream" };
            let why = (options.resumable || kept).then(|| saved(cx, dataset)).flatten();
            refuse(cx, plan.what, why.unwrap_or_else(|| fault.to_owned()))
        }
        Reason::Refused { why: why @ (Refusal::Exists | Refusal::ResumeExists) } => {
            let verb = if *why == Refusal::Exists { "restore to" } else { "resume recv" };
            let name = if plan.is_new { dataset } else { &plan.snapshot };
            let text = match why {
                Refusal::Exists => "destination already exists",
                _ => words::refusal(*why),
            };
            refuse(cx, &format!("cannot {verb} {name}"), text)
        }
        reason => {
            let why = why(cx, plan, reason);
            refuse(cx, plan.what, why)
        }
    }
}

/// The text for a snapshot that could not be corrected.
fn uncorrected(reason: &Reason) -> Option<String> {
    match reason {
        Reason::Stream { fault: StreamFault::Truncated | StreamFault::Checksum, what } => Some(format!(
            "corrective receive was not able to reconstruct the data needed for healing.\n{what}"
        )),
        Reason::Stream { fault: StreamFault::Feature, what } => {
            Some(format!("stream is not compatible with the data in the pool.\n{what}"))
        }
        Reason::KeyNotLoaded => {
            let why = "key must be loaded to do a non-raw corrective recv on an encrypted dataset.";
            Some(why.to_owned())
        }
        _ => None,
    }
}

/// Whether the daemon closed the connection.
fn has_ended(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionReset | Kind::BrokenPipe | Kind::UnexpectedEof)
}

/// The text for a receive that can continue.
fn saved(cx: &mut Cx, dataset: &str) -> Option<String> {
    let found = open(cx, dataset, &HEADS, &["receive_resume_token"]).ok()?;
    let token = found.prop("receive_resume_token")?.value(true);
    (!matches!(token, "" | "-")).then(|| {
        format!(
            "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
             A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
        )
    })
}

/// The text for all other reasons.
fn why(cx: &Cx, plan: &Plan, reason: &Reason) -> String {
    let dataset = plan.head();
    let upgrade = "pool must be upgraded to receive this stream.";
    match reason {
        Reason::Refused { why } => match why {
            Refusal::NotSource => {
                format!("most recent snapshot of {dataset} does not\nmatch incremental source")
            }
            Refusal::Modified => {
                format!("destination {dataset} has been modified\nsince most recent snapshot")
            }
            Refusal::ParentKeyNotLoaded => "inherited key must be loaded".to_owned(),
            Refusal::Quota => format!("destination {dataset} space quota exceeded."),
            Refusal::Feature => upgrade.to_owned(),
            Refusal::WrongParent => "invalid parent dataset".to_owned(),
            Refusal::NoParent => "dataset does not exist".to_owned(),
            Refusal::Busy | Refusal::Inconsistent | Refusal::Again | Refusal::Held => busy(plan),
            Refusal::NotSnapshot | Refusal::NotHead | Refusal::NotClone => INVALID.to_owned(),
            why => words::refusal(*why).to_owned(),
        },
        Reason::Stream { fault: StreamFault::Feature, what } => {
            format!("{upgrade}\nIt needs {what}, which the pool or this release of Poolhouse lacks.")
        }
        Reason::Stream { fault: StreamFault::Encryption, what } => what.clone(),
        Reason::Stream { what, .. } => format!("{INVALID}\n{what}"),
        Reason::Busy => busy(plan),
        Reason::InTheWay { dataset, by, why } => words::in_the_way("receive", dataset, by.as_deref(), *why),
        Reason::KeyNotLoaded => "inherited key must be loaded".to_owned(),
        Reason::InvalidName => INVALID.to_owned(),
        Reason::System { errno } if *errno == Errno::INVAL.raw_os_error() => INVALID.to_owned(),
        Reason::System { errno } if *errno == Errno::DQUOT.raw_os_error() => {
            format!("destination {dataset} space quota exceeded.")
        }
        Reason::System { errno } if *errno == Errno::NOSPC.raw_os_error() => "out of space".to_owned(),
        reason => words::reason(reason, &cx.clock),
    }
}

/// The text for a dataset that is in use (`EBUSY`).
fn busy(plan: &Plan) -> String {
    match plan.has_token {
        true => {
            format!("destination {} contains partially-complete state from \"zfs receive -s\".", plan.head())
        }
        false => "dataset is busy".to_owned(),
    }
}
