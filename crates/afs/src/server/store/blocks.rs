//! Volumes that travel between two servers as blocks.
//!
//! # Theory
//! A send stream of a clone has its blocks as they are stored. An increment needs what both sides
//! have: the receiver keeps the snapshot that it got last, and the sender a bookmark of it. Both
//! are found by the snapshot's guid alone, never by a name or date. So an increment goes onto the
//! contents that it was made from, or nowhere.
//!
//! As long as the sender has the clone itself, it needs no bookmark. The transaction group that
//! destroys the clone makes one, so that a release takes no group for it.
//!
//! The receiver's snapshot is exactly what was sent. The header of the volume is not: its number,
//! type and dates are its own. So it is written into the head after the exchange. Until then it is
//! a property, which the transaction group of the exchange sets. So the volume is complete when
//! that group is on disk, and nothing waits for the header in its place. The next increment goes
//! into a clone of the snapshot, and what the head has had since goes with the old contents.
//!
//! # On disk
//! | what | where |
//! | --- | --- |
//! | what was received last | the snapshot `PARTITION/ID@release-base.N`; N is 0 or 1 |
//! | what was sent | bookmarks `PARTITION/ID#sent-GUID`, at most [`MOST_SENT`] |
//! | the last clone that was sent | the snapshot `PARTITION/ID@release-former`, for a while |
//! | a volume whose header is not in place | the mark [`RECEIVED`], and the property [`HEADER`] |
//! | the sums of what was received | the property [`SUMS`] of the snapshot |
//!
//! # Crash
//! A stream that was not complete goes when the pool is opened. After the exchange, the next start
//! puts the header in place.

use std::io::{Cursor, Read};
use std::sync::Arc;

use dsl::keys::KeyStatus;
use dsl::ops::bookmark::{CreateBookmarks, DestroyBookmarks};
use dsl::ops::props::{InheritProp, SetAs, SetProps};
use dsl::{LongHold, Source, Value};
use observe::lock::Mutex;
use ondisk::bytes::le64;
use ondisk::replay::{BACKUP_MAGIC, RECORD_SIZE, Record};
use ondisk::{ByteOrder, Txg};
use poolhouse::spa::engine::Pending;
use poolhouse::stream::{self, Origin, ReceiveError, ReceiveOptions, Receiving, SendError};
use zpl::FileSystem;

use super::left::mark_of;
use super::{
    HEADER, Head, INCOMPLETE, ITSELF, Partition, Task, header_property, hexadecimal, text, user_text,
};
use crate::server::header::Stored;
use crate::server::{Error, Result, chain};
use crate::types::{Unique, VolumeId, VolumeType};
use crate::volume::{Differences, Sums, check, check_changes, is_same_since};

/// The value of [`INCOMPLETE`] for a volume that has received contents, and whose header is in the
/// property [`HEADER`].
pub(super) const RECEIVED: &str = "received";
/// The property of a received snapshot with its sums: [`RULES`], its guid in hexadecimal, KiB,
/// vnodes, and the greatest unique. The volume has it until its header is in place.
const SUMS: &str = "poolhouse:volume-sums";
/// The names of snapshots that were received, but for a number.
const BASE: &str = "release-base.";
/// The numbers of these. One is that of the last, the other is free for the next.
const NUMBERS: [&str; 2] = ["0", "1"];
/// The names of bookmarks of what was sent, but for a guid.
const SENT: &str = "sent-";
/// What the log says without one of them.
const NO_BOOKMARK: &str = "no bookmark is kept: the next release is sent as a dump";
/// Most bookmarks of a volume. Sites that missed more releases get a dump.
const MOST_SENT: usize = 4;

/// What a volume can take as blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Takes {
    /// The guid of the snapshot that an increment may build on.
    pub base: Option<u64>,
    /// All blocks anew.
    pub whole: bool,
}

/// Contents that were received, and are not those of the volume yet. Dropping it destroys them.
#[derive(Debug)]
pub struct Blocks {
    /// The files. They go before what is received, whose end may destroy it.
    pub fs: FileSystem,
    base: Option<Base>,
    receiving: Receiving,
    /// The guid of the snapshot that they become.
    guid: u64,
    /// What the check found.
    sums: Option<Sums>,
    /// It looked at what differs from the base only.
    pub is_compared: bool,
}

/// Where the header of a volume with received contents is.
#[derive(Debug, Clone)]
pub(super) enum Received {
    /// In the property [`HEADER`].
    Property,
    /// In its files, and in the property until these operations have run.
    Ending {
        /// The operations. `None`: they were refused, so the next use queues them again. Nothing
        /// may change the header before they have run.
        ending: Arc<Mutex<Option<Pending>>>,
        /// They leave no mark that the volume is not complete.
        is_complete: bool,
    },
}

/// A snapshot that was received, whose vnodes are a tree.
#[derive(Debug)]
struct Base {
    fs: FileSystem,
    /// When it was made here.
    txg: Txg,
    sums: Sums,
}

impl Blocks {
    /// The length of the stream.
    pub fn bytes(&self) -> u64 {
        self.receiving.bytes()
    }

    /// Checks that all vnodes are a tree. An increment is compared with what it builds on.
    ///
    /// # Errors
    /// [`Error::Format`]: they are none, or can't be read.
    pub(crate) fn check(&mut self) -> Result<Sums> {
        let changes = self.check_changes();
        self.is_compared = changes.is_some();
        let sums = changes.map_or_else(|| check(&self.fs), Ok)?;
        self.sums = Some(sums);
        Ok(sums)
    }

    /// `None`: the check of all vnodes is to decide.
    fn check_changes(&self) -> Option<Sums> {
        let Base { fs, txg, sums } = self.base.as_ref()?;
        let touched = self.receiving.touched().map(Differences::Touched);
        let found = check_changes(fs, &self.fs, touched.unwrap_or(Differences::Since(*txg)), *sums);
        let found = found.unwrap_or_else(|error| {
            tracing::debug!(error = chain(&error), "what changed can't be checked alone");
            None
        })?;
        if cfg!(debug_assertions) {
            match check(&self.fs) {
                Ok(all) => {
                    assert_eq!((found.blocks, found.vnodes), (all.blocks, all.vnodes));
                    assert!(found.greatest_unique >= all.greatest_unique);
                }
                // A block can't be read.
                Err(crate::Error::FileSystem { .. }) => {}
                Err(error) => panic!("what changed is right, but not all: {error}"),
            }
        }
        Some(found)
    }
}

/// The first word of [`SUMS`]: by which rules the vnodes were checked.
const RULES: &str = "1";

fn sums_to_text(guid: u64, sums: &Sums) -> String {
    format!("{RULES} {guid:016x} {} {} {}", sums.blocks, sums.vnodes, sums.greatest_unique.0)
}

/// The sums of the snapshot with this guid.
fn sums_of_text(text: &str, guid: u64) -> Option<Sums> {
    let mut words = text.split(' ');
    let is_checked = words.next()? == RULES;
    let is_of = u64::from_str_radix(words.next()?, 16).ok()? == guid;
    let blocks = words.next()?.parse().ok()?;
    let vnodes = words.next()?.parse().ok()?;
    let greatest_unique = Unique(words.next()?.parse().ok()?);
    (is_checked && is_of && words.next().is_none()).then_some(Sums { blocks, vnodes, greatest_unique })
}

/// Whether a snapshot is one that was received. Others are an administrator's.
fn is_base(snapshot: &dsl::Dataset) -> bool {
    let name = snapshot.name();
    let number = name.split_once('@').and_then(|(_, name)| name.strip_prefix(BASE));
    number.is_some_and(|number| NUMBERS.contains(&number))
}

/// The first record of a stream, the guid of what the stream builds on, or 0, and its own.
fn begin_of(from: &mut impl Read) -> Result<(Cursor<[u8; RECORD_SIZE]>, u64, u64)> {
    let failed = |error: stream::Error| poolhouse::Error::from(ReceiveError::from(error));
    let (mut first, record, at) = ([0; RECORD_SIZE], 0, 0);
    from.read_exact(&mut first).map_err(|source| failed(stream::Error::Io { record, at, source }))?;
    let found = le64(&first, 8);
    let order = ByteOrder::by_magic(found, BACKUP_MAGIC);
    let order = order.ok_or_else(|| failed(stream::Error::Magic { found }))?;
    match Record::decode(&first, order) {
        Ok(Record::Begin(begin)) => Ok((Cursor::new(first), begin.from_guid, begin.to_guid)),
        Ok(_) => Err(Error::Malformed),
        Err(source) => Err(failed(stream::Error::Record { record, at, source }).into()),
    }
}

fn sent_name(guid: u64) -> String {
    format!("{SENT}{guid:016x}")
}

impl Partition {
    fn reading<T>(&self, look: impl FnMut() -> dsl::Result<T>) -> Result<T> {
        Ok(self.pool.spa().read(look).map_err(poolhouse::Error::from)?)
    }

    /// The received snapshots of a file system, oldest first, and whether it has others.
    fn bases(&self, head: Head) -> Result<(Vec<dsl::Dataset>, bool)> {
        if head.gone.is_none() {
            self.settle_received(head.volume)?;
        }
        self.settled_bases(head)
    }

    fn settled_bases(&self, head: Head) -> Result<(Vec<dsl::Dataset>, bool)> {
        let dataset = self.pool.dataset(&self.head_name(head))?;
        let all = self.reading(|| dataset.dsl().snapshots())?;
        let others = all.iter().any(|snapshot| !is_base(snapshot));
        Ok((all.into_iter().filter(is_base).collect(), others))
    }

    /// Whether the mark of a volume, if it has one, lets it take blocks.
    fn mark_takes_blocks(&self, id: VolumeId) -> Result<bool> {
        self.settle_received(id)?;
        let dataset = self.pool.dataset(&self.name(id))?;
        let mark = self.reading(|| mark_of(dataset.dsl()))?;
        Ok(mark.is_empty() || mark == ITSELF)
    }

    /// What a volume can take as blocks.
    ///
    /// # Errors
    /// [`Error::Pool`]: it can't be read.
    pub fn takes_blocks(&self, id: VolumeId) -> Result<Takes> {
        if !self.mark_takes_blocks(id)? {
            return Ok(Takes::default());
        }
        let dataset = self.pool.dataset(&self.name(id))?;
        let all = self.reading(|| dataset.dsl().snapshots())?;
        let plain =
            self.reading(|| Ok(self.pool.dsl().keys().status(dataset.dsl().dir())? == KeyStatus::None))?;
        let base = all.last().filter(|last| is_base(last));
        let base = base.map(|base| base.phys().guid);
        Ok(Takes { base, whole: plain && all.iter().all(is_base) })
    }

    /// Whether all files of a volume are on disk, and those that it received last, with this guid.
    /// False also if they can't be compared.
    pub fn is_as_received(&self, id: VolumeId, guid: u64) -> bool {
        let compared = self.bases(Head::of(id)).and_then(|(bases, _)| match bases.last() {
            Some(base) if base.phys().guid == guid => self.is_same(id, base),
            _ => Ok(false),
        });
        compared.unwrap_or_else(|error| {
            tracing::debug!(volume = id.0, error = chain(&error), "its files can't be compared");
            false
        })
    }

    /// Whether all files of a volume are on disk, and those of a snapshot.
    fn is_same(&self, id: VolumeId, base: &dsl::Dataset) -> Result<bool> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let object = self.pool.dataset(&self.name(id))?.dsl().object();
        if live.dsl().heads().has_changes(object.0) {
            return Ok(false);
        }
        // Only now: what was opened before may be of an earlier txg.
        let dataset = self.pool.dataset(&self.name(id))?;
        let os = self.reading(|| dataset.dsl().objset())?.ok_or(Error::Malformed)?;
        Ok(is_same_since(&os, base.phys().creation_txg)?)
    }

    /// Whether a clone has the files of what an increment would build on.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Format`]: the clone can't be read.
    pub fn is_same_as(&self, head: Head, id: VolumeId, origin: &Origin) -> Result<bool> {
        let snapshot = self.snapshot(head, id)?;
        let os = self.reading(|| snapshot.objset())?.ok_or(Error::Malformed)?;
        Ok(is_same_since(&os, origin.txg())?)
    }

    /// Gives a volume another header, while its files are closed. It is on disk then.
    ///
    /// # Errors
    /// * [`Error::Base`]: its files are not those that it received, with this guid.
    /// * [`Error::Files`]: it can't be written.
    pub fn keep_blocks(&self, id: VolumeId, base: u64, stored: &Stored) -> Result<()> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let wait = |txg| live.txgs().wait_synced(txg).map_err(poolhouse::Error::from);
        // That of the volume that was just closed may be on its way.
        wait(self.last_header())?;
        let takes = self.takes_blocks(id)?;
        if takes.base != Some(base) || !self.is_as_received(id, base) {
            return Err(Error::Base { volume: id });
        }
        let txg = stored.write(&self.fs(id)?)?;
        self.note_closed(txg);
        Ok(wait(txg)?)
    }

    /// Receives a stream for a volume, beside its contents. `base`: the guid of what the stream
    /// builds on, as [`Self::takes_blocks`] has it. `None`: nothing.
    ///
    /// # Errors
    /// The volume is as before.
    /// * [`Error::Busy`]: it is being changed, or all names of received snapshots are in use.
    /// * [`Error::Base`]: the volume does not take a stream that builds on this.
    /// * [`Error::Pool`]: the stream is damaged, does not fit, or the pool has no space.
    pub fn receive_blocks(&self, id: VolumeId, mut from: impl Read, base: Option<u64>) -> Result<Blocks> {
        if !self.mark_takes_blocks(id)? {
            return Err(Error::Busy { volume: id });
        }
        let takes = self.takes_blocks(id)?;
        let is_offered = if base.is_some() { takes.base == base } else { takes.whole };
        let (first, builds_on, guid) = begin_of(&mut from)?;
        if !is_offered || builds_on != base.unwrap_or(0) {
            return Err(Error::Base { volume: id });
        }
        // By its guid the next increment finds it.
        if guid == 0 || guid == builds_on {
            return Err(Error::Malformed);
        }
        let from = first.chain(from);
        match base {
            // It takes the place of contents without snapshots only.
            None => self.drop_bases(id)?,
            Some(_) => self.drop_old_bases(id),
        }
        let name = self.next_base(id)?;
        let dnodes = Some(zpl::AFS_DNODES);
        let options = ReceiveOptions { name, force: true, dnodes, ..ReceiveOptions::default() };
        let receiving = Receiving::new(self.pool.spa(), from, &options).map_err(poolhouse::Error::from)?;
        let contents = receiving.dataset().map_err(poolhouse::Error::from)?;
        if self.reading(|| contents.redacted_for())?.is_some() {
            return Err(Error::Malformed);
        }
        let base = match base {
            Some(_) => self.checked_base(id, contents.phys().prev_snap_obj)?,
            None => None,
        };
        let os = match receiving.objset().filter(|_| base.is_some() && receiving.touched().is_some()) {
            // The group of the exchange is the first that needs them on disk.
            Some(os) => os.clone(),
            None => {
                let contents = receiving.contents().map_err(poolhouse::Error::from)?;
                self.reading(|| contents.objset())?.ok_or(Error::Malformed)?
            }
        };
        Ok(Blocks { receiving, fs: FileSystem::open(&os)?, guid, base, sums: None, is_compared: false })
    }

    /// The received snapshot of a volume that is this object, which a clone keeps. `None`: it is
    /// not known that its vnodes are a tree.
    fn checked_base(&self, id: VolumeId, object: u64) -> Result<Option<Base>> {
        let (bases, _) = self.bases(Head::of(id))?;
        let Some(base) = bases.into_iter().find(|base| base.object().0 == object) else { return Ok(None) };
        let text = self.reading(|| base.user_property(SUMS))?;
        let sums = text.filter(|found| matches!(found.source, Source::Local)).and_then(|found| {
            let Value::Text(text) = found.value else { return None };
            sums_of_text(&text, base.phys().guid)
        });
        let Some(sums) = sums else { return Ok(None) };
        let fs = self.pool.dataset(&base.name())?.filesystem()?;
        Ok(Some(Base { fs, txg: base.phys().creation_txg, sums }))
    }

    /// The free name of a received snapshot.
    fn next_base(&self, id: VolumeId) -> Result<String> {
        let (bases, _) = self.bases(Head::of(id))?;
        let mut names = NUMBERS.iter().map(|number| format!("{}@{BASE}{number}", self.name(id)));
        names.find(|name| bases.iter().all(|base| base.name() != *name)).ok_or(Error::Busy { volume: id })
    }

    /// Gives a volume the contents that were received, and this header. The caller has closed its
    /// files.
    ///
    /// # Errors
    /// Those of [`Self::exchange_blocks`] and [`Self::finish_received`].
    pub fn switch_to_blocks(&self, id: VolumeId, blocks: Blocks, stored: &Stored) -> Result<()> {
        self.exchange_blocks(id, blocks, stored)?;
        self.finish_received(id)
    }

    /// The first step of [`Self::switch_to_blocks`]: the contents are exchanged, and the header is
    /// a property.
    ///
    /// # Errors
    /// [`Error::Pool`]: the volume is in use, has a later snapshot, or the contents are larger than
    /// its quota. It then has the old ones.
    pub fn exchange_blocks(&self, id: VolumeId, blocks: Blocks, stored: &Stored) -> Result<()> {
        let Blocks { receiving, fs, guid, base, sums, .. } = blocks;
        drop((fs, base));
        let mut props = vec![text(INCOMPLETE, RECEIVED), text(HEADER, hexadecimal(&stored.encode()?))];
        props.extend(sums.map(|sums| text(SUMS, sums_to_text(guid, &sums))));
        {
            // What was refused is queued under that lock.
            self.settle_received(id)?;
            let _mark = self.lock_mark(Head::of(id));
            if !self.mark_takes_blocks(id)? {
                return Err(Error::Busy { volume: id });
            }
            self.note_changes();
            let name = self.name(id);
            let task = Box::new(SetProps { name, props, source: SetAs::Local });
            receiving.finish_with(vec![task]).map_err(poolhouse::Error::from)?;
        }
        self.received.lock().insert(id, Received::Property);
        Ok(())
    }

    /// Puts the header of a volume in place that has received contents. Returns the header when it
    /// is on disk.
    pub(super) fn end_received(&self, id: VolumeId) -> Result<Stored> {
        let stored = self.begin_end(id)?;
        self.settle_received(id)?;
        Ok(stored)
    }

    /// Writes the header of a volume that has received contents, and queues the operations that
    /// make it the only one. Returns the header.
    fn begin_end(&self, id: VolumeId) -> Result<Stored> {
        let name = self.name(id);
        let stored = header_property(&self.pool, &name, id)?;
        stored.write(&self.fs(id)?)?;
        // Before the lock: it may wait for others.
        let (bases, _) = self.bases(Head::of(id))?;
        let pending = self.queue_end(id, &stored, bases)?;
        let (ending, is_complete) = (Arc::new(Mutex::new(Some(pending))), !stored.destroy_me);
        self.received.lock().insert(id, Received::Ending { ending, is_complete });
        Ok(stored)
    }

    /// Queues the operations that leave a volume no header but that in its files.
    fn queue_end(&self, id: VolumeId, stored: &Stored, mut bases: Vec<dsl::Dataset>) -> Result<Pending> {
        let name = self.name(id);
        let inherit = |property: &str| -> Task {
            let (name, property) = (name.clone(), property.to_owned());
            Box::new(InheritProp { name, property, received: false })
        };
        let mark: Task = match stored.destroy_me {
            true => {
                let props = vec![text(INCOMPLETE, ITSELF)];
                Box::new(SetProps { name: name.clone(), props, source: SetAs::Local })
            }
            false => inherit(INCOMPLETE),
        };
        let mut tasks = vec![mark, inherit(HEADER), inherit(SUMS)];
        tasks.extend(self.note_sums(id, bases.last())?);
        if stored.header.kind == VolumeType::ReadOnly {
            bases.pop();
        }
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let _mark = self.lock_mark(Head::of(id));
        tasks.extend(bases.iter().map(|base| self.end_of(base.name())));
        self.note_changes();
        Ok(live.queue_in_order(tasks).map_err(poolhouse::Error::from)?)
    }

    /// Waits until a volume has no other header than that in its files, if it is about to. All that
    /// changes or reads marks of such a volume calls this before.
    ///
    /// # Errors
    /// [`Error::Pool`]: the pool refuses that, or has stopped. The next call tries it again.
    pub fn settle_received(&self, id: VolumeId) -> Result<()> {
        let ending = || match self.received.lock().get(&id) {
            Some(Received::Ending { ending, .. }) => Some(Arc::clone(ending)),
            _ => None,
        };
        let Some(known) = ending() else { return Ok(()) };
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let mut pending = known.lock();
        if !ending().is_some_and(|now| Arc::ptr_eq(&now, &known)) {
            // Another thread has waited.
            return Ok(());
        }
        let queued = match pending.take() {
            Some(queued) => queued,
            None if self.is_marked_received(id)? => {
                let stored = header_property(&self.pool, &self.name(id), id)?;
                self.queue_end(id, &stored, self.settled_bases(Head::of(id))?.0)?
            }
            None => Pending::default(),
        };
        if let Err(error) = live.finish(queued) {
            // The first operation makes the volume complete. The others keep space, and nothing
            // else.
            if self.is_marked_received(id).unwrap_or(true) {
                return Err(poolhouse::Error::from(error).into());
            }
            tracing::warn!(volume = id.0, error = chain(&error), "old snapshots of a release stay");
        }
        self.received.lock().remove(&id);
        Ok(())
    }

    /// Forgets the operations that are on disk, so that the next use of their volumes needs no
    /// look. It waits for none.
    pub fn note_settled(&self) {
        let Some(live) = self.pool.spa().writer() else { return };
        self.settle_those(|ending| {
            let pending = ending.try_lock();
            pending.is_some_and(|pending| pending.as_ref().is_some_and(|it| live.is_finished(it)))
        });
    }

    /// Waits as [`Self::settle_received`] does, for all volumes.
    pub fn settle_all_received(&self) {
        self.settle_those(|_| true);
    }

    fn settle_those(&self, is_chosen: impl Fn(&Mutex<Option<Pending>>) -> bool) {
        let chosen = |(id, state): (&VolumeId, &Received)| match state {
            Received::Ending { ending, .. } => is_chosen(ending).then_some(*id),
            Received::Property => None,
        };
        let all: Vec<VolumeId> = self.received.lock().iter().filter_map(chosen).collect();
        for id in all {
            if let Err(error) = self.settle_received(id) {
                let error = chain(&error);
                tracing::error!(volume = id.0, error, "the header of what was received is not in place yet");
            }
        }
    }

    /// Whether a volume is complete as soon as its header is in place, which it is about to be.
    pub(super) fn is_about_to_be_complete(&self, id: VolumeId) -> bool {
        matches!(self.received.lock().get(&id), Some(Received::Ending { is_complete: true, .. }))
    }

    fn is_marked_received(&self, id: VolumeId) -> Result<bool> {
        let dataset = self.pool.dataset(&self.name(id))?;
        Ok(self.reading(|| mark_of(dataset.dsl()))? == RECEIVED)
    }

    /// Moves the sums of what a volume received to the snapshot that has it, the last one.
    fn note_sums(&self, id: VolumeId, last: Option<&dsl::Dataset>) -> Result<Option<Task>> {
        let dataset = self.pool.dataset(&self.name(id))?;
        let found = user_text(&self.pool, dataset.dsl(), SUMS).map_err(poolhouse::Error::from)?;
        let Some((sums, base)) = found.zip(last) else { return Ok(None) };
        if sums_of_text(&sums, base.phys().guid).is_none() {
            return Ok(None);
        }
        let props = vec![text(SUMS, sums)];
        Ok(Some(Box::new(SetProps { name: base.name(), props, source: SetAs::Local })))
    }

    /// Puts the header of received contents in place, if it is not yet. The caller is to open the
    /// files.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Files`]: it can't be read or put in place.
    pub fn finish_received(&self, id: VolumeId) -> Result<()> {
        let is_pending = matches!(self.received.lock().get(&id), Some(Received::Property));
        if !is_pending {
            return Ok(());
        }
        let stored = self.begin_end(id)?;
        // Others may get a clone, whose mark is the same property.
        if stored.header.kind == VolumeType::ReadOnly { Ok(()) } else { self.settle_received(id) }
    }

    /// The header of received contents that is not in place yet.
    pub(super) fn received_header(&self, id: VolumeId) -> Result<Option<Stored>> {
        let is_pending = || self.received.lock().contains_key(&id);
        if !is_pending() {
            return Ok(None);
        }
        let found = header_property(&self.pool, &self.name(id), id);
        if found.is_err() {
            // The group that removes it is being written.
            self.settle_received(id)?;
        }
        match found {
            Err(_) if !is_pending() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Forgets what a volume received. It keeps its contents.
    ///
    /// # Errors
    /// [`Error::Pool`]: a snapshot is in use. The others are gone.
    pub fn drop_bases(&self, id: VolumeId) -> Result<()> {
        self.destroy_bases(&self.bases(Head::of(id))?.0)
    }

    /// Forgets what a volume received before the last time. A snapshot that is in use stays.
    fn drop_old_bases(&self, id: VolumeId) {
        let done = self.bases(Head::of(id)).and_then(|(mut bases, _)| {
            bases.pop();
            self.destroy_bases(&bases)
        });
        if let Err(error) = done {
            tracing::warn!(volume = id.0, error = chain(&error), "an old snapshot of a release stays");
        }
    }

    /// Destroys those of these snapshots that can be. Returns the first error.
    fn destroy_bases(&self, bases: &[dsl::Dataset]) -> Result<()> {
        let all: Vec<_> = bases.iter().map(|base| self.destroy_snapshot(base.name())).collect();
        all.into_iter().collect()
    }

    /// The bookmarks of what was sent of a file system, oldest first.
    fn sent(&self, head: Head) -> Result<Vec<dsl::Bookmark>> {
        let dataset = self.pool.dataset(&self.head_name(head))?;
        let mut all = self.reading(|| dataset.dsl().bookmarks())?;
        // Others are an administrator's.
        all.retain(|bookmark| bookmark.name == sent_name(bookmark.phys.guid));
        all.sort_by_key(|bookmark| bookmark.phys.creation_txg);
        Ok(all)
    }

    fn drop_sent(&self, head: Head) -> Result<()> {
        let sent = self.sent(head)?;
        if sent.is_empty() {
            return Ok(());
        }
        let names = sent.iter().map(|sent| format!("{}#{}", self.head_name(head), sent.name)).collect();
        self.run(vec![Box::new(DestroyBookmarks { names })])
    }

    /// Forgets what was sent and received of a file system whose past ends.
    pub(super) fn drop_blocks(&self, head: Head) -> Result<()> {
        self.drop_sent(head)?;
        if let Err(error) = self.drop_former(head) {
            tracing::warn!(volume = head.volume.0, error = chain(&error), "a former snapshot stays");
        }
        if head.gone.is_none() { self.drop_bases(head.volume) } else { Ok(()) }
    }

    /// The snapshot that is a clone.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone.
    pub fn snapshot(&self, head: Head, id: VolumeId) -> Result<dsl::Dataset> {
        Ok(self.pool.dataset(&self.snapshot_name(head, id))?.dsl().clone())
    }

    /// What an increment of a clone builds on, at a volume that has the snapshot with this guid.
    /// `None`: it is not known here. A snapshot can't be destroyed while its hold is there.
    ///
    /// # Errors
    /// [`Error::Pool`]: the file system can't be read.
    pub fn origin(&self, head: Head, id: VolumeId, guid: u64) -> Result<Option<(Origin, Option<LongHold>)>> {
        let mut hold = None;
        let (snapshot, dataset) = (self.snapshot(head, id)?, self.pool.dataset(&self.head_name(head))?);
        let dataset = dataset.dsl();
        let older = self.reading(|| dataset.snapshots())?;
        let found = match older.iter().find(|older| older.phys().guid == guid) {
            Some(older) => {
                let heads = self.pool.spa().writer().map(|live| live.dsl().heads());
                hold = heads.map(|heads| heads.long_hold(older.object().0));
                Origin::of_snapshot(&snapshot, older)
            }
            None => match self.sent(head)?.iter().find(|sent| sent.phys.guid == guid) {
                Some(sent) => Origin::of_bookmark(&snapshot, dataset, &sent.phys),
                None => return Ok(None),
            },
        };
        match found {
            Ok(origin) if origin.redaction_list().is_some() => Ok(None),
            Ok(origin) => Ok(Some((origin, hold))),
            Err(SendError::NotEarlier) => Ok(None),
            Err(error) => Err(poolhouse::Error::from(error).into()),
        }
    }

    /// Forgets that a clone was not sent: it was, or there is no clone of this number any more. The
    /// end of a clone that was sent leaves a bookmark, so that the next one can be an increment.
    pub fn forget_unsent(&self, id: VolumeId) {
        self.unsent.lock().remove(&id);
    }

    /// Notes that a clone was made, which was not sent yet.
    pub(super) fn note_unsent(&self, id: VolumeId) {
        self.unsent.lock().insert(id);
    }

    /// Whether a clone may have been sent. Only memory knows what was not. So a clone from before
    /// the start of the server counts as sent.
    pub(super) fn was_sent(&self, head: Head, id: VolumeId) -> Result<bool> {
        if head.gone.is_some() || self.unsent.lock().contains(&id) {
            return Ok(false);
        }
        // Backup volumes are not sent.
        Ok(self.clone_header(head, id)?.header.kind == VolumeType::ReadOnly)
    }

    /// The bookmark that the end of a clone leaves, with its operations. `None`: it needs none.
    fn bookmark_of(&self, head: Head, id: VolumeId) -> Result<Option<(String, Vec<Task>)>> {
        if !self.was_sent(head, id)? {
            return Ok(None);
        }
        let name = sent_name(self.snapshot(head, id)?.phys().guid);
        let mut sent = self.sent(head)?;
        if sent.iter().any(|sent| sent.name == name) {
            return Ok(None);
        }
        let full = |name: &str| format!("{}#{name}", self.head_name(head));
        let pairs = vec![(full(&name), self.snapshot_name(head, id))];
        let old = sent.drain(..(sent.len() + 1).saturating_sub(MOST_SENT));
        let names = old.map(|sent| full(&sent.name)).collect();
        Ok(Some((name, vec![Box::new(CreateBookmarks { pairs }), Box::new(DestroyBookmarks { names })])))
    }

    /// Runs the operations that end a clone, behind those for its bookmark. They are run without
    /// these if the pool can't have the bookmark.
    pub(super) fn run_end_of_clone(
        &self,
        head: Head,
        id: VolumeId,
        tasks: impl Fn() -> Result<Vec<Task>>,
    ) -> Result<()> {
        let bookmark = self.bookmark_of(head, id).unwrap_or_else(|error| {
            tracing::warn!(volume = id.0, error = chain(&error), "{NO_BOOKMARK}");
            None
        });
        if let Some((name, mut all)) = bookmark {
            all.extend(tasks()?);
            let Err(error) = self.run(all) else { return Ok(()) };
            if self.sent(head)?.iter().any(|sent| sent.name == name) {
                return Err(error);
            }
            tracing::warn!(volume = id.0, error = chain(&error), "{NO_BOOKMARK}");
        }
        self.run(tasks()?)
    }
}

#[cfg(test)]
mod tests;
