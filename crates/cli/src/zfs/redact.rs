//! `zfs redact`.

use api::{DatasetKind as K, Error, Reason, RedactRequest, Refusal};
use console::words;
use rustix::io::Errno;

use super::open::open;
use crate::cx::{Cx, Outcome, Stop};

/// `zfs redact <snapshot> <bookmark> <redaction_snapshot> ...` (`zfs_do_redact`).
///
/// The exit code of a refusal is its error number, as with OpenZFS.
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let [snapshot, bookmark, by @ ..] = args else { return Err(Stop::usage("too few arguments\n")) };
    if by.is_empty() {
        return Err(Stop::usage("too few arguments\n"));
    }
    let (snapshot, bookmark, by) = (snapshot.clone(), bookmark.clone(), by.to_vec());
    let request = RedactRequest { snapshot, bookmark, by };
    match cx.service()?.redact(&request) {
        Ok(()) => {
            cx.made(&request.snapshot);
            Ok(0)
        }
        Err(error) => refused(cx, &request, &error),
    }
}

/// Reports a refusal in OpenZFS's words.
fn refused(cx: &mut Cx, request: &RedactRequest, error: &Error) -> Outcome {
    let errno = errno(&error.reason);
    let text = match errno {
        Errno::NOENT => {
            absent(cx, &request.snapshot, "provided snapshot");
            request.by.iter().for_each(|by| absent(cx, by, "provided snapshot"));
            String::new()
        }
        Errno::EXIST => {
            format!("specified redaction bookmark ({}) provided already exists\n", request.bookmark)
        }
        Errno::NAMETOOLONG => {
            "provided bookmark name cannot be used, final name would be too long\n".to_owned()
        }
        Errno::TOOBIG => "too many redaction snapshots specified\n".to_owned(),
        Errno::INVAL if request.bookmark.contains('#') => {
            "redaction bookmark name must not contain '#'\n".to_owned()
        }
        Errno::INVAL => "redaction snapshot must be descendent of snapshot being redacted\n".to_owned(),
        Errno::ALREADY => {
            "attempted to redact redacted dataset or with respect to redacted dataset\n".to_owned()
        }
        Errno::NOTSUP => "redaction bookmarks feature not enabled\n".to_owned(),
        Errno::XDEV => "potentially invalid redaction snapshot; full dataset names required\n".to_owned(),
        Errno::SRCH => "attempted to resume redaction  with a mismatched redaction list\n".to_owned(),
        _ => format!("internal error: {}\n", words::errno(errno.raw_os_error())),
    };
    cx.err.put(&text);
    Ok(errno.raw_os_error())
}

/// Reports a snapshot that does not exist.
fn absent(cx: &mut Cx, name: &str, what: &str) {
    if open(cx, name, &[K::Snapshot], &[]).is_err() {
        writeln!(cx.err, "{what} {name} does not exist");
    }
}

/// The error number that the kernel module would give.
fn errno(reason: &Reason) -> Errno {
    match reason {
        Reason::System { errno } => Errno::from_raw_os_error(*errno),
        Reason::NoSuchDataset | Reason::NoSuchPool => Errno::NOENT,
        Reason::InvalidName => Errno::INVAL,
        Reason::Permission | Reason::DelegationOff => Errno::PERM,
        Reason::PoolReadonly | Reason::Refused { why: Refusal::ReadOnly } => Errno::ROFS,
        Reason::KeyNotLoaded | Reason::Refused { why: Refusal::ParentKeyNotLoaded } => Errno::ACCESS,
        Reason::Suspended => Errno::AGAIN,
        Reason::Busy | Reason::Refused { why: Refusal::Busy } => Errno::BUSY,
        Reason::Refused { why: Refusal::Exists } => Errno::EXIST,
        Reason::Refused { why: Refusal::Feature } => Errno::NOTSUP,
        Reason::Refused { why: Refusal::TooManySnapshots } => Errno::TOOBIG,
        Reason::Refused { why: Refusal::NoSpace | Refusal::NamesCollide } => Errno::NOSPC,
        Reason::Refused { why: Refusal::NotSnapshot } => Errno::INVAL,
        _ => Errno::IO,
    }
}
