//! What a request for a send stream names.

use std::ops::Deref;

use api::{Caller, Error, Reason, SendRequest};
use dsl::{LongHold, Owned};
use ondisk::ObjNum;
use rustix::io::Errno;
use spa::engine::PoolWriter;
use stream::{Forms, Options, Origin, Resume, SendError};

use crate::pools::imported::Imported;
use crate::replies::{error_of, of_send};

/// A dataset to be sent.
pub struct Sendable {
    /// The dataset.
    pub dataset: dsl::Dataset,
    /// The snapshot that is the origin. A bookmark has none.
    pub from: Option<dsl::Dataset>,
    /// What the stream is to contain.
    pub options: Options,
}

impl Sendable {
    /// Finds what a request names.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: the dataset or its origin does not
    ///   exist.
    /// * [`Reason::Refused`]: the origin is not an earlier state of the dataset.
    /// * [`Reason::System`] (`EINVAL`): the bookmark to redact by is no redaction bookmark, or
    ///   there is nothing that an interrupted receive has left.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: they can't be read.
    pub fn find(imported: &Imported, request: &SendRequest) -> Result<Self, Error> {
        let name = request.dataset.as_str();
        let open = |name: &str| imported.pool.dsl().dataset(name).map_err(|error| error_of(name, &error));
        let dataset = open(name)?;
        let failed = |error: SendError| Error::new(name, of_send(&error));
        let (origin, from) = match request.from.as_deref().map(|from| (from, from.split_once('#'))) {
            None => (None, None),
            Some((from, Some((head, mark)))) => {
                let head = open(head)?;
                let found = head.bookmark(mark).map_err(|error| error_of(from, &error))?;
                let found = found.ok_or_else(|| Error::new(from, Reason::NoSuchDataset))?;
                (Some(Origin::of_bookmark(&dataset, &head, &found.phys).map_err(failed)?), None)
            }
            Some((from, None)) => {
                let from = open(from)?;
                (Some(Origin::of_snapshot(&dataset, &from).map_err(failed)?), Some(from))
            }
        };
        // Of a part, too, the origin is seen from the dataset that it was received into.
        let dataset = if request.saved { partial_of(&dataset)? } else { dataset };
        let SendRequest { large_blocks, embedded, compressed, raw, .. } = *request;
        let forms = Forms { large_blocks, embedded, compressed, raw };
        let resume = request.resume.map(|(object, offset, bytes)| {
            let object = ObjNum(object);
            Resume { object, offset, bytes }
        });
        let redact = request.redact.as_deref().map(|mark| list_of(imported, &dataset, mark)).transpose()?;
        let options = Options { origin, forms, resume, redact, saved: request.saved, ..Options::default() };
        Ok(Self { dataset, from, options })
    }

    /// The redaction lists that the stream uses.
    pub fn lists(&self) -> impl Iterator<Item = ObjNum> {
        let of_origin = self.options.origin.and_then(|origin| origin.redaction_list());
        self.options.redact.into_iter().chain(of_origin)
    }
}

/// What is to be sent, kept as it is while this lives.
pub struct HeldSendable {
    what: Sendable,
    #[allow(dead_code, reason = "keeps a file system or volume from being changed by living")]
    owned: Option<Owned>,
    #[allow(dead_code, reason = "keeps snapshots and lists by living")]
    holds: Vec<LongHold>,
}

impl Deref for HeldSendable {
    type Target = Sendable;
    fn deref(&self) -> &Sendable {
        &self.what
    }
}

impl HeldSendable {
    /// Finds and holds what a request names.
    ///
    /// # Errors
    /// Those of [`Sendable::find`], and:
    /// * [`Reason::Busy`]: it is a file system or volume that is mounted, or in use otherwise.
    /// * [`Reason::KeyNotLoaded`]: its key is not loaded, and the stream is not raw.
    /// * [`Reason::Suspended`]: what is pending can't be written.
    pub fn new(imported: &Imported, request: &SendRequest) -> Result<Self, Error> {
        let spa = imported.pool.spa();
        let live = spa.writer();
        let owned = match live {
            Some(live) => spa.read(|| own(imported, live, request))?,
            None => None,
        };
        if let (Some(live), Some(_)) = (live, &owned) {
            // What the last owner changed may not be on disk yet.
            live.sync_all().map_err(|_| Error::new(&request.dataset, Reason::Suspended))?;
        }
        let (what, holds) = spa.read(|| {
            let what = Sendable::find(imported, request)?;
            if owned.as_ref().is_some_and(|owned| owned.objset().id() != what.dataset.object().0) {
                // A rename meanwhile.
                return Err(Error::new(&request.dataset, Reason::Busy));
            }
            let hold = |object: ObjNum| live.map(|live| live.dsl().heads().long_hold(object.0));
            let datasets = [Some(&what.dataset), what.from.as_ref()].into_iter().flatten();
            let holds = datasets.map(dsl::Dataset::object).chain(what.lists()).filter_map(hold).collect();
            Ok::<_, Error>((what, holds))
        })?;
        Ok(Self { what, owned, holds })
    }
}

/// Owns a file system or volume that is to be sent, so that it does not change meanwhile. A
/// snapshot needs no owner.
fn own(imported: &Imported, live: &PoolWriter, request: &SendRequest) -> Result<Option<Owned>, Error> {
    let name = request.dataset.as_str();
    let dataset = imported.pool.dsl().dataset(name).map_err(|error| error_of(name, &error))?;
    if dataset.is_snapshot() {
        return Ok(None);
    }
    let heads = live.dsl().heads();
    let owned = match (request.saved, request.raw) {
        (true, raw) => heads.own_partial(&partial_of(&dataset)?, raw),
        (false, true) => heads.own_locked(&dataset),
        (false, false) => heads.own(&dataset),
    };
    owned.map(Some).map_err(|error| match error {
        dsl::Error::Refused { why: dsl::Refusal::Busy, .. } => Error::new(name, Reason::Busy),
        error => error_of(name, &error),
    })
}

/// What an interrupted receive into a dataset has left.
fn partial_of(dataset: &dsl::Dataset) -> Result<dsl::Dataset, Error> {
    let name = dataset.name();
    let failed = |error: dsl::Error| error_of(&name, &error);
    let found = dataset.receiving().map_err(failed)?;
    match found.partial().map_err(failed)? {
        Some(_) => Ok(found),
        None => Err(Error::new(&name, Reason::System { errno: Errno::INVAL.raw_os_error() })),
    }
}

/// The redaction list of a bookmark of the dataset that is sent.
///
/// # Errors
/// * [`Reason::NoSuchDataset`]: there is no such bookmark.
/// * [`Reason::System`] (`EINVAL`): it is no redaction bookmark, or the dataset no snapshot.
/// * [`Reason::Io`], [`Reason::Corrupt`]: it can't be read.
fn list_of(imported: &Imported, dataset: &dsl::Dataset, mark: &str) -> Result<ObjNum, Error> {
    let head = dataset.dir().name();
    let name = format!("{head}#{mark}");
    let failed = |error: dsl::Error| error_of(&name, &error);
    let head = imported.pool.dsl().dataset(head).map_err(failed)?;
    let found = head.bookmark(mark).map_err(failed)?;
    let found = found.ok_or_else(|| Error::new(&name, Reason::NoSuchDataset))?;
    match ObjNum(found.phys.redaction_obj) {
        object if object.0 != 0 && dataset.is_snapshot() => Ok(object),
        _ => Err(Error::new(&name, Reason::System { errno: Errno::INVAL.raw_os_error() })),
    }
}

/// About how many bytes a stream will have.
///
/// # Errors
/// Those of [`HeldSendable::new`], and:
/// * [`Reason::TooMuch`]: too little of the caller's memory is left.
/// * [`Reason::LargeMicrozap`], [`Reason::KeyNotLoaded`] and others: the block tree has to be
///   walked, and can't be.
pub fn send_size(caller: &Caller, imported: &Imported, request: &SendRequest) -> Result<u64, Error> {
    if !caller.owns() {
        caller.budget().take(&request.dataset, stream::send::SEND_QUEUE_LENGTH.get())?;
    }
    let found = HeldSendable::new(imported, request)?;
    let size = stream::estimate(&found.dataset, &found.options);
    size.map_err(|error| Error::new(&request.dataset, of_send(&error)))
}
