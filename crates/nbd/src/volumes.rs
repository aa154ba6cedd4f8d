//! The volumes of one pool, as exports.
//!
//! # Theory
//! Any volume or snapshot of one can be asked for by its full name. It is opened for the first connection that uses it, shared by all, and closed after
//! the last: a volume that nobody uses belongs to nobody, and can be destroyed or rolled back. A head is opened to be written where the pool can be, whatever its
//! `readonly` says, so that this property takes effect on what is open; a snapshot is read, and kept from being destroyed meanwhile.
//!
//! # Life
//! A volume is *moving* while it is opened or closed; who wants it then waits. [`Volumes::close`] ends all of them, before the pool goes.
//!
//! # Locks
//! The table's lock is held for look-ups, never while something is opened or closed.
//!
//! # See
//! OpenZFS `zvol_open`, `zvol_release`; the properties `volmode` and `snapdev`.

use crate::connection::Shared;
use crate::crew::Crew;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::option::About;
use dmu::Extent;
use dsl::{Kind, LongHold, Prop, Value};
use ondisk::ObjNum;
use parking_lot::{Condvar, Mutex};
use poolhouse::Pool;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use zvol::Volume;

/// Most threads that work for the exports of a pool: many may wait for one commit of a log.
const HANDS: usize = 16;
/// How long connections that are told to end may take.
const ENDING: Duration = Duration::from_secs(20);
/// `volmode=none`.
const VOLMODE_NONE: u64 = 3;
/// `snapdev=visible`.
const SNAPDEV_VISIBLE: u64 = 1;

/// The volumes of one pool.
pub struct Volumes {
    pool: Pool,
    crew: Crew,
    shared: Arc<Shared>,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    closed: bool,
    /// By the dataset's object, which a rename leaves.
    open: BTreeMap<u64, Slot>,
}

enum Slot {
    Moving,
    Open(Arc<Open>, usize),
}

/// An open volume.
struct Open {
    /// Its dataset's name, as it was when anybody looked last.
    name: Mutex<String>,
    volume: Volume,
    /// Nobody may write: it is a snapshot, its pool can't be written, or its `readonly` says so.
    read_only: AtomicBool,
    /// Tells connections to end.
    over: watch::Sender<bool>,
    _hold: Option<LongHold>,
}

/// A use of an export, which is open as long as there is one. Dropping the last one closes it, which may take a while.
pub struct Lease {
    volumes: Arc<Volumes>,
    object: u64,
    /// There until it is dropped.
    open: Option<Arc<Open>>,
}

/// What [`Volumes::users`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The export's name.
    pub name: String,
    /// Connections that use it.
    pub connections: usize,
}

impl Volumes {
    /// Those of a pool. Nothing is opened.
    pub fn new(pool: Pool) -> Arc<Volumes> {
        let crew = Crew::new(&format!("nbd-{}", pool.name()), HANDS);
        Arc::new(Volumes {
            pool,
            crew,
            shared: Arc::default(),
            table: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Who does what may block.
    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    /// What its connections share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Names of what can be asked for, in order: volumes, and their snapshots where `snapdev` says so.
    ///
    /// # Errors
    /// As the pool's records can't be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let options = dsl::ListOptions { snapshots: true, ..dsl::ListOptions::default() };
        let failed = |e| self.failed(self.pool.name(), e);
        let listing = self.pool.spa().read(|| self.pool.dsl().list_sorted(None, &options)).map_err(failed)?;
        for (dataset, error) in &listing.failures {
            tracing::warn!(dataset, %error, "not listed");
        }
        let shown = |dataset: &dsl::Dataset| match is_shown(dataset) {
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(dataset = dataset.name(), %error, "not listed");
                false
            }
        };
        Ok(listing.datasets.iter().filter(|d| shown(d)).map(dsl::Dataset::name).collect())
    }

    /// What is told of an export.
    ///
    /// # Errors
    /// [`Error::NoExport`]; [`Error::Open`] if it can't be read.
    pub fn about(&self, name: &str) -> Result<About> {
        let dataset = self.find(name)?;
        let what = if dataset.is_snapshot() { "snapshot of a ZFS volume" } else { "ZFS volume" };
        let about = |size, block_size, read_only| About {
            name: name.to_owned(),
            size,
            block_size,
            read_only,
            description: what.to_owned(),
        };
        if let Some(Slot::Open(open, _)) = self.table.lock().open.get(&dataset.object().0) {
            return Ok(about(open.size(), open.block_size(), open.is_read_only()));
        }
        let found = self.pool.spa().read(|| dataset.volume()).map_err(|e| self.failed(name, e))?;
        let Some((size, block)) = found else { return Err(Error::NoExport { name: name.to_owned() }) };
        let read_only = self.read_only(&dataset)?;
        Ok(about(size, u32::try_from(block).unwrap_or(u32::MAX), read_only))
    }

    /// Opens an export, or joins those who have it open.
    ///
    /// # Errors
    /// [`Error::NoExport`]; [`Error::Busy`] if somebody else has it, or the pool is going; [`Error::Open`].
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Lease> {
        let dataset = self.find(name)?;
        let object = dataset.object().0;
        let mut table = self.table.lock();
        loop {
            if table.closed {
                return Err(Error::Busy { name: name.to_owned() });
            }
            match table.open.get_mut(&object) {
                Some(Slot::Open(open, users)) => {
                    *users += 1;
                    return Ok(self.lease(object, Arc::clone(open)));
                }
                Some(Slot::Moving) => self.changed.wait(&mut table),
                None => break,
            }
        }
        table.open.insert(object, Slot::Moving);
        drop(table);
        let opened = self.open_dataset(&dataset, name);
        let mut table = self.table.lock();
        let lease = opened.map(|open| {
            let open = Arc::new(open);
            table.open.insert(object, Slot::Open(Arc::clone(&open), 1));
            self.lease(object, open)
        });
        if lease.is_err() {
            table.open.remove(&object);
        }
        self.changed.notify_all();
        lease
    }

    fn lease(self: &Arc<Self>, object: u64, open: Arc<Open>) -> Lease {
        Lease { volumes: Arc::clone(self), object, open: Some(open) }
    }

    fn open_dataset(&self, dataset: &dsl::Dataset, name: &str) -> Result<Open> {
        let failed = |source| Error::Open { name: name.to_owned(), source: Arc::new(source) };
        let read_only = AtomicBool::new(self.read_only(dataset)?);
        let (called, over) = (Mutex::new(name.to_owned()), watch::Sender::new(false));
        let writer = self.pool.spa().writer();
        if dataset.is_snapshot() || writer.is_none() {
            // Before it is opened, so that it can't be destroyed in between.
            let hold = writer.map(|live| live.dsl().heads().long_hold(dataset.object().0));
            let again = self.pool.dataset(name).map_err(failed)?;
            let volume = again.volume().map_err(failed)?;
            return Ok(Open { name: called, volume, read_only, over, _hold: hold });
        }
        let volume = self.pool.open_volume(dataset).map_err(|error| match &error {
            poolhouse::Error::Dataset(dsl::Error::Refused { why: dsl::Refusal::Busy, .. }) => {
                Error::Busy { name: name.to_owned() }
            }
            _ => failed(error),
        })?;
        Ok(Open { name: called, volume, read_only, over, _hold: None })
    }

    /// The dataset of an export.
    fn find(&self, name: &str) -> Result<dsl::Dataset> {
        let none = || Error::NoExport { name: name.to_owned() };
        let found = self.pool.spa().read(|| {
            let dataset = self.pool.dsl().dataset(name)?;
            let volume = dataset.head_kind()? == Some(Kind::Volume);
            let open = number(&dataset, Prop::Volmode)? != VOLMODE_NONE;
            Ok((volume && open).then_some(dataset))
        });
        match found {
            Ok(found) => found.ok_or_else(none),
            Err(dsl::Error::NoSuchDataset { .. } | dsl::Error::BadName { .. }) => Err(none()),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    fn failed(&self, name: &str, error: dsl::Error) -> Error {
        Error::Open { name: name.to_owned(), source: Arc::new(error.into()) }
    }

    fn read_only(&self, dataset: &dsl::Dataset) -> Result<bool> {
        if dataset.is_snapshot() || self.pool.spa().writer().is_none() {
            return Ok(true);
        }
        let said = self.pool.spa().read(|| number(dataset, Prop::Readonly));
        said.map(|n| n != 0).map_err(|e| self.failed(&dataset.name(), e))
    }

    /// Lets names and what properties say now take effect on what is open.
    pub fn follow(self: &Arc<Self>) {
        for lease in self.all() {
            let object = lease.object;
            let dataset = self.pool.spa().read(|| self.pool.dsl().by_object(ObjNum(object)));
            let said = dataset.map_err(|e| self.failed(self.pool.name(), e)).and_then(|dataset| {
                *lease.open().name.lock() = dataset.name();
                self.read_only(&dataset)
            });
            match said {
                Ok(read_only) => lease.open().read_only.store(read_only, Ordering::Release),
                Err(error) => tracing::warn!(object, %error, "its properties are unreadable"),
            }
        }
    }

    /// What is open, and stays so.
    fn all(self: &Arc<Self>) -> Vec<Lease> {
        let mut table = self.table.lock();
        let open = table.open.iter_mut().filter_map(|(object, slot)| match slot {
            Slot::Open(open, users) => {
                *users += 1;
                Some(self.lease(*object, Arc::clone(open)))
            }
            Slot::Moving => None,
        });
        open.collect()
    }

    /// Gives an open volume another size; `None` if it is not open.
    pub fn resize(self: &Arc<Self>, object: u64, size: u64) -> Option<Result<()>> {
        let lease = self.all().into_iter().find(|lease| lease.object == object)?;
        Some(lease.open().volume.resize(size).map_err(Error::from))
    }

    /// Objects of the datasets that are open, or about to be.
    pub fn objects(&self) -> Vec<u64> {
        self.table.lock().open.keys().copied().collect()
    }

    /// Who uses what.
    pub fn users(&self) -> Vec<User> {
        let table = self.table.lock();
        let used = table.open.values().filter_map(|slot| match slot {
            Slot::Open(open, users) => Some(User { name: open.name.lock().clone(), connections: *users }),
            Slot::Moving => None,
        });
        used.collect()
    }

    /// Lets nobody open anything any more, and closes everything: with `force` also what is used, whose connections end. Returns false, and leaves
    /// everything as it is, if something is used all the same.
    pub fn close(&self, force: bool) -> bool {
        let mut table = self.table.lock();
        if table.open.values().any(|slot| matches!(slot, Slot::Open(..))) && !force {
            return false;
        }
        table.closed = true;
        for slot in table.open.values() {
            if let Slot::Open(open, _) = slot {
                open.over.send_replace(true);
            }
        }
        let patience = Instant::now() + ENDING;
        while !table.open.is_empty() {
            if self.changed.wait_until(&mut table, patience).timed_out() && !table.open.is_empty() {
                table.closed = false;
                return false;
            }
        }
        true
    }

    /// What was closed can be opened again.
    pub fn reopen(&self) {
        self.table.lock().closed = false;
    }

    fn release(&self, object: u64, open: Arc<Open>) {
        let mut table = self.table.lock();
        let slot = table.open.get_mut(&object).expect("what is leased is in the table");
        let Slot::Open(_, users) = slot else { unreachable!("what is leased is open") };
        *users -= 1;
        if *users > 0 {
            return;
        }
        let last = std::mem::replace(slot, Slot::Moving);
        drop(table);
        // Closed before somebody else may open it.
        drop((last, open));
        self.table.lock().open.remove(&object);
        self.changed.notify_all();
    }
}

/// Whether a list of exports has it.
fn is_shown(dataset: &dsl::Dataset) -> dsl::Result<bool> {
    Ok(dataset.head_kind()? == Some(Kind::Volume)
        && number(dataset, Prop::Volmode)? != VOLMODE_NONE
        && (!dataset.is_snapshot() || number(dataset, Prop::Snapdev)? == SNAPDEV_VISIBLE))
}

/// A property; snapshots have those of their volume.
fn number(dataset: &dsl::Dataset, prop: Prop) -> dsl::Result<u64> {
    let of = match dataset.is_snapshot() {
        true => dataset.dir().head()?,
        false => Some(dataset.clone()),
    };
    let found = of.map(|of| of.property(prop)).transpose()?.flatten();
    Ok(match found.map(|property| property.value) {
        Some(Value::Number(number)) => number,
        Some(Value::Text(_)) | None => 0,
    })
}

impl Lease {
    fn open(&self) -> &Open {
        self.open.as_ref().expect("it is there until it is dropped")
    }

    /// Becomes true when the export goes.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.open().over.subscribe()
    }

    /// The disk.
    pub fn disk(&self) -> &dyn Disk {
        self.open()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let open = self.open.take().expect("it is dropped once");
        self.volumes.release(self.object, open);
    }
}

impl Disk for Open {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn block_size(&self) -> u32 {
        u32::try_from(self.volume.block_size()).expect("a block has 16 MiB at most")
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.volume.read_at(buf, offset)?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.volume.write_at(data, offset)?)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        Ok(self.volume.punch(offset, len)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.volume.flush()?)
    }

    fn next(&self, offset: u64, want: Extent) -> Result<u64> {
        Ok(self.volume.next(offset, want)?)
    }
}
