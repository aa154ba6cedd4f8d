//! Partitions: file systems of a pool whose children are volumes.
//!
//! # On disk
//! | what | where |
//! | --- | --- |
//! | partition `/vicepa` | a file system with the property [`PARTITION`] |
//! | a volume with files of its own | the child `PARTITION/ID` |
//! | a clone at its read-write volume's site | the snapshot `PARTITION/RWID@ID` |
//! | a clone whose read-write volume is gone | the snapshot `PARTITION/RWID.clones-N@ID` |
//! | the header of a volume | an object of its own ([`crate::volume::header`]) |
//! | the header of a clone | the property [`HEADER`] of its snapshot, in hexadecimal |
//! | the name of a volume or clone | the property [`NAME`], for `zfs list` |
//! | a volume that is not complete: it goes at the next start | the property [`INCOMPLETE`]: `on` |
//! | clones that may be incomplete | the same property of their file system, with their numbers |
//! | a restore that runs | the snapshot `PARTITION/ID@before-restore`, and a hidden clone of it |
//! | a volume with a new number, whose header is not in place | [`INCOMPLETE`]: `header` |
//! | that header | the property [`HEADER`] |
//! | what travels as blocks | [`blocks`] |
//! | whether a server uses the partition, and how often it crashed | the property [`STATE`] |
//! | the list of its volumes, for the next start | a file in the child `volume-table` |
//!
//! # Crash
//! An operation of several steps does them in an order that [`Partition::clean`] can finish or undo
//! when the partition is opened next. A volume is marked until it is complete, so a crash between
//! the calls of `vos` leaves nothing.

mod beside;
mod blocks;
mod clones;
mod entry;
mod former;
mod headers;
mod hexadecimal;
mod identity;
mod kept;
mod left;
mod log;
mod offline;
mod restoring;
mod scan;
mod state;

pub use beside::Beside;
pub use blocks::{Blocks, Takes};
pub use headers::Headers;
pub use identity::Identity;
pub use left::{Contents, Failures, Left};
pub use offline::{Offline, OnDisk, partitions};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dsl::keys::KeyHold;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::props::{InheritProp, SetAs, SetProps};
use dsl::ops::rename::{Rename, RenameSnapshot};
use dsl::ops::rollback::Rollback;
use dsl::{LongHold, Setting, Source, SyncTask, Value};
use observe::lock::{Mutex, MutexGuard};
use ondisk::Txg;
use poolhouse::Pool;
use poolhouse::spa::engine::Pending;
use zpl::{FileSystem, Policies, Policy};

use super::header::Stored;
use super::{Error, Result, chain};
use crate::partition::PartitionId;
use crate::types::VolumeId;
use crate::volume::new_volume;
use beside::Others;
use blocks::Received;
use former::TimeOut;
use hexadecimal::{from_hexadecimal, hexadecimal};
use kept::List;
pub(super) use left::of_name;
use left::{clone_of, clones_in, mark_of};
use state::State;

/// The property that makes a file system a partition. Its value is the partition's letters.
pub const PARTITION: &str = "poolhouse:vicep";
/// The property with the name of a volume.
pub const NAME: &str = "poolhouse:volume";
/// The property with the header of a clone.
const HEADER: &str = "poolhouse:volume-header";
/// The property of a volume that is not complete yet, or that has such clones.
const INCOMPLETE: &str = "poolhouse:volume-incomplete";
/// The value for the volume itself. Otherwise the value is [`PENDING`], or the numbers of clones.
const ITSELF: &str = "on";
/// The value for a volume whose header is in the property [`HEADER`].
const PENDING: &str = "header";
/// What follows the number of a volume in the name of a file system that has only clones of it.
const CLONES: &str = ".clones-";
/// Most file systems with clones of one volume that is gone.
const MOST_GONE: u32 = 1000;
/// What follows the number of a clone that is to take the place of another.
const NEW: &str = ".new";
/// The snapshot of a volume that a restore begins with.
const BEFORE_RESTORE: &str = "before-restore";
/// The property with the state of the server ([`state`]).
const STATE: &str = "poolhouse:vicep-state";
/// The value of `canmount=off`.
const CANMOUNT_OFF: u64 = 0;
/// The value of `sync=disabled`.
const SYNC_DISABLED: u64 = 2;
/// The value of `canmount=noauto`: the file server has the volume, so it is mounted on request
/// only.
const CANMOUNT_NOAUTO: u64 = 2;

/// Parts of the file systems of a partition whose marks can change at the same time.
const MARKS: usize = 64;

/// An operation on datasets.
type Task = Box<dyn SyncTask + Send>;

/// A partition of a server.
#[derive(Debug)]
pub struct Partition {
    /// Its number.
    pub id: PartitionId,
    pool: Pool,
    dataset: String,
    /// What the last server has left.
    before: State,
    /// The nonce of the end of this use.
    nonce: u64,
    /// Held from the reading of a file system's mark to the change of it.
    marks: [Mutex<()>; MARKS],
    others: Others,
    /// Clones that this server made and did not send.
    unsent: Mutex<BTreeSet<VolumeId>>,
    /// Volumes whose former snapshot is to go after a while.
    formers: Mutex<BTreeMap<VolumeId, TimeOut>>,
    /// Volumes with received contents whose headers are not in place.
    received: Mutex<BTreeMap<VolumeId, Received>>,
    /// Marks of [`Partition::mark_incomplete`] that may still be queued.
    marking: Mutex<BTreeMap<VolumeId, Pending>>,
    /// The last txg in which the header of a volume was written that was closed since.
    closed: AtomicU64,
    /// The list of its volumes, until its use ends. `None`: it can't be kept.
    list: Mutex<Option<Arc<List>>>,
    /// Keeps its key loaded. `None`: it is not encrypted, or not served any more.
    key: Mutex<Option<KeyHold>>,
}

/// A file system of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Head {
    /// The volume that it is or was.
    pub volume: VolumeId,
    /// The volume is gone, and the file system has only its clones. The number tells such ones
    /// apart.
    pub gone: Option<u32>,
}

impl Head {
    /// The file system of a volume.
    pub fn of(volume: VolumeId) -> Self {
        Self { volume, gone: None }
    }

    /// The file system with this name in its partition.
    fn parse(name: &str) -> Option<Self> {
        let id = |text: &str| text.parse().ok().filter(|id| *id != 0).map(VolumeId);
        let head = match name.split_once(CLONES) {
            None => id(name).map(Self::of),
            Some((volume, number)) => {
                let number = number.parse().ok().filter(|number| *number < u32::MAX)?;
                Some(Self { volume: id(volume)?, gone: Some(number) })
            }
        };
        // "007" is another file system than "7".
        head.filter(|head| head.to_string() == name)
    }
}

/// Whether a child of a partition with this name is a volume, or has clones of one that is gone.
pub fn is_volume_name(child: &str) -> bool {
    Head::parse(child).is_some()
}

impl std::fmt::Display for Head {
    /// Its name in the partition.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.gone {
            None => write!(f, "{}", self.volume),
            Some(number) => write!(f, "{}{CLONES}{number}", self.volume),
        }
    }
}

/// A volume or clone of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A file system.
    Dataset(VolumeId),
    /// A snapshot, and the volume whose file system has it.
    Snapshot {
        /// The clone.
        id: VolumeId,
        /// Its file system.
        head: Head,
    },
}

impl Found {
    /// Its number.
    pub fn id(self) -> VolumeId {
        match self {
            Self::Dataset(id) | Self::Snapshot { id, .. } => id,
        }
    }

    /// The file system that has it.
    pub fn head(self) -> Head {
        match self {
            Self::Dataset(id) => Head::of(id),
            Self::Snapshot { head, .. } => head,
        }
    }
}

/// Space of a partition in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What is free.
    pub free: u64,
}

/// Seconds since 1970, and nanoseconds.
fn now() -> (u64, u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs(), now.subsec_nanos().into())
}

fn text(name: &str, value: impl Into<String>) -> Setting {
    Setting { name: name.to_owned(), value: Value::Text(value.into()) }
}

fn shown(stored: &Stored) -> Setting {
    text(NAME, String::from_utf8_lossy(&stored.header.name))
}

/// A user property that is a text.
fn user_text(pool: &Pool, dataset: &dsl::Dataset, name: &str) -> dsl::Result<Option<String>> {
    let property = pool.spa().read(|| dataset.user_property(name))?;
    Ok(property.and_then(|property| match property.value {
        Value::Text(text) => Some(text),
        Value::Number(_) => None,
    }))
}

/// The header in the property [`HEADER`] of a dataset.
fn header_property(pool: &Pool, name: &str, id: VolumeId) -> Result<Stored> {
    let dataset = pool.dataset(name)?;
    // A snapshot without a header has that of its file system, by inheritance.
    let is_own = |found: &dsl::Property| matches!(found.source, Source::Local | Source::Received);
    let property = pool.spa().read(|| dataset.dsl().user_property(HEADER)).map_err(poolhouse::Error::from)?;
    let bytes = property.filter(is_own).and_then(|property| match property.value {
        Value::Text(text) => from_hexadecimal(&text),
        Value::Number(_) => None,
    });
    Stored::decode(&bytes.ok_or(Error::Header { volume: id })?)
}

impl Partition {
    /// A partition that is a file system of a pool, for a server that starts.
    ///
    /// It is marked as in use. If it is already, the last server crashed. Its key stays loaded
    /// until [`Self::end`].
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such dataset, its key is not loaded, or it can't be marked.
    pub fn begin(id: PartitionId, pool: Pool, dataset: &str) -> Result<Arc<Self>> {
        let found = pool.dataset(dataset)?;
        let hold = || pool.dsl().keys().hold(found.dsl().dir());
        let key = Mutex::new(pool.spa().read(hold).map_err(poolhouse::Error::from)?);
        let state = user_text(&pool, found.dsl(), STATE).map_err(poolhouse::Error::from)?;
        let before = State::parse(state.as_deref());
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|_| Error::Random)?;
        let nonce = u64::from_ne_bytes(nonce);
        let marks = std::array::from_fn(|_| Mutex::default());
        let (others, unsent, formers, received, marking) = Default::default();
        let (dataset, closed, list) = (dataset.to_owned(), AtomicU64::new(0), Mutex::default());
        let partition = Self {
            id,
            pool,
            dataset,
            before,
            nonce,
            marks,
            others,
            unsent,
            formers,
            received,
            marking,
            closed,
            list,
            key,
        };
        partition.mark(state::running(before.crashes))?;
        match List::open(&partition) {
            Ok(list) => *partition.list.lock() = Some(Arc::new(list)),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(partition = %id, error, "no list of volumes is kept: starts take longer");
            }
        }
        Ok(Arc::new(partition))
    }

    /// Has `beside` notified of what happens to datasets. Only the first call has an effect.
    pub fn tell(&self, beside: Box<dyn Beside>) {
        self.others.set(beside);
    }

    /// Ends the use of the partition. The caller has closed all volumes.
    ///
    /// # Errors
    /// [`Error::Pool`]: it can't be marked.
    pub fn end(&self) -> Result<()> {
        self.settle_all_received();
        self.queue_drop_formers(Duration::ZERO, |_| false);
        self.end_list();
        self.mark(state::stopped(self.before.crashes, self.nonce))?;
        *self.key.lock() = None;
        Ok(())
    }

    fn mark(&self, state: String) -> Result<()> {
        let props = vec![text(STATE, state)];
        self.run(vec![Box::new(SetProps { name: self.dataset.clone(), props, source: SetAs::Local })])
    }

    /// Whether the pool waits for its devices, so that a change would wait too.
    pub(super) fn is_stuck(&self) -> bool {
        self.pool.spa().writer().is_some_and(|live| live.suspended().is_some())
    }

    /// How often a server of the partition has crashed.
    pub fn crashes(&self) -> u32 {
        self.before.crashes
    }

    /// The name of its file system.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn name(&self, id: VolumeId) -> String {
        self.head_name(Head::of(id))
    }

    fn head_name(&self, head: Head) -> String {
        format!("{}/{head}", self.dataset)
    }

    fn snapshot_name(&self, head: Head, id: VolumeId) -> String {
        format!("{}/{head}@{id}", self.dataset)
    }

    /// Runs operations in one transaction group, until one is refused.
    fn run(&self, tasks: Vec<Task>) -> Result<()> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        self.note_changes();
        Ok(live.run_in_order(tasks).map_err(poolhouse::Error::from)?)
    }

    fn new_name(&self, head: Head, id: VolumeId) -> String {
        format!("{}/{head}@{id}{NEW}", self.dataset)
    }

    /// Notes that the list of volumes may change.
    fn note_changes(&self) {
        self.list().iter().for_each(|list| _ = list.changes.fetch_add(1, Ordering::AcqRel));
    }

    /// The operation that destroys a snapshot.
    fn end_of(&self, name: String) -> Task {
        self.others.end(&name);
        Box::new(DestroySnapshots { names: vec![name], defer: false })
    }

    fn destroy_snapshot(&self, name: String) -> Result<()> {
        self.run(vec![self.end_of(name)])
    }

    fn destroy_head(&self, name: String) -> Result<()> {
        self.others.end(&name);
        self.run(vec![Box::new(DestroyHead { name })])
    }

    /// The operation that gives a new clone the number of the one that it replaces.
    fn renamed_new(&self, head: Head, id: VolumeId) -> RenameSnapshot {
        let (old, new) = (format!("{id}{NEW}"), id.to_string());
        RenameSnapshot { dataset: self.head_name(head), old, new, recursive: false }
    }

    fn rename_new(&self, head: Head, id: VolumeId) -> Result<()> {
        self.run(vec![Box::new(self.renamed_new(head, id))])
    }

    /// Makes a volume, with the files of a new one.
    ///
    /// # Errors
    /// [`Error::Pool`]: it exists, or the pool has no space.
    pub fn create(&self, id: VolumeId, stored: &Stored) -> Result<()> {
        let canmount = Setting { name: "canmount".to_owned(), value: Value::Number(CANMOUNT_NOAUTO) };
        let mark = stored.destroy_me.then(|| text(INCOMPLETE, ITSELF));
        self.run(vec![Box::new(Create {
            name: self.name(id),
            contents: Arc::new(new_volume(now(), stored.encode()?)),
            props: [Some(canmount), mark, Some(shown(stored))].into_iter().flatten().collect(),
            crypt: None,
            enforce_limits: true,
        })])
    }

    /// Sets the name that `zfs list` shows of a volume, if a header is given, and with
    /// `is_complete` notes that the volume stays when the server starts again.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such volume.
    pub fn finish(&self, id: VolumeId, named: Option<&Stored>, is_complete: bool) -> Result<()> {
        if named.is_none() && is_complete && self.is_about_to_be_complete(id) {
            return Ok(());
        }
        self.settle_received(id)?;
        let name = self.name(id);
        let mut tasks: Vec<Task> = Vec::new();
        if let Some(stored) = named {
            let props = vec![shown(stored)];
            tasks.push(Box::new(SetProps { name: name.clone(), props, source: SetAs::Local }));
        }
        if is_complete {
            self.settle_mark(id)?;
            let dataset = self.pool.dataset(&name)?;
            let mark = self.pool.spa().read(|| mark_of(dataset.dsl())).map_err(poolhouse::Error::from)?;
            if mark == ITSELF {
                tasks.push(Box::new(InheritProp { name, property: INCOMPLETE.to_owned(), received: false }));
            }
        }
        self.run(tasks)
    }

    /// Has a complete volume go at the next start, unless it is completed again. The mark is on
    /// disk not later than what the volume's files get after this.
    ///
    /// # Errors
    /// [`Error::Pool`]: the pool has stopped.
    pub fn mark_incomplete(&self, id: VolumeId) -> Result<()> {
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        let (name, props) = (self.name(id), vec![text(INCOMPLETE, ITSELF)]);
        self.note_changes();
        let task: Task = Box::new(SetProps { name, props, source: SetAs::Local });
        let mut marking = self.marking.lock();
        marking.insert(id, live.queue_in_order(vec![task]).map_err(poolhouse::Error::from)?);
        Ok(())
    }

    /// Waits until the mark of [`Self::mark_incomplete`] is there, so that it can be removed.
    fn settle_mark(&self, id: VolumeId) -> Result<()> {
        let Some(queued) = self.marking.lock().remove(&id) else { return Ok(()) };
        let live = self.pool.spa().writer().ok_or(poolhouse::Error::ReadOnly)?;
        Ok(live.finish(queued).map_err(poolhouse::Error::from)?)
    }

    /// Keeps others from changing the mark of a file system. Held until the change is done.
    fn lock_mark(&self, head: Head) -> MutexGuard<'_, ()> {
        self.marks[head.volume.0 as usize % MARKS].lock()
    }

    fn unmark_clone(&self, head: Head, id: VolumeId) -> Result<()> {
        let _mark = self.lock_mark(head);
        match self.mark_clone(head, id, false)? {
            Some(task) => self.run(vec![task]),
            None => Ok(()),
        }
    }

    /// The change of the mark of a file system that a clone of it may be incomplete. `None`: the
    /// mark is right already.
    ///
    /// The caller has locked the mark, so that of two changes at once none is lost.
    fn mark_clone(&self, head: Head, id: VolumeId, is_incomplete: bool) -> Result<Option<Task>> {
        let name = self.head_name(head);
        let dataset = self.pool.dataset(&name)?;
        let found = self.pool.spa().read(|| mark_of(dataset.dsl())).map_err(poolhouse::Error::from)?;
        let mut clones: Vec<VolumeId> = clones_in(&found).collect();
        if clones.contains(&id) == is_incomplete {
            return Ok(None);
        }
        clones.retain(|clone| *clone != id);
        clones.extend(is_incomplete.then_some(id));
        if clones.is_empty() {
            return Ok(Some(Box::new(InheritProp {
                name,
                property: INCOMPLETE.to_owned(),
                received: false,
            })));
        }
        let clones: Vec<String> = clones.iter().map(ToString::to_string).collect();
        let props = vec![text(INCOMPLETE, clones.join(" "))];
        Ok(Some(Box::new(SetProps { name, props, source: SetAs::Local })))
    }

    /// Opens the files of a volume, for changes. No other user can have them meanwhile.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such volume, or it is in use.
    pub fn fs(&self, id: VolumeId) -> Result<FileSystem> {
        self.files(&self.name(id))
    }

    fn files(&self, name: &str) -> Result<FileSystem> {
        let dataset = self.pool.dataset(name)?;
        let policy = Policy::of(dataset.dsl()).map_err(poolhouse::Error::from)?;
        self.pool.follow_cache(dataset.dsl())?;
        dataset.dsl().dir().let_go_of_properties();
        Ok(self.pool.open_for_writing(dataset.dsl(), Policies::new(policy))?)
    }

    /// Opens the files of a clone, which can't be destroyed meanwhile.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone.
    pub fn clone_fs(&self, head: Head, id: VolumeId) -> Result<(FileSystem, Option<LongHold>)> {
        let dataset = self.pool.dataset(&self.snapshot_name(head, id))?;
        let heads = self.pool.spa().writer().map(|live| live.dsl().heads());
        let hold = heads.map(|heads| heads.long_hold(dataset.dsl().object().0));
        self.pool.follow_cache(dataset.dsl())?;
        Ok((dataset.filesystem()?, hold))
    }

    /// Notes that a volume was closed whose header was last written in this txg.
    pub(super) fn note_closed(&self, txg: Txg) {
        self.closed.fetch_max(txg.0, Ordering::AcqRel);
    }

    /// When the headers of closed volumes were written last.
    fn last_header(&self) -> Txg {
        Txg(self.closed.load(Ordering::Acquire))
    }

    /// Destroys a volume. If clones of it stay, their file system gets another name, and keeps no
    /// space beyond that of the newest one. Returns that file system.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such volume, or it is in use.
    pub fn destroy(&self, id: VolumeId) -> Result<Option<Head>> {
        let gone = self.destroy_files(id)?;
        self.received.lock().remove(&id);
        self.marking.lock().remove(&id);
        Ok(gone)
    }

    fn destroy_files(&self, id: VolumeId) -> Result<Option<Head>> {
        let name = self.name(id);
        self.end_restore(id)?;
        self.drop_blocks(Head::of(id))?;
        let dataset = self.pool.dataset(&name)?;
        let all = || Ok::<_, dsl::Error>(dataset.dsl().snapshots()?.iter().map(dsl::Dataset::name).collect());
        let mut names: Vec<String> = self.pool.spa().read(all).map_err(poolhouse::Error::from)?;
        // Snapshots of an administrator keep the files too.
        let Some(newest) = names.pop() else { return self.destroy_head(name).map(|()| None) };
        self.others.end(&name);
        let free = |number: &u32| {
            let head = Head { volume: id, gone: Some(*number) };
            self.pool.dataset(&self.head_name(head)).is_err()
        };
        let Some(number) = (1..MOST_GONE).find(free) else { return Err(Error::Busy { volume: id }) };
        let head = Head { volume: id, gone: Some(number) };
        let new = self.head_name(head);
        let to = newest.split_once('@').map(|(_, snapshot)| format!("{new}@{snapshot}"));
        // The name first: a volume that was rolled back is not served again.
        let rename = |old: &str, new: &str| -> Task {
            Box::new(Rename { old: old.to_owned(), new: new.to_owned(), enforce_limits: false })
        };
        let gone = self.run(vec![rename(&name, &new), Box::new(Rollback { name: new.clone(), to })]);
        if let Err(error) = gone {
            if self.pool.dataset(&name).is_err() {
                self.run(vec![rename(&new, &name)])?;
            }
            return Err(error);
        }
        self.others.rename(&name, &new);
        Ok(Some(head))
    }

    /// Gives a volume another number and header. A clone of the old number ends.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such volume, it is in use, or the new number exists.
    pub fn rename(&self, old: VolumeId, new: VolumeId, stored: &Stored) -> Result<()> {
        self.drop_bases(old)?;
        self.change_number(self.name(old), new, stored)
    }

    /// Makes a volume of the file system whose volume is gone, as its newest clone has it. That
    /// clone ends, which the header names as the last one.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone, it is in use or not the newest, or the volume
    /// exists.
    pub fn revive(&self, head: Head, clone: VolumeId, stored: &Stored) -> Result<()> {
        self.drop_blocks(head)?;
        let (old, to) = (self.head_name(head), Some(self.snapshot_name(head, clone)));
        self.run(vec![Box::new(Rollback { name: old.clone(), to })])?;
        self.change_number(old, head.volume, stored)?;
        self.forget_unsent(clone);
        Ok(())
    }

    /// Makes a file system the volume of its new header. Each step is refused rather than
    /// half-made, and the next one needs it. From the rename on, the next start goes on after a
    /// crash.
    fn change_number(&self, old: String, id: VolumeId, stored: &Stored) -> Result<()> {
        let props = vec![text(INCOMPLETE, PENDING), text(HEADER, hexadecimal(&stored.encode()?))];
        self.run(vec![Box::new(SetProps { name: old.clone(), props, source: SetAs::Local })])?;
        self.others.end(&old);
        let renamed = Rename { old: old.clone(), new: self.name(id), enforce_limits: false };
        if let Err(error) = self.run(vec![Box::new(renamed)]) {
            let _ = self.run(self.no_pending(&old));
            return Err(error);
        }
        self.others.rename(&old, &self.name(id));
        self.end_change_of_number(id).map(drop)
    }

    fn no_pending(&self, name: &str) -> Vec<Task> {
        let inherit = |property: &str| -> Task {
            let (name, property) = (name.to_owned(), property.to_owned());
            Box::new(InheritProp { name, property, received: false })
        };
        vec![inherit(INCOMPLETE), inherit(HEADER)]
    }

    /// Ends [`Self::change_number`]. Returns the clone that the volume was.
    fn end_change_of_number(&self, id: VolumeId) -> Result<VolumeId> {
        let stored = header_property(&self.pool, &self.name(id), id)?;
        let clone = stored.header.clone;
        let mut tasks = self.no_pending(&self.name(id));
        // Otherwise it was not renamed.
        if stored.header.id == id {
            stored.write(&self.fs(id)?)?;
            let names = vec![self.snapshot_name(Head::of(id), clone)];
            self.others.end(&names[0]);
            tasks.push(Box::new(DestroySnapshots { names, defer: false }));
            let props = vec![shown(&stored)];
            tasks.push(Box::new(SetProps { name: self.name(id), props, source: SetAs::Local }));
        }
        self.run(tasks)?;
        Ok(clone)
    }

    /// Makes a volume of its own of the newest clone of a volume that is gone. It has the header of
    /// the clone. Older clones of that file system are then clones of it.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such clone, or it is in use or not the newest.
    pub fn detach(&self, head: Head, clone: VolumeId) -> Result<()> {
        self.drop_blocks(head)?;
        let (old, new) = (self.head_name(head), self.name(clone));
        let to = Some(self.snapshot_name(head, clone));
        self.run(vec![Box::new(Rollback { name: old.clone(), to })])?;
        self.run(vec![Box::new(Rename { old: old.clone(), new: new.clone(), enforce_limits: false })])?;
        self.others.rename(&old, &new);
        self.forget_unsent(clone);
        self.end_detach(clone)
    }

    /// Ends [`Self::detach`]. The header is there as long as the snapshot is.
    fn end_detach(&self, id: VolumeId) -> Result<()> {
        let stored = self.clone_header(Head::of(id), id)?;
        stored.write(&self.fs(id)?)?;
        self.finish(id, Some(&stored), false)?;
        self.destroy_snapshot(self.snapshot_name(Head::of(id), id))
    }

    /// The header of a volume or clone, without opening its files for changes.
    ///
    /// # Errors
    /// * [`Error::Pool`]: there is no such volume or clone.
    /// * [`Error::Header`]: it has no header.
    pub fn stored(&self, found: Found) -> Result<Stored> {
        match found {
            Found::Dataset(id) => self.header(id)?.ok_or(Error::Header { volume: id }),
            Found::Snapshot { head, id } => self.clone_header(head, id),
        }
    }

    /// The clones in a file system.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such file system.
    pub fn clones(&self, head: Head) -> Result<Vec<VolumeId>> {
        let dataset = self.pool.dataset(&self.head_name(head))?;
        let all = self.pool.spa().read(|| dataset.dsl().snapshot_objects());
        let all = all.map_err(poolhouse::Error::from)?;
        Ok(all.iter().filter_map(|(snapshot, _)| clone_of(snapshot)).collect())
    }

    /// The header of a volume, without opening its files for changes.
    ///
    /// # Errors
    /// [`Error::Pool`]: there is no such volume.
    pub fn header(&self, id: VolumeId) -> Result<Option<Stored>> {
        if let Some(stored) = self.received_header(id)? {
            return Ok(Some(stored));
        }
        Stored::read(&self.pool.dataset(&self.name(id))?.filesystem()?)
    }

    /// Its space.
    ///
    /// # Errors
    /// [`Error::Pool`]: the properties can't be read.
    pub fn space(&self) -> Result<Space> {
        let dataset = self.pool.dataset(&self.dataset)?;
        let number = |prop| {
            let value =
                self.pool.spa().read(|| dataset.dsl().property(prop)).map_err(poolhouse::Error::from)?;
            Ok::<u64, Error>(match value.map(|property| property.value) {
                Some(Value::Number(number)) => number,
                _ => 0,
            })
        };
        let (used, free) = (number(dsl::Prop::Used)?, number(dsl::Prop::Available)?);
        Ok(Space { total: used.saturating_add(free) >> 10, free: free >> 10 })
    }
}
