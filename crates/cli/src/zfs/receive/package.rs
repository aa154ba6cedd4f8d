//! A package of streams: its list, its streams, and what becomes of the rest of the tree.
//!
//! # See
//! OpenZFS `zfs_receive_package`.

use std::fs::File;
use std::io::Read;

use api::{DatasetKind as K, MountReport, MountRequest};
use ondisk::nvlist::Nvlist;
use ondisk::replay::{Record, features};
use stream::Reader;

use super::begin::Head;
use super::replicate::replicate;
use super::{CANNOT, Session, keys, refuse};
use crate::cx::{Cx, Outcome, Stop};
use crate::zfs::mount_failures;
use crate::zfs::open::exists;
use crate::zfs::package::{ByGuid, Member, Package, Snap};

/// What libzfs says of an error without a text of its own (`EZFS_BADSTREAM`).
const INVALID: &str = "invalid backup stream";

/// The package that a stream is in.
#[derive(Debug)]
pub(super) struct Inside {
    /// The topmost dataset at the sender.
    pub(super) sent: String,
    /// The last snapshot of the package, without its dataset.
    pub(super) last: String,
    /// Holds are listed.
    holds: bool,
    package: Option<Package>,
    places: ByGuid,
}

impl Inside {
    /// What the list says of a snapshot.
    pub(super) fn listed(&self, guid: u64) -> Option<(&Member, &Snap)> {
        let (at, of) = self.places.find(guid)?;
        let member = self.package.as_ref()?.members.get(at)?;
        Some((member, member.snaps.get(of)?))
    }

    /// The tags of the holds of a snapshot.
    pub(super) fn holds(&self, guid: u64) -> Vec<String> {
        let Some(holds) = self.listed(guid).and_then(|(_, snap)| snap.holds.as_ref()) else {
            return Vec::new();
        };
        if !self.holds {
            return Vec::new();
        }
        holds.iter().filter_map(|(tag, _)| String::from_utf8(tag.to_vec()).ok()).collect()
    }

    /// Whether the package has a tree.
    pub(super) fn is_recursive(&self) -> bool {
        self.package.as_ref().is_some_and(|package| package.recursive)
    }

    /// Reads the list and the END of a package's head.
    fn read(cx: &mut Cx, head: &Head, input: &File, skip_holds: bool) -> Result<Self, Stop> {
        let mut reader = Reader::new(head.bytes.chain(input));
        let list = match reader.next_packet() {
            Ok(Some(packet)) => packet.payload.to_vec(),
            Err(stream::Error::Record { .. }) => return Err(refuse(cx, CANNOT, "nvlist too large")),
            Ok(None) | Err(_) => return Err(refuse(cx, CANNOT, "failed to read from stream")),
        };
        let malformed = "invalid stream (malformed nvlist)";
        let package = match list.is_empty() {
            true => None,
            false => match Nvlist::decode(&list).ok().as_ref().and_then(Package::decode) {
                Some(package) => Some(package),
                None => return Err(refuse(cx, CANNOT, malformed)),
            },
        };
        let why = match reader.next_packet() {
            Ok(Some(packet)) => match (&packet.record, packet.before) {
                (Record::End(end), Some(sum)) if end.checksum == sum.0 => None,
                (Record::End(_), _) => Some("incorrect header checksum"),
                _ => Some(INVALID),
            },
            Err(stream::Error::Checksum { .. }) => Some("incorrect header checksum"),
            Err(stream::Error::Record { .. }) => Some(INVALID),
            Ok(None) | Err(_) => Some("failed to read from stream"),
        };
        if let Some(why) = why {
            return Err(refuse(cx, CANNOT, why));
        }
        let places = package.as_ref().map(|package| ByGuid::of(&package.members)).unwrap_or_default();
        let (sent, last) = head.name.split_once('@').unwrap_or((&head.name, ""));
        Ok(Self {
            sent: sent.to_owned(),
            last: last.to_owned(),
            holds: head.has(features::HOLDS) && !skip_holds,
            package,
            places,
        })
    }
}

/// Receives a package whose BEGIN was read (`zfs_receive_package`).
pub(super) fn receive(cx: &mut Cx, session: &mut Session<'_>, head: &Head) -> Outcome {
    let options = session.options;
    let inside = Inside::read(cx, head, session.input, options.skip_holds)?;
    if inside.is_recursive() && session.arg.contains('@') {
        return Err(refuse(cx, CANNOT, "cannot specify snapshot name for multi-snapshot stream"));
    }
    let increment = inside.package.as_ref().filter(|package| package.recursive && package.from.is_some());
    let top = target(options.prefix, options.tail, session.arg, &inside.sent);
    let mut whole = true;
    if let Some(package) = increment {
        replicate(cx, options, &top, package, &inside.places);
    }
    loop {
        match session.stream(cx, Some(&inside)) {
            Ok(Some(0)) => {}
            Ok(None) => break,
            Ok(Some(_)) | Err(_) => {
                whole = false;
                break;
            }
        }
    }
    // Now that new datasets exist, more can be renamed.
    if let Some(package) = increment {
        whole &= replicate(cx, options, &top, package, &inside.places);
    }
    let raw = inside.package.as_ref().filter(|package| package.raw && !options.dry);
    if let (Some(package), Some(top)) = (raw, session.top.as_deref()) {
        whole &= keys::fix(cx, top, package, &inside.places).is_ok();
    }
    if !whole {
        return Ok(1);
    }
    mount(cx, session)
}

/// Where the topmost dataset of a package goes.
fn target(prefix: bool, tail: bool, arg: &str, sent: &str) -> String {
    let at = match (prefix, tail) {
        (_, true) => match sent.rfind('/') {
            Some(at) => at,
            None => return format!("{arg}/{sent}"),
        },
        (true, false) => sent.find('/').unwrap_or(sent.len()),
        (false, false) => sent.len(),
    };
    format!("{arg}{}", &sent[at..])
}

/// Mounts what a package brought, and all below it (`zfs_receive`).
fn mount(cx: &mut Cx, session: &Session<'_>) -> Outcome {
    let Some(top) = session.top.as_ref().filter(|_| session.mounts && !session.options.unmounted) else {
        return Ok(0);
    };
    if !exists(cx, top, &[K::Filesystem])? {
        return Ok(0);
    }
    let request = MountRequest {
        datasets: vec![top.clone()],
        recursive: true,
        threads: cx.mount_threads(),
        ..MountRequest::default()
    };
    let report = match cx.service()?.mount(&request) {
        Ok(report) => report,
        Err(error) => return Err(cx.fail(&format!("cannot mount '{top}'"), &error)),
    };
    let whole = report.failures.is_empty();
    mount_failures(cx, "mount", &MountReport { failures: report.failures, ..MountReport::default() });
    Ok(i32::from(!whole))
}
