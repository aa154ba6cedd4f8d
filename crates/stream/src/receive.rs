//! Receiving: a stream becomes a snapshot of a dataset.
//!
//! # Theory
//! Two stages work at the same time. The caller's thread reads records, verifies them and queues
//! them (`queue`). Another thread writes them in batches (`apply`). Each batch is one transaction,
//! which is taken only once the records are there. So a slow sender holds no transaction group
//! open.
//!
//! Writes take the usual path, and wait where other writers wait. A block that arrives
//! compressed is stored as it is. So is all of a raw stream, which needs no key (`raw`).
//!
//! # Life
//! [`Receiving::new`] makes the dataset or the hidden clone that the stream goes into
//! ([`dsl::ops::receive`]), and fills it. [`Receiving::finish`] makes the snapshot visible. What is
//! dropped before is destroyed, or kept if it can be resumed. [`correct`] makes nothing: it
//! restores damaged blocks of a snapshot.
//!
//! # Crash
//! A receive that was not finished is destroyed when its pool is next opened for writing, or
//! resumed.
//!
//! # See
//! OpenZFS `dmu_recv.c`.

mod apply;
mod corrective;
mod queue;
mod raw;
mod redact;
mod touched;

use std::io::Read;
use std::sync::Arc;

use dmu::{DnodesShape, Objset};
use dsl::keys::{RawKeys, RawUse};
use dsl::ops::key::NewCrypt;
use dsl::ops::receive::{
    DISABLE_IVSET_GUID_CHECK, PlaceSlot, RECEIVING, ReceiveAbort, ReceiveBegin, ReceiveEnd, ReceiveResume,
    Received,
};
use dsl::ops::together::Together;
use dsl::{Dataset, LongHold, Owned, SyncTask};
use observe::{Tunable, Unit};
use ondisk::nvlist::Nvlist;
use ondisk::replay::{Begin, HeaderType, RECORD_SIZE, Record, features, flags};
use ondisk::{ObjNum, mos};
use spa::Spa;
use spa::engine::{PoolWriter, TaskError};
use spa::txg::Stopped;

use crate::check::State;
use crate::{Error, Reader};
use apply::Target;
use corrective::BEST_EFFORT_CORRECTIVE;
pub use corrective::{Corrected, correct};
use queue::{Item, Queue};
pub use touched::Touch;
use touched::Touched;

/// Bytes of records that are read ahead (`zfs_recv_queue_length`).
pub static RECV_QUEUE_LENGTH: Tunable = Tunable::new(
    "zfs_recv_queue_length",
    16 << 20,
    1 << 20..=1 << 30,
    Unit::Bytes,
    "records that a receive reads ahead",
);

/// Bytes that a receive writes in one transaction (`zfs_recv_write_batch_size`).
pub static RECV_WRITE_BATCH_SIZE: Tunable = Tunable::new(
    "zfs_recv_write_batch_size",
    1 << 20,
    1 << 12..=32 << 20,
    Unit::Bytes,
    "bytes that a receive writes in one transaction",
);

/// All tunables of receives.
pub const TUNABLES: &[&Tunable] =
    &[&RECV_QUEUE_LENGTH, &RECV_WRITE_BATCH_SIZE, &DISABLE_IVSET_GUID_CHECK, &BEST_EFFORT_CORRECTIVE];

/// The features of streams that this release can receive.
const SUPPORTED: u64 = features::SA_SPILL
    | features::EMBED_DATA
    | features::LZ4
    | features::LARGE_BLOCKS
    | features::RESUMING
    | features::COMPRESSED
    | features::LARGE_DNODE
    | features::ZSTD
    | features::SWITCH_TO_LARGE_BLOCKS
    | features::LONGNAME
    | features::LARGE_MICROZAP
    | features::REDACTED
    | features::RAW;

/// Where a stream goes, and how.
#[derive(Debug, Clone, Default)]
pub struct ReceiveOptions {
    /// The full name of the new snapshot.
    pub name: String,
    /// The full name of the snapshot that a new dataset is a clone of (`-o origin=`).
    pub origin: Option<String>,
    /// Replace a dataset that has changed (`-F`).
    pub force: bool,
    /// Keep what was received if the stream breaks off (`-s`).
    pub resumable: bool,
    /// Enforce limits of counts; an administrator is exempt.
    pub enforce_limits: bool,
    /// The user who gets what creators of datasets are granted.
    pub creator: Option<u32>,
    /// The encryption of a new dataset (`-o encryption=`); `None` is the parent's.
    pub crypt: Option<NewCrypt>,
    /// The tree of dnodes of new contents, if it is not OpenZFS's.
    pub dnodes: Option<DnodesShape>,
}

/// Why a stream is not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream can't be read, or is damaged.
    #[error(transparent)]
    Stream(#[from] Error),
    /// A record makes no sense here.
    #[error("record {record} at byte {at}: {why}")]
    Record {
        /// The record, counted from 0.
        record: u64,
        /// Where it begins, in bytes.
        at: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// This release can't receive such streams.
    #[error("{0} are not in this release")]
    Feature(&'static str),
    /// It does not fit the snapshot that it is to correct.
    #[error("{0}")]
    Incompatible(&'static str),
    /// A damaged block can't be made of what the stream has.
    #[error("object {object}, offset {offset}: the stream's block does not become the stored one")]
    NotRestored {
        /// The object.
        object: ObjNum,
        /// Where the block begins in the object, in bytes.
        offset: u64,
    },
    /// The dataset or the pool does not allow it.
    #[error(transparent)]
    Refused(dsl::Error),
    /// The pool can't be read or written.
    #[error("the pool can't be read or written")]
    Pool(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The receive failed, but what came is kept and can be continued.
    #[error("{source}; what came is kept")]
    Resumable {
        /// Why it failed.
        source: Box<ReceiveError>,
    },
}

impl ReceiveError {
    fn pool(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<TaskError> for ReceiveError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Refused(error) => error.into(),
            TaskError::Stopped(stopped) => Self::pool(stopped),
        }
    }
}

impl From<dsl::Error> for ReceiveError {
    fn from(error: dsl::Error) -> Self {
        use dsl::Error as E;
        match error {
            E::Object(_) | E::Pool(_) | E::Corrupt { .. } | E::Contents { .. } => Self::pool(error),
            error => Self::Refused(error),
        }
    }
}

impl From<dmu::Error> for ReceiveError {
    fn from(error: dmu::Error) -> Self {
        Self::pool(error)
    }
}

impl From<Stopped> for ReceiveError {
    fn from(error: Stopped) -> Self {
        Self::pool(error)
    }
}

/// A stream whose records are all in the pool, in a dataset that is not visible yet.
#[derive(Debug)]
pub struct Receiving {
    what: Received,
    place: Place,
    bytes: u64,
    touched: Touched,
}

/// The dataset that a stream goes into. Unless it is finished or kept, it is destroyed.
#[derive(Debug)]
struct Place {
    spa: Arc<Spa>,
    /// Its object.
    object: u64,
    hold: Option<LongHold>,
    /// The dataset exists apart from what is received.
    hidden: bool,
    resumable: bool,
    /// What was received is worth keeping.
    keep: bool,
    /// `None` once it is given up or done.
    owned: Option<Arc<Owned>>,
    /// No key is used for it, since the stream is raw. Released with its owner.
    raw: Option<RawUse>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (Some(hold), Ok(live)) = (self.hold.take(), writer(&self.spa)) else { return };
        // Now a point from which it can be resumed is on disk, behind which nothing has changed.
        let synced = live.sync_all();
        (self.owned, self.raw) = (None, None);
        if synced.is_ok() && !(self.resumable && self.keep) {
            // What stays after a failure is destroyed when the pool is opened again.
            drop(live.run(Box::new(ReceiveAbort { object: self.object, hold: Some(hold) })));
        }
    }
}

fn writer(spa: &Spa) -> Result<&PoolWriter, ReceiveError> {
    let why = dsl::Refusal::ReadOnly;
    spa.writer()
        .ok_or_else(|| ReceiveError::Refused(dsl::Error::Refused { name: spa.name().to_owned(), why }))
}

fn run(live: &PoolWriter, task: impl SyncTask + Send + 'static) -> Result<(), ReceiveError> {
    Ok(live.run(Box::new(task))?)
}

/// The first record, and the list behind it.
struct Start {
    begin: Begin,
    list: Nvlist,
}

impl Start {
    fn read<R: Read>(reader: &mut Reader<R>, state: &mut State) -> Result<Self, ReceiveError> {
        let Some(packet) = reader.next_packet()? else { return Err(Error::Empty { have: 0 }.into()) };
        state.take(&packet)?;
        let wrong = |why| Err(ReceiveError::Record { record: 0, at: 0, why });
        let Record::Begin(begin) = packet.record else { return wrong("it is no begin") };
        if !matches!(begin.header_type(), Ok(HeaderType::Substream)) {
            return Err(ReceiveError::Feature("packages"));
        }
        let list = match packet.payload {
            [] => Ok(Nvlist::new()),
            packed => Nvlist::decode(packed),
        };
        let Ok(list) = list else { return wrong("the list behind it is malformed") };
        let beyond = begin.features() & !SUPPORTED;
        if beyond & (features::DEDUP | features::DEDUPPROPS) != 0 {
            return Err(ReceiveError::Feature("deduplicated streams"));
        }
        if beyond != 0 {
            return Err(ReceiveError::Feature("streams with unknown features"));
        }
        Ok(Self { begin, list })
    }

    /// The keys of a raw stream.
    fn raw_keys(&self) -> Result<Option<RawKeys>, ReceiveError> {
        let wrong = |why| ReceiveError::Record { record: 0, at: 0, why };
        if self.begin.features() & features::RAW == 0 {
            return Ok(None);
        }
        if self.begin.features() & features::EMBED_DATA != 0 {
            return Err(wrong("raw streams have no embedded blocks"));
        }
        if self.begin.flags & flags::SPILL_BLOCK == 0 {
            return Err(wrong("a raw stream must say which objects have spill blocks"));
        }
        let list = self.list.list("crypt_keydata").ok_or_else(|| wrong("it is raw and has no keys"))?;
        RawKeys::parse(list).map(Some).map_err(wrong)
    }

    /// Where a stream that continues another one begins: the object and the offset.
    fn resumes_at(&self) -> Result<Option<(u64, u64)>, ReceiveError> {
        if self.begin.features() & features::RESUMING == 0 {
            return Ok(None);
        }
        match (self.list.u64("resume_object"), self.list.u64("resume_offset")) {
            (Some(object), Some(offset)) => Ok(Some((object, offset))),
            _ => Err(ReceiveError::Record { record: 0, at: 0, why: "it says not where it continues" }),
        }
    }
}

impl Receiving {
    /// Receives a stream, from its BEGIN up to its END (`dmu_recv_begin`, `dmu_recv_stream`).
    ///
    /// # Errors
    /// * [`ReceiveError::Stream`], [`ReceiveError::Record`]: the stream is damaged or malformed.
    /// * [`ReceiveError::Feature`]: it is of a kind that this release can't receive.
    /// * [`ReceiveError::Refused`]: the dataset, its parent or the pool does not allow it.
    /// * [`ReceiveError::Pool`]: the pool can't be read or written.
    /// * [`ReceiveError::Resumable`]: one of these, but what came is kept.
    pub fn new(
        spa: &Arc<Spa>,
        source: impl Read,
        options: &ReceiveOptions,
    ) -> Result<Receiving, ReceiveError> {
        Self::with(spa, source, options, &mut |_| true)
    }

    /// Receives a stream like [`Receiving::new`]. `begun` is called before any data is stored, so
    /// that the dataset can get its properties. Its argument says whether the dataset is new. It
    /// returns whether to go on.
    ///
    /// # Errors
    /// Those of [`Receiving::new`], and [`ReceiveError::Refused`] if `begun` says so.
    pub fn with(
        spa: &Arc<Spa>,
        source: impl Read,
        options: &ReceiveOptions,
        begun: &mut dyn FnMut(bool) -> bool,
    ) -> Result<Receiving, ReceiveError> {
        let (mut reader, mut state) = (Reader::new(source), State::default());
        let start = Start::read(&mut reader, &mut state)?;
        let (name, snapshot) = match dsl::Name::parse(&options.name)? {
            dsl::Name { path, tail: dsl::Tail::Snapshot(snapshot) } => (path.to_owned(), snapshot.to_owned()),
            _ => {
                let why = dsl::Refusal::NotSnapshot;
                return Err(dsl::Error::Refused { name: options.name.clone(), why }.into());
            }
        };
        let ReceiveOptions { force, enforce_limits, dnodes, .. } = *options;
        let raw = start.raw_keys()?;
        let (crypt, redacted) = (options.crypt.clone(), redact::of_stream(&start.begin, &start.list)?);
        let what = Received {
            name,
            snapshot,
            begin: start.begin,
            force,
            enforce_limits,
            raw,
            redacted,
            crypt,
            dnodes,
        };
        let mut place = begin(spa, &what, &start, options)?;
        let failed = |mut place: Place, started: bool, error| {
            place.keep |= started;
            let kept = place.resumable && place.keep;
            drop(place);
            if kept { ReceiveError::Resumable { source: Box::new(error) } } else { error }
        };
        if !begun(!place.hidden) {
            let (name, why) = (what.name.clone(), dsl::Refusal::Again);
            return Err(failed(place, false, dsl::Error::Refused { name, why }.into()));
        }
        let target = match Target::new(&place, &what) {
            Ok(target) => target,
            Err(error) => return Err(failed(place, false, error)),
        };
        match transfer(&mut reader, &mut state, target) {
            Ok(touched) => {
                place.keep = true;
                Ok(Receiving { what, place, bytes: reader.position(), touched })
            }
            Err((started, error)) => Err(failed(place, started, error)),
        }
    }

    /// Whether the dataset did not exist before.
    pub fn is_new(&self) -> bool {
        !self.place.hidden
    }

    /// The length of the stream.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the new snapshot and the state of the dataset visible (`dmu_recv_end`).
    ///
    /// A dataset that existed before must have no owner.
    ///
    /// # Errors
    /// * [`ReceiveError::Resumable`]: one of these, but what came is kept.
    /// * [`ReceiveError::Refused`]: the dataset has changed meanwhile, is busy, or has no space.
    /// * [`ReceiveError::Pool`]: the pool has stopped.
    pub fn finish(self) -> Result<(), ReceiveError> {
        self.end(false, Vec::new())
    }

    /// Finishes like [`Receiving::finish`] together with other operations: all are done, or none.
    /// Snapshots that the dataset has got since are not destroyed: with any, this is refused.
    ///
    /// # Errors
    /// Those of [`Receiving::finish`], and [`ReceiveError::Refused`] if one of the operations is.
    pub fn finish_with(self, more: Vec<Box<dyn SyncTask + Send>>) -> Result<(), ReceiveError> {
        self.end(true, more)
    }

    /// The dataset that the stream went into. It has no name yet, and not all records are on disk.
    ///
    /// # Errors
    /// * [`ReceiveError::Pool`]: the pool can't be read.
    pub fn dataset(&self) -> Result<Dataset, ReceiveError> {
        self.place.dataset()
    }

    /// What was received, for reading, when all of it is on disk.
    ///
    /// # Errors
    /// * [`ReceiveError::Pool`]: the pool can't be read, or has stopped.
    pub fn contents(&self) -> Result<Dataset, ReceiveError> {
        writer(&self.place.spa)?.sync_all()?;
        self.place.dataset()
    }

    /// What was received, for reading, whether it is on disk or not. `None`: the receive has ended.
    pub fn objset(&self) -> Option<&Objset> {
        self.place.owned.as_ref().map(|owned| owned.objset())
    }

    /// Where an increment may differ from the snapshot that it builds on, in the order of its
    /// records. All other objects are the same. `None`: that is not known, because the stream is
    /// whole, or continues another one, or has too many records.
    pub fn touched(&self) -> Option<&[Touch]> {
        self.touched.all()
    }

    fn end(mut self, keep_later: bool, more: Vec<Box<dyn SyncTask + Send>>) -> Result<(), ReceiveError> {
        let live = writer(&self.place.spa)?;
        // The txg of the operation has all records, and what was written before the dataset lost
        // its owner: it writes datasets before it runs operations.
        let (object, hidden) = (self.place.object, self.place.hidden);
        let end: Box<dyn SyncTask + Send> =
            Box::new(ReceiveEnd { what: self.what.clone(), object, hidden, keep_later });
        let tasks = std::iter::once(end).chain(more).collect();
        match run(live, Together { tasks }) {
            Ok(()) => {
                let place = &mut self.place;
                (place.owned, place.raw, place.hold) = (None, None, None);
                Ok(())
            }
            Err(error) if self.place.resumable => Err(ReceiveError::Resumable { source: Box::new(error) }),
            Err(error) => Err(error),
        }
    }
}

/// Makes the dataset that the stream goes into, or finds the one that it continues.
fn begin(
    spa: &Arc<Spa>,
    what: &Received,
    start: &Start,
    options: &ReceiveOptions,
) -> Result<Place, ReceiveError> {
    let live = writer(spa)?;
    let resumes = start.resumes_at()?;
    if what.raw.is_none() {
        check_key(spa, what, options)?;
    }
    let slot = PlaceSlot::default();
    let place = Arc::clone(&slot);
    match resumes {
        Some(from) => run(live, ReceiveResume { what: what.clone(), from, place })?,
        None => {
            let ReceiveOptions { origin, resumable, creator, .. } = options.clone();
            run(live, ReceiveBegin { what: what.clone(), origin, resumable, creator, place })?;
        }
    }
    let found = slot.lock().take().expect("the task leaves the dataset there");
    let dsl::ops::receive::Place { object, hidden, hold, raw } = found;
    let hold = Some(hold);
    let (keep, spa) = (resumes.is_some(), Arc::clone(spa));
    // From here on it is destroyed after a failure.
    let mut place = Place { spa, object, hold, hidden, resumable: keep, keep, owned: None, raw };
    let dataset = place.dataset()?;
    place.resumable = dataset.field(mos::DS_RESUME_TOGUID)?.is_some();
    place.owned = Some(Arc::new(live.dsl().heads().own_receiving(&dataset)?));
    Ok(place)
}

impl Place {
    /// The dataset, as it is now.
    fn dataset(&self) -> Result<Dataset, ReceiveError> {
        let live = writer(&self.spa)?;
        Ok(self.spa.read(|| live.dsl().by_object(ObjNum(self.object)))?)
    }
}

/// Refuses a stream into an encrypted dataset whose key is not loaded.
fn check_key(spa: &Spa, what: &Received, options: &ReceiveOptions) -> Result<(), ReceiveError> {
    let live = writer(spa)?;
    let target = options.origin.as_deref().unwrap_or(&what.name);
    let found = spa.read(|| live.dsl().dataset(target));
    let dataset = match found {
        Ok(dataset) => dataset,
        Err(dsl::Error::NoSuchDataset { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match live.dsl().keys().status(dataset.dir())? {
        dsl::keys::KeyStatus::Unavailable => {
            let why = dsl::KeyRefusal::NotLoaded;
            Err(dsl::Error::Key { name: dataset.name(), why }.into())
        }
        _ => Ok(()),
    }
}

/// Tells the reader that the writer takes no more records, however it ends.
struct Cancels<'a>(&'a Queue);

impl Drop for Cancels<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Writes all records up to END. An error says whether any record came.
fn transfer<R: Read>(
    reader: &mut Reader<R>,
    state: &mut State,
    mut target: Target,
) -> Result<Touched, (bool, ReceiveError)> {
    let queue = &Queue::new(RECV_QUEUE_LENGTH.get() as usize, RECV_WRITE_BATCH_SIZE.get() as usize);
    std::thread::scope(|scope| {
        let write = move || {
            let _cancels = Cancels(queue);
            while let Some(batch) = queue.take() {
                target.write(&batch)?;
            }
            Ok(target)
        };
        let writing = std::thread::Builder::new().name("receive".to_owned()).spawn_scoped(scope, write);
        let writing = writing.map_err(|e| (false, ReceiveError::pool(e)))?;
        let read = read_all(reader, state, queue);
        // What came before a failure is good, and makes the point to resume from.
        queue.end();
        let started = queue.taken_in() > 0;
        let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // If a record can't be written, the reader only notices that it may stop.
        let ended = written.and_then(|target| read.and_then(|()| target.end()));
        ended.map_err(|error| (started, error))
    })
}

/// Reads all records up to END into the queue.
fn read_all<R: Read>(reader: &mut Reader<R>, state: &mut State, queue: &Queue) -> Result<(), ReceiveError> {
    loop {
        let (number, begins) = (queue.taken_in(), reader.position());
        let Some(packet) = reader.next_packet()? else {
            return Err(Error::Truncated { record: number + 1, at: begins }.into());
        };
        let ended = state.take(&packet)?.is_some();
        let record = redact::as_written(packet.record);
        let (order, number, at) = (packet.order, packet.number, packet.at);
        if ended {
            return Ok(());
        }
        let payload = reader.take_payload();
        let end = reader.position() - RECORD_SIZE as u64;
        if !queue.push(Item { record, order, payload, number, at, end }) {
            return Ok(());
        }
    }
}

/// Destroys what a receive into a dataset left behind (`zfs receive -A`).
///
/// # Errors
/// * [`ReceiveError::Refused`] with [`dsl::Error::NoSuchDataset`]: the dataset does not exist, or
///   nothing is left of a receive.
/// * [`ReceiveError::Refused`]: it is being received.
/// * [`ReceiveError::Pool`]: the pool can't be read, or has stopped.
pub fn abort(spa: &Arc<Spa>, name: &str) -> Result<(), ReceiveError> {
    let live = writer(spa)?;
    let left = spa.read(|| {
        let dataset = live.dsl().dataset(name)?;
        let child = dataset.dir().child(RECEIVING)?.map(|dir| dir.head()).transpose()?.flatten();
        Ok::<_, dsl::Error>(child.unwrap_or(dataset))
    })?;
    if !left.is_inconsistent() || left.field(mos::DS_RESUME_TOGUID)?.is_none() {
        return Err(dsl::Error::NoSuchDataset { name: name.to_owned() }.into());
    }
    run(live, ReceiveAbort { object: left.object().0, hold: None })
}
