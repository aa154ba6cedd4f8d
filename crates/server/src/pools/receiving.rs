//! Received streams, and what follows: mounts and block devices of volumes.
//!
//! # Theory
//! The engine receives a stream into a hidden dataset first. A file system that exists is served
//! with its old contents meanwhile, and is suspended only for the last step. A whole stream that
//! replaces a file system is different: as with libzfs, the file system is unmounted for all of it.
//! So a file system that is in use is refused before anything is read.
//!
//! # See
//! OpenZFS `zfs_receive_one`, `zfs_ioc_recv_impl`.

use std::io::Read;
use std::sync::Arc;

use api::streams::Received;
use api::{Caller, Error, MountFailure, MountRequest, Reason, ReceiveRequest, RedactRequest, StreamFault};
use ondisk::ObjNum;
use ondisk::bytes::{ByteOrder, le64};
use ondisk::replay::{BACKUP_MAGIC, Begin, RECORD_SIZE, Record, features, flags};
use rustix::io::Errno;
use stream::{ReceiveError, ReceiveOptions, Receiving, RedactError};

use crate::commands::dataset::keys::new_crypt;
use crate::control::grants::streams::{may_receive, may_set};
use crate::pools::Pools;
use crate::pools::holders::with_user;
use crate::pools::imported::Imported;
use crate::replies::{error_of, of_dsl, of_receive, of_redact};
use properties::Properties;

mod properties;

impl Pools {
    /// Receives a stream, and mounts what is new, or corrects a snapshot. `begin` are the bytes of
    /// its BEGIN, and `rest` is what follows.
    ///
    /// # Errors
    /// * [`Reason::Stream`]: the stream is damaged, or can't be received here.
    /// * [`Reason::Refused`]: the engine refuses the target. [`api::Refusal::NotSource`] and the
    ///   three after it are about streams.
    /// * [`Reason::Kept`]: one of the others, and what came is kept.
    /// * [`Reason::InTheWay`], [`Reason::HeldOpen`], [`Reason::Busy`]: the file system is in use.
    /// * [`Reason::System`]: the stream can't be read, or a name contains `%` (`EINVAL`).
    /// * [`Reason::Several`]: the receive failed, and file systems are no longer mounted.
    /// * All others: see [`api::Service`].
    pub(crate) fn receive(
        &self,
        caller: &Caller,
        request: &ReceiveRequest,
        begin: &[u8],
        rest: &mut dyn Read,
    ) -> Result<Received, Error> {
        let target = request.target.as_str();
        let head = head_of(target)?;
        let imported = self.receiving_pool(head)?;
        if request.corrective {
            return correct(&imported, target, begin.chain(rest));
        }
        let state = imported.pool.spa().read(|| State::of(&imported, head, &first(target, begin)?))?;
        let replaces = state.object.filter(|_| state.whole || request.origin.is_some());
        if let Some(by) = replaces.and_then(|object| self.visitor_of(&imported, object)) {
            return Err(Error::new(head, Reason::HeldOpen { by }));
        }
        let dsl = imported.pool.dsl();
        let is_new = state.object.is_none() && !state.partial;
        let may = |property: &str| may_set(&self.table, caller, (head, is_new), property);
        let mut props =
            imported.pool.spa().read(|| Properties::of(dsl, (head, state.kind), request, &may))?;
        if replaces.is_some() {
            // Later its mounts are being taken away.
            props.begin(self, caller, dsl, head);
        }
        // A file system that loses some of its data is unmounted, and stays so.
        let unmounts = replaces.is_some() || state.redacts;
        let mut lost = Vec::new();
        let mut receive = || self.fill(caller, &imported, request, (begin, rest), (&state, &mut props));
        let done = match unmounts {
            true => {
                let again = !request.unmounted && !state.redacted;
                imported.mounts.replaced(caller, &imported.pool, (head, again), &mut lost, receive)
            }
            false => receive(),
        };
        self.attachments.devices_after(&self.table, head);
        let busy = |error| with_user(caller, &self.visits, &self.attachments, &imported, error);
        match &done {
            Ok(_) => {
                // Grants may have ended while the stream came.
                props.keep_granted(&may);
                props.finish(self, caller, dsl, (head, target));
            }
            // Another dataset may have its name by now.
            Err(_) if state.object.is_some() && state.object == object_of(&imported, head) => {
                props.put_back(self, caller, dsl, head);
            }
            Err(_) => {}
        }
        let done = match done.map_err(busy) {
            Err(error) if !lost.is_empty() => {
                let errors = std::iter::once(error).chain(lost.into_iter().map(|lost| lost.error));
                return Err(Error::new(target, Reason::Several { errors: errors.collect() }));
            }
            done => done?,
        };
        lost.extend(done.lost);
        if (done.is_new || state.partial) && !request.unmounted && !state.redacted {
            let request = MountRequest { datasets: vec![head.to_owned()], ..MountRequest::default() };
            match self.mount_after(caller, &imported, request) {
                Ok(failures) => lost.extend(failures),
                Err(error) => lost.push(MountFailure { name: head.to_owned(), error }),
            }
        }
        Ok(Received { bytes: done.bytes, unmounted: lost, failures: props.failures })
    }

    /// The pool of a dataset into which a stream may be received.
    fn receiving_pool(&self, head: &str) -> Result<Arc<Imported>, Error> {
        let imported = self.table.pool_of(head)?;
        imported.writer(head)?;
        self.afs.check_files(head)?;
        Ok(imported)
    }

    /// The visit that has a dataset open.
    fn visitor_of(&self, imported: &Imported, object: u64) -> Option<String> {
        let users = self.visits.users(imported.pool.name());
        users.into_iter().find(|(used, _)| *used == object).map(|(_, by)| by)
    }

    /// Receives a stream whose target is not mounted, or keeps its mount.
    fn fill(
        &self,
        caller: &Caller,
        imported: &Arc<Imported>,
        request: &ReceiveRequest,
        (begin, rest): (&[u8], &mut dyn Read),
        (state, props): (&State, &mut Properties),
    ) -> Result<Done, Error> {
        let target = request.target.as_str();
        let head = head_of(target)?;
        let options = ReceiveOptions {
            name: target.to_owned(),
            origin: request.origin.clone(),
            force: request.force,
            resumable: request.resumable,
            enforce_limits: !caller.owns(),
            creator: Some(caller.peer().uid),
            crypt: new_crypt(head, request.key.as_ref(), &request.encryption)?,
            dnodes: None,
        };
        let failed = |error: ReceiveError| error_about(head, &error);
        let live = imported.writer(head)?;
        let mut begun = |is_new: bool| {
            // What was checked was checked for the other case.
            if is_new != state.object.is_none() {
                return false;
            }
            match is_new {
                true => props.begin_new(live, head),
                // Of one that is replaced, they are set already.
                false => props.begin(self, caller, imported.pool.dsl(), head),
            }
            true
        };
        let receiving = Receiving::with(imported.pool.spa(), begin.chain(rest), &options, &mut begun);
        let receiving = receiving.map_err(failed)?;
        let (is_new, bytes) = (receiving.is_new(), receiving.bytes());
        let mut lost = Vec::new();
        let was_there = state.object.is_some() || state.partial;
        let finish = || {
            may_receive(&self.table, caller, request, Some(!was_there))?;
            receiving.finish().map_err(failed)
        };
        if is_new {
            finish()?;
            return Ok(Done { is_new, bytes, lost });
        }
        let taken = self.attachments.devices_before_receive(head);
        let from = state.from.as_deref();
        let done = imported.mounts.received(caller, &imported.pool, (head, from, target), &mut lost, finish);
        // Also after a failure: then the volume is as before.
        self.attachments.devices_back(&self.table, taken);
        match done {
            Err(error) if !lost.is_empty() => {
                let errors = std::iter::once(error).chain(lost.into_iter().map(|lost| lost.error));
                Err(Error::new(target, Reason::Several { errors: errors.collect() }))
            }
            done => done.map(|()| Done { is_new, bytes, lost }),
        }
    }

    /// Makes a redaction bookmark.
    ///
    /// # Errors
    /// See [`api::Service::redact`].
    pub(crate) fn redact(&self, request: &RedactRequest) -> Result<(), Error> {
        let RedactRequest { snapshot, bookmark, by } = request;
        let imported = self.table.pool_of(snapshot)?;
        imported.writer(snapshot)?;
        stream::redact(imported.pool.spa(), snapshot, bookmark, by).map_err(|error| match &error {
            RedactError::Dataset(error) => error_of(snapshot, error),
            error => Error::new(snapshot, of_redact(error)),
        })
    }

    /// Destroys what was received in part.
    ///
    /// # Errors
    /// See [`api::Service::receive_abort`].
    pub(crate) fn receive_abort(&self, dataset: &str) -> Result<(), Error> {
        let imported = self.table.pool_of(dataset)?;
        imported.writer(dataset)?;
        stream::receive::abort(imported.pool.spa(), dataset).map_err(|error| error_about(dataset, &error))
    }
}

/// A stream that was received.
struct Done {
    /// The dataset did not exist before.
    is_new: bool,
    bytes: u64,
    /// File systems that are no longer mounted.
    lost: Vec<MountFailure>,
}

/// The type of a volume's object set (`DMU_OST_ZVOL`).
const VOLUME: u32 = 3;

/// The state of the target when the stream arrives.
struct State {
    /// The stream needs no snapshot of the target.
    whole: bool,
    /// What the stream holds.
    kind: dsl::Kind,
    /// The object of the target, if it exists and is whole.
    object: Option<u64>,
    /// The target was received in part, so it is new for its users.
    partial: bool,
    /// The target's snapshot on which the stream builds.
    from: Option<String>,
    /// The stream is redacted.
    redacted: bool,
    /// It is, and the target is not.
    redacts: bool,
}

impl State {
    /// What a stream with this BEGIN meets at a file system or volume.
    ///
    /// # Errors
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the target can't be read.
    fn of(imported: &Imported, head: &str, begin: &Begin) -> Result<Self, Error> {
        let whole = begin.from_guid == 0 || begin.flags & flags::CLONE != 0;
        let kind = if begin.objset_type == VOLUME { dsl::Kind::Volume } else { dsl::Kind::Filesystem };
        let redacted = begin.features() & features::REDACTED != 0;
        let failed = |error: dsl::Error| Error::new(head, of_dsl(&error));
        let dataset = match imported.pool.dsl().dataset(head) {
            Ok(dataset) => dataset,
            Err(dsl::Error::NoSuchDataset { .. }) => {
                let (object, partial, from) = (None, false, None);
                return Ok(Self { whole, kind, object, partial, from, redacted, redacts: false });
            }
            Err(error) => return Err(failed(error)),
        };
        let partial = dataset.is_inconsistent();
        let mut from = None;
        if !whole && !partial {
            from = base(&dataset, begin.from_guid).map_err(failed)?;
        }
        let object = (!partial).then_some(dataset.object().0);
        let redacts = redacted && dataset.redacted_for().map_err(failed)?.is_none();
        Ok(Self { whole, kind, object, partial, from, redacted, redacts })
    }
}

/// The name of the snapshot with this guid. Most streams build on the latest.
fn base(dataset: &dsl::Dataset, guid: u64) -> dsl::Result<Option<String>> {
    let (dir, mut at) = (dataset.dir().object(), dataset.phys().prev_snap_obj);
    while at != 0 {
        let snapshot = dataset.dsl().by_object(ObjNum(at))?;
        if snapshot.dir().object() != dir {
            break;
        }
        if snapshot.phys().guid == guid {
            return Ok(Some(snapshot.name()));
        }
        at = snapshot.phys().prev_snap_obj;
    }
    Ok(None)
}

/// The fields of BEGIN. The engine verifies them again.
fn first(about: &str, bytes: &[u8]) -> Result<Begin, Error> {
    let fault = || {
        let what = "it does not begin as streams do".to_owned();
        Error::new(about, Reason::Stream { fault: StreamFault::Invalid, what })
    };
    let raw: &[u8; RECORD_SIZE] = bytes.first_chunk().ok_or_else(fault)?;
    let order = ByteOrder::by_magic(le64(raw, 8), BACKUP_MAGIC).ok_or_else(fault)?;
    match Record::decode(raw, order) {
        Ok(Record::Begin(begin)) => Ok(begin),
        _ => Err(fault()),
    }
}

/// The file system or volume of a snapshot that is to be received.
///
/// # Errors
/// * [`Reason::InvalidName`]: it is not a snapshot's name.
/// * [`Reason::System`] (`EINVAL`): the name contains `%`.
fn head_of(target: &str) -> Result<&str, Error> {
    if target.contains('%') {
        return Err(Error::new(target, Reason::System { errno: Errno::INVAL.raw_os_error() }));
    }
    let (head, _) = target.split_once('@').ok_or_else(|| Error::new(target, Reason::InvalidName))?;
    Ok(head)
}

/// Writes damaged blocks of a snapshot again.
fn correct(imported: &Imported, target: &str, source: impl Read) -> Result<Received, Error> {
    let done = stream::correct(imported.pool.spa(), source, target);
    let done = done.map_err(|error| error_about(target, &error))?;
    tracing::info!(snapshot = target, blocks = done.blocks, "damaged blocks are written again");
    Ok(Received { bytes: done.bytes, ..Received::default() })
}

/// The object of a file system or volume, if it exists.
fn object_of(imported: &Imported, head: &str) -> Option<u64> {
    let found = imported.pool.spa().read(|| imported.pool.dsl().dataset(head));
    found.ok().map(|dataset| dataset.object().0)
}

/// The subject and the reason of a failed receive.
fn error_about(about: &str, error: &ReceiveError) -> Error {
    match error {
        ReceiveError::Refused(error) => error_of(about, error),
        error => Error::new(about, of_receive(error)),
    }
}

#[cfg(test)]
mod tests;
